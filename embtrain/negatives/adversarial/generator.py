"""The generator of ACE: its distribution g over all candidates, and its parameters.

    g(c|x) = softmax_c(l_c),   l_c = w_c · z_x,   z_x = (tanh(e_x), 1)      the last column of w, the bias, starts at
    g(y|x) = g(c|x) π(y|c)                    (shortlist.py)                log p_nce, the rest near 0: g starts as p
    e_x = Σ_i e^i_{x_i}  for contexts of several columns, (h, r) or (t, r⁻¹): a layer over their joined one-hot vectors
    H_x = log Z_x + Σ_c g_c (η_c - l_c) = log Z_x - z_x · (Σ_c g_c w_c) + Σ_c g_c η_c

For an objective  J = Σ_i a_i log g(y_i|x_i) + Σ_x h_x H_x  over draws i and distinct queries x,

    ∂J/∂l_c = Σ_{i at x} a_i [c = c_i] - g_c (A_x + h_x (log g_c - η_c + H_x)),   A_x = Σ_{i at x} a_i

The first part is sparse and is collected draw by draw. The second is g times one number per row (except for rows with
h_x > 0), so products with w and z are two matrix products with g, paid once for all draws of x; autograd would pass
over g seven times. Tests compare it with autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embtrain.common.optimizers.row_growth import copy_rows, grow_optimizer
from embtrain.negatives.adversarial.shortlist import Shortlist
from embtrain.negatives.sampling.inverse_cdf import reduce_blocks

WIDTH = 16  # classes per block: few inside a block, and few blocks to draw from


class Generator(nn.Module):
    """Parameters e (Σ sizes, hidden), the vectors of one context column after another, and w (C, hidden + 1)."""

    def __init__(self, sizes: tuple[int, ...], shortlist: Shortlist, hidden: int, seed: int):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.shortlist, self.sizes = shortlist, sizes
        e = torch.randn(sum(sizes), hidden, generator=random, dtype=torch.float32, device="cpu") * 0.5
        self.e = nn.Parameter(e)
        w = torch.randn(shortlist.n_classes, hidden, generator=random, dtype=torch.float32, device="cpu") * 0.01
        self.w = nn.Parameter(torch.cat([w, shortlist.log_mass.cpu().unsqueeze(1)], 1))

    def embedding_rows(self, context: Tensor) -> Tensor:
        """Rows of e of contexts (Q,) or (Q, columns): (Q, columns)."""
        if context.ndim == 1:
            return context.unsqueeze(1)
        offset = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        return context + context.new_tensor(offset)

    def z(self, context: Tensor) -> Tensor:
        """z of contexts: (Q, hidden + 1)."""
        e = self.e[self.embedding_rows(context)].sum(1)
        return nn.functional.pad(torch.tanh(e), (0, 1), value=1.0)

    def grow_from(self, earlier: Generator, row: Tensor, optimizer: torch.optim.Optimizer,
                  earlier_optimizer: torch.optim.Optimizer) -> None:
        """Copy the parameters of a generator over fewer words, and its optimizer's state; new rows stay as initialized.

        row (V,): its id of each candidate, and of each context of one column, -1 for a new one.
        """
        classes = self.shortlist.class_rows(earlier.shortlist, row)
        copy_rows(self.e, earlier.e, row)
        copy_rows(self.w, earlier.w, classes)
        grow_optimizer(optimizer, earlier_optimizer.state_dict(), (row, classes))

    def forward(self, context: Tensor) -> Tensor:
        """log g of contexts (Q,) or (Q, columns): (Q, V), differentiable. The reference for the cache."""
        log_g = torch.log_softmax(self.z(context) @ self.w.T, 1)
        return log_g[:, self.shortlist.klass] + self.shortlist.log_within


def draw_rows(g: Tensor, row: Tensor, random: torch.Generator) -> Tensor:
    """Draw one column of row[i] of the probabilities g (Q, C) for each i: (n,).

    Inverse cumulative distribution in two levels, summed in float64: first the block, then the column in it.
    """
    sums = reduce_blocks(g, WIDTH, "sum").double()                                                # (Q, blocks)
    n_blocks, total = sums.shape[1], sums.sum(1)
    ends = sums.view(-1).cumsum(0)                                                         # rows end to end
    u = torch.rand(len(row), generator=random, device=g.device, dtype=torch.float64)
    u = (total.cumsum(0) - total)[row] + u * total[row]
    cell = torch.searchsorted(ends, u, right=True)
    cell = torch.minimum(torch.maximum(cell, row * n_blocks), row * n_blocks + n_blocks - 1)
    below = torch.where(cell > 0, ends[(cell - 1).clamp(min=0)], 0.0)
    ids, block_g = _block(g, row, cell - row * n_blocks, 0.0)                               # (n, WIDTH) each
    rank = torch.searchsorted(block_g.double().cumsum(1), (u - below).unsqueeze(1), right=True)
    return ids.gather(1, rank.clamp(max=WIDTH - 1)).squeeze(1)


def argmax_rows(g: Tensor) -> Tensor:
    """argmax of each row (Q,), the first of ties.

    Computed by blocks, because torch.argmax is not vectorized on a CPU.
    """
    block = reduce_blocks(g, WIDTH, "amax").argmax(1)
    ids, block_g = _block(g, torch.arange(len(g), device=g.device), block, -1.0)
    return ids.gather(1, block_g.argmax(1, keepdim=True)).squeeze(1)


def _block(g: Tensor, row: Tensor, block: Tensor, beyond: float) -> tuple[Tensor, Tensor]:
    """Columns and g of block[i] of row[i], (n, WIDTH) each; `beyond` where a short block has no more columns."""
    ids = (block * WIDTH).unsqueeze(1) + torch.arange(WIDTH, device=g.device)
    is_column = ids < g.shape[1]
    ids = ids.clamp(max=g.shape[1] - 1)
    return ids, torch.where(is_column, g[row.unsqueeze(1), ids], beyond)
