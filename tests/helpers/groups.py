"""Groups of processes: forks that run the command together."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from pathlib import Path

import numpy as np
import torch

from embtrain import experiment
from embtrain.data.vectors import folders
from embtrain.experiment import grouped
from embtrain.experiment.tasks import base as tasks
from embtrain.train.loop import Trainer
from helpers.forked import Forked


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


# --- runs ----------------------------------------------------------------------------------------------------------

KEYS = ["text.min_count=1", "text.sample=0", "text.valid=0.1", "text.test=0.1", "train.chunk=128", "train.batch=64",
        "train.epochs=3", "train.threads=1", "train.log_every=1", "model.dim=8", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=50", "evaluate.neighbours=[]", "evaluate.resamples=0", "train.sync.blocks=2",
        "train.sync.frequent_rows=8"]


def fit(place: Path, n: int, out: str, *words: str, of_rank: dict[int, tuple[str, ...]] | None = None, **env: str
        ) -> list[Forked]:
    """Train on the folder `text` in n processes."""
    keys = [part for key in KEYS for part in ("--set", key)]
    return fork_ranks(place, n, "fit", "--corpus", "text", "--out", out, *keys, *words, of_rank=of_rank, **env)


def simulated(place: Path, n: int, *sets: str) -> list[tuple[bytes, Trainer]]:
    """Train as `fit` does, by processes that take turns in this one: the vectors and the trainer of each."""
    settings = experiment.resolve(corpus=str(place / "text"), sets=[*KEYS, *sets])
    (folder := place / f"simulated-{n}").mkdir()
    return [(parts.model.vectors().detach().contiguous().numpy().tobytes(), trainer)
            for parts, trainer in grouped.simulate(settings, tasks.read(settings), n, folder)]


def bits(folder: Path) -> str:
    """Hash of the vectors of a run."""
    return hashlib.sha256((folder / "vectors.safetensors").read_bytes()).hexdigest()


def vectors(folder: Path) -> bytes:
    """The vectors of a run."""
    return np.ascontiguousarray(folders.read_run(folder).table).tobytes()


def losses(folder: Path) -> dict[int, float]:
    """Loss by step, from the log of a run; empty before the first line."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def ends(ranks: list[Forked]) -> list[tuple[int, str]]:
    """Exit code and output of each process."""
    return [rank.end() for rank in ranks]


def kill_one_and_resume(place: Path, ranks: list[Forked]) -> None:
    """Kill the second of two processes that train place/cut, and resume. Asserts the bits and losses of place/whole."""
    while len(losses(place / "cut")) < 5:
        time.sleep(0.01)
    ranks[1].send(9)
    assert ends(ranks)[0][0] == 4
    assert 5 <= len(losses(place / "cut")) < len(losses(place / "whole"))
    assert {code for code, _ in ends(fork_ranks(place, 2, "resume", "cut"))} == {0}
    assert bits(place / "cut") == bits(place / "whole") and losses(place / "cut") == losses(place / "whole")


def assert_any_number_finishes(place: Path) -> None:
    """Assert that 1, 2 and 3 processes load the last checkpoint of place/cut and write the bits of place/whole."""
    for n in (1, 2, 3):                 # a finished run is evaluated again, and writes its tables once more
        (place / "cut/vectors.safetensors").unlink()
        before = last_step(place / "cut")
        assert {code for code, _ in ends(fork_ranks(place, n, "resume", "cut"))} == {0}
        assert bits(place / "cut") == bits(place / "whole") and last_step(place / "cut") == before


def last_step(folder: Path) -> int:
    """Step of the last checkpoint of a run."""
    return int(json.loads(max((folder / "checkpoints").glob("*.json")).read_text())["step"])
