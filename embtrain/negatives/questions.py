"""What sources share whose q(·|h) depends on the question: what they refuse, and the exact draw inside cells.

    r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c, with the vectors as they are now

On the CPU the compiled core draws (kernels/cells.py) where the model's table is float32; elsewhere torch, in the files
of the sources.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.kernels import cells as kernel
from embtrain.kernels.core import core
from embtrain.negatives.base import NegativesConfig
from embtrain.types import View, World


class Members:
    """Candidates cell by cell: cell c has order[start[c]:start[c + 1]]."""

    def __init__(self, order: Tensor, start: Tensor):
        self.order, self.start = order, start
        self.largest = int((start[1:] - start[:-1]).max())
        self._inside: Inside | None = None       # of the table that was asked for last

    def within(self, view: View) -> Inside | None:
        """None where torch has to do the work."""
        table = view.table()
        if table.device.type != "cpu" or table.dtype != torch.float32 or core() is None:
            return None
        if table.stride(1) != 1 or table.stride(0) < table.shape[1]:   # rows may be padded, as the fast engine's are
            return None
        unit, mine = view.geometry == "cosine", self._inside
        if mine is None or mine.lies != (table.data_ptr(), table.shape, table.stride()) or mine.members.unit != unit:
            mine = self._inside = Inside(kernel.Members(table.detach().numpy(), unit, self.order.numpy(),
                                                        self.start.numpy(), self.largest), table)
        return mine


class Inside:
    """The compiled core on a model as it is now; h (Q, D) such that o = h·c, with unit c where scores are cosines."""

    def __init__(self, members: kernel.Members, table: Tensor):
        self.members, self.lies = members, (table.data_ptr(), table.shape, table.stride())

    def places(self, h: Tensor, question: Tensor, cell: Tensor, wanted: Tensor, without: Tensor | None, seed: int = 0
               ) -> tuple[Tensor, Tensor, Tensor]:
        """For cells (N,) of questions (N,): the places wanted (N,), or drawn where that is -1, but never those of
        `without` (N,); log r of them; and 1 - r."""
        found = kernel.inside(self.members, array(h.float()), array(question), array(cell), array(wanted),
                              None if without is None else array(without), seed, threads=torch.get_num_threads())
        return torch.from_numpy(found[0]), torch.from_numpy(found[1]), torch.from_numpy(found[2])


def array(x: Tensor) -> np.ndarray:
    return x.contiguous().numpy()


def prior_masses(counts: Tensor, exponent: float) -> Tensor:
    """count^exponent with mean 1, (V,) float64; a candidate that was never counted counts as the rarest that was."""
    least = counts[counts > 0].min() if (counts > 0).any() else counts.new_ones(())
    masses = torch.where(counts > 0, counts, least).pow(exponent)
    return masses / masses.mean()


def refuse_settings(name: str, config: NegativesConfig, exclude_target: bool, world: World) -> None:
    """What a source cannot do whose q depends on the question."""
    if config.share == "window" and exclude_target:
        raise UsageError("negatives.exclude_target: the rows of a window have targets of their own; set "
                         "negatives.share: row")
    if world.n_candidates < 2:
        raise UsageError(f"negatives.source: {name} needs two candidates or more, and there is {world.n_candidates}")
