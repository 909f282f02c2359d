"""REINFORCE at columns: from what they cost to the factors of log g, and from those to the gradient's sparse half.

    a = ρ (r - b),   r = (cost - centre) / scale;   forgiven for a share of readers: r <- wrong r - (1 - wrong) penalty
    ρ = 1 where g drew, min(clip, g / p) where the noise did (0 without importance), 0 for a probe
    b = `baseline`, or r of the last column, or the mean r of the batch's other columns that g drew (0 without others)
"""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.library import core
from embtrain.kernels.reference.sampling import reinforce as reference
from embtrain.kernels.sampling.generator import WORD, Tables, at_of, call, checked, ids_fit, rows_fit, task_of


class Rule(NamedTuple):
    centre: float
    scale: float
    penalty: float
    baseline: float
    clip: float
    critic: Literal["none", "last", "others"]   # none: b is `baseline`
    importance: bool


class Sums(NamedTuple):
    """Over the columns that g drew (`mine`), but for the next three."""

    mine: float = 0         # how many
    used: float = 0         # columns with ρ > 0, whoever drew them
    noise: float = 0        # columns that the noise drew
    clipped: float = 0      # of these, with ρ at the clip
    wrongly: float = 0      # Σ (1 - wrong)
    cost: float = 0         # Σ cost
    cost2: float = 0        # Σ cost²
    advantage: float = 0    # Σ (r - b)
    advantage2: float = 0   # Σ (r - b)²


class Columns(NamedTuple):
    """What was drawn and what it cost, (G, K) each."""

    ids: np.ndarray                 # int64
    origin: np.ndarray              # int8  0 the noise, 1 g, 2 a probe
    log_g: np.ndarray               # float32
    cost: np.ndarray                # float32
    wrong: np.ndarray | None        # float32  the share of readers whose right answer it is not; None: all


class _Rule(ctypes.Structure):
    """struct ReinforceRule of source/reinforce.cpp."""

    _fields_ = (*((name, ctypes.c_double) for name in ("centre", "scale", "penalty", "baseline", "clip")),
                ("critic", ctypes.c_int64), ("importance", ctypes.c_int64))


def factors(rule: Rule, word: np.ndarray, columns: Columns) -> tuple[np.ndarray, Sums]:
    """a (G, K) float32, and sums over the columns; `word` is that of the tables."""
    ids, origin, log_g, cost, wrong = columns
    shape = (len(ids), ids.shape[-1])
    checked("word", word, WORD, (len(word),))
    checked("ids", ids, np.int64, shape)
    checked("origin", origin, np.int8, shape)
    for name, x in (("log_g", log_g), ("cost", cost), ("wrong", wrong)):
        if x is not None:
            checked(name, x, np.float32, shape)
    if (lib := core()) is None:
        ids_fit(len(word), ids)
        a, found = reference.factors(rule, word, columns)
        return a, Sums(*found)
    a, sums = np.empty(shape, np.float32), np.zeros(len(Sums._fields))
    critic = ("none", "last", "others").index(rule.critic)
    told = _Rule(rule.centre, rule.scale, rule.penalty, rule.baseline, rule.clip, critic, rule.importance)
    call(lib.embtrain_reinforce(ctypes.byref(told), *map(ctypes.c_int64, shape), at_of(word),
                                ctypes.c_int64(len(word)), at_of(ids), at_of(origin), at_of(log_g), at_of(cost),
                                None if wrong is None else at_of(wrong), at_of(a), at_of(sums)))
    return a, Sums(*sums.tolist())


class Into(NamedTuple):
    """What `collect` adds to, float32."""

    w: np.ndarray       # (C, H)  -= a z
    z: np.ndarray       # (R, H)  -= a w
    total: np.ndarray   # (R,)    += a
    draws: np.ndarray   # (R,)    += 1 for each draw


def collect(t: Tables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, into: Into) -> None:
    """Add up what draws (G, K) of rows (G,) with factors a give."""
    t.check()
    checked("row", row, np.int64, (len(ids),))
    checked("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    checked("a", a, np.float32, ids.shape)
    for x, name, shape in zip(into, Into._fields, (t.w.shape, t.z.shape, t.log_z.shape, t.log_z.shape), strict=True):
        checked(f"into {name}", x, np.float32, shape)
    if (lib := core()) is None:
        rows_fit(t, row)
        ids_fit(len(t.word), ids)
        reference.collect(t, ids, row, a, into)
        return
    call(lib.embtrain_reinforce_collect(task_of(t), ctypes.c_int64(len(row)), at_of(row),
                                        ctypes.c_int64(ids.shape[1]), at_of(ids), at_of(a), *map(at_of, into)))
