"""The processor, memory, disks and packages of this machine, the memory of this process, and copies to a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch

T = TypeVar("T")

_has_frozen = threading.Event()    # set: `paused_collector` has frozen objects of this process

ROOT = Path("/")                   # parent of /proc/self and of the mounted groups; tests replace it
NO_LIMIT = 1 << 60                 # bytes; version 1 writes the largest number of pages
# Files of a control group: limit, usage, and the line of memory.stat with the file pages that can be freed.
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


def processor() -> str:
    """Return the model name of the processor; its architecture or an empty text if the system does not report it."""
    for line in _lines(ROOT / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor()


def package_version(package: str) -> str:
    """Return the version of a package; `not installed` without it, for example gensim where the code is only copied."""
    from importlib import metadata  # lazily: `--help` and `--version` do not need its ten milliseconds

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_forked() -> bool:
    """Whether this process is a fork that has started no program of its own (Linux); else False."""
    fields = _lines(ROOT / "proc/self/stat")
    return bool(fields and int(fields[0].rpartition(")")[2].split()[6]) & 0x40)         # PF_FORKNOEXEC of its flags


def startable_threads(n: int, stack_bytes: int = 0) -> int:
    """Return how many of n threads could be started at the same time. stack_bytes: of each, 0: the system's default."""
    done, started = threading.Event(), list[threading.Thread]()
    before = threading.stack_size(stack_bytes)
    try:
        for _ in range(n):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    finally:
        threading.stack_size(before)
        done.set()
        for thread in started:
            thread.join()
    return len(started)


def total() -> int:
    """Return the installed memory in bytes, or the limit of the control group if that is lower."""
    installed, limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), group_limit()
    return installed if limit is None else min(installed, limit)


def free() -> int:
    """Return the bytes that can be allocated without swapping, within the control groups of this process.

    If the system does not report them, 1 GiB is returned.
    """
    available = _kib("/proc/meminfo", "MemAvailable")
    left = [1 << 30 if available is None else available]
    for folder, (limit_file, used_file, files) in _groups():
        limit, used = _limit(folder / limit_file), _number(folder / used_file)
        if limit is not None and used is not None:
            freeable = _entry(folder / "memory.stat", files) or 0
            left.append(max(0, limit - used + freeable))
    return min(left)


def free_disk(folder: Path) -> int:
    """Return the free bytes of the file system of a folder. OSError if the folder does not exist."""
    return shutil.disk_usage(folder).free


def group_limit() -> int | None:
    """Return the lowest memory limit of this process's control groups and their ancestors, in bytes, or None."""
    limits = [_limit(folder / files[0]) for folder, files in _groups()]
    return min((limit for limit in limits if limit is not None), default=None)


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the folders of this process's memory groups and their ancestors up to the mount, with their file names.

    Slurm and systemd limit an ancestor, not the group itself. In a container the mount may show a part of the tree.
    """
    path_by_version: dict[bool, str] = {}                         # is version 2 -> path of the group
    for line in _lines(ROOT / "proc/self/cgroup"):           # 4:memory:/user/1 and 0::/user.slice
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(",") or (number == "0" and not controllers):
            path_by_version[not controllers] = path
    for line in _lines(ROOT / "proc/self/mountinfo"):
        fields, _, kind = (part.split() for part in line.partition(" - "))
        v2 = kind[:1] == ["cgroup2"]
        if len(fields) < 5 or v2 not in path_by_version or not (v2 or (kind[:1] == ["cgroup"] and "memory" in
                                                                  kind[-1].split(","))):
            continue
        shown, mount = (_unescaped(field) for field in fields[3:5])
        try:
            inside = PurePosixPath(path_by_version[v2]).relative_to(shown)
        except ValueError:
            inside = PurePosixPath("..")
        if ".." in inside.parts:                             # the group is outside the part that the mount shows
            inside = PurePosixPath()
        for group in (inside, *inside.parents):
            yield ROOT / mount.lstrip("/") / group, V2 if v2 else V1


def _limit(path: Path) -> int | None:
    number = _number(path)
    return None if number is None or number >= NO_LIMIT else number


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _unescaped(field: str) -> str:
    """Decode a field of mountinfo, in which blanks and backslashes are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def process_memory(field: str) -> int | None:
    """Return the memory of this process in bytes: now (VmRSS) or at its peak (VmHWM); None if not reported."""
    return _kib("/proc/self/status", field)


def reset_peak() -> None:
    """Reset VmHWM to the current memory, so that it reports the peak from now on.

    If the kernel does not permit it, VmHWM stays the peak since the process started.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure_peak(work: Callable[[], T]) -> tuple[T, int]:
    """Run `work` and return its result and its peak extra memory in bytes, as the kernel reports it, or 0.

    Memory cached by the allocator is returned to the system first, because `work` could reuse it without being counted.
    """
    release_free_memory()
    before = process_memory("VmRSS")
    reset_peak()
    result = work()
    peak = process_memory("VmHWM")
    return result, 0 if before is None or peak is None else max(0, peak - before)


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Import modules without the garbage collector, and freeze all objects that exist afterwards.

    The collector would visit the 300,000 objects of the modules many times. It ignores frozen objects until
    `gc.unfreeze`, so this is for a process that runs one command.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        _has_frozen.set()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def unfrozen_at_end() -> Iterator[None]:
    """Unfreeze at the end what `paused_collector` froze inside; objects that were frozen before stay so."""
    had_frozen = _has_frozen.is_set() or gc.get_freeze_count() > 0   # the count visits every frozen object
    try:
        yield
    finally:
        if not had_frozen:
            gc.unfreeze()
            _has_frozen.clear()


def release_free_memory() -> None:
    """Return memory that the allocator caches to the operating system, if it supports that."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def release_pages(array: np.ndarray) -> None:
    """Return the memory of a read-only array that is a mapped file; its pages are read again when they are used.

    The system keeps them in its cache as long as it has room. Arrays in memory are left alone.
    """
    base: Any = array
    while not isinstance(base, mmap.mmap | None):
        base = getattr(base, "base", None)
    if base is not None and not array.flags.writeable and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _kib(path: str, name: str) -> int | None:
    """Read a number that the kernel reports in KiB, and return it in bytes."""
    kib = _entry(Path(path), f"{name}:")
    return None if kib is None else kib * 1024


def _entry(path: Path, name: str) -> int | None:
    """Return the number after a name at the beginning of a line; None if the file or line is missing."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(line[1]) for line in lines if line[:1] == [name]), None)


def _number(path: Path) -> int | None:
    """Return the number that a file consists of; None if it is missing or not a number: a limit may be `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def to_device(x: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a tensor to a device. The host does not wait for a copy to a GPU, which reads pinned memory."""
    is_pinned = x.device.type == "cpu" and str(device).startswith("cuda")
    return (x.pin_memory() if is_pinned else x).to(device, non_blocking=is_pinned)
