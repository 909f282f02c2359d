"""Passes on what metrics.jsonl holds to the sinks of train.sinks, each line when a checkpoint keeps it.

A sink that fails is let go with a warning: the log has the numbers, and a run that goes on tells them all again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.files import read_json, write_json
from embtrain.common.types import Score
from embtrain.train.sinks.base import LogLine, Sink, find, numeric_values
from embtrain.train.state.metrics_log import parse

_log = logging.getLogger("embtrain")


class Relay:
    """To the sinks of these names; without names it does nothing. ResourceError where one cannot even begin."""

    def __init__(self, folder: Path, names: Sequence[str], settings: Mapping[str, str], now: float):
        self.path, self.offset, self.n_lines, self.last = folder / "metrics.jsonl", 0, 0, LogLine(0, 0.0, {})
        classes = [find(name) for name in dict.fromkeys(names)]
        started = _start_time(folder / "sinks.json", now) if classes else now
        self.sinks: list[Sink] = [sink(folder, settings, started) for sink in classes]
        self.done = False

    def on_checkpoint(self, offset: int) -> None:
        """A checkpoint keeps the log up to this byte."""
        if not self.sinks:
            return
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            text = file.read(max(0, offset - self.offset)).splitlines()
        lines = [self._new_values(parse(line, f"{self.path}:{self.n_lines + i}")) for i, line in enumerate(text, 1)]
        self.offset, self.n_lines = offset, self.n_lines + len(lines)
        self._for_each_sink(lambda sink: sink.write(lines))

    def write_scores(self, scores: Sequence[Score]) -> None:
        self._for_each_sink(lambda sink: sink.write_scores(self.last, scores))
        self.done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._for_each_sink(lambda sink: sink.close(self.done))

    def _new_values(self, line: Mapping[str, Any]) -> LogLine:
        """A line without what the one before has told of the same step: an evaluation stands on a line of its own."""
        step, values = int(line.get("step", 0)), numeric_values(line)
        seen = self.last.values if self.last.step == step else {}
        self.last = LogLine(step, values.get("seconds", 0.0), seen | values)
        return self.last._replace(values={key: value for key, value in values.items() if key not in seen})

    def _for_each_sink(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self.sinks):
            try:
                action(sink)
            except ResourceError as error:
                _log.warning("%s is told nothing more: %s", sink.name, error)
                self.sinks.remove(sink)


def _start_time(path: Path, now: float) -> float:
    """When the run began, as it was written at first: the same line must have the same time whoever tells it."""
    if not path.exists():
        write_json(path, {"begun": now})
        return now
    try:
        return float(read_json(path)["begun"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: does not say when the run began: {error}; take it away") from error
