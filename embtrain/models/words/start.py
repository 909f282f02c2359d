"""Starting values of tables: rows of given vectors, matched by word or concept.

    u_a ← row of a in the file, by its exact spelling, else by another case; otherwise as initialized, or the mean
    v_b ← the same, if the output table is given too (that of a run)

With subwords the pooled vectors start from the given ones: a given vector is divided equally among the rows of its
word, an n-gram takes the mean of its shares, and the row of the word the rest. If the given vectors have n-grams that
are hashed in the same way, their rows are copied instead. Other words start from their n-grams and a random row, or
from the n-grams alone (`subword`): those of the given vectors, if they have any.

A model of a hierarchy starts from vectors of its concepts, for example cones from a run of Poincaré embeddings.

Frozen rows (`model.freeze`) keep their values: their vectors carry no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import DataError, UsageError
from embtrain.common.terminal import format_part
from embtrain.common.types import WordVectors
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.words.subword import SubwordPool


class Subwords(Protocol):
    """The n-grams of given vectors, as data/vectors/subword_table.py reads them."""

    def compose(self, words: Sequence[str]) -> np.ndarray: ...           # (n, D), zeros for a word without n-grams
    def hashed_rows(self, min_n: int, max_n: int, buckets: int | str, pooling: str) -> np.ndarray | None: ...


class GivenVectors(NamedTuple):
    """Vectors to start from: of the input table, and of the output table if there is one."""

    name: str                  # for messages
    u: WordVectors
    v: WordVectors | None
    subwords: Callable[[], Subwords | None] = lambda: None  # read when used, since they may be large


class Matches(NamedTuple):
    """Numbers of words by the way they were found, and the share of the running words with given vectors."""

    exact: int
    other_case: int
    new: int
    running_share: float

    def __str__(self) -> str:
        total = self.exact + self.other_case + self.new
        part = format_part(self.exact + self.other_case, total, "words", "starts from a given vector",
                           "start from given vectors")
        return (f"{part} ({self.other_case:,} of them found in another case; {self.running_share:.1%} of the running "
                "words)")


@torch.no_grad()
def start_from(model: SkipGram, given: GivenVectors, words: Sequence[str], counts: Tensor, new_rows: str) -> Matches:
    """Set the rows of u, and of v if it is given and trained, and mark the frozen ones.

    words: V. counts: (V,) of the training text. new_rows: "random" keeps the initial values, "mean" takes the mean of
    the matched rows, "subword" composes vectors of u from n-grams and keeps the initial values of words without any.
    Raises UsageError if the dimensions differ or nothing has n-grams, DataError if no word matches or a vector is not
    finite.
    """
    exact, rows = _require_matches(given, words, model.u.shape[1])
    known = rows >= 0
    if model.pool is None:
        _set(model.u, given.u, rows, new_rows, given.name)
    else:
        _set_pooled(model.u, model.pool, given, rows, new_rows)
    if new_rows == "subword":
        _compose(model, given, words, rows)
    if given.v is not None and not model.has_frozen_table:
        _set(model.v, given.v, _find(given.v, words)[1], new_rows, given.name)
    if model.frozen is not None:
        is_known = torch.from_numpy(known)
        model.frozen.copy_(is_known if model.config.freeze == "known" else torch.ones_like(is_known))
    return _matches(exact, known, counts)


@torch.no_grad()
def start_table_from(table: Tensor, given: GivenVectors, names: Sequence[str], counts: Tensor, new_rows: str,
                     scale: float = 1.0) -> Matches:
    """Set the rows (V, D) of the only table of a model: concepts instead of words, without n-grams.

    names: V. counts: (V,). new_rows: "random" or "mean", as in `start_from`, and the same errors. scale: factor of the
    given vectors.
    """
    if new_rows == "subword":
        raise UsageError("train.start_new_rows: subword: concepts have no n-grams; set random or mean")
    exact, rows = _require_matches(given, names, table.shape[1])
    _set(table, given.u, rows, new_rows, given.name, scale)
    return _matches(exact, rows >= 0, counts)


def _require_matches(given: GivenVectors, words: Sequence[str], dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the matches of `_find`. UsageError if the dimensions differ, DataError if nothing matches."""
    if (given_dim := given.u.table.shape[1]) != dim:
        raise UsageError(f"train.start: {given.name}: vectors of {given_dim:,} numbers, but model.dim is {dim:,}; set "
                         f"model.dim: {given_dim}")
    exact, rows = _find(given.u, words)
    if not (rows >= 0).any():
        raise DataError(f"train.start: {given.name}: contains none of the {len(words):,} words of the corpus; give "
                        "vectors with the same language, tokenization and case")
    return exact, rows


def _matches(exact: np.ndarray, known: np.ndarray, counts: Tensor) -> Matches:
    weights = counts.cpu().numpy()
    return Matches(int(exact.sum()), int((known & ~exact).sum()), int((~known).sum()),
                   float(weights[known].sum() / max(weights.sum(), 1)))


def _find(vectors: WordVectors, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Whether each word is found in its exact spelling, (V,) bool, and its row, (V,) int64, -1 if it is missing."""
    rows = vectors.find(words)
    exact = rows >= 0
    missing = np.flatnonzero(~exact)
    rows = rows.copy()
    rows[missing] = vectors.find([words[i] for i in missing.tolist()], lower=True)
    return exact, rows


def _set(table: Tensor, vectors: WordVectors, rows: np.ndarray, new_rows: str, name: str, scale: float = 1.0) -> None:
    """Copy the found rows (V,), times scale, into a table; the others are left, or set to the mean of the found."""
    known, found = _matched(table, vectors, rows, name)
    table[known] = found.mul_(scale)
    if new_rows == "mean":
        table[~known] = _mean(found)


def _set_pooled(u: Tensor, pool: SubwordPool, given: GivenVectors, rows: np.ndarray, new_rows: str) -> None:
    """Set the rows of u so that the pooled vectors of the found words are those of the file.

    The others get the mean of the found ones, or what follows from their n-grams.
    """
    known, found = _matched(u, given.u, rows, given.name)
    words, others = known.nonzero()[:, 0], (~known).nonzero()[:, 0]
    subwords, config = given.subwords(), pool.config
    hashed = None if subwords is None else subwords.hashed_rows(config.min_n, config.max_n, config.buckets,
                                                                config.pooling)
    if hashed is None:
        pool.fit_ngrams(u, words, found)
    else:
        u[len(pool):] = torch.from_numpy(hashed).to(u)
    pool.set_vectors(u, words, found)
    if new_rows == "mean":
        pool.set_vectors(u, others, _mean(found).expand(len(others), -1))


def _compose(model: SkipGram, given: GivenVectors, words: Sequence[str], rows: np.ndarray) -> None:
    """Set u of the words without a row from the given n-grams, or from those of the model that found words contain."""
    missing, pool, subwords = torch.from_numpy(np.flatnonzero(rows < 0)), model.pool, given.subwords()
    if subwords is not None:
        composed = torch.from_numpy(subwords.compose([words[i] for i in missing.tolist()]))
        found = composed.any(1)
        ids, vectors = missing[found].to(model.u.device), composed[found].to(model.u)
    elif pool is not None:
        known = torch.from_numpy(np.flatnonzero(rows >= 0)).to(model.u.device)
        is_fitted = torch.zeros(len(model.u), dtype=torch.bool, device=model.u.device)
        is_fitted[pool.row[pool.places(known)[1]]] = True
        vectors, ids = pool.compose(model.u, missing.to(model.u.device), is_fitted)
    else:
        raise UsageError(f"train.start_new_rows: subword: {given.name} has no subwords, and neither has the model; set "
                         "random or mean")
    if not bool(vectors.isfinite().all()):
        raise DataError(f"train.start: {given.name}: contains NaN or infinity; give vectors of finite numbers")
    if pool is None:
        model.u[ids] = vectors
    else:
        pool.set_vectors(model.u, ids, vectors)


def _matched(table: Tensor, vectors: WordVectors, rows: np.ndarray, name: str) -> tuple[Tensor, Tensor]:
    """Whether a word has a row (V,), and the found vectors, in the type of a table. DataError if one is not finite."""
    known = torch.from_numpy(rows >= 0)
    found = torch.from_numpy(np.ascontiguousarray(vectors.table[rows[rows >= 0]]))
    if not bool(found.isfinite().all()):
        raise DataError(f"train.start: {name}: contains NaN or infinity; give vectors of finite numbers")
    return known.to(table.device), found.to(table.device, table.dtype)


def _mean(found: Tensor) -> Tensor:
    return found.double().mean(0).to(found.dtype)
