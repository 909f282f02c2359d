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
from embtrain.kernels.core.tables import on_huge_pages
from embtrain.kernels.reference import ZERO
from embtrain.kernels.sampling import int8_rows as kernel

StoredDtype = Literal["float32", "int8"]
MAX_INT = 127             # what is furthest from 0
MAX_VALUES = 1 << 20        # numbers that torch rounds at once


def n_bytes(rows: int, width: int, kind: StoredDtype) -> int:
    """Bytes that so many rows take."""
    return rows * (4 * width if kind == "float32" else width + 4)


class RowStore:
    """Rows x (n, W), 0 to begin with."""

    def __init__(self, rows: int, width: int, kind: StoredDtype, device: str):
        # On huge pages: draws read from all over.
        memory = on_huge_pages(rows * width, np.float32 if kind == "float32" else np.uint8)
        self.stored = torch.from_numpy(memory.reshape(rows, width)).to(device)      # (n, W) x, or b
        self.scale = None if kind == "float32" else torch.zeros(rows, device=device)

    def __len__(self) -> int:
        return len(self.stored)

    def write(self, index: Tensor, x: Tensor) -> None:
        """x (m, W) of rows (m,)."""
        if self.scale is None:
            self.stored[index] = x.float()
            return
        x = x.float()
        if x.device.type == "cpu" and core() is not None:
            kernel.write(self.stored.numpy(), self.scale.numpy(), index.contiguous().numpy(), x.contiguous().numpy())
            return
        step = max(1, MAX_VALUES // x.shape[1])
        for index_part, x_part in zip(index.split(step), x.split(step), strict=True):
            integers, scale = quantize(x_part)
            self.stored[index_part] = integers.add_(ZERO).to(torch.uint8)
            self.scale[index_part] = scale

    def read(self, index: Tensor | slice) -> Tensor:
        """x of rows: (m, W) float64."""
        values = self.stored[index].double()
        return values if self.scale is None else values.sub_(ZERO).mul_(self.scale[index].double().unsqueeze(1))

    def round_query(self, h: Tensor) -> Tensor:
        """Questions (Q, W) as they are multiplied with what stands here, float64."""
        if self.scale is None:
            return h.double()
        integers, scale = quantize(h.float())
        return integers.double() * scale.double().unsqueeze(1)


def stored_tensors(*stores: RowStore | None) -> list[Tensor]:
    """All that they are kept in: x or b of each, then the scales."""
    present = [k for k in stores if k is not None]
    return [k.stored for k in present] + [k.scale for k in present if k.scale is not None]


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers (n, W) in −127 … 127 and s (n,) with x = s times them, up to s / 2; float32 all."""
    scale = x.abs().amax(1) / MAX_INT
    return (x / torch.where(scale > 0, scale, 1.0).unsqueeze(1)).round_(), scale
