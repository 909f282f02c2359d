"""The memory of an update, found out on a few examples; more than is free is refused, whatever the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.bits import same
from helpers.tiny_runs import EVERY, RUNS, blocks, config, learning, made, write

from embtrain import experiment
from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.experiment.run import memory
from embtrain.experiment.run.components import Components
from embtrain.train.checks import memory_trial
from embtrain.train.checks.allocation_counter import AllocationCounter
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.false_negatives import mark_false_negatives

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("memory"))


def test_what_is_made_and_let_go_is_counted() -> None:
    table, ids = torch.nn.Parameter(torch.zeros(50, 8)), torch.arange(10)
    with AllocationCounter() as counted:
        rows = torch.nn.functional.embedding(ids, table, sparse=True)                      # 320 bytes
        both = torch.cat([rows.detach(), rows.detach()])                                   # 640
        view = both[3:]
        del both
        assert counted.live[-1] == 960
        del view
        rows.sum().backward()
    assert counted.peak >= 960 and table.grad is not None and table.grad.is_sparse
    assert counted.live[-1] >= 320 + table.grad._values().numel() * 4      # rows, and the gradient's


def test_the_known_is_not_counted_when_it_is_looked_at() -> None:
    old = torch.zeros(1000)
    with AllocationCounter() as counted:
        kept = old.view(10, 100)[0]
        made = kept + 1
    assert counted.live[-1] == made.numel() * 4 == 400


def truly(of: Components) -> int:
    """What an update of the run takes, counted while it is made, with the source's own draws."""
    step = Step(of.model, of.source, of.loss, [], of.train, of.known_positives)
    of.source.on_epoch_start(step.view)
    block = memory._block(of.task.examples, of.train.chunk or 1)
    batch = block if len(block) <= of.train.batch else block.rows(slice(0, of.train.batch))
    asked = of.model.encode(batch).detach()
    drawn = mark_false_negatives(
        of.source.draw(asked, of.source.config.k, step.view), asked, of.source.config.filter, of.known_positives
    )
    with AllocationCounter() as counted:
        step.gradients(batch, of.model.encode(batch), drawn, 0)
    return counted.peak


@pytest.mark.parametrize("name", RUNS)
def test_an_update_is_known_from_a_few_examples(place: Path, name: str) -> None:
    of = made(config(place, name, "autograd"))
    told = memory_trial.update_bytes(of.model, of.source, of.loss, of.train, of.known_positives,
                             lambda places: memory._block(of.task.examples, places))
    assert 0.8 < told / truly(of) < 1.35


@pytest.mark.parametrize("name", ["skipgram", "lm", "transe"])
def test_adam_s_gradient_is_as_large_as_the_tables(place: Path, name: str) -> None:
    of = made(config(place, name, "autograd", "train.optimizer=adam"))
    told = memory_trial.update_bytes(of.model, of.source, of.loss, of.train, of.known_positives,
                             lambda places: memory._block(of.task.examples, places))
    assert told >= sum(4 * p.numel() for p in of.model.parameters()) and 0.8 < told / truly(of) < 1.35
    training = learning(of, place / f"adam of {name}")
    blocks(training, 1)                                     # which torch's Adam refuses of sparse gradients


@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_more_than_is_free_is_refused_in_one_line(place: Path, name: str, engine: str, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    of = made(config(place, name, engine))
    need = truly(of) if engine == "autograd" else memory._min_step_bytes(of)
    monkeypatch.setattr(machine, "free", lambda: need // 2)
    with pytest.raises(ResourceError, match=r"^(negatives\.k, train\.(batch|block)|model\.dim|corpus): .* free"
                       ) as error:
        made(config(place, name, engine))
    assert error.value.code == 4 and "\n" not in str(error.value)


@pytest.mark.parametrize("name", RUNS)
def test_a_trial_changes_nothing(place: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for tried in (True, False):
        if not tried:
            monkeypatch.setattr(memory_trial, "update_bytes", lambda *a: 0)
        training = learning(made(config(place, name, "autograd", "loss.penalty=0.1", "loss.penalty_share=0.5")
                                 if name == "skipgram" else config(place, name, "autograd")), tmp_path)
        blocks(training, 2)
        found.append(training._learned_state())
    assert same(*found)


def test_the_plan_tells_the_most_of_training_and_judging(place: Path) -> None:
    told = str(experiment.plan(config(place, "skipgram", "autograd")))
    line = next(line for line in told.splitlines() if line.startswith("memory: "))
    assert "MiB in addition to" in line and "in training" in line and "in evaluation" in line


def test_few_candidates_asked_again_and_again_take_next_to_nothing(tmp_path: Path) -> None:
    """What is found out on a few held-out pairs is not taken as often as there are pairs."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join("one two three four" for _ in range(30_000)))
    told = experiment.plan(experiment.resolve("sgns", corpus=str(text), threads=1, sets=[
        "model.dim=4", "train.engine=autograd", "train.chunk=1024", "text.sample=0", "train.lr=0.001",
        "evaluate.benchmarks=[]"]))
    assert told.memory is None or told.memory.judging < 100 << 20
