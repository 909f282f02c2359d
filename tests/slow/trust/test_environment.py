"""Signals at many moments of short commands, limits of many sizes, and a repeatedly deleted cache."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.processes import ROOT, embtrain, nothing_is_left_running, write_text  # noqa: F401  the fixture

pytestmark = pytest.mark.slow
SMALL = ("--negatives", "sgns", "--corpus", "text", "--threads", "1", "--set", "text.min_count=1", "--set",
         "model.dim=8", "--set", "evaluate.benchmarks=[]", "--set", "train.epochs=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("environment"))


@pytest.mark.parametrize("command", [("data", "list"), ("list",), ("doctor",), ("fit", *SMALL, "--dry-run")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_a_short_command_without_a_traceback(place: Path, command: tuple[str, ...],
                                                                         number: int) -> None:
    begun = time.monotonic()
    embtrain(place, *command).communicate()
    whole, codes = time.monotonic() - begun, set()
    for share in range(2, 27):                               # before .1 s Python itself may be starting
        with embtrain(place, *command) as process:
            time.sleep(max(0.1, share / 25 * whole))
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        # Killed by the signal: Python had already removed its handlers.
        assert process.returncode in (0, 128 + number, -number), (share, err)
        assert "Traceback" not in err and "ignored" not in err, (share, err)
        assert not err.strip() or process.returncode == 0 or err.endswith(f"stopped by signal {int(number)}\n"), err
        codes.add(process.returncode)
    assert 128 + number in codes


@pytest.mark.parametrize("megabytes", [100, 600, 1080, 1150, 1190, 1250, 1600, 2200])
@pytest.mark.parametrize("command", [("list",), ("fit", *SMALL)])
def test_a_limit_of_address_space_gives_one_line(place: Path, megabytes: int, command: tuple[str, ...]) -> None:
    out = ["--out", str(place / f"as-{megabytes}")] if command[0] == "fit" else []
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "EMBTRAIN_CACHE": str(place / "cache")}
    limit = megabytes << 20
    done = subprocess.run([sys.executable, "-m", "embtrain", *command, *out, *(["--quiet"] if out else [])],
                          cwd=place, env=env, text=True, capture_output=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode in (0, 4) and "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("embtrain: error: "), done.stderr


def test_a_repeatedly_deleted_cache_is_rebuilt_or_gives_one_line(place: Path) -> None:
    where, runs = str(place / "lost"), 12
    processes = [embtrain(place, "fit", *SMALL, "--out", f"lost-{n}", "--quiet", EMBTRAIN_CACHE=where)
                 for n in range(2)]
    ends = []
    for n in range(2, runs + 2):
        while all(process.poll() is None for process in processes):
            shutil.rmtree(where, ignore_errors=True)
            time.sleep(0.1 * n)
        process = next(process for process in processes if process.poll() is not None)
        processes.remove(process)
        ends.append((process.returncode, process.communicate()[1]))
        processes.append(embtrain(place, "fit", *SMALL, "--out", f"lost-{n}", "--quiet", EMBTRAIN_CACHE=where))
    for code, err in ends:
        assert code == 0 or (code == 4 and err.splitlines()[-1].startswith("embtrain: error: ")), err
        assert "Traceback" not in err
    assert any(code == 0 for code, _ in ends)
