"""One of the processes that train the cells of a comparison in a shared folder: it takes free cells by lease.

A cell is free if it was never taken, if its holder gave it up, or if its holder or its process was killed. It is over
if its run is finished or has failed. Every process waits until all cells are over, so that it can take over those of a
machine that dies.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embtrain.common import progress, terminal
from embtrain.common.errors import DataError, ResourceError, UsageError, is_crash
from embtrain.experiment.comparison import workers
from embtrain.experiment.comparison.shared import handover
from embtrain.experiment.comparison.shared.board import DONE, FAILED, KILLED, RELEASED, SKIPPED, Board, Holder
from embtrain.experiment.comparison.workers import Cell, CellProcess
from embtrain.train.sinks.base import STORES
from embtrain.train.state.lease import VARIABLE, Lease
from embtrain.train.state.signals import Stop

MAX_KILLS = 6    # kills of a run without a new checkpoint in between, after which it has failed
_POLL = 0.05     # seconds
_MAX_LOOK = 2.0  # seconds between two looks at the leases, or less

Holders = Mapping[str, Holder]


@dataclass(frozen=True, eq=False)
class _Work:
    """A running cell of this process."""

    cell: Cell
    inside: Cell  # the same with the folder of this holder
    lease: Lease
    process: CellProcess


@dataclass
class Joiner:
    """Takes and trains cells, `parallel` at a time with `threads` threads each.

    runs: folder of the unfinished runs. lock: inherited by the cells' processes. budget: CPU seconds of all cells on
    all machines, after which none starts. retried: failed cells that are taken once more, with the numbers of their
    leases. is_ended: whether the process that needs the cells has ended. refused: the errors of cells whose folder this
    machine cannot write, copy or publish, by name; it does not take them again.
    """

    board: Board
    runs: Path
    parallel: int
    threads: int
    lock: int
    budget: float | None = None
    retried: Mapping[str, int] = field(default_factory=dict)
    is_ended: Callable[[], bool] = lambda: False
    works: list[_Work] = field(default_factory=list)
    refused: dict[str, ResourceError] = field(default_factory=dict)

    def run(self, cells: Sequence[Cell], on_finished: Callable[[Cell], None] = lambda cell: None) -> None:
        """Train cells until all are over, here or elsewhere. Raises Stopped on a signal, with all leases given up.

        on_finished: called for each finished cell; an exception it raises stops everything. ResourceError if all free
        cells are refused and none is running here.
        """
        waiting, printed_at = list(cells), time.monotonic()
        with Stop() as stop:
            try:
                while True:
                    holders = self.board.look()
                    self._drop_lost(holders)
                    for cell in [cell for cell in waiting if self._is_over(cell, cells, holders)]:
                        waiting.remove(cell)
                        if cell.is_finished():
                            on_finished(cell)
                    request = stop.requested or (signal.SIGTERM if self.is_ended() else None)
                    if request is None:
                        self._take_free(waiting, cells, holders)
                        self._check_refused(waiting, holders)
                    for work in self.works if request is not None else ():
                        work.process.send_once(request or signal.SIGTERM)
                    if not self.works and (request is not None or not waiting):
                        break
                    if not progress.is_quiet() and time.monotonic() - printed_at >= progress.EVERY_SECONDS:
                        printed_at = time.monotonic()
                        self._print_status(cells, waiting)
                    self._wait(stop)
            finally:
                for work in list(self.works):  # only if this loop itself failed
                    work.process.send_once(signal.SIGTERM)
                    work.process.child.wait()
                    self._collect(work)
            stop.check()

    def _wait(self, stop: Stop) -> None:
        """Wait until a cell ends, a signal arrives or it is time to look at the leases."""
        until, requested = time.monotonic() + min(_MAX_LOOK, self.board.stale_after / 10), stop.requested
        while time.monotonic() < until and stop.requested == requested:
            if ended := [work for work in self.works if work.process.child.poll() is not None]:
                for work in ended:
                    self._collect(work)
                return
            time.sleep(_POLL)

    def _print_status(self, cells: Sequence[Cell], waiting: Sequence[Cell]) -> None:
        here = [work.cell.name for work in self.works]
        n_elsewhere = sum(not holder.is_free and name not in here for name, holder in self.board.holders.items()
                          if name in {cell.name for cell in waiting})
        running = f"; running here: {', '.join(here)}" if here else ""
        terminal.note(f"comparing: {len(cells) - len(waiting)} of {len(cells)} runs over{running}; on other machines: "
                      f"{n_elsewhere}")

    # -- which cells ----------------------------------------------------------------------------------------------

    def _is_over(self, cell: Cell, cells: Sequence[Cell], holders: Holders) -> bool:
        if cell.is_finished():
            return True
        holder = holders.get(cell.name)
        if holder is None or holder.number == self.retried.get(cell.name):
            return False
        return holder.state == FAILED or (holder.state == SKIPPED and self._is_used_up(cells))

    def _is_free(self, cell: Cell, holders: Holders) -> bool:
        holder = holders.get(cell.name)
        return (holder is None or holder.is_free or holder.state == SKIPPED
                or holder.number == self.retried.get(cell.name))

    def _is_used_up(self, cells: Sequence[Cell]) -> bool:
        return self.budget is not None and self.spent(cells) >= self.budget

    def spent(self, cells: Sequence[Cell]) -> float:
        """CPU seconds that these cells have trained on all machines."""
        return workers.spent([self._newest(cell) for cell in cells])

    def _newest(self, cell: Cell) -> Cell:
        """The cell with the folder of its last holder."""
        holder = self.board.holders.get(cell.name)
        if holder is None or cell.is_finished():
            return cell
        folder = handover.newest_run(self.runs, cell, holder.number)
        return cell if folder is None else handover.moved(cell, folder)

    # -- start and end --------------------------------------------------------------------------------------------

    def _take_free(self, waiting: Sequence[Cell], cells: Sequence[Cell], holders: Holders) -> None:
        here = {work.cell for work in self.works}
        for cell in waiting:
            if len(self.works) >= self.parallel:
                return
            if cell not in here and cell.name not in self.refused and self._is_free(cell, holders):
                self._take(cell, holders.get(cell.name), self._is_used_up(cells))

    def _check_refused(self, waiting: Sequence[Cell], holders: Holders) -> None:
        """Raise the first error of the refused cells if this process runs none and no other cell is free."""
        free = [cell.name for cell in waiting if self._is_free(cell, holders)]
        errors = [self.refused[name] for name in free if name in self.refused]
        if errors and not self.works and len(errors) == len(free):
            raise errors[0]

    def _take(self, cell: Cell, holder: Holder | None, is_used_up: bool) -> None:
        """Take a free cell, unless another process is faster, and start it."""
        number = 0 if holder is None else holder.number
        step, kills = handover.last_step(handover.newest_run(self.runs, cell, number)), 0
        if holder is not None and number != self.retried.get(cell.name) and step <= holder.number_of("step", -1):
            kills = holder.number_of("kills", 0) + holder.is_dead
        lease = self.board.take(cell.name, step=step, kills=kills)
        if lease is None:
            return
        with self._refusing(cell, lease):
            handover.remove_failure(cell)
            if is_used_up:
                limit = terminal.format_count(self.budget or 0, "CPU second")
                self._fail(cell, lease, f"not started: the limit of {limit} for all runs was used up", None, SKIPPED)
            elif kills >= MAX_KILLS:
                self._fail(cell, lease, f"killed {kills} times without a new checkpoint, which may mean too little "
                           "memory", 128 + signal.SIGKILL)
            else:
                variables = {VARIABLE: str(lease.path), STORES: str(cell.folder.parent)}
                try:
                    inside = handover.prepare(self.runs, cell, lease)
                    process = CellProcess(inside, self.threads, self.lock, variables)
                except (UsageError, DataError) as error:
                    self._fail(cell, lease, f"{error}", error.code)
                else:
                    self.works.append(_Work(cell, inside, lease, process))

    def _collect(self, work: _Work) -> None:
        """Publish a run that ended, or record why it can be taken again."""
        self.works.remove(work)
        with self._refusing(work.cell, work.lease):
            message, code = work.process.error(), work.process.code()
            if not self.board.holds(work.lease):
                self._discard(work)
            elif code == 0 and work.inside.is_finished():
                handover.publish(work.cell, work.inside)
                self.board.end(work.lease, DONE)
                handover.clear(self.runs, work.cell)
                self._note(work.cell, "done")
            elif work.process.is_signalled:
                self.board.end(work.lease, RELEASED)
            elif code > 128 and not is_crash(code):
                self.board.end(work.lease, KILLED)
                self._note(work.cell, f"{message}; it will be resumed")
            else:
                handover.publish(work.cell, work.inside)
                message = message.replace(str(work.inside.folder), str(work.cell.folder))       # which was moved
                self._fail(work.cell, work.lease, message, code)
                handover.clear(self.runs, work.cell)

    @contextlib.contextmanager
    def _refusing(self, cell: Cell, lease: Lease) -> Iterator[None]:
        """Give up a cell and its lease on ResourceError.

        That is not a failure of the run, because another machine may have the disk space or the permission that this
        one lacks.
        """
        try:
            yield
        except ResourceError as error:
            self.refused[cell.name] = error
            self.board.end(lease, RELEASED)
            self._note(cell, f"is left to other machines: {error}")

    def _fail(self, cell: Cell, lease: Lease, message: str, code: int | None, state: str = FAILED) -> None:
        cell.fail(message, code)
        self.board.end(lease, state)
        terminal.note(f"{cell.name}: {message if code is None else f'failed: {message}'}")

    def _drop_lost(self, holders: Holders) -> None:
        """Kill the runs that another machine has taken over, or finished."""
        for work in list(self.works):
            holder = holders.get(work.lease.name)
            if holder is None or holder.number != work.lease.number or work.cell.is_finished():
                self.works.remove(work)
                work.process.kill()
                self._discard(work)

    def _discard(self, work: _Work) -> None:
        """Give up a run that another machine has taken over, or finished."""
        self.board.end(work.lease, RELEASED)
        shutil.rmtree(work.inside.folder.parent, ignore_errors=True)
        self._note(work.cell, "another machine has taken it over")

    def _note(self, cell: Cell, text: str) -> None:
        if not progress.is_quiet():
            terminal.note(f"{cell.name}: {text}")
