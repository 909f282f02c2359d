"""Draws candidates through a tree of sums, from queries to ids and log q in one call.

    q(i|h) = q(block|h) r(i|block, h),     q(block) as in kernels/sampling/tree_walk.py, r ∝ e^o as in
    kernels/sampling/cells.py
    φ(h), ε(h) given, or of x = s h:    φ(x) = D^{-1/2} [cos w_j·x …, sin w_j·x …],   ε = floor e^{-(‖x‖² + L)/2}

The target's w is π_t φ(h)·φ(c_t), where φ(c) is e^{(‖y‖² - L)/2} times φ of y = s c, from its current vector. If a
block is one candidate, w comes from the stored sums. Request i of all draws uses number i of the streams of the seeds.
"""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np

from embtrain.kernels.arguments.draws import A, DrawOutput
from embtrain.kernels.arguments.trees import TreeBlocks, TreeDrawRequest, TreeDrawTask
from embtrain.kernels.core.binding import address, check_array, raise_for_status
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import tree_draw as reference

__all__ = ["TreeBlocks", "TreeDrawRequest", "draw", "draw_into"]

GRAIN = 4096     # requests per thread that pay for the thread


def draw(blocks: TreeBlocks, request: TreeDrawRequest[np.ndarray], k: int, exclude: bool, seeds: tuple[int, int],
         touched: np.ndarray | None = None, first: int = 0, threads: int = 1
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw k candidates per draw: ids (G, k) int64, their log q (G, k) and the targets' log q (B,), float32.

    exclude: draw i excludes target i, and targets have no log q: (0,). touched (V,) bool is set for the places of drawn
    candidates and of targets. first: the number of the first draw.
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
    blocks_task = blocks.task
    if (library := blocks.compiled or core()) is None:
        raise ValueError("tree_draw: no compiled core is available; use draw")

    def draw_subset(piece: TreeDrawRequest, begin: int, piece_output: DrawOutput) -> None:
        task = TreeDrawTask.from_buffer_copy(blocks_task)
        piece.fill(task, k, exclude, seeds, first + begin)
        task.phi, task.least, task.mass, task.touched = map(address, (piece.phi, piece.least, piece.mass, touched))
        task.dim, task.stretch, task.floor, task.largest = piece.h.shape[1], piece.stretch, piece.floor, piece.largest
        raise_for_status("tree_draw", library.embtrain_tree_draw(  # `call` would take part of a draw of microseconds
            byref(blocks.levels.task), None if blocks.members is None else byref(blocks.members.task), byref(task),
            *piece_output.pointers))

    output.run("tree_draw", request, 0 if exclude else len(request.target), draw_subset, min(threads, n * k // GRAIN))


def _check(blocks: TreeBlocks, request: TreeDrawRequest[A], k: int, exclude: bool, seeds: tuple[int, int],
           touched: A | None,
           first: int) -> None:
    assert blocks.task                                        # created and validated at the first draw
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
        check_array("tree_draw: touched", touched, np.bool_, (blocks.levels.candidates,))
