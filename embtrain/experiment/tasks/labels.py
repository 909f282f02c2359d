"""Labels of documents: a document asks which of n labels it has; judged by the labels that stand on top."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.labels import documents as document_files, examples as labelled, sparse
from embtrain.data.labels.examples import Examples, LabelBatch
from embtrain.data.labels.sparse import Csr, Documents, LabelsConfig
from embtrain.data.text import stored_corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import label_precision
from embtrain.evaluate.config import LabelsEvaluate
from embtrain.experiment.run import scoring as judge
from embtrain.experiment.tasks.base import Task, corpus, name_of, one_file, stored_identity

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings

NAME = 250  # bytes that the name of a label takes, in a list, a vocabulary and its index
FEW = 1024  # held-out examples that stand for all where memory is told
_log = logging.getLogger("embtrain")


class Labels(Task):
    name = "labels"
    section = "labels"
    readers, learns = frozenset({"xc", "arff", "dense", "planted"}), "documents with labels"
    Config = LabelsConfig
    Evaluate: ClassVar[type[LabelsEvaluate]] = LabelsEvaluate
    metric = "test/precision@1"

    def __init__(self, settings: Settings, documents: Documents, identity: dict[str, Any]):
        self.settings = settings
        self.config, self.evaluate = cast(LabelsConfig, settings.data), cast(LabelsEvaluate, settings.evaluate)
        self.parts = sparse.parts(documents, self.config)
        self.documents = replace(documents, features=documents.features.unit()) if self.config.unit else documents
        self.identity = {**identity, "settings": {**identity["settings"], **self.config.model_dump()},
                         "counts": {**identity["counts"], **{part: len(getattr(self.parts, part))
                                                             for part in ("train", "valid", "test")}}}
        self.examples = Examples(self.documents, self.parts.train, self.config.reduction == "one", settings.train.seed)

    @classmethod
    def read(cls, settings: Settings) -> Labels:
        config, found = cast(LabelsConfig, settings.data), corpus(settings)
        cache, name = fetch.cache_folder() / "labels", name_of(settings)
        if isinstance(found, Path):
            documents, identity = labelled.load([found], config.reader, config, cache, name)
        elif found.planted is not None:
            documents, identity = labelled.plant(found.planted, cache, name)
        else:
            if config.label_attributes is None:
                config = config.model_copy(update={"label_attributes": found.label_attributes})
            documents, identity = labelled.load(fetch.corpus_paths(found), found.reader, config, cache, name)
        _check_size(documents, settings)
        made = cls(settings, documents, identity)
        if len(made.parts.train) == 0:
            raise DataError(f"corpus: {settings.corpus}: no training document has a label; give more documents, or "
                            "lower labels.valid and labels.test")
        if again := labelled.repeated(documents, made.parts):
            _log.warning("%s: %s held-out documents have the features of a training document", name, f"{again:,}")
        for part in ("valid", "test"):
            if not cls.missing_split_reason(settings, part) and len(getattr(made.parts, part)) == 0:
                _log.warning("%s: the part %s holds no document with a label, so nothing is measured on it", name, part)
        return made

    def kept(self) -> dict[str, np.ndarray]:
        """label_counts (V,) float64 and n_train (1,): training documents; seen (v,) uint8: features they have."""
        seen = np.zeros(self.documents.n_features, np.uint8)
        for ids in np.array_split(self.parts.train, max(1, len(self.parts.train) // FEW)):
            seen[self.documents.features.rows(ids).index] = 1
        return {"label_counts": self.counts, "n_train": np.array([len(self.parts.train)]), "seen": seen}

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Labels:
        arrays, names = stored_corpus.read(folder) or {}, Vocabulary.read(folder / "labels.txt").words
        lacking = np.zeros(0)
        counts, n, seen = (arrays.get(name, lacking) for name in ("label_counts", "n_train", "seen"))
        if counts.shape != (len(names),) or n.shape != (1,) or seen.ndim != 1 or len(seen) == 0:
            raise DataError(f"{folder / stored_corpus.FILE}: does not fit labels.txt; put back the files that training "
                            "wrote")
        nothing = np.zeros(0, np.int32)
        none = Csr(np.zeros(1, np.int64), nothing, np.zeros(0, np.float32))
        task = cls(settings, Documents(none, Csr(none.start, nothing), len(seen), len(names), np.zeros(0, np.int64),
                                       names), {**stored_identity(folder)})
        task.counts, task.n_train, task.seen = counts, int(n[0]), seen
        return task

    @cached_property
    def n_train(self) -> int:
        """How many documents were trained on."""
        return len(self.parts.train)

    @cached_property
    def seen(self) -> np.ndarray:
        """(v,) uint8  1 for each feature of a training document."""
        return self.kept()["seen"]

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        if cast(LabelsEvaluate, settings.evaluate).heldout_documents and getattr(settings.data, part):
            return ""
        return f"nothing is held out; set evaluate.heldout_documents and labels.{part} above 0"

    @cached_property
    def counts(self) -> np.ndarray:
        """(V,) float64  how many training documents have each label."""
        index = self.documents.labels.rows(self.parts.train).index
        return np.bincount(index, minlength=self.documents.n_labels).astype(np.float64)

    def world(self, device: str) -> ProblemSpec:
        counts, settings = torch.from_numpy(self.counts), self.settings
        if self.config.reduction == "one":                   # a document's labels share what it gives: one example
            train = self.documents.labels.rows(self.parts.train)
            share = np.repeat(1 / np.maximum(train.size(), 1), train.size())
            counts = torch.from_numpy(np.bincount(train.index, share, minlength=self.documents.n_labels))
        return ProblemSpec(n_candidates=self.documents.n_labels, counts=counts, n_contexts=len(self.documents.labels),
                     n_features=self.documents.n_features, dim=settings.model.dim, seed=settings.train.seed,
                     device=device)

    def candidates(self) -> Sequence[str]:
        return self.documents.names or [str(i) for i in range(self.documents.n_labels)]

    def asked(self, query: Query) -> list[str]:
        return [f"document {i}" for i in query.context.tolist()]

    def answers(self, most: int) -> KnownPairs:
        train = labelled.batch_of(self.documents, self.parts.train)
        if 3 * 8 * len(train) > most:                        # keys, and what sorting them takes
            raise ResourceError(f"the set of {len(train):,} (document, label) pairs takes more than {most:,} bytes; "
                                "do without it (negatives.mask: target)")
        return KnownPairs(train.document, train.target, self.documents.n_labels)

    def _heldout(self, part: str) -> LabelBatch:
        ids, most = getattr(self.parts, part), self.evaluate.heldout_documents
        if len(ids) > most:
            ids = np.sort(np.random.default_rng(self.config.split_seed).permutation(ids)[:most])
        return labelled.batch_of(self.documents, ids)

    def summary(self) -> str:
        n = len(self.parts.train)
        pairs = n if self.config.reduction == "one" else int(self.counts.sum())
        return (f"{n:,} training documents of {self.documents.n_features:,} features, "
                f"{self.documents.n_labels:,} labels, {pairs:,} pairs an epoch")

    def describe(self, folder: Path) -> None:
        Vocabulary(self.documents.name(), self.counts.astype(np.int64), int(self.counts.sum())).write(
            folder / "labels.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "labels.txt").words != self.documents.name():
            raise self.unlike(folder, "labels.txt")

    def during(self, made: Components) -> list[Score]:
        return self._judged(made, "valid", self.evaluate.model_copy(update={"resamples": 0}), None)

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = made.model.vectors().detach().cpu().float().numpy()
        files_of_vectors.write(folder / "vectors.safetensors", Vectors(self.documents.name(), table), "safetensors")
        return [row for part in ("valid", "test") for row in self._judged(made, part, self.evaluate, items)]

    def judging(self, made: Components) -> int:
        held = max((self.heldout(part) for part in ("valid", "test")), key=len)
        return judge.evaluation_bytes(made, held.rows(slice(0, FEW)), len(held))

    def judge_on(self, made: Components, where: Path, folder: Path | None = None) -> list[Score]:
        """The measures of held-out documents, of those of a file in a format of training. The first
        evaluate.heldout_documents that have a label of the run are judged."""
        found = document_files.read(one_file(where), self.config.reader, self.documents.n_features, self.candidates(),
                                    self.evaluate.heldout_documents)
        features = found.features.unit() if self.config.unit else found.features
        documents = replace(self.documents, features=features, labels=found.labels)
        batch = labelled.batch_of(documents, np.arange(len(found.labels)))
        unseen = document_files.without(found.features, self.seen) | (found.beyond > 0)
        note = found.note()
        note += f"; {unseen.sum():,} of them with features of no training document" if unseen.any() else ""
        return [row._replace(note=f"{row.note}; {note}")
                for row in self._rows(made, batch, where.name, self.evaluate, None)]

    def _judged(self, made: Components, part: str, config: LabelsEvaluate, items: Items | None) -> list[Score]:
        return self._rows(made, cast(LabelBatch, self.heldout(part)), part, config, items)

    def _rows(self, made: Components, batch: LabelBatch, part: str, config: LabelsEvaluate, items: Items | None
              ) -> list[Score]:
        p = label_precision.propensity(self.counts, self.n_train, config.propensity_a, config.propensity_b)
        return [*judge.labels(made, batch, part, p, config, items),
                *judge.likelihood(made, batch, part, config, items, batch.document.numpy())]


def _check_size(documents: Documents, settings: Settings) -> None:
    """What a file claims must fit before tables of it are made: the header of a repository file is one line."""
    need = 3 * 4 * settings.model.dim * (documents.n_features + documents.n_labels)      # tables, gradients, states
    need += NAME * documents.n_labels
    if need > (free := machine.free()):
        raise ResourceError(f"corpus: {settings.corpus}: {documents.n_features:,} features and {documents.n_labels:,} "
                            f"labels take about {need / 2**30:,.1f} GiB of tables and names at model.dim: "
                            f"{settings.model.dim}, and {free / 2**30:,.1f} are free; lower model.dim")
