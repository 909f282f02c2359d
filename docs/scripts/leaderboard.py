"""Ranks the runs of docs/results/leaderboard: a table for each task and corpus, best strategy first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from raw import RESULTS, figure, table

from embtrain.evaluate.heldout import higher_better
from embtrain.experiment.inspect.submission import Submission, read
from embtrain.report.comparison.decimals import metric_label

LINES = RESULTS / "leaderboard"


def submissions() -> list[Submission]:
    """Return the lines of all files, by file name."""
    return [row for path in sorted(LINES.glob("*.jsonl")) for row in read(path)]


def leaderboard(rows: Sequence[Submission] | None = None) -> str:
    """Return a section for each task and corpus of the rows; None: those of docs/results/leaderboard."""
    sections: dict[tuple[str, str, str], dict[str, list[Submission]]] = {}
    for row in submissions() if rows is None else rows:
        groups = sections.setdefault((row.task, row.corpus, row.corpus_sha256), {})
        groups.setdefault(f"{row.settings} {row.code}", []).append(row)
    return "\n".join(_section(list(groups.values())) for groups in sections.values())


def _section(groups: list[list[Submission]]) -> str:
    """Return the table of one task and corpus. groups: the runs that differ only in the seed."""
    first = groups[0][0]
    order = sorted(groups, key=_mean, reverse=higher_better(first.metric))
    cells = [[f"`{runs[0].strategy}`", f"`{runs[0].model}`", _spread([run.scores[run.metric] for run in runs]),
              ", ".join(str(run.seed) for run in sorted(runs, key=lambda run: run.seed)),
              _spread([run.cpu_seconds for run in runs if run.cpu_seconds is not None]),
              (runs[0].commit or f"embtrain {runs[0].version}")[:12], f"`{runs[0].settings}`"] for runs in order]
    machines = "; ".join(dict.fromkeys(run.machine for runs in order for run in runs))
    head = ["strategy", "model", metric_label(first.metric), "seeds", "CPU seconds", "commit", "command"]
    return (f"## {first.task}: {first.corpus}\n\nBest first by {head[2]}, {order[0][0].date}. "
            f"Machine: {machines}. Add `--seed N` to a command.\n\n" + table(head, cells))


def _mean(runs: Sequence[Submission]) -> float:
    return statistics.fmean(run.scores[run.metric] for run in runs)


def _spread(values: Sequence[float]) -> str:
    """Format mean ± standard deviation; the mean alone of one value."""
    if not values:
        return "–"
    sd = statistics.stdev(values) if len(values) > 1 else None
    return figure(statistics.fmean(values), sd) + ("" if sd is None else f" ± {figure(sd, sd)}")
