"""REINFORCE: from the costs of columns to factors of log g, and from these to the sparse half of the gradient.

    a = ρ (r - b),   r = (cost - centre) / scale;   with a negative share: r <- share r - (1 - share) penalty
    ρ = 1 for draws of g, min(clip, g / p) for draws of the noise (0 without importance), 0 for a probe
    b = `baseline`, or r of the last column, or the mean r of the batch's other columns drawn by g (0 without others)
"""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.library import core
from embtrain.kernels.core.tables import expect
from embtrain.kernels.reference.sampling import reinforce as reference
from embtrain.kernels.sampling.generator import (
    WORD,
    GeneratorTables,
    as_task,
    check_ids,
    check_rows,
    check_status,
    pointer,
)


class ReinforceSpec(NamedTuple):
    centre: float
    scale: float
    penalty: float
    baseline: float
    clip: float
    critic: Literal["none", "last", "others"]   # none: b is `baseline`
    importance: bool


class ReinforceSums(NamedTuple):
    """Sums over the columns drawn by g, except n_used, n_noise and n_clipped."""

    n_generator: float = 0         # number of these columns
    n_used: float = 0         # columns with ρ > 0 of any origin
    n_noise: float = 0        # columns drawn by the noise
    n_clipped: float = 0      # noise columns with ρ at the clip
    n_false_negatives: float = 0      # Σ (1 - negative_share)
    cost: float = 0         # Σ cost
    cost2: float = 0        # Σ cost²
    advantage: float = 0    # Σ (r - b)
    advantage2: float = 0   # Σ (r - b)²


class DrawnNegatives(NamedTuple):
    """Drawn columns and their costs, (G, K) each."""

    ids: np.ndarray                 # int64
    origin: np.ndarray              # int8  0 the noise, 1 g, 2 a probe
    log_g: np.ndarray               # float32
    cost: np.ndarray                # float32
    negative_share: np.ndarray | None  # float32  the share of rows for which the column is a true negative; None: 1


class _ReinforceSpec(ctypes.Structure):
    """struct ReinforceSpec of source/sampling/reinforce.cpp."""

    _fields_ = (*((name, ctypes.c_double) for name in ("centre", "scale", "penalty", "baseline", "clip")),
                ("critic", ctypes.c_int64), ("importance", ctypes.c_int64))


def factors(spec: ReinforceSpec, word: np.ndarray, drawn: DrawnNegatives) -> tuple[np.ndarray, ReinforceSums]:
    """Factors a (G, K) float32, and sums over the columns. `word` is that of the tables."""
    ids, origin, log_g, cost, negative_share = drawn
    shape = (len(ids), ids.shape[-1])
    expect("word", word, WORD, (len(word),))
    expect("ids", ids, np.int64, shape)
    expect("origin", origin, np.int8, shape)
    for name, x in (("log_g", log_g), ("cost", cost), ("wrong", negative_share)):
        if x is not None:
            expect(name, x, np.float32, shape)
    if (lib := core()) is None:
        check_ids(len(word), ids)
        a, totals = reference.factors(spec, word, drawn)
        return a, ReinforceSums(*totals)
    a, sums = np.empty(shape, np.float32), np.zeros(len(ReinforceSums._fields))
    critic = ("none", "last", "others").index(spec.critic)
    c_spec = _ReinforceSpec(spec.centre, spec.scale, spec.penalty, spec.baseline, spec.clip, critic, spec.importance)
    check_status(lib.embtrain_reinforce(ctypes.byref(c_spec), *map(ctypes.c_int64, shape), pointer(word),
                                ctypes.c_int64(len(word)), pointer(ids), pointer(origin), pointer(log_g), pointer(cost),
                                None if negative_share is None else pointer(negative_share), pointer(a), pointer(sums)))
    return a, ReinforceSums(*sums.tolist())


class GradientSums(NamedTuple):
    """The float32 arrays that `collect` adds to."""

    w: np.ndarray       # (C, H)  -= a z
    z: np.ndarray       # (R, H)  -= a w
    total: np.ndarray   # (R,)    += a
    draws: np.ndarray   # (R,)    += 1 per draw


def collect(t: GeneratorTables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, sums_into: GradientSums) -> None:
    """Add the gradient of draws (G, K) in rows (G,) with factors a (G, K) to the arrays."""
    t.check()
    expect("row", row, np.int64, (len(ids),))
    expect("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    expect("a", a, np.float32, ids.shape)
    for x, name, shape in zip(sums_into, GradientSums._fields, (t.w.shape, t.z.shape, t.log_z.shape, t.log_z.shape),
                              strict=True):
        expect(f"into {name}", x, np.float32, shape)
    if (lib := core()) is None:
        check_rows(t, row)
        check_ids(len(t.word), ids)
        reference.collect(t, ids, row, a, sums_into)
        return
    check_status(lib.embtrain_reinforce_collect(as_task(t), ctypes.c_int64(len(row)), pointer(row),
                                        ctypes.c_int64(ids.shape[1]), pointer(ids), pointer(a), *map(pointer,
                                                                                                     sums_into)))
