"""Settings of adversarial contrastive estimation (ace.py)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embtrain.negatives.base import NegativesConfig


class AceConfig(NegativesConfig):
    """Settings of `ace`."""

    mix: float = Field(0.5, ge=0, le=1, description="λ, weight of the noise; 1: noise alone, 0: adversary alone (ADV)")
    sampling: Literal["mixture", "stratified"] = Field(
        "mixture", description="k draws from the mixture, or k of the noise (weight λ) and k of the adversary (1-λ)")
    exponent: float = Field(0.75, ge=-10, le=10, description="α of the noise p_nce ∝ n(y)^α")
    counts: Literal["raw", "subsampled"] = Field(
        "raw", description="n(y), raw or after the subsampling of frequent words")
    hidden: int = Field(31, ge=1, le=4096, description="dimension of the generator; one less than 16, 32, ... is fast")
    generator_lr: float = Field(0.01, gt=0, description="learning rate of the generator, with Adam")
    update_every: int = Field(0, ge=0, description=(
        "draws (rows, under share_draws_by: block) between two generator steps; 0: those of a chunk"))
    shortlist: int | None = Field(None, ge=1, description="S, candidates with their own logit; null: all")
    groups: int = Field(128, ge=1, description="T, groups of the other candidates, which keep the shares of the noise")
    entropy: float = Field(1.0, ge=0, description="β, weight of the entropy hinge; 0: none")
    min_perplexity: int | None = Field(
        None, ge=1, description="e^c, perplexity of the generator below which the entropy hinge applies; null: 500, or "
                                "half of the candidates if they are fewer")
    baseline: Literal["none", "moving", "leave_one_out", "self_critical"] = Field(
        "self_critical", description="b, baseline of the reward")
    importance: bool = Field(True, description="learn from the noise negatives too, weighted by ρ")
    clip: float = Field(10.0, gt=0, description="largest ρ")
    penalty: float = Field(
        1.0, ge=0, description="negative reward of a masked known positive, in running standard deviations; 0: none")
