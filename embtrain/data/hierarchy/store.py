"""A hierarchy and its split as named arrays, for the cache and the run folder.

    concepts, words        names, in UTF-8, a line each          ids, end    concepts of word i: ids[end[i-1]:end[i]]
    train                  (n, 2)                                read        (1,) pairs that were read
    PART.pairs, PART.wrong (n, 2) and (n, m, 2)                  PART.share  (3,) leak, implied, false negatives
    warnings               of the reading, in UTF-8, a line each; only if there are some
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embtrain.common.terminal import plain
from embtrain.data.hierarchy.files import ConceptsByWord
from embtrain.data.hierarchy.splits import HeldOutPairs, HierarchySplit
from embtrain.data.storage.cache import pack_lines, unpack_lines

PARTS = ("valid", "test")


class StoredHierarchy(NamedTuple):
    """Concepts, words and split of a hierarchy, the number of pairs that were read, and warnings of the reading."""

    concepts: list[str]
    words: ConceptsByWord
    split: HierarchySplit
    read: int
    warnings: tuple[str, ...] = ()


def to_arrays(stored: StoredHierarchy) -> dict[str, np.ndarray]:
    """Return a hierarchy as named arrays."""
    ids = [np.array(senses, np.int64) for senses in stored.words.values()]
    arrays = {"concepts": pack_lines(stored.concepts), "words": pack_lines(stored.words), "train": stored.split.train,
             "ids": np.concatenate([np.zeros(0, np.int64), *ids]),
             "end": np.cumsum([len(x) for x in ids], dtype=np.int64), "read": np.array([stored.read])}
    if stored.warnings:
        arrays["warnings"] = pack_lines(map(plain, stored.warnings))
    for part in PARTS:
        held_out = stored.split.held[part]
        arrays |= {f"{part}.pairs": held_out.pairs, f"{part}.wrong": held_out.negatives,
                  f"{part}.share": np.array([held_out.leak, held_out.implied, held_out.false_negatives])}
    return {name: np.ascontiguousarray(x) for name, x in arrays.items()}


def from_arrays(arrays: dict[str, np.ndarray]) -> StoredHierarchy:
    """Rebuild a hierarchy from the arrays of `to_arrays`. KeyError, ValueError or TypeError if one is wrong."""
    ids = arrays["ids"].tolist()
    end: list[int] = arrays["end"].tolist()
    words = {word: ids[i:j] for word, i, j in zip(unpack_lines(arrays["words"]), [0, *end], end, strict=False)}
    held_out = {part: HeldOutPairs(arrays[f"{part}.pairs"], arrays[f"{part}.wrong"], *arrays[f"{part}.share"].tolist())
            for part in PARTS}
    return StoredHierarchy(
        unpack_lines(arrays["concepts"]), words, HierarchySplit(arrays["train"], held_out), int(arrays["read"][0]),
        tuple(unpack_lines(arrays.get("warnings", np.zeros(0, np.uint8)))),
    )
