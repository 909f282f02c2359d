"""A comparison in a folder that several machines share: the grid they agree on, their leases, and one report.

    DIR/join/grid/comparison.yaml   the grid of the first process; all others must have the same
    DIR/join/leases/                the leases of the cells, and of `results` (train/state/lease.py, board.py)
    DIR/join/runs/                  unfinished runs (handover.py)
    DIR/join/sessions/              one file for each process that submits cells to an executor
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from embtrain.common import machine
from embtrain.common.config import dump
from embtrain.common.errors import EmbtrainError, ResourceError, Stopped, UsageError, os_reason
from embtrain.common.files import write_text
from embtrain.experiment.comparison import outcome, workers
from embtrain.experiment.comparison.grid import Grid, read_grid
from embtrain.experiment.comparison.shared import handover
from embtrain.experiment.comparison.shared.board import DONE, FAILED, RELEASED, Board
from embtrain.experiment.comparison.shared.executors import Submitter
from embtrain.experiment.comparison.shared.joiner import Joiner
from embtrain.experiment.comparison.shared.places import agreed_in, leases_in, runs_in, sessions_in
from embtrain.experiment.comparison.workers import Cell
from embtrain.kernels.core.loader import core
from embtrain.train.group import launch

STALE_AFTER = 20.0   # seconds
RESULTS = "results"  # lease of the report; names of cells end with their seed


@dataclass(frozen=True)
class Alone:
    """A comparison on this machine only."""

    options: ClassVar[tuple[str, ...]] = ()  # of the command that continues

    def folder(self, out: Path | None) -> Path | None:
        """`out`. UsageError in one of several processes of a launcher: each would run the whole comparison there."""
        if (size := launch.world_size()) > 1:
            raise UsageError(f"WORLD_SIZE: {size}: a comparison is not a run of several processes; add --join, so that "
                             "they share its runs, or start one process without torchrun")
        return out

    @contextlib.contextmanager
    def working_in(self, folder: Path, grid: Grid, cells: Sequence[Cell], parallel: int | None, threads: int,
                   budget: float | None) -> Iterator[AloneCrew]:
        """Lock a folder. UsageError if other processes work there, or have unfinished runs."""
        n_parallel, n_threads = _shares(cells, parallel, threads)
        with workers.working_in(folder) as lock:
            leave(folder)
            yield AloneCrew(n_parallel, n_threads, lock, budget)


ALONE = Alone()


@dataclass(frozen=True)
class AloneCrew:
    """This process as the only one that works on a comparison."""

    parallel: int
    threads: int
    lock: int
    budget: float | None

    def run(self, cells: Sequence[Cell], blocks: int, on_finished: Callable[[Cell], None]) -> None:
        """Train cells; see `workers.run`."""
        workers.run(cells, self.parallel, self.threads, blocks=blocks, lock=self.lock, budget=self.budget,
                    on_finished=on_finished)

    def report(self, cells: Sequence[Cell], write: Callable[[], object]) -> None:
        write()


@dataclass(frozen=True)
class Sharing:
    """A comparison on several machines.

    stale_after: seconds without a sign of life after which a holder of a lease counts as dead. retry_failed: run the
    failed cells once more. executor: submits the cells; None: this process trains cells itself.
    """

    stale_after: float = STALE_AFTER
    retry_failed: bool = False
    executor: Any = None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command that continues."""
        lease = () if self.stale_after == STALE_AFTER else ("--lease-seconds", f"{self.stale_after:.15g}")
        return "--join", *lease, *(("--retry-failed",) if self.retry_failed else ())

    def folder(self, out: Path | None) -> Path:
        """The absolute path, which processes in other working folders use. UsageError if there is none."""
        if out is None:
            raise UsageError("--join: needs a folder that all machines share; give it with --out")
        return out.absolute()

    @contextlib.contextmanager
    def working_in(self, folder: Path, grid: Grid, cells: Sequence[Cell], parallel: int | None, threads: int,
                   budget: float | None) -> Iterator[Crew]:
        """Join a comparison. UsageError if its grid is another one; ResourceError if the file system does not fit."""
        if core() is None and any(cell.settings.train.engine == "fused" for cell in cells):
            raise ResourceError("train.engine: fused: this machine has no compiled core, so each run would fail here; "
                                "`embtrain doctor` reports why")
        with workers.working_in(folder, fcntl.LOCK_SH) as lock:
            for place in (leases_in(folder), runs_in(folder), sessions_in(folder)):
                place.mkdir(parents=True, exist_ok=True)
            check_file_system(leases_in(folder).parent)
            agree(folder, grid)
            with _forgetting_refused(folder, lock), Board(leases_in(folder), self.stale_after) as board:
                retried = dict[str, int]()
                if self.retry_failed:
                    retried = {name: holder.number for name, holder in board.look().items() if holder.state == FAILED}
                if self.executor is None:
                    n_parallel, n_threads = _shares(cells, parallel, threads)
                    yield Crew(folder, board, Joiner(board, runs_in(folder), n_parallel, n_threads, lock, budget,
                                                     retried))
                else:
                    yield Crew(folder, board, Submitter(self.executor, folder, board, parallel or len(cells),
                                                        threads or 1, retried))


def _shares(cells: Sequence[Cell], parallel: int | None, threads: int) -> tuple[int, int]:
    """Cells at a time and threads of each; one thread each if `parallel` is None."""
    cores = threads or machine.usable_cores()
    return min(parallel or cores, len(cells)), max(1, cores // parallel) if parallel else 1


@dataclass(frozen=True)
class Crew:
    """This process as one of those that work on a comparison."""

    folder: Path
    board: Board
    runner: Joiner | Submitter

    @property
    def parallel(self) -> int:
        return self.runner.parallel

    def run(self, cells: Sequence[Cell], blocks: int, on_finished: Callable[[Cell], None]) -> None:
        """Train cells until all are over on any machine. blocks: not used; the time left is not estimated."""
        self.runner.run(cells, on_finished)

    def report(self, cells: Sequence[Cell], write: Callable[[], object]) -> None:
        """Call `write` in one of the processes; the others return when it has ended."""
        while True:
            holders = self.board.look()
            ends = {cell.name: "finished" if cell.is_finished() else f"failed {holders[cell.name].number}"
                    for cell in cells if cell.is_finished() or cell.name in holders}
            holder = holders.get(RESULTS)
            is_written = holder is not None and holder.state == DONE
            if is_written and holder is not None and holder.record.get("cells") == ends:
                return
            is_free = holder is None or holder.is_free or is_written
            if is_free and (lease := self.board.take(RESULTS)) is not None:
                break
            time.sleep(min(1.0, self.board.stale_after / 10))
        try:
            write()
        except BaseException:
            self.board.end(lease, RELEASED)
            raise
        self.board.end(lease, DONE, cells=ends)
        for cell in cells:
            if cell.is_finished():
                handover.clear(runs_in(self.folder), cell)


def agree(folder: Path, grid: Grid) -> None:
    """Store the grid if this is the first process. UsageError if the stored one differs.

    A folder with the file is renamed: this does not replace a folder that has a file, on any file system, and no
    process sees a part of the file.
    """
    place = agreed_in(folder)
    if not place.is_dir():
        part = place.with_name(f".grid-{uuid.uuid4().hex}")
        write_text(part / "comparison.yaml", dump(grid))
        with contextlib.suppress(OSError):  # another process was faster
            part.rename(place)
        shutil.rmtree(part, ignore_errors=True)
    for key, stored, requested in outcome.differing_keys(read_grid({}, None, place), grid, ""):
        raise UsageError(f"{grid.flag_of(key.split('.')[0])}: the processes that work in {folder} have {key}: "
                         f"{stored!r}, but {requested!r} is requested here; give the same options, or another folder")


@contextlib.contextmanager
def _forgetting_refused(folder: Path, lock: int) -> Iterator[None]:
    """Remove the stored grid if it is refused, or this process stopped, before a run begins.

    Not if another process works there, by the `lock` that all share: it may be about to train by this grid.
    """
    try:
        yield
    except (EmbtrainError, Stopped):
        if not any(leases_in(folder).iterdir()):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(agreed_in(folder), ignore_errors=True)
        raise


def check_file_system(folder: Path) -> None:
    """Raise ResourceError if a file system lacks an operation that leases are made of."""
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        probe.mkdir()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        os.close(os.open(probe / "lease", flags))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(probe / "lease", flags))
            raise ResourceError(f"{folder}: this file system creates one file twice (no O_EXCL), so that two machines "
                                "could train one run; give a folder on another one")
        os.utime(probe / "lease")
        for name in ("new", "finished"):
            (probe / name).mkdir()
            (probe / name / "file").touch()
        with contextlib.suppress(OSError):
            (probe / "new").rename(probe / "finished")
            raise ResourceError(f"{folder}: this file system replaces a folder by another one, so that a finished run "
                                "could be lost; give a folder on another one")
    except OSError as error:
        raise ResourceError(f"{folder}: leases cannot be written there: {os_reason(error)}") from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def leave(folder: Path) -> None:
    """Prepare a folder for a comparison on one machine. UsageError if processes on others have unfinished runs."""
    runs = runs_in(folder)
    with contextlib.suppress(FileNotFoundError):
        if unfinished := sorted(os.listdir(runs)):
            raise UsageError(f"--out: {folder}: {unfinished[0].rpartition('.')[0]} was begun with --join and is not "
                             "finished; add --join to continue")
        shutil.rmtree(runs.parent)
