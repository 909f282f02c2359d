"""A comparison that is killed ten times at random gives the report of one that was let alone.

Half of the kills take its cells along, as a machine that stops does; the others leave the cells without a parent.
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
              pytest.mark.skipif(sys.platform != "linux", reason="linux: children are found, and told of a death")]

NAMES = ["sgns-seed1", "nce-seed1", "sgns-seed2", "nce-seed2"]
LIMIT = 15.0  # seconds that cells without a parent may take to save and end
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
    """Cells that have begun to train and have not been judged."""
    return [name for name in NAMES if (folder / "cells" / name / "metrics.jsonl").exists()
            and not (folder / "cells" / name / "scores.json").exists()]


def wait_for_the_orphans(folder: Path) -> float:
    """Until no cell is left at work in the folder; the seconds that took."""
    begun = time.monotonic()
    with workers.working_in(folder):
        return time.monotonic() - begun


@pytest.fixture(scope="module")
def whole(place: Path) -> float:
    """The seconds of a comparison that is let alone, in the folder `whole`, once the text is in the cache."""
    finish(begin(place, "first"))
    begun = time.monotonic()
    finish(begin(place, "whole"))
    return time.monotonic() - begun


def scores(folder: Path) -> list[dict[str, str]]:
    with open(folder / "scores.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] != "training"]
    return [{key: value for key, value in row.items() if key != "cpu_seconds"} for row in rows]


def assert_same_report(one: Path, other: Path) -> None:
    assert without_times(one) == without_times(other)
    assert scores(one) == scores(other) != []
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
    assert (one / "comparison.yaml").read_bytes() == (other / "comparison.yaml").read_bytes()
    for name in NAMES:
        for file in ("vectors.safetensors", "items.safetensors", "neighbours.json", "vocabulary.txt"):
            assert (one / "cells" / name / file).read_bytes() == (other / "cells" / name / file).read_bytes(), file
    headings = [re.findall(r"^#+ .*$", (folder / "report.md").read_text(), re.M) for folder in (one, other)]
    assert headings[0] and [h.replace(one.name, "") for h in headings[0]] == [
        h.replace(other.name, "") for h in headings[1]]


def test_ten_kills_give_the_report_of_a_comparison_that_was_let_alone(place: Path, whole: float) -> None:
    assert_same_report(place / "first", place / "whole")
    moments, kills, in_training, folder = random.Random(10), 0, 0, place / "killed"
    while kills < 10:
        process = begin(place, folder.name)
        training = kills % 3 == 0       # a cell is to be at work, whatever the machine makes of a random moment
        ends = time.monotonic() + (120 if training else moments.uniform(0.2, 0.8) * whole)
        while process.poll() is None and time.monotonic() < ends and not (training and at_work(folder)):
            time.sleep(0.01)
        if process.poll() is not None:  # it came to its end: once more from the beginning
            finish(process)
            assert_same_report(folder, place / "whole")
            shutil.rmtree(folder)
            continue
        cells_too, caught = kills % 2 == 0, at_work(folder)
        orphans = children(process)
        process.kill()
        for orphan in orphans if cells_too else []:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
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
def test_a_signal_reaches_the_cells_and_everything_is_kept(place: Path, whole: float, number: int) -> None:
    folder = place / f"asked-{int(number)}"
    for _ in range(5):                  # on a busy machine one cell may be judged before the other begins to train
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
