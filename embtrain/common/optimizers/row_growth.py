"""Copies rows into larger tables: for a run that continues another with more words.

row (n,) int64 is the earlier row of each row of a table, -1 for a new row. Rows may be in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 16  # rows that are copied at once


@torch.no_grad()
def copy_rows(table: Tensor, earlier: Tensor, row: Tensor) -> None:
    """Set the rows of `table` (n, ...) that `earlier` (m, ...) has; the new ones stay as they are."""
    for known in (row >= 0).nonzero()[:, 0].split(CHUNK):
        table[known.to(table.device)] = earlier[row[known].to(earlier.device)].to(table.device, table.dtype)


def grow_optimizer(optimizer: torch.optim.Optimizer, earlier: Mapping[str, Any], rows: Sequence[Tensor | None]) -> bool:
    """Load the state of an optimizer whose tables had fewer rows: accumulators of new rows are 0.

    earlier: its `state_dict`. rows: of each parameter, in order; None for a parameter of the same shape. `optimizer`
    keeps its settings, like the learning rate. Returns False, and changes nothing, if it is another optimizer.
    """
    fresh = optimizer.state_dict()
    groups, earlier_groups = fresh["param_groups"], earlier["param_groups"]
    if [group.keys() for group in groups] != [group.keys() for group in earlier_groups] or \
            [group["params"] for group in groups] != [group["params"] for group in earlier_groups]:
        return False
    state = {i: {name: _grown(value, rows[i]) for name, value in values.items()}
             for i, values in earlier["state"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return True


def _grown(value: Any, row: Tensor | None) -> Any:
    """A tensor with one entry for each row, or unchanged: a step count has no rows."""
    if row is None or not isinstance(value, Tensor) or value.ndim == 0:
        return value
    grown = value.new_zeros(len(row), *value.shape[1:])
    copy_rows(grown, value, row)
    return grown
