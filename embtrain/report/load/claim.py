"""The part `reproduction` of results.json, checked: a paper's claim, reported and measured numbers, the verdict.

    holds · does not hold · not separable: the runs cannot decide
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embtrain.report.load.run import finite_or_none

HOLDS, DOES_NOT_HOLD, NOT_SEPARABLE = "holds", "does not hold", "not separable"
VERDICTS = (HOLDS, DOES_NOT_HOLD, NOT_SEPARABLE)
SOURCES = {"published": "published", "repository": "seen in a public repository", "recalled": "recalled, not verified"}


@dataclass(frozen=True)
class Number:
    """A reported number, and ours over n seeds."""

    what: str
    theirs: float | None
    ours: float | None
    low: float | None
    high: float | None
    n: int
    where: str
    protocol: str
    source: str
    note: str


@dataclass(frozen=True)
class Claim:
    """A paper's claim with its checks, numbers and protocol."""
    name: str
    title: str
    citation: str
    claim: str
    sentence: str
    verdict: str
    checks: list[tuple[str, str]]            # result and requirement in words; verdict
    numbers: list[Number]
    protocol: list[tuple[str, str, str]]     # what, theirs, ours
    axis: str | None                         # what x is
    metrics: list[str]                       # drawn against x
    x: dict[str, float]                      # of each run that has one
    corpus: str
    budget: float | None
    spent: float | None
    command: str
    notes: list[str]


def parse(value: Any) -> Claim | None:
    """Parse the claim; None if there is none. ValueError with the place of an error."""
    if value is None:
        return None
    tree = _mapping(value, "reproduction")
    verdict = _text(tree, "verdict", "reproduction")
    if verdict not in VERDICTS:
        raise ValueError(f"reproduction: verdict must be one of {', '.join(VERDICTS)}")
    axis = None if tree.get("axis") is None else _mapping(tree["axis"], "reproduction: axis")
    words = {key: _text(tree, key, "reproduction") for key in ("name", "title", "citation", "claim", "sentence",
                                                               "corpus", "command")}
    x_by_run = {} if axis is None else _mapping(axis.get("x"), "reproduction: axis: x")
    x = {run: number for run, value in x_by_run.items()
         if (number := finite_or_none(value, f"reproduction: x of {run}")) is not None}
    return Claim(
        **words, verdict=verdict, numbers=[_number(row, where) for row, where in _rows(tree, "expected")],
        checks=[(_text(row, "text", where), _text(row, "verdict", where)) for row, where in _rows(tree, "checks")],
        protocol=[(_text(row, "what", where), _text(row, "theirs", where), _text(row, "ours", where))
                  for row, where in _rows(tree, "protocol")],
        axis=None if axis is None else _text(axis, "name", "reproduction: axis"),
        metrics=[] if axis is None else _texts(axis, "metrics"), x=x, notes=_texts(tree, "notes"),
        budget=finite_or_none(tree.get("budget"), "reproduction: budget"),
        spent=finite_or_none(tree.get("spent"), "reproduction: spent"))


def _number(row: Mapping[str, Any], where: str) -> Number:
    theirs, ours, low, high = (finite_or_none(row.get(key), f"{where}: {key}")
                               for key in ("theirs", "ours", "low", "high"))
    n = finite_or_none(row.get("n"), f"{where}: n")
    what, table, protocol, source, note = (_text(row, key, where) for key in ("what", "where", "protocol", "source",
                                                                              "note"))
    if source not in SOURCES:
        raise ValueError(f"{where}: source must be one of {', '.join(SOURCES)}")
    return Number(what, theirs, ours, low, high, int(n or 0), table, protocol, source, note)


def _rows(tree: Mapping[str, Any], key: str) -> list[tuple[dict[str, Any], str]]:
    rows = tree.get(key)
    if not isinstance(rows, list):
        raise ValueError(f"reproduction: {key}: a list is expected")
    places = [f"reproduction: {key}: row {i}" for i in range(1, len(rows) + 1)]
    return [(_mapping(row, where), where) for row, where in zip(rows, places, strict=True)]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: a mapping is expected")
    return value


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(row.get(key), str):
        raise ValueError(f"{where}: {key} must be text")
    return row[key]


def _texts(tree: Mapping[str, Any], key: str) -> list[str]:
    value = tree.get(key)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"reproduction: {key}: a list of texts is expected")
    return value
