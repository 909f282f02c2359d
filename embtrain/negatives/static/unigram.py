"""Unigram noise raised to a power: Q(b) ∝ n(b)^α.

α = 1 is the unigram of NCE (Gutmann and Hyvärinen 2010; Mnih and Teh 2012), α = .75 that of word2vec (Mikolov et al.
2013; the exponent is in its code). n(b) counts b as a target, either before subsampling, as word2vec does, or after it.

NCE needs Q(b) > 0 wherever P(b|a) > 0: a candidate that is never drawn keeps its initial scores, and log-odds against Q
have no log P. In a run, where a candidate can be a held-out positive without being one in training, a count of 0
therefore counts as the smallest count above 0 (`ProblemSpec.floors_counts`).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.static.base import StaticSource


class UnigramConfig(NegativesConfig):
    """Settings of `unigram`."""

    exponent: float = Field(0.75, ge=-10, le=10, description="α; 1: unigram, .75: word2vec, 0: uniform")
    counts: Literal["raw", "subsampled"] = Field(
        "raw", description="n(b), raw or after the subsampling of frequent words")


class Unigram(StaticSource):
    """Noise by counts to a power."""

    name = "unigram"
    Config = UnigramConfig

    def masses(self) -> Tensor:
        return unigram_masses(self.problem, self.config.exponent, self.config.counts)  # type: ignore[attr-defined]


def unigram_masses(problem: ProblemSpec, exponent: float, kind: str) -> Tensor:
    """Unnormalized noise n(b)^α, (V,) float64.

    kind: counts "raw" or "subsampled". With `problem.floors_counts`, candidates with count 0 get the weight of the
    smallest count above 0. Otherwise they have weight 0 unless α is 0, and UsageError is raised if α is negative.
    """
    counts = problem.counts if kind == "subsampled" or problem.raw_counts is None else problem.raw_counts
    counts = counts.double().cpu()
    if problem.floors_counts and (counts > 0).any():
        counts = counts.where(counts > 0, counts[counts > 0].min())
    if exponent < 0 and (counts == 0).any():
        raise UsageError(f"{key('exponent')}: negative exponents require every candidate to occur at least once; set 0 "
                         "or more")
    return torch.where(counts > 0, counts, 1.0).pow(exponent) * ((counts > 0) | (exponent == 0))
