"""Steps on small tables, which have only the rows of some blocks: negatives are drawn before.

A step renumbers the ids of a block by their places among the ascending ids of the rows, so that the update reads the
same rows in the same order as with whole tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.types import Negatives, Query
from embtrain.data.labels.examples import LabelBatch
from embtrain.data.text.windows import WindowBatch
from embtrain.data.triples.examples import TripleBatch
from embtrain.models.base import Model
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.xc import XC
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.base import Engine
from embtrain.train.engines.compiled import CompiledStep, DrawTerms
from embtrain.train.engines.compiled_triples import CompiledTriples
from embtrain.train.engines.compiled_windows import CompiledWindows


class ShardedStep(Engine):
    """Base of the steps on small tables."""

    #: The number of the candidates' table in `parameters`.
    CANDIDATES: ClassVar[int]

    def parameters(self) -> list[nn.Parameter]:
        """The tables of the model."""
        raise AbstractMethod(self, "parameters")

    def draw_ahead(self, block: Any) -> Negatives:
        """The negatives of a block, with the ids of whole tables, and the false ones if the update does not find them.
        """
        raise AbstractMethod(self, "draw_ahead")

    def ids(self, block: Any, drawn: Negatives) -> list[Tensor]:
        """The ids (n,) of the rows of each table that the update of a block uses, in any order."""
        raise AbstractMethod(self, "ids")

    def renumber(self, block: Any, rows: Sequence[Tensor]) -> Any:
        """A block with the places of its ids in `rows`, the ascending ids of the rows of each table."""
        raise AbstractMethod(self, "renumber")

    def place(self, block: Any, drawn: Negatives, rows: Sequence[Tensor]) -> Any:
        """The block for the next update, whose negatives are those of `draw_ahead`. rows: as of `renumber`."""
        self._candidates = rows[self.CANDIDATES]
        self._drawn = replace(drawn, ids=_places(self._candidates, cast(Tensor, drawn.ids)))
        return self.renumber(block, rows)


class ShardedCompiled(ShardedStep, CompiledStep):
    """Base of the compiled steps on small tables."""

    def draw_ahead(self, block: Any) -> Negatives:
        query = self._query(block, False) if self.source.config.filter == "observed" else None
        drawn = super()._draw(block, query)
        return drawn if query is None else super()._mark(drawn, query)

    def _draw(self, block: Any, query: Query | None) -> Negatives:
        return self._drawn

    def _mark(self, drawn: Negatives, query: Query) -> Negatives:
        return drawn  # marked by `draw_ahead`

    def _draw_terms(self, drawn: Negatives) -> DrawTerms:
        terms = super()._draw_terms(drawn)
        table = terms.log_q_table
        return terms if table is None else terms._replace(log_q_table=table[self._candidates])


class ShardedWindows(ShardedCompiled, CompiledWindows):
    """Skip-gram: words and candidates."""

    CANDIDATES = 1

    def parameters(self) -> list[nn.Parameter]:
        return [self.model.u, cast(nn.Parameter, self.model.v)]

    def ids(self, block: WindowBatch, drawn: Negatives) -> list[Tensor]:
        return [block.centre, torch.cat([block.target, cast(Tensor, drawn.ids).reshape(-1)])]

    def renumber(self, block: WindowBatch, rows: Sequence[Tensor]) -> WindowBatch:
        words, candidates = rows
        return WindowBatch(_places(words, block.centre), block.start, _places(candidates, block.target))


class ShardedTriples(ShardedCompiled, CompiledTriples):
    """TransE and DistMult: entities and relations."""

    CANDIDATES = 0

    def parameters(self) -> list[nn.Parameter]:
        return [self.model.e, self.model.r]

    def ids(self, block: TripleBatch, drawn: Negatives) -> list[Tensor]:
        return [torch.cat([block.entity, block.target, cast(Tensor, drawn.ids).reshape(-1)]), block.relation]

    def renumber(self, block: TripleBatch, rows: Sequence[Tensor]) -> TripleBatch:
        entities, relations = rows
        return replace(block, entity=_places(entities, block.entity), target=_places(entities, block.target),
                       relation=_places(relations, block.relation))


class ShardedLabels(ShardedStep, Step):
    """Extreme classification by autograd: features and labels."""

    CANDIDATES = 1
    model: XC

    def parameters(self) -> list[nn.Parameter]:
        return [self.model.w, self.model.c]

    def draw_ahead(self, block: LabelBatch) -> Negatives:
        query_id = torch.unique(block.document, return_inverse=True)[1]
        no_vectors = torch.empty(len(block), 0)
        return super().draw(Query(no_vectors, block.document, block.target, block.slot, query_id, block.window))

    def draw(self, query: Query) -> Negatives:
        return self._drawn

    def ids(self, block: LabelBatch, drawn: Negatives) -> list[Tensor]:
        features = block.features.rows(torch.unique(block.document).numpy()).index
        return [torch.from_numpy(features).long(), torch.cat([block.target, cast(Tensor, drawn.ids).reshape(-1)])]

    def renumber(self, block: LabelBatch, rows: Sequence[Tensor]) -> LabelBatch:
        features, labels = rows
        documents, place = torch.unique(block.document, return_inverse=True)    # ascending, as `XC.encode` reads them
        own = block.features.rows(documents.numpy())
        index = _places(features, torch.from_numpy(own.index).long()).numpy()
        return replace(block, target=_places(labels, block.target), document=place, features=replace(own, index=index))


def sharded_step(model: Model) -> type[ShardedStep]:
    """The step that trains a model on small tables."""
    if isinstance(model, XC):
        return ShardedLabels
    return ShardedWindows if isinstance(model, SkipGram) else ShardedTriples


def _places(ids: Tensor, x: Tensor) -> Tensor:
    """The places of the entries of x among ascending ids, in the shape of x."""
    return torch.searchsorted(ids, x.contiguous())
