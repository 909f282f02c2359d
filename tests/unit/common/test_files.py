"""Temporary files of a killed writer are removed by the next writer; those of a living one are not."""

from __future__ import annotations

import errno
import importlib.machinery
import multiprocessing
import os
import tracemalloc
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from embtrain.common import files, registry
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, ResourceError, UsageError, os_reason
from embtrain.common.files import TEMPORARY_SUFFIX, create_once, temporary_folder, write_atomically, write_text
from embtrain.common.output_paths import check_output_file, resolve_output_link
from embtrain.data.storage import stored_corpus
from embtrain.data.vectors.open import open_unpacked
from embtrain.data.vectors.replaced_files import replace_files
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.scoring import read_items
from embtrain.experiment.tasks.base import read_identity
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import MetricsLog

FORK = multiprocessing.get_context("fork")


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def writing(folder: Path, output: Connection) -> None:
    with write_atomically(folder / "a.txt", "w") as file:
        file.write("half")
        file.flush()
        output.send("in the middle")
        output.recv()
        file.write(" and half")


def extracting(folder: Path, output: Connection) -> None:
    with temporary_folder(".archive.", folder) as apart:
        (apart / "deep").mkdir()
        (apart / "deep" / "a.txt").write_text("half")
        output.send("in the middle")
        output.recv()
        os.rename(apart / "deep" / "a.txt", folder / "a.txt")


@pytest.mark.parametrize("body", [writing, extracting])
def test_files_of_a_killed_writer_are_removed(tmp_path: Path, body: Callable[[Path, Connection], None]) -> None:
    received, output = FORK.Pipe()
    child = FORK.Process(target=body, args=(tmp_path, output))
    child.start()
    assert received.recv() == "in the middle"
    (left,) = hidden(tmp_path)
    write_text(tmp_path / "b.txt", "of another")
    with temporary_folder(".more.", tmp_path):
        pass
    assert hidden(tmp_path) == [left]                        # the writer is alive
    child.kill()
    child.join()
    write_text(tmp_path / "b.txt", "again")
    assert sorted(os.listdir(tmp_path)) == ["b.txt"]


@pytest.mark.parametrize("body", [writing, extracting])
def test_a_living_writer_can_finish(tmp_path: Path, body: Callable[[Path, Connection], None]) -> None:
    received, output = FORK.Pipe()
    child = FORK.Process(target=body, args=(tmp_path, output))
    child.start()
    assert received.recv() == "in the middle"
    write_text(tmp_path / "b.txt", "of another")
    received.send("go on")
    child.join()
    assert child.exitcode == 0 and (tmp_path / "a.txt").read_text().startswith("half")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_only_temporary_files_of_embtrain_are_removed(tmp_path: Path) -> None:
    others = [".a.txt.part", f"a{TEMPORARY_SUFFIX}", ".rsync.Ab12", ".hidden"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / f".link.x{TEMPORARY_SUFFIX}").symlink_to(tmp_path / ".hidden")
    os.mkfifo(tmp_path / f".pipe.x{TEMPORARY_SUFFIX}")  # the pipe has no writer: a reader would block forever
    write_text(tmp_path / "b.txt", "text")
    assert set(others) < set(os.listdir(tmp_path)) and (tmp_path / ".hidden").read_text() == "mine"


def test_a_file_removed_before_it_was_locked_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer may remove the file between its creation and its lock."""
    lock, swept = files.fcntl.flock, list[int]()

    def late(handle: int, how: int) -> None:
        if how == files.fcntl.LOCK_EX and not swept:
            swept.append(handle)
            (path,) = tmp_path.glob(f".*{TEMPORARY_SUFFIX}")
            path.rmdir() if path.is_dir() else path.unlink()
        lock(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    write_text(tmp_path / "a.txt", "whole")
    assert swept and (tmp_path / "a.txt").read_text() == "whole" and hidden(tmp_path) == []
    swept.clear()
    with temporary_folder(".x.", tmp_path) as apart:
        assert swept and apart.is_dir()


def test_on_a_disk_without_locks_files_are_written_and_never_removed(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    def none(handle: int, how: int) -> None:
        raise OSError(38, "Function not implemented")

    (tmp_path / f".a.x{TEMPORARY_SUFFIX}").write_text("of another program")
    monkeypatch.setattr(files.fcntl, "flock", none)
    write_text(tmp_path / "b.txt", "text")
    assert (tmp_path / "b.txt").read_text() == "text" and hidden(tmp_path) == [f".a.x{TEMPORARY_SUFFIX}"]


def test_a_path_that_is_not_a_file_is_refused_and_unchanged(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for refused in (lambda: write_text(pipe, "x"), lambda: resolve_output_link(pipe), lambda: resolve_output_link(link),
                    lambda: check_output_file(link)):
        with pytest.raises(UsageError, match="is a device, a pipe or a socket") as caught:
            refused()
        assert len(str(caught.value).splitlines()) == 1
    assert pipe.is_fifo() and link.is_symlink() and sorted(os.listdir(tmp_path)) == ["link", "pipe"]
    with open(tmp_path / "log", "w") as log:                 # as /dev/stdout with a redirection to a file
        (tmp_path / "out").symlink_to(f"/proc/self/fd/{log.fileno()}")
        for path in (tmp_path / "out", Path(f"/proc/self/fd/{log.fileno()}"), Path(f"/dev/fd/{log.fileno()}")):
            with pytest.raises(UsageError, match="is an open file of a process; give a regular file"):
                resolve_output_link(path)


def test_a_link_named_by_the_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "new").symlink_to("nowhere.txt")
    for name, target in (("link", "a.txt"), ("new", "nowhere.txt"), ("b.txt", "b.txt")):
        assert check_output_file(tmp_path / name) == tmp_path / target
        write_text(check_output_file(tmp_path / name), name)
        assert (tmp_path / target).read_text() == name
    assert (tmp_path / "link").is_symlink() and (tmp_path / "new").is_symlink()
    for wrong, message in ((tmp_path, "is a folder; give a file"), (tmp_path / "a.txt" / "b", "is not a folder")):
        with pytest.raises(UsageError, match=f"--x: .*{message}"):
            check_output_file(wrong, "--x")


def test_a_link_in_a_shared_folder_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "report.html").symlink_to("mine")
    write_text(tmp_path / "report.html", "page")
    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "report.html").read_text() == "page"


def test_processes_that_claim_one_name_get_separate_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files.time, "strftime", lambda _: "20250101-000000")
    first = [files.dated_folder("sgns") for _ in range(3)]        # in the same second, before any folder is created
    assert first == [Path("runs/20250101-000000-sgns")] * 3
    assert [files.claim_folder(path).name for path in first] == [
        f"20250101-000000-sgns{more}" for more in ("", "-2", "-3")
    ]
    assert files.dated_folder("sgns").name == "20250101-000000-sgns-4"
    (tmp_path / "taken").write_text("")
    assert files.claim_folder(tmp_path / "taken") == tmp_path / "taken-2"
    with pytest.raises(ResourceError, match="cannot be created"):
        files.claim_folder(tmp_path / "taken" / "x")


@pytest.mark.parametrize("n_links", [0, 9])  # 0: a file system without hard links
def test_a_file_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_links: int) -> None:
    """Another process creates it at the same time; a third one is cut off."""
    path, link = tmp_path / "new" / "store", os.link

    def linked(old: Path, new: Path) -> None:
        if n_links == 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        link(old, new)

    def cut_off(part: Path) -> None:
        part.write_text("half")
        raise KeyboardInterrupt

    def slower(part: Path) -> None:
        part.write_text("of the slower one")
        create_once(path, lambda part: part.write_text("of the faster one"))

    monkeypatch.setattr(os, "link", linked)
    with pytest.raises(KeyboardInterrupt):
        create_once(path, cut_off)
    assert list(path.parent.iterdir()) == []
    create_once(path, slower)
    create_once(path, cut_off)
    assert path.read_text() == "of the faster one" and list(path.parent.iterdir()) == [path]


def test_the_missing_target_of_a_link_is_created_once(tmp_path: Path) -> None:
    path, target = tmp_path / "link", tmp_path / "new" / "store"
    path.symlink_to(target)
    assert create_once(path, lambda part: part.write_text("text")) == target
    assert path.is_symlink() and path.read_text() == "text"


def test_a_file_is_not_created_at_a_loop_of_links(tmp_path: Path) -> None:
    for name, target in (("itself", "itself"), ("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(target)
    for name in ("itself", "a", "b", "a/store"):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            create_once(tmp_path / name, Path.touch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "itself"]


def test_a_name_that_begins_with_a_dash_is_not_an_option() -> None:
    assert files.as_argument(Path("-cmp/cells/a")) == "./-cmp/cells/a" and files.as_argument("runs/-a") == "runs/-a"
    assert files.resume_command(Path("-a b")) == "embtrain resume './-a b'"


def a_run(folder: Path, name: str = "config.yaml", age: int = 0) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text("{}\n")
    os.utime(folder, (1e9 - age, 1e9 - age))


@pytest.mark.parametrize(("path", "hint"), [
    ("runs/ace", " (did you mean 'runs/20260102-skipgram-ace'?)"),    # the newer of two that contain the name
    ("ace", " (did you mean 'runs/20260102-skipgram-ace'?)"),         # `runs/` left out
    ("runs/whch", " (did you mean 'runs/which'?)"),                   # a comparison
    ("runs/zzz", " (the newest run is 'runs/which')"),
    ("other/newz", " (did you mean 'other/news'?)"),                  # runs in the named folder
    ("gone/zzz/", " (the newest run is 'runs/which')"),
])
def test_a_missing_run_suggests_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str,
                                                 hint: str) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("runs/20260101-skipgram-ace"), age=20)
    a_run(Path("runs/20260102-skipgram-ace"), age=10)
    a_run(Path("runs/which"), "comparison.yaml")
    a_run(Path("other/news"), age=30)
    Path("runs/acee").mkdir()                                          # not a run
    with pytest.raises(DataError) as error:
        files.check_exists(Path(path))
    assert str(error.value) == (f"{path.rstrip('/')}: file or folder not found{hint}; give a run folder; `embtrain fit "
                                "--out DIR` creates one")
    files.check_exists(Path("runs/acee"))


def test_without_runs_no_name_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^runs/ace: file or folder not found; give"):
        files.check_exists(Path("runs/ace"))


def test_a_small_json_file_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text("[1]")
    tracemalloc.start()
    assert files.read_json(tmp_path / "small.json", 1 << 28) == [1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    with pytest.raises(ValueError, match="more than 2 bytes"):
        files.read_json(tmp_path / "small.json", 2)


# --- permission -------------------------------------------------------------------------------------------------------

def test_every_reader_reports_missing_permission_in_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    """Tests may run as root, who can read every file."""
    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "get_data", lambda _, path: refuse(path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    (tmp_path / "shut.py").touch()

    def open_vectors(path: Path) -> None:
        with open_unpacked(path):
            raise AssertionError
    readers: list[tuple[Callable[[Path], object], str]] = [
        (files.check_exists, "."), (read_yaml, "shut.yaml"), (open_vectors, "shut.py"),
        (lambda path: registry.import_file(path, "shut"), "shut.py")]
    for read, name in readers:
        with pytest.raises(ResourceError, match=f"^{tmp_path / name}: no permission to read it$"):
            read(tmp_path / name)


def test_readers_of_a_run_report_missing_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors reports it as a missing file, as if the file were damaged."""
    names = ("scores.json", "identity.json", "items.safetensors", "subwords.safetensors", "corpus.safetensors")
    readers: list[Callable[[], object]] = [
        lambda: Run(tmp_path).scores, lambda: read_identity(tmp_path), lambda: read_items(tmp_path / names[2]),
        lambda: SubwordTable.load(tmp_path / names[3]), lambda: stored_corpus.read(tmp_path)]
    for name, read in zip(names, readers, strict=True):
        (tmp_path / name).write_bytes(b"\xff damaged")
        with pytest.raises(DataError, match=f"^{tmp_path / name}: "):
            read()
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda path, mode, name=name: path != tmp_path / name)
            with pytest.raises(ResourceError, match=f"^{tmp_path / name}: cannot be read: Permission denied; change"):
                read()


def checkpoint_in(folder: Path) -> None:
    checkpoint.save(folder, 1, {}, 1)


def export_to(folder: Path) -> None:
    with replace_files(folder, "key"):
        raise AssertionError


WRITERS: dict[str, Callable[[Path], object]] = {
    "file": lambda path: write_text(path / "x", ""), "locked folder": files.open_folder,
    "new folder": files.claim_folder, "metrics": lambda path: MetricsLog(path / "x"),
    "checkpoint": checkpoint_in, "export": export_to}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(("number", "remedy"), [
    (errno.EACCES, "Permission denied; change the permissions, or choose another path"),
    (errno.EROFS, "Read-only file system; choose a path on a writable file system"),
    (errno.ENOSPC, "No space left on device")])
def test_every_writer_says_what_to_do_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
                                                         number: int, remedy: str) -> None:
    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), str(path))
    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(ResourceError, match=rf"^{tmp_path}/shut/new.*: .*be (written|created|saved): {remedy}$"):
        WRITERS[name](tmp_path / "shut" / "new")


def test_a_folder_that_may_not_be_entered_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut" / "in").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name not in ("shut", "in"))
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "shut" / "in" / "x"))
    assert os_reason(error) == (f"Permission denied (no permission to enter {tmp_path / 'shut'}); change the "
                                "permissions, or choose another path")
    assert os_reason(PermissionError(errno.EACCES, "Permission denied", 3)).startswith("Permission denied; change")
    assert os_reason(OSError(errno.EIO, "Input/output error", str(tmp_path / "shut" / "x"))) == "Input/output error"
    assert os_reason(OSError("of a library")) == "of a library"


def test_a_file_is_written_in_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse_folders(path: str | os.PathLike, *args: Any, **keywords: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *args, **keywords)

    monkeypatch.setattr(os, "open", refuse_folders)
    write_text(tmp_path / "a.txt", "text")                   # an error after the rename would be wrong
    assert (tmp_path / "a.txt").read_text() == "text"
