"""REINFORCE coefficients of the generator g of adversarial negatives [bose2018], and its sparse gradient, in NumPy.

    a = ρ (r − b)      r = (cost − centre) / scale, then f r − (1 − f) penalty with f = `negative_share`, the fraction
                       of the rows that share the draw and for which the id is not a known positive
    ρ = 1 if g drew the id (origin 1); min(clip, g / p) if the noise p did (origin 0) and `importance`; else 0
    b = `baseline`, or r of the last negative of the draw, or the mean r of all other negatives drawn by g

It replaces the compiled kernel if that is not built, and tests compare the two to float32 tolerance.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.generator import DrawnNegatives, GeneratorTables, GradientSums, ReinforceSpec
from embtrain.kernels.reference.sampling.generator import MAX_EXPONENT, MIN_EXPONENT


def factors(spec: ReinforceSpec, records: np.ndarray, drawn: DrawnNegatives) -> tuple[np.ndarray, list[float]]:
    """Return a (G, K) float32 and the sums in the order of `ReinforceSums`. records (V,): p per candidate."""
    ids, origin, log_g, cost, negative_share = drawn
    is_generator, is_noise = (origin == 1).astype(np.float64), origin == 0
    reward: np.ndarray = (cost - np.float32(spec.centre)) * np.float32(1 / spec.scale)
    if negative_share is not None:
        reward = negative_share * reward - (1 - negative_share) * np.float32(spec.penalty)
    b: np.ndarray = np.full((1, 1), spec.baseline, np.float32)
    if spec.baseline_kind == "last":
        b = reward[:, -1:]
    elif spec.baseline_kind == "others":
        n = is_generator.sum()
        b = ((reward * is_generator).sum() - reward * is_generator) / np.maximum(n - is_generator,
                                                                                 1) if n > 1 else np.zeros_like(reward)
    advantage = (reward - b).astype(np.float32)
    ratio = np.minimum(np.exp(np.clip(log_g, MIN_EXPONENT, MAX_EXPONENT)) / records["p"][ids], np.float32(spec.clip))
    rho = np.where(is_noise & spec.importance, ratio, is_generator).astype(np.float32)
    sums = (is_generator.sum(), (rho > 0).sum(), is_noise.sum(), (is_noise & (rho >= np.float32(spec.clip))).sum(),
            0 if negative_share is None else ((1 - negative_share) * is_generator).sum(), (cost * is_generator).sum(),
            (np.square(cost, dtype=np.float64) * is_generator).sum(), (advantage * is_generator).sum(),
            (np.square(advantage, dtype=np.float64) * is_generator).sum())
    return rho * advantage, list(map(float, sums))


def collect(tables: GeneratorTables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, sums_into: GradientSums) -> None:
    """Add the one-hot part of the gradient of −Σ a log g to `sums_into`, for ids and a (G, K) in contexts row (G,).

    log g(id|x) = w_c·z_x − log Z_x + log π(id|c), c the class of the id. Its softmax part is added elsewhere, from the
    sums of a per context.
    """
    klass, rows = tables.word["klass"][ids].reshape(-1), np.repeat(row, ids.shape[1])
    flat = a.reshape(-1, 1)
    np.add.at(sums_into.w, klass, -flat * tables.z[rows])
    np.add.at(sums_into.z, rows, -flat * tables.w[klass])
    np.add.at(sums_into.total, rows, flat[:, 0])
    np.add.at(sums_into.draws, row, np.float32(1))
