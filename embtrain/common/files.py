"""Files are written whole or not at all: temporary name, fsync, rename.

A writer holds a lock on what is not yet whole, which the system lets go of when the process dies, however it does. What
lies there unlocked was left by one that was killed, and the next one that writes into the same folder takes it away.
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

from embtrain.common.errors import DataError, ResourceError, UsageError

MAX_JSON_BYTES = 16 << 20  # bytes of a file of a run
TEMPORARY_SUFFIX = ".embtrain.part"  # ends the hidden name of what is not yet whole


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a file that appears under `path` only when the block ends without an error.

    A link is replaced and not followed, for a folder may come from strangers; where somebody names a file, `followed`
    says which. Raises UsageError for what is no file, ResourceError where the folder cannot be written or the disk is
    full.
    """
    path = Path(path)
    temporary = None
    try:
        _check_plain(path, str(path), follow=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        handle, temporary = _create_locked(
            lambda: tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX, dir=path.parent)
        )
        encoding = None if "b" in mode else "utf-8"
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)                      # before it is closed: until then nobody sweeps it
            temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_output_folder(folder: Path, flag: str = "--out") -> None:
    """UsageError or ResourceError where no folder can be there, before any work is done for it. Nothing is made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        raise UsageError(f"{flag}: {folder}: {existing} is no folder; name another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ResourceError(f"{flag}: {folder}: {existing} cannot be written; name another")


def check_output_file(path: Path, flag: str = "--out") -> Path:
    """The same for a file that somebody names; what `followed` says of it."""
    if path.is_dir():
        raise UsageError(f"{flag}: {path}: is a folder; name a file")
    path = resolve_output_link(path, flag)
    check_output_folder(path.parent, flag)
    return path


def resolve_output_link(path: Path, flag: str = "--out") -> Path:
    """What is written where somebody names `path`: of a link its target, which is what is meant. UsageError for what
    cannot be replaced."""
    _check_plain(path, f"{flag}: {path}", follow=True)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _check_plain(path: Path, place: str, follow: bool) -> None:
    """UsageError for a device, a pipe or a socket: a rename would put a file in its place."""
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise UsageError(f"{place}: is a device, a pipe or a socket, and files are written whole; name a file")


@contextlib.contextmanager
def temporary_folder(prefix: str, inside: Path) -> Iterator[Path]:
    """A new folder for what is not yet whole, gone when the block ends."""
    def new() -> tuple[int, str]:
        while True:
            name = tempfile.mkdtemp(prefix=prefix, suffix=TEMPORARY_SUFFIX, dir=inside)
            with contextlib.suppress(FileNotFoundError):     # swept before it was held
                return os.open(name, os.O_RDONLY), name

    _sweep(inside)
    handle, name = _create_locked(new)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        os.close(handle)


@contextlib.contextmanager
def lock_folder(folder: Path, message: str) -> Iterator[None]:
    """Hold a folder, made where it is not there, as long as the block lasts. UsageError(message) where another holds
    it; ResourceError where it cannot be."""
    handle = open_folder(folder)
    try:
        if not try_lock(handle):
            raise UsageError(message)
        yield
    finally:
        os.close(handle)


def dated_folder(name: str) -> Path:
    """A folder for a run without --out, which is not there yet: runs/STAMP-name."""
    return next(path for path in _numbered(Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
                if not path.exists())


def claim_folder(folder: Path) -> Path:
    """Make the folder, or the first of folder-2, folder-3, ... that does not exist, and return it. Of processes that
    claim a name at the same time each gets its own. ResourceError if it cannot be made."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for path in _numbered(folder):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror}") from error
    raise AssertionError("the numbers have no end")


def _numbered(folder: Path) -> Iterator[Path]:
    yield folder
    for n in itertools.count(2):
        yield folder.with_name(f"{folder.name}-{n}")


def as_argument(path: str | os.PathLike) -> str:
    """The path as an argument of a command: `./-x`, where `-x` would be read as an option."""
    text = os.fspath(path)
    return f"./{text}" if text.startswith("-") else text


def resume_command(folder: Path) -> str:
    """The command that resumes the run in a folder, as a shell reads it."""
    return shlex.join(["embtrain", "resume", as_argument(folder)])


def check_exists(path: Path, kind: str = "the folder of a run") -> None:
    """DataError with the nearest run if a path that should be `kind` does not exist."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path}: no such file or folder{_nearest_run(path)}; give {kind}; `embtrain fit --out DIR` "
                        "makes one") from None
    except OSError:
        return  # reported with its reason by what opens the path


def _nearest_run(path: Path) -> str:
    """` (did you mean 'runs/x'?)` with the run or comparison whose name is nearest, else the newest; '' without any."""
    runs: dict[str, Path] = {}
    for folder in dict.fromkeys([path.parent, Path("runs")]):
        with contextlib.suppress(OSError):
            candidates = [run for run in folder.iterdir()
                     if any((run / name).is_file() for name in ("config.yaml", "comparison.yaml"))]
            for run in sorted(candidates, key=lambda run: run.stat().st_mtime, reverse=True):
                runs.setdefault(run.name, run)
    containing = [name for name in runs if path.name and path.name in name]  # the name that a run without --out ends in
    near = containing or difflib.get_close_matches(path.name, runs, n=1)
    if near:
        return f" (did you mean {as_argument(runs[near[0]])!r}?)"
    return f" (the newest run is {as_argument(next(iter(runs.values())))!r})" if runs else ""


def open_folder(folder: Path) -> int:
    """A folder, made where it is not there, as what may be locked; ResourceError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {error.strerror}") from error


def try_lock(handle: int) -> bool:
    """Take the lock on what is open, unless another holds it; whether it is held now. The system lets go of it when the
    last process that has it open has ended. On a disk without locks nobody holds anything."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def write_text(path: str | os.PathLike, text: str) -> None:
    with write_atomically(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """JSON without NaN: what is not a finite number is written as null by the caller, or this raises ValueError."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def read_json(path: str | os.PathLike, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file of at most `max_bytes` bytes. OSError where it cannot be read, ValueError where it is too long,
    is not UTF-8, is not JSON, or nests too deep."""
    with open(path, "rb") as file:
        content = file.read(max_bytes + 1)
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
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- what the dead have left --------------------------------------------------------------------------------------


def _create_locked(new: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Something new, open and by its name, that nobody sweeps as long as it is open and its process lives."""
    while True:
        handle, name = new()
        with contextlib.suppress(OSError):                   # a disk without locks: there nothing is ever swept
            fcntl.flock(handle, fcntl.LOCK_EX)
        if _still_exists(handle, name):
            return handle, name
        os.close(handle)


def _still_exists(handle: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(name))
    except FileNotFoundError:
        return False


def _sweep(folder: Path) -> None:
    """Take away what writers that were killed have left in a folder: what is ours by its name, and held by nobody."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX):
                with contextlib.suppress(OSError):           # held, or not ours to take away
                    _remove_if_unlocked(entry.path)


def _remove_if_unlocked(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(handle)
