"""Where the numbers of a run go besides metrics.jsonl: other programs that draw curves.

A sink is a view of the log. It is told a line only when a checkpoint keeps that line, for what was told cannot be taken
back; and a run that goes on tells it every kept line anew, so being told twice must be the same as being told once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from embtrain.common import registry
from embtrain.common.errors import UsageError
from embtrain.common.types import Score


class LogLine(NamedTuple):
    """A line of the log: where training stood, and its numbers."""

    step: int
    seconds: float              # that the run has trained by then
    values: dict[str, float]    # every finite number of the line but `step`; cpu_seconds among them


class Sink:
    """Base of every sink. ResourceError where the other program's store cannot be written."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]  # what it imports; the extra that brings it has the name of the sink

    def __init__(self, folder: Path, settings: Mapping[str, str], started: float):
        """folder: of the run. settings: dotted keys. begun: the time of day, in seconds, from which a line counts."""

    def write(self, lines: Sequence[LogLine]) -> None:
        """The next lines, in order; in the first call of a process, all that are kept."""
        raise TypeError(f"{type(self).__name__} does not implement tell")

    def write_scores(self, last: LogLine, scores: Sequence[Score]) -> None:
        """What the trained model is worth; `at`: the last line. Told once more where a run is judged once more."""
        raise TypeError(f"{type(self).__name__} does not implement score")

    def close(self, done: bool) -> None:
        """Nothing more comes; done: the run has come to its end."""


def names() -> list[str]:
    return list(registry.classes("embtrain.train.sinks", Sink))


def find(name: str) -> type[Sink]:
    """The sink of a name; UsageError where there is none, or where its packages are not installed."""
    sink = registry.find("embtrain.train.sinks", Sink, name, "train.sinks")
    if missing := [package for package in sink.needs if find_spec(package) is None]:
        raise UsageError(f"train.sinks: {name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
                         f"installed; pip install 'embtrain[{name}]'")
    return sink


def final_values(scores: Sequence[Score]) -> dict[str, float]:
    """Scores as numbers, each by a name of its own."""
    return {f"final/{row.benchmark}/{row.metric}": row.value for row in scores if row.value is not None}


def numeric_values(line: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in line.items()
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool)}
