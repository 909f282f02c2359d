"""Vectors of triples on a device: queries, scores, their gradients, and the constraint of entities.

    l1  q = a ± r, s = −Σ_d |q_d − b_d|      l2  q = a ± r, s = −‖q − b‖      dot  q = a ∘ r, s = q · b

q and b broadcast against each other, with the dimensions last. Values beyond DIM are 0.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.row_updates import load_rows


@triton.jit
def queries(a: tensor, r: tensor, sign: tensor, SCORE: tl.constexpr) -> tensor:
    """Return q of entities a (M, D) and relations r (M, D); sign (M,): −1 where the head is predicted."""
    if SCORE == "dot":
        q = a * r
    else:
        q = a + sign[:, None] * r
    return q


@triton.jit
def scores(q: tensor, b: tensor, SCORE: tl.constexpr) -> tensor:
    """Return the scores (M,) of q (M, D) with b, (M, D) or (1, D)."""
    if SCORE == "dot":
        s = tl.sum(q * b, axis=1)
    elif SCORE == "l1":
        s = -tl.sum(tl.abs(q - b), axis=1)
    else:
        s = -tl.sqrt(tl.sum((q - b) * (q - b), axis=1))
    return s


@triton.jit
def candidate_gradients(g: tensor, q: tensor, b: tensor, SCORE: tl.constexpr) -> tensor:
    """Return g ∂s/∂b, (M, D), for slopes g (M,); 0 where g is 0, even if b is infinite."""
    if SCORE == "dot":
        gradient = g[:, None] * q
    elif SCORE == "l1":
        step = g[:, None]
        gradient = tl.where(q > b, step, tl.where(q < b, -step, 0.0))
    else:
        # the distance is computed again: other programs may have moved b since it was scored
        difference = q - b
        distance = tl.sqrt(tl.sum(difference * difference, axis=1))
        factor = tl.where((g != 0.0) & (distance > 0.0), g / tl.where(distance > 0.0, distance, 1.0), 0.0)
        gradient = tl.where((factor != 0.0)[:, None], factor[:, None] * difference, 0.0)
    return gradient


@triton.jit
def query_gradients(gradient: tensor, g: tensor, b: tensor, SCORE: tl.constexpr) -> tensor:
    """Return g ∂s/∂q, (M, D), from `candidate_gradients`."""
    if SCORE == "dot":
        result = tl.where((g != 0.0)[:, None], g[:, None] * b, 0.0)
    else:
        result = -gradient
    return result


@triton.jit
def project_rows(table: tensor, stride: tensor, row: tensor, is_projected: tensor, d: tensor, DIM: tl.constexpr,
                 CONSTRAINT: tl.constexpr) -> None:
    """Scale rows (R,) to length 1 (sphere) or at most 1 (ball), in place. An addition meanwhile may be lost."""
    x = load_rows(table, stride, row, is_projected, d, DIM)
    length = tl.sqrt(tl.sum(x * x, axis=1))
    if CONSTRAINT == "ball":
        is_projected = is_projected & (length > 1.0)
    x = x / tl.maximum(length, 1e-12)[:, None]
    tl.store(table + row[:, None] * stride + d[None, :], x, mask=is_projected[:, None] & (d < DIM)[None, :])
