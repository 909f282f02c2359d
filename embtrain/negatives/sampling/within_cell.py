"""What sources share whose q(·|h) depends on the question: what they refuse, and the exact draw inside cells.

    r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c, with the vectors as they are now, or with a copy of them

On the CPU the compiled core draws (kernels/sampling/cells.py) where the model's table is float32; elsewhere torch, in
the files of the sources.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, ProblemSpec
from embtrain.kernels.core.library import Flat, core
from embtrain.kernels.sampling import cells as kernel
from embtrain.kernels.sampling.draw_batch import Outs
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling.row_store import RowStore, stored_tensors

MIN_PRIOR = 1e-12
IDS_PER_ALLOCATION = 8192        # ids that are given room at a time
DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64, torch.bool: np.bool_}


class CellIndex:
    """Candidates cell by cell: cell c has order[start[c]:start[c + 1]]."""

    def __init__(self, order: Tensor, start: Tensor, copy: RowStore | None = None):
        """copy: (V, D) in eight bits, in that order, read in place of the model's table."""
        self.order, self.start, self.copy = order, start, copy
        self.largest = int((start[1:] - start[:-1]).max())
        self._table_key: tuple[object, ...] = ()      # where the table is that was asked for last
        self._cell_core: CellCore | None = None       # of it

    def cell_core(self, view: ModelView) -> CellCore | None:
        """None where torch has to do the work."""
        table, unit = view.table(), view.geometry == "cosine"
        stride = table.stride()
        key = table.data_ptr(), table.dtype, table.shape, stride, unit
        if key != self._table_key:                   # not at every draw; rows may be padded, as the fast engine's are
            is_supported = (table.device.type == "cpu" and table.dtype == torch.float32
                            and (library := core()) is not None)
            is_supported = is_supported and stride[1] == 1 and stride[0] >= table.shape[1]
            copy = [x.numpy() for x in stored_tensors(self.copy)] if is_supported else []
            self._table_key, self._cell_core = key, CellCore(kernel.Members(
                table.detach().numpy(), unit, self.order.numpy(), self.start.numpy(), self.largest, library, *copy)
                                                    ) if is_supported else None
        return self._cell_core


class CellCore:
    """The compiled core on a model as it is now; h (Q, D) such that o = h·c, with unit c where scores are cosines."""

    def __init__(self, members: kernel.Members):
        self.members = members

    def sample(self, h: Tensor, query_id: Tensor, cell: Tensor, requested: Tensor, excluded: Tensor | None,
               seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """For cells (N,) of questions (N,): the places wanted (N,), or drawn where that is -1, but never those of
        `without` (N,); log r of them; and 1 - r."""
        result = kernel.inside(self.members, as_array(h.float()), as_array(query_id), as_array(cell),
                               as_array(requested), None if excluded is None else as_array(excluded), seed,
                               threads=torch.get_num_threads())
        return torch.from_numpy(result[0]), torch.from_numpy(result[1]), torch.from_numpy(result[2])


def as_array(x: Tensor) -> np.ndarray:
    values = x.numpy()                            # torch's own look at whether it is contiguous takes longer
    return values if values.flags.c_contiguous else np.ascontiguousarray(values)


def as_flat(x: Tensor) -> Flat:
    x = x.contiguous()
    return Flat(x.data_ptr(), DTYPES.get(x.dtype, object), x.shape, x)


class DrawBuffers:
    """For what draws give out: ids (n, k), log q of them and of the targets (rows,). That of small draws is made for
    many at a time, since to make it is seen beside them."""

    def __init__(self) -> None:
        self.shape = (0, 0, 0)
        self._free: list[tuple[tuple[Tensor, Tensor, Tensor], Outs]] = []

    def take(self, n: int, k: int, rows: int) -> tuple[tuple[Tensor, Tensor, Tensor], Outs]:
        """The same for who reads and for who writes."""
        if self.shape != (n, k, rows) or not self._free:
            self.shape = n, k, rows
            n_sets = max(1, IDS_PER_ALLOCATION // max(1, n * k + rows))
            stacks = torch.empty(n_sets, n, k, dtype=torch.int64), torch.empty(n_sets, n, k), torch.empty(n_sets, rows)
            self._free = list(zip(zip(*stacks, strict=True), Outs.stack(*map(as_flat, stacks)), strict=True))
        return self._free.pop()


def prior_weights(counts: Tensor, exponent: float) -> Tensor:
    """count^exponent with mean 1, (V,) float64; a candidate that was never counted counts as the rarest that was.

    Nobody has less than LEAST_PRIOR of the greatest: else what is left of a node without that one would round to 0.
    """
    smallest = counts[counts > 0].min() if (counts > 0).any() else counts.new_ones(())
    weights = torch.where(counts > 0, counts, smallest).pow(exponent)
    weights = weights.clamp(min=MIN_PRIOR * float(weights.max()))
    return weights / weights.mean()


def check_settings(name: str, config: NegativesConfig, exclude_target: bool, world: ProblemSpec) -> None:
    """What a source cannot do whose q depends on the question."""
    if config.share == "window" and exclude_target:
        raise UsageError("negatives.exclude_target: the rows of a window have targets of their own; set "
                         "negatives.share: row")
    if world.n_candidates < 2:
        raise UsageError(f"negatives.source: {name} needs two candidates or more, and there is {world.n_candidates}")
