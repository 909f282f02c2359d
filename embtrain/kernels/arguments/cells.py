"""Arguments of the kernels that draw from cells: the cells, the int8 copy of their rows, and requests."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embtrain.kernels.arguments.draws import A, DrawRequest
from embtrain.kernels.core.binding import address, aligned_copy, check_array, check_rows, fields
from embtrain.kernels.reference import ZERO_POINT, quantize

MAX_DIM = 1 << 16   # values of a quantized row: MAX_PRODUCTS of source/sampling/int8.h
PANEL = 16       # as in source/sampling/cells/weights.h


class CellTask(ctypes.Structure):
    """struct CellTask of source/sampling/cells/rows.h."""

    _fields_ = fields("table order start copy scale h", "dim pitch unit cells largest n_queries")


class CellDrawTask(ctypes.Structure):
    """struct CellDrawTask of source/sampling/cells/cells.cpp."""

    _fields_ = (*fields("log_mass mean mean_copy mean_scale log_size cell_of place_of h draw_query row_query target",
                         "n_queries draws k rows exclude by_columns"),
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
    compiled: ctypes.CDLL | None = None  # the core; None: looked up at each call
    # The int8 copy, (V, d) uint8 and (V,) float32, in the same order and normalized if `unit`: c = s (b − 128). h is
    # then quantized to s_h y with s_h = max |h| / 127.
    copy: np.ndarray | None = None
    scale: np.ndarray | None = None

    @cached_property
    def task(self) -> CellTask:
        """The C++ struct without queries, validated once."""
        v, cells, d = len(self.order), len(self.start) - 1, self.table.shape[-1]
        check_rows("cells: table", self.table, (v, d))
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
        return CellTask(*map(address, (self.table, self.order, self.start, self.copy, self.scale)), None, d,
                        self.table.strides[0] // 4, self.unit, cells, self.largest, 0)

    def task_for(self, h: np.ndarray) -> CellTask:
        """The C++ struct with queries h (Q, d)."""
        task = CellTask.from_buffer_copy(self.task)
        check_array("cells: h", h, np.float32, (len(h), task.dim))
        task.h, task.n_queries = address(h), len(h)
        return task


@dataclass(frozen=True, eq=False)
class CellLayout:
    """The cell and place of each candidate, and optionally cell means for log M = log_size + h·mean."""

    members: CellMembers
    cell_of: np.ndarray     # (V,) int64        the cell of each candidate (not checked)
    place_of: np.ndarray    # (V,) int64        its place (not checked)
    mean: np.ndarray | None = None      # (C, d) float32  quantized as h, row by row, if the members are copied
    log_size: np.ndarray | None = None  # (C,) float32

    @cached_property
    def panels(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray] | None:
        """The means as in MeanPanels of source/sampling/cells/weights.h, in int8 too if the members are copied.

        Means (C / PANEL, d, PANEL), their copy (C / PANEL, d / 4, PANEL, 4), its scales (C,) and log_size (C,), with C
        padded to whole panels.
        """
        if self.mean is None or self.log_size is None:
            return None
        cells, dim = len(self.members.start) - 1, self.members.table.shape[1]
        check_array("cells: mean", self.mean, np.float32, (cells, dim))
        check_array("cells: log_size", self.log_size, np.float32, (cells,))
        mean = np.pad(self.mean, ((0, -cells % PANEL), (0, 0)))
        copy = scale = None
        if self.members.copy is not None:
            integers, scale = quantize(mean)
            mean = (integers * scale[:, None]).astype(np.float32)
            stored = np.pad((integers + ZERO_POINT).astype(np.uint8), ((0, 0), (0, -dim % 4)))
            copy = aligned_copy(stored.reshape(-1, PANEL, stored.shape[1] // 4, 4).transpose(0, 2, 1, 3))
        panels = aligned_copy(mean.reshape(-1, PANEL, dim).transpose(0, 2, 1))
        return panels, copy, scale, np.pad(self.log_size, (0, -cells % PANEL))

    @cached_property
    def task(self) -> CellDrawTask:
        """The C++ struct without queries, validated once."""
        for name, x in (("cell_of", self.cell_of), ("place_of", self.place_of)):
            check_array(f"cells: {name}", x, np.int64, (len(self.members.order),))
        return CellDrawTask(None, *map(address, (*(self.panels or (None,) * 4), self.cell_of, self.place_of)))


@dataclass(eq=False)
class CellDrawRequest(DrawRequest[A]):
    log_mass: A | None = None    # (Q, C) float32  log M; None: computed from the layout's means
