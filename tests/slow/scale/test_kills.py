"""Three processes that join one comparison are killed 50 times, and one is suspended: every run has the local bits."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from helpers.comparisons import without_times
from helpers.processes import embtrain, nothing_is_left_running, write_text  # noqa: F401
from helpers.shared_folders import assert_same_runs, children, kill, records

from embtrain.train.state import lease as leases

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(sys.platform != "linux",
                                 reason="linux: finds children, which get a signal when their parent dies")]

NAMES = ["sgns-seed1", "nce-seed1", "sampled-softmax-seed1"]
KILLS, TAKE_OVER = 50, 30.0  # number, and seconds
LIMIT = 3000.0               # seconds for one comparison on a busy machine
KEYS = ["text.min_count=1", "text.valid=0.1", "text.test=0.1", "model.dim=16", "train.epochs=150", "train.chunk=256",
        "train.batch=128", "train.checkpoint_every=0.2", "train.log_every=20", "train.evaluate_every=400",
        "evaluate.benchmarks=[]", "evaluate.heldout_pairs=2000", "evaluate.neighbours=[bal]", "evaluate.resamples=100"]


def start(place: Path, out: str, *words: str) -> subprocess.Popen[str]:
    keys = [part for key in KEYS for part in ("--set", key)]
    return embtrain(place, "compare", "--negatives", "sgns,nce,sampled-softmax", "--corpus", "text", "--seeds", "1",
                    "--parallel", "1", "--threads", "1", "--quiet", "--out", out, *words, *keys)


def join(place: Path, out: str) -> subprocess.Popen[str]:
    return start(place, out, "--join", "--lease-seconds", "10")


def finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and "comparison: " in out and "Traceback" not in err, (out, err)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_text(tmp_path_factory.mktemp("scale"))
    finish(start(place, "local"))
    return place


def numbers(folder: Path) -> dict[str, int]:
    try:
        return leases.newest(folder / "join" / "leases")
    except FileNotFoundError:
        return {}


def trains(folder: Path, name: str) -> bool:
    """Whether the last holder of a run has written a checkpoint and not its scores."""
    run = folder / "join" / "runs" / f"{name}.{numbers(folder).get(name, 0)}" / name
    return any(run.glob("checkpoints/*.json")) and not (run / "scores.json").exists()


def assert_each_run_ended_once(folder: Path) -> None:
    states = {name: Counter(record["state"] for record in of_name) for name, of_name in records(folder).items()}
    assert set(states) == {*NAMES, "results"}
    assert all(of_name["done"] == 1 and of_name["failed"] == 0 for of_name in states.values()), states


def test_every_run_ends_once_and_with_the_same_bits_after_50_kills(place: Path) -> None:
    moments, kills, rounds = random.Random(50), Counter[str](), 0
    while kills.total() < KILLS:
        rounds += 1
        folder = place / f"killed-{rounds}"
        joiners = [join(place, folder.name) for _ in range(3)]
        ends = time.monotonic() + LIMIT
        while not (folder / "results.json").exists() and time.monotonic() < ends:
            time.sleep(moments.uniform(0.5, 6.0))
            if kills.total() >= KILLS or not any(trains(folder, name) for name in NAMES):
                continue
            victim, kind = moments.randrange(3), moments.choice(["joiner", "cell", "both"])
            if joiners[victim].poll() is not None or (kind != "joiner" and not children(joiners[victim])):
                continue
            kill(joiners[victim], kind != "cell", kind != "joiner")
            kills[kind] += 1
            if kind != "cell":
                joiners[victim].communicate(timeout=60)
                joiners[victim] = join(place, folder.name)
        for process in joiners:
            finish(process)
        assert_same_runs(folder, place / "local", NAMES)
        assert without_times(folder) == without_times(place / "local")
        assert_each_run_ended_once(folder)
    print(f"{dict(kills)} in {rounds} comparisons")
    assert min(kills[kind] for kind in ("joiner", "cell", "both")) >= 5


def everything(folder: Path) -> dict[str, str]:
    """Hashes of the finished runs and results."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*"))
            if path.is_file() and "join" not in path.parts}


def test_a_suspended_machine_loses_its_run_within_30_seconds_and_harms_nothing(place: Path) -> None:
    """SIGSTOP for a process and its run, as in a partition; both continue when the others have finished."""
    folder = place / "suspended"
    joiners = [join(place, folder.name) for _ in range(4)]   # one of them finds no free run, and waits
    deadline, working = time.monotonic() + LIMIT, list[str]()
    while not working and time.monotonic() < deadline:
        time.sleep(0.01)
        working = [name for name in NAMES if trains(folder, name)] if set(NAMES) <= numbers(folder).keys() else []
    name = working[0]
    number, pid = numbers(folder)[name], records(folder)[name][-1]["pid"]
    (victim,) = [process for process in joiners if process.pid == pid]
    (run,) = children(victim)
    for process in (victim.pid, run):
        os.kill(process, signal.SIGSTOP)
    begun = time.monotonic()
    while numbers(folder)[name] == number and time.monotonic() < begun + LIMIT:
        time.sleep(0.05)
    print(f"{name} taken over after {time.monotonic() - begun:.1f} s")
    assert time.monotonic() - begun < TAKE_OVER
    for process_of_other in joiners:
        if process_of_other is not victim:
            finish(process_of_other)
    assert_same_runs(folder, place / "local", NAMES)
    before = everything(folder)
    for process in (run, victim.pid):
        os.kill(process, signal.SIGCONT)
    finish(victim)
    assert everything(folder) == before and not list((folder / "join" / "runs").iterdir())
    assert_each_run_ended_once(folder)
