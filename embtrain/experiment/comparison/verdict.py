"""The verdict of a comparison in three sentences: separable differences from the baseline, cost, undecided differences.

The first and the third do not depend on timings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from embtrain.evaluate.comparison.results import EqualCpu, Evaluation
from embtrain.evaluate.statistics.difference import (
    A_BEATS_B,
    B_BEATS_A,
    MIN_SEEDS,
    NOT_SEPARABLE,
    TOO_FEW_SEEDS,
    Difference,
)

CPU = "training/cpu_seconds"
BySeed = Mapping[str, Mapping[int, float | None]]  # label -> seed -> value


def verdict(plan: Mapping[str, Any], labels: Sequence[str], values: Mapping[str, BySeed],
            differences: Sequence[Difference], at_equal: EqualCpu, failed: Sequence[str], not_run: Sequence[str] = (),
            processors: Sequence[str] = ()) -> list[str]:
    """Three sentences on the declared metric; without the first for a single strategy, which was only tuned.

    at_equal: without budget, its note is the reason. processors: their models; CPU seconds are not compared if there
    are several.
    """
    metric, baseline = plan["metric"], plan["baseline"]
    differences_on_metric = [d for d in differences if d.metric == metric and d.kind == "seeds"]
    tested = f"On {metric}, {_over(differences_on_metric)}{_separable(differences_on_metric, baseline)}."
    cost = f"The cost is unknown, because no run of {baseline} has scores."
    if any(by_label.get(baseline) for by_label in values.values()):
        cost = _cost(values.get(CPU, {}), labels, baseline, at_equal, tested_curve(plan))
    return [*([tested] if len(labels) > 1 else []), unlike_machines(processors) or cost,
            _unknown(differences_on_metric, baseline, values.get(metric, {}), failed, not_run)]


def _separable(differences_on_metric: Sequence[Difference], baseline: str) -> str:
    better = [f"{d.a} ({d.mean:+.3g})" for d in differences_on_metric if d.verdict == A_BEATS_B]
    worse = [f"{d.a} ({d.mean:+.3g})" for d in differences_on_metric if d.verdict == B_BEATS_A]
    same = [f"{d.a} ({d.mean:+.3g})" for d in differences_on_metric if d.verdict == NOT_SEPARABLE]
    few = [f"{d.a} ({d.mean:+.3g})" for d in differences_on_metric if d.verdict == TOO_FEW_SEEDS]
    none = [d.a for d in differences_on_metric if d.verdict not in (A_BEATS_B, B_BEATS_A, NOT_SEPARABLE, TOO_FEW_SEEDS)]
    parts = [f"{_list(better)} {_verb(better, 'beats', 'beat')} {baseline}"] if better else []
    parts += [f"{_list(worse)} {_verb(worse, 'is', 'are')} worse than {baseline}"] if worse else []
    parts += [f"{_list(same)} {_verb(same, 'is', 'are')} not separable from {baseline}"] if same else []
    parts += [f"{TOO_FEW_SEEDS} {_list(few)} from {baseline}"] if few else []
    parts += [f"{_list(none)} could not be tested against {baseline}"] if none else []
    return ", ".join(parts) or f"nothing was tested against {baseline}"


def _over(differences_on_metric: Sequence[Difference]) -> str:
    """The number of seeds with values of both strategies, as the beginning of a clause; '' if there are none."""
    seeds = {d.n for d in differences_on_metric if d.n}
    if len(seeds) != 1:
        return "over the seeds common to both, " if seeds else ""
    return f"over {(n := seeds.pop())} seed{'' if n == 1 else 's'}, "


def _cost(cpu: BySeed, labels: Sequence[str], baseline: str, at_equal: EqualCpu, curve: str) -> str:
    cost = {label: sum(seconds) / len(seconds) for label in labels
            if (seconds := [x for x in cpu.get(label, {}).values() if x is not None])}
    if not cost.get(baseline):
        return "The cost is unknown, because the runs of the baseline recorded no CPU seconds."
    others = [f"one of {label} {_times(cost[label] / cost[baseline])}" for label in cost if label != baseline]
    text = f"A run of {baseline} takes {cost[baseline]:.3g} CPU seconds" + (f", {_list(others)}" if others else "")
    if at_equal.budget is None and len(labels) > 1:
        text += f"; {at_equal.note}"
    elif cheap := at_equal.differences:
        text += f"; at {at_equal.budget:.3g} CPU seconds for each, on {cheap[0].metric}, {_separable(cheap, baseline)}"
    elif len(labels) > 1:
        text += f"; {untested_reason(curve)}"
    return text + "."


def tested_curve(plan: Mapping[str, Any]) -> str:
    """The curve that is tested at equal CPU time: the declared metric; for test/... valid/..."""
    part, _, name = plan["metric"].partition("/")
    return f"valid/{name}" if part == "test" else str(plan["metric"])


def untested_reason(curve: str) -> str:
    """The reason why nothing is tested at equal CPU time, although other metrics have values there."""
    return f"nothing is tested at equal CPU time, because {curve} was not evaluated during training"


def why_not_at_equal_cpu(baseline: str, curve: str, timed: Sequence[Evaluation], reached: Sequence[Evaluation]) -> str:
    """The reason why no strategy has a value at equal CPU time at a seed of the baseline; empty if one has.

    curve: the metric that is compared; if it was not evaluated during training, all. timed, reached: a row for each
    curve of each run, without CPU time if none of its evaluations has one, or if it does not reach equal CPU time.
    """
    timed, reached = ([row for row in rows if row.metric == curve] or rows for rows in (timed, reached))
    both = f"{baseline} and another strategy both"
    on = f" on {curve}" if any(row.metric == curve for row in timed) else ""
    for reason, rows in (
            (f"were {both} evaluated{on} during training", timed),
            (f"do {both} have evaluations with a CPU time", [row for row in timed if row.cpu_seconds is not None]),
            (f"were {both} evaluated by the time that all runs reached; set train.evaluate_every to fewer steps",
             [row for row in reached if row.cpu_seconds is not None]),
            (f"do {both} have finite values at the time that all runs reached",
             [row for row in reached if row.value is not None and math.isfinite(row.value)])):
        if not _has_pair(baseline, rows):
            return f"nothing is compared at equal CPU time, because at no seed {reason}"
    return ""


def _has_pair(baseline: str, rows: Sequence[Evaluation]) -> bool:
    """Whether the baseline and another strategy have a row of one metric and seed."""
    own = {(row.metric, row.seed) for row in rows if row.strategy == baseline}
    return any((row.metric, row.seed) in own for row in rows if row.strategy != baseline)


def unlike_machines(processors: Sequence[str]) -> str:
    """One sentence on why CPU seconds are not compared; empty if all runs were trained on one model of processor."""
    if len(processors) < 2:
        return ""
    return f"CPU seconds are not compared, because the runs were trained on unlike processors: {_list(processors)}."


def _times(ratio: float) -> str:
    return "as much" if 0.95 < ratio < 1.05 else f"{ratio:.2g} times as much"


def _unknown(differences_on_metric: Sequence[Difference], baseline: str, values: BySeed, failed: Sequence[str],
             not_run: Sequence[str]) -> str:
    """The third sentence. values: of the declared metric."""
    parts = []
    few = [d.a for d in differences_on_metric if d.verdict == TOO_FEW_SEEDS]
    if few:
        parts.append(f"whether {_list(few)} and {baseline} differ (run {MIN_SEEDS} seeds or more)")
    for d in differences_on_metric:
        if d.verdict != NOT_SEPARABLE or d.mean is None:
            continue
        if d.detectable is None:
            parts.append(f"whether {d.a} and {baseline} differ: {d.mean:+.3g} at each of the {d.n} seeds")
            continue
        need = f"more than {d.max_needed}" if d.needed is None else f"{d.needed}"
        parts.append(f"whether {d.a} differs from {baseline} by less than {d.detectable:.2g} (separating the observed "
                     f"{d.mean:+.3g} takes {need} seeds; there are {d.n})")
    untested: dict[str, list[str]] = {}                     # strategies by the reason
    for d in differences_on_metric:
        if d.p is None:
            empty = [label for label in (d.a, baseline)
                     if not any(x is not None and math.isfinite(x) for x in values.get(label, {}).values())]
            reason = f", because no run of {' or '.join(empty)} has a value" if empty else \
                f" (run {MIN_SEEDS} or more seeds with values of both)"
            untested.setdefault(reason, []).append(d.a)
    parts += [f"whether {_list(names)} and {baseline} differ at all{reason}" for reason, names in untested.items()]
    if failed:
        parts.append(f"what {_list(failed)} would have scored, because {_verb(failed, 'it', 'they')} failed")
    if not_run:
        parts.append(f"what {_list(not_run)} would score, because {_verb(not_run, 'it was', 'they were')} not run")
    if not parts:
        return "Not shown: whether the result holds on other data."
    return f"Not shown: {'; '.join(parts)}{',' if len(parts) == 1 else ';'} and whether the result holds on other data."


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str], singular: str, plural: str) -> str:
    return singular if len(names) == 1 else plural
