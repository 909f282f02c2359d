"""Runs of triples by the Triton kernel in the interpreter, against the same runs by the compiled core.

Units run in order in the interpreter. Both make the same updates, up to rounding and to the gradients of rows that
occur twice in a unit, where the rate is small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.bits import same
from helpers.cores import needs_core
from helpers.host_waits import HostWaits
from helpers.triton_kernels import IS_INTERPRETED

from embtrain import experiment
from embtrain.data.triples.examples import TripleBatch
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.device.base import MAX_SHARE, MAX_STEP
from embtrain.train.engines.device.triples import DeviceTriples, PlacedTriples
from embtrain.train.loop import Trainer
from embtrain.train.state.metrics_log import read

pytestmark = [pytest.mark.slow, needs_core,
              pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: tests/unit/train/test_gpu.py runs on the device")]

#: Model, strategy and settings. Two blocks of 40 queries each.
RUNS: dict[str, tuple[str, str, list[str]]] = {
    "self-adversarial": ("transe", "self-adversarial", []),
    "self-adversarial l2 by blocks": ("transe", "self-adversarial", [
        "model.norm=l2", "negatives.share_draws_by=block", "negatives.share_size=7", "negatives.k=9"]),
    "on the sphere": ("transe", "margin", ["model.entities=sphere", "model.norm=l2"]),
    "sampled softmax observed": ("transe", "uniform", [
        "loss.name=sampled_softmax", "negatives.share_draws_by=block", "negatives.share_size=16",
        "negatives.filter=observed"]),
    "ranking": ("transe", "uniform", ["loss.name=sampled_softmax", "loss.form=ranking", "negatives.filter=none"]),
    "weighted rows": ("transe", "self-adversarial", ["triples.weights=triple", "triples.slot=bernoulli"]),
    "distmult": ("distmult", "sgns", []),
    "distmult nce": ("distmult", "nce", ["loss.partition=global"]),
    "reciprocal gbce": ("transe", "uniform", ["loss.name=gbce", "triples.reciprocal=true"]),
    "nscaching": ("transe", "nscaching", ["negatives.cache_size=9"]),
    "ace": ("transe", "ace-kg", ["negatives.min_perplexity=5"]),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("device"))


def trainer(place: Path, folder: Path, name: str, patch: pytest.MonkeyPatch, on_device: bool, *sets: str) -> Trainer:
    model, strategy, settings = RUNS[name]
    config = experiment.resolve(strategy, model=model, corpus=str(place / "graph"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_GRAPHS, "train.engine=fused", "train.lr=0.001", "train.optimizer=sgd",
        "negatives.k=4", *settings, *sets])
    if on_device:
        def engine_class(train: TrainConfig, task: str) -> type[DeviceTriples]:
            return DeviceTriples
        patch.setattr(choose, "engine_class", engine_class)
    return tiny_runs.learning(tiny_runs.made(config), folder)


def values(training: Trainer) -> dict[str, Any]:
    parts = {"model": training.model, "loss": training.loss, "source": training.source}
    return {f"{part}.{name}": x.clone() for part, holder in parts.items() for name, x in holder.state_dict().items()
            if isinstance(x, torch.Tensor) and x.is_floating_point()}


@pytest.mark.parametrize(("name", "optimizer"), [
    *((name, "sgd") for name in RUNS), ("self-adversarial", "row-adagrad"), ("distmult nce", "row-adagrad"),
    ("self-adversarial l2 by blocks", "row-adagrad"), ("nscaching", "row-adagrad")])
def test_a_run_equals_that_of_the_compiled_core(place: Path, tmp_path: Path, name: str, optimizer: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, log Z, the adversary and all numbers of the log after two blocks."""
    results, lines = [], []
    for on_device in (False, True):
        folder = tmp_path / str(on_device)
        training = trainer(place, folder, name, monkeypatch, on_device, f"train.optimizer={optimizer}")
        assert isinstance(training.step, DeviceTriples) == on_device
        tiny_runs.blocks(training, 2)
        results.append(values(training))
        lines.append([{k: v for k, v in line.items() if "seconds" not in k} for line in read(folder / "metrics.jsonl")])
    torch.testing.assert_close(results[1], results[0], rtol=5e-4, atol=2e-5)
    assert len(lines[0]) == 2
    for one, other in zip(*lines, strict=True):
        assert one.keys() == other.keys() and other == pytest.approx(one, rel=2e-3, abs=1e-4)


def test_a_stopped_run_goes_on_with_the_same_bits(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trainer(place, tmp_path, "distmult nce", monkeypatch, True, "train.optimizer=row-adagrad")
    tiny_runs.blocks(whole, 2)
    whole.save()
    again = trainer(place, tmp_path, "distmult nce", monkeypatch, True, "train.optimizer=row-adagrad")
    again.load()
    for training in (whole, again):
        for block in list(training.read_blocks(1, 40, 0, True))[:1]:
            training.run_step(block)
    assert same(values(whole), values(again))


@pytest.mark.parametrize("name", ["self-adversarial", "self-adversarial l2 by blocks", "distmult", "weighted rows"])
def test_a_step_does_not_wait_for_the_device(place: Path, tmp_path: Path, name: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are left out, because the interpreter reads everything, and the draw, which is a launch on a device."""
    training = trainer(place, tmp_path, name, monkeypatch, True, "negatives.filter=target")
    step, waits = training.step, HostWaits()
    assert isinstance(step, DeviceTriples)
    block = next(iter(training.read_blocks(0, 40, 0, True)))
    update, ids = step.kernel.update, step._draw(block, None).ids

    def unobserved(*args: Any) -> Any:
        with waits.paused():
            return update(*args)

    monkeypatch.setattr(step.kernel, "update", unobserved)
    training.source.draw_ids = lambda n, k: ids  # type: ignore[attr-defined]
    with waits:
        step(block)
    assert waits.counts == {}


def test_blocks_are_read_ahead_in_order(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, "weighted rows", monkeypatch, True)
    expected = list(training.examples.blocks(1, 20, 1, True))
    blocks = list(training.read_blocks(1, 20, 1, True))
    assert len(blocks) == len(expected) > 2
    for block, other in zip(blocks, expected, strict=True):
        assert isinstance(block, PlacedTriples) and isinstance(other, TripleBatch)
        assert all(same(getattr(block, name), getattr(other, name)) for name in (
            "entity", "relation", "slot", "target", "weight"))


def launches(training: Trainer, patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(queries, queries at once) of each launch of an epoch."""
    recorded, step = list[tuple[int, int]](), training.step
    assert isinstance(step, DeviceTriples)
    update = step.kernel.update

    def recording(*args: Any) -> Any:
        recorded.append((len(args[2].target), args[-1]))
        return update(*args)

    patch.setattr(step.kernel, "update", recording)
    for block in training.read_blocks(0, 40, 0, True):
        training.run_step(block)
    return recorded


@pytest.mark.parametrize("name", ["self-adversarial", "self-adversarial l2 by blocks"])
def test_queries_at_once_are_a_share_of_those_before(place: Path, tmp_path: Path, name: str,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, name, monkeypatch, True, "train.optimizer=row-adagrad")
    monkeypatch.setattr("embtrain.train.engines.device.base.MAX_SHARE", 0.5)
    unit, before = max(1, training.step.units_per_draw), 0  # type: ignore[attr-defined]
    recorded = launches(training, monkeypatch)
    for queries, at_once in recorded:
        assert queries <= max(unit, before) and at_once == max(1, int(0.5 * before))
        before += queries
    assert before == training.examples.examples_per_epoch and MAX_SHARE <= 0.5
    assert len(recorded) < 20 + before // 40                            # the launches double, then are the blocks


@pytest.mark.parametrize(("name", "slopes"), [("self-adversarial", 1), ("on the sphere", 4)])
def test_a_row_gets_few_updates_at_the_same_time_by_sgd(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        name: str, slopes: int) -> None:
    """Queries at once × updates of a row per query × the rate are within MAX_STEP, for the worse table.

    A margin moves the rows of a query once for each of its four negatives.
    """
    training = trainer(place, tmp_path, name, monkeypatch, True, "train.lr=0.2")
    step, block = training.step, next(iter(training.examples.blocks(0, 40, 0, True)))
    assert isinstance(step, DeviceTriples)
    n, q = len(block), training.source.log_q.double().exp().numpy()  # type: ignore[attr-defined]
    tables = [slopes * np.bincount(block.relation) / n,
              slopes * np.bincount(np.concatenate([block.entity, block.target]), minlength=len(q)) / n + 4 * q]
    crowding = max((x * x).sum() / x.sum() for x in tables)
    for rate in (0.2, 1e-4):
        at_once = step._rows_at_once(step._placed(block).crowding, rate)
        assert at_once * crowding * rate <= max(1.02 * MAX_STEP, crowding * rate)
    assert at_once * crowding * rate > 0.9 * MAX_STEP                   # a small rate is not rounded to few queries
    assert {at_once for _, at_once in launches(training, monkeypatch)} != {1}
