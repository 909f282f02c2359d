"""Compare a paper's numbers with those of our runs, with intervals over seeds, and give a verdict on its claim.

Every check compares the interval of a quantity q with the range that the claim allows:

    not_worse    q = mean over seeds of run − against, in pairs;    q > −margin     (q < margin where lower is better)
    better       the same q;                                        q > 0           (q < 0)
    near         q = mean over seeds of run;                        |q − value| < within

Student's t interval of q is inside the range: the check holds; outside: it does not; across its end: not separable.
The claim holds if all m checks hold, and does not if one of them does not. The former has the error rate of one check,
at 95 %; for the latter each check gets its share of the error, at 1 − .05/m.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from embtrain.common.files import as_argument
from embtrain.evaluate.comparison.reproduction import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_SEPARABLE,
    CheckResult,
    ClaimAxis,
    ClaimVerdict,
    ProtocolDifference,
    ReportedNumber,
    Reproduction,
)
from embtrain.evaluate.heldout import higher_better, metric_bounds
from embtrain.evaluate.statistics.difference import MIN_SEEDS
from embtrain.evaluate.statistics.intervals import UNBOUNDED
from embtrain.evaluate.statistics.significance import MeanInterval, difference, t_interval
from embtrain.experiment.comparison.outcome import CellOutcome
from embtrain.experiment.paper.spec import Check, Expected, Paper
from embtrain.report.comparison.decimals import metric_label

LEVEL = 0.95
Values = Mapping[str, Mapping[int, float]]  # label -> seed -> value


def reproduction(paper: Paper, plan: Mapping[str, Any], outcomes: Sequence[CellOutcome], spent: float
                 ) -> Reproduction:
    """The part `reproduction` of results.json. spent: CPU seconds of all runs."""
    values = by_metric(outcomes)
    checks = [judge(check, values, len(paper.checks)) for check in paper.checks]
    verdict = combine_verdicts([check.verdict for check in checks])
    missing_benchmarks = [name for name in paper.benchmarks if name not in plan["benchmarks"]]
    axis = None if paper.axis is None else ClaimAxis(paper.axis.name, paper.axis.metrics, {
        label: run.x for label, run in paper.runs.items() if run.x is not None})
    return Reproduction(
        name=plan["paper"], title=paper.title, citation=paper.citation, claim=paper.claim, verdict=verdict,
        sentence=f"The claim {_verdict_words(verdict, checks)}: {paper.claim.rstrip('.')}.", checks=checks,
        expected=[reported_and_measured(row, paper, values) for row in paper.expected],
        protocol=[ProtocolDifference(row.what, row.theirs, row.ours) for row in paper.protocol], axis=axis,
        corpus=paper.corpus, budget=paper.cpu_seconds, spent=spent,
        command=command(paper, plan),
        notes=[*_own_protocol(paper, plan),
               *(f"{name} is skipped: it is not on this machine; fetch it: embtrain data fetch {name}"
                 for name in missing_benchmarks)])


def by_metric(outcomes: Sequence[CellOutcome]) -> dict[str, dict[str, dict[int, float]]]:
    """metric -> label -> seed -> value, for the runs that have it."""
    out: dict[str, dict[str, dict[int, float]]] = {}
    for outcome in outcomes:
        for metric, value in outcome.values().items():
            out.setdefault(metric, {}).setdefault(outcome.label, {})[outcome.seed] = value
    return out


# --- checks --------------------------------------------------------------------------------------------------------

def judge(check: Check, values: Mapping[str, Values], m: int) -> CheckResult:
    """Evaluate one of m checks."""
    values_by_run = values.get(check.metric, {})
    quantity = _quantity(check, values_by_run)
    possible = metric_bounds(check.metric) if check.against is None else UNBOUNDED
    mean, wider = t_interval(quantity, LEVEL, possible), t_interval(quantity, 1 - (1 - LEVEL) / m, possible)
    above, below = bounds(check)
    verdict = interval_verdict(mean, wider, above, below)
    return CheckResult(**check.model_dump(), mean=mean.mean, low=mean.low, high=mean.high, n=mean.n, above=above,
                       below=below, verdict=verdict, text=_check_text(check, mean, above, below, verdict))


def _quantity(check: Check, values_by_run: Values) -> dict[int, float]:
    run_values = values_by_run.get(check.run, {})
    return dict(run_values) if check.against is None else difference(run_values, values_by_run.get(check.against, {}))


def bounds(check: Check) -> tuple[float | None, float | None]:
    """The range of q as (above, below); None if it is not bounded on that side."""
    if check.value is not None and check.within is not None:
        return check.value - check.within, check.value + check.within
    margin = check.margin or 0.0
    return (0.0 - margin, None) if higher_better(check.metric) else (None, margin)


def interval_verdict(mean: MeanInterval, wider: MeanInterval, above: float | None, below: float | None
                     ) -> ClaimVerdict:
    """Compare an interval with an open range. One seed has no interval, nor have several equal values.

    Fewer than MIN_SEEDS seeds decide nothing, as in a comparison.
    """
    if mean.n < MIN_SEEDS or mean.low is None or mean.high is None or wider.low is None or wider.high is None:
        return NOT_SEPARABLE
    lowest, highest = -math.inf if above is None else above, math.inf if below is None else below
    if lowest < mean.low and mean.high < highest:
        return HOLDS
    return DOES_NOT_HOLD if wider.high < lowest or wider.low > highest else NOT_SEPARABLE


def combine_verdicts(verdicts: Sequence[ClaimVerdict]) -> ClaimVerdict:
    if DOES_NOT_HOLD in verdicts:
        return DOES_NOT_HOLD
    return HOLDS if all(verdict == HOLDS for verdict in verdicts) else NOT_SEPARABLE


def _verdict_words(verdict: str, checks: Sequence[CheckResult]) -> str:
    if verdict != NOT_SEPARABLE:
        return verdict
    return f"is undecided ({'not measured' if any(not check.n for check in checks) else 'not separable'})"


def _check_text(check: Check, mean: MeanInterval, above: float | None, below: float | None, verdict: str) -> str:
    subtrahend = " less that of " + check.against if check.against is not None else ""
    if mean.mean is None:
        return f"{metric_label(check.metric)} of {check.run}{subtrahend}: not measured."
    widths = [high - low for low, high in ((mean.low, mean.high), (above, below)) if low is not None is not high]

    def format_digits(x: float, sign: str = "+") -> str:
        """Three digits, or as many as two digits of the narrowest interval take."""
        digits = [2 + math.ceil(math.log10(abs(x) / width)) for width in widths if width > 0 and x]
        return f"{x:{sign}.{max([3, *digits])}g}"
    facts = "one seed, no interval" if mean.n == 1 else f"the same for {mean.n} seeds, no interval" \
        if mean.low is None or mean.high is None else \
        f"95 % interval {format_digits(mean.low)} to {format_digits(mean.high)}, {mean.n} seeds" \
        + (", too few for a verdict" if mean.n < MIN_SEEDS else "")
    bounds_text = " and ".join([f"{word} {format_digits(x, '')}" for word, x in (("above", above), ("below", below))
                                if x is not None])
    return (f"{metric_label(check.metric)} of {check.run}{subtrahend}: {format_digits(mean.mean)} ({facts}); the claim "
            f"requires {bounds_text}: {verdict}.")


# --- numbers -------------------------------------------------------------------------------------------------------

def reported_and_measured(row: Expected, paper: Paper, values: Mapping[str, Values]) -> ReportedNumber:
    """A reported number and ours."""
    reported = partial(ReportedNumber, row.what, row.value, row.where, row.protocol, row.source)
    if row.reading == "least":
        least = min_sufficient_x(paper, values)
        return reported(least, None, None, 0, "" if least is not None else "no run was shown not to be worse")
    assert row.metric is not None and row.run is not None
    values_by_run = values.get(row.metric, {})
    run_values = values_by_run.get(row.run, {})
    if row.reading == "gain":
        baseline_values = values_by_run.get(row.against or "", {})
        run_values = {seed: run_values[seed] / baseline_values[seed] - 1 for seed in run_values
                      if baseline_values.get(seed)}
    mean = t_interval(run_values, LEVEL, UNBOUNDED if row.reading == "gain" else metric_bounds(row.metric))
    ours, low, high = (_exp(x) if row.reading == "exp" else x for x in (mean.mean, mean.low, mean.high))
    return reported(ours, low, high, mean.n, "" if mean.n else "not measured")


def _exp(x: float | None) -> float | None:
    return None if x is None else math.exp(x) if x < 700 else math.inf


def min_sufficient_x(paper: Paper, values: Mapping[str, Values]) -> float | None:
    """The smallest x whose runs satisfy the first not_worse check in place of the run it names."""
    check = next(check for check in paper.checks if check.rule == "not_worse")
    sufficient = [run.x for label, run in paper.runs.items() if run.x is not None and label != check.against
                  and judge(check.model_copy(update={"run": label}), values, 1).verdict == HOLDS]
    return min(sufficient, default=None)


def command(paper: Paper, plan: Mapping[str, Any]) -> str:
    """The command line that reproduces this."""
    words = ["embtrain", "reproduce", as_argument(str(plan["paper"]))]
    words += ["--corpus", plan["corpus"]] if not paper.is_own(plan["corpus"]) else []
    words += ["--seeds", str(len(plan["seeds"]))] if plan["seeds"] != list(range(1, paper.seeds + 1)) else []
    return shlex.join(words + [word for text in _changed_sets(paper, plan) for word in ("--set", text)])


def _changed_sets(paper: Paper, plan: Mapping[str, Any]) -> list[str]:
    """The settings of every run that are not those of the paper's file."""
    present = paper.without_benchmarks({*paper.benchmarks} - {*plan["benchmarks"]})
    default_sets = paper.grid("")["sets"] + present.grid("")["sets"]
    return [text for text in plan["sets"] if text not in default_sets]


def _own_protocol(paper: Paper, plan: Mapping[str, Any]) -> list[str]:
    """One line on the corpus and the settings if the protocol of the file is not that of these runs; else none."""
    changes = [] if paper.is_own(plan["corpus"]) else [f"corpus {plan['corpus']} in place of {paper.corpus}"]
    changes += [text for text in _changed_sets(paper, plan) if not text.startswith("train.engine=")]   # chosen for all
    return [f"this run: {', '.join(changes)}"] if changes else []
