"""Leases: the one process that works on a run in a folder that several machines share.

    FOLDER/NAME.1, NAME.2, ...   one file for each holder of the lease NAME, in their order

The holder of the highest number has the lease. A number is taken by creating its file with O_EXCL, which succeeds for
one process on one machine. A holder never deletes or replaces the file of another one, so no two have the same number,
and a holder that was suspended finds the higher number when it continues.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embtrain.common.errors import ResourceError
from embtrain.common.files import write_json

VARIABLE = "EMBTRAIN_LEASE"  # environment of a run: the path of its lease
RUNNING = "running"
_FILE = re.compile(r"(.+)\.([1-9][0-9]*)")


class LeaseLost(ResourceError):
    """Another machine has taken over the run."""


@dataclass(frozen=True)
class Lease:
    """One number of a lease. `record`: contents of its file when it was taken."""

    path: Path
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.name.rpartition(".")[0]

    @property
    def number(self) -> int:
        return int(self.path.name.rpartition(".")[2])

    def renew(self) -> None:
        """Touch the file, with the time of the file system, as a sign of life. Raises OSError."""
        os.utime(self.path)

    def is_held(self) -> bool:
        """Whether no other process has taken a higher number. Raises OSError if the folder cannot be read."""
        try:
            return newest(self.path.parent).get(self.name) == self.number
        except FileNotFoundError:
            return False

    def end(self, state: str, **details: Any) -> None:
        """Write the final state. The file belongs to this holder alone, so a late write harms no other."""
        write_json(self.path, {**self.record, "state": state, **details})


def newest(folder: Path) -> dict[str, int]:
    """The highest number of each lease. Opening the folder makes NFS check its cached entries."""
    numbers: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := _FILE.fullmatch(entry.name):
                numbers[match[1]] = max(numbers.get(match[1], 0), int(match[2]))
    return numbers


def take(folder: Path, name: str, number: int, **details: Any) -> Lease | None:
    """Take a number of a lease; None if another process has it. Raises OSError."""
    record = {"host": platform.node(), "pid": os.getpid(), "state": RUNNING, **details}
    path = folder / f"{name}.{number}"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    with os.fdopen(handle, "w", encoding="utf-8") as file:  # a reader of the empty file finds a running holder
        json.dump(record, file)
        file.flush()
        os.fsync(handle)
    return Lease(path, record)


def check_held() -> None:
    """Raise LeaseLost if this process trains under a lease that another machine has taken. ResourceError if unknown."""
    if not (path := os.environ.get(VARIABLE)):
        return
    lease = Lease(Path(path))
    try:
        if lease.is_held():
            return
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise LeaseLost(f"{path}: another machine has taken over this run; nothing more is written here")
