"""A group of processes that train one run: exchanges between them, and work that process 0 does alone.

Exchanges of bytes use PyTorch's process group with gloo, which ends with an error after seconds without an answer.
Work that may take minutes, like reading a corpus, has no limit: the other processes poll the key-value store of the
launcher for its outcome. An exchange or a poll ends with GroupFailed if another process has failed or is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from embtrain.common.errors import DataError, EmbtrainError, ResourceError, Stopped, UsageError
from embtrain.train.state.signals import Stop, to_resume

T = TypeVar("T")
POLL_SECONDS = 0.05
LEAVE_SECONDS = 5.0   # at the end, a process waits this long for the others
SIGNAL_SECONDS = 5.0  # after a signal, a process waits this long for process 0
ERRORS = {error.code: error for error in (UsageError, DataError, ResourceError)}


class GroupFailed(ResourceError):
    """Another process of the group is gone, without an error of its own that it could report."""


class ProcessGroup:
    """One process. This base class is a group of a single process, in which every exchange is trivial."""

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send bytes parts[r] (n_r,) uint8 to each process r; returns the bytes received from each."""
        return list(parts)

    def gather(self, part: np.ndarray) -> list[np.ndarray]:
        """Send bytes (n,) uint8 to all; returns those of each process."""
        return [part]

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace float32 tensors by their means over the processes, summed in the order of the processes."""
        flat = np.concatenate([tensor.detach().reshape(-1).numpy() for tensor in tensors])
        parts = self.gather(np.ascontiguousarray(flat).view(np.uint8))
        mean = torch.from_numpy(np.mean([part.view(np.float32) for part in parts], 0, dtype=np.float64))
        with torch.no_grad():
            for tensor, values in zip(tensors, mean.float().split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(values.view_as(tensor))

    def from_first(self, work: Callable[[], T], stop: Stop | None = None) -> T:
        """Do `work` in process 0 alone; all return its result, which JSON can represent, or raise its error."""
        return work()

    def meet(self) -> None:
        """Wait, without a limit, until all processes are here."""

    def check(self) -> None:
        """Raise an error if another process has failed."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def gather_numbers(self, values: Sequence[float]) -> np.ndarray:
        """Numbers (n,) of each process: (size, n) float64."""
        return np.stack([part.view(np.float64) for part in self.gather(np.array(values, np.float64).view(np.uint8))])

    def require_equal(self, name: str, values: Mapping[str, Any]) -> None:
        """Raise UsageError in all processes if `values` differ between them; `name` says what they are."""
        own = json.dumps(values, sort_keys=True, default=str).encode()
        others = self.gather(np.frombuffer(own, np.uint8))
        first = json.loads(others[0].tobytes())
        for rank, part in enumerate(others):
            theirs = json.loads(part.tobytes())
            for key in sorted(first.keys() | theirs.keys()):
                if first.get(key) != theirs.get(key):
                    raise UsageError(f"{name}: {key} is {first.get(key)!r} in process 0 and {theirs.get(key)!r} in "
                                     f"process {rank}; start all processes with the same command and files")


SOLO = ProcessGroup()


def _first_sentence(error: RuntimeError) -> str:
    """The first sentence of an error of gloo, without the place in its source that it begins with."""
    return re.sub(r"^\[[^\]]*\] *", "", " ".join(str(error).split())).split(". ")[0][:120].rstrip(".")


class GlooGroup(ProcessGroup):
    """A group of several processes. `store`: the launcher's store, with a prefix of this group alone."""

    def __init__(self, rank: int, size: int, store: dist.Store, is_launched: Callable[[], bool]):
        super().__init__(rank, size)
        self._store, self._is_launched = store, is_launched
        self._n_works, self._is_reported = 0, False

    # -- exchanges ----------------------------------------------------------------------------------------------

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        sizes = torch.tensor([len(part) for part in parts])
        incoming = torch.empty_like(sizes)
        with self._exchanging():
            dist.all_to_all_single(incoming, sizes)
            received = torch.empty(int(incoming.sum()), dtype=torch.uint8)
            dist.all_to_all_single(received, torch.from_numpy(np.concatenate(parts)), incoming.tolist(),
                                   sizes.tolist())
        return [part.numpy() for part in received.split(incoming.tolist())]

    def gather(self, part: np.ndarray) -> list[np.ndarray]:
        return self.exchange([part] * self.size)

    @contextlib.contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Turn an error of the process group into that of the process that caused it."""
        self.check()
        try:
            yield
        except RuntimeError as error:  # torch raises it for a closed connection and after the time limit
            time.sleep(POLL_SECONDS)   # an error of another process reaches the store before its connection ends
            self.check()
            raise GroupFailed(f"process {self.rank} of {self.size}: another process is gone or did not take part in "
                              f"time ({_first_sentence(error)}); it stops, and torchrun can be started again"
                              f"{to_resume()}") from error

    # -- work of process 0 --------------------------------------------------------------------------------------

    def from_first(self, work: Callable[[], T], stop: Stop | None = None) -> T:
        self._n_works += 1
        key = f"work/{self._n_works}"
        if self.rank:
            outcome = json.loads(self._wait(key, stop))
            if "signal" in outcome:
                raise Stopped(outcome["signal"])
            return outcome["result"]
        try:
            result = work()
        except Stopped as stopped:
            self._store.set(key, json.dumps({"signal": stopped.signal}))
            raise
        self._store.set(key, json.dumps({"result": result}))
        return result

    def _wait(self, key: str, stop: Stop | None) -> bytes:
        """The value that process 0 sets. GroupFailed if it cannot come any more."""
        since = None
        with self._using_store():
            while not self._store.check([key]):
                self.check()
                if stop is not None and stop.requested is not None:
                    since = since or time.monotonic()
                    if time.monotonic() - since > SIGNAL_SECONDS:  # process 0 has ended without an outcome
                        raise Stopped(stop.requested)
                time.sleep(POLL_SECONDS)
            return self._store.get(key)

    def meet(self) -> None:
        self._n_works += 1
        key = f"meet/{self._n_works}"
        with self._using_store():
            self._store.add(key, 1)
            while self._store.add(key, 0) < self.size:
                self.check()
                time.sleep(POLL_SECONDS)

    # -- failures -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        if not self._is_launched():
            raise GroupFailed("the launcher of this process has ended; it stops, and torchrun can be started again"
                              f"{to_resume()}")
        with self._using_store():
            if not self._store.check(["failed"]):
                return
            failure = json.loads(self._store.get("failed"))
        if failure["rank"] != self.rank:
            lines = failure["lines"]
            if failure["rank"]:
                lines = [f"process {failure['rank']} on {failure['host']}: {line}" for line in lines]
            raise ERRORS.get(failure["code"], ResourceError)(*lines)

    def report(self, code: int, lines: Sequence[str]) -> None:
        """Make an error of this process, an exit code and its lines, known to the others."""
        with contextlib.suppress(GroupFailed), self._using_store():
            if not self._store.check(["failed"]):
                self._store.set("failed", json.dumps({"rank": self.rank, "host": os.uname().nodename, "code": code,
                                                      "lines": list(lines)}))

    def leave(self) -> None:
        """Close the connections, so that exchanges of the others end, and wait until process 0 has ended its work.

        Process 0, which may hold the store, waits in turn until the others no longer need it.
        """
        if dist.is_initialized():
            dist.destroy_process_group()
        deadline = time.monotonic() + LEAVE_SECONDS
        with contextlib.suppress(GroupFailed), self._using_store():
            if self.rank == 0:
                self._store.set("ended", "1")
            while not self._store.check(["ended"]) and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
            self._is_reported = self._store.check(["ended"])
            self._store.add("left", 1)
            while self.rank == 0 and self._store.add("left", 0) < self.size and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)

    def is_reported(self) -> bool:
        """Whether process 0 has ended, so that it prints the error of the group. Known once this process left."""
        return self._is_reported

    @contextlib.contextmanager
    def _using_store(self) -> Iterator[None]:
        try:
            yield
        except EmbtrainError:
            raise
        except RuntimeError as error:  # torch's errors of a store derive from it
            raise GroupFailed(f"process {self.rank} of {self.size}: the store of the launcher is gone; it stops, and "
                              f"torchrun can be started again{to_resume()}") from error
