"""Atomic writes (temporary name, fsync, rename), locks, run folders and JSON.

A writer holds a lock on its unfinished file or folder, which the operating system releases when the process ends, even
if it is killed. An unlocked unfinished file was left by a killed writer; the next writer in the same folder deletes it,
unless it has a JOURNAL: it may then hold the only copy of the files that were being replaced.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import itertools
import json
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from embtrain.common.errors import DataError, ResourceError, UsageError, os_reason
from embtrain.common.output_paths import check_plain
from embtrain.common.terminal import json_escaped

MAX_JSON_BYTES = 16 << 20  # bytes
TEMPORARY_SUFFIX = ".embtrain.part"  # suffix of the hidden names of unfinished files and folders
JOURNAL = ".embtrain.moves.json"  # in an unfinished folder while its files are moved (data/vectors/replaced_files.py)


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a file that appears under `path` only if the block ends without an error.

    A link is replaced, not followed, because a folder may come from an untrusted source; for a path that a user named,
    call `resolve_output_link` first. Raises UsageError for a device or a pipe, ResourceError if it cannot be written.
    """
    path = Path(path)
    temporary = None
    try:
        check_plain(path, str(path), follow=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        handle, temporary = _create_locked(lambda: tempfile.mkstemp(TEMPORARY_SUFFIX, f".{path.name}.", path.parent))
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)                      # before it is closed, while it is still locked
            temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {os_reason(error)}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def temporary_folder(prefix: str, inside: Path) -> Iterator[Path]:
    """Create a locked folder for unfinished work inside `inside`; the end of the block deletes it without a JOURNAL."""
    def new() -> tuple[int, str]:
        while True:
            name = tempfile.mkdtemp(prefix=prefix, suffix=TEMPORARY_SUFFIX, dir=inside)
            with contextlib.suppress(FileNotFoundError):     # deleted before it was locked
                return os.open(name, os.O_RDONLY), name

    _sweep(inside)
    handle, name = _create_locked(new)
    try:
        yield Path(name)
    finally:
        _delete_folder(name)
        os.close(handle)


def create_once(path: Path, create: Callable[[Path], object]) -> Path:
    """Create a file by `create(temporary path)` unless it exists; return its path, links resolved.

    Of concurrent processes, the first one's remains. Without hard links, a file that another process creates between
    the last check and the rename is replaced. Raises OSError, for example for a loop of links.
    """
    path = Path(os.path.realpath(path))                      # the target of a link may be missing
    with contextlib.suppress(FileNotFoundError):
        path.stat()
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(f".{path.name}.", path.parent) as folder:
        create(folder / path.name)
        try:
            os.link(folder / path.name, path)                # unlike a rename, replaces nothing
        except FileExistsError:
            pass
        except OSError:                                      # a file system without hard links
            if not path.exists():
                os.rename(folder / path.name, path)
    return path


@contextlib.contextmanager
def lock_folder(folder: Path, message: str, operation: int = fcntl.LOCK_EX, wait: float = 0.0) -> Iterator[None]:
    """Lock a folder, created if missing, during the block. Raises UsageError(message) if locked, or ResourceError.

    wait: seconds to wait for the lock of another process.
    """
    handle, until = open_folder(folder), time.monotonic() + wait
    try:
        while not try_lock(handle, operation):
            if time.monotonic() >= until:
                raise UsageError(message)
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def dated_folder(name: str) -> Path:
    """Return the path of a new run folder for a run without --out: runs/STAMP-name."""
    return next(path for path in _numbered(Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
                if not path.exists())


def claim_folder(folder: Path) -> Path:
    """Create and return the folder, or the first free one of folder-2, folder-3, ... Raises ResourceError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for path in _numbered(folder):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be created: {os_reason(error)}") from error
    raise AssertionError("the numbers have no end")


def _numbered(folder: Path) -> Iterator[Path]:
    yield folder
    for n in itertools.count(2):
        yield folder.with_name(f"{folder.name}-{n}")


def as_argument(path: str | os.PathLike) -> str:
    """Return the path as a command-line argument: `./-x` for `-x`, which would be read as an option."""
    text = os.fspath(path)
    return f"./{text}" if text.startswith("-") else text


def resume_command(folder: Path) -> str:
    """Return the shell command that resumes the run in a folder."""
    return shlex.join(["embtrain", "resume", as_argument(folder)])


def check_exists(path: Path, kind: str = "a run folder", may_be_run: bool = True) -> None:
    """Raise DataError if a path that should be `kind` does not exist, with the nearest run if it may be one.

    ResourceError for a folder without permission; that of a file is reported when it is opened.
    """
    try:
        if stat.S_ISDIR(os.stat(path).st_mode) and not os.access(path, os.R_OK | os.X_OK):
            raise ResourceError(f"{path}: no permission to read it")
    except (FileNotFoundError, NotADirectoryError):
        near, remedy = (_nearest_run(path), "; `embtrain fit --out DIR` creates one") if may_be_run else ("", "")
        raise DataError(f"{path}: file or folder not found{near}; give {kind}{remedy}") from None
    except OSError:
        return  # the reason is reported when the path is opened


def _nearest_run(path: Path) -> str:
    """Return ` (did you mean 'runs/x'?)` for the nearest run or comparison, else the newest; '' without one."""
    runs: dict[str, Path] = {}
    for folder in dict.fromkeys([path.parent, Path("runs")]):
        with contextlib.suppress(OSError):
            candidates = [run for run in folder.iterdir()
                     if any((run / name).is_file() for name in ("config.yaml", "comparison.yaml"))]
            for run in sorted(candidates, key=lambda run: run.stat().st_mtime, reverse=True):
                runs.setdefault(run.name, run)
    containing = [name for name in runs if path.name and path.name in name]  # a run without --out is named STAMP-NAME
    near = containing or difflib.get_close_matches(path.name, runs, n=1)
    if near:
        return f" (did you mean {as_argument(runs[near[0]])!r}?)"
    return f" (the newest run is {as_argument(next(iter(runs.values())))!r})" if runs else ""


def open_folder(folder: Path) -> int:
    """Open a folder, created if missing, so that it can be locked. Raises ResourceError if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error


def try_lock(handle: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file or folder, for one process or shared; return False if another process holds the lock.

    The lock ends with the last process that has the handle open. Without support for locks the result is True.
    """
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def write_text(path: str | os.PathLike, text: str) -> None:
    with write_atomically(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write JSON atomically. Raises ValueError for NaN or infinity, which the caller must write as null.

    Characters that UTF-8 cannot encode are escaped: a file name in a corpus may contain some.
    """
    write_text(path, json_escaped(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)) + "\n")


def read_json(path: str | os.PathLike, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read JSON. Raises OSError, or ValueError if longer than `max_bytes`, not UTF-8, not JSON or nested too deep."""
    content = bytearray()
    with open(path, "rb") as file:
        while piece := file.read(1 << 16):  # one read of max_bytes would allocate as many
            content += piece
            if len(content) > max_bytes:
                raise ValueError(f"more than {max_bytes:,} bytes")
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def sha256(path: str | os.PathLike) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure, if the folder may be read."""
    with contextlib.suppress(PermissionError):               # not an error: the rename itself has succeeded
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


# -- leftovers of killed processes --------------------------------------------------------------------------------


def _create_locked(new: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Create, with `new` -> (handle, path), and lock a file or folder, so that no other process deletes it."""
    while True:
        handle, name = new()
        with contextlib.suppress(OSError):                   # without locks nothing is deleted
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _still_exists(handle, name):
            return handle, name
        os.close(handle)


def _still_exists(handle: int, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(name))
    return False


def _sweep(folder: Path) -> None:
    """Delete the unlocked leftovers of killed writers in a folder, recognized by name, except one with a JOURNAL."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX):
                with contextlib.suppress(OSError):           # locked, or no permission
                    _remove_if_unlocked(entry.path)


def _remove_if_unlocked(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (_delete_folder if stat.S_ISDIR(os.fstat(handle).st_mode) else os.unlink)(path)
    finally:
        os.close(handle)


def _delete_folder(path: str) -> None:
    if not os.path.lexists(os.path.join(path, JOURNAL)):
        shutil.rmtree(path, ignore_errors=True)
