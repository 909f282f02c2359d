"""Draws from the adversarial mixture of noise p and generator g, and its densities, in NumPy.

    q(y|x) = λ p(y) + (1 − λ) g(y|x)      log g(y|x) = w_c·z_x − log Z_x + log π(y|c),  c = class of y

`summarize_rows` computes log Z and running sums of g for contexts x, `draw` and `density` return log g and log q of
ids, and `gradient` adds the dense half of the gradient, with the entropy term.
The ids agree with the core, except for draws within rounding of a class boundary; densities agree to float32 tolerance.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.generator import (
    BUNDLE,
    WIDTH,
    EntropyObjective,
    GeneratorRows,
    GeneratorTables,
)
from embtrain.kernels.reference import splitmix64

MIN_EXPONENT, MAX_EXPONENT = -87.0, 88.0  # exponents are clamped to this range
MAX_CELLS = 1 << 20                       # numbers of g at once


def summarize_rows(z: np.ndarray, panel: np.ndarray, log_best: np.ndarray, output: GeneratorRows) -> None:
    n, c = len(z), len(log_best)
    w = panel.transpose(0, 2, 1).reshape(-1, panel.shape[1])[:c]
    step = max(1, MAX_CELLS // max(1, c))
    for rows in (slice(begin, begin + step) for begin in range(0, n, step)):
        _summarize(z[rows] @ w.T, log_best, GeneratorRows(*(x[rows] for x in output)))


def _summarize(logits: np.ndarray, log_best: np.ndarray, output: GeneratorRows) -> None:
    n, c = logits.shape
    tops = logits + log_best
    top = tops.max(1, keepdims=True, initial=-np.inf)
    g = np.zeros((n, -(-c // WIDTH) * WIDTH), np.float32)
    g[:, :c] = np.exp(np.clip(logits - top, MIN_EXPONENT, MAX_EXPONENT))
    ends = np.cumsum(g.reshape(n, g.shape[1] // WIDTH, WIDTH).sum(2).astype(np.float64), axis=1)
    total = ends[:, -1:]
    output.ends[:] = fixed_point(ends / total)
    output.log_top[:] = -np.log(total[:, 0])
    output.log_z[:] = top[:, 0] + np.log(total[:, 0]).astype(np.float32)
    output.best[:] = tops.argmax(1)


def fixed_point(ends: np.ndarray) -> np.ndarray:
    """Convert running sums (n, N) that end at 1 to units of 2^-32, padded to whole bundles: uint32, 2^32 - 1 for 1."""
    filled = np.full((len(ends), -(-ends.shape[1] // BUNDLE) * BUNDLE), 2 ** 32 - 1, np.uint32)
    filled[:, :ends.shape[1] - 1] = np.minimum(ends[:, :-1], 1) * (2 ** 32 - 1)
    return filled


def gradient(t: GeneratorTables, objective: EntropyObjective, into_w: np.ndarray, into_z: np.ndarray) -> np.ndarray:
    n, step = len(t.z), max(1, MAX_CELLS // max(1, len(t.w)))
    entropy, eta = np.empty(n, np.float32), objective.eta
    for rows in (slice(begin, begin + step) for begin in range(0, n, step)):
        z, total = t.z[rows], objective.total[rows, None]
        g = np.exp(np.clip(z @ t.w.T - t.log_z[rows, None], MIN_EXPONENT, MAX_EXPONENT))
        entropy[rows] = t.log_z[rows] - (z * (g @ t.w)).sum(1) + g @ eta
        own = entropy[rows, None]
        h = np.float32(objective.beta) * objective.share[rows, None] * (own < objective.limit)
        log_g = np.log(np.maximum(g, np.float32(1e-37)))
        slope = (g * (total + np.where(h > 0, h * (log_g - eta + own), 0))).astype(np.float32)
        into_z[rows] += slope @ t.w
        into_w += slope.T @ z
    return entropy


def draw(t: GeneratorTables, row: np.ndarray, k: int, by_noise: int | None, probe: bool, seed: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(row)
    counter = np.uint64(3) * np.arange(n * k, dtype=np.uint64)
    first, second, third = (splitmix64(seed, counter + np.uint64(i)) for i in range(3))
    if by_noise is None:
        noise = _unit(first) < t.mix
    else:
        noise = np.tile(np.arange(k) < by_noise, n)
    flat = np.empty(n * k, np.int64)
    flat[noise] = _from_noise(t, second[noise])
    by_generator = ~noise
    flat[by_generator] = _from_rows(t, np.repeat(row, k)[by_generator], second[by_generator], third[by_generator])
    ids, origin = flat.reshape(n, k), by_generator.astype(np.int8).reshape(n, k)
    if probe:
        ids = np.concatenate([ids, t.greedy[row][:, None]], 1)
        origin = np.concatenate([origin, np.full((n, 1), 2, np.int8)], 1)
    log_g = _log_g(t, ids, np.repeat(row, ids.shape[1]).reshape(ids.shape))
    return ids, origin, log_g, _mixture(t, log_g, ids)


def _unit(bits: np.ndarray) -> np.ndarray:
    return (bits >> np.uint64(11)) * 2.0 ** -53


def _from_noise(t: GeneratorTables, u: np.ndarray) -> np.ndarray:
    """Draw from the alias table of p."""
    column, remainder = _wide_product(u, np.uint64(len(t.alias)))
    return np.where(remainder < t.accept[column], column, t.alias[column])


def _wide_product(u: np.ndarray, n: np.ndarray | np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """The high word of the 128-bit product u n, the column of an alias table, and the low word, the remainder."""
    half = np.uint64(32)
    low, high = (u & np.uint64(0xFFFFFFFF)) * n, (u >> half) * n     # n is below 2^31: neither overflows
    carry = high + (low >> half)
    return (carry >> half).astype(np.int64), u * n


def _from_rows(t: GeneratorTables, row: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    n_classes = len(t.w)
    ends, half = t.ends[row].astype(np.uint64), np.uint64(32)        # (n, N)
    point = np.minimum(u >> half, np.uint64(2 ** 32 - 2))
    block = (ends <= point[:, None]).sum(1)
    lines = np.arange(len(row))
    before = np.where(block > 0, ends[lines, block - 1], np.uint64(0))
    share = (point - before + (u & np.uint64(2 ** 32 - 1)) * 2.0 ** -32) / (ends[lines, block] - before)
    c = block[:, None] * WIDTH + np.arange(WIDTH)                    # (n, WIDTH)
    log_g = np.einsum("nh,nhj->nj", t.z[row], t.panel[block]) - t.log_z[row][:, None]
    g = np.where(c < n_classes, np.exp(np.clip(log_g, MIN_EXPONENT, MAX_EXPONENT)), 0).astype(np.float64)
    inside = (np.cumsum(g, 1) <= (share * g.sum(1))[:, None]).sum(1)
    c = np.minimum(c[lines, np.minimum(inside, WIDTH - 1)], n_classes - 1)
    column, remainder = _wide_product(v, (t.first[c + 1] - t.first[c]).astype(np.uint64))
    point = t.first[c] + column
    return np.where(remainder < t.keep[point], t.member[point], t.instead[point])


def density(t: GeneratorTables, ids: np.ndarray, row: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_g = _log_g(t, ids, np.repeat(row, np.diff(start)))
    return log_g, _mixture(t, log_g, ids)


def _log_g(t: GeneratorTables, ids: np.ndarray, row: np.ndarray) -> np.ndarray:
    """log g of each id in its row."""
    dots = np.einsum("...h,...h->...", t.w[t.word["klass"][ids]], t.z[row])
    return (dots - t.log_z[row] + t.word["log_within"][ids]).astype(np.float32)


def _mixture(t: GeneratorTables, log_g: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if t.mix <= 0:
        return log_g.copy()
    q = np.float32(t.mix) * t.word["p"][ids] + np.float32(1 - t.mix) * np.exp(np.clip(log_g, MIN_EXPONENT,
                                                                                      MAX_EXPONENT))
    with np.errstate(divide="ignore"):                       # for a q below float32 the noise contributes nothing
        return np.where(q < 1e-37, np.log(1 - t.mix) + log_g, np.log(q)).astype(np.float32)
