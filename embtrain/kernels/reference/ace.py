"""Twin of embtrain/kernels/source/ace.cpp: the same ids bit for bit, densities and sums to float32 tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference import splitmix64

if TYPE_CHECKING:
    from embtrain.kernels.ace import Rows, Tables

WIDTH = 16
LEAST, MOST = -87.0, 88.0  # what e^x is clamped to


def rows(logits: np.ndarray, log_best: np.ndarray, into: Rows) -> None:
    n, c = logits.shape
    peak = logits.max(1, keepdims=True, initial=-np.inf)
    into.g[:, :c] = np.exp(np.maximum(logits - peak, np.float32(LEAST)))
    into.g[:, c:] = 0
    ends = np.cumsum(into.g.reshape(n, -1, WIDTH).sum(2).astype(np.float64), axis=1)
    total = ends[:, -1:]
    into.g[:] *= (1 / total).astype(np.float32)
    into.ends[:] = ends / total
    into.log_z[:] = peak[:, 0] + np.log(total[:, 0]).astype(np.float32)
    into.best[:] = (logits + log_best).argmax(1)


def slope(g: np.ndarray, a: np.ndarray, h: np.ndarray, entropy: np.ndarray, eta: np.ndarray) -> None:
    which = h > 0
    part, factor = g[which][:, :len(eta)], h[which][:, None]
    log_g = np.log(np.maximum(part, np.float32(1e-37)))
    g[which, :len(eta)] = part * (a[which][:, None] + factor * (log_g - eta + entropy[which][:, None]))


def draw(t: Tables, row: np.ndarray, k: int, by_noise: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    g = len(row)
    at = np.uint64(3) * np.arange(g * k, dtype=np.uint64)
    first, second, third = (splitmix64(seed, at + np.uint64(i)) for i in range(3))
    if by_noise is None:
        noise = _unit(first) < t.mix
    else:
        noise = np.tile(np.arange(k) < by_noise, g)
    ids = np.empty(g * k, np.int64)
    ids[noise] = _from_noise(t, second[noise])
    which = ~noise
    ids[which] = _from_rows(t, np.repeat(row, k)[which], _unit(second[which]), _unit(third[which]))
    return ids.reshape(g, k), which.astype(np.int8).reshape(g, k)


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
    n_blocks = t.ends.shape[1]
    ends = t.ends[row]                                               # (n, N)
    at = u * ends[:, -1]
    block = np.minimum((ends <= at[:, None]).sum(1), n_blocks - 1)
    lines = np.arange(len(row))
    before = np.where(block > 0, ends[lines, block - 1], 0.0)
    g = t.g.reshape(-1, n_blocks, WIDTH)[row, block]                 # (n, WIDTH)
    sums = np.cumsum(np.concatenate([before[:, None], g.astype(np.float64)], 1), axis=1)[:, 1:]
    last = WIDTH - 1 - np.argmax(g[:, ::-1] > 0, axis=1)
    c = block * WIDTH + np.minimum((sums <= at[:, None]).sum(1), last)
    ids = t.member[t.first[c]]
    for i in np.flatnonzero(t.first[c + 1] - t.first[c] > 1):
        a, b = t.first[c[i]], t.first[c[i] + 1]
        ids[i] = t.member[min(a + np.searchsorted(t.upto[a:b], v[i] * t.upto[b - 1], side="right"), b - 1)]
    return ids


def density(t: Tables, ids: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    dots = np.einsum("nkh,nh->nk", t.w[t.word["klass"][ids]], t.z[row])
    log_g = (dots - t.log_z[row][:, None] + t.word["log_within"][ids]).astype(np.float32)
    if t.mix <= 0:
        return log_g, log_g.copy()
    q = np.float32(t.mix) * t.word["p"][ids] + np.float32(1 - t.mix) * np.exp(np.clip(log_g, LEAST, MOST))
    return log_g, np.log(q).astype(np.float32)


def collect(t: Tables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, into_w: np.ndarray, into_z: np.ndarray,
            total: np.ndarray) -> None:
    klass, rows = t.word["klass"][ids].reshape(-1), np.repeat(row, ids.shape[1])
    flat = a.reshape(-1, 1)
    np.add.at(into_w, klass, -flat * t.z[rows])
    np.add.at(into_z, rows, -flat * t.w[klass])
    np.add.at(total, rows, flat[:, 0])
