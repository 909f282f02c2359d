"""Rounding of scores: how far the scores of equal candidates can be apart.

A product rounds in another way than a dot product, and in another way at its last columns or rows. Equal vectors
then have scores that differ in the last digits, and a comparison without a margin would rank them in some order.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 16  # machine epsilons of a score's scale: differences up to it are rounding


def tie_bounds(geometry: str, tau: float, scores: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest score, (n,) each, that tie with scores (n,) of queries h and candidates x.

    The margin is ROUNDING machine epsilons of a bound of the terms that are summed: ‖h‖ ‖x‖ for dot products, τ for
    cosines, else |s|, as distances are sums without cancellation. It depends only on the query and the candidate, so
    that one long candidate does not tie the others. Numbers of less than 32 bits get the margin of float32, in which
    their products are summed; rounded to their type it is mostly zero, so that they are compared exactly. An infinite
    score ties with itself.

    h (n, D), x (n, D): the vectors; read only for the geometry dot.
    """
    exact = scores.double()
    if geometry == "dot":
        size = torch.linalg.vector_norm(h.double(), dim=1) * torch.linalg.vector_norm(x.double(), dim=1)
    else:
        size = torch.full_like(exact, tau) if geometry == "cosine" else exact.abs()
    epsilon = torch.finfo(torch.promote_types(scores.dtype, torch.float32)).eps
    margin = torch.where(exact.isfinite(), ROUNDING * epsilon * size, 0.0)
    return (exact - margin).to(scores.dtype), (exact + margin).to(scores.dtype)
