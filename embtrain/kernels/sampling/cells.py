"""Draws a cell by its mass, then a candidate in it by e^o, from the current vectors or from an int8 copy.

    q(i|h) = P(c) r(i|c, h),   P(c) = M_c / Σ M,   r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j}
    o = h·c_i, or h·c_i / ‖c_i‖ if candidates are unit vectors
    without a target t in the cell c_t:  M_{c_t} (1 - r_t) replaces M_{c_t}, and r is that of the others

Masses are float32 of at least e^-87 times the largest, summed in float64. The reported q uses the masses of the draw.
Request i uses number i of the streams of the seeds, so ids do not depend on threads, chunks or other requests. Calls
with many queries for each cell sum scores in another order, which changes the last bits of log q.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

import numpy as np

from embtrain.kernels.arguments.cells import MAX_DIM, CellDrawRequest, CellDrawTask, CellLayout, CellMembers
from embtrain.kernels.arguments.draws import A, DrawOutput
from embtrain.kernels.core.binding import (
    address,
    call,
    check_array,
    check_range,
    out_of_range,
    parallel_for,
    pointer,
    raise_for_status,
)
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import cells as reference

__all__ = ["MAX_DIM", "CellDrawRequest", "CellLayout", "CellMembers", "draw", "draw_into", "inside"]

GRAIN = 1024     # requests per thread that pay for the thread
QUERIES_FOR_COLUMNS = 16         # queries of a cell that pay for storing its members by columns
MAX_COLUMN_VALUES = 1 << 20      # of the largest cell: columns that exceed the cache gain nothing


def draw(layout: CellLayout, request: CellDrawRequest[np.ndarray], k: int, exclude: bool, seeds: tuple[int, int],
         first: int = 0,
         threads: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw k candidates per draw: ids (G, k) int64, their log q (G, k) and the targets' log q (B,), float32.

    exclude: draw i excludes target i. first: the number of the first draw.
    """
    _check(layout, request, k, exclude, seeds, first)
    if core() is not None:
        draw_into(output := DrawOutput.empty(request.draws, k, len(request.target)), layout, request, exclude, seeds,
                  first, threads)
        return output.arrays()
    request.check_ids("cells", len(layout.cell_of))
    return reference.draw(layout, request.with_query_ids(), k, exclude, seeds, first)


def draw_into(output: DrawOutput, layout: CellLayout, request: CellDrawRequest[Any], exclude: bool,
              seeds: tuple[int, int], first: int = 0,
              threads: int = 1) -> None:
    """The same into existing buffers; requires the core."""
    n, k, _ = output.shape
    _check(layout, request, k, exclude, seeds, first)
    layout_task, members_task = layout.task, layout.members.task
    if (library := layout.members.compiled or core()) is None:
        raise ValueError("cells: no compiled core is available; use draw")

    # For the requests of all threads together, so that the number of threads changes no bits.
    queries_per_cell = min(len(request.h), n * k // members_task.cells)
    by_columns = (queries_per_cell >= QUERIES_FOR_COLUMNS
                  and members_task.largest * members_task.dim <= MAX_COLUMN_VALUES)

    def part(piece: CellDrawRequest, begin: int, piece_output: DrawOutput) -> None:
        task = CellDrawTask.from_buffer_copy(layout_task)
        if piece.log_mass is not None:
            task.log_mass, task.mean = address(piece.log_mass), None
        piece.fill(task, k, exclude, seeds, first + begin)
        task.by_columns = by_columns
        raise_for_status("cells", library.embtrain_cells_draw(  # `call` would take part of a draw of microseconds
            byref(members_task), byref(task), *piece_output.pointers))

    output.run("cells", request, len(request.target), part, min(threads, n * k // GRAIN))


def _check(layout: CellLayout, request: CellDrawRequest[A], k: int, exclude: bool, seeds: tuple[int, int],
           first: int) -> None:
    assert layout.task and layout.members.task                     # created and validated at the first draw
    request.check("cells", layout.members.table.shape[1], k, exclude, seeds, first)
    if request.log_mass is not None:
        check_array("cells: log_mass", request.log_mass, np.float32, (len(request.h), len(layout.members.start) - 1))
    elif layout.panels is None:
        raise ValueError("cells: pass log_mass, or a layout with mean and log_size")


def inside(members: CellMembers, h: np.ndarray, query_id: np.ndarray, cell: np.ndarray, wanted: np.ndarray,
           without: np.ndarray | None, seed: int = 0, first: int = 0, threads: int = 1
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in the cells of N requests, their log r, and 1 - r: (N,) int64, (N,) float64, (N,) float64.

    h (Q, d) float32; query_id, cell and wanted (N,) int64. If wanted is -1 a place is drawn, else it is used. without
    (N,) int64: a place to exclude, or None. first: the number of the first request.
    """
    n, members_task = len(query_id), members.task_for(h)
    for name, x in (("query_id", query_id), ("cell", cell), ("wanted", wanted), ("without", without)):
        if x is not None:
            check_array(f"cells: {name}", x, np.int64, (n,))
    if not 0 <= seed < 2 ** 64 or first < 0:
        raise ValueError(f"cells: draws from seed {seed}, starting at number {first}")
    if (library := core()) is None:
        check_range("cells", query_id, 0, len(h))
        check_range("cells", cell, 0, len(members.start) - 1)
        check_range("cells", without, 0, len(members.order))
        if not ((wanted == -1) | (members.start[cell] <= wanted) & (wanted < members.start[cell + 1])).all():
            raise out_of_range("cells")
        return reference.inside(members, h, query_id, cell, wanted, without, seed, first)
    place, log_r, rest = np.empty(n, np.int64), np.empty(n), np.empty(n)

    def part(begin: int, end: int) -> None:
        def cut(*arrays: np.ndarray | None) -> list[ctypes.c_void_p]:
            return [pointer(None if x is None else x[begin:end]) for x in arrays]
        call("cells", library.embtrain_cells_inside, byref(members_task), *cut(query_id, cell, wanted, without),
             end - begin, seed, first + begin, *cut(place, log_r, rest))

    parallel_for(part, n, min(threads, n // GRAIN))
    return place, log_r, rest
