"""Scores that are dot products h·c or cosines τ cos(h, c) of queries h (B, D) and candidates c.

A query is the vector that a model computes for an example, a candidate c a row of its output table (V, D). Candidates
are ids shared by all queries (1, K), ids per query (B, K) or vectors (B, K, D). On the CPU the compiled core, the C++
kernels of embtrain/kernels if they are built, reads the rows of (B, K) ids in place instead of copying them to (B, K,
D), and multiplies with all rows where no gradient is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.kernels.core.loader import core
from embtrain.kernels.scoring import gathered_dot, table_products

FEWEST = 8                # queries for which the core transposes a table; PyTorch multiplies fewer faster
MIN_SQUARED_NORM = 1e-24  # lower bound of ‖c‖², as torch's normalize bounds ‖c‖ by 1e-12


def dot_scores(vector: Tensor, table: Tensor, candidates: Tensor, sparse: bool) -> Tensor:
    """Return h·c, (B, K), differentiable in `vector` (h) and in the table or, if they are vectors, the candidates.

    sparse: whether the gradient of the table is a sparse tensor, where rows are gathered. If all candidates are scored
    it is dense in any case.
    """
    if candidates.is_floating_point():
        return torch.einsum("bd,bkd->bk", vector, candidates)
    if is_all_candidates(candidates, len(table)):
        return every_product(vector, table)                           # no gather
    if _reads_in_place(vector, table, candidates):
        return _Gathered.apply(vector, table, candidates, sparse)[0]
    rows = nn.functional.embedding(candidates, table, sparse=sparse)  # (1|B, K, D)
    if candidates.shape[0] == 1:
        return vector @ rows[0].T
    return torch.bmm(rows, vector.unsqueeze(2)).squeeze(2)


def cosine_scores(vector: Tensor, table: Tensor, candidates: Tensor, sparse: bool, tau: float) -> Tensor:
    """Return τ cos(h, c), (B, K); 0 if a vector has length 0. `sparse` as in `dot_scores`."""
    h = tau * nn.functional.normalize(vector, dim=1)                  # not τ (ĥ·c), which is one more pass over (B, K)
    if candidates.is_floating_point():
        return dot_scores(h, table, nn.functional.normalize(candidates, dim=2), sparse)
    if is_all_candidates(candidates, len(table)):
        is_small_batch = len(h) < table.shape[1]  # a pass over (B, V) is shorter than one over (V, D)
        return _Cosines.apply(h, table) if is_small_batch else every_product(h, nn.functional.normalize(table, dim=1))
    if _reads_in_place(vector, table, candidates):
        s, squared_norm = _Gathered.apply(h, table, candidates, sparse)
        return s / squared_norm.clamp(min=MIN_SQUARED_NORM).sqrt()
    rows = nn.functional.normalize(nn.functional.embedding(candidates, table, sparse=sparse), dim=2)  # (1|B, K, D)
    return h @ rows[0].T if len(rows) == 1 else torch.bmm(rows, h.unsqueeze(2)).squeeze(2)


def every_product(vector: Tensor, table: Tensor) -> Tensor:
    """Return h·c of every row c of the table, (B, V). By the core, if it is there and no gradient is needed."""
    needs_gradient = torch.is_grad_enabled() and (vector.requires_grad or table.requires_grad)
    if len(vector) < FEWEST or needs_gradient or not _is_float32_on_cpu(vector, table) or core() is None:
        return vector @ table.T
    rows = table if _has_rows(table) else table.contiguous()
    return torch.from_numpy(table_products.products(_array(vector.contiguous()), _array(rows), torch.get_num_threads()))


@cache
def all_candidates(n: int, device: torch.device) -> Tensor:
    """Return the ids 0, 1, ..., n - 1, (1, n), the same tensor at each call; do not write to it."""
    with torch.inference_mode(False):                # else autograd refuses the ids of a first call by an evaluation
        return torch.arange(n, device=device).unsqueeze(0)


def is_all_candidates(candidates: Tensor, n: int) -> bool:
    """Return whether these ids are 0, 1, ..., n - 1, shared by all rows. Does not compare those of `all_candidates`."""
    if candidates.shape != (1, n):
        return False
    every = all_candidates(n, candidates.device)
    return candidates is every or torch.equal(candidates, every)         # on a GPU the host waits for a comparison


def _reads_in_place(vector: Tensor, table: Tensor, candidates: Tensor) -> bool:
    """Return whether the core reads ids per query in place. With one id per query (K = 1) PyTorch is as fast."""
    return (candidates.shape[0] > 1 and candidates.shape[1] > 1 and _is_float32_on_cpu(vector, table)
            and _has_rows(table) and core() is not None)


def _has_rows(table: Tensor) -> bool:
    """Return whether each row of a table is contiguous and begins after the one before, as the core reads it."""
    return table.stride(1) == 1 and table.stride(0) >= table.shape[1]


def _is_float32_on_cpu(vector: Tensor, table: Tensor) -> bool:
    return table.device.type == "cpu" and table.dtype == vector.dtype == torch.float32


class _Cosines(torch.autograd.Function):
    """s = h·c / ‖c‖ for every row c of a table, (B, V). With g = ∂L/∂s, (B, V),

        ∂L/∂c = Σ_b (g_b/‖c‖) h_b − (Σ_b g_b s_b) c/‖c‖²

    The table is read once for ‖c‖, once for h·c and once for each of the two terms, whereas autograd copies it for each
    step of the gradient of ‖c‖. A norm below its lower bound counts as a constant: the second term is 0 then.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(table, dim=1).clamp(min=MIN_SQUARED_NORM**0.5)  # (V,)
        s = every_product(h, table).div_(norm)
        ctx.save_for_backward(h, table, norm, s)
        return s

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        h, table, norm, s = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _twice_differentiable(lambda h, c: (h @ nn.functional.normalize(c, dim=1).T,), (h, table), (g,))
        scaled, grad_h, grad_c = g / norm, None, None                         # (B, V)
        if ctx.needs_input_grad[0]:
            grad_h = scaled @ table
        if ctx.needs_input_grad[1]:
            # where the norm is clamped, it is a constant
            along = torch.where(norm > MIN_SQUARED_NORM**0.5, (g * s).sum(0) / norm.square(), 0)
            grad_c = (table * -along.unsqueeze(1)).addmm_(scaled.T, h)
        return grad_h, grad_c


class _Gathered(torch.autograd.Function):
    """s = h·c and the squared norms c·c, (B, K) each, for ids (B, K), and their gradients."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor, ids: Tensor, sparse: bool) -> tuple[Tensor, Tensor]:
        ids = ids.contiguous()
        ctx.save_for_backward(h, table, ids)                          # h as it came: its copy would have no gradient
        ctx.sparse = sparse
        ctx.set_materialize_grads(False)
        s, squared_norm = gathered_dot.products(_array(h.contiguous()), _array(table), _array(ids),
                                                torch.get_num_threads())
        return torch.from_numpy(s), torch.from_numpy(squared_norm)

    @staticmethod
    def backward(ctx: Any, grad_s: Tensor | None, grad_n: Tensor | None) -> tuple[Tensor | None, ...]:
        (vector, table, candidates), threads = ctx.saved_tensors, torch.get_num_threads()
        if torch.is_grad_enabled():
            def products(h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
                rows = nn.functional.embedding(candidates, c, sparse=ctx.sparse)
                return torch.bmm(rows, h.unsqueeze(2)).squeeze(2), rows.square().sum(2)
            return *_twice_differentiable(products, (vector, table), (grad_s, grad_n)), None, None
        h, c, ids = _array(vector.contiguous()), _array(table), _array(candidates)
        g = np.zeros(ids.shape, np.float32) if grad_s is None else _array(grad_s.contiguous())
        m = None if grad_n is None else _array(grad_n.contiguous())
        grad_h = grad_c = None
        if ctx.needs_input_grad[0]:
            grad_h = torch.from_numpy(gathered_dot.query_gradient(g, c, ids, threads))
        if ctx.needs_input_grad[1]:
            gradient = gathered_dot.table_gradient(g, m, h, c, ids, threads)
            # each id once and ascending, which is_coalesced states, so that the optimizer need not sort them
            rows, values = torch.from_numpy(gradient.ids), torch.from_numpy(gradient.values)
            grad_c = sparse_gradient(rows, values, table.shape, True) if ctx.sparse \
                else table.new_zeros(table.shape).index_copy_(0, rows, values)
        return grad_h, grad_c, None, None


def _twice_differentiable(function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...],
                          grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Gradients of a function of PyTorch, None of an input that needs none, with a graph for their own gradients.

    For a backward pass with create_graph=True, as gradient penalties need: it enables gradients, others disable them.
    An output may depend on inputs alone that need no gradient.
    """
    pairs = [(y, g) for y, g in zip(function(*inputs), grads, strict=True) if g is not None and y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    outputs, known = zip(*pairs, strict=True)
    wanted = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, known, create_graph=True, allow_unused=True))
    return tuple(next(found) if x.requires_grad else None for x in inputs)


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def sparse_gradient(rows: Tensor, values: Tensor, shape: torch.Size, is_coalesced: bool | None = None) -> Tensor:
    """The gradient of a table as a sparse tensor, without checks: rows (R,) and their gradients (R, D).

    is_coalesced: whether rows are ascending and each occurs once; None: unknown.
    """
    with torch.sparse.check_sparse_tensor_invariants(False):     # or torch warns that nothing is checked
        return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, dtype=values.dtype, device=values.device,
                                       is_coalesced=is_coalesced)
