"""Rows that draws read, stored as float32 or int8: sums of tree nodes, and copies of candidates.

    x = s (b − 128),   s = max |x| / 127,   b = 128 + round(x / s)  in 1 … 255

int8 needs a quarter of the memory bandwidth, with an error of at most s / 2. The query is quantized in the same way, so
that dot products are integer products times one scale. The stored values define both the draw and the reported q, so q
stays exact.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from embtrain.kernels.core.loader import core
from embtrain.kernels.core.tables import zeros_on_huge_pages
from embtrain.kernels.reference import ZERO_POINT
from embtrain.kernels.sampling import int8_rows as kernel

StoredDtype = Literal["float32", "int8"]
MAX_INT = 127               # largest integer of a quantized row
MAX_VALUES = 1 << 20        # numbers that PyTorch quantizes at once


def n_bytes(rows: int, width: int, kind: StoredDtype) -> int:
    """Memory of `rows` rows of `width` numbers, in bytes."""
    return rows * (4 * width if kind == "float32" else width + 4)


class RowStore:
    """Rows x (n, W), initially 0.

    kind: float32 or int8. The memory uses huge pages, because draws read rows at random.
    """

    def __init__(self, rows: int, width: int, kind: StoredDtype, device: str):
        memory = zeros_on_huge_pages(rows * width, np.float32 if kind == "float32" else np.uint8)
        self.stored = torch.from_numpy(memory.reshape(rows, width)).to(device)      # (n, W) x, or b if int8
        self.scale = None if kind == "float32" else torch.zeros(rows, dtype=torch.float32, device=device)

    def __len__(self) -> int:
        return len(self.stored)

    def write(self, index: Tensor, x: Tensor) -> None:
        """Store x (m, W) in the rows `index` (m,)."""
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
            self.stored[index_part] = integers.add_(ZERO_POINT).to(torch.uint8)
            self.scale[index_part] = scale

    def read(self, index: Tensor | slice) -> Tensor:
        """x of the rows `index`: (m, W) float64."""
        values = self.stored[index].double()
        return values if self.scale is None else values.sub_(ZERO_POINT).mul_(self.scale[index].double().unsqueeze(1))

    def round_query(self, h: Tensor) -> Tensor:
        """Queries (Q, W) in the precision in which they are multiplied with the rows, float64."""
        return h.double() if self.scale is None else rounded(h.double())


def stored_tensors(*stores: RowStore | None) -> list[Tensor]:
    """The tensors of several stores, for a checkpoint: x or b of each, then the scales."""
    present = [k for k in stores if k is not None]
    return [k.stored for k in present] + [k.scale for k in present if k.scale is not None]


def rounded(x: Tensor) -> Tensor:
    """Rows x (n, W) as numbers that int8 can represent, of the same type."""
    integers, scale = quantize(x.float())
    return (integers.double() * scale.double().unsqueeze(1)).to(x.dtype)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers (n, W) in −127 … 127 and scales s (n,), both float32.

    x equals s times the integers, up to s / 2.
    """
    scale = x.abs().amax(1) / MAX_INT
    return (x / torch.where(scale > 0, scale, 1.0).unsqueeze(1)).round_(), scale
