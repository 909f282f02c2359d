"""Read results.json of a comparison and the run folders it names, with bounded sizes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.evaluate.statistics.difference import Difference
from embtrain.report.load import claim, run as run_record
from embtrain.report.load.claim import Claim
from embtrain.report.load.run import (
    RunRecord,
    finite_or_none,
    flatten,
    place,
    read_json,
    read_text,
    score_row,
    type_words,
)

MAX_RESULTS_BYTES = 256 << 20  # twice what MAX_SCORES scores take (experiment/comparison/results.py)
MAX_CELLS = 2000   # more would make an unreadable report
WORDS = ("a", "b", "metric", "verdict", "kind", "note")
COUNTS = ("n", "needed")
REQUIRED_KEYS = ("a", "b", "metric", "verdict", "kind")  # required keys of a difference
NOT_SCORES = ("training", "neighbours 45-50")  # benchmarks whose metrics are not scores
BARE_SUFFIX = "/scores"  # metrics of uncorrected scores, of losses that learn log-odds
FINISHED = ("finished", "done", "ok")


@dataclass(frozen=True)
class CellResult:
    """One run of the comparison."""
    name: str
    strategy: str            # the label of the summary: with loss and model where they differ
    seed: int
    status: str
    scores: list[Score]
    cpu_seconds: float | None
    folder: str
    run: RunRecord | None       # None if its folder does not exist
    error: str | None        # one line, if the cell failed
    code: int | None

    @property
    def finished(self) -> bool:
        return self.error is None and self.status in FINISHED


@dataclass(frozen=True)
class MetricMean:
    """One strategy on one metric, over seeds."""

    strategy: str
    metric: str
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class EqualBudget:
    """Evaluations during training at equal cost; None for a run that had none by then."""

    spent: float | None
    values: dict[str, dict[str, list[float | None]]]  # metric -> strategy -> one value per seed
    note: str


@dataclass(frozen=True)
class Searched:
    """The settings chosen for a strategy before the comparison."""

    strategy: str
    metric: str
    value: float | None
    settings: dict[str, str]
    trials: int
    failed: int
    cpu_seconds: float | None


@dataclass(frozen=True)
class Results:
    """results.json and the run folders it names."""
    name: str
    plan: dict[str, Any]
    config_text: str | None
    cells: list[CellResult]
    summary: list[MetricMean]
    differences: list[Difference]
    equal_epochs: EqualBudget
    equal_cpu: EqualBudget
    notes: list[str]
    verdict: list[str]
    claim: Claim | None = None   # if the comparison reproduces a paper
    searched: tuple[Searched, ...] = ()

    @cached_property
    def strategies(self) -> list[str]:
        """The strategies in the order of the plan, the baseline at its place."""
        return list(dict.fromkeys([*(c.strategy for c in self.cells), *(m.strategy for m in self.summary)]))

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics: the primary one, scores, validation, bare scores, then those that are not scores."""
        def order(metric: str) -> tuple[bool, bool, bool, bool]:
            part = metric.partition("/")[0]
            return metric != self.plan.get("metric"), part in NOT_SCORES, metric.endswith(BARE_SUFFIX), part == "valid"
        return sorted(dict.fromkeys(m.metric for m in self.summary), key=order)

    @property
    def baseline(self) -> str | None:
        value = self.plan.get("baseline")
        return value if isinstance(value, str) else None

    def cells_of(self, strategy: str) -> list[CellResult]:
        return sorted((c for c in self.cells if c.strategy == strategy), key=lambda c: c.seed)

    def values(self, strategy: str, metric: str) -> list[float]:
        """The values of the finished cells, by seed."""
        return self._values.get((strategy, metric), [])

    def means(self, metric: str) -> list[MetricMean]:
        """The means of one metric, in the order of the summary."""
        return self._means.get(metric, [])

    def higher_better(self, metric: str) -> bool:
        return self._higher_better.get(metric, True)

    # Indexes, built once: a search for each metric would be quadratic in the number of scores.

    @cached_property
    def _values(self) -> dict[tuple[str, str], list[float]]:
        values: dict[tuple[str, str], list[float]] = {}
        for cell in sorted(self.cells, key=lambda c: c.seed):
            for row in cell.scores if cell.finished else []:
                if row.value is not None:
                    values.setdefault((cell.strategy, f"{row.benchmark}/{row.metric}"), []).append(row.value)
        return values

    @cached_property
    def _means(self) -> dict[str, list[MetricMean]]:
        means: dict[str, list[MetricMean]] = {}
        for mean in self.summary:
            means.setdefault(mean.metric, []).append(mean)
        return means

    @cached_property
    def _higher_better(self) -> dict[str, bool]:
        return {d.metric: d.higher_better for d in reversed(self.differences)}


def read(folder: Path) -> Results:
    """Read a comparison. DataError, with file and key, if results.json is missing or malformed."""
    path = folder / "results.json"
    if not path.exists():
        raise DataError(f"{path}: no such file; a folder that `embtrain compare` wrote is expected")
    tree = read_json(path, _mapping, MAX_RESULTS_BYTES)
    assert tree is not None
    try:
        summary = [_mean(row, f"summary: row {i}") for i, row in enumerate(_list(tree, "summary"), 1)]
        rows = _list(tree, "cells")
        if len(rows) > MAX_CELLS:
            raise ValueError(f"cells: {len(rows):,} are too many; at most {MAX_CELLS:,} are shown")
        cells = [_cell(row, f"cells: row {i}", folder, {m.strategy for m in summary}) for i, row in enumerate(rows, 1)]
        place([c.run.metrics for c in cells if c.run and c.run.metrics])
        differences = [_difference(row, f"differences: row {i}")
                       for i, row in enumerate(_list(tree, "differences"), 1)]
        verdict, notes = _sentences(tree, "verdict"), _sentences(tree, "notes")
        at_equal = _mapping(tree.get("at_equal") or {}, "at_equal")
        epochs, cpu = _equal(at_equal, "epochs", "epochs"), _equal(at_equal, "cpu_seconds", "budget")
        plan = _mapping(tree.get("plan", {}), "plan")
        reproduced_claim = claim.parse(tree.get("reproduction"))
        searched = tuple(_searched(row, f"search: row {i}") for i, row in enumerate(_list(tree, "search"), 1))
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    config = folder / "comparison.yaml"
    text = read_text(config) if config.exists() else None
    return Results(folder.resolve().name, plan, text, cells, summary, differences, epochs, cpu,
                   notes, verdict, reproduced_claim, searched)


# Each check turns decoded JSON into a record, or raises ValueError with the place of the error.

def _mapping(value: Any, where: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: a mapping is expected, not {type_words(value)}".removeprefix(": "))
    return value


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    value = tree.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key}: a list is expected, not {type_words(value)}")
    return value


def _sentences(tree: dict[str, Any], key: str) -> list[str]:
    value = _list(tree, key)
    if not all(isinstance(sentence, str) for sentence in value):
        raise ValueError(f"{key}: a list of sentences is expected")
    return value


def _text(row: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(row.get(key), str):
        raise ValueError(f"{where}: {key} must be text")
    return row[key]


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{where} must be a count")
    return value


def _cell(value: Any, where: str, folder: Path, known: set[str]) -> CellResult:
    row = _mapping(value, where)
    name, strategy, status = (_text(row, key, where) for key in ("cell", "strategy", "status"))
    seed, loss = _count(row.get("seed"), f"{where}: seed"), row.get("loss")
    names = [name.removesuffix(f"-seed{seed}"), f"{strategy}+{loss}" if isinstance(loss, str) else strategy]
    strategy = next((s for s in [*names, strategy] if s in known), names[1])
    scores = row.get("scores") or []
    if not isinstance(scores, list):
        raise ValueError(f"{where}: scores: a list of rows is expected")
    subfolder = row.get("folder") or f"cells/{name}"
    if not isinstance(subfolder, str) or "\0" in subfolder:
        raise ValueError(f"{where}: folder must be a path")
    path = folder / subfolder
    record = run_record.read(path) if any((path / file).exists() for file in run_record.FILES) else None
    cpu = finite_or_none(row.get("cpu_seconds"), f"{where}: cpu_seconds")
    if cpu is None and record is not None and record.metrics is not None:
        cpu = record.metrics.reached.get("cpu_seconds")
    rows = [score_row(r, f"{where}: scores: row {i}") for i, r in enumerate(scores, 1)]
    error, code = (None, None) if status in FINISHED else _error(folder / "cells" / f"{Path(name).name}.error.json")
    if error is None and row.get("error") is not None:
        error = _text(row, "error", where)
    return CellResult(name, strategy, seed, status, rows, cpu, subfolder, record, error, code)


def _error(path: Path) -> tuple[str | None, int | None]:
    """The error of a failed cell, and its exit code."""
    if not path.exists():
        return None, None
    row = read_json(path, _mapping)
    assert row is not None
    code = row.get("code")
    return str(row.get("error", "")), code if isinstance(code, int) else None


def _searched(value: Any, where: str) -> Searched:
    row = _mapping(value, where)
    metric_value, cpu = (finite_or_none(row.get(key), f"{where}: {key}") for key in ("value", "cpu_seconds"))
    trials, failed = (_count(row.get(key), f"{where}: {key}") for key in ("trials", "failed"))
    return Searched(_text(row, "strategy", where), _text(row, "metric", where), metric_value,
                    flatten(_mapping(row.get("settings"), f"{where}: settings"), 1), trials, failed, cpu)


def _mean(value: Any, where: str) -> MetricMean:
    row = _mapping(value, where)
    mean, sd, low, high = (finite_or_none(row.get(key), f"{where}: {key}") for key in ("mean", "sd", "low", "high"))
    return MetricMean(_text(row, "strategy", where), _text(row, "metric", where), mean, sd, low, high,
                      _count(row.get("n"), f"{where}: n"))


def _difference(value: Any, where: str) -> Difference:
    row = _mapping(value, where)
    known = {f.name for f in fields(Difference)}
    if wrong := sorted(set(row) - known):
        raise ValueError(f"{where}: unknown key {wrong[0]!r}; the keys are {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for field in fields(Difference):
        x = row.get(field.name)
        place = f"{where}: {field.name}"
        if field.name in WORDS:
            is_there = field.name in row or field.name in REQUIRED_KEYS
            values[field.name] = _text(row, field.name, where) if is_there else ""
        elif field.name in COUNTS:
            values[field.name] = None if x is None and field.name == "needed" else _count(x, place)
        elif field.name == "higher_better":
            values[field.name] = x is not False
        elif field.name == "level":
            values[field.name] = x if isinstance(x, float) and 0 < x < 1 else 0.95
        else:
            values[field.name] = finite_or_none(x, place)
    if values["kind"] not in ("seeds", "items"):
        raise ValueError(f"{where}: kind must be 'seeds' or 'items'")
    return Difference(**values)


def _equal(at_equal: dict[str, Any], key: str, spent: str) -> EqualBudget:
    tree = _mapping(at_equal.get(key) if isinstance(at_equal.get(key), dict) else {}, key)
    values: dict[str, dict[str, list[float | None]]] = {}
    for i, row in enumerate(_list(tree, "rows"), 1):
        where = f"at_equal: {key}: row {i}"
        row = _mapping(row, where)
        values_by_strategy = values.setdefault(_text(row, "metric", where), {})
        value = finite_or_none(row.get("value"), f"{where}: value")
        values_by_strategy.setdefault(_text(row, "strategy", where), []).append(value)
    number, note = finite_or_none(tree.get(spent), f"at_equal: {key}: {spent}"), tree.get("note", "")
    return EqualBudget(number, values, note if isinstance(note, str) else "")
