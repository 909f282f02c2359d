"""Read a run folder, with bounded sizes. A missing file is None; a damaged one raises DataError.

config.yaml · identity.json · metrics.jsonl · scores.json · neighbours.json · answers.json
"""

from __future__ import annotations

import json
import math
import statistics
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, ResourceError, UsageError, os_reason
from embtrain.common.files import check_exists
from embtrain.common.json_records import MAX_VALUE, decode, finite_or_none, mapping, type_words
from embtrain.common.types import Score
from embtrain.report.load import answers
from embtrain.report.load.answers import ExampleAnswers
from embtrain.train.state.metrics_log import read as read_lines

T = TypeVar("T")

FILES = ("config.yaml", "identity.json", "metrics.jsonl", "scores.json", "neighbours.json", answers.FILE)
MAX_FILE_BYTES = 16 << 20      # of a file, except metrics.jsonl
# of the line itself; every other key is a curve
POSITION_KEYS = ("step", "epoch", "examples", "seconds", "cpu_seconds")


@dataclass
class Curve:
    """One key of metrics.jsonl over the run."""

    step: array = field(default_factory=lambda: array("d"))
    cpu: array = field(default_factory=lambda: array("d"))    # CPU seconds, NaN where the line has none
    value: array = field(default_factory=lambda: array("d"))  # NaN: written as null, not a finite number
    examples: array = field(default_factory=lambda: array("d"))  # positives seen, NaN where the line has none
    epoch: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # fractional epochs: MetricCurves.place

    def add(self, step: float, cpu: float, value: float, examples: float = math.nan) -> None:
        columns = (self.step, self.cpu, self.value, self.examples)
        # A resumed run repeats the steps after its checkpoint; the later line counts.
        while self.step and self.step[-1] >= step:
            for column in columns:
                column.pop()
        for column, x in zip(columns, (step, cpu, value, examples), strict=True):
            column.append(x)


@dataclass
class MetricCurves:
    """The curves of metrics.jsonl, the last position, and the ends of the epochs."""
    curves: dict[str, Curve] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)  # the last line's step, epoch, examples, seconds
    ends: dict[float, float] = field(default_factory=dict)   # complete epochs -> examples at the first line after them

    @property
    def epoch_size(self) -> float:
        """Mean number of examples per epoch; NaN if none is complete."""
        return next((examples / epoch for epoch, examples in reversed(self.ends.items())), math.nan)

    def place(self, size: float) -> None:
        """Compute the position of every line in epochs. size: examples of an epoch, after the last complete one.

        Neither steps nor examples are comparable between runs: block sizes differ between engines, and the number of
        examples left by subsampling differs between seeds.
        """
        epochs, examples = np.array([0.0, *self.ends]), np.array([0.0, *self.ends.values()])
        for curve in self.curves.values():
            x = np.asarray(curve.examples)
            curve.epoch = np.where(x > examples[-1], epochs[-1] + (x - examples[-1]) / size,
                                   np.interp(x, examples, epochs))


@dataclass(frozen=True)
class NeighbourLists:
    """Neighbours 1–5 and 45–50 of some words."""
    near: dict[str, list[tuple[str, float]]]  # word -> its neighbours 1-5 and their cosines
    far: dict[str, list[tuple[str, float]]]   # word -> those of ranks 45-50
    far_rank: float | None                    # mean frequency rank of all in `far`
    far_pmi: float | None                     # mean PMI of a word and those in its `far`


@dataclass(frozen=True)
class RunRecord:
    """The files of a run folder; None for a missing one."""
    name: str
    config: dict[str, Any] | None
    config_text: str | None
    identity: dict[str, Any] | None
    metrics: MetricCurves | None
    scores: list[Score] | None
    neighbours: NeighbourLists | None
    answers: ExampleAnswers | None = None

    @property
    def expects_neighbours(self) -> bool:
        """Whether neighbours are expected: runs on text list those of words, other tasks do not."""
        return self.neighbours is not None or (self.identity or {}).get("task", "windows") == "windows"


def read(folder: Path) -> RunRecord:
    """Read a run folder. DataError if it is not one, or if a file is damaged."""
    check_exists(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: folder not found; give a run folder, e.g. runs/...")
    paths = {name: folder / name if (folder / name).exists() else None for name in FILES}
    if not any(paths.values()):
        raise DataError(f"{folder}: not a run folder: it has none of {', '.join(FILES)}")
    config, text = _config(paths["config.yaml"])
    return RunRecord(folder.resolve().name, config, text, read_json(paths["identity.json"], mapping),
                     _metrics(paths["metrics.jsonl"]), read_json(paths["scores.json"], _scores),
                     read_json(paths["neighbours.json"], _neighbours),
                     read_json(paths[answers.FILE], answers.parse))


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    try:
        if not path.is_file():
            raise DataError(f"{path}: not a plain file")
        if (size := path.stat().st_size) > max_bytes:
            raise DataError(f"{path}: {size:,} bytes, more than the {max_bytes:,} allowed")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {os_reason(error)}") from error


def _config(path: Path | None) -> tuple[dict[str, Any] | None, str | None]:
    if path is None:
        return None, None
    try:
        tree = read_yaml(path).tree
    except UsageError as error:
        raise DataError(f"{error}") from error
    if not tree:
        raise DataError(f"{path}: is empty; restore the run's own config.yaml")
    return tree, read_text(path)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def read_json(path: Path | None, check: Callable[[Any], T], max_bytes: int = MAX_FILE_BYTES) -> T | None:
    if path is None:
        return None
    text = read_text(path, max_bytes)
    try:
        return check(json.loads(text, parse_constant=_no_constant))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# Each check turns decoded JSON into a record, or raises ValueError with the place of the error.

def _scores(value: Any) -> list[Score]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of rows, not {type_words(value)}")
    return [decode(Score, row, f"row {i}") for i, row in enumerate(value, 1)]


def _neighbours(value: Any) -> NeighbourLists:
    tree = mapping(value)
    far_rank, far_pmi = (finite_or_none(tree.get(key), key) for key in ("far_rank", "far_pmi"))
    return NeighbourLists(_lists(tree, "near"), _lists(tree, "far"), far_rank, far_pmi)


def _lists(value: dict[str, Any], key: str) -> dict[str, list[tuple[str, float]]]:
    words = value.get(key, {})
    if not isinstance(words, dict):
        raise ValueError(f"{key}: expected a mapping of words")
    out: dict[str, list[tuple[str, float]]] = {}
    for word, neighbours in words.items():
        pairs: list[Any] = neighbours if isinstance(neighbours, list) else [None]
        if not all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in pairs):
            raise ValueError(f"{key}: {word[:60]!r}: expected a list of [word, cosine]")
        where = f"{key}: {word[:60]!r}: cosine"
        out[word] = [(p[0], c) for p in pairs if (c := finite_or_none(p[1], where)) is not None]
    return out


def _metrics(path: Path | None) -> MetricCurves | None:
    if path is None:
        return None
    metrics = MetricCurves()
    for number, entry in enumerate(read_lines(path), 1):
        step = _finite(entry.get("step"))
        if math.isnan(step):
            raise DataError(f"{path}:{number}: key 'step' must be a number")
        _add_entry(metrics, step, {k: _finite(v) for k, v in entry.items() if v is None or type(v) in (int, float)})
    metrics.place(metrics.epoch_size)
    return metrics


def _add_entry(metrics: MetricCurves, step: float, numbers: dict[str, float]) -> None:
    metrics.reached |= {k: numbers[k] for k in POSITION_KEYS if k in numbers and not math.isnan(numbers[k])}
    cpu, epoch, examples = (numbers.get(key, math.nan) for key in ("cpu_seconds", "epoch", "examples"))
    if epoch > max(metrics.ends, default=0.0) and examples > max(metrics.ends.values(), default=0.0):
        metrics.ends[epoch] = examples
    for key, value in numbers.items():
        if key not in POSITION_KEYS:
            metrics.curves.setdefault(key, Curve()).add(step, cpu, value, examples)


def _finite(value: object) -> float:
    is_finite = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_VALUE
    return float(value) if is_finite else math.nan  # type: ignore[arg-type]


# --- shared by the runs of a comparison ----------------------------------------------------------------------------

def flatten(tree: dict[str, Any], depth: int = 4, prefix: str = "") -> dict[str, str]:
    """{"corpus": {"name": "x"}} -> {"corpus · name": "x"}; values deeper than `depth` become JSON."""
    out: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value and depth > 1:
            out |= flatten(value, depth - 1, f"{prefix}{key} · ")
        else:
            out[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return out


def place(runs: list[MetricCurves]) -> None:
    """Place runs that were cut in their first epoch by the mean epoch size of the others."""
    sizes = [run.epoch_size for run in runs if run.ends]
    for run in runs:
        if sizes and not run.ends:
            run.place(statistics.fmean(sizes))
