"""Groups of rows that share a draw although their queries differ (`share_draws_by: block`, `batch`)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RowGroups(NamedTuple):
    """B rows in G groups of at most N; the rows of a group are consecutive."""

    group_id: Tensor  # (B,) int64  group of each row
    position: Tensor  # (B,) int64  position in its group
    size: Tensor      # (G,) int64
    member: Tensor    # (G, N) int64  rows of each group; a short group repeats its last row

    def draw_rows(self, k: int, random: torch.Generator) -> Tensor:
        """Draw k rows of each group, uniformly: (G, k)."""
        size = self.size.unsqueeze(1)
        u = torch.rand((len(size), k), generator=random, device=size.device, dtype=torch.float64)
        return self.member.gather(1, torch.minimum((u * size).long(), size - 1))

    def mean(self, log_x: Tensor) -> Tensor:
        """log of the mean, over the rows of each group, of x given by its logarithms (B, K): (G, K)."""
        over = torch.arange(self.member.shape[1], device=self.group_id.device) >= self.size.unsqueeze(1)        # (G, N)
        log_each = log_x[self.member].masked_fill_(over.unsqueeze(2), -torch.inf)
        return log_each.logsumexp(1) - self.size.float().log().unsqueeze(1).to(log_x.dtype)


def group_rows(n_rows: int, n_groups: int, draw_id: Tensor | None, device: torch.device) -> RowGroups:
    """Group n_rows rows by the result of `draw_layout`.

    n_groups, and the group of each row (B,), or None if there is only one.
    """
    group_id = torch.zeros(n_rows, dtype=torch.int64, device=device) if draw_id is None else draw_id
    size = torch.bincount(group_id, minlength=n_groups)
    group_start = size.cumsum(0) - size
    places = torch.arange(int(size.max()), device=device)
    member = group_start.unsqueeze(1) + torch.minimum(places, size.unsqueeze(1) - 1)
    return RowGroups(group_id, torch.arange(n_rows, device=device) - group_start[group_id], size, member)
