"""Groups of processes: forks that run the command together, and threads that exchange bytes in one process."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from embtrain.train.group.processes import ProcessGroup
from helpers.forked import Forked

T = TypeVar("T")


def fork_ranks(place: Path, n: int, *argv: str, of_rank: dict[int, tuple[str, ...]] | None = None, **env: str
               ) -> list[Forked]:
    """Start `embtrain ARGV` in n processes of one group. of_rank: additional arguments of single processes."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0)  # imports most of torch here, not in each process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              **env}
    return [Forked(place, (*argv, *(of_rank or {}).get(rank, ())), f".{rank}", {**common, "RANK": str(rank)})
            for rank in range(n)]


class ThreadGroup(ProcessGroup):
    """One of `size` threads that exchange bytes."""

    def __init__(self, rank: int, size: int, mail: list[list[Any]], barrier: threading.Barrier):
        super().__init__(rank, size)
        self._mail, self._barrier = mail, barrier

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        for other, part in enumerate(parts):
            self._mail[other][self.rank] = part.copy()
        self._barrier.wait(20)
        received = list(self._mail[self.rank])
        self._barrier.wait(20)
        return received

    def gather(self, part: np.ndarray) -> list[np.ndarray]:
        return self.exchange([part] * self.size)


def in_threads(n: int, body: Callable[[ProcessGroup], T]) -> list[T]:
    """The results of `body` in n threads of one group."""
    mail, barrier, results = [[None] * n for _ in range(n)], threading.Barrier(n), [None] * n

    def run(rank: int) -> None:
        try:
            results[rank] = body(ThreadGroup(rank, n, mail, barrier))
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- runs ----------------------------------------------------------------------------------------------------------

KEYS = ["text.min_count=1", "text.sample=0", "text.valid=0.1", "text.test=0.1", "train.chunk=128", "train.batch=64",
        "train.epochs=3", "train.threads=1", "train.log_every=1", "model.dim=8", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=50", "evaluate.neighbours=[]", "evaluate.resamples=0", "train.sync.blocks=2"]


def fit(place: Path, n: int, out: str, *words: str, of_rank: dict[int, tuple[str, ...]] | None = None, **env: str
        ) -> list[Forked]:
    """Train on the folder `text` in n processes."""
    keys = [part for key in KEYS for part in ("--set", key)]
    return fork_ranks(place, n, "fit", "--corpus", "text", "--out", out, *keys, *words, of_rank=of_rank, **env)


def bits(folder: Path) -> str:
    """Hash of the vectors of a run."""
    return hashlib.sha256((folder / "vectors.safetensors").read_bytes()).hexdigest()


def losses(folder: Path) -> dict[int, float]:
    """Loss by step, from the log of a run; empty before the first line."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def ends(ranks: list[Forked]) -> list[tuple[int, str]]:
    """Exit code and output of each process."""
    return [rank.end() for rank in ranks]
