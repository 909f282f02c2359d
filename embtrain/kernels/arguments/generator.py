"""Arguments of the kernels of the adversarial generator: its tables, draws, and REINFORCE factors."""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.binding import address, check_array, check_range, fields

WIDTH = 16  # classes of a block of g
BUNDLE = 16  # running sums compared at once in the core

# Values that a density reads for an id, contiguous: its class c, log π(y|c), and p.
WORD = np.dtype([("klass", np.int32), ("log_within", np.float32), ("p", np.float32), ("unused", np.float32)])


def n_ends(classes: int) -> int:
    """E, the number of running sums of a row."""
    return -(-classes // (WIDTH * BUNDLE)) * BUNDLE


class GeneratorTables(NamedTuple):
    """C-contiguous arrays. R rows, C classes, V ids, H = hidden dimensions and the bias, N = ⌈C / WIDTH⌉ blocks."""

    z: np.ndarray           # (R, H) float32
    w: np.ndarray           # (C, H) float32
    panel: np.ndarray       # (N, H, WIDTH) float32  w in blocks, 0 beyond C
    log_z: np.ndarray       # (R,) float32
    ends: np.ndarray        # (R, E) uint32  running sums of g's blocks in units of 2^-32; 1 is 2^32 - 1
    greedy: np.ndarray      # (R,) int64  argmax_y g(y|x)
    log_best: np.ndarray    # (R,) float32  the log g of greedy
    word: np.ndarray        # (V,) WORD
    accept: np.ndarray      # (V,) uint64  alias table of p
    alias: np.ndarray       # (V,) int64
    member: np.ndarray      # (V,) int64  ids sorted by class
    first: np.ndarray       # (C+1,) int64  the begin of each class in member
    keep: np.ndarray        # (V,) uint64  alias tables of π in the order of member, one per class
    instead: np.ndarray     # (V,) int64  the alias ids of these tables
    mix: float              # λ

    def check(self) -> None:
        """Raise ValueError if an array has the wrong shape or type. The contents of the class tables are not checked.
        """
        (r, h), c, v = self.z.shape, len(self.w), len(self.word)
        expected: dict[str, tuple[type | np.dtype, tuple[int, ...]]] = {
            "z": (np.float32, (r, h)), "w": (np.float32, (c, h)), "panel": (np.float32, (-(-c // WIDTH), h, WIDTH)),
            "log_z": (np.float32, (r,)), "ends": (np.uint32, (r, n_ends(c))), "greedy": (np.int64, (r,)),
            "log_best": (np.float32, (r,)), "word": (WORD, (v,)), "accept": (np.uint64, (v,)),
            "alias": (np.int64, (v,)), "member": (np.int64, (v,)), "first": (np.int64, (c + 1,)),
            "keep": (np.uint64, (v,)), "instead": (np.int64, (v,))}
        for name, (dtype, shape) in expected.items():
            check_array(name, getattr(self, name), dtype, shape)

    def check_rows(self, row: np.ndarray) -> None:
        """Raise an error if a row is out of range. For the reference; the core checks its own input."""
        check_range("row", row, 0, len(self.z))

    def check_ids(self, ids: np.ndarray) -> None:
        check_range("ids", ids, 0, len(self.word))

    @property
    def task(self) -> GeneratorTask:
        """The C++ struct, valid as long as the arrays."""
        return GeneratorTask(*map(address, self[:-1]), len(self.z), len(self.w), len(self.word), self.z.shape[1],
                             self.ends.shape[1], self.mix)


class GeneratorTask(ctypes.Structure):
    """struct GeneratorTask of source/sampling/generator.h."""

    _fields_ = fields(" ".join(GeneratorTables._fields[:-1]), "n_rows n_classes n_ids hidden n_ends", "mix")


class GeneratorRows(NamedTuple):
    """Output of `summarize_rows` for n rows."""

    ends: np.ndarray      # (n, E) uint32
    log_z: np.ndarray     # (n,) float32
    best: np.ndarray      # (n,) int64  argmax_c l_c + log_best_c, the first of equal ones
    log_top: np.ndarray   # (n,) float32  its log g, log_best_c included


class EntropyObjective(NamedTuple):
    """What the dense half of the gradient needs of each row x (negatives/adversarial/generator.py): A, and
    h = β share where the entropy H is below the limit, else 0.
    """

    total: np.ndarray     # (R,) float32  A
    share: np.ndarray     # (R,) float32  share of the draws that x has
    eta: np.ndarray       # (C,) float32  η, the entropy within each class
    beta: float           # β
    limit: float


class GeneratorDraws(NamedTuple):
    """K negatives for each of G rows; one more with a probe."""

    ids: np.ndarray       # (G, K) int64
    origin: np.ndarray    # (G, K) int8  0 the noise, 1 g, 2 the probe
    log_g: np.ndarray     # (G, K) float32
    log_q: np.ndarray     # (G, K) float32


class ReinforceSpec(NamedTuple):
    """Settings of the coefficients a = ρ (r − b), r = (cost − centre) / scale."""

    centre: float
    scale: float
    penalty: float
    baseline: float
    clip: float
    baseline_kind: Literal["none", "last", "others"]   # none: b is `baseline`; last: r of the draw's last negative;
    #                                                    others: the mean r of the other negatives drawn by g
    importance: bool


class ReinforceSums(NamedTuple):
    """Sums over the negatives drawn by g, except n_used, n_noise and n_clipped."""

    n_generator: float = 0         # number of these negatives
    n_used: float = 0         # negatives with ρ > 0 of any origin
    n_noise: float = 0        # negatives drawn by the noise
    n_clipped: float = 0      # noise negatives with ρ at the clip
    n_false_negatives: float = 0      # Σ (1 - negative_share)
    cost: float = 0         # Σ cost
    cost2: float = 0        # Σ cost²
    advantage: float = 0    # Σ (r - b)
    advantage2: float = 0   # Σ (r - b)²


class DrawnNegatives(NamedTuple):
    """Drawn negatives and their costs, (G, K) each."""

    ids: np.ndarray                 # int64
    origin: np.ndarray              # int8  0 the noise, 1 g, 2 a probe
    log_g: np.ndarray               # float32
    cost: np.ndarray                # float32
    negative_share: np.ndarray | None  # float32  the share of rows for which the negative is a true negative; None: 1


class ReinforceTask(ctypes.Structure):
    """struct ReinforceSpec of source/sampling/reinforce.cpp."""

    _fields_ = (*fields("", "", "centre scale penalty baseline clip"), *fields("", "baseline_kind importance"))


class GradientSums(NamedTuple):
    """The float32 arrays that `collect` adds to."""

    w: np.ndarray       # (C, H)  -= a z
    z: np.ndarray       # (R, H)  -= a w
    total: np.ndarray   # (R,)    += a
    draws: np.ndarray   # (R,)    += 1 per draw
