"""A hierarchy and its split as arrays by name, as they lie in the cache.

    concepts, words        names, in UTF-8, a line each          ids, end    concepts of word i: ids[end[i-1]:end[i]]
    train                  (n, 2)                                read        (1,) pairs that were read
    PART.pairs, PART.wrong (n, 2) and (n, m, 2)                  PART.share  (3,) leak, implied, right
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embtrain.data.hierarchy.files import ConceptsByWord
from embtrain.data.hierarchy.splits import HeldOut, HierarchySplit
from embtrain.data.storage.cache import packed, unpacked

PARTS = ("valid", "test")


class StoredHierarchy(NamedTuple):
    concepts: list[str]
    words: ConceptsByWord
    split: HierarchySplit
    read: int


def to_arrays(of: StoredHierarchy) -> dict[str, np.ndarray]:
    ids = [np.array(senses, np.int64) for senses in of.words.values()]
    found = {"concepts": packed(of.concepts), "words": packed(of.words), "train": of.split.train,
             "ids": np.concatenate([np.zeros(0, np.int64), *ids]),
             "end": np.cumsum([len(x) for x in ids], dtype=np.int64), "read": np.array([of.read])}
    for part in PARTS:
        held = of.split.held[part]
        found |= {f"{part}.pairs": held.pairs, f"{part}.wrong": held.negatives,
                  f"{part}.share": np.array([held.leak, held.implied, held.false_negatives])}
    return {name: np.ascontiguousarray(x) for name, x in found.items()}


def from_arrays(found: dict[str, np.ndarray]) -> StoredHierarchy:
    ids = found["ids"].tolist()
    end: list[int] = found["end"].tolist()
    words = {word: ids[i:j] for word, i, j in zip(unpacked(found["words"]), [0, *end], end, strict=False)}
    held = {part: HeldOut(found[f"{part}.pairs"], found[f"{part}.wrong"], *found[f"{part}.share"].tolist())
            for part in PARTS}
    return StoredHierarchy(unpacked(found["concepts"]), words, HierarchySplit(found["train"], held), int(found["read"][0]))
