"""Pairs (hyponym, hypernym) of a hierarchy: configuration, loading and training batches.

An example predicts one end of a pair: the hypernym (slot 0) or the hyponym (slot 1). `pairs.slot` chooses the examples
of an epoch. The content of a block depends only on (seed, epoch, block).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from embtrain.common.config import Section
from embtrain.common.errors import DataError, ResourceError
from embtrain.common.types import Batch
from embtrain.data.hierarchy import closure, store, wordnet, wordnet_yaml
from embtrain.data.hierarchy.files import ConceptsByWord, RawHierarchy, find_split_files, read_split, read_table
from embtrain.data.hierarchy.splits import HierarchySplit, split
from embtrain.data.hierarchy.store import StoredHierarchy
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.storage.cache import cache_location, load_or_build_arrays
from embtrain.data.storage.containers import fingerprint
from embtrain.data.storage.skipped import Skipped, log_lines, number_files

HYPERNYM, HYPONYM = 0, 1  # Batch.slot: the open end
_ORDER, _SLOT = range(2)


class PairsConfig(Section):
    protocol: Literal["clean", "legacy", "given"] = Field("clean", description="protocol of the held-out pairs")
    split: Literal["edge", "node"] = Field(
        "edge", description="clean: hold out single pairs, or the pairs of some concepts")
    percent: int = Field(
        0, ge=0, le=100, description="given: percentage of the implied pairs used for training; 0: none; drawn if "
                                     "there is no file of it")
    root: str | None = Field(
        None, description="concept added above all concepts without a hypernym; null: the recipe's")
    valid: int = Field(
        4000, ge=1, description="pairs held out for validation, at most a tenth of all; split: node may take fewer "
                                "than the pairs of one concept more")
    test: int = Field(
        4000, ge=1, description="pairs held out for the test, at most a tenth of all; split: node may take fewer than "
                                "the pairs of one concept more")
    split_seed: int = Field(
        0, ge=0, lt=2**31, description="seed of the held-out pairs and their negatives; given: of a drawn share")
    slot: Literal["random", "both", "hypernym", "hyponym"] = Field("random", description="open end of a row")
    observed: Literal["train", "closure"] = Field(
        "train", description="pairs that negatives.filter: observed masks: the training pairs, or also all pairs that "
                             "follow from them")

    @model_validator(mode="after")
    def _keys_of_the_protocol(self) -> Self:
        if self.percent and self.protocol != "given":
            raise ValueError(f"percent: requires protocol: given, but the protocol is {self.protocol}; set protocol: "
                             "given, or remove percent")
        if self.split != "edge" and self.protocol != "clean":
            raise ValueError(f"split: requires protocol: clean, but the protocol is {self.protocol}; set protocol: "
                             "clean, or remove split")
        return self


@dataclass(frozen=True)
class PairBatch(Batch):
    """A batch of examples: target is the concept at the open end (`slot`), `concept` the known one."""

    concept: Tensor  # (B,) int64


@dataclass(frozen=True)
class Hierarchy:
    """Concepts, split and identity of a loaded hierarchy."""

    concepts: list[str]
    split: HierarchySplit
    identity: dict[str, Any]  # name, sha256 of the content, settings, counts
    words: ConceptsByWord     # words listed in a concept, including those that do not name it


def load(where: list[Path], config: PairsConfig, name: str, root: str | None = None, cache: Path | None = None
         ) -> Hierarchy:
    """Load and split a hierarchy; the result is cached by content and settings.

    where: a file of pairs, a folder or archive with WordNet's database, the source of Open English WordNet, or a
    published split (its folder or its files). DataError if a file is missing or damaged or the hierarchy has a cycle;
    UsageError if the data do not support the protocol.
    """
    content, read = _reader(where)
    settings = config.model_dump(exclude={"slot", "observed"}) | {"root": config.root or root}
    key, folder = cache_location(cache, name, "hierarchy", {"content": content, **settings})

    def build() -> dict[str, np.ndarray]:
        stored = _split(read(), config, settings["root"], name)
        return store.to_arrays(stored._replace(warnings=number_files(stored.warnings, where)))

    stored = store.from_arrays(load_or_build_arrays(folder, key, build))
    log_lines(stored.warnings, where)
    counts = {"concepts": len(stored.concepts), "pairs read": stored.read, "train": len(stored.split.train),
              **{part: len(held_out) for part, held_out in stored.split.held.items()}}
    return Hierarchy(stored.concepts, stored.split,
                     {"name": name, "sha256": content, "settings": settings, "counts": counts}, stored.words)


def _split(raw: RawHierarchy, config: PairsConfig, root: str | None, name: str) -> StoredHierarchy:
    root_id = None
    if root is not None and config.protocol != "given":
        if root in raw.concepts:
            root_id = raw.concepts.index(root)
        else:
            root_id = len(raw.concepts)
            raw = replace(raw, concepts=[*raw.concepts, root])
    pairs_split = split(
        raw,
        root_id,
        config.protocol,
        config.split,
        config.percent,
        (config.valid, config.test),
        config.split_seed,
        name,
    )
    warnings = raw.warnings if config.protocol == "given" else raw.warnings + _repeated_line(raw, name)
    return StoredHierarchy(raw.concepts, raw.words, pairs_split, len(raw.pairs), warnings)


def _repeated_line(raw: RawHierarchy, name: str) -> tuple[str, ...]:
    """Return a warning of the pairs that repeat an earlier one; empty without any."""
    n = len(raw.concepts)
    if not (n_repeated := len(raw.pairs) - len(closure.unique_pairs(raw.pairs, n))):
        return ()
    first = np.unique(raw.pairs[:, 0] * n + raw.pairs[:, 1], return_index=True)[1]
    u, v = raw.pairs[np.setdiff1d(np.arange(len(raw.pairs)), first)[0]].tolist()
    example = f"(for example {raw.concepts[u][:40]!r}, {raw.concepts[v][:40]!r})"
    return Skipped(n_repeated, name).lines(f"pair repeats an earlier one {example} and counts once",
                                           f"pairs repeat earlier ones {example} and count once")


def _reader(where: list[Path]) -> tuple[str, Callable[[], RawHierarchy]]:
    """Return the sha256 of the content of `where`, and a function that reads it, as `fingerprint`."""
    if wordnet_yaml.is_source(where):  # first, because it reads only the first file of a packed archive
        return fingerprint(where, wordnet_yaml.is_source_file, lambda: wordnet_yaml.read(where))
    if wordnet.is_database(where):
        return fingerprint(wordnet.paths(where[0]), lambda name: True, lambda: wordnet.read(where[0]))
    folder = where[0].parent
    if len(where) == 1 and where[0].is_dir():
        folder = where[0]
        try:
            where = sorted(path for path in folder.iterdir() if path.is_file())
        except OSError as error:
            raise ResourceError(f"{folder}: cannot be read: {error.strerror}") from error
    parts = find_split_files(where)
    if parts:
        return fingerprint(list(parts.values()), lambda name: True, lambda: read_split(parts))
    if len(where) != 1:
        raise DataError(f"{folder}: contains no pairs: neither WordNet's {wordnet.DATA} nor a split's .vocab; give the "
                        "path of the file of pairs")
    return fingerprint(where, lambda name: True, lambda: read_table(where[0]))


class PairExamples:
    """Training examples, in a new order each epoch."""

    def __init__(self, train: np.ndarray, slot: str, seed: int):
        self._train, self._slot, self._seed = torch.from_numpy(train), slot, seed
        self._epoch: tuple[int, bool, Tensor] | None = None
        self._lock = threading.Lock()
        self.n = len(train) * (2 if slot == "both" else 1)

    def counts(self, v: int) -> Tensor:
        """Return the expected number of times each concept is a target in an epoch, (V,) float64."""
        by_slot = [torch.bincount(self._train[:, end], minlength=v).double() for end in (1, 0)]  # indexed by slot
        share = {"both": (1.0, 1.0), "random": (0.5, 0.5), "hypernym": (1.0, 0.0), "hyponym": (0.0, 1.0)}[self._slot]
        return share[HYPERNYM] * by_slot[HYPERNYM] + share[HYPONYM] * by_slot[HYPONYM]

    def n_blocks(self, epoch: int, block: int) -> int:
        return -(-self.n // block)

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[PairBatch]:
        rows, ends = self._rows(epoch, shuffle), self._train.reshape(-1)
        for begin in range(start * block, self.n, block):
            position = rows[
                begin : begin + block
            ]  # index of the known end, 2 * pair + slot; ^ 1 gives the other
            yield PairBatch(
                target=ends.index_select(0, position ^ 1), slot=position & 1, concept=ends.index_select(0, position)
            )

    def _rows(self, epoch: int, shuffle: bool) -> Tensor:
        """Return 2 * pair + slot of each example of the epoch, (n,). Threads that read blocks compute it once."""
        with self._lock:
            if self._epoch is None or self._epoch[:2] != (epoch, shuffle):
                self._epoch = epoch, shuffle, torch.from_numpy(self._new_rows(epoch, shuffle))
            return self._epoch[2]

    def _new_rows(self, epoch: int, shuffle: bool) -> np.ndarray:
        n = len(self._train)
        if self._slot == "both":
            rows = np.arange(2 * n)
        elif self._slot == "random":
            rows = 2 * np.arange(n) + self._random(epoch, _SLOT).integers(0, 2, n)
        else:
            rows = 2 * np.arange(n) + (HYPERNYM if self._slot == "hypernym" else HYPONYM)
        return rows[self._random(epoch, _ORDER).permutation(len(rows))] if shuffle else rows

    def _random(self, epoch: int, use: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, epoch, use]))


def make_batch(pairs: Tensor, slot: Tensor) -> PairBatch:
    """Make examples from pairs (n, 2) whose open end is `slot` (n,)."""
    hyponym, hypernym = pairs.unbind(1)
    return PairBatch(target=torch.where(slot == HYPERNYM, hypernym, hyponym), slot=slot,
                     concept=torch.where(slot == HYPERNYM, hyponym, hypernym))


def known_pairs(train: np.ndarray, v: int, max_bytes: int) -> KnownPairs:
    """Return the training pairs as known positives for both open ends; a context is (concept, slot). ResourceError if
    they take more than `max_bytes`."""
    if 16 * len(train) > max_bytes:
        raise ResourceError(
            f"the set of observed pairs takes {16 * len(train):,} bytes, more than the {max_bytes:,} available; set "
            "negatives.filter: target"
        )
    u, w = torch.from_numpy(train).unbind(1)
    slot = torch.tensor([HYPERNYM, HYPONYM]).repeat_interleave(len(u))
    return KnownPairs(torch.stack([torch.cat([u, w]), slot], 1), torch.cat([w, u]), v, (v, 2))
