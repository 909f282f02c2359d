"""Tables in files take no memory that the system could not take back, in training, in checkpoints and in loading."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embtrain import experiment
from embtrain.common import machine
from embtrain.experiment.run import run

pytestmark = pytest.mark.slow

FORK = multiprocessing.get_context("fork")
WORDS, DIM = 120_000, 200
TABLE = 4 * WORDS * DIM  # bytes
LETTERS = str.maketrans("0123456789", "abcdefghij")


def settings(text: Path, tables: str) -> experiment.Settings:
    return experiment.resolve("sgns", corpus=str(text), threads=1, sets=[
        f"train.tables={tables}", f"model.dim={DIM}", "train.optimizer=row-adagrad", "text.min_count=1",
        "text.sample=0", "train.epochs=1", "train.checkpoint_every=1", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=100"])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, draw = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    ids = np.concatenate([draw.permutation(WORDS) for _ in range(5)]).reshape(20, -1, 25)
    for d, lines in enumerate(ids):
        (place / f"{d:02}.txt").write_text("\n".join(
            " ".join(f"w{i:06}".translate(LETTERS) for i in line) for line in lines))
    return place


def peak_private_bytes(work: Callable[[], object]) -> int:
    """The largest private memory of a fork of this process during `work`, less that at its start."""
    peak = FORK.Value("q", 0)

    def body() -> None:
        before = machine.process_memory("RssAnon") or 0

        def watch() -> None:
            while True:
                peak.value = max(peak.value, (machine.process_memory("RssAnon") or 0) - before)
                time.sleep(0.002)

        threading.Thread(target=watch, daemon=True).start()
        work()

    child = FORK.Process(target=body)
    child.start()
    child.join()
    assert child.exitcode == 0
    return int(peak.value)


def test_no_table_is_copied_to_memory(text: Path, tmp_path: Path) -> None:
    run.fit(settings(text, "memory"), tmp_path / "warm")          # fills the cache of the corpus and loads modules
    memory, mapped = (peak_private_bytes(lambda name=name: run.fit(settings(text, name), tmp_path / name))
                      for name in ("memory", "mapped"))
    again = peak_private_bytes(lambda: run.rescore(tmp_path / "mapped"))
    print(f"private memory: {memory >> 20} MiB in memory, {mapped >> 20} MiB mapped, {again >> 20} MiB evaluated "
          f"again; a table: {TABLE >> 20} MiB")
    assert memory - mapped > 1.5 * TABLE and again < TABLE / 2
    first, second = ((tmp_path / name / "vectors.safetensors").read_bytes() for name in ("memory", "mapped"))
    assert first == second


def test_dry_run_leaves_out_tables_in_files(text: Path, tmp_path: Path) -> None:
    plans = [experiment.plan(settings(text, tables), out=tmp_path).memory for tables in ("memory", "mapped")]
    assert plans[0] is not None and plans[1] is not None
    assert 1.5 * TABLE < plans[0].training - plans[1].training < 3.5 * TABLE and plans[1].training > 0
