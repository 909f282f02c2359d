"""A comparison that is killed ten times at random gives the report of an uninterrupted one.

Half of the kills also kill its cells, like a machine crash; the others leave the cells without a parent.
"""

from __future__ import annotations

import contextlib
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.comparisons import without_times
from helpers.processes import embtrain, nothing_is_left_running, write_text  # noqa: F401

from embtrain.experiment.comparison import workers

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(sys.platform != "linux",
                                 reason="linux: finds children, which get a signal when their parent dies")]

NAMES = ["sgns-seed1", "nce-seed1", "sgns-seed2", "nce-seed2"]
LIMIT = 15.0  # seconds in which cells without a parent must save and end
KEYS = ["text.min_count=1", "text.valid=0.1", "text.test=0.1", "model.dim=16", "train.epochs=6", "train.chunk=256",
        "train.batch=128", "train.checkpoint_every=0.2", "evaluate.benchmarks=[]", "evaluate.heldout_pairs=2000",
        "evaluate.neighbours=[bal]", "evaluate.resamples=100"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("killed"))


def begin(place: Path, out: str) -> subprocess.Popen[str]:
    keys = [part for key in KEYS for part in ("--set", key)]
    return embtrain(place, "compare", "--negatives", "sgns,nce", "--corpus", "text", "--seeds", "2", "--parallel", "2",
                    "--threads", "2", "--quiet", "--out", out, *keys)


def finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and "comparison: " in out and "Traceback" not in err, (out, err)


def children(process: subprocess.Popen[str]) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except OSError:
        return []


def at_work(folder: Path) -> list[str]:
    """Return cells that have begun to train and are not evaluated yet."""
    return [name for name in NAMES if (folder / "cells" / name / "metrics.jsonl").exists()
            and not (folder / "cells" / name / "scores.json").exists()]


def wait_for_the_orphans(folder: Path) -> float:
    """Wait until no cell works in the folder; return the seconds."""
    begun = time.monotonic()
    with workers.working_in(folder):
        return time.monotonic() - begun


@pytest.fixture(scope="module")
def whole(place: Path) -> float:
    """Return the seconds of an uninterrupted comparison in the folder `whole`, with the text in the cache."""
    finish(begin(place, "first"))
    begun = time.monotonic()
    finish(begin(place, "whole"))
    return time.monotonic() - begun


def scores(folder: Path) -> list[dict[str, str]]:
    with open(folder / "scores.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] != "training"]
    return [{key: value for key, value in row.items() if key != "cpu_seconds"} for row in rows]


def assert_same_report(first: Path, second: Path) -> None:
    assert without_times(first) == without_times(second)
    assert scores(first) == scores(second) != []
    assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in second.iterdir())
    assert (first / "comparison.yaml").read_bytes() == (second / "comparison.yaml").read_bytes()
    for name in NAMES:
        for file in ("vectors.safetensors", "items.safetensors", "neighbours.json", "vocabulary.txt"):
            assert (first / "cells" / name / file).read_bytes() == (second / "cells" / name / file).read_bytes(), file
    headings = [re.findall(r"^#+ .*$", (folder / "report.md").read_text(), re.M) for folder in (first, second)]
    assert headings[0] and [h.replace(first.name, "") for h in headings[0]] == [
        h.replace(second.name, "") for h in headings[1]]


def test_ten_kills_give_the_report_of_an_uninterrupted_comparison(place: Path, whole: float) -> None:
    assert_same_report(place / "first", place / "whole")
    moments, kills, in_training, folder = random.Random(10), 0, 0, place / "killed"
    while kills < 10:
        process = begin(place, folder.name)
        training = kills % 3 == 0       # wait until a cell works, at any random moment
        ends = time.monotonic() + (120 if training else moments.uniform(0.2, 0.8) * whole)
        while process.poll() is None and time.monotonic() < ends and not (training and at_work(folder)):
            time.sleep(0.01)
        if process.poll() is not None:  # it finished: start again from the beginning
            finish(process)
            assert_same_report(folder, place / "whole")
            shutil.rmtree(folder)
            continue
        cells_too, caught = kills % 2 == 0, at_work(folder)
        orphans = children(process)
        process.kill()
        for orphan in orphans if cells_too else []:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(orphan, signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        kills += 1
        in_training += bool(caught)
        if folder.exists():
            assert wait_for_the_orphans(folder) < LIMIT
            assert not list((folder / "cells").glob("*.error.json"))
    finish(begin(place, folder.name))
    assert_same_report(folder, place / "whole")
    assert in_training >= 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_cells_and_all_work_is_saved(place: Path, whole: float, number: int) -> None:
    folder = place / f"signal-{int(number)}"
    for _ in range(5):                  # on a busy machine one cell may be evaluated before the other begins to train
        process = begin(place, folder.name)
        deadline = time.monotonic() + 120
        while len(at_work(folder)) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            break
        finish(process)
        shutil.rmtree(folder)
    assert len(at_work(folder)) == 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and "Traceback" not in err and len(at_work(folder)) == 2, err
    assert wait_for_the_orphans(folder) < 1
    assert not (folder / "results.json").exists() and not list((folder / "cells").glob("*.error.json"))
    finish(begin(place, folder.name))
    assert_same_report(folder, place / "whole")
