"""Folders that the user names in the environment, and the cache folder if none is named.

EMBTRAIN_CACHE  the cache folder, else ~/.cache/embtrain. Without a home folder, as in a container with a user id that
                has no name, it is embtrain-UID in the temporary folder, of that user and closed to others
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from functools import cache
from pathlib import Path

from embtrain.errors import ResourceError, UsageError

_log = logging.getLogger("embtrain")


def user_path(text: str, key: str) -> Path:
    """The path with `~` and `~user` expanded; UsageError that names the key if there is no such user or home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{key}: {text}: no home folder is known for it; give the whole path") from None


def cache_folder() -> Path:
    """The cache folder, which need not exist."""
    if named := os.environ.get("EMBTRAIN_CACHE"):
        return user_path(named, "EMBTRAIN_CACHE")
    try:
        return Path.home() / ".cache" / "embtrain"
    except RuntimeError:
        return _temporary(Path(tempfile.gettempdir()) / f"embtrain-{os.getuid()}")


@cache
def _temporary(folder: Path) -> Path:
    """A cache that other users of a shared temporary folder can neither write nor replace."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be the cache: {error.strerror}; set EMBTRAIN_CACHE") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ResourceError(f"{folder}: is not a folder that only this user can write; set EMBTRAIN_CACHE to another")
    _log.warning("there is no home folder (HOME is not set, and user %d has none): the cache is %s; set EMBTRAIN_CACHE "
                 "to keep it", os.getuid(), folder)
    return folder
