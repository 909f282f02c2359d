"""The outcome of one run, read from its folder for a comparison."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from embtrain.common.config import Section
from embtrain.common.errors import UsageError, is_lack_of_resources, read_error
from embtrain.common.files import read_json
from embtrain.common.shipped import benchmark_label
from embtrain.common.types import Score
from embtrain.experiment.comparison.verdict import CPU
from embtrain.report.load import run as run_record


class Point(NamedTuple):
    """An evaluation during training."""

    step: float
    examples: float
    epoch: float        # fractional; NaN before the first is complete
    cpu_seconds: float
    value: float


def interpolate(points: Sequence[Point], cpu_seconds: float) -> Point | None:
    """The point of a curve at a CPU time, linear between two evaluations; None before the first and after the last.

    The last of several evaluations at that time, because their times are rounded. Those without a time are left out.
    """
    timed = [point for point in points if math.isfinite(point.cpu_seconds)]
    i = bisect_right(timed, cpu_seconds, key=attrgetter("cpu_seconds"))
    if i and timed[i - 1].cpu_seconds == cpu_seconds:
        return timed[i - 1]
    if i in (0, len(timed)):
        return None
    a, b = timed[i - 1], timed[i]
    weight = (cpu_seconds - a.cpu_seconds) / (b.cpu_seconds - a.cpu_seconds)
    return Point(*(x + weight * (y - x) for x, y in zip(a, b, strict=True)))


@dataclass(frozen=True)
class CellOutcome:
    """Scores, curves and provenance of one cell, or the error it ended with."""

    name: str
    label: str
    loss: str | None
    model: str
    seed: int
    folder: Path
    relative_folder: str                                             # relative path in results.json
    error: str | None = None                               # why it has no scores
    scores: list[Score] = field(default_factory=list)
    cpu_seconds: float | None = None
    reached: dict[str, float] = field(default_factory=dict)  # the last line's step, epoch, examples, cpu_seconds
    curves: dict[str, list[Point]] = field(default_factory=dict)
    corpus: str | None = None                              # sha256
    code: str | None = None
    starved: bool = False                                  # lacked memory, disk or a device, or was killed
    processor: str | None = None                           # model name; None: not recorded
    was_started: bool = True
    benchmarks: Mapping[str, Any] = field(default_factory=dict)  # hashes of own benchmarks
    plugins: Mapping[str, Any] = field(default_factory=dict)  # hashes of the files of EMBTRAIN_PLUGINS it used

    def values(self) -> dict[str, float]:
        """Scores by `benchmark/metric`, and the CPU seconds. Built once: callers read it once per metric."""
        return self._values

    @cached_property
    def _values(self) -> dict[str, float]:
        values = {f"{row.benchmark}/{row.metric}": row.value for row in self.scores if row.value is not None}
        return values if self.cpu_seconds is None else values | {CPU: self.cpu_seconds}


def label(strategy: str, loss: str | None, model: str | None) -> str:
    """Label of the runs of one kind; loss and model are included if they are not None."""
    stem = Path(strategy).stem if strategy.endswith((".yaml", ".yml")) else strategy
    return stem + ("" if loss is None else f"+{loss}") + ("" if model is None else f"@{model}")


def value_at(tree: Any, path: str) -> Any:
    """The value of a dotted path of a configuration."""
    for key in path.split("."):
        tree = getattr(tree, key)
    return tree


def differing_keys(a: Any, b: Any, key: str) -> list[tuple[str, Any, Any]]:
    """The keys in which two values of `key` differ, with both values."""
    if isinstance(a, Section) and isinstance(b, Section):
        a, b = a.model_dump(mode="json"), b.model_dump(mode="json")
    if isinstance(a, dict) and isinstance(b, dict):
        return [item for name in dict.fromkeys([*a, *b])
                for item in differing_keys(a.get(name), b.get(name), f"{key}.{name}" if key else name)]
    return [] if a == b else [(key, a, b)]


def require_metric(metric: str, cell: CellOutcome, flag: str, remedy: str) -> None:
    """Raise UsageError if a cell with scores lacks a metric; checked at the first cell rather than after the last.

    flag: the flag, or the place in a file, that names the metric. remedy: how to fix it.
    """
    names = [f"{row.benchmark}/{row.metric}" for row in cell.scores]
    if cell.error is None and metric not in [*names, CPU]:
        raise missing_metric(metric, cell.name, names, flag, remedy)


def missing_metric(metric: str, run: str, names: Sequence[str], flag: str, remedy: str) -> UsageError:
    """The error for a metric that a run lacks. names: those that it has; the others as `require_metric`."""
    scores = [name for name in names if not name.startswith("training/")]
    return UsageError(f"{flag}: {metric}: {run} does not have this score; there are: {', '.join(scores) or 'none'}; "
                      f"{remedy}")


def read_outcome(root: Path, name: str, label: str, loss: str | None, model: str, seed: int, folder: Path,
                 failure: Path | None
         ) -> CellOutcome:
    """Read the outcome of a cell. failure: the file with its error if it has no scores."""
    shown = Path(os.path.relpath(folder, root)).as_posix()
    if not (folder / "scores.json").is_file():
        reason, starved, was_started = "not run yet", False, False
        if failure is not None and failure.is_file():
            try:
                tree = read_json(failure)
                reason, code = str(tree["error"]), tree.get("code")     # a run that was left out has no code
                starved, was_started = is_lack_of_resources(code), code is not None
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise read_error(failure, error, f"contains no error: {error}") from error
        return CellOutcome(name, label, loss, model, seed, folder, shown, reason, starved=starved,
                           was_started=was_started)
    record = run_record.read(folder)
    reached: dict[str, float] = {}
    curves: dict[str, list[Point]] = {}
    if record.metrics is not None:
        reached = record.metrics.reached
        curves = {key: [Point(*point) for point in zip(curve.step, curve.examples, curve.epoch.tolist(), curve.cpu,
                                                       curve.value, strict=True)]
                  for key, curve in record.metrics.curves.items() if key.partition("/")[0] in _evaluated(record)}
    identity = record.identity or {}
    corpus = identity.get("corpus")
    return CellOutcome(name, label, loss, model, seed, folder, shown, None, record.scores or [],
                       reached.get("cpu_seconds"), reached, curves,
                       corpus.get("sha256") if isinstance(corpus, dict) else None, identity.get("code"),
                       processor=_text(identity.get("processor")),
                       benchmarks=own if isinstance(own := identity.get("benchmarks"), dict) else {},
                       plugins=files if isinstance(files := identity.get("plugins"), dict) else {})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _evaluated(record: run_record.RunRecord) -> set[str]:
    """The benchmarks that were scored during training."""
    config = (record.config or {}).get("evaluate")
    every = config.get("during_training") if isinstance(config, dict) else None
    names = every if isinstance(every, list) else []
    return {"valid", *(benchmark_label(name) for name in names if isinstance(name, str))}
