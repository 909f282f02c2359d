"""The normalizer of the von Mises-Fisher distribution and its derivative, for many κ².

    −Λ = log C(κ) − log C(0)      R = A(κ) / κ        by the uniform expansion and the recurrence of losses/bessel.py

The core computes in double for any dtype, the reference in the dtype of κ².
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import bessel as reference


def log_c(kappa2: np.ndarray, w: float, raised: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """−Λ and R (n,) of κ² (n,) >= 0, float32 or float64, in the same dtype.

    w > 0: the order of the expansion, `raised` above the order wanted. pairs (terms, 2) float64: coefficients of P(p) −
    P(1) and of ½ + p P'(p), the highest power first.
    """
    if kappa2.dtype not in (np.float32, np.float64):
        raise TypeError(f"bessel: κ² must be float32 or float64, got {kappa2.dtype}")
    kappa2_arg = array_arg("bessel: κ²", kappa2, kappa2.dtype.type, (kappa2.size,))
    pairs_arg = array_arg("bessel: pairs", pairs, np.float64, (len(pairs), 2))
    if not (0 <= raised <= w and 0 < w < np.inf) or len(pairs) < 1:
        raise ValueError(f"bessel: {len(pairs)} terms for the order {w}, raised by {raised}")
    if (library := core()) is None:
        return reference.log_c(kappa2, w, raised, pairs)
    log, r = np.empty_like(kappa2), np.empty_like(kappa2)
    call("bessel", library.embtrain_bessel_log_c, kappa2_arg, int(kappa2.dtype == np.float64), len(kappa2), float(w),
         raised, pairs_arg, len(pairs), pointer(log), pointer(r))
    return log, r
