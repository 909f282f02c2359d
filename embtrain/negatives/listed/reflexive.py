"""Reflexive negatives: the entity of the query itself, as its own answer.

    q(b|x) = (1 − ε) 1[b = a] + ε q₀(b)        a: the known entity of the query x = (a, r, side)

A ranking over all entities contains a itself, and the score −‖a + r − b‖ of TransE [bordes2013] is high for b = a if r
is short. Noise over V entities draws a once in V negatives, so training hardly ever corrects this error: on WN18 it
takes the first rank from most answers. A small share 1 − ε removes it (docs/results/graphs.md). If training relates an
entity to itself, set `negatives.filter: observed`, else that triple is drawn as a negative.

A symmetric relation needs r near 0 under TransE, so no training can rank a below its answers, and the attempt moves r
away from 0. Queries of symmetric relations draw from q₀ alone, and so do queries that training does not have.
"""

from __future__ import annotations

from pydantic import Field

from embtrain.common.candidate_lists import CandidateLists, ListReader
from embtrain.negatives.base import Traits
from embtrain.negatives.listed.base import ListedConfig, ListedSource
from embtrain.negatives.sampling.pool import NestedSettingsOfSameK


class ReflexiveConfig(ListedConfig):
    """Settings of `reflexive`."""

    mix: float = Field(0.99, ge=0, le=1, description=(
        "ε, share of the fallback; the rest is the entity of the query; 0: only it, and then there is no q"))
    max_symmetric: float = Field(0.5, ge=0, le=1, description=(
        "relations with a larger share of triples (h, r, t) for which (t, r, h) is in training too draw from the "
        "fallback alone; 1: none"))
    fallback: NestedSettingsOfSameK = Field(
        {"source": "uniform"}, description="unigram, uniform or log_uniform, with its settings")


class Reflexive(ListedSource):
    """Draws the known entity of the query."""

    name = "reflexive"
    Config = ReflexiveConfig
    config: ReflexiveConfig
    traits = Traits(supports_total_weight=True, sharing_modes=("row", "window"),
                    sharing_limit="draws the entity of each query")
    needs_lists = False                      # all relations may be symmetric

    def read_lists(self, reader: ListReader) -> CandidateLists:
        return reader.itself(self.config.max_symmetric)
