"""Draws candidates through a tree of sums, from queries to ids and log q in one call.

    q(i|h) = q(block|h) r(i|block, h),     q(block) as in kernels/sampling/tree_walk.py, r ∝ e^o as in
    kernels/sampling/cells.py
    φ(h), ε(h) given, or of x = s h:    φ(x) = D^{-1/2} [cos w_j·x …, sin w_j·x …],   ε = floor e^{-(‖x‖² + L)/2}

The target's w is π_t φ(h)·φ(c_t), where φ(c) is e^{(‖y‖² - L)/2} times φ of y = s c, from its current vector. If a
block is one candidate, w comes from the stored sums. Request i of all draws uses number i of the streams of the seeds.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from embtrain.kernels.core.library import address, check_array, core, raise_for_status
from embtrain.kernels.reference.sampling import tree_draw as reference
from embtrain.kernels.sampling import cells, draw_batch, tree_walk
from embtrain.kernels.sampling.draw_batch import A, DrawOutput

GRAIN = 4096     # requests per thread that pay for the thread


class _TreeDrawTask(ctypes.Structure):
    """struct TreeDrawTask of source/sampling/trees/tree_draw.cpp."""

    _fields_ = (*((name, ctypes.c_void_p) for name in ("w", "order", "place_of", "prior", "h", "phi", "least", "mass",
                                                       "draw_query", "row_query", "target", "touched")),
                *((name, ctypes.c_int64) for name in ("frequencies", "dim", "n_queries", "draws", "k", "rows",
                                                      "exclude")),
                ("seed", ctypes.c_uint64), ("seed_inside", ctypes.c_uint64), ("first", ctypes.c_int64),
                *((name, ctypes.c_double) for name in ("tau", "stretch", "floor", "largest")))


@dataclass(frozen=True, eq=False)
class TreeBlocks:
    """The state that persists between draws. All arrays are read in place, so later writes by their owner take effect.
    """

    levels: tree_walk.TreeLevels
    members: cells.CellMembers | None  # members of the blocks; None: a block is one candidate
    order: np.ndarray              # (V,) int64    the candidate of each place (not checked)
    place_of: np.ndarray           # (V,) int64    the place of each candidate (not checked)
    prior: np.ndarray              # (V,) float64  π by place
    w: np.ndarray | None = None    # (D, d) float32  frequencies of Fourier features; None: the request has φ and ε
    library: ctypes.CDLL | None = None  # the core; None: looked up at each call

    @cached_property
    def dim(self) -> int:
        """Dimension of queries; 0: any."""
        return self.w.shape[1] if self.w is not None else self.members.table.shape[1] if self.members is not None else 0

    @cached_property
    def _task(self) -> _TreeDrawTask:
        """The C++ struct without a request, validated once."""
        v = self.levels.candidates
        if (self.members is None) != (self.levels.leaf == 1):
            members = "with" if self.members is not None else "without"
            raise ValueError(f"tree_draw: blocks of {self.levels.leaf} candidates {members} members")
        if self.members is not None and len(self.members.order) != v:
            raise ValueError(f"tree_draw: {len(self.members.order)} members of {v} candidates")
        for name, x, dtype in (("order", self.order, np.int64), ("place_of", self.place_of, np.int64),
                               ("prior", self.prior, np.float64)):
            check_array(f"tree_draw: {name}", x, dtype, (v,))
        task = _TreeDrawTask(None, *(x.ctypes.data for x in (self.order, self.place_of, self.prior)))
        if self.w is not None:
            check_array("tree_draw: w", self.w, np.float32, (self.levels.width // 2, self.w.shape[-1]))
            task.w, (task.frequencies, task.dim) = self.w.ctypes.data, self.w.shape
        return task


@dataclass(eq=False)
class TreeDrawRequest(draw_batch.DrawRequest[A]):
    stretch: float = 1.0               # s / τ: x = s h
    floor: float = 0.1
    largest: float = 0.0               # L
    phi: A | None = None               # (Q, W) float32
    least: A | None = None             # (Q,) float64
    mass: A | None = None              # (G,) float64  w, if φ is given and blocks have several candidates

    def subset(self, begin: int, end: int) -> Self:
        blocks: Any = super().subset(begin, end)
        return blocks if blocks.mass is None else replace(blocks, mass=blocks.mass[begin:end])


def draw(blocks: TreeBlocks, request: TreeDrawRequest[np.ndarray], k: int, exclude: bool, seeds: tuple[int, int],
         touched: np.ndarray | None = None, first: int = 0, threads: int = 1
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw k candidates per draw: ids (G, k) int64, their log q (G, k) and the targets' log q (B,), float32.

    exclude: draw i excludes target i, and targets have no log q: (0,). touched (blocks,) bool is set for the blocks of
    drawn candidates and of targets. first: the number of the first draw.
    """
    _check(blocks, request, k, exclude, seeds, touched, first)
    if core() is not None:
        output = DrawOutput.empty(request.draws, k, 0 if exclude else len(request.target))
        draw_into(output, blocks, request, exclude, seeds, touched, first, threads)
        return output.arrays()
    request.check_ids("tree_draw", blocks.levels.candidates)
    return reference.draw(blocks, request.with_query_ids(), k, exclude, seeds, touched, first)


def draw_into(output: DrawOutput, blocks: TreeBlocks, request: TreeDrawRequest[Any], exclude: bool,
              seeds: tuple[int, int], touched: Any = None, first: int = 0, threads: int = 1) -> None:
    """The same into existing buffers; requires the core."""
    n, k, _ = output.shape
    _check(blocks, request, k, exclude, seeds, touched, first)
    blocks_task = blocks._task
    if (library := blocks.library or core()) is None:
        raise ValueError("tree_draw: no compiled core is available; use draw")

    def draw_subset(piece: TreeDrawRequest, begin: int, piece_output: DrawOutput) -> None:
        task = _TreeDrawTask.from_buffer_copy(blocks_task)
        piece.fill(task, k, exclude, seeds, first + begin)
        task.phi, task.least, task.mass, task.touched = map(address, (piece.phi, piece.least, piece.mass, touched))
        task.dim, task.stretch, task.floor, task.largest = piece.h.shape[1], piece.stretch, piece.floor, piece.largest
        raise_for_status("tree_draw", library.embtrain_tree_draw(
            byref(blocks.levels.task), None if blocks.members is None else byref(blocks.members.task), byref(task),
            *piece_output.pointers))

    output.run("tree_draw", request, 0 if exclude else len(request.target), draw_subset, min(threads, n * k // GRAIN))


def _check(blocks: TreeBlocks, request: TreeDrawRequest[A], k: int, exclude: bool, seeds: tuple[int, int],
           touched: A | None,
           first: int) -> None:
    assert blocks._task                                        # created and validated at the first draw
    request.check("tree_draw", blocks.dim or request.h.shape[-1], k, exclude, seeds, first)
    if blocks.w is None:
        if request.phi is None or request.least is None or (exclude and blocks.members is not None
                                                            and request.mass is None):
            raise ValueError("tree_draw: without frequencies the request needs phi, least and the targets' mass")
        check_array("tree_draw: phi", request.phi, np.float32, (len(request.h), blocks.levels.width))
        check_array("tree_draw: least", request.least, np.float64, (len(request.h),))
        if request.mass is not None:
            check_array("tree_draw: mass", request.mass, np.float64, (request.draws,))
    if touched is not None:
        check_array("tree_draw: touched", touched, np.bool_, (-(-blocks.levels.candidates // blocks.levels.leaf),))
