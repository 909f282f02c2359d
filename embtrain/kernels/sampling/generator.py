"""Draws from the adversarial mixture and their densities, summaries of the rows of g, and half of its gradient.

    q(y|x) = λ p(y) + (1 - λ) g(y|x)      log g(y|x) = w_c · z_x - log Z_x + log π(y|c),  c = class of y

x is a row of the cached tables z, log_z, ends, greedy, log_best. A draw recomputes only the block of WIDTH classes of g
that it falls into. Column j of draw i uses numbers 3(iK + j) + 0, 1, 2 of the stream `seed`: the component, the alias
table or the point in the row, the point in the class. The matrix products are in
embtrain/negatives/adversarial/generator_cache.py.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from itertools import pairwise

import numpy as np

from embtrain.kernels.arguments.generator import (
    WIDTH,
    WORD,
    EntropyObjective,
    GeneratorDraws,
    GeneratorRows,
    GeneratorTables,
    n_ends,
)
from embtrain.kernels.core.binding import (
    aligned_copy,
    array_arg,
    call,
    check_array,
    parallel_for,
    parallel_map,
    pointer,
)
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import generator as reference

__all__ = ["WIDTH", "WORD", "EntropyObjective", "GeneratorDraws", "GeneratorRows", "GeneratorTables", "density", "draw",
           "gradient", "n_ends", "pack_words", "summarize_rows", "to_panels"]

GRAIN = 256  # rows that pay for a thread


def pack_words(klass: np.ndarray, log_within: np.ndarray, p: np.ndarray) -> np.ndarray:
    packed = np.zeros(len(klass), WORD)
    packed["klass"], packed["log_within"], packed["p"] = klass, log_within, p
    return packed


def to_panels(w: np.ndarray) -> np.ndarray:
    """Rearrange w (C, H) into blocks (N, H, WIDTH): the data that a draw reads of a block is contiguous."""
    c, h = w.shape
    padded = np.zeros((-(-c // WIDTH) * WIDTH, h), w.dtype)
    padded[:c] = w
    return aligned_copy(padded.reshape(-1, WIDTH, h).transpose(0, 2, 1))


def summarize_rows(z: np.ndarray, panel: np.ndarray, log_best: np.ndarray, output: GeneratorRows, threads: int = 1
                   ) -> None:
    """Compute the running sums of softmax(l), l = z w^T, log Z, and the class of the most likely id of rows z (n, H).

    panel: w in blocks (N, H, WIDTH). log_best (C,).
    """
    (n, hidden), c = z.shape, len(log_best)
    z_arg, panel_arg = array_arg("z", z, np.float32, (n, hidden)), array_arg("panel", panel, np.float32,
                                                                             (-(-c // WIDTH), hidden, WIDTH))
    best_arg = array_arg("log_best", log_best, np.float32, (c,))
    for name, dtype, shape in (("ends", np.uint32, (n, n_ends(c))), ("log_z", np.float32, (n,)),
                               ("best", np.int64, (n,)), ("log_top", np.float32, (n,))):
        check_array(name, getattr(output, name), dtype, shape)
    if (lib := core()) is None:
        reference.summarize_rows(z, panel, log_best, output)
        return

    def part(begin: int, end: int) -> None:
        call("generator", lib.embtrain_generator_rows, begin, end, c, hidden, z_arg, panel_arg, best_arg,
             *map(pointer, output))
    parallel_for(part, n, min(threads, n // GRAIN))


def gradient(t: GeneratorTables, objective: EntropyObjective, into_w: np.ndarray, into_z: np.ndarray,
             threads: int = 1) -> np.ndarray:
    """Add the dense half of the gradient of each row to into_w (C, H) and into_z (R, H). Returns H of each row, (R,).

    With s_c = g_c (A + h (log g_c - η_c + H)), H = log Z - z·Σ g_c w_c + Σ g_c η_c, and h = β share where H is below
    the limit, else 0: into_z += Σ_c s_c w_c and into_w_c += Σ_x s_c z.
    """
    t.check()
    (n, hidden), c = t.z.shape, len(t.w)
    inputs = [array_arg(name, getattr(objective, name), np.float32, shape) for name, shape in (
        ("total", (n,)), ("share", (n,)), ("eta", (c,)))]
    check_array("into_w", into_w, np.float32, (c, hidden))
    into_z_arg = array_arg("into_z", into_z, np.float32, (n, hidden))
    if (lib := core()) is None:
        return reference.gradient(t, objective, into_w, into_z)
    entropy, parts = np.empty(n, np.float32), max(1, min(threads, n // GRAIN))

    def part(begin: int, end: int) -> np.ndarray:
        into = into_w if parts == 1 else np.zeros_like(into_w)
        call("generator", lib.embtrain_generator_gradient, byref(t.task), begin, end, *inputs, objective.beta,
             objective.limit, pointer(into), into_z_arg, pointer(entropy))
        return into
    for into in parallel_map(part, pairwise(n * i // parts for i in range(parts + 1))):
        if into is not into_w:
            into_w += into
    return entropy


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
    call("generator", lib.embtrain_generator_draw, byref(t.task), len(row), row_arg, k,
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
