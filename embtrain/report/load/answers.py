"""Read answers.json of a run: its answers to a few held-out queries. ValueError names the place of a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embtrain.common.json_records import finite_or_none, mapping, type_words

FILE = "answers.json"


@dataclass(frozen=True)
class AnsweredQuery:
    """A held-out query with the best candidates and the ranks of its positives."""

    query: str
    answers: list[tuple[str, float | None, bool]]  # name, score or probability, whether it is a positive; best first
    positives: list[tuple[str, float | None]]      # name and rank, best first; a sentence has no rank
    n_positives: int                               # all of them


@dataclass(frozen=True)
class ExampleAnswers:
    """The queries of a part, and the kind of the scores."""

    part: str                     # test or valid
    scores: str                   # probability, score, or none for sentences
    queries: list[AnsweredQuery]


def parse(value: Any) -> ExampleAnswers:
    """Return the record of decoded JSON. ValueError if it is not one."""
    tree = mapping(value)
    part, scores = (_text(tree.get(key), key) for key in ("part", "scores"))
    return ExampleAnswers(part, scores, [_query(query, f"queries: {i}") for i, query in
                                         enumerate(_list(tree.get("queries"), "queries"), 1)])


def _query(value: Any, where: str) -> AnsweredQuery:
    tree, answers, positives = mapping(value), [], []
    for answer in _list(tree.get("answers"), f"{where}: answers"):
        name, score, is_positive = _fields(answer, 3, f"{where}: answers")
        answers.append((_text(name, where), finite_or_none(score, where), is_positive is True))
    for positive in _list(tree.get("positives"), f"{where}: positives"):
        name, rank = _fields(positive, 2, f"{where}: positives")
        positives.append((_text(name, where), finite_or_none(rank, where)))
    n = finite_or_none(tree.get("n_positives"), where)
    return AnsweredQuery(_text(tree.get("query"), where), answers, positives, int(n or len(positives)))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: expected a text, not {type_words(value)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list, not {type_words(value)}")
    return value


def _fields(value: Any, n: int, where: str) -> list[Any]:
    if len(_list(value, where)) != n:
        raise ValueError(f"{where}: expected {n} values, not {len(value)}")
    return list(value)
