"""Shared by sources whose q(·|h) depends on the query: argument checks, and exact sampling inside a cell.

    r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c, with the current vectors, or with a copy of them

On the CPU the compiled core draws (kernels/sampling/cells.py) if the model's table is float32; elsewhere PyTorch does,
in the modules of the sources.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, ProblemSpec
from embtrain.kernels.arguments.draws import DrawOutput
from embtrain.kernels.core.binding import BufferView
from embtrain.kernels.core.loader import core
from embtrain.kernels.sampling import cells as kernel
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling.row_store import RowStore, stored_tensors

MIN_PRIOR = 1e-12
IDS_PER_ALLOCATION = 8192        # ids allocated at once
DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64, torch.bool: np.bool_}


class CellCoreCache:
    """The compiled sampler inside cells on the last table; cell c contains order[start[c]:start[c + 1]].

    order (V,), start (C + 1,). copy: int8 rows (V, D) in that order, read in place of the model's table.
    """

    def __init__(self, order: Tensor, start: Tensor, copy: RowStore | None = None):
        self.order, self.start, self.copy = order, start, copy
        self.largest = int((start[1:] - start[:-1]).max())
        self._table_key: tuple[object, ...] = ()      # address and layout of the last table
        self._cell_core: CellCore | None = None       # sampler on that table

    def find(self, view: ModelView) -> CellCore | None:
        """The compiled sampler on the current table; None if PyTorch has to draw."""
        table, unit = view.table(), view.geometry == "cosine"
        stride = table.stride()
        key = table.data_ptr(), table.dtype, table.shape, stride, unit
        if key != self._table_key:  # not rebuilt at every draw; rows may be padded, as those of the compiled engine are
            is_supported = (table.device.type == "cpu" and table.dtype == torch.float32
                            and (library := core()) is not None)
            is_supported = is_supported and stride[1] == 1 and stride[0] >= table.shape[1]
            copy = [x.numpy() for x in stored_tensors(self.copy)] if is_supported else []
            self._table_key, self._cell_core = key, CellCore(kernel.CellMembers(
                table.detach().numpy(), unit, self.order.numpy(), self.start.numpy(), self.largest, library, *copy)
                                                    ) if is_supported else None
        return self._cell_core


class CellCore:
    """The compiled sampler inside cells, on the current model.

    Takes h (Q, D) with o = h·c; c has length 1 if scores are cosines.
    """

    def __init__(self, members: kernel.CellMembers):
        self.members = members

    def sample(self, h: Tensor, query_id: Tensor, cell: Tensor, requested: Tensor, excluded: Tensor | None,
               seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Draw or look up a place in each of the cells (N,), for the queries (N,).

        requested (N,): a place, or -1 to draw one. excluded (N,): a place that is not drawn. Returns the places, log r
        of them, and 1 - r, (N,) each.
        """
        result = kernel.inside(self.members, as_array(h.float()), as_array(query_id), as_array(cell),
                               as_array(requested), None if excluded is None else as_array(excluded), seed,
                               threads=torch.get_num_threads())
        return torch.from_numpy(result[0]), torch.from_numpy(result[1]), torch.from_numpy(result[2])


def as_array(x: Tensor) -> np.ndarray:
    """A contiguous NumPy array of x, without a copy if possible."""
    values = x.numpy()                            # faster than Tensor.is_contiguous()
    return values if values.flags.c_contiguous else np.ascontiguousarray(values)


def as_flat(x: Tensor) -> BufferView:
    """Address, type and shape of x, for the kernels."""
    x = x.contiguous()
    return BufferView(x.data_ptr(), DTYPES.get(x.dtype, object), x.shape, x)


class DrawBuffers:
    """Pre-allocated output of draws: ids (n, k), their log q (n, k), and log q of the targets (rows,).

    Buffers for small draws are allocated in batches, because allocation would show in the timing.
    """

    def __init__(self) -> None:
        self.shape = (0, 0, 0)
        self._free: list[tuple[tuple[Tensor, Tensor, Tensor], DrawOutput]] = []

    def take(self, n: int, k: int, rows: int) -> tuple[tuple[Tensor, Tensor, Tensor], DrawOutput]:
        """Buffers for n draws of k and `rows` targets, as tensors and as the kernels' outputs."""
        if self.shape != (n, k, rows) or not self._free:
            self.shape = n, k, rows
            n_sets = max(1, IDS_PER_ALLOCATION // max(1, n * k + rows))
            ids = torch.empty(n_sets, n, k, dtype=torch.int64, device="cpu")
            log_q = torch.empty_like(ids, dtype=torch.float32)
            stacks = ids, log_q, log_q.new_empty(n_sets, rows)
            self._free = list(zip(zip(*stacks, strict=True), DrawOutput.stack(*map(as_flat, stacks)), strict=True))
        return self._free.pop()


def prior_weights(counts: Tensor, exponent: float) -> Tensor:
    """count^exponent with mean 1, (V,) float64.

    A count of 0 is replaced by the smallest nonzero count. No weight is below MIN_PRIOR of the largest: otherwise the
    rest of a node without its largest candidate would round to 0.
    """
    smallest = counts[counts > 0].min() if (counts > 0).any() else counts.new_ones(())
    weights = torch.where(counts > 0, counts, smallest).pow(exponent)
    weights = weights.clamp(min=MIN_PRIOR * float(weights.max()))
    return weights / weights.mean()


def check_settings(name: str, config: NegativesConfig, exclude_target: bool, problem: ProblemSpec) -> None:
    """Raise UsageError for settings that sources with a query-dependent q do not support.

    These are exclude_target with share_draws_by: window, and fewer than two candidates.
    """
    if config.share_draws_by == "window" and exclude_target:
        raise UsageError(f"{key('exclude_target')}: the rows of a window have different targets; set "
                         f"{key('share_draws_by')}: row")
    if problem.n_candidates < 2:
        raise UsageError(f"{key('source')}: {name} needs two or more candidates, but there is {problem.n_candidates}")
