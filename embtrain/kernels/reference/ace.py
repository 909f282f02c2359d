"""Twin of embtrain/kernels/source/ace.cpp: the same ids, but where a draw falls within rounding of the edge of a class;
densities to float32 tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference import splitmix64

if TYPE_CHECKING:
    from embtrain.kernels.ace import Rows, Tables

WIDTH = 8  # classes of a block
LEAST, MOST = -87.0, 88.0  # what e^x is clamped to


def rows(logits: np.ndarray, log_best: np.ndarray, into: Rows) -> None:
    n, c = logits.shape
    tops = logits + log_best
    top = tops.max(1, keepdims=True, initial=-np.inf)
    g = np.zeros((n, into.ends.shape[1] * WIDTH), np.float32)
    g[:, :c] = np.exp(np.clip(logits - top, LEAST, MOST))
    ends = np.cumsum(g.reshape(n, into.ends.shape[1], WIDTH).sum(2).astype(np.float64), axis=1)
    total = ends[:, -1:]
    into.ends[:] = ends / total
    into.log_top[:] = -np.log(total[:, 0])
    into.log_z[:] = top[:, 0] + np.log(total[:, 0]).astype(np.float32)
    into.best[:] = tops.argmax(1)


def soften(logits: np.ndarray, log_z: np.ndarray, eta: np.ndarray) -> np.ndarray:
    logits[:] = np.exp(np.clip(logits - log_z[:, None], LEAST, MOST))
    return logits @ eta


def slope(g: np.ndarray, a: np.ndarray, h: np.ndarray, entropy: np.ndarray, eta: np.ndarray) -> None:
    which = h > 0
    part, factor = g[which], h[which][:, None]
    log_g = np.log(np.maximum(part, np.float32(1e-37)))
    g[which] = part * (a[which][:, None] + factor * (log_g - eta + entropy[which][:, None]))


def draw(t: Tables, row: np.ndarray, k: int, by_noise: int | None, probe: bool, seed: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(row)
    at = np.uint64(3) * np.arange(n * k, dtype=np.uint64)
    first, second, third = (splitmix64(seed, at + np.uint64(i)) for i in range(3))
    if by_noise is None:
        noise = _unit(first) < t.mix
    else:
        noise = np.tile(np.arange(k) < by_noise, n)
    flat = np.empty(n * k, np.int64)
    flat[noise] = _from_noise(t, second[noise])
    which = ~noise
    flat[which] = _from_rows(t, np.repeat(row, k)[which], _unit(second[which]), _unit(third[which]))
    ids, origin = flat.reshape(n, k), which.astype(np.int8).reshape(n, k)
    if probe:
        ids = np.concatenate([ids, t.greedy[row][:, None]], 1)
        origin = np.concatenate([origin, np.full((n, 1), 2, np.int8)], 1)
    log_g = _log_g(t, ids, np.repeat(row, ids.shape[1]).reshape(ids.shape))
    return ids, origin, log_g, _mixture(t, log_g, ids)


def _unit(bits: np.ndarray) -> np.ndarray:
    return (bits >> np.uint64(11)) * 2.0 ** -53


def _from_noise(t: Tables, u: np.ndarray) -> np.ndarray:
    """The alias table: the high word of the 128-bit product u V is the column, the low word the toss."""
    v, half = np.uint64(len(t.alias)), np.uint64(32)
    low, high = (u & np.uint64(0xFFFFFFFF)) * v, (u >> half) * v     # V is below 2^31: neither overflows
    carry = high + (low >> half)
    column, toss = (carry >> half).astype(np.int64), u * v
    return np.where(toss < t.accept[column], column, t.alias[column])


def _from_rows(t: Tables, row: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    n_blocks, n_classes = t.ends.shape[1], len(t.w)
    ends = t.ends[row]                                               # (n, N)
    at = u * ends[:, -1]
    block = np.minimum((ends <= at[:, None]).sum(1), n_blocks - 1)
    lines = np.arange(len(row))
    before = np.where(block > 0, ends[lines, block - 1], 0.0)
    share = (at - before) / (ends[lines, block] - before)
    c = block[:, None] * WIDTH + np.arange(WIDTH)                    # (n, WIDTH)
    log_g = np.einsum("nh,nhj->nj", t.z[row], t.panel[block]) - t.log_z[row][:, None]
    g = np.where(c < n_classes, np.exp(np.clip(log_g, LEAST, MOST)), 0).astype(np.float64)
    inside = (np.cumsum(g, 1) <= (share * g.sum(1))[:, None]).sum(1)
    c = np.minimum(c[lines, np.minimum(inside, WIDTH - 1)], n_classes - 1)
    ids = t.member[t.first[c]]
    for i in np.flatnonzero(t.first[c + 1] - t.first[c] > 1):
        a, b = t.first[c[i]], t.first[c[i] + 1]
        ids[i] = t.member[min(a + np.searchsorted(t.upto[a:b], v[i] * t.upto[b - 1], side="right"), b - 1)]
    return ids


def density(t: Tables, ids: np.ndarray, row: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_g = _log_g(t, ids, np.repeat(row, np.diff(start)))
    return log_g, _mixture(t, log_g, ids)


def _log_g(t: Tables, ids: np.ndarray, row: np.ndarray) -> np.ndarray:
    """log g of each id, asked of the row beside it."""
    dots = np.einsum("...h,...h->...", t.w[t.word["klass"][ids]], t.z[row])
    return (dots - t.log_z[row] + t.word["log_within"][ids]).astype(np.float32)


def _mixture(t: Tables, log_g: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if t.mix <= 0:
        return log_g.copy()
    q = np.float32(t.mix) * t.word["p"][ids] + np.float32(1 - t.mix) * np.exp(np.clip(log_g, LEAST, MOST))
    return np.log(q).astype(np.float32)
