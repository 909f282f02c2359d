"""Draws from the adversarial mixture and their densities, summaries of the rows of g, and the gradient of its logits.

    q(y|x) = λ p(y) + (1 - λ) g(y|x)      log g(y|x) = w_c · z_x - log Z_x + log π(y|c),  c = class of y

x is a row of the cached tables z, log_z, ends, greedy, log_best. A draw recomputes only the block of WIDTH classes of g
that it falls into. Column j of draw i uses numbers 3(iK + j) + 0, 1, 2 of the stream `seed`: the component, the alias
table or the point in the row, the point in the class. The matrix products are in
embtrain/negatives/adversarial/generator_cache.py.
"""

from __future__ import annotations

import ctypes
from ctypes import byref

import numpy as np

from embtrain.kernels.arguments.generator import (
    WIDTH,
    WORD,
    GeneratorDraws,
    GeneratorRows,
    GeneratorTables,
    n_ends,
)
from embtrain.kernels.core.binding import array_arg, call, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import generator as reference

__all__ = ["WIDTH", "WORD", "GeneratorDraws", "GeneratorRows", "GeneratorTables", "density", "draw", "n_ends",
           "pack_words", "slope", "soften", "summarize_rows", "to_panels"]


def pack_words(klass: np.ndarray, log_within: np.ndarray, p: np.ndarray) -> np.ndarray:
    packed = np.zeros(len(klass), WORD)
    packed["klass"], packed["log_within"], packed["p"] = klass, log_within, p
    return packed


def to_panels(w: np.ndarray) -> np.ndarray:
    """Rearrange w (C, H) into blocks (N, H, WIDTH): the data that a draw reads of a block is contiguous."""
    c, h = w.shape
    padded = np.zeros((-(-c // WIDTH) * WIDTH, h), w.dtype)
    padded[:c] = w
    return np.ascontiguousarray(padded.reshape(-1, WIDTH, h).transpose(0, 2, 1))


def summarize_rows(logits: np.ndarray, log_best: np.ndarray, output: GeneratorRows) -> None:
    """Compute the running sums of softmax(logits), logits (n, C), log Z, and the class of the most likely id."""
    n, c = logits.shape
    inputs = array_arg("logits", logits, np.float32, (n, c)), array_arg("log_best", log_best, np.float32, (c,))
    outputs = [array_arg(name, getattr(output, name), dtype, shape) for name, dtype, shape in (
        ("ends", np.uint32, (n, n_ends(c))), ("log_z", np.float32, (n,)), ("best", np.int64, (n,)),
        ("log_top", np.float32, (n,)))]
    if (lib := core()) is None:
        reference.summarize_rows(logits, log_best, output)
    else:
        call("generator", lib.embtrain_generator_rows, n, c, *inputs, *outputs)


def soften(logits: np.ndarray, log_z: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """g <- e^(l - log Z) in rows of logits (n, C), log_z (n,). Returns Σ_c g_c η_c, (n,) float32."""
    n, c = len(logits), len(eta)
    arrays = [array_arg(name, x, np.float32, shape) for name, x, shape in (
        ("logits", logits, (n, c)), ("log_z", log_z, (n,)), ("eta", eta, (c,)))]
    if (lib := core()) is None:
        return reference.soften(logits, log_z, eta)
    mean_eta = np.empty(n, np.float32)
    call("generator", lib.embtrain_generator_soften, n, c, *arrays, pointer(mean_eta))
    return mean_eta


def slope(g: np.ndarray, a: np.ndarray, h: np.ndarray, entropy: np.ndarray, eta: np.ndarray) -> None:
    """g_c <- g_c (a + h (log g_c - η_c + H)) in rows of g (n, C) with h > 0; a, h, entropy (n,), η (C,)."""
    n, c = len(g), len(eta)
    arrays = [array_arg(name, x, np.float32, shape) for name, x, shape in (
        ("g", g, (n, c)), ("a", a, (n,)), ("h", h, (n,)), ("entropy", entropy, (n,)), ("eta", eta, (c,)))]
    if (lib := core()) is None:
        reference.slope(g, a, h, entropy, eta)
    else:
        call("generator", lib.embtrain_generator_slope, n, c, *arrays)


def draw(t: GeneratorTables, row: np.ndarray, k: int, by_noise: int | None, probe: bool, seed: int) -> GeneratorDraws:
    """Draw k negatives per row (G,). With `probe`, the row's greedy id is appended.

    by_noise: how many leading negatives come from the noise; None: each with probability λ.
    """
    t.check()
    row_arg = array_arg("row", row, np.int64, (len(row),))
    if (lib := core()) is None:
        t.check_rows(row)
        return GeneratorDraws(*reference.draw(t, row, k, by_noise, probe, seed))
    shape = len(row), k + probe
    draws = GeneratorDraws(np.empty(shape, np.int64), np.empty(shape, np.int8), np.empty(shape, np.float32),
                           np.empty(shape, np.float32))
    order, count = np.empty(len(row), np.int64), np.zeros(len(t.z) + 1, np.int64)
    call("generator", lib.embtrain_generator_draw, byref(t.task), len(row), row_arg, pointer(order), pointer(count), k,
         -1 if by_noise is None else by_noise, ctypes.c_int(probe), seed, *map(pointer, draws))
    return draws


def density(t: GeneratorTables, ids: np.ndarray, row: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log g and log q of ids (N,), those from start[i] to start[i + 1] in row[i]: (N,) float32 each."""
    t.check()
    row_arg = array_arg("row", row, np.int64, (len(row),))
    ids_arg = array_arg("ids", ids, np.int64, (len(ids),))
    start_arg = array_arg("start", start, np.int64, (len(row) + 1,))
    if start[0] != 0 or start[-1] != len(ids) or (start[1:] < start[:-1]).any():
        raise ValueError(f"start: offsets must rise from 0 to {len(ids)}")
    if (lib := core()) is None:
        t.check_rows(row)
        t.check_ids(ids)
        return reference.density(t, ids, row, start)
    log_g, log_q = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)
    call("generator", lib.embtrain_generator_density, byref(t.task), len(row), start_arg, ids_arg, row_arg,
         pointer(log_g), pointer(log_q))
    return log_g, log_q
