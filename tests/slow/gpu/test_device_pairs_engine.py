"""Runs of order embeddings by the Triton kernel in the interpreter, against the same runs by the compiled core.

Rows are updated in order in the interpreter. Both make the same updates, up to rounding, by SGD.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny_runs
from helpers.cores import needs_core
from helpers.host_waits import HostWaits
from helpers.triton_kernels import IS_INTERPRETED

from embtrain import experiment
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.device.base import MAX_STEP
from embtrain.train.engines.device.pairs import DevicePairs
from embtrain.train.loop import Trainer
from embtrain.train.state.metrics_log import read

pytestmark = [pytest.mark.slow, needs_core,
              pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: tests/unit/train/test_gpu.py runs on the device")]

#: Strategy and settings. Two blocks of 16 rows each.
RUNS: dict[str, tuple[str, list[str]]] = {
    "order": ("order", []), "abs": ("order", ["model.orthant=abs"]),
    "target masked": ("order", ["negatives.filter=target", "negatives.share_draws_by=block", "negatives.share_size=3"]),
    "margin": ("margin", ["loss.margin=0.5", "pairs.slot=both"]),
    "nscaching": ("nscaching", ["negatives.cache_size=9", "loss.name=order"]),
}


def trainer(place: Path, folder: Path, name: str, patch: pytest.MonkeyPatch, on_device: bool, *sets: str) -> Trainer:
    strategy, settings = RUNS[name]
    config = experiment.resolve(strategy, model="order", corpus=str(place / "pairs.tsv"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.RUNS["order"][3], "train.engine=fused", "train.optimizer=sgd", "train.lr=0.05",
        "negatives.k=4", *settings, *sets])
    if on_device:
        def engine_class(train: TrainConfig, task: str) -> type[DevicePairs]:
            return DevicePairs
        patch.setattr(choose, "engine_class", engine_class)
    return tiny_runs.learning(tiny_runs.made(config), folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("device"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_equals_that_of_the_compiled_core(place: Path, tmp_path: Path, name: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The table, what the source learned, and all numbers of the log after two blocks."""
    results, lines = [], []
    for on_device in (False, True):
        folder = tmp_path / str(on_device)
        training = trainer(place, folder, name, monkeypatch, on_device)
        assert isinstance(training.step, DevicePairs) == on_device
        tiny_runs.blocks(training, 2)
        state = {**training.model.state_dict(), **training.source.state_dict()}
        results.append({key: x.clone() for key, x in state.items() if isinstance(x, torch.Tensor)})
        lines.append([{k: v for k, v in line.items() if "seconds" not in k} for line in read(folder / "metrics.jsonl")])
    torch.testing.assert_close(results[1], results[0], rtol=2e-4, atol=5e-6)
    for one, other in zip(*lines, strict=True):
        assert one.keys() == other.keys() and other == pytest.approx(one, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["abs", "target masked"])
def test_a_step_does_not_wait_for_the_device(place: Path, tmp_path: Path, name: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are left out, because the interpreter reads everything, and the draw, which is a launch on a device."""
    training = trainer(place, tmp_path, name, monkeypatch, True, "negatives.filter=target")
    step, waits = training.step, HostWaits()
    assert isinstance(step, DevicePairs)
    block = next(iter(training.read_blocks(0, 16, 0, True)))
    update, ids = step.kernel.update, step._draw(block, None).ids

    def unobserved(*args: Any) -> Any:
        with waits.paused():
            return update(*args)

    monkeypatch.setattr(step.kernel, "update", unobserved)
    training.source.draw_ids = lambda n, k: ids  # type: ignore[attr-defined]
    with waits:
        step(block)
    assert waits.counts == {}


@pytest.mark.parametrize("optimizer", ["sgd", "row-adagrad"])
def test_rows_at_once_are_bounded(place: Path, tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, "target masked", monkeypatch, True, f"train.optimizer={optimizer}")
    monkeypatch.setattr("embtrain.train.engines.device.base.MAX_SHARE", 0.5)
    step, launches, before = training.step, list[tuple[int, int, float]](), 0
    assert isinstance(step, DevicePairs)
    update = step.kernel.update

    def recording(*args: Any) -> Any:
        launches.append((len(args[1].target), args[-1], args[4]))
        return update(*args)

    monkeypatch.setattr(step.kernel, "update", recording)
    block = next(iter(training.read_blocks(0, 50, 0, True)))
    step(block)
    for rows, at_once, lr in launches:
        if optimizer == "sgd":
            assert at_once * block.crowding * lr <= max(MAX_STEP, block.crowding * lr)
        else:
            assert rows <= max(3, before) and at_once == max(1, before // 2)
        before += rows
    assert before == len(block) and (len(launches) == 1) == (optimizer == "sgd")
