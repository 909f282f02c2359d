"""Draws by inverse cumulative distribution, many rows at once, in float64.

    j = min {j : u < F_j},  F_j = Σ_{i <= j} p_i,  u ~ U[0, 1)

The sums of row i are shifted to (i, i + 1], so that one binary search serves all rows. The compiled core uses
counter-based random numbers. Their seed comes from the generator, once per draw, or once per run where that would cost
too much time.
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
    """Cumulative distribution F of each row of log p (n, m), float64; the last value is 1."""
    total = log_p.double().exp().cumsum(1)
    return total / total[:, -1:]


def searchsorted_rows(cdf: Tensor, row: Tensor, u: Tensor) -> Tensor:
    """Index j of each u (N,) in its row (N,) of the cumulative sums (n, m): (N,) int64. n <= MAX_ROWS."""
    n, m = cdf.shape
    ends = (cdf + torch.arange(n, device=cdf.device).unsqueeze(1)).view(-1)
    index = torch.searchsorted(ends, u.clamp(max=BELOW_ONE) + row, right=True) - row * m
    return index.clamp(0, m - 1)


def sample_proportional(mass: Tensor, toss: Tensor) -> Tensor:
    """Draw columns in proportion to the weights (n, m) float64, one for each u of toss (n, k): (n, k)."""
    ends = mass.cumsum(1)
    index = torch.searchsorted(ends, toss * ends[:, -1:], right=True)
    # toss * total may round up to the total: then take the last column with a weight. A column without a weight is
    # never found first, because its end equals that of the column before it.
    return torch.minimum(index, torch.searchsorted(ends, ends[:, -1:].contiguous()))


def reduce_blocks(x: Tensor, width: int, reduction: Literal["sum", "amax"]) -> Tensor:
    """Sum or maximum of each block of `width` columns of x (n, m): (n, blocks); the last block may be short."""
    n_full = x.shape[1] // width
    parts = [x[:, :n_full * width].unflatten(1, (n_full, width)), x[:, n_full * width:].unsqueeze(1)]
    return torch.cat([part.sum(2) if reduction == "sum" else part.amax(2) for part in parts if part.numel()], 1)


class _SeedBuffer(threading.local):
    """A scratch tensor for each thread."""

    def __init__(self) -> None:
        self.value = torch.empty((), dtype=torch.int64, device="cpu")  # allocating it takes as long as drawing


_seed_buffer = _SeedBuffer()


def draw_seed(random: torch.Generator) -> int:
    """Draw a 64-bit seed from a CPU generator.

    Draws that use it depend on the state of this generator alone.
    """
    return int(_seed_buffer.value.random_(-2 ** 63, 2 ** 63 - 1, generator=random)) % 2 ** 64


class CounterRng:
    """Two counter-based random streams for the draws of a source by the compiled core.

    The seeds are drawn from the generator once; the number of values used so far is the position in both streams.
    Seeding from the generator at each draw would show in the timing of small draws.
    """

    def __init__(self, random: torch.Generator):
        self.random, self.n_drawn = random, 0
        self._seeds: tuple[int, ...] = ()

    @property
    def seeds(self) -> tuple[int, int]:
        """Seeds of the two streams."""
        if not self._seeds:
            self._seeds = draw_seed(self.random), draw_seed(self.random)
        return self._seeds[0], self._seeds[1]

    def reserve(self, n: int, k: int) -> int:
        """Reserve n draws of k numbers each. Returns how many draws of k numbers come before them.

        Earlier draws may have had another k.
        """
        first = -(-self.n_drawn // k)
        self.n_drawn = (first + n) * k
        return first

    def restart(self) -> None:
        """Take seeds from the generator again at the next draw."""
        self._seeds, self.n_drawn = (), 0

    def state(self) -> dict[str, Any]:
        """Seeds and position, for a checkpoint."""
        return {"seeds": list(self._seeds), "given": self.n_drawn}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned. Raises ValueError or TypeError for anything else."""
        seeds, n_drawn = tuple(map(index, state["seeds"])), index(state["given"])
        if len(seeds) not in (0, 2) or not all(0 <= x < 2 ** 64 for x in seeds) or not 0 <= n_drawn < 2 ** 63:
            raise ValueError(f"expected the numbers of seeds {seeds}, got {n_drawn}")
        self._seeds, self.n_drawn = seeds, n_drawn
