"""Rows that draws read, kept in float32 or in eight bits: sums of a tree's nodes, and copies of candidates.

    x = s (b − 128),   s = max |x| / 127,   b = 128 + round(x / s)  in 1 … 255

In eight bits there is a quarter to wait for, and x is off by at most s / 2. A question is then rounded alike, so that
products are of whole numbers and one scale. What stands here is what draws and what is reported: q is exact either way.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from embtrain.kernels.core.library import core
from embtrain.kernels.core.tables import zeros_on_huge_pages
from embtrain.kernels.reference import ZERO
from embtrain.kernels.sampling import int8_rows as kernel

Kind = Literal["float32", "int8"]
MOST = 127             # what is furthest from 0
CHUNK = 1 << 20        # numbers that torch rounds at once


def size(rows: int, width: int, kind: Kind) -> int:
    """Bytes that so many rows take."""
    return rows * (4 * width if kind == "float32" else width + 4)


class RowStore:
    """Rows x (n, W), 0 to begin with."""

    def __init__(self, rows: int, width: int, kind: Kind, device: str):
        # On huge pages: draws read from all over.
        room = zeros_on_huge_pages(rows * width, np.float32 if kind == "float32" else np.uint8)
        self.stored = torch.from_numpy(room.reshape(rows, width)).to(device)      # (n, W) x, or b
        self.scale = None if kind == "float32" else torch.zeros(rows, device=device)

    def __len__(self) -> int:
        return len(self.stored)

    def write(self, at: Tensor, x: Tensor) -> None:
        """x (m, W) of rows (m,)."""
        if self.scale is None:
            self.stored[at] = x.float()
            return
        x = x.float()
        if x.device.type == "cpu" and core() is not None:
            kernel.write(self.stored.numpy(), self.scale.numpy(), at.contiguous().numpy(), x.contiguous().numpy())
            return
        step = max(1, CHUNK // x.shape[1])
        for some, part in zip(at.split(step), x.split(step), strict=True):
            whole, scale = rounded(part)
            self.stored[some] = whole.add_(ZERO).to(torch.uint8)
            self.scale[some] = scale

    def read(self, at: Tensor | slice) -> Tensor:
        """x of rows: (m, W) float64."""
        found = self.stored[at].double()
        return found if self.scale is None else found.sub_(ZERO).mul_(self.scale[at].double().unsqueeze(1))

    def of_query(self, h: Tensor) -> Tensor:
        """Questions (Q, W) as they are multiplied with what stands here, float64."""
        if self.scale is None:
            return h.double()
        whole, scale = rounded(h.float())
        return whole.double() * scale.double().unsqueeze(1)


def stored(*kept: RowStore | None) -> list[Tensor]:
    """All that they are kept in: x or b of each, then the scales."""
    of = [k for k in kept if k is not None]
    return [k.stored for k in of] + [k.scale for k in of if k.scale is not None]


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers (n, W) in −127 … 127 and s (n,) with x = s times them, up to s / 2; float32 all."""
    scale = x.abs().amax(1) / MOST
    return (x / torch.where(scale > 0, scale, 1.0).unsqueeze(1)).round_(), scale
