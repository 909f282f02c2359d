"""Typed corruption: entities that training has seen on the same side of the same relation.

    q(b|r, side) = (1 − ε) n_rb^α / Σ_j n_rj^α + ε q₀(b)        n_rb: triples of r with b on that side

An entity that never was the head of a relation is an easy negative for its head. The entities that were approximate the
types that the relation admits, without a schema ([krompass2015], the local closed-world assumption); α = 0 weighs them
equally. ε > 0 keeps q positive for every entity. Many of these negatives are true: set `negatives.filter: observed`.
Which side is open is decided by `triples.slot`; `bernoulli` ([wang2014]) goes with any source. In a hierarchy the sides
are hypernym and hyponym.
"""

from __future__ import annotations

from pydantic import Field

from embtrain.common.candidate_lists import CandidateLists, ListReader
from embtrain.negatives.listed.base import ListedSource, WeightedConfig
from embtrain.negatives.sampling.pool import NestedSettingsOfSameK


class TypedConfig(WeightedConfig):
    """Settings of `typed`."""

    power: float = Field(0.0, ge=0, le=10, description="α, exponent of the counts; 0: uniform, 1: frequency")
    fallback: NestedSettingsOfSameK = Field(
        {"source": "uniform"}, description="unigram, uniform or log_uniform, with its settings")


class Typed(ListedSource):
    """Draws from the entities seen on the open side of the query's relation."""

    name = "typed"
    Config = TypedConfig
    config: TypedConfig

    def read_lists(self, reader: ListReader) -> CandidateLists:
        return reader.observed()
