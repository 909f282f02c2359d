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

MAX_ROWS = 1 << 14
BELOW_ONE = 1 - 2.0 ** -37  # u + row stays below row + 1 for every row below MOST_ROWS


def row_cdf(log_p: Tensor) -> Tensor:
    """F of each row of log p (n, m), float64; it ends at 1."""
    total = log_p.double().exp().cumsum(1)
    return total / total[:, -1:]


def searchsorted_rows(cdf: Tensor, row: Tensor, u: Tensor) -> Tensor:
    """j of each u (N,) in its row (N,) of the sums (n, m): (N,) int64. n is MOST_ROWS at most."""
    n, m = cdf.shape
    ends = (cdf + torch.arange(n, device=cdf.device).unsqueeze(1)).view(-1)
    index = torch.searchsorted(ends, u.clamp(max=BELOW_ONE) + row, right=True) - row * m
    return index.clamp(0, m - 1)


def sample_proportional(mass: Tensor, toss: Tensor) -> Tensor:
    """A column of each row of masses (n, m) float64 for each toss (n, k) in [0, 1), in proportion to them: (n, k)."""
    ends = mass.cumsum(1)
    index = torch.searchsorted(ends, toss * ends[:, -1:], right=True)
    # toss * total may round to the total: then the last column that has mass. No column without mass is ever first
    # beyond a toss, for its end is that of the one before it.
    return torch.minimum(index, torch.searchsorted(ends, ends[:, -1:].contiguous()))


def reduce_blocks(x: Tensor, width: int, reduction: Literal["sum", "amax"]) -> Tensor:
    """Sum or maximum of each block of `width` columns of x (n, m): (n, blocks); the last block may be short."""
    n_full = x.shape[1] // width
    parts = [x[:, :n_full * width].unflatten(1, (n_full, width)), x[:, n_full * width:].unsqueeze(1)]
    return torch.cat([part.sum(2) if reduction == "sum" else part.amax(2) for part in parts if part.numel()], 1)


class _SeedBuffer(threading.local):
    def __init__(self) -> None:
        self.value = torch.empty((), dtype=torch.int64)  # allocating it takes as long as drawing


_seed_buffer = _SeedBuffer()


def draw_seed(random: torch.Generator) -> int:
    """One number of 64 bits from a generator of the CPU, whose state alone then says where the draws stand."""
    return int(_seed_buffer.value.random_(-2 ** 63, 2 ** 63 - 1, generator=random)) % 2 ** 64


class CounterRng:
    """Two streams for a source's draws by the core: their seeds, from the generator once, and how many numbers each has
    given. To ask the generator at each draw is seen where draws are small."""

    def __init__(self, random: torch.Generator):
        self.random, self.n_drawn = random, 0
        self._seeds: tuple[int, ...] = ()

    @property
    def seeds(self) -> tuple[int, int]:
        if not self._seeds:
            self._seeds = draw_seed(self.random), draw_seed(self.random)
        return self._seeds[0], self._seeds[1]

    def reserve(self, n: int, k: int) -> int:
        """n draws of k numbers each: how many such draws came before them. Those may have been of another k."""
        first = -(-self.n_drawn // k)
        self.n_drawn = (first + n) * k
        return first

    def state(self) -> dict[str, Any]:
        return {"seeds": list(self._seeds), "given": self.n_drawn}

    def load(self, state: dict[str, Any]) -> None:
        """ValueError or TypeError for what `state` has not given."""
        seeds, n_drawn = tuple(map(index, state["seeds"])), index(state["given"])
        if len(seeds) not in (0, 2) or not all(0 <= x < 2 ** 64 for x in seeds) or not 0 <= n_drawn < 2 ** 63:
            raise ValueError(f"numbers of seeds {seeds}, {n_drawn} given")
        self._seeds, self.n_drawn = seeds, n_drawn
