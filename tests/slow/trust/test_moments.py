"""A hundred SIGTERM, a hundred SIGINT and thirty kill -9 at random moments of `embtrain fit`, each resumed afterwards.

A resumed run equals an uninterrupted one bitwise; under Hogwild, which is not deterministic, it is within three
standard deviations over seeds. The command runs in forks, which start at once; test_kills.py starts new processes.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.forked import Forked
from helpers.hostile_files import two_runs
from helpers.in_process import small_text
from helpers.promises import tell

from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read

pytestmark = pytest.mark.slow

SENT = {signal.SIGTERM: 100, signal.SIGINT: 100, signal.SIGKILL: 30}
RESUMES = 200
LIMIT = 5.0  # seconds between a signal and the end on an idle machine
KEYS = ["text.min_count=1", "text.valid=0.1", "text.test=0.1", "model.dim=16", "train.epochs=6", "train.chunk=256",
        "train.batch=128", "train.checkpoint_every=0.02", "train.log_every=1", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=1000", "evaluate.resamples=50", "evaluate.neighbours=[bal]"]
STRATEGIES: dict[str, list[str]] = {
    "sgns": ["train.engine=fused"], "ace": ["negatives.min_perplexity=20", "negatives.hidden=4"],
    "nce-learned-z": ["train.engine=autograd"],
}
HOGWILD = ["train.engine=fused", "train.epochs=4"]
SEEDS, CUTS = 20, 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    two_runs(tmp_path_factory.mktemp("warm"))  # import before forking
    return small_text(tmp_path_factory.mktemp("moments"))


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("embtrain.report.render.html.render", lambda document: "<html></html>\n")


def fit(place: Path, out: str, strategy: str, *more: str, threads: int = 1, seed: int = 0) -> Forked:
    keys = [word for key in (*KEYS, *more) for word in ("--set", key)]
    return Forked(place, ("fit", "--negatives", strategy, "--corpus", "text", "--threads", str(threads), "--seed",
                          str(seed), "--quiet", "--out", out, *keys))


def whole(place: Path, out: str, strategy: str, *more: str, threads: int = 1, seed: int = 0) -> float:
    """Run without interruption; return the seconds."""
    begun = time.monotonic()
    code, said = fit(place, out, strategy, *more, threads=threads, seed=seed).end()
    assert code == 0, said
    return time.monotonic() - begun


def bits(folder: Path) -> dict[str, Any]:
    """Return the results of a run, except values that depend on the clock."""
    names = ("vectors.safetensors", "items.safetensors", "vocabulary.txt", "neighbours.json", "config.yaml")
    lines = [{key: value for key, value in line.items() if key not in ("seconds", "cpu_seconds")}
             for line in read(folder / "metrics.jsonl")]
    scores = [row for row in json.loads((folder / "scores.json").read_text()) if row["benchmark"] != "training"]
    return {**{name: (folder / name).read_bytes() for name in names}, "metrics": lines, "scores": scores}


def checked(folder: Path, caplog: pytest.LogCaptureFixture) -> bool:
    """Return whether there is a checkpoint; no checkpoint may be damaged."""
    if not any((folder / "checkpoints").glob("step-*.json")):
        return False
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        checkpoint.load(folder / "checkpoints")
    assert not caplog.records
    return True


def stopped(place: Path, process: Forked, number: int, moment: float) -> bool:
    """Send the signal at that moment; return False if the command had finished."""
    time.sleep(moment)
    process.send(number)
    begun = time.monotonic()
    code, said = process.end()
    if code == 0:
        return False
    assert code == (-9 if number == signal.SIGKILL else 128 + number), (code, said)
    assert "Traceback" not in said and time.monotonic() - begun < LIMIT * max(1.0, os.getloadavg()[0])
    return True


def test_signals_at_random_moments_lose_nothing(place: Path, caplog: pytest.LogCaptureFixture,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    moments = random.Random(8)
    takes = {strategy: statistics.median([whole(place, f"{strategy}-{i}", strategy, *more) for i in range(3)])
             for strategy, more in STRATEGIES.items()}
    expected = {strategy: bits(place / f"{strategy}-0") for strategy in STRATEGIES}
    sent, resumed, at = dict.fromkeys(SENT, 0), 0, 0
    while (short := [n for n in SENT if sent[n] < SENT[n]]) or resumed < RESUMES:
        number = short[0] if short else signal.SIGKILL
        strategy, at = list(STRATEGIES)[at % len(STRATEGIES)], at + 1
        assert at < 2 * (sum(SENT.values()) + RESUMES), "most runs end before their signal"
        folder = place / "cut"
        shutil.rmtree(folder, ignore_errors=True)
        process = fit(place, folder.name, strategy, *STRATEGIES[strategy])
        if not stopped(place, process, number, moments.uniform(0, takes[strategy])):
            continue
        sent[number] += 1
        resumed += checked(folder, caplog)
        if (folder / "config.yaml").exists():
            code, said = Forked(place, ("resume", folder.name, "--quiet")).end()
            assert code == 0, said
        else:
            whole(place, folder.name, strategy, *STRATEGIES[strategy])
        assert bits(folder) == expected[strategy], (at, strategy, number)
    tell("moments", ", ".join(f"{n} {signal.Signals(number).name}" for number, n in sent.items()) +
         f" at random moments; {resumed} resumes from a checkpoint, all the same bits; none lost.", capsys)


def test_twenty_runs_of_one_seed_are_bitwise_equal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for strategy, more in STRATEGIES.items():
        first: dict[str, Any] = {}
        for i in range(20):
            whole(place, "same", strategy, *more)
            present = bits(place / "same")
            shutil.rmtree(place / "same")
            first = first or present
            assert present == first, (strategy, i)
    tell("one seed", f"20 runs of one seed on one thread, for each of {len(STRATEGIES)} strategies: the same bits.",
         capsys)


def likelihood(folder: Path) -> float:
    (value,) = (row["value"] for row in json.loads((folder / "scores.json").read_text())
                if (row["benchmark"], row["metric"]) == ("test", "log_likelihood"))
    return float(value)


def test_a_resumed_hogwild_run_is_within_the_spread_of_seeds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two threads write concurrently, so a resumed run is one more random sample, within the range of the others."""
    moments, takes = random.Random(9), 0.0
    for seed in range(SEEDS):
        takes = whole(place, f"wild-{seed}", "sgns", *HOGWILD, threads=2, seed=seed)
    spread = [likelihood(place / f"wild-{seed}") for seed in range(SEEDS)]
    mean, sd = statistics.mean(spread), statistics.stdev(spread)
    far: list[float] = []
    for _ in range(20 * CUTS):
        seed, folder = len(far), place / "wild-cut"
        shutil.rmtree(folder, ignore_errors=True)
        process = fit(place, folder.name, "sgns", *HOGWILD, threads=2, seed=seed)
        if stopped(place, process, signal.SIGTERM, moments.uniform(0.2, 1) * takes) and (
                folder / "checkpoints").exists():
            code, said = Forked(place, ("resume", folder.name, "--quiet")).end()
            assert code == 0, said
            far.append((likelihood(folder) - mean) / sd)
        if len(far) == CUTS:
            break
    tell("hogwild", f"Two threads, {SEEDS} seeds: log-likelihood {mean:.4f}, standard deviation {sd:.4f}; {len(far)} "
         f"resumes lie {min(far):+.2f} to {max(far):+.2f} standard deviations from the mean.", capsys)
    assert len(far) == CUTS and max(map(abs, far)) < 3
