"""Distance of a source's q to the exact softmax p, and the gradient bias of sampled softmax that it causes.

    o (B, n) scores,  p = e^o / Z,  q (B, n) as the source reports it,  N_t all but the target t,  q̄ = q / (1 − q_t)
    KL(p‖q)    TV = ½ Σ |p − q|    ESS = 1 / Σ p² / q        effective share of the draws, in the χ² sense
    ∇  = ∂L/∂h = Σ_i p_i c_i − c_t                                         (Rawat et al. 2019, eq. 4; o = h·c)
    ∇' = p'_t c_t + Σ_j p'_j c_{s_j} − c_t,  p' ∝ (e^{o_t}, e^{o_{s_j}} / (m q̄_{s_j})),  s_j ~ q̄        (eq. 5, 6, 8)
    bias = ‖E ∇' − ∇‖,  rmse = √E‖∇' − ∇‖²,  E over R draws;  floor = √((rmse² − bias²) / (R − 1))

If the true bias is 0, R draws have a bias of about floor. Reports therefore give √max(0, E_h bias² − E_h floor²), with
means over the queries h (sampler_quality.py).

Theorem 1, with everything divided by Z (then it holds at any Z, and no e^o overflows), M ≥ |c_id|, without o(1/m):

    −M/m Σ_{k∈N_t} p_k |1 − p_t − p_k / q̄_k|  ≤  E ∇' − ∇  ≤  (χ − (1 − p_t)²)/m · g + 2M/m · gap (1 − p_t) / (1 + χ)
    χ = Σ_{N_t} p² / q̄,   gap = max p / q̄ − min p / q̄,   g = Σ_{N_t} p_j c_j

The upper bound fails in some coordinates with g < 0; it is valid only where g ≥ 0 (an erratum).
If draws may hit the target, and hits count nothing, the same holds with q instead of q̄ and p_t / q_t taken as 0: the
mean of what a draw adds to Z is 1 − p_t either way.

Theorem 2, D → ∞:  e^{o_i} / (q_i Z) = e^{(τ−ν) h·c_i} · Σ_j e^{ν h·c_j} / Σ_j e^{τ h·c_j}.  The paper omits the last
factor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ELEMENTS = 8_000_000  # elements in memory at once


@dataclass(frozen=True)
class Closeness:
    """KL, TV and ESS of each query, (B,) float64."""

    kl: Tensor
    tv: Tensor
    ess: Tensor


def closeness(o: Tensor, log_q: Tensor) -> Closeness:
    """Distances of q to p, from scores o and log q, (B, n) each. If q is 0 and p is not, KL is infinite and ESS 0."""
    log_p, log_q = o.double().log_softmax(1), log_q.double()
    p = log_p.exp()
    in_support = p > 0
    kl = torch.where(in_support, p * (log_p - log_q), 0.0).sum(1)
    chi = torch.where(in_support, (2 * log_p - log_q).exp(), 0.0).sum(1)
    return Closeness(kl, 0.5 * (p - log_q.exp()).abs().sum(1), 1 / chi)


def without_target(log_q: Tensor, target: Tensor) -> Tensor:
    """log q̄ (B, n): -inf at the target, renormalized over the others."""
    log_q = log_q.double().scatter(1, target.unsqueeze(1), -torch.inf)
    return log_q.log_softmax(1)


def gradient(o: Tensor, c: Tensor, target: Tensor) -> Tensor:
    """∇ of each query, (B, D) float64. o (B, n), c (n, D) with o = h·c."""
    return o.double().softmax(1) @ c.double() - c[target].double()


def sampled_gradient(o: Tensor, c: Tensor, target: Tensor, ids: Tensor, log_mq: Tensor) -> Tensor:
    """∇' of R draws of m, (B, R, D) float64: ids (B, R, m) and their log(m q̄). Hits of the target count nothing."""
    B, R, m = ids.shape
    o, c = o.double(), c.double()
    s = o.gather(1, ids.view(B, -1)).view(B, R, m) - log_mq.double()
    s = s.masked_fill(ids == target.view(B, 1, 1), -torch.inf)
    target_score = o.gather(1, target.unsqueeze(1)).view(B, 1, 1).expand(B, R, 1)
    p = torch.cat([target_score, s], 2).softmax(2)
    drawn_part = torch.einsum("brm,brmd->brd", p[:, :, 1:], c[ids])
    return drawn_part + (p[:, :, :1] - 1) * c[target].unsqueeze(1)


@dataclass(frozen=True)
class GradientError:
    """Gradient error of each query, (B,) float64; `size` is ‖∇‖."""

    m: int
    bias: Tensor
    floor: Tensor
    rmse: Tensor
    size: Tensor

    @property
    def unbiased(self) -> Tensor:
        """The bias without its Monte Carlo error: √max(0, bias² − floor²)."""
        return (self.bias.square() - self.floor.square()).clamp(min=0).sqrt()


def error_of_draws(o: Tensor, c: Tensor, target: Tensor, m: int, draws: int,
                   draw: Callable[[int], tuple[Tensor, Tensor]]) -> GradientError:
    """Bias and rmse of ∇' over `draws` draws of m negatives.

    draw(R) returns ids (B, R, m) and their log(M q), M their total weight.
    """
    exact = gradient(o, c, target)
    total, squared = torch.zeros_like(exact), torch.zeros(len(o), dtype=torch.float64, device=o.device)
    step = max(1, MAX_ELEMENTS // max(1, len(o) * m * c.shape[1]))
    for start in range(0, draws, step):
        deviation = sampled_gradient(o, c, target, *draw(min(step, draws - start))) - exact.unsqueeze(1)
        total += deviation.sum(1)
        squared += deviation.square().sum((1, 2))
    bias, rmse = (total / draws).norm(dim=1), (squared / draws).sqrt()
    spread = (squared / draws - bias.square()).clamp(min=0)
    return GradientError(m, bias, (spread / max(1, draws - 1)).sqrt(), rmse, exact.norm(dim=1))


@dataclass(frozen=True)
class Theorem1:
    """The quantities of eq. 12, divided by Z² or Z, and the bounds for m draws: lower (B, 1), upper and g (B, D)."""

    chi: Tensor    # (B,)
    gap: Tensor    # (B,)
    deviation: Tensor   # (B,)  Σ_k p_k |1 − p_t − p_k / q̄_k|
    lower: Tensor
    upper: Tensor
    g: Tensor


def theorem1(o: Tensor, c: Tensor, target: Tensor, log_q: Tensor, m: int) -> Theorem1:
    """Evaluate Theorem 1 for log_q (B, n): of q̄, -inf at the target, or of q, if hits of the target count nothing."""
    log_q, hits = log_q.double(), log_q.gather(1, target.unsqueeze(1)) > -torch.inf
    log_p = o.double().log_softmax(1)
    p = log_p.exp().scatter(1, target.unsqueeze(1), 0.0)                           # (B, n) on N_t
    rest = p.sum(1)                                                                # (B,) 1 − p_t
    not_target = torch.ones_like(p).scatter(1, target.unsqueeze(1), 0.0).bool()
    ratio = torch.where(not_target, (log_p - log_q).exp(), 0.0)                        # p / q̄
    chi = (p * ratio).sum(1)
    gap = ratio.amax(1) - ratio.masked_fill(~not_target & ~hits, torch.inf).amin(1)
    deviation = (p * (rest.unsqueeze(1) - ratio).abs()).sum(1)
    g, M = p @ c.double(), c.double().abs().max()
    upper = ((chi - rest.square()) / m).unsqueeze(1) * g + (2 * M / m * gap * rest / (1 + chi)).unsqueeze(1)
    return Theorem1(chi, gap, deviation, -(M / m * deviation).unsqueeze(1), upper, g)


@dataclass(frozen=True)
class Theorem2:
    """e^{o_i} / (q_i Z) divided by its limit in the theorem: the minimum and maximum over i, (B,) each."""

    low: Tensor
    high: Tensor
    factor: Tensor  # (B,)  Σ e^{ν h·c} / Σ e^{τ h·c}; in the paper's form, low and high are `factor` times these


def theorem2(o: Tensor, log_q: Tensor, tau: float, nu: float) -> Theorem2:
    """Theorem 2 for features of the Gaussian kernel with ν; o = τ h·c with unit vectors. The ratio tends to 1."""
    o = o.double()
    cosine = o / tau
    log_factor = (nu * cosine).logsumexp(1) - o.logsumexp(1)
    log_ratio = o.log_softmax(1) - log_q.double()
    log_error = log_ratio - (tau - nu) * cosine - log_factor.unsqueeze(1)
    return Theorem2(log_error.amin(1).exp(), log_error.amax(1).exp(), log_factor.exp())


def milliseconds(draw: Callable[[], object], seconds: float = 0.5, max_calls: int = 1000) -> float:
    """Median time of a call after one warm-up call, over `seconds` or `max_calls` calls, at least three."""
    draw()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or (len(times) < max_calls and time.perf_counter() - started < seconds):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return 1000 * sorted(times)[len(times) // 2]
