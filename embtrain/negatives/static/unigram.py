"""Unigram noise raised to a power: Q(b) ∝ n(b)^α.

α = 1 is the unigram of NCE (Gutmann and Hyvärinen 2010; Mnih and Teh 2012), α = .75 that of word2vec (Mikolov et al.
2013; the exponent is in its code). n(b) counts b as a target, either before subsampling, as word2vec does, or after it.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

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

    kind: counts "raw" or "subsampled". A candidate with count 0 has weight 0 unless α is 0. Raises
    UsageError if α is negative and a count is 0.
    """
    counts = problem.counts if kind == "subsampled" or problem.raw_counts is None else problem.raw_counts
    counts = counts.double().cpu()
    if exponent < 0 and (counts == 0).any():
        raise UsageError("negatives.exponent: negative exponents require every candidate to occur at least once; set 0 "
                         "or more")
    return torch.where(counts > 0, counts, 1.0).pow(exponent) * ((counts > 0) | (exponent == 0))
