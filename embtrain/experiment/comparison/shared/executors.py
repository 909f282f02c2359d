"""Cells of a comparison as calls of an executor: of `concurrent.futures`, Dask, submitit, mpi4py and similar.

A call takes the lease of its cell like a process that joins, so a call that is repeated because its worker was lost
cannot harm one that still runs on the lost worker. All that an executor must have is `submit(function, *arguments)`,
which returns an object with `done()`, `exception()` and `cancel()`.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from embtrain.common import terminal
from embtrain.common.config import saved_tree
from embtrain.common.errors import ResourceError, Stopped
from embtrain.experiment.comparison import workers
from embtrain.experiment.comparison.shared.board import Board
from embtrain.experiment.comparison.shared.joiner import Joiner
from embtrain.experiment.comparison.shared.places import leases_in, runs_in, sessions_in
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run import settings as run_settings
from embtrain.train.state.signals import Stop

MAX_CALLS = 4        # calls for one cell: one, and repetitions after its worker was lost
STOP_SECONDS = 60.0  # for which running calls may save after a signal
_POLL = 0.1          # seconds


def pack(cell: Cell) -> dict[str, Any]:
    """The fields of a cell in a form that can be pickled."""
    return {field.name: getattr(cell, field.name) for field in fields(cell)} | {
        "settings": saved_tree(cell.settings)}


def run_cell(packed: Mapping[str, Any], folder: Path, threads: int, stale_after: float, session: Path,
             retried: Mapping[str, int]) -> None:
    """Train one cell in a worker of an executor, or wait until another process has; stop if `session` is deleted.

    packed: from `pack`. The cell's own error is stored in the folder; an exception means that the worker could not run
    it.
    """
    cell = Cell(**{**packed, "settings": run_settings.from_tree(packed["settings"])})
    try:
        with workers.working_in(folder, fcntl.LOCK_SH) as lock, Board(leases_in(folder), stale_after) as board:
            Joiner(board, runs_in(folder), 1, threads, lock, None, retried, lambda: not session.exists()).run([cell])
    except Stopped as stopped:  # the worker must end; not an Exception, which executors return
        raise InterruptedError(str(stopped)) from stopped


@dataclass(frozen=True)
class Submitter:
    """Submits cells to an executor, at most `parallel` at a time."""

    executor: Any
    folder: Path
    board: Board
    parallel: int
    threads: int
    retried: Mapping[str, int]

    def run(self, cells: Sequence[Cell], on_finished: Callable[[Cell], None] = lambda cell: None) -> None:
        """Return when all cells are over. Raises Stopped on a signal, ResourceError if the executor lost a cell."""
        waiting, calls, lost = list(cells), Counter[Cell](), dict[Cell, BaseException]()
        submitted: dict[Cell, Any] = {}
        with Stop() as stop, self._session() as session:
            try:
                while (waiting or submitted) and stop.requested is None:
                    while waiting and len(submitted) < self.parallel:
                        cell = waiting.pop(0)
                        if cell.is_finished():
                            on_finished(cell)
                            continue
                        calls[cell] += 1
                        submitted[cell] = self._submit(cell, session)
                    time.sleep(_POLL)
                    for cell in [cell for cell, future in submitted.items() if future.done()]:
                        error = _error(submitted.pop(cell))
                        if error is None and cell.is_finished():
                            on_finished(cell)
                        elif error is not None and calls[cell] < MAX_CALLS:
                            terminal.note(f"{cell.name}: its worker was lost: {_line(error)}; it is submitted again")
                            waiting.append(cell)
                        elif error is not None:
                            lost[cell] = error
            finally:
                session.unlink(missing_ok=True)
                _await(submitted.values())
            stop.check()
        for cell, error in lost.items():
            part = terminal.format_part(len(lost), len(cells), "runs", f"was lost {MAX_CALLS} times",
                                        f"were lost {MAX_CALLS} times each")
            raise ResourceError(f"executor: {part}; {cell.name}: {_line(error)}; repeat the call to continue")

    def _submit(self, cell: Cell, session: Path) -> Any:
        try:
            return self.executor.submit(run_cell, pack(cell), self.folder, self.threads, self.board.stale_after,
                                        session, dict(self.retried))
        except BrokenExecutor as error:
            raise ResourceError(f"executor: lost a worker and accepts no more calls: {error}; repeat the call with a "
                                "new executor to continue") from error

    @contextlib.contextmanager
    def _session(self) -> Iterator[Path]:
        """A file that exists while this process needs the cells."""
        path = sessions_in(self.folder) / uuid.uuid4().hex
        path.touch()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _error(future: Any) -> BaseException | None:
    """The exception of a call, also if it was cancelled; None if there is none."""
    try:
        return future.exception()
    except CancelledError as error:
        return error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _await(futures: Iterable[Any]) -> None:
    """Cancel calls that have not begun and wait until the others have saved."""
    running = [future for future in futures if not future.cancel()]
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline and not all(future.done() for future in running):
        time.sleep(_POLL)
