"""Draws from the adversarial mixture and their densities, summaries of the rows of g, and the gradient of its logits.

    q(y|x) = λ p(y) + (1 - λ) g(y|x)      log g(y|x) = w_c · z_x - log Z_x + log π(y|c),  c = class of y

x is a row of the cached tables z, log_z, ends, greedy, log_best. A draw recomputes only the block of WIDTH classes of g
that it falls into. Column j of draw i uses numbers 3(iK + j) + 0, 1, 2 of the stream `seed`: the component, the alias
table or the point in the row, the point in the class. The matrix products are in
embtrain/negatives/adversarial/generator_cache.py.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.library import OK, core
from embtrain.kernels.core.tables import expect
from embtrain.kernels.reference.sampling import generator as reference

WIDTH = reference.WIDTH  # classes of a block of g


# What a density reads of an id, contiguous: its class c, log π(y|c), and p.
WORD = np.dtype([("klass", np.int32), ("log_within", np.float32), ("p", np.float32), ("unused", np.float32)])


def pack_words(klass: np.ndarray, log_within: np.ndarray, p: np.ndarray) -> np.ndarray:
    packed = np.zeros(len(klass), WORD)
    packed["klass"], packed["log_within"], packed["p"] = klass, log_within, p
    return packed


def n_ends(classes: int) -> int:
    """E, the number of running sums of a row."""
    return -(-classes // (WIDTH * reference.BUNDLE)) * reference.BUNDLE


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
            expect(name, getattr(self, name), dtype, shape)


class _GeneratorTask(ctypes.Structure):
    """struct GeneratorTask of source/sampling/generator.h."""

    _fields_ = (*((name, ctypes.c_void_p) for name in GeneratorTables._fields[:-1]),
                *((name, ctypes.c_int64) for name in ("n_rows", "n_classes", "n_ids", "hidden", "n_ends")),
                ("mix", ctypes.c_double))


def to_panels(w: np.ndarray) -> np.ndarray:
    """Rearrange w (C, H) into blocks (N, H, WIDTH): the data that a draw reads of a block is contiguous."""
    c, h = w.shape
    padded = np.zeros((-(-c // WIDTH) * WIDTH, h), w.dtype)
    padded[:c] = w
    return np.ascontiguousarray(padded.reshape(-1, WIDTH, h).transpose(0, 2, 1))


class GeneratorRows(NamedTuple):
    """Output of `summarize_rows` for n rows."""

    ends: np.ndarray      # (n, E) uint32
    log_z: np.ndarray     # (n,) float32
    best: np.ndarray      # (n,) int64  argmax_c l_c + log_best_c, the first of equal ones
    log_top: np.ndarray   # (n,) float32  its log g, log_best_c included


def summarize_rows(logits: np.ndarray, log_best: np.ndarray, output: GeneratorRows) -> None:
    """Compute the running sums of softmax(logits), logits (n, C), log Z, and the class of the most likely id."""
    (n, c) = logits.shape
    expect("logits", logits, np.float32, (n, c))
    expect("log_best", log_best, np.float32, (c,))
    for name, dtype, shape in (("ends", np.uint32, (n, n_ends(c))), ("log_z", np.float32, (n,)),
                               ("best", np.int64, (n,)), ("log_top", np.float32, (n,))):
        expect(name, getattr(output, name), dtype, shape)
    if (lib := core()) is None:
        reference.summarize_rows(logits, log_best, output)
        return
    check_status(lib.embtrain_generator_rows(ctypes.c_int64(n), ctypes.c_int64(c), pointer(logits), pointer(log_best),
                                             *map(pointer, output)))


def soften(logits: np.ndarray, log_z: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """g <- e^(l - log Z) in rows of logits (n, C), log_z (n,). Returns Σ_c g_c η_c, (n,) float32."""
    expect("logits", logits, np.float32, (len(logits), len(eta)))
    expect("log_z", log_z, np.float32, (len(logits),))
    expect("eta", eta, np.float32, (len(eta),))
    if (lib := core()) is None:
        return reference.soften(logits, log_z, eta)
    check_range = np.empty(len(logits), np.float32)
    check_status(lib.embtrain_generator_soften(_length(logits), _length(eta),
                                               *map(pointer, (logits, log_z, eta, check_range))))
    return check_range


def slope(g: np.ndarray, a: np.ndarray, h: np.ndarray, entropy: np.ndarray, eta: np.ndarray) -> None:
    """g_c <- g_c (a + h (log g_c - η_c + H)) in rows of g (n, C) with h > 0; a, h, entropy (n,), η (C,)."""
    for name, x, shape in (("g", g, (len(g), len(eta))), ("a", a, g.shape[:1]), ("h", h, g.shape[:1]),
                           ("entropy", entropy, g.shape[:1]), ("eta", eta, (len(eta),))):
        expect(name, x, np.float32, shape)
    if (lib := core()) is None:
        reference.slope(g, a, h, entropy, eta)
        return
    check_status(lib.embtrain_generator_slope(_length(g), _length(eta), pointer(g), pointer(a), pointer(h),
                                              pointer(entropy), pointer(eta)))


class GeneratorDraws(NamedTuple):
    """K columns for each of G rows; one more with a probe."""

    ids: np.ndarray       # (G, K) int64
    origin: np.ndarray    # (G, K) int8  0 the noise, 1 g, 2 the probe
    log_g: np.ndarray     # (G, K) float32
    log_q: np.ndarray     # (G, K) float32


def draw(t: GeneratorTables, row: np.ndarray, k: int, by_noise: int | None, probe: bool, seed: int) -> GeneratorDraws:
    """Draw k columns per row (G,). With `probe`, the row's greedy id is appended.

    by_noise: how many leading columns come from the noise; None: each with probability λ.
    """
    t.check()
    expect("row", row, np.int64, (len(row),))
    if (lib := core()) is None:
        check_rows(t, row)
        return GeneratorDraws(*reference.draw(t, row, k, by_noise, probe, seed))
    shape = len(row), k + probe
    draws = GeneratorDraws(np.empty(shape, np.int64), np.empty(shape, np.int8), np.empty(shape, np.float32),
                  np.empty(shape, np.float32))
    order, count = np.empty(len(row), np.int64), np.zeros(len(t.z) + 1, np.int64)
    check_status(lib.embtrain_generator_draw(as_task(t), _length(row), pointer(row), pointer(order), pointer(count),
                                             ctypes.c_int64(k),
                                ctypes.c_int64(-1 if by_noise is None else by_noise), ctypes.c_int(probe),
                                ctypes.c_uint64(seed), *map(pointer, draws)))
    return draws


def density(t: GeneratorTables, ids: np.ndarray, row: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log g and log q of ids (N,), those from start[i] to start[i + 1] in row[i]: (N,) float32 each."""
    t.check()
    expect("row", row, np.int64, (len(row),))
    expect("ids", ids, np.int64, (len(ids),))
    expect("start", start, np.int64, (len(row) + 1,))
    if start[0] != 0 or start[-1] != len(ids) or (start[1:] < start[:-1]).any():
        raise ValueError(f"start: offsets must rise from 0 to {len(ids)}")
    if (lib := core()) is None:
        check_rows(t, row)
        check_ids(len(t.word), ids)
        return reference.density(t, ids, row, start)
    log_g, log_q = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)
    check_status(lib.embtrain_generator_density(as_task(t), _length(row),
                                                *map(pointer, (start, ids, row, log_g, log_q))))
    return log_g, log_q


def as_task(t: GeneratorTables) -> ctypes.c_void_p:
    task = _GeneratorTask(*(x.ctypes.data for x in t[:-1]), len(t.z), len(t.w), len(t.word), t.z.shape[1],
                          t.ends.shape[1],
                 t.mix)
    return ctypes.cast(ctypes.pointer(task), ctypes.c_void_p)


def pointer(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def _length(x: np.ndarray) -> ctypes.c_int64:
    return ctypes.c_int64(len(x))


def check_status(status: int) -> None:
    if status != OK:
        raise IndexError("an id is out of range of the tables")


def check_rows(t: GeneratorTables, row: np.ndarray) -> None:
    if len(row) and not 0 <= row.min() <= row.max() < len(t.z):
        raise IndexError(f"row: from {row.min()} to {row.max()}, allowed are 0 to {len(t.z) - 1}")


def check_ids(n: int, ids: np.ndarray) -> None:
    if ids.size and not 0 <= ids.min() <= ids.max() < n:
        raise IndexError(f"ids: from {ids.min()} to {ids.max()}, allowed are 0 to {n - 1}")
