"""Scores that are negated distances between query vectors q (B, D) and candidates c: ids (1, K), ids (B, K) or vectors.

    l1  s = −Σ_d |q_d − c_d|        l2  s = −‖q − c‖        or any other function of the pair, passed as `pair_score`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from embtrain.kernels.device.support import has_triton
from embtrain.models.products import is_all_candidates

# Elements of an array of differences (B, K, D). Arrays beyond 32 MiB get new pages of the system each time, which takes
# three times as long as the arithmetic.
MAX_DIFFERENCES = 4_000_000

PairScore = Callable[[Tensor, Tensor], Tensor]  # q (B, 1, D), c (1|B, K, D) -> scores (B, K)


def vector_norms(x: Tensor, norm: Literal["l1", "l2"]) -> Tensor:
    """Return the norms over the last axis. torch.linalg.vector_norm has no fast path for l1."""
    return x.abs().sum(-1) if norm == "l1" else torch.linalg.vector_norm(x, dim=-1)


def moduli(x: Tensor) -> Tensor:
    """Return |x_d| (..., D/2) of complex numbers (..., D), real parts first; the gradient at 0 is 0.

    Computed by hand, because vector_norm is slow over an axis of length 2.
    """
    re, im = x.chunk(2, -1)
    return (re.square() + im.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()


def distance_scores(vector: Tensor, table: Tensor, candidates: Tensor, norm: Literal["l1", "l2"],
                    sparse: bool) -> Tensor:
    """Return l1 or l2 scores (B, K). Candidates shared by all rows need no (B, K, D) array."""
    if norm == "l1" and has_shared_kernel(vector, candidates):
        return shared_scores(vector, table, candidates, "l1", sparse)
    if not candidates.is_floating_point() and candidates.shape[0] == 1:
        is_all = is_all_candidates(candidates, len(table))  # no gather needed
        rows = table if is_all else nn.functional.embedding(candidates[0], table, sparse=sparse)  # (K, D)
        # From differences: |q|² + |c|² − 2 q·c loses all digits if q is near c.
        return -torch.cdist(vector, rows, p=1.0 if norm == "l1" else 2.0, compute_mode="donot_use_mm_for_euclid_dist")
    c = candidates if candidates.is_floating_point() else nn.functional.embedding(candidates, table, sparse=sparse)
    return -vector_norms(vector.unsqueeze(1) - c, norm)


def has_shared_kernel(vector: Tensor, candidates: Tensor) -> bool:
    """Return whether `shared_scores` can score these ids: shared by all rows, on a GPU with Triton."""
    return (vector.is_cuda and vector.dtype == torch.float32 and candidates.shape[0] == 1
            and not candidates.is_floating_point() and _kernels() is not None)


def shared_scores(vector: Tensor, table: Tensor, candidates: Tensor, geometry: Literal["l1", "modulus"],
                  sparse: bool) -> Tensor:
    """Return scores (B, K) of ids (1, K) on a GPU, without an array (B, K, D)."""
    is_all = is_all_candidates(candidates, len(table))
    rows = table if is_all else nn.functional.embedding(candidates[0], table, sparse=sparse)            # (K, D)
    return _Shared.apply(vector, rows, geometry)


@cache
def _kernels() -> Any:
    """The module of the device's kernels, None without Triton."""
    return import_module("embtrain.kernels.device.distances") if has_triton() else None


class _Shared(torch.autograd.Function):
    """Scores (B, K) of queries (B, D) and candidates (K, D), and their gradients."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, rows: Tensor, geometry: str) -> Tensor:
        ctx.save_for_backward(vector, rows)
        ctx.geometry = geometry
        return _kernels().scores(vector, rows, geometry)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        vector, rows = ctx.saved_tensors
        kernels, (needs_vector, needs_rows, _) = _kernels(), ctx.needs_input_grad
        return (kernels.gradient(g, vector, rows, ctx.geometry) if needs_vector else None,
                kernels.gradient(g.T, rows, vector, ctx.geometry) if needs_rows else None, None)


def pairwise_scores(vector: Tensor, table: Tensor, candidates: Tensor, pair_score: PairScore, sparse: bool) -> Tensor:
    """Return `pair_score` of all pairs, (B, K).

    If candidates are shared by all rows, it is computed for a few rows at a time to limit memory.
    """
    c = candidates if candidates.is_floating_point() else nn.functional.embedding(candidates, table, sparse=sparse)
    if c.shape[0] != 1 or len(vector) * c.shape[1] * c.shape[2] <= MAX_DIFFERENCES:
        return pair_score(vector.unsqueeze(1), c)
    step = max(1, MAX_DIFFERENCES // (c.shape[1] * c.shape[2]))
    return evaluate_in_pieces(pair_score, ((part.unsqueeze(1), c) for part in vector.split(step)), 0, len(vector))


def evaluate_in_pieces(function: Callable[..., Tensor], pieces: Iterable[tuple[Tensor, ...]], dim: int,
                       size: int) -> Tensor:
    """Evaluate `function` on each piece and join the results along `dim`, whose total size is `size`.

    With gradients enabled, each piece is recomputed in the backward pass instead of kept.
    """
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(function, *piece, use_reentrant=False, preserve_rng_state=False)
                          for piece in pieces], dim)
    out, filled = torch.empty(0, dtype=torch.float32, device="cpu"), 0
    for piece in pieces:
        part = function(*piece)
        if filled == 0:
            out = part.new_empty((*part.shape[:dim], size, *part.shape[dim + 1:]))
        # Copied, because small results kept between large temporaries would fragment memory and keep it allocated.
        out.narrow(dim, filled, part.shape[dim]).copy_(part)
        filled += part.shape[dim]
    return out
