"""The normalizer of the von Mises-Fisher distribution and its derivative, for many κ².

    −Λ = log C(κ) − log C(0)      R = A(κ) / κ, the ratio of Bessel functions over κ

The uniform expansion of the Bessel function of order w is lowered `raised` times by the three-term recurrence, as
losses/bessel.py explains. `log_c` returns −Λ and R in the shape and dtype of κ². It is written for NumPy arrays and,
with `log1p=torch.log1p`, for tensors on any device; kernels/scoring/bessel.py runs it if the compiled core is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def log_c(kappa2: Any, w: float, raised: int, pairs: Any, log1p: Callable[[Any], Any] = np.log1p) -> tuple[Any, Any]:
    s = (kappa2 + w * w) ** 0.5
    p, delta = w / s, kappa2 / (s + w)
    P = slope = 0.0 * p
    for p_term, slope_term in pairs.tolist():
        P, slope = P * p + p_term, slope * p + slope_term
    log = delta - w * log1p(delta / (2 * w)) - 0.5 * log1p(delta / w) + P                # Λ_w
    r = 1 / (s + w) - slope / (s * s)
    for i in range(raised):
        x = kappa2 * r
        u2 = 2 * (w - i)
        log, r = log + log1p(x / u2), 1 / (u2 + x)
    return -log, r
