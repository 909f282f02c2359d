"""`embtrain fit` killed at any moment loses no checkpoint, and its resumed run equals an uninterrupted one bitwise.

Kills: right after the run folder is created, at random moments of training, while a checkpoint is written, and in the
last evaluation. A moment is an event of the run plus a short delay, so that a busy machine kills at the same points.
Stop signals: while the text is read, in training and in the last evaluation.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import WORDS, embtrain, nothing_is_left_running, write_text  # noqa: F401

from embtrain.common.errors import DataError
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read

pytestmark = pytest.mark.slow

LIMIT = 5.0  # seconds between a signal and the end on an idle machine
STRATEGIES: dict[str, list[str]] = {
    "sgns": [], "ace": ["negatives.min_perplexity=50", "negatives.hidden=8"],
    "nce-learned-z": ["train.optimizer=adagrad"],
}
KEYS = ["text.min_count=1", "text.valid=0.1", "text.test=0.1", "model.dim=16", "train.epochs=3", "train.chunk=512",
        "train.checkpoint_every=0.05", "train.log_every=1", "evaluate.benchmarks=[gold.tsv]",
        "evaluate.heldout_pairs=2000", "evaluate.neighbours=[bal]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text and a benchmark, whose bootstrap of a million resamples takes seconds."""
    place = write_text(tmp_path_factory.mktemp("kills"))
    (place / "gold.tsv").write_text("".join(f"{WORDS[i]}\t{WORDS[2 * i]}\t{i % 10}\n" for i in range(1, 200)))
    return place


def fit(place: Path, out: str, strategy: str, *sets: str, corpus: str = "text", **env: str) -> subprocess.Popen[str]:
    keys = [part for key in (*KEYS, *STRATEGIES[strategy], *sets) for part in ("--set", key)]
    return embtrain(place, "fit", "--negatives", strategy, "--corpus", corpus, "--threads", "1", "--out", out, *keys,
                    **env)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end; return stderr."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, (process.returncode, out, err)
    assert "Traceback" not in err and (code == 0) == ("run: " in out)
    return err


def until(true: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Wait for a condition; return False if the process ended before."""
    deadline = time.monotonic() + 60
    while not true():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "the condition was not met within a minute"
        time.sleep(0.0005)
    return True


@pytest.fixture(scope="module")
def whole(place: Path) -> None:
    """Uninterrupted runs, in folders named after their strategy."""
    for strategy in STRATEGIES:
        finish(fit(place, strategy, strategy))


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def steps(folder: Path) -> list[int]:
    """Return the steps of all manifests, complete or not."""
    return sorted(int(path.stem[5:]) for path in (folder / "checkpoints").glob("step-*.json"))


def is_saving(folder: Path) -> bool:
    return any((folder / "checkpoints").glob(".step-*.part"))


def logged(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "cpu_seconds")}
            for line in read(folder / "metrics.jsonl")]


def assert_same_bits(first: Path, second: Path) -> None:
    for name in ("vectors.safetensors", "vocabulary.txt", "neighbours.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert logged(first) == logged(second)
    scores = [[row for row in json.loads((folder / "scores.json").read_text()) if row["benchmark"] != "training"]
              for folder in (first, second)]
    assert scores[0] == scores[1] and (first / "report.html").is_file()


def whole_checkpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Return the position of the newest checkpoint; no checkpoint may be damaged."""
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        position = checkpoint.load(folder / "checkpoints")["position"]
    assert not caplog.records
    return position


@pytest.mark.usefixtures("whole")
def test_twenty_kills_lose_no_checkpoint(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    moments, saving, begun, kill = random.Random(20), 0, list[int](), 0
    while kill < 20:
        strategy = list(STRATEGIES)[kill % len(STRATEGIES)]
        folder = place / f"killed-{kill}"
        shutil.rmtree(folder, ignore_errors=True)
        lines = moments.uniform(0, 1) * size(place / strategy / "metrics.jsonl")
        process = fit(place, folder.name, strategy)
        if kill < 2:
            until((folder / "config.yaml").exists, process)
        elif kill < 4:
            until((folder / "vectors.safetensors").exists, process)
        else:
            until(lambda folder=folder, lines=lines: size(folder / "metrics.jsonl") >= lines, process)
        if kill % 3 == 2:
            until(lambda folder=folder: is_saving(folder) or (folder / "vectors.safetensors").exists(), process)
        else:
            time.sleep(moments.uniform(0, 0.03))
        seen = steps(folder)
        process.kill()
        out, err = process.communicate(timeout=60)
        if process.returncode == 0:  # too late: repeat
            assert_same_bits(folder, place / strategy)
            continue
        assert process.returncode == -signal.SIGKILL, (out, err)
        kill += 1
        saving += is_saving(folder)
        kept = b""
        if steps(folder):
            position = whole_checkpoint(folder, caplog)
            assert position["step"] >= max(seen, default=0)
            kept = (folder / "metrics.jsonl").read_bytes()[:position["log_offset"]]
            begun.append(position["step"])
        else:
            assert not seen
            with pytest.raises(DataError, match="no complete checkpoint"):
                checkpoint.latest(folder / "checkpoints")
        finish(embtrain(place, "resume", folder.name))
        assert (folder / "metrics.jsonl").read_bytes().startswith(kept)  # the seconds too: it did not restart
        assert_same_bits(folder, place / strategy)
        assert not is_saving(folder)
    # Kills at many different points, some in the middle of a file.
    assert saving >= 2 and len(set(begun)) >= 8 and len(begun) >= 15


@pytest.mark.usefixtures("whole")
def test_a_resume_may_be_killed_too(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, moments = place / "again", random.Random(3)
    process = fit(place, folder.name, "ace")
    for _ in range(3):
        before = max(steps(folder), default=0)
        assert until(lambda before=before: max(steps(folder), default=0) > before, process)
        time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.communicate(timeout=60)
        assert whole_checkpoint(folder, caplog)["step"] > before
        process = embtrain(place, "resume", folder.name)
    finish(process)
    assert_same_bits(folder, place / "ace")


# -- stop signals -----------------------------------------------------------------------------------------------


def send(process: subprocess.Popen[str], number: int) -> str:
    """Send the signal; the process must end in time with a short message."""
    process.send_signal(number)
    begun = time.monotonic()
    err = finish(process, 128 + number)
    assert time.monotonic() - begun < LIMIT * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    last = err.strip().rpartition("\n")[2]
    # Outside training Python itself handles SIGINT, and an interrupted command prints nothing.
    said = last.partition(";")[0]  # the command to resume may follow
    assert said == f"embtrain: stopped by signal {int(number)}" or (number == signal.SIGINT and not last)
    return err


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_training_saves_the_run(place: Path, number: int, caplog: pytest.LogCaptureFixture) -> None:
    folder = place / f"signal-{int(number)}"
    process = fit(place, folder.name, "ace", "train.checkpoint_every=1e9")
    assert until(lambda: size(folder / "metrics.jsonl") > 0, process)
    assert "stopping after a checkpoint" in send(process, number)
    position = whole_checkpoint(folder, caplog)
    assert position["step"] > 0 and position["log_offset"] == size(folder / "metrics.jsonl")
    finish(embtrain(place, "resume", folder.name))
    assert_same_bits(folder, place / "ace")


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_last_evaluation(place: Path, number: int) -> None:
    folder = place / f"judged-{int(number)}"
    process = fit(place, folder.name, "sgns", "evaluate.resamples=1000000")
    assert until((folder / "vectors.safetensors").exists, process)
    send(process, number)
    assert not (folder / "scores.json").exists()
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("resamples: 1000000", "resamples: 1000"))
    finish(embtrain(place, "resume", folder.name))
    assert_same_bits(folder, place / "sgns")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_text_is_read(place: Path, number: int) -> None:
    """The text takes seconds to read, even with the compiled reader on an idle machine; no partly read data is left."""
    large = place / "large.txt"
    if not large.exists():
        with large.open("w") as file:
            for _ in range(300):
                file.write((place / "text" / "00.txt").read_text() * 100)
    cache = place / f"cache-{int(number)}"
    process = fit(place, f"read-{int(number)}", "sgns", corpus="large.txt", EMBTRAIN_CACHE=str(cache))
    assert until(lambda: any((cache / "text").rglob("*")), process)
    time.sleep(0.1)  # in the middle of reading
    send(process, number)
    assert not (place / f"read-{int(number)}").exists()
    assert {path.parent.name for path in cache.rglob("*") if path.is_file()} <= {"files"}    # hashes of whole files
