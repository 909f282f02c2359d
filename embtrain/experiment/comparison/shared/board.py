"""The leases of a comparison: their holders, which of them show no sign of life, and the heartbeat of our own.

A holder touches its file every few seconds. It counts as dead if this process has seen the file unchanged for
`stale_after` seconds of its own monotonic clock. No two clocks are compared, neither of machines nor of the file
system, so a wrong clock has no effect. The time between two looks counts `stale_after / 4` at most: after this process
or the file system was suspended, the others get time to show a sign of life.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from embtrain.common.errors import ResourceError
from embtrain.common.files import read_json
from embtrain.train.state import lease as leases
from embtrain.train.state.lease import RUNNING, Lease

RELEASED = "released"  # given up by its holder; any machine may take it
KILLED = "killed"      # the run was killed; any machine may take it
SKIPPED = "skipped"    # not started, because the CPU seconds were used up
FAILED = "failed"      # ended with an error
DONE = "done"
MAX_BEAT = 2.0         # seconds between two signs of life, or less


@dataclass
class Holder:
    """The newest holder of a lease."""

    number: int
    record: dict[str, Any] = field(default_factory=dict)
    stamp: tuple[int, int] = (0, 0)  # times of the file at its last change
    quiet: float = 0.0               # seconds for which it was seen unchanged
    seen_at: float = 0.0
    is_stale: bool = False

    @property
    def state(self) -> str:
        """One of the above; running if its file has no state or a damaged one."""
        state = self.record.get("state")
        return state if state in (RELEASED, KILLED, SKIPPED, FAILED, DONE) else RUNNING

    def number_of(self, key: str, default: int) -> int:
        """A number of the record; the default if its holder has not written it."""
        value = self.record.get(key)
        return value if isinstance(value, int) else default

    @property
    def is_dead(self) -> bool:
        """Whether it ended, or seems to have ended, without an order to."""
        return self.state == KILLED or (self.state == RUNNING and self.is_stale)

    @property
    def is_free(self) -> bool:
        return self.is_dead or self.state == RELEASED


class Board:
    """The leases in `folder`. Inside its context, a thread renews those that this process holds."""

    def __init__(self, folder: Path, stale_after: float, clock: Callable[[], float] = time.monotonic):
        self.folder, self.stale_after, self.clock = folder, stale_after, clock
        self.holders: dict[str, Holder] = {}
        self.held: dict[str, Lease] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="leases", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for lease in list(self.held.values()):
            self.end(lease, RELEASED)

    def _beat(self) -> None:
        while not self._ended.wait(min(MAX_BEAT, self.stale_after / 5)):
            for lease in list(self.held.values()):
                with contextlib.suppress(OSError):  # lost, or the network is down: `look` finds out
                    lease.renew()

    def look(self) -> dict[str, Holder]:
        """Read the newest holder of each lease."""
        with self._reading():
            numbers = leases.newest(self.folder)
            for name, number in numbers.items():
                holder = self.holders.get(name)
                if holder is None or holder.number != number:
                    holder = self.holders[name] = Holder(number)
                if holder.state == RUNNING:  # every other state is final
                    self._observe(holder, self.folder / f"{name}.{number}")
        self.holders = {name: self.holders[name] for name in numbers}
        return self.holders

    def _observe(self, holder: Holder, path: Path) -> None:
        """Update a running holder. Opening the file makes NFS check its cached times."""
        now = self.clock()
        with open(path, "rb") as file:
            times = os.fstat(file.fileno())
        stamp = (times.st_mtime_ns, times.st_ctime_ns)
        if stamp != holder.stamp:
            with contextlib.suppress(ValueError):  # its holder is writing it
                record = read_json(path)
                holder.record = record if isinstance(record, dict) else {}
            holder.stamp, holder.quiet = stamp, 0.0
        else:
            holder.quiet += min(now - holder.seen_at, self.stale_after / 4)
        holder.seen_at, holder.is_stale = now, holder.quiet >= self.stale_after

    def take(self, name: str, **details: Any) -> Lease | None:
        """Take a lease after its last holder that `look` found; None if another process was faster."""
        previous = self.holders.get(name)
        with self._reading():
            lease = leases.take(self.folder, name, previous.number + 1 if previous else 1, **details)
        if lease is not None:
            self.held[name] = lease
        return lease

    def holds(self, lease: Lease) -> bool:
        """Whether no other process has taken the lease."""
        with self._reading():
            return lease.is_held()

    def end(self, lease: Lease, state: str, **details: Any) -> None:
        """Write the final state of a lease that this process holds or has lost."""
        self.held.pop(lease.name, None)
        lease.end(state, **details)

    def lose(self, lease: Lease) -> None:
        """Stop to renew a lease that another process has taken."""
        self.held.pop(lease.name, None)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"{self.folder}: the leases cannot be read or written: {error.strerror or error}"
                                ) from error
