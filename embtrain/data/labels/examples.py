"""Loads documents with labels through the cache, and makes training batches of them.

An example is a pair (document, one of its labels). A block is a number of documents, chosen by (seed, epoch). The rows
of a document are adjacent, so that its query is encoded once. Under `reduction: all` every label of a document is an
example; under `one` each document has one example, with a label drawn again in every epoch.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import DataError
from embtrain.common.types import Batch
from embtrain.data.formats.running_text import data_verdict
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FileRules, Inventory
from embtrain.data.labels import arff, dense, synthetic, xc_repository
from embtrain.data.labels.sparse import Csr, Documents, DocumentsBuilder, DocumentSplit, LabelsConfig
from embtrain.data.labels.synthetic import PlantedConfig
from embtrain.data.storage.cache import cache_location, load_or_build_arrays, settings_key
from embtrain.data.storage.containers import Source, without_packing
from embtrain.data.storage.skipped import Skipped, counted, log_lines, number_files
from embtrain.data.text.windows import WindowBatch

_ORDER, _CHOICE = range(2)  # one random stream per use
NAMES, SPLIT = "label names", "split"
_EXPECTED_FILES = "documents with labels (.txt, .arff, .svm, .data; compressed or not)"
_log = logging.getLogger("embtrain")


@dataclass(frozen=True)
class LabelBatch(Batch):
    """A batch of examples: target is a label of the document. Rows of one document are adjacent."""

    document: Tensor  # (B,) int64
    window: Tensor    # (B,) int64  0, 1, ...: position of the document in the batch, ascending
    features: Csr     # of all documents of the corpus, not only of the batch


class LabelExamples:
    """The (document, label) examples of the documents `ids`, in a new order each epoch."""

    def __init__(self, documents: Documents, ids: np.ndarray, one_label: bool, seed: int):
        self._documents, self._ids, self._one, self._seed = documents, ids, one_label, seed

    def n_blocks(self, epoch: int, block: int) -> int:
        return -(-len(self._ids) // block)

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[LabelBatch]:
        order = self._draw(epoch, _ORDER).permutation(len(self._ids)) if shuffle else np.arange(len(self._ids))
        chance = self._draw(epoch, _CHOICE).random(len(self._ids)) if self._one else None  # by position in ids
        for begin in range(start * block, len(order), block):
            rows = order[begin:begin + block]
            yield make_batch(self._documents, self._ids[rows], None if chance is None else chance[rows])

    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]:
        raise TypeError("documents have no windows of words; the fused engine is rejected earlier")

    def _draw(self, epoch: int, use: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, epoch, use]))


def make_batch(documents: Documents, ids: np.ndarray, chance: np.ndarray | None = None) -> LabelBatch:
    """Make a batch of all labels of the documents `ids` (n,), or of one label each.

    chance (n,): number in [0, 1) that selects the label; None: all labels.
    """
    labels = documents.labels.rows(ids)
    if chance is not None:
        chosen = labels.start[:-1] + (chance * labels.size()).astype(np.int64)
        labels = Csr(np.arange(len(ids) + 1, dtype=np.int64), labels.index[chosen])
    window = np.repeat(np.arange(len(ids)), labels.size())
    target = torch.from_numpy(labels.index.astype(np.int64))
    return LabelBatch(target=target, slot=torch.zeros_like(target), document=torch.from_numpy(ids[window]),
                      window=torch.from_numpy(window), features=documents.features)


def load(where: list[Path], reader: str, config: LabelsConfig, cache: Path | None, name: str
         ) -> tuple[Documents, dict[str, Any]]:
    """Load the documents of files, and their identity: name, sha256, settings, counts. DataError if a file is damaged.
    """
    if not where:
        raise DataError(f"corpus: {name}: is empty; give a file or folder")
    files = inventory.build_inventory(where, FILE_RULES, config.files)
    files.require_training(where)
    key = {"reader": reader, "content": files.content(where),
           **config.model_dump(include={"label_attributes", "split"})}
    read = files.checked(lambda: _read(where, files, reader, config))
    documents, identity = _load_cached(cache, name, key, read, files.key(), [where[0], *files.paths()])
    documents.check_claims(str(where[0]))
    return documents, {**identity, "files": files.tree()}


def load_synthetic(config: PlantedConfig, cache: Path | None, name: str) -> tuple[Documents, dict[str, Any]]:
    """Generate the documents of a synthetic recipe, and their identity."""
    key = {"planted": synthetic.VERSION, **config.model_dump()}
    return _load_cached(cache, name, {"content": settings_key(key), **key}, lambda: synthetic.generate(config))


def _load_cached(cache: Path | None, name: str, key: dict[str, Any], build: Any,
             names: Sequence[Sequence[str]] = (), places: Sequence[Path] = ()) -> tuple[Documents, dict[str, Any]]:
    """Return documents and identity from the cache, or build them. names: name and part of each file. places: paths of
    warnings."""
    digest, folder = cache_location(cache, name, "labels", {**key, "names": names})

    def arrays() -> dict[str, np.ndarray]:
        built: Documents = build()
        return replace(built, warnings=number_files(built.warnings, places)).arrays()

    documents = Documents.from_arrays(load_or_build_arrays(folder, digest, arrays))
    counts = {"documents": len(documents.labels), "labels": documents.n_labels, "features": documents.n_features,
              "entries": len(documents.features.index), "without labels": int((documents.labels.size() == 0).sum())}
    unlabelled = Skipped(counts["without labels"], name)
    log_lines((*documents.warnings, *unlabelled.lines("document has no label and is skipped",
                                                      "documents have no label and are skipped")), places)
    return documents, {"name": name, "sha256": key["content"], "settings": key, "counts": counts}


def _role(name: str) -> str:
    """Return the role of a file that names labels or lists the test documents; '' for others."""
    stem = without_packing(name).lower()
    return NAMES if stem.endswith(".xml") else SPLIT if "trsplit" in stem or "tstsplit" in stem else ""


FILE_RULES = FileRules(
    "labels",
    _EXPECTED_FILES,
    lambda name: data_verdict(name, ("csv", "mat")),
    role=_role,
    single_data_set=True,
    suffixes=((".t", "test"), (".val", "valid"), (".tr", "train")),
)


def _read(where: list[Path], files: Inventory, reader: str, config: LabelsConfig) -> Documents:
    """Read the files in two passes, because a file with label names or a split may come after the data."""
    label_names: list[str] | None = None
    split: dict[str, np.ndarray] = {}
    for source, role in files.sources(NAMES, SPLIT):
        if role == NAMES:
            label_names = [*(label_names or []), *arff.read_names(source)]
        else:
            part = "test" if "tstsplit" in source.name.lower() else "train"
            split[part] = xc_repository.read_split(source, config.split)
    builder = DocumentsBuilder()
    for source, part in files.sources("train", "valid", "test"):
        begin = len(builder)
        kind = _detect_format(source) if reader == "auto" else reader
        if kind == "xc":
            xc_repository.read(source, builder)
        elif kind == "arff":
            first = arff.read(source, builder, label_names, config.label_attributes)
            if first is not None and not files.by_name(source.name):
                builder.test.append((first, len(builder)))
        else:
            dense.read(source, builder)
        if part != "train":
            (builder.test if part == "test" else builder.valid).append((begin, len(builder)))
    if len(builder) == 0:
        raise DataError(f"{where[0]}: contains no documents")
    if not len(builder.features.index):
        raise DataError(f"{where[0]}: no document has a feature, so labels cannot be predicted; give documents with "
                        "features")
    valid, test = (np.concatenate([np.zeros(0, np.int64), *(np.arange(*bounds) for bounds in part)])
                   for part in (builder.valid, builder.test))
    return Documents(builder.features.csr(), builder.labels.csr(), builder.n_features, builder.n_labels,
                     _test_documents(split, test, len(builder), str(where[0])), builder.names, valid,
                     builder.warnings())


def count_repeated(documents: Documents, parts: DocumentSplit) -> int:
    """Count the held-out documents whose features equal those of a training document, value by value."""
    features = documents.features
    assert features.value is not None

    def content(i: int) -> bytes:
        entries = slice(int(features.start[i]), int(features.start[i + 1]))
        return features.index[entries].tobytes() + features.value[entries].tobytes()  # type: ignore[index]
    seen = {content(i) for i in parts.train.tolist()} - {b""}
    return sum(content(i) in seen for part in (parts.valid, parts.test) for i in part.tolist())


def _test_documents(split: dict[str, np.ndarray], test: np.ndarray, n: int, where: str) -> np.ndarray:
    """Return the test documents: those of the split files if there are any, else `test`."""
    if not split:
        return test
    if len(split) == 1:
        raise DataError(f"{where}: has a {next(iter(split))} split file only; give trSplit and tstSplit together")
    if not len(split["test"]):
        raise DataError(f"{where}: the tstSplit file contains no documents; list those of the test split, counted from "
                        "1")
    listed = np.concatenate([split["train"], split["test"]])
    if len(test) or len(np.unique(listed)) != len(listed) or listed.max() >= n:
        raise DataError(
            f"{where}: trSplit and tstSplit list {len(listed):,} documents from 1 to {listed.max() + 1:,} of one file "
            f"of {n:,}; list each at most once, and give no test file"
        )
    if len(listed) < n:
        _log.warning("%s: %s in neither split file and used for training", where,
                     counted(n - len(listed), "document is", "documents are"))
    return np.sort(split["test"])


def _detect_format(source: Source) -> str:
    head = source.stream.peek(4096)[:4096]
    if re.match(rb"(?:\xef\xbb\xbf)?\s*[@%]", head):
        return "arff"
    return "xc" if xc_repository.is_header(head) or xc_repository.is_bare(head) else "dense"
