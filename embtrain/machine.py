"""Memory as this machine tells it: what it has, what is free, and what this process takes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

GROUP = Path("/sys/fs/cgroup")  # where a container's limits stand


def total() -> int:
    """Bytes that there are, whoever has them; in a group no more than its limit."""
    there, limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), group_limit()
    return there if limit is None else min(there, limit)


def free() -> int:
    """Bytes that this machine can still give without swapping, and this process' group too; a GiB where nobody says."""
    found, limit, used = _kib("/proc/meminfo", "MemAvailable"), group_limit(), _number(GROUP / "memory.current")
    found = 1 << 30 if found is None else found
    if limit is None or used is None:
        return found
    files = _entry(GROUP / "memory.stat", "inactive_file") or 0  # that were read and are let go when there is need
    return min(found, max(0, limit - used + files))


def group_limit() -> int | None:
    """Bytes that the group of this process may take at the most; None where there is no limit."""
    return _number(GROUP / "memory.max")


def taken(what: str) -> int | None:
    """Bytes that this process has (VmRSS), or has had at the most (VmHWM); None where nobody says."""
    return _kib("/proc/self/status", what)


def count_anew() -> None:
    """From here on VmHWM is what this process has had at the most since; where the kernel lets nobody, since ever."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def most_of(work: Callable[[], T]) -> tuple[T, int]:
    """What some work makes, and the bytes that it takes at the most beside those that the process had before, as the
    kernel counts them; 0 where nobody says. What the allocator keeps is handed back first, or it would serve the work
    uncounted."""
    give_back()
    before = taken("VmRSS")
    count_anew()
    made = work()
    most = taken("VmHWM")
    return made, 0 if before is None or most is None else max(0, most - before)


def give_back() -> None:
    """Let the allocator hand to the system what it keeps free for later, where it knows how to."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def _kib(path: str, name: str) -> int | None:
    """A number of KiB of the kernel's, in bytes."""
    found = _entry(Path(path), f"{name}:")
    return None if found is None else found * 1024


def _entry(path: Path, name: str) -> int | None:
    """The number after a name at the beginning of a line; None where there is no such file or line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(line[1]) for line in lines if line[:1] == [name]), None)


def _number(path: Path) -> int | None:
    """The number that is all of a file; None where there is none: a limit may be `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
