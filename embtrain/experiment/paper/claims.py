"""What a paper says beside what our runs say: numbers with intervals over seeds, and the verdict on the claim.

Every check is an interval of a quantity q against the range that the claim leaves it:

    not_worse    q = mean over seeds of run − against, in pairs;    q > −margin     (q < margin where lower is better)
    better       the same q;                                        q > 0           (q < 0)
    near         q = mean over seeds of run;                        |q − value| < within

Student's t interval of q lies within the range: the check holds; beyond it: it does not; across its end: not separable.
The claim holds where all m checks hold, and does not where one of them does not. The former errs no more often than
one check does, at 95 %; for the latter each check is given its share of the error, at 1 − .05/m.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from embtrain.common.files import as_argument
from embtrain.evaluate.heldout import higher_better
from embtrain.evaluate.statistics.significance import MeanInterval, difference, t_interval
from embtrain.experiment.comparison.outcome import Found
from embtrain.experiment.paper.spec import Check, Expected, Paper
from embtrain.report.comparison.decimals import measure
from embtrain.report.load.claim import DOES_NOT_HOLD, HOLDS, NOT_SEPARABLE

LEVEL = 0.95
Values = Mapping[str, Mapping[int, float]]  # label -> seed -> value


def reproduction(paper: Paper, plan: Mapping[str, Any], found: Sequence[Found]) -> dict[str, Any]:
    """The part `reproduction` of results.json."""
    values = by_metric(found)
    checks = [judge(check, values, len(paper.checks)) for check in paper.checks]
    verdict = together([check["verdict"] for check in checks])
    absent = [name for name in paper.benchmarks if name not in plan["benchmarks"]]
    axis = None if paper.axis is None else {"name": paper.axis.name, "metrics": paper.axis.metrics, "x": {
        label: run.x for label, run in paper.runs.items() if run.x is not None}}
    return {"name": plan["paper"], "title": paper.title, "citation": paper.citation, "claim": paper.claim,
            "verdict": verdict, "sentence": f"The claim {_said(verdict, checks)}: {paper.claim}.", "checks": checks,
            "expected": [beside(row, paper, values) for row in paper.expected],
            "protocol": [row.model_dump() for row in paper.protocol], "axis": axis,
            "corpus": paper.corpus, "budget": paper.cpu_seconds,
            "spent": sum(one.cpu_seconds or 0.0 for one in found), "command": command(paper, plan),
            "notes": [f"{name} is left out: it is not on this machine; embtrain data fetch {name}" for name in absent]}


def by_metric(found: Sequence[Found]) -> dict[str, dict[str, dict[int, float]]]:
    """metric -> label -> seed -> value, of the runs that have it."""
    out: dict[str, dict[str, dict[int, float]]] = {}
    for one in found:
        for metric, value in one.values().items():
            out.setdefault(metric, {}).setdefault(one.label, {})[one.seed] = value
    return out


# --- checks --------------------------------------------------------------------------------------------------------

def judge(check: Check, values: Mapping[str, Values], m: int) -> dict[str, Any]:
    """One of m checks, with its verdict."""
    of = values.get(check.metric, {})
    some = _quantity(check, of)
    mean, wider = t_interval(some, LEVEL), t_interval(some, 1 - (1 - LEVEL) / m)
    above, below = bounds(check)
    verdict = compared(mean, wider, above, below)
    return {**check.model_dump(), "mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n, "above": above,
            "below": below, "verdict": verdict, "text": _words(check, mean, above, below, verdict)}


def _quantity(check: Check, of: Values) -> dict[int, float]:
    ours = of.get(check.run, {})
    return dict(ours) if check.against is None else difference(ours, of.get(check.against, {}))


def bounds(check: Check) -> tuple[float | None, float | None]:
    """What q must stay above and below, None where it may go as far as it likes."""
    if check.value is not None and check.within is not None:
        return check.value - check.within, check.value + check.within
    margin = check.margin or 0.0
    return (0.0 - margin, None) if higher_better(check.metric) else (None, margin)


def compared(mean: MeanInterval, wider: MeanInterval, above: float | None, below: float | None) -> str:
    """An interval against an open range. One seed has no interval, nor have several that all say the same."""
    if mean.low is None or mean.high is None or wider.low is None or wider.high is None:
        return NOT_SEPARABLE
    least, most = -math.inf if above is None else above, math.inf if below is None else below
    if least < mean.low and mean.high < most:
        return HOLDS
    return DOES_NOT_HOLD if wider.high < least or wider.low > most else NOT_SEPARABLE


def together(verdicts: Sequence[str]) -> str:
    if DOES_NOT_HOLD in verdicts:
        return DOES_NOT_HOLD
    return HOLDS if all(verdict == HOLDS for verdict in verdicts) else NOT_SEPARABLE


def _said(verdict: str, checks: Sequence[Mapping[str, Any]]) -> str:
    if verdict != NOT_SEPARABLE:
        return verdict
    return f"cannot be judged ({'not measured' if any(not check['n'] for check in checks) else 'not separable'})"


def _words(check: Check, mean: MeanInterval, above: float | None, below: float | None, verdict: str) -> str:
    less = " less that of " + check.against if check.against is not None else ""
    if mean.mean is None:
        return f"{measure(check.metric)} of {check.run}{less}: nothing to judge it by, not measured."
    widths = [high - low for low, high in ((mean.low, mean.high), (above, below)) if low is not None is not high]

    def said(x: float, sign: str = "+") -> str:
        """Three digits, or as many as two of the narrowest interval take."""
        digits = [2 + math.ceil(math.log10(abs(x) / width)) for width in widths if width > 0 and x]
        return f"{x:{sign}.{max([3, *digits])}g}"
    facts = "one seed, no interval" if mean.n == 1 else f"the same at {mean.n} seeds, no interval" \
        if mean.low is None or mean.high is None else \
        f"95 % interval {said(mean.low)} to {said(mean.high)}, {mean.n} seeds"
    asked = " and ".join([f"{word} {said(x, '')}" for word, x in (("above", above), ("below", below)) if x is not None])
    return (f"{measure(check.metric)} of {check.run}{less}: {said(mean.mean)} ({facts}); the claim asks for {asked}: "
            f"{verdict}.")


# --- numbers -------------------------------------------------------------------------------------------------------

def beside(row: Expected, paper: Paper, values: Mapping[str, Values]) -> dict[str, Any]:
    """A reported number and ours."""
    told = {"what": row.what, "theirs": row.value, "where": row.where, "protocol": row.protocol, "source": row.source}
    if row.reading == "least":
        least = least_enough(paper, values)
        note = "" if least is not None else "no run was shown to be not worse"
        return {**told, "ours": least, "low": None, "high": None, "n": 0, "note": note}
    assert row.metric is not None and row.run is not None
    of = values.get(row.metric, {})
    some = of.get(row.run, {})
    if row.reading == "gain":
        other = of.get(row.against or "", {})
        some = {seed: some[seed] / other[seed] - 1 for seed in some if other.get(seed)}
    mean = t_interval(some, LEVEL)
    ours, low, high = (_exp(x) if row.reading == "exp" else x for x in (mean.mean, mean.low, mean.high))
    return {**told, "ours": ours, "low": low, "high": high, "n": mean.n, "note": "" if mean.n else "not measured"}


def _exp(x: float | None) -> float | None:
    return None if x is None else math.exp(x) if x < 700 else math.inf


def least_enough(paper: Paper, values: Mapping[str, Values]) -> float | None:
    """The smallest x whose runs hold the first check by not_worse, put to them in place of its own."""
    check = next(check for check in paper.checks if check.rule == "not_worse")
    enough = [run.x for label, run in paper.runs.items() if run.x is not None and label != check.against
              and judge(check.model_copy(update={"run": label}), values, 1)["verdict"] == HOLDS]
    return min(enough, default=None)


def command(paper: Paper, plan: Mapping[str, Any]) -> str:
    """The command line that asks for this again."""
    words = ["embtrain", "reproduce", as_argument(str(plan["paper"]))]
    words += ["--corpus", plan["corpus"]] if not paper.is_own(plan["corpus"]) else []
    words += ["--seeds", str(len(plan["seeds"]))] if plan["seeds"] != list(range(1, paper.seeds + 1)) else []
    known = paper.grid("")["sets"] + paper.without({*paper.benchmarks} - {*plan["benchmarks"]}).grid("")["sets"]
    return shlex.join(words + [word for text in plan["sets"] if text not in known for word in ("--set", text)])
