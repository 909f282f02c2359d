"""Scores that are dot products h·c or cosines τ cos(h, c) of queries h (B, D) and candidates c.

Candidates are shared ids (1, K), ids per row (B, K) or vectors (B, K, D). On the CPU the compiled core reads per-row
candidates in place instead of gathering them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from embtrain.kernels.core.loader import core
from embtrain.kernels.scoring import gathered_dot


def dot_scores(vector: Tensor, table: Tensor, candidates: Tensor, sparse: bool) -> Tensor:
    """Return h·c, (B, K). `sparse`: whether the gradient of the table is a sparse tensor."""
    if candidates.is_floating_point():
        return torch.einsum("bd,bkd->bk", vector, candidates)
    if is_all_candidates(candidates, len(table)):
        return vector @ table.T                                       # every candidate: one GEMM, no gather
    if _reads_in_place(vector, table, candidates):
        return _Gathered.apply(vector, table, candidates, sparse)[0]
    rows = nn.functional.embedding(candidates, table, sparse=sparse)  # (1|B, K, D)
    if candidates.shape[0] == 1:
        return vector @ rows[0].T
    return torch.bmm(rows, vector.unsqueeze(2)).squeeze(2)


def cosine_scores(vector: Tensor, table: Tensor, candidates: Tensor, sparse: bool, tau: float) -> Tensor:
    """Return τ cos(h, c), (B, K); 0 if a vector has length 0."""
    h = tau * nn.functional.normalize(vector, dim=1)                  # not τ (ĥ·c), which is one more pass over (B, K)
    if candidates.is_floating_point():
        return dot_scores(h, table, nn.functional.normalize(candidates, dim=2), sparse)
    if is_all_candidates(candidates, len(table)):
        is_small_batch = len(h) < table.shape[1]  # a pass over (B, V) is shorter than one over (V, D)
        return _Cosines.apply(h, table) if is_small_batch else h @ nn.functional.normalize(table, dim=1).T
    if _reads_in_place(vector, table, candidates):
        s, n = _Gathered.apply(h, table, candidates, sparse)
        return s / n.clamp(min=MIN_SQUARED_NORM).sqrt()
    rows = nn.functional.normalize(nn.functional.embedding(candidates, table, sparse=sparse), dim=2)  # (1|B, K, D)
    return h @ rows[0].T if len(rows) == 1 else torch.bmm(rows, h.unsqueeze(2)).squeeze(2)


MIN_SQUARED_NORM = 1e-24  # normalize uses 1e-12 for the norm


def is_all_candidates(candidates: Tensor, n: int) -> bool:
    """Return whether these ids are 0, 1, ..., n - 1, shared by all rows."""
    return candidates.shape == (1, n) and torch.equal(candidates[0], torch.arange(n, device=candidates.device))


def _reads_in_place(vector: Tensor, table: Tensor, candidates: Tensor) -> bool:
    """Return whether the core reads per-row candidates in place. With one id per row PyTorch is as fast."""
    return (candidates.shape[0] > 1 and candidates.shape[1] > 1 and table.device.type == "cpu"
            and table.dtype == vector.dtype == torch.float32 and core() is not None)


class _Cosines(torch.autograd.Function):
    """s = h·c / ‖c‖ for every row c of a table, (B, V). The table is read once for ‖c‖ and twice for its gradient

        ∂c = (g/‖c‖)ᵀ h − (Σ_b g s) c/‖c‖²

    whereas autograd copies the table for each step of ∂‖c‖.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor) -> Tensor:
        n = torch.linalg.vector_norm(table, dim=1).clamp(min=MIN_SQUARED_NORM**0.5)  # (V,)
        s = (h @ table.T).div_(n)
        ctx.save_for_backward(h, table, n, s)
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        h, table, n, s = ctx.saved_tensors
        scaled, grad_h, grad_c = g / n, None, None                         # (B, V)
        if ctx.needs_input_grad[0]:
            grad_h = scaled @ table
        if ctx.needs_input_grad[1]:
            # No gradient where the norm is clamped.
            along = torch.where(n > MIN_SQUARED_NORM**0.5, (g * s).sum(0) / n.square(), 0)
            grad_c = (table * -along.unsqueeze(1)).addmm_(scaled.T, h)
        return grad_h, grad_c


class _Gathered(torch.autograd.Function):
    """s = h·c and n = c·c, (B, K), for ids (B, K)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor, ids: Tensor, sparse: bool) -> tuple[Tensor, Tensor]:
        h, ids = h.contiguous(), ids.contiguous()
        ctx.save_for_backward(h, table, ids)
        ctx.sparse = sparse
        ctx.set_materialize_grads(False)
        s, n = gathered_dot.products(_array(h), _array(table), _array(ids), torch.get_num_threads())
        return torch.from_numpy(s), torch.from_numpy(n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_s: Tensor | None,
                 grad_n: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        table, threads = ctx.saved_tensors[1], torch.get_num_threads()
        h, c, ids = map(_array, ctx.saved_tensors)
        g = np.zeros(ids.shape, np.float32) if grad_s is None else _array(grad_s.contiguous())
        m = None if grad_n is None else _array(grad_n.contiguous())
        grad_h = grad_c = None
        if ctx.needs_input_grad[0]:
            grad_h = torch.from_numpy(gathered_dot.query_gradient(g, c, ids, threads))
        if ctx.needs_input_grad[1]:
            gradient = gathered_dot.table_gradient(g, m, h, c, ids, threads)
            rows, values = torch.from_numpy(gradient.ids), torch.from_numpy(gradient.values)
            grad_c = torch.sparse_coo_tensor(rows.unsqueeze(0), values, table.shape, check_invariants=False,
                                             is_coalesced=True) if ctx.sparse \
                else torch.zeros(table.shape).index_copy_(0, rows, values)
        return grad_h, grad_c, None, None


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()
