"""Read results.json of a comparison and the run folders it names, with bounded sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError
from embtrain.common.json_records import mapping
from embtrain.common.types import Score
from embtrain.evaluate.comparison.reproduction import Reproduction
from embtrain.evaluate.comparison.results import (
    FINISHED,
    MAX_RESULTS_BYTES,
    CellResult,
    ChosenSettings,
    ComparisonResults,
    EqualCpu,
    EqualEpochs,
    MetricMean,
)
from embtrain.evaluate.heldout import DESCRIPTIONS, higher_better
from embtrain.evaluate.statistics.difference import Difference
from embtrain.report.load import run as run_record
from embtrain.report.load.run import RunRecord, place, read_json, read_text

BARE_SUFFIX = "/scores"  # metrics of uncorrected scores, of losses that learn log-odds


@dataclass(frozen=True)
class CellRecord:
    """One run of the comparison, with the files of its folder."""

    name: str
    strategy: str            # the label of the summary: with loss and model where they differ
    seed: int
    status: str
    scores: list[Score]
    cpu_seconds: float | None
    folder: str
    run: RunRecord | None    # None if its folder does not exist
    error: str | None        # one line, if the cell failed
    code: int | None

    @property
    def finished(self) -> bool:
        return self.error is None and self.status in FINISHED


@dataclass(frozen=True)
class EqualBudget:
    """Evaluations during training at equal cost; None for a run that had none by then."""

    limit: float | None     # epochs, or CPU seconds; None: unknown
    values: dict[str, dict[str, list[float | None]]]  # metric -> strategy -> one value per seed
    note: str


@dataclass(frozen=True)
class Results:
    """results.json and the run folders it names."""
    name: str
    plan: dict[str, Any]
    config_text: str | None
    cells: list[CellRecord]
    summary: list[MetricMean]
    differences: list[Difference]
    equal_epochs: EqualBudget
    equal_cpu: EqualBudget
    notes: list[str]
    verdict: list[str]
    reproduction: Reproduction | None = None   # of a paper's claim, if the comparison is one
    searched: tuple[ChosenSettings, ...] = ()

    @cached_property
    def strategies(self) -> list[str]:
        """The strategies in the order of the plan, the baseline at its place."""
        return list(dict.fromkeys([*(c.strategy for c in self.cells), *(m.strategy for m in self.summary)]))

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics: the primary one, scores, validation, bare scores, then those that are not scores."""
        def order(metric: str) -> tuple[bool, bool, bool, bool]:
            part = metric.partition("/")[0]
            return (metric != self.plan.get("metric"), part in DESCRIPTIONS, metric.endswith(BARE_SUFFIX),
                    part == "valid")
        return sorted(dict.fromkeys(m.metric for m in self.summary), key=order)

    @property
    def baseline(self) -> str | None:
        value = self.plan.get("baseline")
        return value if isinstance(value, str) else None

    def cells_of(self, strategy: str) -> list[CellRecord]:
        return sorted((c for c in self.cells if c.strategy == strategy), key=lambda c: c.seed)

    def values(self, strategy: str, metric: str) -> list[float]:
        """The values of the finished cells, by seed."""
        return self._values.get((strategy, metric), [])

    def means(self, metric: str) -> list[MetricMean]:
        """The means of one metric, in the order of the summary."""
        return self._means.get(metric, [])

    def higher_better(self, metric: str) -> bool:
        """As the differences state, which a comparison of one strategy and untested metrics lack."""
        return self._higher_better.get(metric, higher_better(metric))

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
        raise DataError(f"{path}: file not found; give a folder written by `embtrain compare`")
    file = read_json(path, ComparisonResults.from_json, MAX_RESULTS_BYTES)
    assert file is not None
    known = {mean.strategy for mean in file.summary}
    try:
        cells = [_cell(row, f"cells: row {i}", folder, known) for i, row in enumerate(file.cells, 1)]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    place([c.run.metrics for c in cells if c.run and c.run.metrics])
    config = folder / "comparison.yaml"
    text = read_text(config) if config.exists() else None
    epochs, cpu = file.at_equal.epochs, file.at_equal.cpu_seconds
    return Results(folder.resolve().name, file.plan, text, cells, file.summary, file.differences,
                   _equal(epochs, epochs.epochs), _equal(cpu, cpu.budget), file.notes, file.verdict,
                   file.reproduction, tuple(file.search or ()))


def _cell(row: CellResult, where: str, folder: Path, known: set[str]) -> CellRecord:
    """Read the folder of a cell. known: the strategies of the summary."""
    names = [row.cell.removesuffix(f"-seed{row.seed}"), row.strategy if row.loss is None
             else f"{row.strategy}+{row.loss}"]
    strategy = next((s for s in [*names, row.strategy] if s in known), names[1])
    subfolder = row.folder or f"cells/{row.cell}"
    if "\0" in subfolder:
        raise ValueError(f"{where}: folder must be a path")
    path = folder / subfolder
    record = run_record.read(path) if any((path / file).exists() for file in run_record.FILES) else None
    cpu = row.cpu_seconds
    if cpu is None and record is not None and record.metrics is not None:
        cpu = record.metrics.reached.get("cpu_seconds")
    error, code = (None, None) if row.status in FINISHED else \
        _error(folder / "cells" / f"{Path(row.cell).name}.error.json")
    return CellRecord(row.cell, strategy, row.seed, row.status, row.scores, cpu, subfolder, record,
                      row.error if error is None else error, code)


def _error(path: Path) -> tuple[str | None, int | None]:
    """The error of a failed cell, and its exit code."""
    if not path.exists():
        return None, None
    row = read_json(path, mapping)
    assert row is not None
    code = row.get("code")
    return str(row.get("error", "")), code if isinstance(code, int) else None


def _equal(at_equal: EqualEpochs | EqualCpu, limit: float | None) -> EqualBudget:
    values: dict[str, dict[str, list[float | None]]] = {}
    for row in at_equal.rows:
        values.setdefault(row.metric, {}).setdefault(row.strategy, []).append(row.value)
    return EqualBudget(limit, values, at_equal.note)
