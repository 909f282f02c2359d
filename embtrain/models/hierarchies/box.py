"""Gumbel boxes: a concept is a box with random corners, and the box of a hypernym contains that of its hyponyms.
[dasgupta2020].

    corners     m + Gumbel noise of scale β, and M − Gumbel noise, so that E[side] ≈ β softplus((M − m) / β − 2γ)
    volume      Vol = Π_i β softplus((M_i − m_i) / β − 2γ)            γ: Euler's constant; eq. 9
    u ∩ v       m = β logsumexp(m_u / β, m_v / β),  M = −β logsumexp(−M_u / β, −M_v / β)
    P(v | u)    = Vol(u ∩ v) / Vol(u)                                 u the hyponym, v the hypernym
    s(u, v)     = log P − log(1 − P)

The loss `logistic` of s is the cross-entropy of P, and s ≥ 0 where P ≥ ½. A row of the table is (c, t) of D / 2
numbers each: the centre and the log of half the side, so M − m = 2 eᵗ > 0. All boxes overlap a little, whatever their
distance, so every pair has a gradient. Containment of probability ½ is not transitive.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.types import ProblemSpec
from embtrain.models.base import ModelConfig, require_even
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import keep_columns

EULER = 0.5772156649015329
MIN_LOG = 1e-9           # of −log P: where boxes contain others surely, 1 − P is rounded to 0
MAX_LOG_SIDE = 20.0      # |t|


class BoxConfig(ModelConfig):
    """Configuration keys of Gumbel boxes."""

    name: str = "box"
    dim: int = Field(20, ge=2, le=65_536, description="D, embedding dimension: centres and sides, so it must be even")
    beta: float = Field(0.05, gt=0, le=100, description="β, scale of the noise of the corners")
    start: float = Field(0.5, gt=0, le=1e6, description="bound of the initial centres; half of the initial sides")


class Box(HierarchyModel):
    """Gumbel boxes: one table x (V, D), centres c ~ U(−start, start) and log half sides t."""

    name: ClassVar[str] = "box"
    Config = BoxConfig
    geometry = "order"
    entailment: ClassVar[str] = "log odds of P(v | u)"
    config: BoxConfig

    def __init__(self, config: BoxConfig, problem: ProblemSpec):
        require_even(config.name, config.dim, "centres and half for sides")
        super().__init__(config, problem)

    def start(self, generator: torch.Generator) -> Tensor:
        shape = self.problem.n_candidates, self.config.dim // 2
        centre = (2 * torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu") - 1) * self.config.start
        return torch.cat([centre, torch.full(shape, self.config.start, dtype=torch.float32, device="cpu").log()], 1)

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        assert isinstance(config, BoxConfig)
        beta, ((low_u, high_u), (low_v, high_v)) = config.beta, (corners(u), corners(v))
        low = beta * torch.logaddexp(low_u / beta, low_v / beta)
        high = -beta * torch.logaddexp(-high_u / beta, -high_v / beta)
        log_p = _log_volume(high - low, beta) - _log_volume(high_u - low_u, beta)
        log_p = -(-log_p).clamp_min(MIN_LOG)
        return log_p - (-torch.expm1(log_p)).log()

    def keep_bounds(self) -> None:
        keep_columns(self.x, self.x.grad, slice(self.config.dim // 2, None), -MAX_LOG_SIDE, MAX_LOG_SIDE)


def corners(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the corners m and M of rows (c, t) (..., D): (..., D / 2) each."""
    centre, log_half = x.chunk(2, -1)
    return centre - log_half.exp(), centre + log_half.exp()


def _log_volume(side: Tensor, beta: float) -> Tensor:
    """Return log Vol of boxes with sides M − m (..., D / 2): (...), without the constant Σ log β."""
    x = side / beta - 2 * EULER
    # softplus(x) is eˣ there, and its log would be −∞
    return torch.where(x < -20, x, nn.functional.softplus(x.clamp_min(-20)).log()).sum(-1)
