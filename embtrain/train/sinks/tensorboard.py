"""TensorBoard sink: RUN/tensorboard, for `tensorboard --logdir RUN` or the folder that contains several runs.

Each batch of log lines becomes one complete event file, named after the number of its first line. A resumed run
rewrites the first file with all lines so far and deletes the others, so that no step occurs twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from embtrain.common.errors import ResourceError, os_reason
from embtrain.common.files import write_atomically
from embtrain.common.types import Score
from embtrain.train.sinks.base import LogLine, Sink, final_values


class TensorBoard(Sink):
    """Writes the log as TensorBoard event files."""

    name = "tensorboard"
    needs: ClassVar[tuple[str, ...]] = ("tensorboard",)

    def __init__(self, folder: Path, settings: Mapping[str, str], started: float):
        self.folder, self.started, self.n_written = folder / "tensorboard", started, 0
        self.settings = "".join(f"    {key}: {value}\n" for key, value in settings.items())  # indented: shown verbatim

    def write(self, lines: Sequence[LogLine]) -> None:
        from torch.utils.tensorboard.summary import scalar, text

        if not lines:
            return
        if self.n_written == 0:
            self._clear()
        summaries = [(line, scalar(key, value)) for line in lines for key, value in line.values.items()]
        if self.n_written == 0:
            summaries.insert(0, (lines[0]._replace(step=0), text("settings", self.settings)))
        self._write(f"{self.n_written:012d}", summaries)
        self.n_written += len(lines)

    def write_scores(self, last: LogLine, scores: Sequence[Score]) -> None:
        from torch.utils.tensorboard.summary import scalar

        self._write("scores", [(last, scalar(key, value)) for key, value in final_values(scores).items()])

    def _write(self, name: str, summaries: Sequence[tuple[LogLine, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with write_atomically(self.folder / f"events.out.tfevents.{name}") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=self.started, file_version="brain.Event:2").SerializeToString())
            for line, summary in summaries:
                event = Event(wall_time=self.started + line.seconds, step=line.step, summary=summary)
                writer.write(event.SerializeToString())

    def _clear(self) -> None:
        try:
            for path in self.folder.glob("events.out.tfevents.*"):
                path.unlink()
        except OSError as error:
            raise ResourceError(f"{self.folder}: cannot be written: {os_reason(error)}") from error
