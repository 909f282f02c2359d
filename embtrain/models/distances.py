"""Scores that are negated distances, of query vectors q (B, D) and candidates c: ids (1, K), ids (B, K) or vectors.

    l1  s = −Σ_d |q_d − c_d|        l2  s = −‖q − c‖        or any other function of the pair, given as `between`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from embtrain.models.products import is_all_candidates

CELLS = 64_000_000  # numbers of all pairs' differences held at once

Between = Callable[[Tensor, Tensor], Tensor]  # q (B, 1, D), c (1|B, K, D) -> scores (B, K)


def length(x: Tensor, norm: Literal["l1", "l2"]) -> Tensor:
    """Of the last axis. vector_norm has no fast way to an l1."""
    return x.abs().sum(-1) if norm == "l1" else torch.linalg.vector_norm(x, dim=-1)


def moduli(x: Tensor) -> Tensor:
    """|x_d| (..., D/2) of complex numbers (..., D), real parts first; the gradient at 0 is 0. vector_norm is slow
    over an axis of two."""
    re, im = x.chunk(2, -1)
    return (re.square() + im.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()


def distance_scores(vector: Tensor, table: Tensor, candidates: Tensor, norm: Literal["l1", "l2"],
                    sparse: bool) -> Tensor:
    """l1 or l2. Candidates shared by all rows take no (B, K, D) numbers."""
    if not candidates.is_floating_point() and candidates.shape[0] == 1:
        everyone = is_all_candidates(candidates, len(table))  # then nothing is gathered
        rows = table if everyone else nn.functional.embedding(candidates[0], table, sparse=sparse)  # (K, D)
        # By differences: |q|² + |c|² − 2 q·c has no digits left where q is near c.
        return -torch.cdist(vector, rows, p=1.0 if norm == "l1" else 2.0, compute_mode="donot_use_mm_for_euclid_dist")
    c = candidates if candidates.is_floating_point() else nn.functional.embedding(candidates, table, sparse=sparse)
    return -length(vector.unsqueeze(1) - c, norm)


def pairwise_scores(vector: Tensor, table: Tensor, candidates: Tensor, between: Between, sparse: bool) -> Tensor:
    """`between` of all pairs. Where candidates are shared by all rows, some rows at a time: every candidate of a large
    table would not fit otherwise."""
    c = candidates if candidates.is_floating_point() else nn.functional.embedding(candidates, table, sparse=sparse)
    if c.shape[0] != 1 or len(vector) * c.shape[1] * c.shape[2] <= CELLS:
        return between(vector.unsqueeze(1), c)
    step = max(1, CELLS // (c.shape[1] * c.shape[2]))
    return in_pieces(between, ((part.unsqueeze(1), c) for part in vector.split(step)), 0, len(vector))


def in_pieces(between: Callable[..., Tensor], pieces: Iterable[tuple[Tensor, ...]], dim: int, size: int) -> Tensor:
    """`between` of each piece, joined along `dim` to `size`; what the backward pass needs of one is made again."""
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(between, *piece, use_reentrant=False, preserve_rng_state=False)
                          for piece in pieces], dim)
    out, at = torch.empty(0), 0
    for piece in pieces:
        part = between(*piece)
        if at == 0:
            out = part.new_empty((*part.shape[:dim], size, *part.shape[dim + 1:]))
        # Copied, for small results that are kept lie between large ones that are not, and hold on to their memory.
        out.narrow(dim, at, part.shape[dim]).copy_(part)
        at += part.shape[dim]
    return out
