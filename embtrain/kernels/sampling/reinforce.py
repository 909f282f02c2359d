"""REINFORCE coefficients of the generator g of adversarial negatives (ACE), and the sparse part of its gradient.

g is a learned distribution over candidates, trained to draw negatives of high cost [bose2018]. A draw of K negatives
contains ids drawn by g, ids drawn by the fixed noise distribution p, and possibly a probe: an id that is scored but has
weight 0. The gradient of the generator's objective is Σ_i a_i ∇log g(id_i|x), with for each negative i

    a = ρ (r − b)       r = (cost − centre) / scale      centre, scale: running mean and sd of the costs
                        r ← f r − (1 − f) penalty        f = `negative_share`, the fraction of the rows that share the
                                                         draw and for which the id is not a known positive
    ρ = 1 if g drew the id; min(clip, g / p) if the noise drew it and `importance` is set; else 0
    b = `baseline` for the kind none; r of the last negative of the same draw, the probe, for the kind last; the mean r
        of the other negatives drawn by g, over all draws (0 if g drew fewer than two), for others

g is a softmax over classes, then a fixed distribution π in the class: log g(id|x) = w_c·z_x − log Z_x + log π(id|c) for
the class c of the id and a row x of the generator's table of contexts. Hence ∂log g / ∂logits = onehot(c) − softmax.
`collect` adds the one-hot part, which touches one class per negative. The dense softmax part follows once per step,
from the sums of a per row (`GeneratorCache.gradient` in embtrain/negatives/adversarial/generator_cache.py).

Each function runs the compiled C++ function if the core library is built and enabled (`core()` returns it), and else
the NumPy reference. `call("reinforce", ...)` runs one and raises its errors with the prefix reinforce.
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


def factors(spec: ReinforceSpec, records: np.ndarray, drawn: DrawnNegatives) -> tuple[np.ndarray, ReinforceSums]:
    """Return the coefficients a (G, K) float32 of K negatives in each of G draws, and sums over the negatives.

    records (V,): one record per candidate, of type WORD; only the noise probability p is read. drawn: ids, origin
    (int8: 0 noise, 1 g, 2 probe), log g(id|x), cost and f, (G, K) each; f may be None, which is 1 everywhere.

    The sums count the negatives drawn by g, those with ρ > 0, those drawn by the noise, and those of the noise with
    ρ = clip. The others run over the negatives drawn by g: Σ (1 − f) counts false negatives, then cost, cost², r − b
    and (r − b)².
    Raises IndexError for an id outside 0 … V − 1, TypeError or ValueError for an array of another type or shape.
    """
    ids, origin, log_g, cost, negative_share = drawn
    shape = (len(ids), ids.shape[-1])
    arrays = [array_arg(name, x, dtype, dims) for name, x, dtype, dims in (
        ("ids", ids, np.int64, shape), ("origin", origin, np.int8, shape), ("log_g", log_g, np.float32, shape),
        ("cost", cost, np.float32, shape), ("negative_share", negative_share, np.float32, shape))]
    records_arg = array_arg("records", records, WORD, (len(records),))
    if (lib := core()) is None:
        check_range("ids", ids, 0, len(records))
        a, totals = reference.factors(spec, records, drawn)
        return a, ReinforceSums(*totals)
    a, sums = np.empty(shape, np.float32), np.zeros(len(ReinforceSums._fields))
    kind = ("none", "last", "others").index(spec.baseline_kind)
    task = ReinforceTask(spec.centre, spec.scale, spec.penalty, spec.baseline, spec.clip, kind, spec.importance)
    call("reinforce", lib.embtrain_reinforce, byref(task), *shape, records_arg, len(records), *arrays, pointer(a),
         pointer(sums))
    return a, ReinforceSums(*sums.tolist())


def collect(tables: GeneratorTables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, sums_into: GradientSums) -> None:
    """Add the one-hot part of the gradient of −Σ a log g, for G draws of K negatives, to the arrays of `sums_into`.

    tables: the parameters w (C, H) of C classes and z (R, H) of R contexts x, with log_z (R,) = log Z_x. ids (G, K).
    row (G,): the context of each draw, a row of z. a (G, K): the coefficients. With c the class of an id, and dw and dz
    the arrays of the gradient in `sums_into`: dw_c −= a z_x, dz_x −= a w_c and total_x += a for each negative, and
    draws_x += 1 for each draw; w and z do not change. Errors as in `factors`.
    """
    tables.check()
    row_arg = array_arg("row", row, np.int64, (len(ids),))
    ids_arg = array_arg("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    a_arg = array_arg("a", a, np.float32, ids.shape)
    sums_args = [array_arg(f"sums_into.{name}", x, np.float32, like.shape) for x, name, like in zip(
        sums_into, GradientSums._fields, (tables.w, tables.z, tables.log_z, tables.log_z), strict=True)]
    if (lib := core()) is None:
        tables.check_rows(row)
        tables.check_ids(ids)
        reference.collect(tables, ids, row, a, sums_into)
    else:
        call("reinforce", lib.embtrain_reinforce_collect, byref(tables.task), len(row), row_arg, ids.shape[1], ids_arg,
             a_arg, *sums_args)


def moments(total: float, squares: float, n: float) -> tuple[float, float]:
    """Return the mean and standard deviation of n numbers from their sum and their sum of squares.

    ACE applies it to n and the cost sums of `factors`, to update `centre` and `scale`.
    """
    mean = total / n
    return mean, math.sqrt(max(0.0, squares / n - mean * mean))
