"""Synthetic documents with many, mostly rare labels, in place of data sets that cannot be downloaded here.

    labels     w_l = (rank of l + shift)^−exponent; each is in one of C clusters and has a prototype of `prototype`
               features: half of them from the features of its cluster, half drawn for the label alone
    document   first label ∝ w; each further label ∝ w, with probability `together` within the same cluster; 1 to
               `most` labels, uniformly; for each label `drawn` features from its prototype, and `noise` features
               ∝ 1/rank; x_f = 1 + log(number of times f was drawn)

Labels of a cluster have similar documents, so a frequent label of the same cluster is a hard negative. The documents
depend only on the numbers of the recipe.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from embtrain.common.config import Section
from embtrain.data.labels.sparse import Csr, Documents

VERSION = 1     # incremented when the same numbers give other documents
CHUNK = 50_000  # documents generated at once


class PlantedConfig(Section):
    """The numbers of a recipe."""

    labels: int = Field(ge=2, le=10_000_000, description="n")
    features: int = Field(ge=2, le=10_000_000, description="v")
    documents: int = Field(ge=2, le=10_000_000, description="training documents")
    test: int = Field(ge=1, le=1_000_000, description="test documents")
    clusters: int = Field(ge=1, description="C")
    pool: int = Field(200, ge=1, le=10_000, description="features of a cluster")
    prototype: int = Field(12, ge=2, le=200, description="features of a label")
    most: int = Field(5, ge=1, le=50, description="labels of a document")
    together: float = Field(0.7, ge=0, le=1, description="chance that a further label is of the first one's cluster")
    drawn: int = Field(6, ge=1, le=100, description="features drawn for each label")
    noise: int = Field(10, ge=0, le=1000, description="features drawn at random")
    exponent: float = Field(0.8, ge=0, le=3, description="exponent of the power law of label frequencies")
    shift: float = Field(10.0, ge=0, description="added to the rank in the power law: larger values flatten its head")
    seed: int = Field(1, ge=0, description="random seed")

    @model_validator(mode="after")
    def _clusters_have_labels(self) -> Self:
        if self.clusters > self.labels:
            raise ValueError(f"clusters {self.clusters} is above labels {self.labels}")
        return self


class _PlantedModel:
    """Labels, clusters and prototypes that the documents are drawn from."""

    def __init__(self, config: PlantedConfig, draw: np.random.Generator):
        n, v = config.labels, config.features
        self.config = config
        self.w = (np.arange(1, n + 1) + config.shift) ** -config.exponent  # (n,) by rank, which is the label id
        cluster = draw.permutation(np.arange(n) % config.clusters)                    # (n,) no cluster is empty
        pool = draw.integers(v, size=(config.clusters, config.pool), dtype=np.int32)  # (C, pool)
        half = config.prototype // 2
        shared = pool[cluster[:, None], draw.integers(config.pool, size=(n, half))]
        private = draw.integers(v, size=(n, config.prototype - half), dtype=np.int32)
        self.prototype = np.concatenate([shared, private], 1)                             # (n, prototype)
        self.order = np.argsort(cluster, kind="stable")                               # labels sorted by cluster
        self.cdf = np.concatenate([[0], np.cumsum(self.w[self.order])])               # cumulative weight in that order
        first = np.searchsorted(cluster[self.order], np.arange(config.clusters + 1))
        self.begin, self.end = self.cdf[first[cluster]], self.cdf[first[cluster + 1]]  # (n,) by label, of its cluster
        self.background = np.cumsum(1 / np.arange(1, v + 1))
        self.feature = draw.permutation(v).astype(np.int32)                           # feature of each rank

    def pick(self, low: np.ndarray, high: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw labels ∝ w between the positions `low` and `high` of the cumulative sum, by uniform numbers u."""
        position = np.searchsorted(self.cdf, low + u * (high - low), side="right") - 1
        return self.order[np.clip(position, 0, len(self.order) - 1)]

    def documents(self, n: int, draw: np.random.Generator) -> tuple[Csr, Csr]:
        """Draw the features and labels of n documents."""
        c = self.config
        low, high = np.zeros((n, 1)), np.full((n, 1), self.cdf[-1])
        first = self.pick(low, high, draw.random((n, 1)))                             # (n, 1)
        near = draw.random((n, c.most - 1)) < c.together
        rest = self.pick(np.where(near, self.begin[first], low), np.where(near, self.end[first], high),
                         draw.random((n, c.most - 1)))
        picked = np.concatenate([first, rest], 1)                                     # (n, most)
        has = np.arange(c.most) < draw.integers(1, c.most + 1, size=(n, 1))
        row, column = np.nonzero(has)
        labels, _ = _count_pairs(n, row, picked[row, column], c.labels)
        row_of_label, label = np.repeat(np.arange(n), labels.size()), labels.index
        which = draw.integers(c.prototype, size=(len(label), c.drawn))
        noise_rank = np.searchsorted(self.background, draw.random((n, c.noise)) * self.background[-1])
        index = np.concatenate([self.prototype[label[:, None], which].ravel(), self.feature[noise_rank].ravel()])
        rows = np.concatenate([np.repeat(row_of_label, c.drawn), np.repeat(np.arange(n), c.noise)])
        features, times = _count_pairs(n, rows, index, c.features)
        return Csr(features.start, features.index, (1 + np.log(times)).astype(np.float32)), labels


def generate(config: PlantedConfig) -> Documents:
    """Generate the documents of a recipe; the last `test` of them are the test part."""
    draw = np.random.default_rng(config.seed)
    model, n = _PlantedModel(config, draw), config.documents + config.test
    chunks = [model.documents(min(CHUNK, n - begin), draw) for begin in range(0, n, CHUNK)]
    features, labels = (_concatenate([pair[i] for pair in chunks]) for i in range(2))
    return Documents(features, labels, config.features, config.labels, np.arange(config.documents, n))


def _count_pairs(n: int, row: np.ndarray, index: np.ndarray, width: int) -> tuple[Csr, np.ndarray]:
    """Return the distinct (row, index) pairs as n sorted sparse rows, and the number of times each occurs."""
    key, times = np.unique(row.astype(np.int64) * width + index, return_counts=True)
    start = np.searchsorted(key, np.arange(n + 1) * width)
    return Csr(start.astype(np.int64), (key % width).astype(np.int32)), times


def _concatenate(pieces: list[Csr]) -> Csr:
    size = np.concatenate([piece.size() for piece in pieces])
    value = [piece.value for piece in pieces if piece.value is not None]
    return Csr(np.concatenate([[0], np.cumsum(size)]).astype(np.int64), np.concatenate([p.index for p in pieces]),
               np.concatenate(value) if value else None)
