"""Candidates from a file: negatives that were mined elsewhere, for each query, entity or relation.

    q(b|x) = (1 − ε) w_xb^α / Σ_j w_xj^α + ε q₀(b)        over the candidates j of x in the file

A query without candidates in the file draws from q₀ alone, the noise of `fallback`. The file is TSV, or JSON lines;
docs/reference/formats.md describes both. Like the corpus it is read again when a run is resumed, and a changed file is
refused. Hard negatives from another retriever: [karpukhin2020].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from torch import Tensor

from embtrain.common.candidate_lists import CandidateLists, ListKey, ListReader
from embtrain.common.config import AbsolutePath
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import DataError
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.listed.base import ListedSource, WeightedConfig


class CandidatesConfig(WeightedConfig):
    """Settings of `candidates`."""

    file: AbsolutePath | None = Field(None, description="lists of candidates, TSV or JSON lines")
    by: ListKey = Field("query", description=(
        "queries that share a list: query, none; entity and relation, those that contain it; side, those with one "
        "relation and one open side"))


class ListedCandidates(ListedSource):
    """Draws from the candidates that a file lists for the query."""

    name = "candidates"
    Config = CandidatesConfig
    config: CandidatesConfig

    def read_lists(self, reader: ListReader) -> CandidateLists:
        lists = reader.from_file(self.config.file, self.config.by)
        self.sha256 = lists.sha256()
        return lists

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lists": self.sha256}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["lists"] != self.sha256:
            raise DataError(f"{key('file')}: {self.config.file}: gives other lists than when the run was started; "
                            "restore the file")
        super().load_state_dict(state)

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        super().grow_from(earlier, row)
        return ""                                                 # the lists are read from the file again
