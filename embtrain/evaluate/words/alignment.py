"""Orthogonal Procrustes alignment of two tables of word vectors, and the words whose use differs most.

    R = argmin_{RᵀR = I} ‖A R − B‖_F = U Vᵀ,  U S Vᵀ = AᵀB            ([schonemann1966]; [hamilton2016])

A, B (n, D): rows of the common words, scaled to length 1. R may reflect. Two measures of a word's change:

    cosine      cos(a R, b): low if the word moved. It depends on R, hence on all other words.
    neighbours  |N_A ∩ N_B| / k, the share of its k nearest words that both tables have. It needs no alignment and is
                more stable over seeds ([gonen2020], with k = 1000)

Both measures of change are computed over the most frequent common words: rare words move by chance.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.data.storage.skipped import counted
from embtrain.data.vectors.vectors import Vectors

MAX_NEIGHBOURS = 1000  # k; at most a tenth of the words
CHUNK = 512            # rows of cosines held at once
FREQUENT = 10_000      # words whose change is measured
ROUNDING = 1e-5        # distance from cosine 1 that float32 may cause in a word that has not changed

_log = logging.getLogger("embtrain")


class ChangedWord(NamedTuple):
    """A common word with both measures of its change; low values mean much change."""

    word: str
    cosine: float
    neighbours: float


@dataclass(frozen=True)
class Alignment:
    """The rotation of A onto B, and the distance of the common words before and after it."""

    rotation: np.ndarray           # (D, D) float64  A @ rotation is near B
    n_common: int                  # words that determine the rotation
    cosine_before: float           # mean over the common words
    cosine_after: float
    by_cosine: list[ChangedWord]   # of the frequent words, lowest cosine first
    by_neighbours: list[ChangedWord]
    n_frequent: int                # words whose change was measured
    k: int                         # nearest words that `neighbours` compares

    def apply(self, vectors: Vectors) -> Vectors:
        """Rotate vectors of A, (V, D); their lengths stay."""
        return Vectors(vectors.words, vectors.table @ self.rotation.astype(np.float32))

    def tree(self) -> dict[str, Any]:
        """The numbers for JSON, without the rotation."""
        return {"common_words": self.n_common, "cosine_before": self.cosine_before, "cosine_after": self.cosine_after,
                "frequent_words": self.n_frequent, "neighbours": self.k,
                "by_cosine": [word._asdict() for word in self.by_cosine],
                "by_neighbours": [word._asdict() for word in self.by_neighbours]}


def align(a: Vectors, b: Vectors, most_frequent: int | None = None, words: Sequence[str] | None = None, top: int = 10,
          frequent: int = FREQUENT) -> Alignment:
    """Align A with B over their common words, and list the at most `top` words that changed, the most changed first.

    most_frequent: only that many common words, by the lower of their two ranks; None: all. words: only these. Words are
    matched by their exact spelling; a vector of zeros has no direction and is left out with a warning. frequent: words
    whose change is measured. UsageError if the dimensions differ, DataError if no word is in both tables.
    """
    if a.dim != b.dim:
        raise UsageError(f"vectors of {a.dim:,} and of {b.dim:,} numbers cannot be aligned; give two with the same "
                         "dimension")
    rows_a, rows_b = _common_rows(a, b, words)
    if most_frequent is not None:
        rows_a, rows_b = rows_a[:most_frequent], rows_b[:most_frequent]
    if len(rows_a) < a.dim:
        _log.warning("only %s for %s dimensions: the rotation is not unique, and the cosine after it is too high",
                     counted(len(rows_a), "common word", "common words"), f"{a.dim:,}")
    rotation, before, after = _rotation(a.unit, rows_a, b.unit, rows_b)
    n = min(frequent, len(rows_a))
    k = min(MAX_NEIGHBOURS, max(1, n // 10), max(1, n - 1))
    shared = shared_neighbours(a.unit[rows_a[:n]], b.unit[rows_b[:n]], k)                                    # (n,)
    changes = [ChangedWord(a.words[i], float(cosine), float(share)) for i, cosine, share in
               zip(rows_a[:n].tolist(), after[:n], shared, strict=True)]
    turned = [change for change in changes if change.cosine < 1 - ROUNDING]
    moved = [change for change in changes if change.neighbours < 1]
    return Alignment(rotation, len(rows_a), float(before.mean()), float(after.mean()),
                     sorted(turned, key=lambda change: change.cosine)[:top],
                     sorted(moved, key=lambda change: (change.neighbours, change.cosine))[:top], n, k)


def _common_rows(a: Vectors, b: Vectors, words: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the common words in A and in B, (n,) int64 each, the most frequent first. Warns of skipped words."""
    names = a.words if words is None else list(dict.fromkeys(words))
    rows_a = np.arange(len(a)) if words is None else a.find(names)
    rows_b = b.find(names)
    common = (rows_a >= 0) & (rows_b >= 0)
    rows_a, rows_b = rows_a[common], rows_b[common]
    if not len(rows_a):
        which = "no word is" if words is None else "the given word is not" if len(names) == 1 else \
            f"none of the {len(names):,} given words is"
        raise DataError(f"{which} in both tables, so they cannot be aligned; give vectors with the same language, "
                        "tokenization and case")
    has_direction = a.table[rows_a].any(1) & b.table[rows_b].any(1)
    rows_a, rows_b = rows_a[has_direction], rows_b[has_direction]
    if not len(rows_a):
        raise DataError("all vectors of the common words are zero, so they cannot be aligned; give trained vectors")
    _warn_of_skipped(0 if words is None else len(words) - len(names), 0 if words is None else int((~common).sum()),
                     int((~has_direction).sum()))
    order = np.argsort(np.maximum(rows_a, rows_b), kind="stable")
    return rows_a[order], rows_b[order]


def _warn_of_skipped(n_repeated: int, n_missing: int, n_zero: int) -> None:
    for n, one, several in (
            (n_repeated, "given word is repeated and counts once", "given words are repeated and count once"),
            (n_missing, "given word is not in both tables and is skipped",
             "given words are not in both tables and are skipped"),
            (n_zero, "common word has a vector of zeros and is skipped",
             "common words have a vector of zeros and are skipped")):
        if n:
            _log.warning("%s", counted(n, one, several))


def _rotation(a: np.ndarray, rows_a: np.ndarray, b: np.ndarray, rows_b: np.ndarray
              ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (D, D) of unit rows of two tables, and the cosines of the pairs before and after it, (n,) each."""
    from scipy import linalg  # decision 130: every run imports this module

    product, chunks = np.zeros((a.shape[1],) * 2), range(0, len(rows_a), CHUNK)
    for start in chunks:
        x, y = (table[rows[start:start + CHUNK]].astype(np.float64) for table, rows in ((a, rows_a), (b, rows_b)))
        product += x.T @ y
    rotation = linalg.orthogonal_procrustes(np.eye(len(product)), product)[0]    # depends on AᵀB alone
    before, after = np.empty(len(rows_a)), np.empty(len(rows_a))
    for start in chunks:
        x, y = (table[rows[start:start + CHUNK]].astype(np.float64) for table, rows in ((a, rows_a), (b, rows_b)))
        before[start:start + CHUNK] = np.einsum("nd,nd->n", x, y)
        after[start:start + CHUNK] = np.einsum("nd,nd->n", x @ rotation, y)
    return rotation, before, after


def shared_neighbours(a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
    """Share of the k nearest rows of each row that are the same in unit tables a and b (n, D): (n,) in [0, 1]."""
    n = len(a)
    if n < 2:
        return np.ones(n)
    shares = np.empty(n)
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        is_near = np.zeros((stop - start, n), dtype=bool)
        row = np.arange(stop - start)[:, None]
        is_near[row, _nearest(a, start, stop, k)] = True
        shares[start:stop] = is_near[row, _nearest(b, start, stop, k)].mean(1)
    return shares


def _nearest(unit: np.ndarray, start: int, stop: int, k: int) -> np.ndarray:
    """Ids of the k rows with the highest cosine to rows start..stop, themselves excluded: (stop - start, k)."""
    cosine = unit[start:stop] @ unit.T
    cosine[np.arange(stop - start), np.arange(start, stop)] = -np.inf
    return np.argpartition(cosine, -k, axis=1)[:, -k:]
