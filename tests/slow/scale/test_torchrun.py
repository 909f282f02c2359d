"""Kills under torchrun, of workers and of torchrun itself: every run that ends has the bits of the undisturbed one.

The environment sets the numbers of kills: EMBTRAIN_WORKER_KILLS, EMBTRAIN_AGENT_KILLS and EMBTRAIN_NODE_KILLS.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.groups import bits, fork_ranks
from helpers.processes import ROOT, STARTED, nothing_is_left_running, write_text  # noqa: F401
from helpers.shared_folders import children

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(sys.platform != "linux", reason="linux: finds the workers of torchrun in /proc")]

WORKER_KILLS, AGENT_KILLS, NODE_KILLS = (int(os.environ.get(f"EMBTRAIN_{what}_KILLS", n)) for what, n in (
    ("WORKER", "8"), ("AGENT", "3"), ("NODE", "3")))
LIMIT = 1200.0               # seconds for one run on a busy machine
KEYS = ["text.min_count=1", "text.valid=0.1", "text.test=0.1", "text.sample=0", "model.dim=16", "train.epochs=8",
        "train.chunk=128", "train.threads=1", "train.checkpoint_every=0.2", "train.log_every=10",
        "train.sync.blocks=2", "train.sync.frequent_rows=16", "evaluate.benchmarks=[]", "evaluate.heldout_pairs=50",
        "evaluate.neighbours=[]", "evaluate.resamples=0"]
FIT = ("fit", "--corpus", "text", *(word for key in KEYS for word in ("--set", key)), "--out")


def torchrun(place: Path, options: tuple[str, ...], *words: str) -> subprocess.Popen[str]:
    """Start torchrun with embtrain as its workers; all output goes to place/output."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "EMBTRAIN_CACHE": str(place / "cache"),
           "EMBTRAIN_SYNC_SECONDS": "60"}
    with open(place / "output", "a") as output:
        STARTED.append(subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, "--max-restarts", "100", "-m", "embtrain",
             *words], cwd=place, env=env, text=True, stdout=output, stderr=output))
    return STARTED[-1]


def on_one_machine() -> tuple[str, ...]:
    return "--nproc-per-node", "2", "--standalone"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and `whole`, the run that two processes train undisturbed."""
    place = write_text(tmp_path_factory.mktemp("torchrun"))
    results = [rank.end(LIMIT) for rank in fork_ranks(place, 2, *FIT, "whole", EMBTRAIN_SYNC_SECONDS="600")]
    assert [code for code, _ in results] == [0, 0], results
    return place


def workers(agents: list[subprocess.Popen[str]]) -> set[int]:
    """The running workers of some launchers."""
    found = set()
    for pid in (pid for agent in agents for pid in children(agent)):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {pid} if b"embtrain" in words and b"-m" in words and b"torch.distributed.run" not in words else set()
    return found


def wait_for(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_died(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def log_size(run: Path) -> int:
    try:
        return (run / "metrics.jsonl").stat().st_size
    except OSError:
        return 0


def run_with_kills(start: Callable[[], list[subprocess.Popen[str]]], run: Path, n: int, moments: random.Random) -> int:
    """Kill n workers of one run while it lasts, or n + 1, at random moments. Returns how many were killed.

    At a third of the moments they start, at the others they train.
    """
    agents, killed, seen = start(), 0, set[int]()
    while any(agent.poll() is None for agent in agents):
        own = workers(agents)
        if killed >= n or len(own - seen) < 2:
            time.sleep(0.02)
            continue
        before = log_size(run)
        if is_training := moments.random() < 2 / 3:
            wait_for(lambda own=own, before=before: log_size(run) > before or any(map(has_died, own)))  # type: ignore[misc]
        time.sleep(moments.uniform(0, 0.5 if is_training else 2))
        for pid in moments.sample(sorted(own), moments.choice([1, 1, 2])):
            if not has_died(pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        seen |= own
    assert [agent.returncode for agent in agents] == [0] * len(agents), (run.parent / "output").read_text()[-3000:]
    return killed


def test_runs_whose_workers_are_killed(place: Path) -> None:
    moments, killed, n_runs = random.Random(1), 0, 0
    while killed < WORKER_KILLS:
        n_runs += 1
        run = place / f"workers-{n_runs}"
        killed += run_with_kills(lambda run=run: [torchrun(place, on_one_machine(), *FIT, run.name)], run,  # type: ignore[misc]
                                 WORKER_KILLS - killed, moments)
        assert bits(run) == bits(place / "whole")
    print(f"{killed} workers killed in {n_runs} runs, all with the bits of the undisturbed one")


def test_a_run_whose_torchrun_is_killed(place: Path) -> None:
    """It is continued with `embtrain resume`, or starts again if it was killed before it had a folder."""
    moments, run = random.Random(2), place / "agent"
    for _ in range(AGENT_KILLS):
        words = ("resume", run.name) if (run / "config.yaml").exists() else (*FIT, run.name)
        before, agent = log_size(run), torchrun(place, on_one_machine(), *words)
        wait_for(lambda agent=agent, before=before: log_size(run) > before or agent.poll() is not None)  # type: ignore[misc]
        time.sleep(moments.uniform(0, 0.5))
        own = workers([agent])
        agent.kill()
        wait_for(lambda own=own: all(map(has_died, own)), 120)                                           # type: ignore[misc]
    assert torchrun(place, on_one_machine(), "resume", run.name).wait(LIMIT) == 0
    assert bits(run) == bits(place / "whole")


def test_two_nodes_whose_workers_are_killed(place: Path) -> None:
    """Two torchruns on loopback, with one worker each, that find each other through c10d."""
    def start() -> list[subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "loopback", "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1")
        return [torchrun(place, options, *FIT, run.name) for _ in range(2)]

    moments, killed, n_runs = random.Random(3), 0, 0
    while n_runs == 0 or killed < NODE_KILLS:
        n_runs += 1
        run = place / f"nodes-{n_runs}"
        killed += run_with_kills(start, run, NODE_KILLS - killed, moments)
        assert bits(run) == bits(place / "whole")
    print(f"{killed} workers of two nodes killed in {n_runs} runs, all with the bits of the undisturbed one")
