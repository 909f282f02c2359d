"""Passes the lines of metrics.jsonl to the sinks of train.sinks, each line once a checkpoint covers it.

A sink that fails is dropped with a warning: the log has the numbers, and a resumed run sends all of them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from embtrain.common.errors import ResourceError, read_error
from embtrain.common.files import read_json, write_json
from embtrain.common.types import Score
from embtrain.train.sinks.base import LogLine, Sink, find, numeric_values
from embtrain.train.state.lease import LeaseLost, check_held
from embtrain.train.state.metrics_log import parse

_log = logging.getLogger("embtrain")


class Relay:
    """Forwards log lines to the named sinks; does nothing without names.

    fresh: whether the run has not trained yet. A sink that cannot start is then a ResourceError, later it is dropped.
    After an error, the sinks that started are closed.
    """

    def __init__(self, folder: Path, names: Sequence[str], settings: Mapping[str, str], now: float, fresh: bool = True):
        self.path, self.offset, self.n_lines, self.last = folder / "metrics.jsonl", 0, 0, LogLine(0, 0.0, {})
        classes = [find(name) for name in dict.fromkeys(names)]
        started = _start_time(folder / "sinks.json", now) if classes else now
        self.sinks: list[Sink] = []
        self.done = False
        try:
            for sink in classes:
                self._start(sink, folder, settings, started, fresh)
        except BaseException:
            self._for_each_sink(lambda sink: sink.close(done=False))
            raise

    def on_checkpoint(self, offset: int) -> None:
        """Forward the log up to `offset` bytes, which a checkpoint now covers. Raises as `check_held`."""
        if not self.sinks:
            return
        check_held()
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            text = file.read(max(0, offset - self.offset)).splitlines()
        lines = [self._new_values(parse(line, f"{self.path}:{self.n_lines + i}")) for i, line in enumerate(text, 1)]
        self.offset, self.n_lines = offset, self.n_lines + len(lines)
        self._for_each_sink(lambda sink: sink.write(lines))

    def write_scores(self, scores: Sequence[Score]) -> None:
        """Send the final scores to the sinks and mark the run as finished. Raises as `check_held`."""
        if self.sinks:
            check_held()
        self._for_each_sink(lambda sink: sink.write_scores(self.last, scores))
        self.done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the sinks, unless another machine has taken over the run and continues their streams."""
        if kind is None or not issubclass(kind, LeaseLost):
            self._for_each_sink(lambda sink: sink.close(self.done))

    def _start(self, sink: type[Sink], folder: Path, settings: Mapping[str, str], started: float, fresh: bool) -> None:
        try:
            self.sinks.append(sink(folder, settings, started))
        except ResourceError as error:
            if fresh:
                raise
            _warn(sink, error)

    def _new_values(self, line: Mapping[str, Any]) -> LogLine:
        """The line without numbers that an earlier line of its step had: evaluations are logged on their own lines."""
        step, values = int(line.get("step", 0)), numeric_values(line)
        seen = self.last.values if self.last.step == step else {}
        self.last = LogLine(step, values.get("seconds", 0.0), seen | values)
        return self.last._replace(values={key: value for key, value in values.items() if key not in seen})

    def _for_each_sink(self, action: Callable[[Sink], None]) -> None:
        """Call `action` on each sink; drop those that fail."""
        for sink in list(self.sinks):
            try:
                action(sink)
            except ResourceError as error:
                _warn(sink, error)
                self.sinks.remove(sink)


def _warn(sink: Sink | type[Sink], error: ResourceError) -> None:
    _log.warning("%s: failed and is switched off: %s", sink.name, error)


def _start_time(path: Path, now: float) -> float:
    """Time at which the run began, as first recorded: a line must have the same time in every process that sends it."""
    if not path.exists():
        write_json(path, {"begun": now})
        return now
    try:
        return float(read_json(path)["begun"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise read_error(path, error, f"does not contain the start time of the run: {error}; remove it") from error
