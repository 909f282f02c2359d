"""Predicts with a trained model of a hierarchy.

    CONCEPT _            its hypernyms, by s(concept, ·)
    _ CONCEPT            its hyponyms, by s(·, concept)
    CONCEPT CONCEPT      is the first a kind of the second? Yes if s is at least the threshold

The threshold maximizes the accuracy on the validation pairs, with one negative for each. A word that is not the name of
a concept means every concept that lists it, as in WordNet: a complete pair takes the best reading, and an open query
needs a word with one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch

from embtrain.common import machine
from embtrain.data.formats import delimited
from embtrain.data.formats.delimited import Delimiter
from embtrain.data.hierarchy.examples import HYPERNYM, HYPONYM
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.known_pairs import KnownPairs
from embtrain.evaluate.pairs import hypernymy
from embtrain.experiment.prediction.base import (
    OPEN,
    LinePredictor,
    MalformedQuery,
    Prediction,
    UnknownName,
    check_names,
)
from embtrain.experiment.run.components import OBSERVED_SHARE, Components
from embtrain.experiment.tasks.pairs import PairsTask, score_ends, score_pairs

MAX_NAMED = 5


class PairQuery(NamedTuple):
    """Ids of the concepts that each word means; empty for the open part."""

    hyponym: list[int]
    hypernym: list[int]


class PairPredictor(LinePredictor[PairQuery]):
    """Predictor of hypernyms, hyponyms and pairs."""

    name = "pairs"
    query_form = "CONCEPT _ for hypernyms, _ CONCEPT for hyponyms, or CONCEPT CONCEPT (in a file: separated by TABs)"
    can_hide_known = True

    def __init__(self, components: Components, top: int | None, hide_known: bool):
        super().__init__(components, top, hide_known)
        self.task = cast(PairsTask, components.task)
        self.index = {name: i for i, name in enumerate(self.names)}

    @cached_property
    def senses(self) -> Senses:
        return Senses(self.names, self.task.hierarchy.words)

    @cached_property
    def known(self) -> KnownPairs:
        return self.task.known_positives(int(OBSERVED_SHARE * machine.free()))

    @cached_property
    def threshold(self) -> tuple[float, float]:
        """The threshold chosen on validation pairs, and its accuracy there."""
        valid = self.task.score_held_out(self.components, "valid").one_negative_each()
        return hypernymy.choose_thresholds(valid).accuracy, float(hypernymy.correct(valid, valid).mean())

    def fields(self, line: str) -> list[str]:
        order: tuple[Delimiter, ...] = ("tab", "comma", "space")  # the first delimiter that gives two names
        splits = [[name.strip() for name in delimited.split_fields(line, delimiter)] for delimiter in order]
        return next((fields for fields in splits if len(fields) == 2), splits[0])

    def parse(self, fields: Sequence[str]) -> PairQuery:
        check_names(fields, 2, "pair")
        if list(fields).count(OPEN) > 1:
            raise MalformedQuery("only one of the two may be _")
        ids = [[] if name == OPEN else self._ids(name) for name in fields]
        for name, meanings in zip(fields, ids, strict=True):
            if OPEN in fields and len(meanings) > 1:
                listed = [self.names[i] for i in meanings[:MAX_NAMED]]
                raise MalformedQuery(f"{name!r} means {len(meanings)} concepts; choose one: {', '.join(listed)}")
        return PairQuery(*ids)

    def _ids(self, name: str) -> list[int]:
        concepts = [self.index[name]] if name in self.index else self.senses.concepts_of(name)
        if not concepts:
            raise UnknownName("concept", name, self.index)
        return concepts

    def predict(self, queries: Sequence[PairQuery]) -> list[Prediction]:
        predictions: dict[int, Prediction] = {}
        open_queries = [i for i, query in enumerate(queries) if not all(query)]
        predictions |= zip(open_queries, self._ends([queries[i] for i in open_queries]), strict=True)
        predictions |= {i: self._pair(query) for i, query in enumerate(queries) if all(query)}
        return [predictions[i] for i in range(len(queries))]

    def _ends(self, queries: Sequence[PairQuery]) -> list[Prediction]:
        if not queries:
            return []
        context = torch.tensor([[v[0], HYPONYM] if v else [u[0], HYPERNYM] for u, v in queries])  # (n, 2)
        s = score_ends(self.components, context)                                             # (n, V)
        row, target = self.known.targets_of(context)
        known = torch.zeros(s.shape, dtype=torch.bool).index_put((row, target), torch.tensor(True))
        predictions = []
        for i, (concept, slot) in enumerate(context.tolist()):
            without = known[i].clone() if self.hide_known else torch.zeros_like(known[i])
            without[concept] |= ~known[i, concept]
            text = f"{self.names[concept]} is a ?" if slot == HYPERNYM else f"? is {_with_article(self.names[concept])}"
            predictions.append(Prediction(text, self.top_answers(s[i], s[i], known=known[i], without=without)))
        return predictions

    def _pair(self, query: PairQuery) -> Prediction:
        pairs = np.array([(u, v) for u in query.hyponym for v in query.hypernym], np.int64)
        s = score_pairs(self.components, pairs)
        best = int(np.argmax(s))
        u, v = pairs[best].tolist()
        known = self.known.contains(torch.tensor([[u, HYPERNYM]]), torch.tensor([[v]]))
        threshold, accuracy = self.threshold
        return Prediction(f"{self.names[u]} is {_with_article(self.names[v])}", facts={
            "holds": bool(s[best] >= threshold), "score": float(s[best]), "threshold": threshold,
            "valid_accuracy": accuracy, "known": bool(known[0, 0])})


def _with_article(name: str) -> str:
    """`an animal`, `a mammal`: the article by the first letter."""
    return f"{'an' if name.lower().startswith(tuple('aeiou')) else 'a'} {name}"
