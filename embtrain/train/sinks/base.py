"""Sinks: other programs that receive the numbers of a run in addition to metrics.jsonl, and draw curves.

A sink is a view of the log. It receives a line only once a checkpoint covers it, because a line that was sent cannot
be taken back. A resumed run sends every covered line again, so writing a line twice must equal writing it once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from embtrain.common import registry
from embtrain.common.errors import UsageError
from embtrain.common.types import Score

STORES = "EMBTRAIN_STORES"  # environment of a run that trains in another folder than its final one: see store_folder


class LogLine(NamedTuple):
    """One line of the log: the position of training, and its numbers."""

    step: int
    seconds: float              # of training so far
    values: dict[str, float]    # every finite number of the line except `step`, including cpu_seconds


class Sink:
    """Base class of every sink. Methods raise ResourceError if the program's store cannot be written."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]  # packages it imports; the extra that installs them has the sink's name

    def __init__(self, folder: Path, settings: Mapping[str, str], started: float):
        """folder: of the run. settings: values by dotted key. started: wall-clock second at which the run began."""

    def write(self, lines: Sequence[LogLine]) -> None:
        """Write the next lines, in order; the first call of a process receives all covered lines."""
        raise TypeError(f"{type(self).__name__} does not implement write")

    def write_scores(self, last: LogLine, scores: Sequence[Score]) -> None:
        """Write the final scores. `last`: the last line. Called again if a run is evaluated again."""
        raise TypeError(f"{type(self).__name__} does not implement write_scores")

    def close(self, done: bool) -> None:
        """End of the stream; done: the run has finished."""


def store_folder(folder: Path) -> Path:
    """The folder of a store that the runs of one parent folder share. folder: of a run.

    It is that parent folder; for a run of a shared comparison, the parent of the folder to which it will be moved.
    """
    return Path(os.environ.get(STORES) or folder.parent).resolve()


def names() -> list[str]:
    """Names of all sinks."""
    return list(registry.classes("embtrain.train.sinks", Sink))


def find(name: str) -> type[Sink]:
    """The sink class of a name. UsageError if there is none, or if its packages are not installed."""
    sink = registry.find("embtrain.train.sinks", Sink, name, "train.sinks")
    if missing := [package for package in sink.needs if find_spec(package) is None]:
        raise UsageError(f"train.sinks: {name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
                         f"installed; pip install 'embtrain[{name}]'")
    return sink


def final_values(scores: Sequence[Score]) -> dict[str, float]:
    """Scores as numbers, each under a key of its own."""
    return {f"final/{row.benchmark}/{row.metric}": row.value for row in scores if row.value is not None}


def numeric_values(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log line except `step`, as floats."""
    return {key: float(value) for key, value in line.items()
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool)}
