"""Link prediction with a trained model of a graph.

    HEAD RELATION _      tails, by s(h, r, ·)          HEAD _ TAIL          relations, by s(h, ·, t)
    _ RELATION TAIL      heads, by s(·, r, t)          HEAD RELATION TAIL   the score and both filtered ranks

In many models an entity is nearest to itself, so the entity of a query is left out of the answers unless a training
triple has it as the answer; a note reports that if it would be among them. Ranks are those of evaluation on test: they
exclude all other known triples (train, valid, test) and count the entity of the query.
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
from embtrain.experiment.prediction.base import (
    OPEN,
    Answer,
    LinePredictor,
    MalformedQuery,
    Prediction,
    UnknownName,
    check_names,
)
from embtrain.experiment.run.components import OBSERVED_SHARE, Components
from embtrain.experiment.tasks.triples import TriplesTask
from embtrain.report.format import number


class TripleQuery(NamedTuple):
    """Ids of a triple; −1 for the open part."""

    head: int
    relation: int
    tail: int


class Notes(TypedDict):
    """Keyword arguments of a Prediction about names that are not in training, or left out of the answers."""

    note: str
    unseen: bool


class TriplePredictor(LinePredictor[TripleQuery]):
    """Predictor of entities, relations and ranks of triples."""

    name = "triples"
    query_form = "HEAD RELATION _, _ RELATION TAIL, HEAD _ TAIL or HEAD RELATION TAIL (in a file: separated by TABs)"
    can_hide_known = True

    def __init__(self, components: Components, top: int | None, hide_known: bool):
        super().__init__(components, top, hide_known)
        self.task = cast(TriplesTask, components.task)

    @cached_property
    def known(self) -> KnownTriples:
        return self.task.known_positives(int(OBSERVED_SHARE * machine.free()))

    @cached_property
    def filtered(self) -> KnownTriples:
        return self.task.filter_for("test")

    def fields(self, line: str) -> list[str]:
        config = self.task.config
        order: tuple[Delimiter, ...] = ("tab", config.delimiter, "comma", "space")  # first to give three names
        splits = [[name.strip() for name in delimited.split_fields(line, delimiter)] for delimiter in order]
        fields = next((fields for fields in splits if len(fields) == 3), splits[1])
        if len(fields) != 3:
            return fields
        return [fields[config.columns.index(column)] for column in ("head", "relation", "tail")]

    def parse(self, fields: Sequence[str]) -> TripleQuery:
        check_names(fields, 3, "triple")
        if list(fields).count(OPEN) > 1:
            raise MalformedQuery("only one of the three may be _")
        graph = self.task.graph
        kinds = (("entity", graph.entities), ("relation", graph.relations), ("entity", graph.entities))
        ids = []
        for name, (kind, vocabulary) in zip(fields, kinds, strict=True):
            if name != OPEN and name not in vocabulary.index:
                raise UnknownName(kind, name, vocabulary.index)
            ids.append(-1 if name == OPEN else vocabulary.index[name])
        return TripleQuery(*ids)

    def predict(self, queries: Sequence[TripleQuery]) -> list[Prediction]:
        predictions: dict[int, Prediction] = {}
        ends = [i for i, query in enumerate(queries) if query.relation >= 0 and -1 in query]
        complete = [i for i, query in enumerate(queries) if -1 not in query]
        predictions |= zip(ends, self._ends([queries[i] for i in ends]), strict=True)
        predictions |= zip(complete, self._complete([queries[i] for i in complete]), strict=True)
        predictions |= {i: self._relations(query) for i, query in enumerate(queries) if query.relation < 0}
        return [predictions[i] for i in range(len(queries))]

    def _ends(self, queries: Sequence[TripleQuery]) -> list[Prediction]:
        if not queries:
            return []
        triples = np.array(queries)
        slot = np.where(triples[:, 0] < 0, HEAD, TAIL)
        batch = self.task.triples.batch(triples.clip(min=0), slot)
        score = self.scores(batch)[0]                                                        # (n, V)
        context = batch.context(self.known_relations)
        row, target = self.known.targets_of(context)
        known = torch.zeros(score.shape, dtype=torch.bool).index_put((row, target), torch.tensor(True))
        return [self._best(query, score[i], known[i], int(batch.entity[i])) for i, query in enumerate(queries)]

    def _best(self, query: TripleQuery, score: Tensor, known: Tensor, entity: int) -> Prediction:
        without = known.clone() if self.hide_known else torch.zeros_like(known)
        without[entity] |= ~known[entity]
        answers, own = self.top_answers(score, score, known=known, without=without), float(score[entity])
        would_be_listed = len(answers) < self.top or own >= cast(float, answers[-1].score)
        left_out = "" if known[entity] or not would_be_listed else (
            f"{self.names[entity]!r} itself, score {number(own)}, is left out here; in a rank it counts")
        return Prediction(self._query_text(query), answers, **self._notes(query, left_out))

    @property
    def known_relations(self) -> int:
        return self.task.triples.n_relations

    @torch.no_grad()
    def _relations(self, query: TripleQuery) -> Prediction:
        names, model = self.task.graph.relations.words, self.components.model
        triples = np.array([(query.head, r, query.tail) for r in range(len(names))])
        batch = self.task.triples.batch(triples, np.full(len(names), TAIL))
        score = model.score(model.encode(batch), batch.target.unsqueeze(1))[:, 0].double()   # (R,)
        known = self.known.contains(batch.context(self.known_relations), batch.target.unsqueeze(1))[:, 0]
        order = torch.argsort(score.nan_to_num(nan=-torch.inf), descending=True, stable=True)
        order = order[~known[order]] if self.hide_known else order
        answers = [Answer(names[r], float(score[r]), None, bool(known[r])) for r in order[:self.top].tolist()]
        return Prediction(self._query_text(query), answers, **self._notes(query))

    @torch.no_grad()
    def _complete(self, queries: Sequence[TripleQuery]) -> list[Prediction]:
        if not queries:
            return []
        batch, model = self.task.triples.both(np.array(queries)), self.components.model
        score = model.score(model.encode(batch), batch.target.unsqueeze(1))[::2, 0].double()  # (n,), with open tails
        ranks = link_prediction.ranks(model, batch, self.filtered, torch.get_num_threads())
        known = self.known.contains(batch.context(self.known_relations), batch.target.unsqueeze(1))[::2, 0]
        predictions = []
        for i, query in enumerate(queries):
            tail, head = 2 * i, 2 * i + 1
            facts = {"score": float(score[i]), "tail_rank": float(ranks.realistic[tail]),
                     "tail_candidates": int(ranks.candidates[tail]), "head_rank": float(ranks.realistic[head]),
                     "head_candidates": int(ranks.candidates[head]), "known": bool(known[i])}
            predictions.append(Prediction(self._query_text(query), facts=facts, **self._notes(query)))
        return predictions

    def _query_text(self, query: TripleQuery) -> str:
        graph = self.task.graph
        names_by_part = (graph.entities.words, graph.relations.words, graph.entities.words)
        return " ".join("?" if i < 0 else names[i] for i, names in zip(query, names_by_part, strict=True))

    def _notes(self, query: TripleQuery, left_out: str = "") -> Notes:
        """Return the note on what is left out, and a warning for names that occur only in held-out triples: their
        vectors were never trained."""
        graph = self.task.graph
        vocabularies = (graph.entities, graph.relations, graph.entities)
        names = [vocabulary.words[i] for i, vocabulary in zip(query, vocabularies, strict=True)
                 if i >= 0 and vocabulary.counts[i] == 0]
        untrained = f"no training triple has {', '.join(map(repr, dict.fromkeys(names)))}" if names else ""
        return {"note": "; ".join(filter(None, [untrained, left_out])), "unseen": bool(names)}
