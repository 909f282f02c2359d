"""Ranks the runs of docs/results/leaderboard: a table for each task, corpus and protocol, best strategy first."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from raw import RESULTS, figure, table

from embtrain.evaluate.heldout import higher_better
from embtrain.experiment.inspect.submission import Submission, read
from embtrain.report.comparison.decimals import metric_label

LINES = RESULTS / "leaderboard"
ALSO = ("test/f1@10", "wordsim353/spearman")  # measures of publications, next to the primary one


def submissions() -> list[Submission]:
    """Return the lines of all files, by file name."""
    return [row for path in sorted(LINES.glob("*.jsonl")) for row in read(path)]


def leaderboard(rows: Sequence[Submission] | None = None) -> str:
    """Return a section for each task and corpus of the rows; None: those of docs/results/leaderboard.

    Runs with other held-out examples, or other ways to score them, have a table of their own in the section.
    """
    sections: dict[tuple[str, str, str], dict[str, list[Submission]]] = {}
    for row in submissions() if rows is None else rows:
        tables = sections.setdefault((row.task, row.corpus, row.corpus_sha256), {})
        protocol = {key: value for key, value in row.protocol.items() if value is not None}  # earlier lines lack keys
        tables.setdefault(json.dumps(protocol, sort_keys=True), []).append(row)
    return "\n".join(_section([tables[protocol] for protocol in sorted(tables)]) for tables in sections.values())


def _section(tables: Sequence[Sequence[Submission]]) -> str:
    """Return the section of one task and corpus. tables: the runs of each protocol."""
    first = tables[0][0]
    keys = dict.fromkeys(key for runs in tables for key in runs[0].protocol)
    differing = [key for key in keys if any(runs[0].protocol.get(key) != first.protocol.get(key) for runs in tables)]
    return f"## {first.task}: {first.corpus}\n\n" + "\n".join(_table(runs, differing) for runs in tables)


def _table(runs: Sequence[Submission], differing: Sequence[str]) -> str:
    """Return the table of one protocol. differing: the settings in which the protocols of the section differ."""
    by_settings: dict[str, list[Submission]] = {}
    for run in runs:
        by_settings.setdefault(f"{run.settings} {run.code}", []).append(run)
    return _ranked(list(by_settings.values()), ", ".join(f"`{key}={_value(runs[0].protocol.get(key))}`"
                                                         for key in differing))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _ranked(groups: list[list[Submission]], protocol: str) -> str:
    """Return a table, best first. groups: the runs that differ only in the seed. protocol: its own settings."""
    first = groups[0][0]
    order = sorted(groups, key=_mean, reverse=higher_better(first.metric))
    also = [metric for metric in ALSO if all(metric in run.scores for runs in order for run in runs)]
    cells = [[f"`{runs[0].strategy}`", f"`{runs[0].model}`",
              *(_spread([run.scores[metric] for run in runs]) for metric in (first.metric, *also)),
              ", ".join(str(run.seed) for run in sorted(runs, key=lambda run: run.seed)),
              _spread([run.cpu_seconds for run in runs if run.cpu_seconds is not None]),
              (runs[0].commit or f"embtrain {runs[0].version}")[:12], f"`{runs[0].settings}`"] for runs in order]
    machines = "; ".join(dict.fromkeys(run.machine for runs in order for run in runs))
    head = ["strategy", "model", *map(metric_label, (first.metric, *also)), "seeds", "CPU seconds", "commit", "command"]
    return (f"{protocol}{': b' if protocol else 'B'}est first by {head[2]}, {order[0][0].date}. "
            f"Machine: {machines}. Add `--seed N` to a command.\n\n" + table(head, cells))


def _mean(runs: Sequence[Submission]) -> float:
    return statistics.fmean(run.scores[run.metric] for run in runs)


def _spread(values: Sequence[float]) -> str:
    """Format mean ± standard deviation; the mean alone of one value."""
    if not values:
        return "–"
    sd = statistics.stdev(values) if len(values) > 1 else None
    return figure(statistics.fmean(values), sd) + ("" if sd is None else f" ± {figure(sd, sd)}")
