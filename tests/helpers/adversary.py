"""Tables for tests of the adversary kernels, computed by the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from embtrain.kernels.reference.sampling import generator as reference
from embtrain.kernels.sampling import generator as kernel


@dataclass
class Case:
    tables: kernel.GeneratorTables
    row: np.ndarray
    start: np.ndarray
    ids: np.ndarray   # start[i] to start[i+1] belong to row[i]
    q: np.ndarray     # (R, V) float64  the density by its formula


def made(seed: int, v: int = 60, alone: int = 37, groups: int = 3, hidden: int = 32, rows: int = 5, mix: float = 0.4,
         draws: int = 50) -> Case:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(v))
    klass = np.minimum(np.arange(v), alone + np.arange(v) % groups)
    c = int(klass.max()) + 1
    mass = np.bincount(klass, p, c)
    within = np.where(klass < alone, 1.0, p / mass[klass])
    member = np.argsort(klass, kind="stable")
    first = np.searchsorted(klass[member], np.arange(c + 1))
    keep, instead = tables_of(within[member], first)
    z, w = (rng.normal(0, 0.5, (n, hidden)).astype(np.float32) for n in (rows, c))
    logits = z.astype(np.float64) @ w.T.astype(np.float64)
    log_z = np.log(np.exp(logits).sum(1))
    n = -(-c // kernel.WIDTH)
    g = np.zeros((rows, n * kernel.WIDTH))
    g[:, :c] = np.exp(logits - log_z[:, None])
    ends = reference.fixed_point(np.cumsum(g.reshape(rows, n, -1).sum(2), axis=1))
    every = np.exp(logits - log_z[:, None])[:, klass] * within                                       # (R, V)
    accept, alias = table(p)
    tables = kernel.GeneratorTables(z, w, kernel.to_panels(w), log_z.astype(np.float32), ends, every.argmax(1),
                           np.log(every.max(1)).astype(np.float32), kernel.pack_words(klass, np.log(within), p),
                           accept, alias, member, first.astype(np.int64), keep, member[instead], mix)
    start = np.sort(rng.integers(draws + 1, size=draws + 1))
    start[:1], start[draws:] = 0, draws
    return Case(tables, rng.integers(rows, size=draws), start, rng.integers(v, size=draws), mix * p + (1 - mix) * every)


def tables_of(within: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An alias table for each class, of π over its members, with positions instead of ids."""
    keep, instead = np.empty(len(within), np.uint64), np.empty(len(within), np.int64)
    for a, b in pairwise(first):
        if a < b:
            keep[a:b], instead[a:b] = table(within[a:b] / within[a:b].sum())
            instead[a:b] += a
    return keep, instead


def table(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An alias table by hand: each entry is kept with probability V p, or the greatest rest is taken."""
    v, scaled = len(p), p * len(p)
    accept, alias = np.ones(v), np.arange(v)
    for _ in range(v):
        low, high = int(np.argmin(np.where(accept < 1, 9, scaled))), int(np.argmax(np.where(accept < 1, 0, scaled)))
        if scaled[low] >= 1 - 1e-12:
            break
        accept[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
    bits = np.ldexp(np.where(accept >= 1, 0, accept), 64).astype(np.uint64)
    bits[accept >= 1] = 2 ** 64 - 1
    return bits, alias


SHAPES = st.fixed_dictionaries({
    "seed": st.integers(0, 10**6), "v": st.integers(2, 90), "alone": st.integers(1, 90), "groups": st.integers(1, 5),
    "hidden": st.integers(1, 40), "rows": st.integers(1, 6), "mix": st.sampled_from([0.0, 0.3, 1.0]),
    "draws": st.integers(0, 300)})
