"""Documents with labels: predict which of n labels a document has; evaluated by the top-ranked labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch

from embtrain.common import machine
from embtrain.common.candidate_lists import ListKey
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.labels import documents as document_files, examples as label_examples, sparse
from embtrain.data.labels.examples import LabelBatch, LabelExamples
from embtrain.data.labels.sparse import Csr, Documents, LabelsConfig
from embtrain.data.storage import stored_corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import label_precision
from embtrain.evaluate.config import LabelsEvaluate
from embtrain.experiment.run import scoring as scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks.base import Task, corpus_name, find_corpus, read_identity, require_file

NAME_BYTES = 250  # bytes of a label name in a list, a vocabulary and its index
N_PROBE = 1024    # held-out examples that are measured to estimate memory
_log = logging.getLogger("embtrain")


class LabelsTask(Task):
    """Task for documents with several labels each."""

    name = "labels"
    section = "labels"
    recipe_readers, corpus_kind = frozenset({"xc", "arff", "dense", "planted"}), "documents with labels"
    Config = LabelsConfig
    Evaluate: ClassVar[type[LabelsEvaluate]] = LabelsEvaluate
    metric = "test/precision@1"

    def __init__(self, settings: Settings, documents: Documents, identity: dict[str, Any]):
        self.settings = settings
        self.config, self.evaluate = cast(LabelsConfig, settings.data), cast(LabelsEvaluate, settings.evaluate)
        self.parts = sparse.split_documents(documents, self.config)
        self.documents = replace(documents, features=documents.features.unit()) if self.config.unit else documents
        self.identity = {**identity, "settings": {**identity["settings"], **self.config.model_dump()},
                         "counts": {**identity["counts"], **{part: len(getattr(self.parts, part))
                                                             for part in ("train", "valid", "test")}}}
        self.examples = LabelExamples(
            self.documents, self.parts.train, self.config.reduction == "one", settings.train.seed
        )

    @classmethod
    def read(cls, settings: Settings) -> LabelsTask:
        config, source = cast(LabelsConfig, settings.data), find_corpus(settings)
        cache, name = fetch.cache_folder() / "labels", corpus_name(settings)
        if isinstance(source, Path):
            documents, identity = label_examples.load([source], config.reader, config, cache, name)
        elif source.planted is not None:
            documents, identity = label_examples.load_synthetic(source.planted, cache, name)
        else:
            if config.label_attributes is None:
                config = config.model_copy(update={"label_attributes": source.label_attributes})
            documents, identity = label_examples.load(fetch.corpus_paths(source), source.reader, config, cache, name)
        _check_size(documents, settings)
        task = cls(settings, documents, identity)
        if len(task.parts.train) == 0:
            raise DataError(f"corpus: {settings.corpus}: no training document has a label; give more documents, or "
                            "lower labels.valid and labels.test")
        if n_repeated := label_examples.count_repeated(documents, task.parts):
            _log.warning("%s: %s held-out documents have the features of a training document", name, f"{n_repeated:,}")
        for part in ("valid", "test"):
            if not cls.missing_split_reason(settings, part) and len(getattr(task.parts, part)) == 0:
                _log.warning("%s: the %s split contains no document with a label, so it is not evaluated", name, part)
        return task

    def stored_arrays(self) -> dict[str, np.ndarray]:
        """Return label_counts (V,) float64, n_train (1,): number of training documents, seen (v,) uint8: features in
        training."""
        return {"label_counts": self.counts, "n_train": np.array([len(self.parts.train)]),
                "seen": (self.feature_counts > 0).astype(np.uint8)}

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> LabelsTask:
        arrays, names = stored_corpus.read(folder) or {}, Vocabulary.read(folder / "labels.txt").words
        lacking = np.zeros(0)
        counts, n, seen = (arrays.get(name, lacking) for name in ("label_counts", "n_train", "seen"))
        if counts.shape != (len(names),) or n.shape != (1,) or seen.ndim != 1 or len(seen) == 0:
            raise DataError(f"{folder / stored_corpus.FILE}: does not fit labels.txt; restore the files that training "
                            "wrote")
        no_ids = np.zeros(0, np.int32)
        no_features = Csr(np.zeros(1, np.int64), no_ids, np.zeros(0, np.float32))
        task = cls(
            settings,
            Documents(no_features, Csr(no_features.start, no_ids), len(seen), len(names), np.zeros(0, np.int64), names),
            {**read_identity(folder)},
        )
        task.counts, task.n_train, task.seen = counts, int(n[0]), seen
        return task

    @cached_property
    def feature_counts(self) -> np.ndarray:
        """The number of training documents with each feature, (v,) float64."""
        counts = np.zeros(self.documents.n_features)
        for ids in np.array_split(self.parts.train, max(1, len(self.parts.train) // N_PROBE)):
            counts += np.bincount(self.documents.features.rows(ids).index, minlength=len(counts))
        return counts

    @cached_property
    def n_train(self) -> int:
        """The number of training documents."""
        return len(self.parts.train)

    @cached_property
    def seen(self) -> np.ndarray:
        """1 for each feature that a training document has, (v,) uint8."""
        return self.stored_arrays()["seen"]

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        if cast(LabelsEvaluate, settings.evaluate).heldout_documents and getattr(settings.data, part):
            return ""
        return f"nothing is held out; set evaluate.heldout_documents and labels.{part} above 0"

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of training documents with each label, (V,) float64."""
        index = self.documents.labels.rows(self.parts.train).index
        return np.bincount(index, minlength=self.documents.n_labels).astype(np.float64)

    def problem_spec(self, device: str) -> ProblemSpec:
        counts, settings = torch.from_numpy(self.counts), self.settings
        if self.config.reduction == "one":                   # one example a document, shared by its labels
            train = self.documents.labels.rows(self.parts.train)
            share = np.repeat(1 / np.maximum(train.size(), 1), train.size())
            counts = torch.from_numpy(np.bincount(train.index, share, minlength=self.documents.n_labels))
        return ProblemSpec(n_candidates=self.documents.n_labels, counts=counts, n_contexts=len(self.documents.labels),
                     n_features=self.documents.n_features, feature_counts=torch.from_numpy(self.feature_counts),
                     dim=settings.model.dim, seed=settings.train.seed, device=device)

    def candidate_names(self) -> Sequence[str]:
        return self.documents.names or [str(i) for i in range(self.documents.n_labels)]

    def describe_queries(self, query: Query) -> list[str]:
        return [f"document {i}" for i in query.context.tolist()]

    def query_names(self, by: ListKey) -> QueryNames:
        raise UsageError(f"{key('source')}: candidates: documents have no names by which a file could list candidates; "
                         "choose another source")

    def known_positives(self, max_bytes: int) -> KnownPairs:
        train = label_examples.make_batch(self.documents, self.parts.train)
        if 3 * 8 * len(train) > max_bytes:  # keys, and the memory to sort them
            raise ResourceError(
                f"the set of {len(train):,} (document, label) pairs takes more than {max_bytes:,} bytes; set "
                "negatives.filter: target"
            )
        return KnownPairs(train.document, train.target, self.documents.n_labels)

    def _heldout(self, part: str) -> LabelBatch:
        ids, max_documents = getattr(self.parts, part), self.evaluate.heldout_documents
        if len(ids) > max_documents:
            ids = np.sort(np.random.default_rng(self.config.split_seed).permutation(ids)[:max_documents])
        return label_examples.make_batch(self.documents, ids)

    def summary(self) -> str:
        n = len(self.parts.train)
        pairs = n if self.config.reduction == "one" else int(self.counts.sum())
        return (f"{n:,} training documents of {self.documents.n_features:,} features, {self.documents.n_labels:,} "
                f"labels, {pairs:,} pairs per epoch")

    def describe(self, folder: Path) -> None:
        Vocabulary(self.documents.label_names(), self.counts.astype(np.int64), int(self.counts.sum())).write(
            folder / "labels.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "labels.txt").words != self.documents.label_names():
            raise self.ids_changed(folder, "labels.txt")

    def validate(self, components: ModelParts) -> list[Score]:
        return self._score_part(components, "valid", self.evaluate.model_copy(update={"resamples": 0}), None)

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = components.model.vectors().detach().cpu().float().numpy()
        vector_files.write(folder / "vectors.safetensors", Vectors(self.documents.label_names(), table), "safetensors")
        return [row for part in ("valid", "test") for row in self._score_part(components, part, self.evaluate, items)]

    def evaluation_bytes(self, components: ModelParts) -> int:
        heldout = max((self.heldout(part) for part in ("valid", "test")), key=len)
        return scoring.evaluation_bytes(components, heldout.rows(slice(0, N_PROBE)), len(heldout))

    def score_file(self, components: ModelParts, where: Path, folder: Path | None = None) -> list[Score]:
        """Score the documents of a file in a training format, with the measures of held-out documents.

        The first evaluate.heldout_documents documents that have a label of the run are used.
        """
        own = document_files.read(
            require_file(where),
            self.config.reader,
            self.documents.n_features,
            self.candidate_names(),
            self.evaluate.heldout_documents,
        )
        features = own.features.unit() if self.config.unit else own.features
        documents = replace(self.documents, features=features, labels=own.labels)
        batch = label_examples.make_batch(documents, np.arange(len(own.labels)))
        unseen = document_files.has_unseen_feature(own.features, self.seen) | (own.unknown_features > 0)
        note = own.note()
        note += f"; {unseen.sum():,} of them with features that occur in no training document" if unseen.any() else ""
        return [row._replace(note=f"{row.note}; {note}")
                for row in self._rows(components, batch, where.name, self.evaluate, None)]

    def _score_part(
        self, components: ModelParts, part: str, config: LabelsEvaluate, items: Items | None
    ) -> list[Score]:
        return self._rows(components, cast(LabelBatch, self.heldout(part)), part, config, items)

    def _rows(self, components: ModelParts, batch: LabelBatch, part: str, config: LabelsEvaluate, items: Items | None
              ) -> list[Score]:
        p = label_precision.propensity(self.counts, self.n_train, config.propensity_a, config.propensity_b)
        return [*scoring.labels(components, batch, part, p, config, items),
                *scoring.likelihood(components, batch, part, config, items, batch.document.numpy())]


def _check_size(documents: Documents, settings: Settings) -> None:
    """Raise ResourceError if the tables would not fit in memory: one header line can claim any number of features."""
    copies = 3 if settings.train.tables == "memory" else 0      # tables, gradients, states
    need = copies * 4 * settings.model.dim * (documents.n_features + documents.n_labels)
    need += NAME_BYTES * documents.n_labels
    if need > (free := machine.free()):
        raise ResourceError(f"corpus: {settings.corpus}: {documents.n_features:,} features and {documents.n_labels:,} "
                            f"labels take about {need / 2**30:,.1f} GiB of tables and names at model.dim: "
                            f"{settings.model.dim}, and {free / 2**30:,.1f} are free; lower model.dim")
