"""Dask and submitit train the cells of a comparison: the bits of a local one, also if a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers.in_process import small_text
from helpers.processes import ROOT
from helpers.shared_folders import KEYS, assert_same_runs, records

import embtrain
from embtrain.common import progress

NAMES = ["sgns-seed1", "nce-seed1"]
EPOCHS = {"train.epochs": 100, "train.checkpoint_every": 0.05, "train.evaluate_every": 1000, "train.log_every": 100}
SETS = {key: value for key, _, value in (text.partition("=") for text in KEYS)} | EPOCHS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # of the clusters


def run(place: Path, out: Path, executor: Any = None) -> None:
    embtrain.compare("sgns,nce", seeds=1, corpus=place / "text", sets=SETS, out=out, threads=1, executor=executor,
                     parallel=None if executor is not None else 1, lease_seconds=3.0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        place = small_text(tmp_path_factory.mktemp("clusters"))
        patch.setattr(progress, "quiet", True)
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        run(place, place / "local")
        yield place


class Killer(threading.Thread):
    """Kills the process that holds the lease of a run when it has written a checkpoint after some training."""

    def __init__(self, folder: Path):
        super().__init__(daemon=True)
        self.folder, self.killed = folder, 0
        self.start()

    def run(self) -> None:
        run = self.folder / "join" / "runs" / "sgns-seed1.1" / "sgns-seed1"
        deadline = time.monotonic() + 600
        while all(int(path.stem.rpartition("-")[2]) == 0 for path in run.glob("checkpoints/step-*.json")) \
                and time.monotonic() < deadline:
            time.sleep(0.02)
        self.killed = records(self.folder)["sgns-seed1"][0]["pid"]
        os.kill(self.killed, signal.SIGKILL)


def assert_killed_and_finished(folder: Path, place: Path, killer: Killer) -> None:
    assert_same_runs(folder, place / "local", NAMES)
    first, second = records(folder)["sgns-seed1"]
    assert (first["state"], second["state"]) == ("running", "done") and first["pid"] == killer.killed
    assert second["step"] > 0


@pytest.mark.skipif(find_spec("distributed") is None, reason="peers: distributed is not installed")
def test_dask_with_a_killed_worker(place: Path, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    with (LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                       worker_dashboard_address=None) as cluster, Client(cluster) as client):
        killer = Killer(tmp_path)
        run(place, tmp_path, client.get_executor(pure=False, retries=0))
    assert_killed_and_finished(tmp_path, place, killer)


@pytest.mark.skipif(find_spec("submitit") is None, reason="peers: submitit is not installed")
def test_submitit_with_a_killed_job(place: Path, tmp_path: Path) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder=tmp_path / "logs", cluster="local")
    executor.update_parameters(timeout_min=20)
    killer = Killer(tmp_path / "out")
    run(place, tmp_path / "out", executor)
    assert_killed_and_finished(tmp_path / "out", place, killer)
