"""Which pairs are trained on, which are held out, and which wrong pairs stand beside those: the protocols.

clean    the closure, each pair once. By edge: pairs drawn at random are held out. By node: of concepts drawn at random
         all pairs are, but the direct ones, without which nothing would say where the concept belongs. Wrong pairs have
         another hypernym or another hyponym, and none of them is in the closure.
legacy   Vendrov et al. (2016): the closure by a search without a memory, so that a pair stands there once for each of
         its paths; 4,000 of these lines are test, 4,000 valid. So some test pairs are trained on (`leak`). One wrong
         pair for each, one end replaced by any concept: some are right.
given    the split that came with the data (Ganea et al. 2018): the direct pairs and `percent` of the others are trained
         on, held-out pairs follow from the direct ones; ten wrong pairs for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.data.hierarchy import closure
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.files import RawHierarchy

N_NEGATIVES = 10      # wrong pairs for each held-out one
MAX_TRIES = 100     # draws of a wrong pair before the other end is replaced
_ORDER, _WRONG = range(2)


@dataclass(frozen=True)
class HeldOut:
    """Held-out pairs and wrong ones beside them."""

    pairs: np.ndarray   # (n, 2) int64
    negatives: np.ndarray   # (n, m, 2) int64: m wrong ones for each
    leak: float         # share of `pairs` that stand in train
    implied: float      # share of `pairs` that follow from train
    false_negatives: float        # share of `wrong` that are right after all

    def __len__(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class HierarchySplit:
    train: np.ndarray        # (n, 2) int64: lines to train on; under `legacy` some stand there several times
    held: dict[str, HeldOut]    # valid, test


def split(read: RawHierarchy, root: int | None, protocol: str, by: str, percent: int, n_held: tuple[int, int], seed: int,
          where: str) -> HierarchySplit:
    """n_held: pairs of valid and of test, at most a tenth of all each. root: a concept to be put above the others."""
    n, pairs = len(read.concepts), read.pairs
    if protocol == "given":
        return _given(read, percent, where)
    if root is not None:
        pairs = closure.add_root(pairs, n, root)
    pairs = closure.unique_pairs(pairs, n)
    whole = closure.closure(pairs, n, read.concepts, where)
    rng = np.random.default_rng(np.random.SeedSequence([seed, _ORDER]))
    if protocol == "legacy":
        if not read.direct:
            pairs = closure.reduction(pairs, whole, n)
        above = closure.closure_with_paths(pairs, n, read.concepts, where)
        rows = np.repeat(above.pairs, above.paths, 0)
        held = _lines(rng.permutation(len(rows)), n_held)
    else:
        rows = whole
        direct = closure.reduction(pairs, whole, n) if by == "node" else None
        held = _lines(rng.permutation(len(rows)), n_held) if direct is None else _nodes(whole, direct, n, n_held, rng)
    apart = np.ones(len(rows), bool)
    apart[np.concatenate(held)] = False
    train = rows[apart]
    if len(train) == 0 or not all(map(len, held)):
        raise DataError(f"{where}: {len(rows):,} pairs are too few to train on some and hold others out")
    rng = np.random.default_rng(np.random.SeedSequence([seed, _WRONG]))
    holds = PairSet(whole, n)
    of = {part: rows[at] for part, at in zip(("valid", "test"), held, strict=True)}
    wrong = {part: _any(x, n, rng) if protocol == "legacy" else _wrong(x, holds, n, rng, where)
             for part, x in of.items()}
    return HierarchySplit(train, _held(of, wrong, train, holds))


def negatives(pairs: np.ndarray, holds: np.ndarray, concepts: Sequence[str], seed: int, where: str) -> np.ndarray:
    """WRONG negatives for each of the user's pairs (n, 2), as under `clean`: (n, WRONG, 2). holds: pairs that hold;
    pairs that follow from them are not negatives. DataError if the pairs have a cycle, or nearly every pair holds."""
    n = len(concepts)
    whole = closure.closure(closure.unique_pairs(holds, n), n, concepts, where)
    return _wrong(pairs, PairSet(whole, n), n, np.random.default_rng(np.random.SeedSequence([seed, _WRONG])), where)


def _given(read: RawHierarchy, percent: int, where: str) -> HierarchySplit:
    if read.published is None:
        raise UsageError(f"pairs.protocol: given: {where} brings no split; use clean or legacy")
    if percent not in read.published.train:
        raise UsageError(f"pairs.percent: {where} has no training pairs of {percent} %; there are: "
                         f"{', '.join(map(str, sorted(read.published.train)))}")
    n, train = len(read.concepts), read.published.train[percent]
    whole = closure.closure(closure.unique_pairs(read.pairs, n), n, read.concepts, where)
    return HierarchySplit(train, _held(read.published.held, read.published.negatives, train, PairSet(whole, n)))


def _held(pairs: dict[str, np.ndarray], wrong: dict[str, np.ndarray], train: np.ndarray, holds: PairSet
          ) -> dict[str, HeldOut]:
    """By part, with what is known of them."""
    known, n = PairSet(train, holds.n), len(pairs["valid"])
    implied = closure.is_implied(train, np.concatenate([pairs["valid"], pairs["test"]]), holds.n)
    parts = {}
    for part, of in (("valid", implied[:n]), ("test", implied[n:])):
        right = holds.contains(wrong[part]) | (wrong[part][..., 0] == wrong[part][..., 1])
        parts[part] = HeldOut(pairs[part], wrong[part], float(known.contains(pairs[part]).mean()), float(of.mean()),
                           float(right.mean()))
    return parts


def _lines(order: np.ndarray, n_held: tuple[int, int]) -> list[np.ndarray]:
    """Positions of valid and of test, each in the order drawn."""
    valid, test = (min(k, len(order) // 10) for k in n_held)
    return [order[test:test + valid], order[:test]]


def _nodes(whole: np.ndarray, direct: np.ndarray, n: int, n_held: tuple[int, int], rng: np.random.Generator
           ) -> list[np.ndarray]:
    """Positions in `whole` of the indirect pairs of hyponyms drawn at random, until there are enough."""
    may = ~PairSet(direct, n).contains(whole)
    parts: dict[str, list[np.ndarray]] = {"test": [], "valid": []}
    most = dict(zip(("valid", "test"), (min(k, len(whole) // 10) for k in n_held), strict=True))
    begin = np.searchsorted(whole[:, 0], np.arange(n + 1))
    for u in rng.permutation(n).tolist():
        at = np.arange(begin[u], begin[u + 1])
        at = at[may[at]]
        part = next((p for p in parts if sum(map(len, parts[p])) < most[p]), None)
        if part is None:
            break
        if len(at):
            parts[part].append(at)
    none = np.zeros(0, np.int64)
    return [np.concatenate([none, *parts[part]]) for part in ("valid", "test")]


def _any(pairs: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """One for each pair, one end of which is any concept: (n, 1, 2)."""
    wrong = pairs[:, None].copy()
    wrong[np.arange(len(pairs)), 0, rng.integers(0, 2, len(pairs))] = rng.integers(0, n, len(pairs))
    return wrong


def _wrong(pairs: np.ndarray, holds: PairSet, n: int, rng: np.random.Generator, where: str) -> np.ndarray:
    """WRONG for each pair, none of which holds: first half with another hypernym, second with another hyponym, or the
    other way where nothing else is wrong (every concept lies below the root): (n, WRONG, 2)."""
    wrong = np.repeat(pairs[:, None], N_NEGATIVES, 1).reshape(-1, 2)
    end = np.tile(np.where(np.arange(N_NEGATIVES) < N_NEGATIVES // 2, 1, 0), len(pairs))
    open_ = np.arange(len(wrong))
    for turn in (end, 1 - end):
        for _ in range(MAX_TRIES):
            wrong[open_] = pairs[open_ // N_NEGATIVES]
            wrong[open_, turn[open_]] = rng.integers(0, n, len(open_))
            of = wrong[open_]
            open_ = open_[holds.contains(of) | (of[:, 0] == of[:, 1])]
            if len(open_) == 0:
                return wrong.reshape(-1, N_NEGATIVES, 2)
    raise DataError(f"{where}: for some pairs no wrong ones are found: nearly every concept is above or below every "
                    "other; give a larger hierarchy")
