"""Splits of a hierarchy: training pairs, held-out pairs and their negatives, by protocol.

clean    The closure, each pair once. By edge: random pairs are held out. By node: all pairs of random concepts are held
         out except the direct ones, without which nothing would place the concept. A negative replaces the hypernym
         or the hyponym, and is never in the closure.
legacy   Vendrov et al. (2016): the closure by a search that does not mark visited nodes, so a pair appears once for
         each of its paths. 4,000 of these lines are test, 4,000 valid, so some test pairs are also in train (`leak`).
         One negative a pair, one end replaced by any concept: some are false negatives.
given    The split that is part of the data (Ganea et al. 2018): train is the direct pairs and `percent` of the
         implied ones, held-out pairs are implied by the direct ones; ten negatives for each. A share without a file is
         drawn by the rule of the others (shares.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.data.hierarchy import closure
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.files import RawHierarchy
from embtrain.data.hierarchy.shares import draw_training_pairs
from embtrain.data.storage.skipped import counted

N_NEGATIVES = 10  # negatives for each held-out pair
MAX_TRIES = 100   # draws of a negative before the other end is replaced
_ORDER, _WRONG = range(2)


@dataclass(frozen=True)
class HeldOutPairs:
    """Held-out pairs and their negatives."""

    pairs: np.ndarray       # (n, 2) int64
    negatives: np.ndarray   # (n, m, 2) int64: m negatives a pair
    leak: float             # share of `pairs` that are in train
    implied: float          # share of `pairs` that train implies
    false_negatives: float  # share of `negatives` that are true pairs

    def __len__(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class HierarchySplit:
    """Training pairs and held-out pairs."""

    train: np.ndarray         # (n, 2) int64; under `legacy` with repetitions
    held: dict[str, HeldOutPairs]  # valid, test


def split(raw: RawHierarchy, root: int | None, protocol: str, by: str, percent: int, n_held: tuple[int, int], seed: int,
          where: str) -> HierarchySplit:
    """Split a hierarchy by `protocol`. UsageError or DataError if it does not support the protocol.

    n_held: pairs of valid and of test, each at most a tenth of all; by node more by less than
    the pairs of one concept. root: id of a concept to put above all others.
    """
    n, pairs = len(raw.concepts), raw.pairs
    if protocol == "given":
        return _published_split(raw, percent, seed, where)
    if root is not None:
        pairs = closure.add_root(pairs, n, root)
    pairs = closure.unique_pairs(pairs, n)
    closed = closure.closure(pairs, n, raw.concepts, where)
    rng = np.random.default_rng(np.random.SeedSequence([seed, _ORDER]))
    if protocol == "legacy":
        if not raw.direct:
            pairs = closure.reduction(pairs, closed, n)
        above = closure.closure_with_paths(pairs, n, raw.concepts, where)
        rows = np.repeat(above.pairs, above.paths, 0)
        held_out = _draw_pairs(rng.permutation(len(rows)), n_held)
    else:
        rows = closed
        direct = closure.reduction(pairs, closed, n) if by == "node" else None
        held_out = (
            _draw_pairs(rng.permutation(len(rows)), n_held)
            if direct is None
            else _draw_concepts(closed, direct, n, n_held, rng)
        )
    is_train = np.ones(len(rows), bool)
    is_train[np.concatenate(held_out)] = False
    train = rows[is_train]
    if len(train) == 0 or not all(map(len, held_out)):
        raise DataError(f"{where}: {counted(len(rows), 'pair is', 'pairs are')} too few to hold some out; give more")
    rng = np.random.default_rng(np.random.SeedSequence([seed, _WRONG]))
    true_pairs = PairSet(closed, n)
    held_pairs = {part: rows[positions] for part, positions in zip(("valid", "test"), held_out, strict=True)}
    negatives_of = {
        part: _draw_any_negatives(x, n, rng) if protocol == "legacy" else _draw_negatives(x, true_pairs, n, rng, where)
        for part, x in held_pairs.items()
    }
    return HierarchySplit(train, _describe_held_out(held_pairs, negatives_of, train, true_pairs))


def negatives(pairs: np.ndarray, true_pairs: np.ndarray, concepts: Sequence[str], seed: int, where: str) -> np.ndarray:
    """Draw N_NEGATIVES negatives for each of the user's pairs (n, 2) as under `clean`: (n, N_NEGATIVES, 2).

    true_pairs: pairs that hold; neither they nor the pairs that they imply are drawn. DataError if they have a cycle or
    if nearly every pair holds.
    """
    n = len(concepts)
    closed = closure.closure(closure.unique_pairs(true_pairs, n), n, concepts, where)
    return _draw_negatives(
        pairs, PairSet(closed, n), n, np.random.default_rng(np.random.SeedSequence([seed, _WRONG])), where
    )


def _published_split(raw: RawHierarchy, percent: int, seed: int, where: str) -> HierarchySplit:
    if raw.published is None:
        raise UsageError(f"pairs.protocol: given: {where} contains no split; use clean or legacy")
    n, pairs = len(raw.concepts), closure.unique_pairs(raw.pairs, len(raw.concepts))
    closed = closure.closure(pairs, n, raw.concepts, where)
    if percent in raw.published.train:
        train = raw.published.train[percent]
    else:
        held = np.concatenate(list(raw.published.held.values()))
        train = draw_training_pairs(pairs, closed, held, n, percent, seed, where)
    return HierarchySplit(
        train, _describe_held_out(raw.published.held, raw.published.negatives, train, PairSet(closed, n))
    )


def _describe_held_out(
    pairs: dict[str, np.ndarray], negatives: dict[str, np.ndarray], train: np.ndarray, true_pairs: PairSet
) -> dict[str, HeldOutPairs]:
    """Return the held-out pairs of each part with their leak, implied and false negative shares."""
    known, n = PairSet(train, true_pairs.n), len(pairs["valid"])
    implied = closure.is_implied(train, np.concatenate([pairs["valid"], pairs["test"]]), true_pairs.n)
    parts = {}
    for part, is_implied in (("valid", implied[:n]), ("test", implied[n:])):
        is_true = true_pairs.contains(negatives[part]) | (negatives[part][..., 0] == negatives[part][..., 1])
        parts[part] = HeldOutPairs(
            pairs[part],
            negatives[part],
            float(known.contains(pairs[part]).mean()),
            float(is_implied.mean()),
            float(is_true.mean()),
        )
    return parts


def _draw_pairs(order: np.ndarray, n_held: tuple[int, int]) -> list[np.ndarray]:
    """Return the positions of valid and of test, each in the order drawn."""
    valid, test = (min(k, len(order) // 10) for k in n_held)
    return [order[test:test + valid], order[:test]]


def _draw_concepts(closed: np.ndarray, direct: np.ndarray, n: int, n_held: tuple[int, int], rng: np.random.Generator
           ) -> list[np.ndarray]:
    """Return positions in `closed` of the indirect pairs of randomly drawn hyponyms, until there are enough.

    All pairs of the last hyponym are taken, so a part may have more than its number.
    """
    is_indirect = ~PairSet(direct, n).contains(closed)
    parts: dict[str, list[np.ndarray]] = {"test": [], "valid": []}
    targets = dict(zip(("valid", "test"), (min(k, len(closed) // 10) for k in n_held), strict=True))
    begin = np.searchsorted(closed[:, 0], np.arange(n + 1))
    for u in rng.permutation(n).tolist():
        positions = np.arange(begin[u], begin[u + 1])
        positions = positions[is_indirect[positions]]
        part = next((p for p in parts if sum(map(len, parts[p])) < targets[p]), None)
        if part is None:
            break
        if len(positions):
            parts[part].append(positions)
    none = np.zeros(0, np.int64)
    return [np.concatenate([none, *parts[part]]) for part in ("valid", "test")]


def _draw_any_negatives(pairs: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one negative a pair by replacing one end with any concept, (n, 1, 2)."""
    negatives = pairs[:, None].copy()
    negatives[np.arange(len(pairs)), 0, rng.integers(0, 2, len(pairs))] = rng.integers(0, n, len(pairs))
    return negatives


def _draw_negatives(pairs: np.ndarray, true_pairs: PairSet, n: int, rng: np.random.Generator, where: str) -> np.ndarray:
    """Draw N_NEGATIVES true negatives a pair, (n, N_NEGATIVES, 2).

    The first half replaces the hypernym, the second half the hyponym, or the other end if no negative is found: every
    concept is below the root, for example.
    """
    negatives = np.repeat(pairs[:, None], N_NEGATIVES, 1).reshape(-1, 2)
    end = np.tile(np.where(np.arange(N_NEGATIVES) < N_NEGATIVES // 2, 1, 0), len(pairs))
    pending = np.arange(len(negatives))
    for ends in (end, 1 - end):
        for _ in range(MAX_TRIES):
            negatives[pending] = pairs[pending // N_NEGATIVES]
            negatives[pending, ends[pending]] = rng.integers(0, n, len(pending))
            drawn = negatives[pending]
            pending = pending[true_pairs.contains(drawn) | (drawn[:, 0] == drawn[:, 1])]
            if len(pending) == 0:
                return negatives.reshape(-1, N_NEGATIVES, 2)
    raise DataError(f"{where}: some pairs have no negatives, because nearly every concept is above or below every "
                    "other; give a larger hierarchy")
