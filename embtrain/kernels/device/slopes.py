"""Losses of skip-gram on a device: the loss of M pairs with K negatives each, and its derivatives by the scores.

Same formulas as kernels/reference/training/skipgram.py. All arguments are (M, K) or (M, 1) except the target's, which
are (M,). A negative that is not kept has slope 0, whatever its score. Any other score that is NaN makes the loss NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor


@triton.jit
def softplus(x: tensor) -> tensor:
    """log(1 + e^x) without overflow."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x: tensor) -> tensor:
    """1 / (1 + e^-x) without overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0.0, 1.0, e) / (1.0 + e)


@triton.jit
def slopes(s_t: tensor, s: tensor, shift_t: tensor, shift: tensor, weight: tensor, is_kept: tensor, is_pair: tensor,
           margin: tensor, positive_weight: tensor, LOSS: tl.constexpr) -> tensor:
    """Return the losses (M,), ∂L/∂s_t (M,) and ∂L/∂s_j (M, K).

    s_t, s: scores. shift_t, shift: subtracted from them by the losses that correct for q. is_pair (M,): 0 beyond the
    last pair. positive_weight: β of gBCE.
    """
    if LOSS == "margin":
        hinge = margin + s - s_t[:, None]
        g = tl.where(is_kept & ~(hinge <= 0.0), weight, 0.0)
        loss = tl.sum(tl.where(g != 0.0, g * hinge, 0.0), axis=1)
        g_t = -tl.sum(g, axis=1)
    elif LOSS == "sampled_softmax":
        o_t = s_t - shift_t
        o = tl.where(is_kept, s - shift, -float("inf"))
        top = tl.max(o, axis=1)
        top = tl.where(top > -float("inf"), top, 0.0)
        e = tl.where(is_kept, weight * tl.exp(tl.where(is_kept, o - top[:, None], 0.0)), 0.0)
        total = tl.sum(e, axis=1)
        has_negatives = total != 0.0  # NaN is not 0
        total = tl.where(has_negatives, total, 1.0)
        z = top + tl.log(total) - o_t
        is_pair = is_pair & has_negatives
        beaten = tl.where(is_pair, sigmoid(z), 0.0)
        loss = softplus(z)
        g_t = -beaten
        g = (beaten / total)[:, None] * e
    else:
        z_t = s_t - shift_t
        z = tl.where(is_kept, s - shift, 0.0)
        kept_weight = tl.where(is_kept, weight, 0.0)
        g = kept_weight * sigmoid(z)
        g_t = -sigmoid(-z_t)
        loss = softplus(-z_t)
        if LOSS == "gbce":
            g_t = positive_weight * g_t
            loss = positive_weight * loss
        loss += tl.sum(kept_weight * softplus(z), axis=1)
    return tl.where(is_pair, loss, 0.0), tl.where(is_pair, g_t, 0.0), tl.where(is_pair[:, None], g, 0.0)
