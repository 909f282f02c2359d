"""Draws by inverse cumulative sums, many rows at once, in float64.

    j = min {j : u < F_j},  F_j = Σ_{i <= j} p_i,  u ~ U[0, 1)

Row i's sums are moved to (i, i + 1], so that one binary search serves all rows. What the compiled core draws counts on
from one number of the generator, of each draw or, where that takes too long, of the whole run.
"""

from __future__ import annotations

import threading
from operator import index
from typing import Any, Literal

import torch
from torch import Tensor

MOST_ROWS = 1 << 14
BELOW_ONE = 1 - 2.0 ** -37  # u + row stays below row + 1 for every row below MOST_ROWS


def sums(log_p: Tensor) -> Tensor:
    """F of each row of log p (n, m), float64; it ends at 1."""
    total = log_p.double().exp().cumsum(1)
    return total / total[:, -1:]


def search(cdf: Tensor, row: Tensor, u: Tensor) -> Tensor:
    """j of each u (N,) in its row (N,) of the sums (n, m): (N,) int64. n is MOST_ROWS at most."""
    n, m = cdf.shape
    lines = (cdf + torch.arange(n, device=cdf.device).unsqueeze(1)).view(-1)
    found = torch.searchsorted(lines, u.clamp(max=BELOW_ONE) + row, right=True) - row * m
    return found.clamp(0, m - 1)


def proportional(mass: Tensor, toss: Tensor) -> Tensor:
    """A column of each row of masses (n, m) float64 for each toss (n, k) in [0, 1), in proportion to them: (n, k)."""
    ends = mass.cumsum(1)
    found = torch.searchsorted(ends, toss * ends[:, -1:], right=True)
    # toss * total may round to the total: then the last column that has mass. No column without mass is ever first
    # beyond a toss, for its end is that of the one before it.
    return torch.minimum(found, torch.searchsorted(ends, ends[:, -1:].contiguous()))


def blocks(x: Tensor, width: int, what: Literal["sum", "amax"]) -> Tensor:
    """Sum or maximum of each block of `width` columns of x (n, m): (n, blocks); the last block may be short."""
    whole = x.shape[1] // width
    parts = [x[:, :whole * width].unflatten(1, (whole, width)), x[:, whole * width:].unsqueeze(1)]
    return torch.cat([part.sum(2) if what == "sum" else part.amax(2) for part in parts if part.numel()], 1)


class _Number(threading.local):
    def __init__(self) -> None:
        self.at = torch.empty((), dtype=torch.int64)  # kept, for making room for a number takes as long as drawing it


_number = _Number()


def stream(random: torch.Generator) -> int:
    """One number of 64 bits from a generator of the CPU, whose state alone then says where the draws stand."""
    return int(_number.at.random_(-2 ** 63, 2 ** 63 - 1, generator=random)) % 2 ** 64


class Numbers:
    """Two streams for a source's draws by the core: their seeds, from the generator once, and how many numbers each has
    given. To ask the generator at each draw is seen where draws are small."""

    def __init__(self, random: torch.Generator):
        self.random, self.given = random, 0
        self.held: tuple[int, ...] = ()

    @property
    def seeds(self) -> tuple[int, int]:
        if not self.held:
            self.held = stream(self.random), stream(self.random)
        return self.held[0], self.held[1]

    def draws(self, n: int, k: int) -> int:
        """n draws of k numbers each: how many such draws came before them. Those may have been of another k."""
        first = -(-self.given // k)
        self.given = (first + n) * k
        return first

    def state(self) -> dict[str, Any]:
        return {"seeds": list(self.held), "given": self.given}

    def load(self, state: dict[str, Any]) -> None:
        """ValueError or TypeError for what `state` has not given."""
        held, given = tuple(map(index, state["seeds"])), index(state["given"])
        if len(held) not in (0, 2) or not all(0 <= x < 2 ** 64 for x in held) or not 0 <= given < 2 ** 63:
            raise ValueError(f"numbers of seeds {held}, {given} given")
        self.held, self.given = held, given
