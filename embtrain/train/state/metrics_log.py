"""metrics.jsonl: one JSON object per line, appended during training.

A number that is not finite is written as null, because JSON cannot represent it. A line is torn only if the process
was killed while writing it. That can only be the last line, and it is dropped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError, ResourceError, os_reason
from embtrain.common.files import sync_folder

MAX_LINE = 1 << 20   # bytes
MAX_FILE = 1 << 30


class MetricsLog:
    """Appends lines to `path`, opening the file for each line. Raises ResourceError if it cannot be written."""

    def __init__(self, path: Path):
        self.path, self.torn_line_cut = Path(path), False
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            open(self.path, "ab").close()

    def append(self, values: Mapping[str, Any]) -> None:
        """Append one line. It has reached the operating system completely when this returns."""
        line = memoryview((json.dumps(_finite(values), allow_nan=False) + "\n").encode())
        with self._writing(), open(self.path, "ab", buffering=0) as file:
            if not self.torn_line_cut:  # not earlier: `truncate` may refuse the file, which must then be unchanged
                _cut_torn_line(self.path)
                self.torn_line_cut = True
            while line:
                line = line[file.write(line):]

    def sync(self) -> int:
        """Flush all lines to disk, so that they survive a power cut. Returns the size in bytes, for `truncate`."""
        with self._writing(), open(self.path, "ab", buffering=0) as file:
            os.fsync(file.fileno())
            sync_folder(self.path.parent)
            return os.fstat(file.fileno()).st_size

    def truncate(self, offset: int) -> None:
        """Drop all lines appended after `sync` returned `offset`. Raises DataError if that is not the end of a line."""
        with self._writing(), open(self.path, "a+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 <= offset <= size:
                raise DataError(f"{self.path}: {size:,} bytes, but the checkpoint was saved when it had {offset:,}; "
                                "restore the file, or start again with another --out")
            if offset and os.pread(file.fileno(), 1, offset - 1) != b"\n":
                raise DataError(f"{self.path}: byte {offset:,}, where the checkpoint was saved, is not the end of a "
                                "line; restore the file, or start again with another --out")
            os.ftruncate(file.fileno(), offset)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"{self.path}: cannot be written: {os_reason(error)}") from error


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, without a torn last one. Raises DataError that names the line."""
    lines: list[dict[str, Any]] = []
    try:
        if not Path(path).is_file():
            raise DataError(f"{path}: does not exist; training writes it")
        if (size := os.path.getsize(path)) > MAX_FILE:
            raise DataError(f"{path}: {size:,} bytes are too many; at most {MAX_FILE:,} are read")
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE):
                if not line.endswith(b"\n"):
                    if len(line) == MAX_LINE:
                        raise DataError(f"{path}:{len(lines) + 1}: a line of more than {MAX_LINE:,} bytes")
                    break
                lines.append(parse(line, f"{path}:{len(lines) + 1}"))
    except PermissionError as error:
        raise ResourceError(f"{path}: no permission to read it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error
    return lines


def parse(line: bytes, where: str) -> dict[str, Any]:
    """Parse one line. Raises DataError that starts with `where`."""
    try:
        value = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON; each line must be one JSON object") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: {type(value).__name__} instead of a JSON object")
    return value


def _finite(value: Any) -> Any:
    """A value with every number that is not finite replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _cut_torn_line(path: Path) -> None:
    """Truncate a file after its last complete line."""
    handle = os.open(path, os.O_RDWR)
    try:
        if (end := _end_of_last_line(handle)) < os.fstat(handle).st_size:
            os.ftruncate(handle, end)
    finally:
        os.close(handle)


def _end_of_last_line(handle: int) -> int:
    """The size of a file without its torn last line."""
    end, block = os.fstat(handle).st_size, 1 << 16
    while end:
        start = max(0, end - block)
        newline = os.pread(handle, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
