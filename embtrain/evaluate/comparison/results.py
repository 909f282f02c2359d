"""The schema of results.json, the statistics of a comparison. Names of fields are the keys of the file.

A key that has a default here may be absent: files of before that key had none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from embtrain.common.json_records import OMIT_IF_NONE, decode, encode, mapping
from embtrain.common.types import Score
from embtrain.evaluate.comparison.reproduction import Reproduction
from embtrain.evaluate.statistics.difference import Difference

MAX_CELLS = 2000                  # more would make an unreadable report
MAX_SCORES = 200_000              # of all cells; each takes 500 bytes
MAX_RESULTS_BYTES = 256 << 20     # twice what MAX_SCORES scores take
FINISHED = ("finished", "done", "ok")


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """One run of the comparison."""

    cell: str
    strategy: str                                  # label of the run's kind
    loss: str | None = None
    model: str | None = None
    seed: int
    folder: str | None = None                      # relative to the comparison; None: cells/CELL
    status: str
    scores: list[Score] = field(default_factory=list)
    cpu_seconds: float | None = None
    error: str | None = field(default=None, metadata=OMIT_IF_NONE)

    @property
    def finished(self) -> bool:
        return self.error is None and self.status in FINISHED


@dataclass(frozen=True, kw_only=True)
class MetricMean:
    """One strategy on one metric, over n seeds."""

    strategy: str
    metric: str
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    n: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A run's value at a budget, evaluated or, at equal CPU time, interpolated; None before the first evaluation."""

    strategy: str
    seed: int | None = None
    metric: str
    value: float | None = None
    step: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class EqualEpochs:
    """Evaluations during training at equal epochs: equal positives, in the same order if the blocks are equal."""

    epochs: float | None = None                    # None: a run ended in its first epoch
    steps: float | None = None
    examples: float | None = None
    rows: list[Evaluation] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class EqualCpu:
    """Evaluations during training at equal CPU time."""

    budget: float | None = None                    # CPU seconds of each run: the largest that all reached
    rows: list[Evaluation] = field(default_factory=list)
    note: str = ""
    differences: list[Difference] = field(default_factory=list)


@dataclass(frozen=True)
class AtEqual:
    epochs: EqualEpochs = EqualEpochs()
    cpu_seconds: EqualCpu = EqualCpu()


@dataclass(frozen=True)
class ChosenSettings:
    """The settings chosen for a strategy before the comparison, by trials on validation."""

    strategy: str
    metric: str
    value: float | None
    trials: int
    failed: int
    settings: dict[str, Any]
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class ComparisonResults:
    """results.json."""

    plan: dict[str, Any] = field(default_factory=dict)   # the grid, `labels` and `corpus_sha256`
    cells: list[CellResult] = field(default_factory=list)
    summary: list[MetricMean] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    at_equal: AtEqual = AtEqual()
    notes: list[str] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)
    search: list[ChosenSettings] | None = field(default=None, metadata=OMIT_IF_NONE)
    reproduction: Reproduction | None = field(default=None, metadata=OMIT_IF_NONE)

    def to_json(self) -> dict[str, Any]:
        return encode(self)

    @classmethod
    def from_json(cls, tree: Any) -> ComparisonResults:
        """ValueError, with the key, if the tree does not have this schema."""
        cells = mapping(tree).get("cells")
        if isinstance(cells, list) and len(cells) > MAX_CELLS:
            raise ValueError(f"cells: {len(cells):,} are too many; give at most {MAX_CELLS:,}")
        return decode(cls, tree)
