"""Facts about a file on disk, kept in the cache while the file is unchanged: its hash, the members of an archive.

`checked` also recognizes a file that changes between its hash and the end of its reading.

A corpus is identified by the hash of its files, and their names decide what is read. Without this, each start of a run
would read every file, and unpack a packed archive, before it opens the cached corpus.

    cache/files/KEY.json     KEY: hash of the path. The path, the state of the file, and facts by name

A file with the same size, times and inode is unchanged: a write changes one of the times, which no program can set.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import read_json, write_text
from embtrain.data.storage.folders import cache_folder

T = TypeVar("T")
Version = tuple[int, int, int]  # of the content of a file: bytes, time of the last write, inode
MIN_BYTES = 1 << 20     # a smaller file is soon read again
MAX_RECORD = 256 << 20  # bytes; enough for a million members
TICK = 20_000_000       # nanoseconds; two writes of a file in this time may leave the same times
_EXPECTED: ContextVar[tuple[Collection[str], DataError] | None] = ContextVar("_EXPECTED", default=None)


@contextlib.contextmanager
def expected_content(hashes: Collection[str], changed: DataError) -> Iterator[None]:
    """Raise `changed` in the block as soon as a corpus has none of these sha256, before its content is read.

    Later errors of another content would describe that one, for example the words that it lacks.
    """
    token = _EXPECTED.set((hashes, changed))
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def require_expected(sha256: str) -> str:
    """Return the sha256 of a corpus. Raises the error of `expected_content` if the block expects another one."""
    if (expected := _EXPECTED.get()) is not None and sha256 not in expected[0]:
        raise expected[1]
    return sha256


def recall(path: Path, fact: str, find: Callable[[], T], is_valid: Callable[[Any], bool]) -> T:
    """Return a fact about a file: from the cache, else from `find`, whose result, JSON, is kept there.

    is_valid: whether a kept value can be used. Raises what `find` raises, and as `cache_folder`. Nothing is kept if the
    cache cannot be written.
    """
    state = _state(path)
    if state is None or state[0] < MIN_BYTES or not is_settled(state[1:]):
        return find()
    record = cache_folder() / "files" / f"{hashlib.sha256(_name(path)).hexdigest()[:32]}.json"
    kept = _read(record, state).get(fact)
    if is_valid(kept):
        return cast(T, kept)
    value = find()
    facts = _read(record, state) | {fact: value}             # read again: another process may have written since
    content = json.dumps({"path": str(path), "state": state, "facts": facts})
    with contextlib.suppress(ResourceError, UsageError):
        write_text(record, content + "\n")
    return value


def version(path: Path) -> Version | None:
    """Return the version of a file, which a change of its permissions or links keeps; None if it has none."""
    try:
        status = path.stat()
    except OSError:                                          # the reader raises it with its own words
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def checked(versions: Mapping[Path, Version | None], read: Callable[..., T]) -> Callable[..., T]:
    """Return `read` with a check at its end: DataError if a file no longer has its version.

    versions: from before the files were hashed, so that a result is never stored under the hash of other content. The
    check also follows an error that the content can cause, because an incomplete file often cannot be read.
    """
    def check(cause: Exception | None = None) -> None:
        for path, before in versions.items():
            if version(path) != before:
                raise DataError(
                    f"{path}: changed while it was read; wait until it is complete, and run again") from cause

    def read_checked(*arguments: Any) -> T:
        try:
            result = read(*arguments)
        except (DataError, UsageError) as error:
            check(error)
            raise
        check()
        return result

    return read_checked


def times_and_inode(path: Path) -> list[int]:
    """Return the two times and the inode of a file. Raises OSError."""
    status = path.stat()
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def is_settled(state: list[int]) -> bool:
    """Return whether a later write of the file of `times_and_inode` gets other times."""
    return time.time_ns() - max(state[:2]) > TICK


def _state(path: Path) -> list[int] | None:
    """Return the size, times and inode of a file; None if it cannot be looked at."""
    try:
        return [path.stat().st_size, *times_and_inode(path)]
    except OSError:                                          # `find` raises it with its own words
        return None


def _read(record: Path, state: list[int]) -> dict[str, Any]:
    """Return the facts of a record that is of this state; none if it is missing, damaged or of another state."""
    try:
        kept = read_json(record, MAX_RECORD)
        return dict(kept["facts"]) if kept["state"] == state else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _name(path: Path) -> bytes:
    return os.fsencode(os.path.abspath(path))
