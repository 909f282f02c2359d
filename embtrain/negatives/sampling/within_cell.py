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
from embtrain.kernels.core.library import BufferView, core
from embtrain.kernels.sampling import cells as kernel
from embtrain.kernels.sampling.draw_batch import DrawOutput
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling.row_store import RowStore, stored

LEAST_PRIOR = 1e-12
ROOM = 8192        # ids that are given room at a time
DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64, torch.bool: np.bool_}


class Members:
    """Candidates cell by cell: cell c has order[start[c]:start[c + 1]]."""

    def __init__(self, order: Tensor, start: Tensor, copy: RowStore | None = None):
        """copy: (V, D) in eight bits, in that order, read in place of the model's table."""
        self.order, self.start, self.copy = order, start, copy
        self.largest = int((start[1:] - start[:-1]).max())
        self._lies: tuple[object, ...] = ()      # where the table is that was asked for last
        self._inside: Inside | None = None       # of it

    def within(self, view: ModelView) -> Inside | None:
        """None where torch has to do the work."""
        table, unit = view.table(), view.geometry == "cosine"
        apart = table.stride()
        lies = table.data_ptr(), table.dtype, table.shape, apart, unit
        if lies != self._lies:                   # not at every draw; rows may be padded, as the fast engine's are
            fits = table.device.type == "cpu" and table.dtype == torch.float32 and (library := core()) is not None
            fits = fits and apart[1] == 1 and apart[0] >= table.shape[1]
            copy = [x.numpy() for x in stored(self.copy)] if fits else []
            self._lies, self._inside = lies, Inside(kernel.CellMembers(
                table.detach().numpy(), unit, self.order.numpy(), self.start.numpy(), self.largest, library, *copy)
                                                    ) if fits else None
        return self._inside


class Inside:
    """The compiled core on a model as it is now; h (Q, D) such that o = h·c, with unit c where scores are cosines."""

    def __init__(self, members: kernel.CellMembers):
        self.members = members

    def places(self, h: Tensor, question: Tensor, cell: Tensor, wanted: Tensor, without: Tensor | None, seed: int = 0
               ) -> tuple[Tensor, Tensor, Tensor]:
        """For cells (N,) of questions (N,): the places wanted (N,), or drawn where that is -1, but never those of
        `without` (N,); log r of them; and 1 - r."""
        found = kernel.inside(self.members, array(h.float()), array(question), array(cell), array(wanted),
                              None if without is None else array(without), seed, threads=torch.get_num_threads())
        return torch.from_numpy(found[0]), torch.from_numpy(found[1]), torch.from_numpy(found[2])


def array(x: Tensor) -> np.ndarray:
    found = x.numpy()                            # torch's own look at whether it is contiguous takes longer
    return found if found.flags.c_contiguous else np.ascontiguousarray(found)


def flat(x: Tensor) -> BufferView:
    x = x.contiguous()
    return BufferView(x.data_ptr(), DTYPES.get(x.dtype, object), x.shape, x)


class Room:
    """For what draws give out: ids (n, k), log q of them and of the targets (rows,). That of small draws is made for
    many at a time, since to make it is seen beside them."""

    def __init__(self) -> None:
        self.shape = (0, 0, 0)
        self.left: list[tuple[tuple[Tensor, Tensor, Tensor], DrawOutput]] = []

    def take(self, n: int, k: int, rows: int) -> tuple[tuple[Tensor, Tensor, Tensor], DrawOutput]:
        """The same for who reads and for who writes."""
        if self.shape != (n, k, rows) or not self.left:
            self.shape = n, k, rows
            many = max(1, ROOM // max(1, n * k + rows))
            stacks = torch.empty(many, n, k, dtype=torch.int64), torch.empty(many, n, k), torch.empty(many, rows)
            self.left = list(zip(zip(*stacks, strict=True), DrawOutput.stack(*map(flat, stacks)), strict=True))
        return self.left.pop()


def prior_masses(counts: Tensor, exponent: float) -> Tensor:
    """count^exponent with mean 1, (V,) float64; a candidate that was never counted counts as the rarest that was.

    Nobody has less than LEAST_PRIOR of the greatest: else what is left of a node without that one would round to 0.
    """
    least = counts[counts > 0].min() if (counts > 0).any() else counts.new_ones(())
    masses = torch.where(counts > 0, counts, least).pow(exponent)
    masses = masses.clamp(min=LEAST_PRIOR * float(masses.max()))
    return masses / masses.mean()


def refuse_settings(name: str, config: NegativesConfig, exclude_target: bool, world: ProblemSpec) -> None:
    """What a source cannot do whose q depends on the question."""
    if config.share == "window" and exclude_target:
        raise UsageError("negatives.exclude_target: the rows of a window have targets of their own; set "
                         "negatives.share: row")
    if world.n_candidates < 2:
        raise UsageError(f"negatives.source: {name} needs two candidates or more, and there is {world.n_candidates}")
