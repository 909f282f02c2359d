"""Losses of triples on a device: those of skip-gram, and the self-adversarial one.

self_adversarial: −log σ(γ + s_t) − Σ_j p_j log σ(−γ − s_j), p_j ∝ w_j exp(α s_j) without a gradient [sun2019].
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.slopes import slopes


@triton.jit
def row_slopes(s_t: tensor, s: tensor, shift_t: tensor, shift: tensor, weight: tensor, is_kept: tensor, is_row: tensor,
               margin: tensor, temperature: tensor, positive_weight: tensor, LOSS: tl.constexpr) -> tensor:
    """Return the losses (M,), ∂L/∂s_t (M,) and ∂L/∂s_j (M, K). Arguments are those of `slopes`.

    margin: η of the margin loss, γ of the self-adversarial one; temperature: α.
    """
    if LOSS == "self_adversarial":
        x = tl.where(is_kept, temperature * s, -float("inf"))
        top = tl.max(x, axis=1)
        top = tl.where(top > -float("inf"), top, 0.0)
        e = tl.where(is_kept, weight * tl.exp(tl.where(is_kept, x - top[:, None], 0.0)), 0.0)
        total = tl.sum(e, axis=1)
        p = e / tl.where(total > 0.0, total, 1.0)[:, None]
        loss, g_t, g = slopes(s_t, s, shift_t - margin, shift - margin, p, is_kept, is_row, margin, positive_weight,
                              "logistic")
    else:
        loss, g_t, g = slopes(s_t, s, shift_t, shift, weight, is_kept, is_row, margin, positive_weight, LOSS)
    return loss, g_t, g
