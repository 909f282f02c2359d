"""Leases on the cells of a shared comparison: takers, stale holders, fencing, take-over and publication."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.comparison.shared import handover, sharing
from embtrain.experiment.comparison.shared.board import DONE, FAILED, KILLED, RELEASED, Board
from embtrain.experiment.comparison.workers import FINISHED, Cell
from embtrain.experiment.run.settings import resolve
from embtrain.train.state import lease as leases

HOUR = 3600.0


class Clock:
    """A monotonic clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(board: Board, clock: Clock, name: str, seconds: float, step: float = 1.0) -> float | None:
    """Look every `step` seconds; return the time after which a holder is stale, None if it never is."""
    begun = clock.now
    while clock.now - begun <= seconds:
        if board.look()[name].is_stale:
            return clock.now - begun
        clock.now += step
    return None


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    (tmp_path / "runs").mkdir()
    return Cell("a-seed1", "a", "sgns", None, "skipgram", 1, tmp_path / "cells" / "a-seed1", resolve("sgns"))


def run_folder(folder: Path, step: int = 3, finished: bool = False, mark: str = "one") -> Path:
    """Write the files of a run, whose contents do not matter here."""
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "metrics.jsonl", f"checkpoints/step-{step:010d}.json", *(FINISHED if finished else ())):
        (folder / name).write_text(mark)
    return folder


# -- a lease ----------------------------------------------------------------------------------------------------------


def test_one_of_many_takers_gets_a_number(tmp_path: Path) -> None:
    ready = threading.Barrier(8)

    def take(_: int) -> leases.Lease | None:
        ready.wait()
        return leases.take(tmp_path, "a-seed1", 1)

    with ThreadPoolExecutor(8) as pool:
        taken = [lease for lease in pool.map(take, range(8)) if lease is not None]
    assert len(taken) == 1 and taken[0].is_held() and leases.newest(tmp_path) == {"a-seed1": 1}
    record = json.loads(taken[0].path.read_text())
    assert record == taken[0].record and (record["pid"], record["state"]) == (os.getpid(), "running")


def test_a_higher_number_ends_a_lease_whatever_its_holder_writes(tmp_path: Path) -> None:
    first = leases.take(tmp_path, "x+y.z@m-seed1", 1)
    second = leases.take(tmp_path, "x+y.z@m-seed1", 2)
    assert first is not None and second is not None and not first.is_held() and second.is_held()
    first.renew()
    first.end(FAILED, error="late")  # the second holder's file is another one
    board = Board(tmp_path, 20)
    assert board.look()["x+y.z@m-seed1"].state == "running" and second.is_held() and not first.is_held()
    second.path.unlink()
    assert not second.is_held()


def test_a_run_stops_before_it_writes_if_its_lease_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leases.check_held()  # no lease: an ordinary run
    lease = leases.take(tmp_path, "a-seed1", 1)
    assert lease is not None
    monkeypatch.setenv(leases.VARIABLE, str(lease.path))
    leases.check_held()
    leases.take(tmp_path, "a-seed1", 2)
    with pytest.raises(leases.LeaseLost, match=r"a-seed1\.1: another machine has taken over this run"):
        leases.check_held()
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "none" / "a-seed1.1"))
    with pytest.raises(leases.LeaseLost):
        leases.check_held()


# -- stale holders ----------------------------------------------------------------------------------------------------


def test_a_holder_is_stale_after_the_time_without_a_sign_of_life(tmp_path: Path) -> None:
    lease, clock = leases.take(tmp_path, "a", 1), Clock()
    assert lease is not None
    board = Board(tmp_path, 20, clock)
    assert watch(board, clock, "a", 100) == 20 and board.holders["a"].is_free and board.holders["a"].is_dead
    lease.renew()
    assert not board.look()["a"].is_stale  # it was alive after all
    taken = board.take("a")
    assert taken is not None and taken.number == 2 and not lease.is_held()


@pytest.mark.parametrize(("skew", "pace"), [(-HOUR, 1), (HOUR, 1), (-1e9, 1), (0.0, -60)])
def test_a_wrong_clock_changes_nothing(tmp_path: Path, skew: float, pace: float) -> None:
    """The machine of the holder, or the file system, is an hour or thirty years ahead or behind, or is set back."""
    lease, clock = leases.take(tmp_path, "a", 1), Clock()
    assert lease is not None
    board = Board(tmp_path, 20, clock)
    for _ in range(50):
        os.utime(lease.path, (time.time() + skew + pace * clock.now,) * 2)
        assert watch(board, clock, "a", 1) is None
    assert watch(board, clock, "a", 100) == pytest.approx(20, abs=2)


def test_a_suspended_watcher_waits_for_a_sign_of_life_again(tmp_path: Path) -> None:
    """After ten minutes in which this process, or the file system, was suspended, the holder has most of the time."""
    leases.take(tmp_path, "a", 1)
    clock = Clock()
    board = Board(tmp_path, 20, clock)
    board.look()
    clock.now += 600
    assert not board.look()["a"].is_stale and board.holders["a"].quiet == 5
    assert watch(board, clock, "a", 100) == 15


def test_held_leases_are_renewed_and_given_up_at_the_end(tmp_path: Path) -> None:
    with Board(tmp_path, 0.1) as board:
        lease = board.take("a", step=7)
        assert lease is not None and board.look()["a"].number_of("step", -1) == 7
        os.utime(lease.path, (1, 1))
        deadline = time.monotonic() + 20
        while lease.path.stat().st_mtime == 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert lease.path.stat().st_mtime > 1
        done = board.take("b")
        assert done is not None
        board.end(done, DONE)
    other = Board(tmp_path, 0.1)
    assert {name: holder.state for name, holder in other.look().items()} == {"a": RELEASED, "b": DONE}
    assert other.holders["a"].is_free and not other.holders["a"].is_dead and not other.holders["b"].is_free


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state": 5, "step": "x"}'])
def test_a_damaged_file_counts_as_a_holder_until_it_is_stale(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.3").write_text(content)
    (tmp_path / "notes").write_text("not a lease")
    clock = Clock()
    board = Board(tmp_path, 20, clock)
    holder = board.look()["a"]
    assert holder.number == 3 and holder.number_of("step", -1) == -1 and not holder.is_free
    assert watch(board, clock, "a", 100) == 20
    assert board.take("a") is not None and board.take("b") is not None


def test_a_folder_that_disappears_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="none: the leases cannot be read or written: "):
        Board(tmp_path / "none", 20).look()


# -- taking over and publishing ---------------------------------------------------------------------------------------


def holder(tmp_path: Path, cell: Cell, number: int) -> Cell:
    lease = leases.take(tmp_path / "runs", cell.name, number)
    assert lease is not None
    lease.path.unlink()  # the numbers of this test have no folder of their own
    return handover.prepare(tmp_path / "runs", cell, lease)


def test_a_holder_gets_a_copy_of_the_last_run(tmp_path: Path, cell: Cell) -> None:
    runs = tmp_path / "runs"
    first = holder(tmp_path, cell, 1)
    assert first.folder == runs / "a-seed1.1" / "a-seed1" and not first.folder.exists()
    run_folder(first.folder, step=5)
    (first.folder / "nmt").mkdir()
    (first.folder / "nmt" / "config.yaml").write_text(f"file: {first.folder}/vectors.safetensors")
    (first.folder / ".x.embtrain.part").write_text("unfinished")
    (runs / "a-seed1.2").mkdir()  # killed before its copy was complete
    (runs / "a-seed1.2" / "part").mkdir()
    third = holder(tmp_path, cell, 3)
    assert handover.last_step(third.folder) == 5 and handover.last_step(None) == -1
    assert (third.folder / "nmt" / "config.yaml").read_text() == f"file: {third.folder}/vectors.safetensors"
    names = sorted(path.name for path in third.folder.iterdir())
    assert names == ["checkpoints", "config.yaml", "metrics.jsonl", "nmt"]
    assert not first.folder.exists() and handover.newest_run(runs, cell, 3) == third.folder


def test_a_run_that_could_not_be_published_is_copied_with_its_own_paths(tmp_path: Path, cell: Cell) -> None:
    """The paths in its settings were those of its cell by then."""
    first = holder(tmp_path, cell, 1)
    (run_folder(first.folder) / "nmt").mkdir()
    (first.folder / "nmt" / "config.yaml").write_text(f"file: {first.folder}/vectors.safetensors")
    cell.folder.parent.touch()
    with pytest.raises(ResourceError, match=r"cells/a-seed1: cannot be written: "):
        handover.publish(cell, first)
    second = holder(tmp_path, cell, 2)
    assert (second.folder / "nmt" / "config.yaml").read_text() == f"file: {second.folder}/vectors.safetensors"


def test_a_run_inside_it_on_another_disk_gets_the_paths_of_the_published_run(tmp_path: Path, cell: Cell) -> None:
    first, disk = holder(tmp_path, cell, 1), tmp_path / "disk"
    disk.mkdir()
    (disk / "config.yaml").write_text(f"file: {first.folder}/vectors.safetensors")
    (run_folder(first.folder) / "nmt").symlink_to(disk)
    handover.publish(cell, first)
    assert (cell.folder / "nmt" / "config.yaml").read_text() == f"file: {cell.folder}/vectors.safetensors"


def test_links_and_settings_at_any_depth_get_the_paths_of_the_published_run(tmp_path: Path, cell: Cell) -> None:
    """Links in a linked run, and settings below the first level, kept the path of the folder that was renamed."""
    first, disk, second_disk = holder(tmp_path, cell, 1), tmp_path / "disk", tmp_path / "second"
    run_folder(first.folder)
    for inner in (disk, second_disk, first.folder / "part" / "deep"):
        inner.mkdir(parents=True)
        (inner / "config.yaml").write_text(f"file: {first.folder}/metrics.jsonl")
        (inner / "v").symlink_to(first.folder / "metrics.jsonl")
    data = tmp_path / "data"
    data.mkdir()
    (data / "v").symlink_to(first.folder / "metrics.jsonl")
    links = {first.folder / "nmt": disk, disk / "own": Path("config.yaml"), disk / "more": second_disk,
             second_disk / "back": disk, disk / "all": tmp_path, disk / "data": data}
    for link, target in links.items():
        link.symlink_to(target)
    handover.publish(cell, first)
    for inner in (cell.folder / "nmt", cell.folder / "nmt" / "more", cell.folder / "part" / "deep"):
        assert (inner / "config.yaml").read_text() == f"file: {cell.folder}/metrics.jsonl"
        assert (inner / "v").resolve() == cell.folder / "metrics.jsonl"
    assert (disk / "own").readlink() == Path("config.yaml") and (second_disk / "back").readlink() == disk
    assert (data / "v").readlink() == first.folder / "metrics.jsonl"       # belongs to no run inside this one


def test_a_copy_does_not_change_the_run_that_its_links_lead_to(tmp_path: Path, cell: Cell) -> None:
    first = holder(tmp_path, cell, 1)
    settings = f"file: {first.folder}/vectors.safetensors"
    (run_folder(first.folder) / "config.yaml").write_text(settings)
    (first.folder / "self").symlink_to(first.folder)
    inside = handover.in_work(tmp_path / "runs", cell, 2).folder
    inside.parent.mkdir()
    handover._copy(first.folder, inside.parent / "part")
    handover._relocate(inside.parent / "part", (first.folder, cell.folder), inside)
    assert (first.folder / "config.yaml").read_text() == settings


def test_a_late_write_of_the_old_holder_does_not_reach_the_new_one(tmp_path: Path, cell: Cell) -> None:
    """It was suspended between a check of its lease and a write to an open file."""
    first = holder(tmp_path, cell, 1)
    run_folder(first.folder)
    with open(first.folder / "metrics.jsonl", "a") as file:
        second = holder(tmp_path, cell, 2)
        file.write("late")
    assert (second.folder / "metrics.jsonl").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        open(first.folder / "metrics.jsonl", "a").close()


def test_the_first_finished_run_is_published_and_stays(tmp_path: Path, cell: Cell) -> None:
    runs = tmp_path / "runs"
    first, second = (handover.in_work(runs, cell, number) for number in (1, 2))
    run_folder(first.folder, finished=True, mark="first")
    run_folder(second.folder, finished=True, mark="second")
    handover.publish(cell, second)
    handover.publish(cell, first)  # it was suspended before it renamed its folder
    assert cell.is_finished() and (cell.folder / "scores.json").read_text() == "second"
    handover.clear(runs, replace(cell, name="a-seed"))
    assert first.folder.exists()
    handover.clear(runs, cell)
    assert list(runs.iterdir()) == []


def test_an_unfinished_run_of_one_machine_is_continued_and_replaced(tmp_path: Path, cell: Cell) -> None:
    run_folder(cell.folder, step=8)
    first = holder(tmp_path, cell, 1)
    assert handover.last_step(first.folder) == 8 and cell.folder.exists()
    for name in FINISHED:
        (first.folder / name).write_text("done")
    handover.publish(cell, first)
    assert cell.is_finished()


def test_a_checkpoint_that_disappears_begins_the_copy_again(tmp_path: Path, cell: Cell,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    source = run_folder(handover.in_work(tmp_path / "runs", cell, 1).folder, step=1)
    copy = handover._copy

    def replaced(path: Path, target: Path) -> None:
        if (old := source / "checkpoints" / "step-0000000001.json").exists():
            old.unlink()
            (source / "checkpoints" / "step-0000000002.json").write_text("two")
            raise FileNotFoundError(old)
        copy(path, target)

    monkeypatch.setattr(handover, "_copy", replaced)
    assert handover.last_step(holder(tmp_path, cell, 2).folder) == 2


def test_files_that_belong_to_a_checkpoint_are_copied_after_it(tmp_path: Path, cell: Cell,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """The run still trains: it saves its best state and a line of metrics when its checkpoint was copied."""
    source = run_folder(handover.in_work(tmp_path / "runs", cell, 1).folder)
    (source / "best").mkdir()
    (source / "best" / "step").write_text("old")
    copy = handover._copy

    def copied(path: Path, target: Path) -> None:
        copy(path, target)
        if path.name == "checkpoints":
            (source / "best" / "step").write_text("new")
            (source / "metrics.jsonl").write_text("one two")

    monkeypatch.setattr(handover, "_copy", copied)
    second = holder(tmp_path, cell, 2).folder
    assert (second / "best" / "step").read_text() == "new" and (second / "metrics.jsonl").read_text() == "one two"


def test_links_to_no_file_are_copied_and_others_replaced_by_their_files(tmp_path: Path, cell: Cell) -> None:
    source, own = run_folder(cell.folder), tmp_path / "own.txt"
    own.write_text("own")
    for name, target in {"gone.txt": "gone", "self": "self", "own.txt": str(own)}.items():
        (source / "checkpoints" / name).symlink_to(target)
    copies = holder(tmp_path, cell, 1).folder / "checkpoints"
    assert (str((copies / "gone.txt").readlink()), str((copies / "self").readlink())) == ("gone", "self")
    assert not (copies / "own.txt").is_symlink() and (copies / "own.txt").read_text() == "own"


def test_a_link_to_a_folder_above_itself_stays_a_link(tmp_path: Path, cell: Cell) -> None:
    """The run was copied into itself, 40 times deep, and twice as deep by the next holder."""
    source, other = run_folder(cell.folder), tmp_path / "other"
    other.mkdir()
    links = {"latest": ".", "checkpoints/run": "..", "all": str(tmp_path), "other": str(other)}
    for name, target in links.items():
        (source / name).symlink_to(target)
    (other / "back").symlink_to(source)
    copy = holder(tmp_path, cell, 1).folder
    for name in ("latest", "checkpoints/run", "all"):
        assert str((copy / name).readlink()) == links[name]
    assert not (copy / "other").is_symlink() and (copy / "other" / "back").resolve() == copy
    assert len(list(copy.rglob("metrics.jsonl"))) == 1


def test_a_link_to_the_folder_of_its_copy_stays_a_link(tmp_path: Path, cell: Cell) -> None:
    """The copy was copied into itself."""
    (run_folder(cell.folder) / "work").symlink_to(tmp_path / "runs")
    copy = holder(tmp_path, cell, 1).folder
    assert (copy / "work").readlink() == tmp_path / "runs" and (copy / "metrics.jsonl").is_file()


def test_links_point_to_the_same_folder_after_each_move(tmp_path: Path, cell: Cell) -> None:
    """Absolute ones to the run pointed to nothing, relative ones out of it to another folder."""
    source = run_folder(cell.folder)
    for name, target in {"self": str(source), "up": "../..", "checkpoints/run": str(source), "gone": "../gone"}.items():
        (source / name).symlink_to(target)
    first = holder(tmp_path, cell, 1).folder
    for name, target in {"new": str(first), "runs": "../.."}.items():
        (first / name).symlink_to(target)
    second = holder(tmp_path, cell, 2)
    (second.folder / "more").symlink_to(second.folder / "checkpoints")
    (second.folder / "here").symlink_to("../../../cells")
    finished = {"here": cell.folder.parent, "more": cell.folder / "checkpoints"}
    handover.publish(cell, second)
    for name, target in {"self": cell.folder, "up": tmp_path, "checkpoints/run": cell.folder, "new": cell.folder,
                         "runs": tmp_path / "runs", "gone": tmp_path / "cells" / "gone", **finished}.items():
        assert (cell.folder / name).resolve() == target, name


def test_a_file_that_cannot_be_copied_is_named_with_the_reason(tmp_path: Path, cell: Cell) -> None:
    """And no part of the copy remains on the disk."""
    os.mkfifo(run_folder(cell.folder) / "checkpoints" / "pipe")
    with pytest.raises(ResourceError, match=r"a-seed1/checkpoints/pipe: cannot be copied to .*: .* is a named pipe"):
        holder(tmp_path, cell, 1)
    assert not [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]


# -- the folder -------------------------------------------------------------------------------------------------------


def test_all_processes_must_have_one_grid(tmp_path: Path) -> None:
    grid = Grid(strategies=["sgns", "nce"], seeds=[1, 2])
    (tmp_path / "join").mkdir()
    sharing.agree(tmp_path, grid)
    sharing.agree(tmp_path, grid)
    with pytest.raises(UsageError, match=r"--seeds: the processes that work in .* have seeds: \[1, 2\], but \[1\] is"):
        sharing.agree(tmp_path, Grid(strategies=["sgns", "nce"], seeds=[1]))
    assert [path.name for path in (tmp_path / "join").iterdir()] == ["grid"]


def test_a_file_system_without_exclusive_creation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing.check_file_system(tmp_path)
    monkeypatch.setattr(Path, "rename", lambda old, new: new)
    with pytest.raises(ResourceError, match="replaces a folder by another one"):
        sharing.check_file_system(tmp_path)
    create = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *rest, **more: create(path, flags & ~os.O_EXCL, *rest,
                                                                                         **more))
    with pytest.raises(ResourceError, match="no O_EXCL"):
        sharing.check_file_system(tmp_path)
    monkeypatch.setattr(os, "open", create)
    monkeypatch.setattr(os, "utime", lambda path: os.stat(tmp_path / "none"))
    with pytest.raises(ResourceError, match="leases cannot be written there"):
        sharing.check_file_system(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_machine_does_not_continue_unfinished_runs_of_several(tmp_path: Path) -> None:
    sharing.leave(tmp_path)
    (tmp_path / "join" / "leases").mkdir(parents=True)
    (tmp_path / "join" / "runs" / "a-seed1.2").mkdir(parents=True)
    with pytest.raises(UsageError, match="a-seed1 was begun with --join and is not finished; add --join"):
        sharing.leave(tmp_path)
    (tmp_path / "join" / "runs" / "a-seed1.2").rmdir()
    sharing.leave(tmp_path)
    assert not (tmp_path / "join").exists()


def test_killed_is_free(tmp_path: Path) -> None:
    board = Board(tmp_path, 20)
    lease = board.take("a")
    assert lease is not None
    board.end(lease, KILLED, kills=2)
    found = Board(tmp_path, 20).look()["a"]
    assert found.is_free and found.is_dead and found.number_of("kills", 0) == 2


@pytest.mark.parametrize("error", [DataError("no corpus"), Stopped(2)])
def test_the_agreed_grid_is_forgotten_only_by_a_process_that_is_alone(tmp_path: Path, error: BaseException) -> None:
    grid = sharing.agreed_in(tmp_path)
    grid.mkdir(parents=True)
    sharing.leases_in(tmp_path).mkdir(exist_ok=True)
    locks = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]
    for is_kept in (True, False):
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(type(error)), sharing._forgetting_refused(tmp_path, locks[0]):
            raise error
        assert grid.is_dir() == is_kept
        if is_kept:
            os.close(locks.pop())                            # the other process, which was reading the corpus, ends
    os.close(locks[0])
