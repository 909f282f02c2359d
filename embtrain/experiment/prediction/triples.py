"""Link prediction with a trained model of a graph.

    HEAD RELATION _      tails, by s(h, r, ·)          HEAD _ TAIL          relations, by s(h, ·, t)
    _ RELATION TAIL      heads, by s(·, r, t)          HEAD RELATION TAIL   the score and both filtered ranks

The entity of a query lies nearest to itself for many models, so it is left out of the answers, unless a training triple
has it there. Ranks leave out all other known triples (train, valid, test), as evaluation on the test part does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common import machine
from embtrain.data.formats import delimited
from embtrain.data.formats.delimited import Delimiter
from embtrain.data.triples.examples import HEAD, TAIL, KnownTriples
from embtrain.evaluate import link_prediction
from embtrain.experiment.prediction.base import OPEN, Answer, LinePredictor, Malformed, Prediction, Unknown
from embtrain.experiment.run.components import OBSERVED_SHARE, Components
from embtrain.experiment.tasks.triples import Triples


class Query(NamedTuple):
    """Ids; −1 for the open part."""

    head: int
    relation: int
    tail: int


class Unseen(TypedDict):
    note: str
    unseen: bool


class TriplePredictor(LinePredictor[Query]):
    name = "triples"
    form = "HEAD RELATION _, _ RELATION TAIL, HEAD _ TAIL or HEAD RELATION TAIL (in a file with TABs between)"
    hides = True

    def __init__(self, made: Components, top: int, hide_known: bool):
        super().__init__(made, top, hide_known)
        self.task = cast(Triples, made.task)

    @cached_property
    def known(self) -> KnownTriples:
        return self.task.answers(int(OBSERVED_SHARE * machine.free()))

    @cached_property
    def filtered(self) -> KnownTriples:
        return self.task.filter_of("test")

    def fields(self, line: str) -> list[str]:
        config = self.task.config
        order: tuple[Delimiter, ...] = ("tab", config.delimiter, "comma", "space")  # the first that gives three names
        found = [[name.strip() for name in delimited.split(line, delimiter)] for delimiter in order]
        fields = next((fields for fields in found if len(fields) == 3), found[1])
        if len(fields) != 3:
            return fields
        return [fields[config.columns.index(column)] for column in ("head", "relation", "tail")]

    def parse(self, fields: Sequence[str]) -> Query:
        if len(fields) != 3 or not all(fields):
            raise Malformed(f"{len([name for name in fields if name])} names where a triple has 3")
        if list(fields).count(OPEN) > 1:
            raise Malformed("one part can be open, and more are")
        graph = self.task.graph
        kinds = (("entity", graph.entities), ("relation", graph.relations), ("entity", graph.entities))
        ids = []
        for name, (kind, of) in zip(fields, kinds, strict=True):
            if name != OPEN and name not in of.index:
                raise Unknown(kind, name, of.index)
            ids.append(-1 if name == OPEN else of.index[name])
        return Query(*ids)

    def of(self, queries: Sequence[Query]) -> list[Prediction]:
        found: dict[int, Prediction] = {}
        ends = [i for i, query in enumerate(queries) if query.relation >= 0 and -1 in query]
        whole = [i for i, query in enumerate(queries) if -1 not in query]
        found |= zip(ends, self._ends([queries[i] for i in ends]), strict=True)
        found |= zip(whole, self._whole([queries[i] for i in whole]), strict=True)
        found |= {i: self._relations(query) for i, query in enumerate(queries) if query.relation < 0}
        return [found[i] for i in range(len(queries))]

    def _ends(self, queries: Sequence[Query]) -> list[Prediction]:
        if not queries:
            return []
        triples = np.array(queries)
        slot = np.where(triples[:, 0] < 0, HEAD, TAIL)
        batch = self.task.triples.batch(triples.clip(min=0), slot)
        score = self.scores(batch)[0]                                                        # (n, V)
        context = batch.context(self.known_relations)
        row, target = self.known.of(context)
        known = torch.zeros(score.shape, dtype=torch.bool).index_put((row, target), torch.tensor(True))
        return [Prediction(self._said(query), self._best(score[i], known[i], int(batch.entity[i])),
                           **self._untrained(query)) for i, query in enumerate(queries)]

    def _best(self, score: Tensor, known: Tensor, given: int) -> list[Answer]:
        without = known.clone() if self.hide_known else torch.zeros_like(known)
        without[given] |= ~known[given]
        return self.answers(score, score, known=known, without=without)

    @property
    def known_relations(self) -> int:
        return self.task.triples.n_relations

    @torch.no_grad()
    def _relations(self, query: Query) -> Prediction:
        names, model = self.task.graph.relations.words, self.made.model
        triples = np.array([(query.head, r, query.tail) for r in range(len(names))])
        batch = self.task.triples.batch(triples, np.full(len(names), TAIL))
        score = model.score(model.encode(batch), batch.target.unsqueeze(1))[:, 0].double()   # (R,)
        known = self.known.contains(batch.context(self.known_relations), batch.target.unsqueeze(1))[:, 0]
        order = torch.argsort(score.nan_to_num(nan=-torch.inf), descending=True, stable=True)
        order = order[~known[order]] if self.hide_known else order
        answers = [Answer(names[r], float(score[r]), None, bool(known[r])) for r in order[:self.top].tolist()]
        return Prediction(self._said(query), answers, **self._untrained(query))

    @torch.no_grad()
    def _whole(self, queries: Sequence[Query]) -> list[Prediction]:
        if not queries:
            return []
        batch, model = self.task.triples.both(np.array(queries)), self.made.model
        score = model.score(model.encode(batch), batch.target.unsqueeze(1))[::2, 0].double()  # (n,), tails open
        ranks = link_prediction.ranks(model, batch, self.filtered, torch.get_num_threads())
        known = self.known.contains(batch.context(self.known_relations), batch.target.unsqueeze(1))[::2, 0]
        found = []
        for i, query in enumerate(queries):
            tail, head = 2 * i, 2 * i + 1
            facts = {"score": float(score[i]), "tail_rank": float(ranks.realistic[tail]),
                     "tail_candidates": int(ranks.candidates[tail]), "head_rank": float(ranks.realistic[head]),
                     "head_candidates": int(ranks.candidates[head]), "known": bool(known[i])}
            found.append(Prediction(self._said(query), facts=facts, **self._untrained(query)))
        return found

    def _said(self, query: Query) -> str:
        graph = self.task.graph
        of = (graph.entities.words, graph.relations.words, graph.entities.words)
        return " ".join("?" if i < 0 else names[i] for i, names in zip(query, of, strict=True))

    def _untrained(self, query: Query) -> Unseen:
        """A warning for names of held-out triples alone: their vectors were never trained."""
        graph = self.task.graph
        of = (graph.entities, graph.relations, graph.entities)
        names = [vocabulary.words[i] for i, vocabulary in zip(query, of, strict=True)
                 if i >= 0 and vocabulary.counts[i] == 0]
        note = f"no training triple has {', '.join(map(repr, dict.fromkeys(names)))}" if names else ""
        return {"note": note, "unseen": bool(names)}
