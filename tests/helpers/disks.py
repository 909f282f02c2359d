"""Simulates a disk that fails, or a machine that stops, at the n-th call that changes files.

Calls below one folder are counted: open for writing, write, fsync, rename, unlink, mkdir and truncate. A write fails
or dies in the middle. Each command runs in a separate forked process.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.numpy

from embtrain import cli

FORK = multiprocessing.get_context("fork")
DEATH = 0                # in place of an errno
DIED = 77
CPU_SECONDS = 120        # limit of a command that takes less than one second, against endless loops
HANGS = 1800             # wall-clock seconds, which also pass while a machine is paused
FAILS = {"death": DEATH, "full": errno.ENOSPC, "broken": errno.EIO, "forbidden": errno.EACCES,
         "read-only": errno.EROFS}


class Disk:
    """Counts down at each call and fails at zero; a full disk stays full."""

    def __init__(self, below: Path, calls: int, error: int, failed: Any):
        self.below, self.left, self.wrong, self.failed = str(below), calls, error, failed
        self.opened, self.fdopened = builtins.open, os.fdopen
        os.fsync = self.counted(os.fsync)
        os.ftruncate = self.counted(os.ftruncate)
        os.fdopen = lambda *a, **k: self.writing(self.fdopened(*a, **k), *a[1:2])  # type: ignore[assignment]
        builtins.open = lambda *a, **k: self.writing(self.opened(*a, **k), *a[1:2])  # type: ignore[assignment]
        io.open = builtins.open
        sys.addaudithook(self.audit)

    def tick(self) -> None:
        self.left -= 1
        if self.left >= 0:
            return
        self.failed.value = 1
        if self.wrong == DEATH:
            os._exit(DIED)
        if self.left == -1 or self.wrong in (errno.ENOSPC, errno.EROFS):
            raise OSError(self.wrong, os.strerror(self.wrong))

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            touches = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            # A full disk still permits deletion.
            touches = event in ("os.rename", "os.mkdir") or (event == "os.remove" and self.wrong != errno.ENOSPC)
            path = args[0] if touches else None
        if touches and isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.below):
            self.tick()

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*args: Any) -> Any:
            self.tick()
            return call(*args)
        return counts

    def writing(self, file: Any, mode: str = "r") -> Any:
        named = isinstance(file.name, int) or os.path.abspath(file.name).startswith(self.below)
        return Written(file, self) if named and set(mode) & set("wax+") else file


class Written:
    """A file whose writes are counted, each in the middle."""

    def __init__(self, file: Any, disk: Disk):
        self.file, self.disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, part: Any) -> int:
        half = len(part) // 2
        self.file.write(part[:half])
        self.file.flush()
        self.disk.tick()
        self.file.write(part[half:])
        return len(part)


@dataclass
class End:
    code: int
    said: str
    failed: bool         # whether the command reached the failing call


def run(place: Path, argv: tuple[str, ...], disk: tuple[int, int] | None = None) -> End:
    """Run the command in a separate process, on a good disk or on one that fails: (calls before that, error)."""
    err = place.parent / f"{place.name}.err"

    failed = FORK.RawValue("b", 0)

    def body() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.chdir(place)
        os.environ.update(EMBTRAIN_CACHE=str(place / "cache"), NO_PROXY="127.0.0.1")
        sys.argv = ["embtrain", *argv]
        with open(err, "w") as said, open(os.devnull, "w") as nowhere:
            sys.stdout, sys.stderr = nowhere, said
            if disk is not None:
                Disk(place, *disk, failed)
            code = cli.run()
            said.flush()
        os._exit(code)

    child = FORK.Process(target=body)
    child.start()
    child.join(HANGS)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError(f"hangs: {argv}")
    code = child.exitcode
    child.close()
    return End(code, err.read_text(), bool(failed.value))


def failures(origin: Path, argv: tuple[str, ...], error: int, step: int = 1, begin: int = 0
             ) -> Iterator[tuple[int, Path, End]]:
    """Yield the folder after a failure at call 1, 1 + step, ..., until the command completes."""
    for calls in itertools.count(begin, step):
        place = origin.parent / f"{origin.name}-{error}-{calls}"
        shutil.copytree(origin, place)
        end = run(place, argv, (calls, error))
        if end.code != 0:  # otherwise the call is optional: mkdir of an existing folder
            yield calls, place, end
        shutil.rmtree(place)
        if not end.failed:
            return


def torn(place: Path) -> list[str]:
    """Incomplete files under their final names."""
    incomplete = []
    for path in place.rglob("*"):
        if path.is_dir() or path.name.startswith(".") or ".download." in str(path):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".safetensors":
                safetensors.numpy.load_file(path)
            elif path.suffix == ".html":
                assert path.read_text().rstrip().endswith("</html>")
            elif path.suffix in (".txt", ".csv", ".yaml"):
                assert path.stat().st_size > 0
        except (ValueError, AssertionError, safetensors.SafetensorError):
            incomplete.append(path.relative_to(place).as_posix())
    return incomplete


def left_over(place: Path) -> list[str]:
    return [path.relative_to(place).as_posix() for path in place.rglob(".*.part")]


@contextlib.contextmanager
def in_place(path: Path, mode: str = "wb") -> Iterator[Any]:
    """Write a file wrongly: under its final name from the first byte."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode) as file:
        yield file
