"""The adversary's distribution over all candidates: exact rows of it, exact draws from them, and its gradient.

    g(y|x) = softmax_y(l_y),   l_y = w_y · z,   z = (tanh(e_x), 1)     the last column of w, the bias, starts at
    H_x = log Z_x - Σ_y g_y l_y = log Z_x - z · (Σ_y g_y w_y)          log p_nce, the others near 0: g begins as noise

For an objective  J = Σ_i a_i log g(y_i|x_i) + Σ_x h_x H_x  over draws i and distinct questions x,

    ∂J/∂l_y = Σ_{i at x} a_i [y = y_i] - g_y (A_x + h_x (log g_y + H_x)),   A_x = Σ_{i at x} a_i

The first part is sparse and the second is g times one number a row (but for rows with h_x > 0), so products with w
and z are two matrix products with g as it stands; autograd would pass over it seven times. Tests hold it to autograd.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

WIDTH = 16  # candidates of a block: few to look at once the block is drawn, and few blocks to draw from


@dataclass(frozen=True)
class Rows:
    """g of Q questions, without gradient, and what its gradient needs. H: hidden dimensions and the bias."""

    context: Tensor   # (Q,)
    z: Tensor         # (Q, H)
    logits: Tensor    # (Q, V)  l
    g: Tensor         # (Q, V)
    log_z: Tensor     # (Q,)
    mean_w: Tensor    # (Q, H)  Σ_y g_y w_y
    entropy: Tensor   # (Q,)  nats
    greedy: Tensor    # (Q,)  argmax_y g
    question: Tensor  # (B,)  the row of each example

    def log_prob(self, ids: Tensor) -> Tensor:
        """log g of ids (B, K) for each example."""
        return self.logits[self.question.unsqueeze(1), ids] - self.log_z[self.question].unsqueeze(1)


class Generator(nn.Module):
    """e: (contexts, hidden), w: (V, hidden + 1)."""

    def __init__(self, n_contexts: int, n_candidates: int, hidden: int, log_p: Tensor, seed: int):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.e = nn.Parameter(torch.randn(n_contexts, hidden, generator=random) * 0.5)
        w = torch.randn(n_candidates, hidden, generator=random) * 0.01
        possible = torch.isfinite(log_p)  # an id without noise mass starts as the rarest that has some
        bias = torch.where(possible, log_p, log_p[possible].min()).cpu()
        self.w = nn.Parameter(torch.cat([w, bias.unsqueeze(1)], 1))

    def z(self, context: Tensor) -> Tensor:
        return nn.functional.pad(torch.tanh(self.e[context]), (0, 1), value=1.0)

    def forward(self, context: Tensor) -> Tensor:
        """log g of contexts (Q,): (Q, V), with gradient. What `rows` and `ascend` are held to."""
        return torch.log_softmax(self.z(context) @ self.w.T, 1)

    def space_for(self, n: int) -> Tensor:
        """Room for the logits and g of n questions, (2, n, V). Kept, it saves the system's clearing of new pages,
        which costs more than the arithmetic; rows made in it are valid until it is used again."""
        return torch.empty(2, n, len(self.w), dtype=self.w.dtype, device=self.w.device)

    @torch.no_grad()
    def rows(self, context: Tensor, question: Tensor, space: Tensor | None = None) -> Rows:
        """g of the contexts (Q,) of the examples' questions (B,). In `space` where given: see `space_for`."""
        z = self.z(context)
        if space is None:
            space = self.space_for(len(context))
        logits, g = space[:, :len(context)]
        torch.mm(z, self.w.T, out=logits)
        torch.softmax(logits, 1, out=g)
        greedy = _argmax(g)
        at = greedy.unsqueeze(1)
        log_z = (logits.gather(1, at) - g.gather(1, at).log()).squeeze(1)
        mean_w = g @ self.w
        return Rows(context, z, logits, g, log_z, mean_w, log_z - (z * mean_w).sum(1), greedy, question)

    @torch.no_grad()
    def ascend(self, rows: Rows, ids: Tensor, a: Tensor, h: Tensor) -> None:
        """Set the gradient of -J for ids and a (B, K) and h (Q,)."""
        total = rows.log_z.new_zeros(len(h)).index_add_(0, rows.question, a.sum(1))        # (Q,) A_x
        into_z = total.unsqueeze(1) * rows.mean_w                                         # (Q, H)
        into_w = rows.g.T @ (total.unsqueeze(1) * rows.z)                                 # (V, H)
        drawn, row, a = ids.reshape(-1), rows.question.repeat_interleave(ids.shape[1]), a.reshape(-1, 1)
        into_z.index_add_(0, row, -a * self.w[drawn])
        into_w.index_add_(0, drawn, -a * rows.z[row])
        pulled = h.nonzero().squeeze(1)
        if len(pulled):
            log_g = rows.logits[pulled] - rows.log_z[pulled].unsqueeze(1)
            slope = h[pulled].unsqueeze(1) * rows.g[pulled] * (log_g + rows.entropy[pulled].unsqueeze(1))
            into_z.index_add_(0, pulled, slope @ self.w)
            into_w += slope.T @ rows.z[pulled]
        into_e = (into_z * (1 - rows.z.square()))[:, :-1]
        self.w.grad = into_w
        self.e.grad = torch.zeros_like(self.e).index_add_(0, rows.context, into_e)


def draw_rows(g: Tensor, row: Tensor, random: torch.Generator) -> Tensor:
    """One id from row[i] of the probabilities g (Q, V) for each i: (n,).

    Inverse cumulative distribution in two levels, cumulated in float64: first the block, then the id in it.
    """
    sums = _blocks(g, "sum").double()                                                      # (Q, blocks)
    n_blocks, total = sums.shape[1], sums.sum(1)
    ends = sums.view(-1).cumsum(0)                                                         # rows laid end to end
    u = torch.rand(len(row), generator=random, device=g.device, dtype=torch.float64)
    u = (total.cumsum(0) - total)[row] + u * total[row]
    cell = torch.searchsorted(ends, u, right=True)
    cell = torch.minimum(torch.maximum(cell, row * n_blocks), row * n_blocks + n_blocks - 1)
    before = torch.where(cell > 0, ends[(cell - 1).clamp(min=0)], 0.0)
    ids, inside = _block(g, row, cell - row * n_blocks, 0.0)                               # (n, WIDTH) each
    at = torch.searchsorted(inside.double().cumsum(1), (u - before).unsqueeze(1), right=True)
    return ids.gather(1, at.clamp(max=WIDTH - 1)).squeeze(1)


def _argmax(g: Tensor) -> Tensor:
    """argmax of each row (Q,), the first of equals, by blocks: the library's own is no vectorised loop on a CPU."""
    block = _blocks(g, "amax").argmax(1)
    ids, inside = _block(g, torch.arange(len(g), device=g.device), block, -1.0)
    return ids.gather(1, inside.argmax(1, keepdim=True)).squeeze(1)


def _blocks(g: Tensor, what: str) -> Tensor:
    """Sum or maximum of each block of each row (Q, blocks); the last block may be short."""
    whole = g.shape[1] // WIDTH * WIDTH
    parts = [g[:, :whole].unflatten(1, (-1, WIDTH)), g[:, whole:].unsqueeze(1)]
    return torch.cat([part.sum(2) if what == "sum" else part.amax(2) for part in parts if part.numel()], 1)


def _block(g: Tensor, row: Tensor, block: Tensor, beyond: float) -> tuple[Tensor, Tensor]:
    """Ids and g of block[i] of row[i], (n, WIDTH) each; `beyond` where a short block has no more ids."""
    ids = (block * WIDTH).unsqueeze(1) + torch.arange(WIDTH, device=g.device)
    known = ids < g.shape[1]
    ids = ids.clamp(max=g.shape[1] - 1)
    return ids, torch.where(known, g[row.unsqueeze(1), ids], beyond)
