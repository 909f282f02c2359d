"""Comparisons in shared folders: their options, and whether two have the same runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=6", "train.epochs=1", "train.chunk=512",
        "train.log_every=1", "train.lr=0.1", "evaluate.heldout_pairs=1200", "evaluate.resamples=40",
        "evaluate.neighbours=[bal]", "evaluate.benchmarks=[]"]
SAME_FILES = ("config.yaml", "vectors.safetensors", "items.safetensors", "neighbours.json", "vocabulary.txt")


def options(*sets: str) -> list[str]:
    return [word for text in (*KEYS, *sets) for word in ("--set", text)]


def scores(run: Path) -> list[Any]:
    return [row for row in json.loads((run / "scores.json").read_text()) if row["benchmark"] != "training"]


def log(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


def assert_same_runs(folder: Path, other: Path, names: list[str], sub: str = "cells") -> None:
    """All files of the runs have the same bits, except for times."""
    for name in names:
        run, expected = folder / sub / name, other / sub / name
        for file in SAME_FILES:
            assert (run / file).read_bytes() == (expected / file).read_bytes(), (name, file)
        assert log(run) == log(expected) and scores(run) == scores(expected), name
    assert not list(folder.glob("join/runs/*")) and not list((folder / sub).glob("*.error.json"))


def children(process: subprocess.Popen[str]) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except OSError:
        return []


def kill(process: subprocess.Popen[str], joiner: bool = True, cells: bool = True) -> None:
    """Kill a process that joined, the runs that it has started, or both, like a machine crash."""
    runs = children(process) if cells else []
    if joiner:
        process.kill()
    for run in runs:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(run, signal.SIGKILL)


def records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The records of all holders of each lease, in their order."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for path in (folder / "join" / "leases").iterdir():
        name, _, number = path.name.rpartition(".")
        found.setdefault(name, []).append((int(number), json.loads(path.read_text())))
    return {name: [record for _, record in sorted(pairs, key=lambda pair: pair[0])] for name, pairs in found.items()}
