"""Predictions of a trained model of a hierarchy.

    CONCEPT _            its hypernyms, by s(concept, ·)
    _ CONCEPT            its hyponyms, by s(·, concept)
    CONCEPT CONCEPT      is the first a kind of the second? Yes if s is at least the threshold

The threshold has the highest accuracy on the validation pairs, with one negative for each. A word that names no concept
means each concept that it is in, as in WordNet: of a complete pair the best one counts, and an open query needs a word
that means one concept.
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
from embtrain.data.hierarchy import examples as data
from embtrain.data.hierarchy.examples import HYPERNYM, HYPONYM
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.known_pairs import KnownPairs
from embtrain.evaluate.pairs import hypernymy
from embtrain.experiment.prediction.base import OPEN, LinePredictor, Malformed, Prediction, Unknown
from embtrain.experiment.run.components import OBSERVED_SHARE, Components
from embtrain.experiment.tasks.pairs import Pairs, score

MOST_NAMED = 5


class Query(NamedTuple):
    """Ids of the concepts that each word means; empty for the open part."""

    hyponym: list[int]
    hypernym: list[int]


class PairPredictor(LinePredictor[Query]):
    name = "pairs"
    form = "CONCEPT _ for hypernyms, _ CONCEPT for hyponyms, or CONCEPT CONCEPT (in a file with TABs between)"
    hides = True

    def __init__(self, made: Components, top: int, hide_known: bool):
        super().__init__(made, top, hide_known)
        self.task = cast(Pairs, made.task)
        self.index = {name: i for i, name in enumerate(self.names)}

    @cached_property
    def senses(self) -> Senses:
        return Senses(self.names, self.task.hierarchy.words)

    @cached_property
    def known(self) -> KnownPairs:
        return self.task.answers(int(OBSERVED_SHARE * machine.free()))

    @cached_property
    def threshold(self) -> tuple[float, float]:
        """The threshold of validation, and the accuracy there."""
        valid = self.task.judged(self.made, "valid").one()
        return hypernymy.choose(valid).accuracy, float(hypernymy.correct(valid, valid).mean())

    def fields(self, line: str) -> list[str]:
        order: tuple[Delimiter, ...] = ("tab", "comma", "space")  # the first that gives two names
        found = [[name.strip() for name in delimited.split(line, delimiter)] for delimiter in order]
        return next((fields for fields in found if len(fields) == 2), found[0])

    def parse(self, fields: Sequence[str]) -> Query:
        if len(fields) != 2 or not all(fields):
            raise Malformed(f"{len(fields)} names where a pair has 2")
        if list(fields).count(OPEN) > 1:
            raise Malformed("one part can be open, and both are")
        ids = [[] if name == OPEN else self._ids(name) for name in fields]
        for name, found in zip(fields, ids, strict=True):
            if OPEN in fields and len(found) > 1:
                some = [self.names[i] for i in found[:MOST_NAMED]]
                raise Malformed(f"{name!r} means {len(found)} concepts; name one: {', '.join(some)}")
        return Query(*ids)

    def _ids(self, name: str) -> list[int]:
        found = [self.index[name]] if name in self.index else self.senses.of(name)
        if not found:
            raise Unknown("concept", name, self.index)
        return found

    def of(self, queries: Sequence[Query]) -> list[Prediction]:
        found: dict[int, Prediction] = {}
        open_ = [i for i, query in enumerate(queries) if not all(query)]
        found |= zip(open_, self._ends([queries[i] for i in open_]), strict=True)
        found |= {i: self._pair(query) for i, query in enumerate(queries) if all(query)}
        return [found[i] for i in range(len(queries))]

    def _ends(self, queries: Sequence[Query]) -> list[Prediction]:
        if not queries:
            return []
        pairs = torch.tensor([[u[0] if u else 0, v[0] if v else 0] for u, v in queries])
        slot = torch.tensor([HYPONYM if v else HYPERNYM for _, v in queries])
        batch = data.of_pairs(pairs, slot)
        s = self.scores(batch)[0]                                                            # (n, V)
        row, target = self.known.of(torch.stack([batch.given, slot], 1))
        known = torch.zeros(s.shape, dtype=torch.bool).index_put((row, target), torch.tensor(True))
        found = []
        for i, given in enumerate(batch.given.tolist()):
            without = known[i].clone() if self.hide_known else torch.zeros_like(known[i])
            without[given] |= ~known[i, given]
            said = f"{self.names[given]} is a ?" if slot[i] == HYPERNYM else f"? is a {self.names[given]}"
            found.append(Prediction(said, self.answers(s[i], s[i], known=known[i], without=without)))
        return found

    def _pair(self, query: Query) -> Prediction:
        pairs = np.array([(u, v) for u in query.hyponym for v in query.hypernym], np.int64)
        s = score(self.made, pairs)
        best = int(np.argmax(s))
        u, v = pairs[best].tolist()
        known = self.known.contains(torch.tensor([[u, HYPERNYM]]), torch.tensor([[v]]))
        threshold, accuracy = self.threshold
        return Prediction(f"{self.names[u]} is a {self.names[v]}", facts={
            "holds": bool(s[best] >= threshold), "score": float(s[best]), "threshold": threshold,
            "valid_accuracy": accuracy, "known": bool(known[0, 0])})
