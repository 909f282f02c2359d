"""Draws a cell by its mass, then a candidate in it by e^o, from the current vectors or from an int8 copy.

    q(i|h) = P(c) r(i|c, h),   P(c) = M_c / Σ M,   r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j}
    o = h·c_i, or h·c_i / ‖c_i‖ if candidates are unit vectors
    without a target t in the cell c_t:  M_{c_t} (1 - r_t) replaces M_{c_t}, and r is that of the others

Masses are float32 of at least e^-87 times the largest, summed in float64. The reported q uses the masses of the draw.
Request i uses number i of the streams of the seeds, so ids do not depend on threads, chunks or other requests.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from embtrain.kernels.core.library import address, check_array, check_range, core, out_of_range, raise_for_status
from embtrain.kernels.core.parallel import parallel_for
from embtrain.kernels.reference.sampling import cells as reference
from embtrain.kernels.sampling import draw_batch
from embtrain.kernels.sampling.draw_batch import A, DrawOutput

MAX_DIM = 1 << 16   # values of a quantized row: MAX_PRODUCTS of source/sampling/int8.h
GRAIN = 1024     # requests per thread that pay for the thread
PANEL = 16       # as in source/sampling/cell_masses.h


def _fields(pointers: str, numbers: str) -> list[tuple[str, type]]:
    return [*((name, ctypes.c_void_p) for name in pointers.split()),
            *((name, ctypes.c_int64) for name in numbers.split())]


class _CellTask(ctypes.Structure):
    """struct CellTask of source/sampling/cell_members.h."""

    _fields_ = _fields("table order start copy scale h", "dim pitch unit cells largest n_queries")


class _CellDrawTask(ctypes.Structure):
    """struct CellDrawTask of source/sampling/cells.cpp."""

    _fields_ = (*_fields("log_mass mean log_size cell_of place_of h draw_query row_query target",
                         "n_queries draws k rows exclude"),
                ("seed", ctypes.c_uint64), ("seed_inside", ctypes.c_uint64), ("first", ctypes.c_int64),
                ("tau", ctypes.c_double))


@dataclass(frozen=True, eq=False)
class CellMembers:
    """The members of each cell: cell c has order[start[c]:start[c + 1]]. A place is an index of order.

    The table is read in place, so later writes by its owner take effect. With a copy the table is not read.
    """

    table: np.ndarray   # (V, d) float32, any distance between rows
    unit: bool          # score c / ‖c‖ instead of c
    order: np.ndarray   # (V,) int64, a permutation of 0..V-1 (not checked)
    start: np.ndarray   # (C + 1,) int64, rising from 0 to V by at most `largest` (not checked)
    largest: int
    library: ctypes.CDLL | None = None  # the core; None: looked up at each call
    # The int8 copy, (V, d) uint8 and (V,) float32, in the same order and normalized if `unit`: c = s (b − 128). h is
    # then quantized to s_h y with s_h = max |h| / 127.
    copy: np.ndarray | None = None
    scale: np.ndarray | None = None

    @cached_property
    def task(self) -> _CellTask:
        """The C++ struct without queries, validated once."""
        v, cells, d = len(self.order), len(self.start) - 1, self.table.shape[-1]
        if self.table.dtype != np.float32 or self.table.shape != (v, d) or self.table.strides[1] != 4 \
                or self.table.strides[0] % 4 or self.table.strides[0] < 4 * d:
            raise TypeError(f"cells: table must have {v} rows of float32, got {self.table.dtype} {self.table.shape}")
        check_array("cells: order", self.order, np.int64, (v,))
        check_array("cells: start", self.start, np.int64, (cells + 1,))
        if (self.copy is None) != (self.scale is None):
            raise ValueError("cells: a copy needs scales, and scales need a copy")
        if self.copy is not None and self.scale is not None:
            check_array("cells: copy", self.copy, np.uint8, (v, d))
            check_array("cells: scale", self.scale, np.float32, (v,))
            if d > MAX_DIM:
                raise ValueError(f"cells: a copy of {d} values a row; the maximum is {MAX_DIM}")
        if cells < 1 or self.largest < 1:
            raise ValueError(f"cells: {cells} cells of at most {self.largest}")
        return _CellTask(self.table.ctypes.data, *map(address, (self.order, self.start, self.copy, self.scale)), None,
                         d,
                        self.table.strides[0] // 4, self.unit, cells, self.largest, 0)

    def task_for(self, h: np.ndarray) -> _CellTask:
        """The C++ struct with queries h (Q, d)."""
        task = _CellTask.from_buffer_copy(self.task)
        check_array("cells: h", h, np.float32, (len(h), task.dim))
        task.h, task.n_queries = address(h), len(h)
        return task


@dataclass(frozen=True, eq=False)
class CellLayout:
    """The cell and place of each candidate, and optionally cell means for log M = log_size + h·mean."""

    members: CellMembers
    cell_of: np.ndarray     # (V,) int64        the cell of each candidate (not checked)
    place_of: np.ndarray    # (V,) int64        its place (not checked)
    mean: np.ndarray | None = None      # (C, d) float32
    log_size: np.ndarray | None = None  # (C,) float32

    @cached_property
    def panels(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The means in panels of PANEL, (C / PANEL, d, PANEL), and log_size padded to match."""
        if self.mean is None or self.log_size is None:
            return None
        cells, dim = len(self.members.start) - 1, self.members.table.shape[1]
        check_array("cells: mean", self.mean, np.float32, (cells, dim))
        check_array("cells: log_size", self.log_size, np.float32, (cells,))
        n_padding = -cells % PANEL
        rows = np.pad(self.mean, ((0, n_padding), (0, 0))).reshape(-1, PANEL, dim)
        return np.ascontiguousarray(rows.transpose(0, 2, 1)), np.pad(self.log_size, (0, n_padding))

    @cached_property
    def task(self) -> _CellDrawTask:
        """The C++ struct without queries, validated once."""
        for name, x in (("cell_of", self.cell_of), ("place_of", self.place_of)):
            check_array(f"cells: {name}", x, np.int64, (len(self.members.order),))
        mean, log_size = self.panels or (None, None)
        return _CellDrawTask(None, *map(address, (mean, log_size, self.cell_of, self.place_of)))


@dataclass(eq=False)
class CellDrawRequest(draw_batch.DrawRequest[A]):
    log_mass: A | None = None    # (Q, C) float32  log M; None: computed from the layout's means


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
    if (library := layout.members.library or core()) is None:
        raise ValueError("cells: no compiled core is available; use draw")

    def part(piece: CellDrawRequest, begin: int, piece_output: DrawOutput) -> None:
        task = _CellDrawTask.from_buffer_copy(layout_task)
        if piece.log_mass is not None:
            task.log_mass, task.mean, task.log_size = address(piece.log_mass), None, None
        piece.fill(task, k, exclude, seeds, first + begin)
        raise_for_status("cells", library.embtrain_cells_draw(byref(members_task), byref(task), *piece_output.pointers))

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
        def pointer(x: np.ndarray | None) -> c_void_p:
            return c_void_p(None if x is None else address(x[begin:end]))
        raise_for_status("cells", library.embtrain_cells_inside(
            byref(members_task), *map(pointer, (query_id, cell, wanted, without)), ctypes.c_int64(end - begin),
            ctypes.c_uint64(seed), ctypes.c_int64(first + begin), *map(pointer, (place, log_r, rest))))

    parallel_for(part, n, min(threads, n // GRAIN))
    return place, log_r, rest
