"""The cache folder and other folders that the user sets in the environment.

EMBTRAIN_CACHE  the cache folder, else ~/.cache/embtrain. Without a home folder, as in a container with a user id that
                has no name, it is embtrain-UID in the temporary folder, owned by that user and closed to others
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from embtrain.common.errors import EmbtrainError, ResourceError, UsageError, permission_remedy

T = TypeVar("T")
MAX_TRIES = 3

_log = logging.getLogger("embtrain")


def user_path(text: str, key: str) -> Path:
    """Expand `~` and `~user`; raise UsageError that names the key if there is no home folder for it."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{key}: {text}: its home folder is unknown; give the absolute path") from None


def cache_folder() -> Path:
    """Return the cache folder, which need not exist.

    Raises UsageError for an EMBTRAIN_CACHE without a home folder, ResourceError if a file is in its place or the
    fallback is not safe.
    """
    if named := os.environ.get("EMBTRAIN_CACHE"):
        folder = user_path(named, "EMBTRAIN_CACHE")
    else:
        try:
            folder = Path.home() / ".cache" / "embtrain"
        except RuntimeError:
            return _temporary(Path(tempfile.gettempdir()) / f"embtrain-{os.getuid()}")
    existing = next(filter(os.path.lexists, (folder, *folder.absolute().parents)))
    if not existing.is_dir():
        raise ResourceError(f"EMBTRAIN_CACHE: {folder}: {f'{existing} ' if existing != folder else ''}is not a folder; "
                            "set EMBTRAIN_CACHE to a folder, which need not exist")
    return folder


def read_into_cache(work: Callable[[], T]) -> T:
    """Run `work`, which reads data into the cache, and run it again if the cache is deleted in the meantime.

    Raises ResourceError that names EMBTRAIN_CACHE if the cache cannot be written.
    """
    cache = cache_folder()

    def with_key() -> T:
        try:
            return work()
        except (OSError, ResourceError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            line = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else f"{error}".removesuffix(
                permission_remedy(cause) if isinstance(cause, OSError) else "")
            if isinstance(error, FileNotFoundError) or not line.startswith(f"{cache}{os.sep}"):
                raise
            raise ResourceError(f"{line}; set EMBTRAIN_CACHE to a writable folder with free space") from error

    return retry_if_deleted(with_key, cache)


def retry_if_deleted(work: Callable[[], T], folder: Path) -> T:
    """Run `work`, and run it again if `folder` of the cache or a part of it is deleted in the meantime.

    Raises ResourceError if that happens MAX_TRIES times.
    """
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            return work()
        except (OSError, EmbtrainError) as error:
            if (missing := deleted_path(error, folder)) is None:
                raise
            if tries_left == 0 and isinstance(error, EmbtrainError):
                raise                                        # perhaps nothing can be created in the folder
            if tries_left == 0:
                raise ResourceError(f"{missing}: was deleted {MAX_TRIES} times while it was in use; do not delete the "
                                    "cache while embtrain runs") from error
            _log.warning("%s: was deleted while it was in use; it is rebuilt", folder)
    raise AssertionError("the last try returns or raises")


def deleted_path(error: BaseException, folder: Path) -> Path | None:
    """Return the path in or above the folder whose absence caused the error; None if that is not the cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileNotFoundError) and isinstance(cause.filename, str | os.PathLike):
            path = Path(cause.filename)
            if path.is_relative_to(folder) or folder.is_relative_to(path):
                return path
        cause = cause.__cause__
    return None


@cache
def _temporary(folder: Path) -> Path:
    """Create a cache that other users of a shared temporary folder can neither write nor replace."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be used as the cache: {error.strerror}; set EMBTRAIN_CACHE") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ResourceError(f"{folder}: is writable by other users or not a folder; set EMBTRAIN_CACHE to another")
    _log.warning("there is no home folder (HOME is not set, and user %d has none), so the cache is %s; set "
                 "EMBTRAIN_CACHE to keep it", os.getuid(), folder)
    return folder
