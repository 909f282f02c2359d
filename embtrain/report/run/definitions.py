"""Definitions of the measures of a run, of the words in their notes and of the column n, a line each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from embtrain.common.types import Score
from embtrain.report.charts.curves import metric
from embtrain.report.format import ROW_ORIGINS

# By the name of a measure; @ is followed by its k.
MEASURES = {
    "spearman": "rank correlation of similarities with human ratings; 1 is best",
    "spearman/composed": "the same, with the vectors of missing words composed from their n-grams",
    "log_likelihood": "mean log-probability of the target, in nats; 0 is best",
    "perplexity": "equivalent number of equally likely candidates; 1 is best",
    "mrr": "mean of 1 / rank of the target; 1 is best", "mr": "mean rank of the target; 1 is best",
    "amri": "the mean rank relative to random scores; 1 is best, 0 is chance",
    "hits@": "share of queries with the target among the first k",
    "accuracy": "share of correct answers", "f1": "harmonic mean of precision and recall",
    "ap": "mean precision over all thresholds; 1 is best",
    "precision@": "share of correct answers among the first k",
    "ndcg@": "precision@k with more weight on early ranks",
    "psp@": "precision@k with more weight on rare labels",
    "bleu": "word sequences shared with the reference, 0 to 100",
    "bleu_cased": "the same, with upper and lower case",
    "chrf": "letter sequences shared with the reference, 0 to 100",
    "log_z_mean": "mean of log Z, the log of the sum of e^score over all candidates; 0 if the scores are normalized",
    "log_z_abs": "mean distance of log Z from 0", "log_z_sd": "standard deviation of log Z over the queries",
    "mean cosine": "mean cosine between the vector of a word and that of the run that this one continues",
    "aligned mean cosine": "the same, after a rotation of all vectors onto the earlier ones",
    "mean frequency rank": "mean rank by frequency of the neighbours of ranks 45 to 50; rare words are a bad sign",
    "mean PMI": "mean log of how often a word and these neighbours co-occur, relative to chance; 0 is chance",
    "seconds": "seconds of training, without evaluation",
}
# By the end of the name of a row that breaks down or supports another.
ORIGINS = {
    "scores": "the same, from the scores of the model alone, without the log q that turns them into log-probabilities",
    "optimistic": "the same if the target is ranked before candidates of equal score: the best case",
    "pessimistic": "the same if the target is ranked behind candidates of equal score: the worst case",
    "tail": "queries that give head and relation; the target is the tail",
    "head": "queries that give relation and tail; the target is the head",
}
RELATIONS = ("1-1, 1-N, N-1, N-N", "kinds of relations: one or several (N) heads for a tail, and tails for a head")
# By a word of the notes, in the singular.
NOTE_WORDS = {
    "cluster": "entries that depend on each other, e.g. neighbouring words; the interval is over clusters",
    "query": "a distinct word or context among the pairs; its pairs share the scores of the candidates",
    "candidate": "a possible target, among which the target is ranked",
    "block": "a step of the training loop, for which negatives are drawn at once",
}
PLURALS = {"query": "queries"}
N = ("n", "number of pairs, questions or other entries of which the value is a mean; of training: of examples")


def definitions(rows: Iterable[Score]) -> dict[str, str]:
    """The definition of each term in rows of scores, in their order; those that explain themselves are left out."""
    rows, terms = list(rows), dict[str, str]()
    for row in rows:
        terms |= _of_measure(row.metric)
    # sorted: the parts of names after the measures
    terms = dict(sorted(terms.items(), key=lambda term: term[0] in (RELATIONS[0], *ROW_ORIGINS.values())))
    notes = " ".join(row.note for row in rows)
    terms |= {word: about for word, about in NOTE_WORDS.items()
              if re.search(rf"\b({word}|{PLURALS.get(word, word + 's')})\b", notes)}
    return terms | dict([N]) if terms else {}


def _of_measure(name: str) -> dict[str, str]:
    base, _, end = name.rpartition("/")
    if base and end in ROW_ORIGINS:
        measure, _, relations = base.partition("/")
        return _of_measure(measure) | dict([RELATIONS] if relations else []) | {ROW_ORIGINS[end]: ORIGINS[end]}
    measure, at, _ = name.partition("@")
    about = MEASURES.get(measure + at) or MEASURES.get(measure, "")
    return {metric(measure) + "@k" * bool(at): about} if about else {}
