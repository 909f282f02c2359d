"""Files are written whole or not at all: temporary name, fsync, rename."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from embtrain.errors import ResourceError


@contextlib.contextmanager
def write_whole(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a file that appears under `path` only when the block ends without an error.

    Raises ResourceError where the folder cannot be written or the disk is full.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        encoding = None if "b" in mode else "utf-8"
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_text(path: str | os.PathLike, text: str) -> None:
    with write_whole(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """JSON without NaN: what is not a finite number is written as null by the caller, or this raises ValueError."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


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
