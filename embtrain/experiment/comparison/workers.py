"""Worker processes that train the cells of a comparison: ordinary runs, several at a time, one process each.

A process reads the settings that the comparison resolved from config.yaml of its run, not the strategy file, which
may change meanwhile or have another relative path there. Finished cells are skipped, failures are recorded and the
others continue. Cells run in the order of their seeds, so that an interrupted comparison has complete seeds.

Two file locks prevent concurrent training after a crash: one on the folder marks a running comparison, one on `cells`,
inherited by the cells' processes, marks a running cell. On Linux a cell saves and stops when its comparison dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO

from embtrain.common import progress, terminal
from embtrain.common.config import dump
from embtrain.common.errors import EmbtrainError, is_crash
from embtrain.common.files import as_argument, lock_folder, open_folder, try_lock, write_json, write_text
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import has_trained
from embtrain.report.format import duration
from embtrain.train.group import launch
from embtrain.train.state.signals import Stop

FINISHED = ("items.safetensors", "scores.json", "report.html")  # in the order a run writes them
FAILURE = ".error.json"  # end of the name of a file with the error of a cell
TAIL = 1 << 13  # bytes of metrics.jsonl that contain its last line
_POLL = 0.05    # seconds
_WITH_PARENT = 1  # Linux: PR_SET_PDEATHSIG


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of the grid. All its seeds share `label`."""

    name: str
    label: str
    strategy: str
    loss: str | None
    model: str
    seed: int
    folder: Path
    settings: Settings
    # downstream runs that score it (downstream.py), and their limits in CPU seconds
    downstream_limits: Mapping[Path, float | None] = field(default_factory=dict)
    start: Path | None = None  # the run of the comparison that it starts from

    @property
    def failure(self) -> Path:
        return self.folder.with_name(f"{self.name}{FAILURE}")

    def is_finished(self) -> bool:
        return all((self.folder / name).is_file() for name in FINISHED)

    def fail(self, error: str, code: int | None) -> str:
        """Record and return the error of the cell. code: exit code; None: the cell was not started."""
        write_json(self.failure, {"cell": self.name, "error": error, "code": code})
        return error


@contextlib.contextmanager
def working_in(folder: Path, operation: int = fcntl.LOCK_EX) -> Iterator[int]:
    """Lock the folder of a comparison and yield the lock that its cells inherit. UsageError if it is locked.

    operation: LOCK_EX, or LOCK_SH for processes that work there together.
    """
    message = f"--out: {folder}: another comparison is running there; wait until it ends, or stop it"
    with lock_folder(folder, message, operation):
        cells_lock = open_folder(folder / "cells")
        try:
            is_noted = False
            while not try_lock(cells_lock, operation):
                if not is_noted and not progress.is_quiet():
                    terminal.note(f"{folder}: waiting for runs of a comparison that was killed")
                is_noted = True
                time.sleep(_POLL)
            yield cells_lock
        finally:
            os.close(cells_lock)


def run(cells: Sequence[Cell], parallel: int, threads: int, blocks: int, lock: int, budget: float | None = None,
        on_finished: Callable[[Cell], None] = lambda cell: None) -> None:
    """Run the unfinished cells, `parallel` at a time with `threads` threads each. Raises Stopped on a signal.

    blocks: approximate blocks per run, for the remaining time. budget: CPU seconds of all cells, after which none
    starts; the rest get an error with that reason until they are requested again. on_finished: called for each finished
    cell before another starts; an exception it raises stops everything.
    """
    waiting = deque(cell for cell in cells if not cell.is_finished())
    for cell in filter(Cell.is_finished, cells):
        on_finished(cell)
    for cell in waiting:
        cell.failure.unlink(missing_ok=True)
    running: dict[Cell, CellProcess] = {}
    printer = _ProgressPrinter(cells, parallel, blocks)
    with Stop() as stop:
        try:
            while (waiting and stop.requested is None) or running:
                while waiting and len(running) < parallel and stop.requested is None:
                    if budget is not None and spent(cells) >= budget:
                        _leave_out(waiting, budget)
                        break
                    cell = waiting.popleft()
                    try:
                        running[cell] = CellProcess(cell, threads, lock)
                    except EmbtrainError as error:
                        printer.print_end(cell, cell.fail(f"{error}", error.code))
                if stop.requested is not None:
                    for process in running.values():
                        process.send_once(stop.requested)
                time.sleep(_POLL)
                for cell in [cell for cell, process in running.items() if process.child.poll() is not None]:
                    printer.print_end(cell, running.pop(cell).error())
                    if cell.is_finished():
                        on_finished(cell)
                printer.print_status(list(running))
        finally:
            for process in running.values():  # only if this loop itself failed
                process.send_once(signal.SIGTERM)
                process.child.wait()
                process.errors.close()
        stop.check()


def spent(cells: Sequence[Cell]) -> float:
    """CPU seconds that these cells have trained, with downstream runs and the run that they start from."""
    folders = [folder for cell in cells for folder in (cell.folder, cell.start, *cell.downstream_limits)]
    return sum(last_position(folder)[2] for folder in dict.fromkeys(folders) if folder is not None)


def _leave_out(waiting: deque[Cell], budget: float) -> None:
    """Record for each cell that it was not started, and why."""
    limit = f"the limit of {terminal.format_count(budget, 'CPU second')}"
    terminal.note(f"{limit} is used up, which skips {terminal.format_count(len(waiting), 'run')}; set a larger limit")
    while waiting:
        waiting.popleft().fail(f"not started: {limit} for all runs was used up", None)


class CellProcess:
    """A running cell. variables: further environment variables. ResourceError if its folder cannot be written."""

    def __init__(self, cell: Cell, threads: int, lock: int, variables: Mapping[str, str] = MappingProxyType({})):
        if not has_trained(cell.folder):
            write_text(cell.folder / "config.yaml", dump(cell.settings.with_train(threads=threads)))
        self.cell, self.is_signalled = cell, False
        self.errors: IO[bytes] = tempfile.TemporaryFile()
        try:    # own session, so that Ctrl-C reaches the worker once, through `send_once`
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-m", "embtrain", "resume", as_argument(cell.folder), "--quiet"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors, pass_fds=[lock],
                env={**launch.child_environment(threads), **variables}, start_new_session=True,
                preexec_fn=_stop_with_parent())  # noqa: PLW1509  it only makes a system call
        except BaseException:
            self.errors.close()
            raise

    def send_once(self, number: int) -> None:
        """Forward a signal, once."""
        if not self.is_signalled:
            self.is_signalled = True
            self.child.send_signal(number)

    def kill(self) -> None:
        """End the cell at once, without a checkpoint."""
        self.is_signalled = True
        self.child.kill()
        self.child.wait()
        self.errors.close()

    def code(self) -> int:
        """The exit code of a process that has ended; 128 + signal if a signal ended it."""
        code: int = self.child.returncode
        return code if code >= 0 else 128 - code

    def error(self) -> str:
        """The error of a finished cell in one line; empty if there was none or it was stopped."""
        code = self.code()
        with self.errors:
            self.errors.seek(0)
            lines = self.errors.read().decode("utf-8", "replace").split("\n")
        if self.is_signalled or (code == 0 and self.cell.is_finished()):
            return ""
        errors = [line.removeprefix("embtrain: error: ") for line in lines if line.startswith("embtrain: error: ")]
        if (number := -self.child.returncode) > 0:
            errors = [f"crashed with signal {number} ({signal.Signals(number).name})" if is_crash(code) else
                      f"killed by signal {number}" + (", which may mean too little memory" if number == 9 else "")]
        return self.cell.fail("; ".join(errors) or f"ended with code {code}", code)


def _stop_with_parent() -> Callable[[], None] | None:
    """A preexec function that sends the child SIGTERM when its parent dies, however it dies."""
    if sys.platform != "linux":
        return None
    kernel, parent = ctypes.CDLL(None), os.getpid()
    def prepare() -> None:
        kernel.prctl(_WITH_PARENT, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
    return prepare


def last_position(folder: Path) -> tuple[int, float, float]:
    """Blocks, seconds and CPU seconds of the last line of metrics; zeros if there is none."""
    last = last_line(folder)
    return int(last.get("step", 0)), last.get("seconds", 0.0), last.get("cpu_seconds", 0.0)


def last_line(folder: Path) -> dict[str, float]:
    """The numbers of the last complete line of metrics; empty if there is none."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().splitlines(keepends=True)
        last = json.loads([line for line in lines if line.endswith(b"\n")][-1])
        return {key: float(value) for key, value in last.items() if isinstance(value, int | float)}
    except (OSError, ValueError, LookupError, AttributeError, RecursionError):  # missing, or not written by embtrain
        return {}


def _seconds_left(folder: Path, limit: float | None) -> float:
    """Estimated seconds until a run reaches its CPU limit; 0 if it has none, because its end is unknown."""
    _, seconds, cpu = last_position(folder)
    return max(0.0, (limit or 0.0) - cpu) * (seconds / cpu if cpu else 1)  # cores may be shared


class _ProgressPrinter:
    """Progress on stderr: one line as a cell ends, and one every few seconds with the remaining time."""

    def __init__(self, cells: Sequence[Cell], parallel: int, blocks: int):
        self.cells, self.parallel, self.blocks = cells, parallel, max(1, blocks)
        self.failed, self.printed_at, self.started = set[str](), time.monotonic(), dict[Cell, float]()
        self.other_seconds: list[float] = []  # seconds of each finished cell that were not spent on training

    def print_end(self, cell: Cell, error: str) -> None:
        if error:
            self.failed.add(cell.name)
        elif cell in self.started and cell.is_finished() and not cell.downstream_limits:
            self.other_seconds.append(self._other_seconds(cell))
        if error or (cell.is_finished() and not progress.is_quiet()):
            done = sum(cell.is_finished() for cell in self.cells)
            text = f"failed: {error}" if error else f"done ({done} of {len(self.cells)})"
            terminal.note(f"{cell.name}: {text}")

    def print_status(self, running: Sequence[Cell]) -> None:
        for cell in running:
            self.started.setdefault(cell, time.monotonic())
        if progress.is_quiet() or time.monotonic() - self.printed_at < progress.EVERY_SECONDS:
            return
        self.printed_at = time.monotonic()
        seconds_left, shares = self._time_left(running)
        done = sum(cell.is_finished() for cell in self.cells)
        failed = f", {len(self.failed)} failed" if self.failed else ""
        working = f"; running: {', '.join(shares)}" if shares else ""
        time_left = f"; about {duration(seconds_left)} left" if seconds_left else ""
        terminal.note(f"comparing: {done} of {len(self.cells)} runs done{failed}{working}{time_left}")

    def _other_seconds(self, cell: Cell) -> float:
        """Seconds since a cell started that were not spent on training: start, reading, evaluation and report."""
        return max(0.0, time.monotonic() - self.started[cell] - last_position(cell.folder)[1])

    def _time_left(self, running: Sequence[Cell]) -> tuple[float | None, list[str]]:
        """Seconds left, None if no cell has started; and the progress of each running cell."""
        position = {cell: last_position(cell.folder) for cell in self.cells}
        rates: dict[str, list[float]] = {}  # seconds per block of each strategy, which differ by factors
        for cell, (step, seconds, _) in position.items():
            if step:
                rates.setdefault(cell.label, []).append(seconds / step)
        shares, seconds_left = [], 0.0
        # Start, evaluation and report take most of the time of short runs. Before one ends, their length is unknown.
        other = sum(self.other_seconds) / len(self.other_seconds) if self.other_seconds else 0.0
        all_rates = [rate for cell_rates in rates.values() for rate in cell_rates]
        for cell, (step, _, cpu) in position.items():
            if cell.is_finished() or cell.name in self.failed:
                continue
            rates_of_label, budget = rates.get(cell.label, all_rates) or [0.0], cell.settings.train.cpu_seconds
            cell_seconds = max(0, self.blocks - step) * sum(rates_of_label) / len(rates_of_label)
            if budget is not None:
                cell_seconds = min(cell_seconds, _seconds_left(cell.folder, budget))
            cell_seconds += max(0.0, other - (self._other_seconds(cell) if cell in self.started else 0.0))
            seconds_left += cell_seconds + sum(_seconds_left(*limit) for limit in cell.downstream_limits.items())
            if cell in running:
                share = max(step / self.blocks, 0 if budget is None else cpu / budget)
                shares.append(f"{cell.name} ({'evaluating' if share >= 1 else f'{share:.0%}'})")
        return (seconds_left / min(self.parallel, len(self.cells)) if all_rates else None), shares
