"""REINFORCE: from the costs of negatives to factors of log g, and from these to the sparse half of the gradient.

    a = ρ (r - b),   r = (cost - centre) / scale;   with a negative share: r <- share r - (1 - share) penalty
    ρ = 1 for draws of g, min(clip, g / p) for draws of the noise (0 without importance), 0 for a probe
    b = `baseline`, or r of the last negative, or the mean r of the batch's others drawn by g (0 without others)
"""

from __future__ import annotations

import math
from ctypes import byref

import numpy as np

from embtrain.kernels.arguments.generator import (
    WORD,
    DrawnNegatives,
    GeneratorTables,
    GradientSums,
    ReinforceSpec,
    ReinforceSums,
    ReinforceTask,
)
from embtrain.kernels.core.binding import array_arg, call, check_range, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import reinforce as reference

__all__ = ["DrawnNegatives", "GradientSums", "ReinforceSpec", "ReinforceSums", "collect", "factors"]


def factors(spec: ReinforceSpec, word: np.ndarray, drawn: DrawnNegatives) -> tuple[np.ndarray, ReinforceSums]:
    """Factors a (G, K) float32, and sums over the negatives. `word` is that of the tables."""
    ids, origin, log_g, cost, negative_share = drawn
    shape = (len(ids), ids.shape[-1])
    arrays = [array_arg(name, x, dtype, dims) for name, x, dtype, dims in (
        ("ids", ids, np.int64, shape), ("origin", origin, np.int8, shape), ("log_g", log_g, np.float32, shape),
        ("cost", cost, np.float32, shape), ("negative_share", negative_share, np.float32, shape))]
    word_arg = array_arg("word", word, WORD, (len(word),))
    if (lib := core()) is None:
        check_range("ids", ids, 0, len(word))
        a, totals = reference.factors(spec, word, drawn)
        return a, ReinforceSums(*totals)
    a, sums = np.empty(shape, np.float32), np.zeros(len(ReinforceSums._fields))
    critic = ("none", "last", "others").index(spec.critic)
    task = ReinforceTask(spec.centre, spec.scale, spec.penalty, spec.baseline, spec.clip, critic, spec.importance)
    call("reinforce", lib.embtrain_reinforce, byref(task), *shape, word_arg, len(word), *arrays, pointer(a),
         pointer(sums))
    return a, ReinforceSums(*sums.tolist())


def collect(t: GeneratorTables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, sums_into: GradientSums) -> None:
    """Add the gradient of draws (G, K) in rows (G,) with factors a (G, K) to the arrays."""
    t.check()
    row_arg = array_arg("row", row, np.int64, (len(ids),))
    ids_arg = array_arg("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    a_arg = array_arg("a", a, np.float32, ids.shape)
    sums_args = [array_arg(f"sums_into.{name}", x, np.float32, like.shape) for x, name, like in zip(
        sums_into, GradientSums._fields, (t.w, t.z, t.log_z, t.log_z), strict=True)]
    if (lib := core()) is None:
        t.check_rows(row)
        t.check_ids(ids)
        reference.collect(t, ids, row, a, sums_into)
    else:
        call("reinforce", lib.embtrain_reinforce_collect, byref(t.task), len(row), row_arg, ids.shape[1], ids_arg,
             a_arg, *sums_args)


def moments(total: float, squares: float, n: float) -> tuple[float, float]:
    """Mean and sd of n numbers, from their sum and sum of squares."""
    mean = total / n
    return mean, math.sqrt(max(0.0, squares / n - mean * mean))
