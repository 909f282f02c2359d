"""Runs of skip-gram by the Triton kernels in the interpreter, against the same runs by the compiled core.

Units run in order in the interpreter, so both make the same updates and differ by rounding alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny_runs
from helpers.bits import same
from helpers.cores import needs_core
from helpers.host_waits import HostWaits
from helpers.triton_kernels import IS_INTERPRETED
from torch import Tensor

from embtrain import experiment
from embtrain.common.errors import DataError
from embtrain.data.text.windows import WindowBatch
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.device.base import MAX_STEP
from embtrain.train.engines.device.windows import DeviceWindows, PlacedWindows
from embtrain.train.loop import Trainer
from embtrain.train.state.metrics_log import read

pytestmark = [pytest.mark.slow, needs_core,
              pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: tests/unit/train/test_gpu.py runs on the device")]

#: Strategy and settings. 2 blocks of 60 windows each.
RUNS: dict[str, tuple[str, list[str]]] = {
    "sgns": ("sgns", []),
    "sgns by windows": ("sgns", ["negatives.share_draws_by=window"]),
    "sgns by blocks": ("sgns", ["negatives.share_draws_by=block", "negatives.share_size=7"]),
    "sgns unmasked, uniform": ("sgns", ["negatives.exponent=0", "negatives.filter=none"]),
    "sgns observed": ("sgns", ["negatives.filter=observed"]),
    "sgns weighted": ("sgns", ["negatives.total_weight=3.5"]),
    "sgns without replacement": ("sgns", ["negatives.replacement=false"]),
    "nce": ("nce", []),
    "nce by windows": ("nce", ["negatives.share_draws_by=window"]),
    "nce-learned-z": ("nce-learned-z", []),
    "nce-learned-z of contexts": ("nce-learned-z", ["loss.partition=context", "negatives.share_draws_by=block",
                                                    "negatives.share_size=4"]),
    "ranking nce": ("sampled-softmax", ["loss.form=ranking", "negatives.filter=none"]),
    "sampled softmax": ("sampled-softmax", ["negatives.k=20"]),
    "sampled softmax by blocks": ("sampled-softmax", ["negatives.share_draws_by=block", "negatives.k=30"]),
    "margin by windows": ("margin", ["negatives.share_draws_by=window"]),
    "ace": ("ace", ["negatives.min_perplexity=5"]),
    "ace by windows": ("ace", ["negatives.min_perplexity=5", "negatives.share_draws_by=window"]),
    "cluster": ("cluster", ["negatives.clusters=3"]),
    "rff": ("rff", ["negatives.features=16"]),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("device"))


def trainer(place: Path, folder: Path, name: str, patch: pytest.MonkeyPatch, on_device: bool, *sets: str) -> Trainer:
    strategy, settings = RUNS[name]
    config = experiment.resolve(strategy, model="skipgram", corpus=str(place / "text"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.chunk=60", "train.engine=fused", *settings, *sets])
    if on_device:
        def engine_class(train: TrainConfig, task: str) -> type[DeviceWindows]:
            return DeviceWindows
        patch.setattr(choose, "engine_class", engine_class)
    return tiny_runs.learning(tiny_runs.made(config), folder)


def values(training: Trainer) -> dict[str, Any]:
    parts = {"model": training.model, "loss": training.loss, "source": training.source}
    found = {f"{part}.{name}": x for part, holder in parts.items() for name, x in holder.state_dict().items()
             if isinstance(x, Tensor) and x.is_floating_point()}
    return {name: x.clone() for name, x in found.items()}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_equals_that_of_the_compiled_core(place: Path, tmp_path: Path, name: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, log Z, the adversary and all numbers of the log after two blocks."""
    results, lines = [], []
    for on_device in (False, True):
        folder = tmp_path / str(on_device)
        training = trainer(place, folder, name, monkeypatch, on_device)
        assert isinstance(training.step, DeviceWindows) == on_device
        tiny_runs.blocks(training, 2)
        results.append(values(training))
        lines.append([{k: v for k, v in line.items() if "seconds" not in k} for line in read(folder / "metrics.jsonl")])
    torch.testing.assert_close(results[1], results[0], rtol=2e-4, atol=2e-6)
    assert len(lines[0]) == 2
    for one, other in zip(*lines, strict=True):
        assert one.keys() == other.keys() and other == pytest.approx(one, rel=1e-3, abs=1e-5)


def test_row_adagrad_on_rows_that_do_not_recur(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One window: an occurrence of a row is an update of its own, in the core those of a unit are one."""
    block = WindowBatch(torch.tensor([0]), torch.tensor([0, 2]), torch.tensor([1, 2]))
    results = []
    for on_device in (False, True):
        training = trainer(place, tmp_path / str(on_device), "sgns by windows", monkeypatch, on_device,
                           "train.optimizer=row-adagrad", "negatives.k=2")
        training.source.draw_ids = lambda n, k: torch.tensor([[3, 4]])  # type: ignore[attr-defined]
        for _ in range(2):                       # the output table starts at 0, so the first update moves it alone
            training.step(block)
        results.append(values(training) | {f"acc{i}": training.optimizers[0].state[p]["acc"].clone()
                                           for i, p in enumerate(training.model.parameters())})
    torch.testing.assert_close(results[1], results[0], rtol=2e-4, atol=2e-6)
    assert results[1]["acc0"].any() and results[1]["acc1"].any()


def test_a_stopped_run_goes_on_with_the_same_bits(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trainer(place, tmp_path / "whole", "nce-learned-z", monkeypatch, True)
    tiny_runs.blocks(whole, 2)
    whole.save()
    again = trainer(place, tmp_path / "whole", "nce-learned-z", monkeypatch, True)
    again.load()
    for training in (whole, again):
        for block in list(training.read_blocks(1, 60, 0, True))[:1]:
            training.run_step(block)
    assert same(values(whole), values(again))


@pytest.mark.parametrize("name", ["sgns", "sgns by windows", "sgns by blocks", "nce", "sampled softmax"])
def test_a_step_does_not_wait_for_the_device(place: Path, tmp_path: Path, name: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are left out, because the interpreter reads everything, and the draw, which is a launch on a device."""
    training = trainer(place, tmp_path, name, monkeypatch, True)
    block = next(iter(training.read_blocks(0, 60, 0, True)))
    kernel, waits = training.step.kernel, HostWaits()  # type: ignore[attr-defined]
    update = kernel.update

    class Paused:
        """The kernel's module, whose launches are not counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(kernel, name)

        def update(self, *args: Any) -> Any:
            with waits.paused():
                return update(*args)

    training.step.kernel = Paused()  # type: ignore[attr-defined]
    placed = training.step._placed(block)  # type: ignore[attr-defined]
    training.step._placed = lambda _: placed  # type: ignore[attr-defined]
    ids = training.step._draw(placed, None).ids  # type: ignore[attr-defined]
    training.source.draw_ids = lambda n, k: ids  # type: ignore[attr-defined]
    assert isinstance(placed, PlacedWindows)
    with waits:
        training.step(block)
    assert waits.counts == {}


def test_blocks_are_read_ahead_in_order(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, "sgns", monkeypatch, True)
    before = threading.active_count()
    expected = list(training.examples.windows(1, 60, 1, True))
    blocks = list(training.read_blocks(1, 60, 1, True))
    assert len(blocks) == len(expected) > 2
    for block, other in zip(blocks, expected, strict=True):
        assert all(same(x.cpu(), y) for x, y in zip((block.centre, block.start, block.target),
                                                    (other.centre, other.start, other.target), strict=True))
    started = training.read_blocks(1, 60, 0, True)
    next(iter(started))
    started.close()                                                      # as a run does that is stopped
    assert threading.active_count() == before


def test_an_error_of_a_reader_is_raised_in_its_turn_and_ends_the_others(place: Path, tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, "sgns", monkeypatch, True)
    before, windows = threading.active_count(), training.examples.windows

    def damaged(epoch: int, block: int, start: int, shuffle: bool) -> Iterator[WindowBatch]:
        if start == 1:
            raise DataError("text: is damaged")
        return windows(epoch, block, start, shuffle)

    monkeypatch.setattr(training.examples, "windows", damaged)
    blocks = training.read_blocks(1, 60, 0, True)
    assert len(next(blocks)) > 0
    with pytest.raises(DataError, match="text: is damaged"):
        next(blocks)
    assert threading.active_count() == before


def test_a_row_gets_few_updates_at_the_same_time(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows updated at once × pairs of each × updates of a row for each pair × the rate are within MAX_STEP."""
    training = trainer(place, tmp_path, "sgns", monkeypatch, True)
    step, block = training.step, next(iter(training.read_blocks(0, 60, 0, True)))
    assert isinstance(step, DeviceWindows)
    counts = training.model.problem.counts
    p, q, k = counts / counts.sum(), training.source.log_q.double().exp(), training.source.config.k  # type: ignore
    row = torch.multinomial(p + k * q, 100_000, True, generator=torch.Generator().manual_seed(0))    # of an update
    per_pair = float((p + k * q)[row].mean())
    for rate in (0.5, 0.001):
        step_of_a_row = step._windows_at_once(block, rate) * len(block.target) / len(block) * per_pair * rate
        assert step_of_a_row <= 1.02 * MAX_STEP
    assert step_of_a_row > 0.9 * MAX_STEP                                # a small rate is not rounded to few windows
