"""The part `reproduction` of results.json: a paper's claim, reported and measured numbers, and the verdict.

    holds · does not hold · not separable: the runs cannot decide
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

HOLDS: Final = "holds"
DOES_NOT_HOLD: Final = "does not hold"
NOT_SEPARABLE: Final = "not separable"
SOURCES = {"published": "published", "repository": "seen in a public repository", "recalled": "recalled, not verified"}

ClaimVerdict = Literal["holds", "does not hold", "not separable"]


@dataclass(frozen=True)
class CheckResult:
    """One check of a claim: its rule, the quantity q with its interval over seeds, and the range it must be in."""

    rule: str
    run: str
    metric: str
    against: str | None
    margin: float | None
    value: float | None
    within: float | None
    mean: float | None           # of q
    low: float | None
    high: float | None
    n: int                       # seeds
    above: float | None          # the range; None: not bounded on that side
    below: float | None
    verdict: ClaimVerdict
    text: str                    # result and requirement in words


@dataclass(frozen=True)
class ReportedNumber:
    """A reported number, and ours over n seeds."""

    what: str
    theirs: float | None
    where: str                   # table, figure or equation
    protocol: str
    source: Literal["published", "repository", "recalled"]
    ours: float | None
    low: float | None
    high: float | None
    n: int
    note: str


@dataclass(frozen=True)
class ProtocolDifference:
    """A difference between a paper's protocol and ours."""

    what: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class ClaimAxis:
    """The varied quantity x that some metrics are drawn against."""

    name: str
    metrics: list[str]
    x: dict[str, float | None]   # label -> x


@dataclass(frozen=True)
class Reproduction:
    """A paper's claim with its checks, numbers and protocol."""

    name: str
    title: str
    citation: str
    claim: str
    verdict: ClaimVerdict
    sentence: str
    checks: list[CheckResult]
    expected: list[ReportedNumber]
    protocol: list[ProtocolDifference]
    axis: ClaimAxis | None
    corpus: str
    budget: float | None         # CPU seconds of all runs
    spent: float | None
    command: str
    notes: list[str]


