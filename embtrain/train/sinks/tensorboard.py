"""TensorBoard: RUN/tensorboard, to be looked at with `tensorboard --logdir RUN` or that of a folder of runs.

A file of events for each stretch of the log, written whole and named by the number of its first line. A run that goes
on writes the first file anew, with all lines so far, and takes the others away: no step is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from embtrain.common.errors import ResourceError
from embtrain.common.files import write_atomically
from embtrain.common.types import Score
from embtrain.train.sinks.base import Line, Sink, finals


class TensorBoard(Sink):
    name = "tensorboard"
    needs: ClassVar[tuple[str, ...]] = ("tensorboard",)

    def __init__(self, folder: Path, settings: Mapping[str, str], begun: float):
        self.folder, self.begun, self.told = folder / "tensorboard", begun, 0
        self.settings = "".join(f"    {key}: {value}\n" for key, value in settings.items())  # indented: as it stands

    def tell(self, lines: Sequence[Line]) -> None:
        from torch.utils.tensorboard.summary import scalar, text

        if not lines:
            return
        if self.told == 0:
            self._clear()
        summaries = [(line, scalar(key, value)) for line in lines for key, value in line.values.items()]
        if self.told == 0:
            summaries.insert(0, (lines[0]._replace(step=0), text("settings", self.settings)))
        self._write(f"{self.told:012d}", summaries)
        self.told += len(lines)

    def score(self, at: Line, rows: Sequence[Score]) -> None:
        from torch.utils.tensorboard.summary import scalar

        self._write("scores", [(at, scalar(key, value)) for key, value in finals(rows).items()])

    def _write(self, name: str, summaries: Sequence[tuple[Line, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with write_atomically(self.folder / f"events.out.tfevents.{name}") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=self.begun, file_version="brain.Event:2").SerializeToString())
            for at, summary in summaries:
                event = Event(wall_time=self.begun + at.seconds, step=at.step, summary=summary)
                writer.write(event.SerializeToString())

    def _clear(self) -> None:
        try:
            for path in self.folder.glob("events.out.tfevents.*"):
                path.unlink()
        except OSError as error:
            raise ResourceError(f"{self.folder}: cannot be written: {error.strerror or error}") from error
