"""Normalizer of the von Mises-Fisher distribution and its derivative: any d ≥ 2, any κ ≥ 0, one smooth formula.

    C(κ) = κ^v / ((2π)^{d/2} I_v(κ)),  v = d/2 − 1        R(κ) = A(κ) / κ,  A = −d log C / dκ = I_{v+1}(κ) / I_v(κ)

By the uniform expansion of I_w (Debye; Olver 1974, ch. 10 § 7) in p = w / s, s = √(w² + κ²), δ = s − w = κ² / (s + w):

    log κ^−w I_w(κ) = s − w log(w + s) − ½ log 2πs + P(p),   P(p) = Σ_{k=1}^K w^−k D_k(p),   Σ D_k x^k = log Σ U_k x^k
    R = 1 / (w + s) − (½ + p P'(p)) / s²

minus its value at 0:  Λ_w = δ − w log(1 + δ/2w) − ½ log(1 + δ/w) + P(p) − P(1).  log κ is never computed, there is no
cancellation, and κ = 0 is a regular point: R(0) = 1 / d. The expansion needs a large order, so a small one is raised
to w ≥ 24 and lowered again by the recurrence of I, which is stable downwards:

    R_{u−1} = 1 / (2u + κ² R_u)        Λ_{u−1} = Λ_u + log(1 + κ² R_u / 2u)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import torch
from torch import Tensor

from embtrain.kernels.reference.scoring import bessel as reference
from embtrain.kernels.scoring import bessel as kernel

MIN_ORDER = 24                                    # lowest order for which the expansion is used
TERMS = {torch.float32: 4, torch.float64: 10}     # K: the omitted terms are below rounding error

Polynomial = list[Fraction]                       # coefficients, p^0 first


def log_c(kappa2: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Return log C(κ) − log C(0) and R(κ) = A(κ) / κ for κ² (n,), in its dtype and without gradients."""
    v = d / 2 - 1
    n = max(0, math.ceil(MIN_ORDER - v))
    arguments = v + n, n, _coefficients(v + n, TERMS[kappa2.dtype])
    if kappa2.device.type != "cpu":
        return reference.log_c(kappa2, *arguments, torch.log1p)
    log, r = kernel.log_c(kappa2.detach().contiguous().numpy(), *arguments)
    return torch.from_numpy(log), torch.from_numpy(r)


def log_c0(d: int) -> float:
    """Return log C(0). C(0) = Γ(d/2) / (2 π^{d/2}) is one over the surface of the sphere."""
    return math.lgamma(d / 2) - math.log(2) - d / 2 * math.log(math.pi)


@cache
def _coefficients(w: float, K: int) -> np.ndarray:
    """Return the coefficients of P(p) − P(1) and of ½ + p P'(p), in pairs, highest power first: (3K + 1, 2)."""
    P = [0.0] * (3 * K + 1)
    for k, D_k in enumerate(_debye(K), 1):
        for i, c in enumerate(D_k):
            P[i] += float(c) / w ** k
    P[0] -= sum(P)
    slope = [i * c for i, c in enumerate(P)]
    slope[0] += 0.5
    return np.array([P[::-1], slope[::-1]]).T.copy()


@cache
def _debye(K: int) -> tuple[Polynomial, ...]:
    """Return D_1 … D_K, the coefficients of the logarithm, from U_0 = 1 and

        U_{k+1} = ½ p² (1 − p²) U_k' + ⅛ ∫_0^p (1 − 5t²) U_k dt        k U_k = Σ_{j=1}^k j D_j U_{k−j}
    """
    U: list[Polynomial] = [[Fraction(1)]]
    for _ in range(K):
        new = [Fraction(0)] * (len(U[-1]) + 3)
        for i, c in enumerate(U[-1]):
            new[i + 1] += c * i / 2 + c / (8 * (i + 1))
            new[i + 3] -= c * i / 2 + 5 * c / (8 * (i + 3))
        U.append(new)
    D: list[Polynomial] = [[]]
    for k in range(1, K + 1):
        rest = [k * c for c in U[k]]
        for j in range(1, k):
            for a, x in enumerate(D[j]):
                for b, y in enumerate(U[k - j]):
                    rest[a + b] -= j * x * y
        D.append([c / k for c in rest])
    return tuple(D[1:])
