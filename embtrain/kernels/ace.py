"""The adversary's cheap half, at windows and not at rows of g: draws, densities, and the sparse part of REINFORCE.

    q(y|x) = λ p(y) + (1 - λ) g(y|x)      log g(y|x) = w_c · z_x - log Z_x + log π(y|c),  c = class of y

x is a row of the cached tables z, log_z, g, ends. Column j of draw i takes the numbers 3(iK + j) + 0, 1, 2 of the
stream `seed`: which component, the alias table or the place in the row, the place in the class. The dense half is in
embtrain/negatives/snapshot.py, as matrix products.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core import OK, core
from embtrain.kernels.reference import ace as reference

WIDTH = reference.WIDTH  # classes of a block of g


#: What a density wants of an id, side by side: its class c, log π(y|c), and p.
WORD = np.dtype([("klass", np.int32), ("log_within", np.float32), ("p", np.float32), ("unused", np.float32)])


def words(klass: np.ndarray, log_within: np.ndarray, p: np.ndarray) -> np.ndarray:
    made = np.zeros(len(klass), WORD)
    made["klass"], made["log_within"], made["p"] = klass, log_within, p
    return made


class Tables(NamedTuple):
    """All are C-contiguous. R rows, C classes, V ids, H = hidden dimensions and the bias, N = ⌈C / WIDTH⌉ blocks."""

    z: np.ndarray           # (R, H) float32
    w: np.ndarray           # (C, H) float32
    log_z: np.ndarray       # (R,) float32
    g: np.ndarray           # (R, N · WIDTH) float32, 0 beyond C
    ends: np.ndarray        # (R, N) float64  running sums of g's blocks
    word: np.ndarray        # (V,) WORD
    accept: np.ndarray      # (V,) uint64  alias table of p
    alias: np.ndarray       # (V,) int64
    member: np.ndarray      # (V,) int64  ids sorted by class
    first: np.ndarray       # (C+1,) int64  where each class begins in member
    upto: np.ndarray        # (V,) float64  running sums of π along member, from 0 in each class
    mix: float              # λ

    def check(self) -> None:
        """ValueError where an array is not of this shape or type. The class tables' contents are their maker's word."""
        (r, h), c, v, n = self.z.shape, len(self.w), len(self.word), self.ends.shape[1]
        wanted: dict[str, tuple[type | np.dtype, tuple[int, ...]]] = {
            "z": (np.float32, (r, h)), "w": (np.float32, (c, h)), "log_z": (np.float32, (r,)),
            "g": (np.float32, (r, n * WIDTH)), "ends": (np.float64, (r, -(-c // WIDTH))), "word": (WORD, (v,)),
            "accept": (np.uint64, (v,)), "alias": (np.int64, (v,)), "member": (np.int64, (v,)),
            "first": (np.int64, (c + 1,)), "upto": (np.float64, (v,))}
        for name, (dtype, shape) in wanted.items():
            _of(name, getattr(self, name), dtype, shape)


class _Task(ctypes.Structure):
    """struct AceTask of source/ace.cpp."""

    _fields_ = (*((name, ctypes.c_void_p) for name in Tables._fields[:-1]),
                *((name, ctypes.c_int64) for name in ("n_rows", "n_classes", "n_ids", "hidden", "n_blocks")),
                ("mix", ctypes.c_double))


class Rows(NamedTuple):
    """Where `rows` writes. n rows."""

    g: np.ndarray       # (n, N · WIDTH) float32
    ends: np.ndarray    # (n, N) float64
    log_z: np.ndarray   # (n,) float32
    best: np.ndarray    # (n,) int64  argmax_c g_c e^{log_best_c}, the first of equals


def rows(logits: np.ndarray, log_best: np.ndarray, into: Rows) -> None:
    """softmax of logits (n, C) with its running sums, log Z, and the class with the likeliest id."""
    (n, c), blocks = logits.shape, into.ends.shape[1]
    _of("logits", logits, np.float32, (n, c))
    _of("log_best", log_best, np.float32, (c,))
    for name, dtype, shape in (("g", np.float32, (n, blocks * WIDTH)), ("ends", np.float64, (n, -(-c // WIDTH))),
                               ("log_z", np.float32, (n,)), ("best", np.int64, (n,))):
        _of(name, getattr(into, name), dtype, shape)
    if (lib := core()) is None:
        reference.rows(logits, log_best, into)
        return
    _call(lib.embtrain_ace_rows(ctypes.c_int64(n), ctypes.c_int64(c), _at(logits), _at(log_best), _at(into.g),
                                _at(into.ends), _at(into.log_z), _at(into.best)))


def slope(g: np.ndarray, a: np.ndarray, h: np.ndarray, entropy: np.ndarray, eta: np.ndarray) -> None:
    """g_c <- g_c (a + h (log g_c - η_c + H)) in rows of g (n, N · WIDTH) where h > 0; a, h, entropy (n,), η (C,)."""
    for name, x, shape in (("g", g, g.shape), ("a", a, g.shape[:1]), ("h", h, g.shape[:1]),
                           ("entropy", entropy, g.shape[:1]), ("eta", eta, (len(eta),))):
        _of(name, x, np.float32, shape)
    if g.shape[1] != -(-len(eta) // WIDTH) * WIDTH:
        raise ValueError(f"eta: {len(eta)} classes do not fit rows of {g.shape[1]}")
    if (lib := core()) is None:
        reference.slope(g, a, h, entropy, eta)
        return
    _call(lib.embtrain_ace_slope(_n(g), _n(eta), ctypes.c_int64(g.shape[1]), _at(g), _at(a), _at(h), _at(entropy),
                                 _at(eta)))


def draw(t: Tables, row: np.ndarray, k: int, by_noise: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """k columns for each row (G,): ids (G, k) int64, and origin (G, k) int8, 1 where g drew. The noise draws the first
    `by_noise` of them, or each with probability λ (None)."""
    t.check()
    _of("row", row, np.int64, (len(row),))
    if (lib := core()) is None:
        _rows(t, row)
        return reference.draw(t, row, k, by_noise, seed)
    ids, origin = np.empty((len(row), k), np.int64), np.empty((len(row), k), np.int8)
    order, count = np.empty(len(row), np.int64), np.zeros(len(t.z) + 1, np.int64)
    _call(lib.embtrain_ace_draw(_task(t), _n(row), _at(row), _at(order), _at(count), ctypes.c_int64(k),
                                ctypes.c_int64(-1 if by_noise is None else by_noise), ctypes.c_uint64(seed),
                                _at(ids), _at(origin)))
    return ids, origin


def density(t: Tables, ids: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log g and log q of ids (n, K), each line asked of a row (n,): (n, K) float32 each."""
    t.check()
    _of("row", row, np.int64, (len(ids),))
    _of("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    if (lib := core()) is None:
        _rows(t, row)
        _ids(t, ids)
        return reference.density(t, ids, row)
    log_g, log_q = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)
    _call(lib.embtrain_ace_density(_task(t), _n(row), ctypes.c_int64(ids.shape[1]), _at(ids), _at(row), _at(log_g),
                                   _at(log_q)))
    return log_g, log_q


def collect(t: Tables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, into_w: np.ndarray, into_z: np.ndarray,
            total: np.ndarray) -> None:
    """Add up what draws (G, K) with factors a give: into_w (C, H) -= a z, into_z (R, H) -= a w, total (R,) += a."""
    t.check()
    _of("row", row, np.int64, (len(ids),))
    _of("ids", ids, np.int64, (len(ids), ids.shape[-1]))
    _of("a", a, np.float32, ids.shape)
    _of("into_w", into_w, np.float32, t.w.shape)
    _of("into_z", into_z, np.float32, t.z.shape)
    _of("total", total, np.float32, t.log_z.shape)
    if (lib := core()) is None:
        _rows(t, row)
        _ids(t, ids)
        reference.collect(t, ids, row, a, into_w, into_z, total)
        return
    _call(lib.embtrain_ace_collect(_task(t), _n(row), _at(row), ctypes.c_int64(ids.shape[1]), _at(ids), _at(a),
                                   _at(into_w), _at(into_z), _at(total)))


def _task(t: Tables) -> ctypes.c_void_p:
    task = _Task(*(x.ctypes.data for x in t[:-1]), len(t.z), len(t.w), len(t.word), t.z.shape[1], t.ends.shape[1],
                 t.mix)
    return ctypes.cast(ctypes.pointer(task), ctypes.c_void_p)


def _at(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def _n(x: np.ndarray) -> ctypes.c_int64:
    return ctypes.c_int64(len(x))


def _call(answer: int) -> None:
    if answer != OK:
        raise IndexError("an id beyond the tables")


def _rows(t: Tables, row: np.ndarray) -> None:
    if len(row) and not 0 <= row.min() <= row.max() < len(t.z):
        raise IndexError(f"row: from {row.min()} to {row.max()}, and there are {len(t.z)}")


def _ids(t: Tables, ids: np.ndarray) -> None:
    if ids.size and not 0 <= ids.min() <= ids.max() < len(t.word):
        raise IndexError(f"ids: from {ids.min()} to {ids.max()}, and there are {len(t.word)}")


def _of(name: str, x: np.ndarray, dtype: type | np.dtype, shape: tuple[int, ...]) -> None:
    if x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous:
        raise ValueError(f"{name}: {np.dtype(dtype).name} {shape} is wanted, got {x.dtype} {x.shape}"
                         f"{'' if x.flags.c_contiguous else ', not contiguous'}")
