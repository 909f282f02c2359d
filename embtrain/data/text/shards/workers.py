"""Worker processes that encode the shards of a text, several at a time.

Each worker encodes one shard after the other, on one thread, and reports each over a pipe. It ends with its parent,
even if that is killed. Finished shards are in the cache: they are verified and not encoded again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import cast

from embtrain.common import progress
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.common.progress import Progress
from embtrain.data.text.scan import NeedsPythonReader
from embtrain.data.text.shards.plan import Shard
from embtrain.data.text.shards.store import ShardStore

_ERRORS = {kind.code: kind for kind in (UsageError, DataError, ResourceError)}
_DONE, _NEEDS_PYTHON = 0, 1       # codes of a report that are not errors
_JOIN_SECONDS = 5.0


class NeedsWholeFile(Exception):
    """A range of a file cannot be read by itself."""

    def __init__(self, shard: Shard):
        super().__init__(shard.path)
        self.path = shard.path


def encode_all(store: ShardStore, shards: Sequence[Shard], n_workers: int) -> None:
    """Encode all shards into the cache.

    Raises the error of the first shard that fails, NeedsWholeFile, and ResourceError if a worker is killed.
    """
    n_workers = min(n_workers, len(shards))
    with Progress("reading text", sum(shard.size for shard in shards), "bytes") as printer:
        if n_workers <= 1:
            for shard in shards:
                _raise(shard, *_encode(store, shard, None))
                printer.add(shard.size)
        else:
            with _started(store, shards, n_workers) as workers:
                _distribute(store.rules.options.section, shards, workers, printer)


def _distribute(section: str, shards: Sequence[Shard], workers: dict[Connection, SpawnProcess], printer: Progress
                ) -> None:
    waiting, failed = iter(range(len(shards))), dict[int, tuple[int, str]]()
    running: dict[Connection, int] = {}

    def start(worker: Connection) -> None:
        index = None if failed else next(waiting, None)
        if index is not None:
            with contextlib.suppress(OSError):               # its end is noticed when its report is read
                worker.send_bytes(str(index).encode())
            running[worker] = index

    for worker in workers:
        start(worker)
    while running:
        for worker in cast(list[Connection], connection.wait(list(running))):
            index = running.pop(worker)
            try:
                code, _, message = worker.recv_bytes().decode().partition("\n")
            except (EOFError, OSError):
                workers[worker].join()
                raise _death(workers[worker].exitcode, section) from None
            if int(code) != _DONE:
                failed[index] = int(code), message
            else:
                printer.add(shards[index].size)
            start(worker)
    if failed:
        _raise(shards[min(failed)], *failed[min(failed)])


def _raise(shard: Shard, code: int, message: str) -> None:
    if code == _NEEDS_PYTHON:
        raise NeedsWholeFile(shard)
    if code != _DONE:
        raise _ERRORS[code](*message.split("\n"))


def _death(exitcode: int | None, section: str) -> Exception:
    if exitcode is not None and exitcode < 0:
        return ResourceError(f"{section}.workers: a worker process was ended by signal {-exitcode}, perhaps because "
                             f"memory is short; lower {section}.workers, or free memory. Finished shards are kept")
    return RuntimeError(f"a worker process ended with code {exitcode}; its traceback is above")


@contextlib.contextmanager
def _started(store: ShardStore, shards: Sequence[Shard], n_workers: int) -> Iterator[dict[Connection, SpawnProcess]]:
    """Start the workers; they are ended when the block ends."""
    context = multiprocessing.get_context("spawn")           # a fork would inherit threads and locks
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(n_workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, store, shards), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
        yield workers
    finally:
        for worker in workers.values():
            worker.terminate()
        for pipe, worker in workers.items():
            worker.join(_JOIN_SECONDS)
            if worker.is_alive():
                worker.kill()
                worker.join()
            pipe.close()


def _work(pipe: Connection, store: ShardStore, shards: Sequence[Shard]) -> None:
    """Encode the shards whose numbers arrive."""
    for number in (signal.SIGINT, signal.SIGHUP):            # they reach the parent, which ends the workers
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    progress.quiet = True
    while True:
        try:
            shard = shards[int(pipe.recv_bytes())]
        except EOFError:
            return
        code, message = _encode(store, shard, 1)
        pipe.send_bytes(f"{code}\n{message}".encode())


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _encode(store: ShardStore, shard: Shard, threads: int | None) -> tuple[int, str]:
    """Encode a shard and return a code and a message."""
    try:
        store.load_or_encode(shard, threads)
    except NeedsPythonReader:
        return _NEEDS_PYTHON, ""
    except MemoryError:
        return ResourceError.code, (f"{shard.path}: no memory to read it; lower {store.rules.options.section}.workers, "
                                    "or free memory")
    except EmbtrainError as error:
        return error.code, f"{error}"
    return _DONE, ""
