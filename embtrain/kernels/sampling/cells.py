"""Draws of a cell by its mass, and of a candidate inside it by e^o, with the vectors as they are now or as copied.

    q(i|h) = P(c) r(i|c, h),   P(c) = M_c / Σ M,   r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j}
    o = h·c_i, or h·c_i / ‖c_i‖ where candidates are taken as unit vectors
    without a target t in the cell c_t:  M_{c_t} (1 - r_t) in place of M_{c_t}, and r of the others

Masses are float32 of at least e^-87 times the largest, summed in float64; those that draw are those that are reported.
Request i takes number i of the streams of the seeds: ids do not show threads, chunks or company.
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

MAX_DIM = 1 << 16   # numbers of a copied row: ADDED of source/bytes.h
GRAIN = 1024     # requests that are worth a thread
PANEL = 16       # of source/means.h


def _fields(pointers: str, numbers: str) -> list[tuple[str, type]]:
    return [*((name, ctypes.c_void_p) for name in pointers.split()),
            *((name, ctypes.c_int64) for name in numbers.split())]


class _CellTask(ctypes.Structure):
    """struct MembersTask of source/members.h."""

    _fields_ = _fields("table order start copy scale h", "dim pitch unit cells largest n_queries")


class _CellDrawTask(ctypes.Structure):
    """struct DrawTask."""

    _fields_ = (*_fields("log_mass mean log_size cell_of place_of h draw_query row_query target",
                         "n_queries draws k rows exclude"),
                ("seed", ctypes.c_uint64), ("seed_inside", ctypes.c_uint64), ("first", ctypes.c_int64),
                ("tau", ctypes.c_double))


@dataclass(frozen=True, eq=False)
class CellMembers:
    """Who is in which cell: cell c has order[start[c]:start[c + 1]]. A place is an index of order.

    The table is read where it lies, so that what its owner writes into it is seen; not at all where there is a copy.
    """

    table: np.ndarray   # (V, d) float32, rows any distance apart
    unit: bool          # candidates are taken as c / ‖c‖
    order: np.ndarray   # (V,) int64, each of 0..V-1: its maker's word
    start: np.ndarray   # (C + 1,) int64, rising from 0 to V, by `largest` at most: its maker's word
    largest: int
    library: ctypes.CDLL | None = None  # the core; None: asked for at each call
    # (V, d) uint8 and (V,) float32  the candidates in that order, as unit vectors where they are taken so:
    # c = s (b − 128). h is then rounded alike, s_h y with s_h = max |h| / 127.
    copy: np.ndarray | None = None
    scale: np.ndarray | None = None

    @cached_property
    def task(self) -> _CellTask:
        """Checked once; without questions."""
        v, cells, d = len(self.order), len(self.start) - 1, self.table.shape[-1]
        if self.table.dtype != np.float32 or self.table.shape != (v, d) or self.table.strides[1] != 4 \
                or self.table.strides[0] % 4 or self.table.strides[0] < 4 * d:
            raise TypeError(f"cells: table must have {v} rows of float32, got {self.table.dtype} {self.table.shape}")
        check_array("cells: order", self.order, np.int64, (v,))
        check_array("cells: start", self.start, np.int64, (cells + 1,))
        if (self.copy is None) != (self.scale is None):
            raise ValueError("cells: a copy has scales")
        if self.copy is not None and self.scale is not None:
            check_array("cells: copy", self.copy, np.uint8, (v, d))
            check_array("cells: scale", self.scale, np.float32, (v,))
            if d > MAX_DIM:
                raise ValueError(f"cells: a copy of {d} numbers, of at most {MAX_DIM}")
        if cells < 1 or self.largest < 1:
            raise ValueError(f"cells: {cells} cells of at most {self.largest}")
        return _CellTask(self.table.ctypes.data, *map(address, (self.order, self.start, self.copy, self.scale)), None,
                         d,
                        self.table.strides[0] // 4, self.unit, cells, self.largest, 0)

    def task_for(self, h: np.ndarray) -> _CellTask:
        """With questions h (Q, d)."""
        task = _CellTask.from_buffer_copy(self.task)
        check_array("cells: h", h, np.float32, (len(h), task.dim))
        task.h, task.n_queries = address(h), len(h)
        return task


@dataclass(frozen=True, eq=False)
class CellLayout:
    """Where candidates are; and of the cells log M = log_size + h·mean, where that is all there is to it."""

    members: CellMembers
    cell_of: np.ndarray     # (V,) int64        the cell of each candidate: its maker's word
    place_of: np.ndarray    # (V,) int64        its place: its maker's word
    mean: np.ndarray | None = None      # (C, d) float32
    log_size: np.ndarray | None = None  # (C,) float32

    @cached_property
    def panels(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The means as the core multiplies them, PANEL side by side, (C / PANEL, d, PANEL); log_size as long."""
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
        """Checked once; without questions."""
        for name, x in (("cell_of", self.cell_of), ("place_of", self.place_of)):
            check_array(f"cells: {name}", x, np.int64, (len(self.members.order),))
        mean, log_size = self.panels or (None, None)
        return _CellDrawTask(None, *map(address, (mean, log_size, self.cell_of, self.place_of)))


@dataclass(eq=False)
class CellDrawRequest(draw_batch.DrawRequest[A]):
    log_mass: A | None = None    # (Q, C) float32  log M; None: by the layout's means


def draw(layout: CellLayout, request: CellDrawRequest[np.ndarray], k: int, exclude: bool, seeds: tuple[int, int],
         first: int = 0,
         threads: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """k candidates for each draw, log q of them, and log q of the targets: (G, k) int64, (G, k) and (B,) float32.

    exclude: draw i is of the candidates other than target i. first: the number of the first draw.
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
    """The same, written there by the core."""
    n, k, _ = output.shape
    _check(layout, request, k, exclude, seeds, first)
    layout_task, members_task = layout.task, layout.members.task
    if (library := layout.members.library or core()) is None:
        raise ValueError("cells: there is no core that could draw")

    def part(piece: CellDrawRequest, begin: int, piece_output: DrawOutput) -> None:
        task = _CellDrawTask.from_buffer_copy(layout_task)
        if piece.log_mass is not None:
            task.log_mass, task.mean, task.log_size = address(piece.log_mass), None, None
        piece.fill(task, k, exclude, seeds, first + begin)
        raise_for_status("cells", library.embtrain_cells_draw(byref(members_task), byref(task), *piece_output.pointers))

    output.run("cells", request, len(request.target), part, min(threads, n * k // GRAIN))


def _check(layout: CellLayout, request: CellDrawRequest[A], k: int, exclude: bool, seeds: tuple[int, int],
           first: int) -> None:
    assert layout.task and layout.members.task                     # made and checked at the first draw
    request.check("cells", layout.members.table.shape[1], k, exclude, seeds, first)
    if request.log_mass is not None:
        check_array("cells: log_mass", request.log_mass, np.float32, (len(request.h), len(layout.members.start) - 1))
    elif layout.panels is None:
        raise ValueError("cells: log_mass, or mean and log_size are wanted")


def inside(members: CellMembers, h: np.ndarray, query_id: np.ndarray, cell: np.ndarray, wanted: np.ndarray,
           without: np.ndarray | None, seed: int = 0, first: int = 0, threads: int = 1
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A place in the cell of each request, log r of it and 1 - r: (N,) int64, (N,) float64 twice.

    h (Q, d) float32; question, cell and wanted (N,) int64. Where wanted is -1 a place is drawn, else it is that place.
    without (N,) int64: a place that is not there, or None. first: the number of the first request.
    """
    n, members_task = len(query_id), members.task_for(h)
    for name, x in (("question", query_id), ("cell", cell), ("wanted", wanted), ("without", without)):
        if x is not None:
            check_array(f"cells: {name}", x, np.int64, (n,))
    if not 0 <= seed < 2 ** 64 or first < 0:
        raise ValueError(f"cells: draws from seed {seed}, the first of number {first}")
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
