"""A language model on held-out text: perplexity, log-likelihood and rank of each next word.

    perplexity = exp(−(1/n) Σ_i log p(w_i | w_1 ... w_{i−1}))         p: the softmax over the whole vocabulary

heldout.py defines ranks and likelihoods. Neighbouring words are correlated, so intervals are over pieces of text.
exp is monotonic, so the ends of log-likelihood's interval give those of perplexity's, in reverse order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from embtrain.common.types import Score
from embtrain.evaluate.config import LikelihoodConfig


class PerplexityConfig(LikelihoodConfig):
    """Evaluation of a language model."""

    words: int = Field(100_000, ge=0, description="maximum words scored of each held-out part, from its start; 0: none")
    piece: int = Field(200, ge=1, description="neighbouring words in one cluster of an interval")


def piece_ids(n: int, size: int) -> NDArray[np.int64]:
    """The piece of text that each of n words belongs to, (n,); `size` words per piece."""
    return np.arange(n, dtype=np.int64) // size


def with_perplexity(scores: Sequence[Score]) -> list[Score]:
    """The scores of heldout.py, with the perplexity inserted before each log-likelihood."""
    out: list[Score] = []
    for score in scores:
        name, separator, part = score.metric.partition("/")
        if name == "log_likelihood":
            value, low, high = (_perplexity(x) for x in (score.value, score.high, score.low))
            out.append(score._replace(metric=f"perplexity{separator}{part}", value=value, low=low, high=high))
        out.append(score)
    return out


def _perplexity(log_likelihood: float | None) -> float | None:
    """exp(−log_likelihood); None if there is none, or if it has more than 300 digits."""
    return None if log_likelihood is None or log_likelihood < -690 else math.exp(-log_likelihood)
