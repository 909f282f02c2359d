"""Bounds of a table, kept after each update in the rows that the update changed.

A sparse gradient names these rows. After an update with a dense gradient, all rows are checked.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_NORM = 1 - 1e-5  # of points of the Poincaré ball: 1 − ‖x‖² keeps eleven digits in float64


@torch.no_grad()
def keep_columns(table: Tensor, grad: Tensor | None, columns: slice, low: float | None, high: float | None) -> None:
    """Clamp these columns of the changed rows of a table (V, D) to low ≤ x ≤ high, in place; None: no bound."""
    rows = _changed_rows(grad)
    if rows is None:
        table[:, columns].clamp_(low, high)
    else:
        table[rows, columns] = table[rows, columns].clamp(low, high)


@torch.no_grad()
def keep_norms(table: Tensor, grad: Tensor | None, low: float, high: float) -> None:
    """Move the changed rows of a table (V, D) into low ≤ ‖x‖ ≤ high, in place.

    Rows keep their direction; a row of zeros, which has none, moves along the first axis.
    """
    rows = _changed_rows(grad)
    x = table if rows is None else table[rows]
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    moved = x * (norm.clamp(low, high) / norm)
    if low > 0:
        moved = torch.where(norm > 0, moved, torch.eye(1, x.shape[1], dtype=x.dtype, device=x.device) * low)
    x = torch.where((norm < low) | (norm > high), moved, x)
    if rows is None:
        table.copy_(x)
    else:
        table[rows] = x


def _changed_rows(grad: Tensor | None) -> Tensor | None:
    """Return the rows that a sparse gradient names, (n,); None for a dense gradient.

    A row may occur several times. The same values are then written several times, which costs less than to find the
    distinct rows: their number would make the host wait for a GPU.
    """
    return grad._indices()[0] if grad is not None and grad.is_sparse else None
