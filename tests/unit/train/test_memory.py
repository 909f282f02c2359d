"""The memory of an update, estimated from a few examples; more than is available is rejected for every model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.bits import same
from helpers.tiny_runs import EVERY, RUNS, TRAIN, blocks, config, learning, made, write

from embtrain import experiment
from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.data.text.windows import WindowBatch
from embtrain.experiment.run import dry_run, memory
from embtrain.experiment.run.components import Components
from embtrain.train.checks import memory_trial
from embtrain.train.checks.allocation_counter import AllocationCounter
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.engines.device.windows import DeviceWindows
from embtrain.train.engines.false_negatives import mark_false_negatives
from embtrain.train.loop import Trainer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("memory"))


def test_allocated_and_freed_memory_is_counted() -> None:
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


def test_known_tensors_are_not_counted() -> None:
    old = torch.zeros(1000)
    with AllocationCounter() as counted:
        kept = old.view(10, 100)[0]
        built = kept + 1
    assert counted.live[-1] == built.numel() * 4 == 400


def measured_bytes(run: Components) -> int:
    """Return the bytes that an update of the run allocates, with the source's own draws."""
    step = Step(run.model, run.source, run.loss, [], run.train, run.known_positives)
    run.source.on_epoch_start(step.view)
    block = memory._block(run.task.examples, run.train.chunk or 1)
    batch = block if len(block) <= run.train.batch else block.rows(slice(0, run.train.batch))
    query = run.model.encode(batch).detach()
    drawn = mark_false_negatives(
        run.source.draw(query, run.source.config.k, step.view), query, run.source.config.filter, run.known_positives
    )
    with AllocationCounter() as counted:
        step.gradients(batch, run.model.encode(batch), drawn, 0)
    return counted.peak


@pytest.mark.parametrize("name", RUNS)
def test_update_memory_is_estimated_from_a_few_examples(place: Path, name: str) -> None:
    run = made(config(place, name, "autograd"))
    estimate = memory_trial.update_bytes(run.model, run.source, run.loss, run.train, run.known_positives,
                             lambda places: memory._block(run.task.examples, places))
    assert 0.8 < estimate / measured_bytes(run) < 1.35 and run.model.table().dtype == run.model.config.table_dtype


@pytest.mark.parametrize("name", ["skipgram", "lm", "transe"])
def test_adam_gradient_is_as_large_as_the_tables(place: Path, name: str) -> None:
    run = made(config(place, name, "autograd", "train.optimizer=adam"))
    estimate = memory_trial.update_bytes(run.model, run.source, run.loss, run.train, run.known_positives,
                             lambda places: memory._block(run.task.examples, places))
    assert estimate >= sum(4 * p.numel()
                           for p in run.model.parameters()) and 0.8 < estimate / measured_bytes(run) < 1.35
    training = learning(run, place / f"adam of {name}")
    blocks(training, 1)                                     # which torch's Adam does not accept as sparse gradients


@pytest.mark.parametrize(("name", "sets"), [
    ("poincare", ["train.optimizer=row-adagrad"]), ("poincare", ["train.optimizer=adam", "train.engine=autograd"]),
    ("skipgram", ["loss.name=nce", "loss.partition=context"]), ("lm", ["train.optimizer=adam"]),
    ("rotate", ["train.optimizer=lazy-adam"])])
def test_state_is_as_large_as_a_checkpoint(place: Path, tmp_path: Path, name: str, sets: list[str]) -> None:
    """Poincaré embeddings are float64, and so is the state of their optimizer."""
    settings = config(place, name, "autograd", *sets) if name in RUNS else experiment.resolve(
        name, model=name, corpus=str(place / "pairs.tsv"), sets=[*TRAIN, "pairs.valid=3", "pairs.test=3", *sets])
    run = made(settings)
    training = learning(run, tmp_path)
    blocks(training, 2)
    training.save()
    written = sum(path.stat().st_size for path in tmp_path.rglob("step-*.safetensors"))
    state = memory.built_state(run)
    assert 0 <= written - sum(state) < 4096                                          # names and shapes
    known = memory.tables_state(settings, run.problem)
    assert known.learned <= state.learned and known.optimizer <= state.optimizer
    if name == "poincare":
        tables = 8 * run.model.table().numel()
        assert known.learned == tables and known.optimizer == state.optimizer
        assert memory.disk_need(settings, run.problem, tmp_path).checkpoint == tables + known.optimizer


@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_more_memory_than_available_is_rejected_in_one_line(place: Path, name: str, engine: str,
                                                            monkeypatch: pytest.MonkeyPatch
                                                            ) -> None:
    run = made(config(place, name, engine))
    need = measured_bytes(run) if engine == "autograd" else memory._min_step_bytes(run)
    monkeypatch.setattr(machine, "free", lambda: need // 2)
    with pytest.raises(ResourceError, match=r"^(negatives\.k, train\.(batch|chunk)|model\.dim|corpus): .* free"
                       ) as error:
        made(config(place, name, engine))
    assert error.value.code == 4 and "\n" not in str(error.value)


@pytest.mark.parametrize("name", RUNS)
def test_trial_update_changes_nothing(place: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = []
    for tried in (True, False):
        if not tried:
            monkeypatch.setattr(memory_trial, "update_bytes", lambda *a: 0)
        training = learning(made(config(place, name, "autograd", "loss.penalty=0.1", "loss.penalty_share=0.5")
                                 if name == "skipgram" else config(place, name, "autograd")), tmp_path)
        blocks(training, 2)
        result.append(training._learned_state())
    assert same(*result)


def test_plan_reports_peak_of_training_and_evaluation(place: Path) -> None:
    estimate = str(experiment.plan(config(place, "skipgram", "autograd")))
    line = next(line for line in estimate.splitlines() if line.startswith("memory: "))
    assert "MiB in addition to" in line and "in training" in line and "in evaluation" in line


def test_no_block_is_trained_after_a_slow_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, run_step = list[int](), Trainer.run_step

    def count(trainer: Trainer, *args: object, **kwargs: object) -> object:
        trained.append(1)
        return run_step(trainer, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "run_step", count)
    monkeypatch.setattr(dry_run, "MAX_SECONDS_SLOW", 0.0)
    *_, seconds, _ = dry_run.profile(config(place, "skipgram", "autograd"))
    assert len(trained) == 1 and seconds > 0


def test_all_blocks_that_an_engine_reads_ahead_are_planned_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledWindows, "blocks_ahead", lambda self: 1000)     # more than the run has
    monkeypatch.setattr(CompiledWindows, "block_bytes", lambda self, block: (len(block) << 30, 0))
    settings = config(place, "skipgram", "fused")
    n = dry_run.profile(settings)[0].task.examples.n_blocks(0, 256)
    estimate = experiment.plan(settings).memory
    assert n > 1 and (estimate is None or (256 * (n - 1) << 30 < estimate.training and estimate.device is None))


def test_tensors_on_a_gpu_are_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 70 << 20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 50 << 20)
    assert dry_run._device_bytes("cpu", 1) is None
    assert [dry_run._device_bytes("cuda", n << 20) for n in (0, 40)] == [70 << 20, 90 << 20]
    assert str(dry_run.MemoryEstimate(0, 1 << 20, 2 << 20, 3 << 20)).endswith("about 3 MiB of the GPU in training")


def test_an_engine_on_a_gpu_reads_as_many_blocks_ahead_as_it_states() -> None:
    engine, read = DeviceWindows.__new__(DeviceWindows), list[int]()
    engine.threads, engine.model = 3, SimpleNamespace(problem=SimpleNamespace(device="cpu"))  # type: ignore[assignment]
    window = WindowBatch(torch.zeros(2, dtype=torch.int64), torch.arange(3), torch.zeros(2, dtype=torch.int64))

    def windows(epoch: int, block: int, number: int, shuffle: bool) -> Iterator[WindowBatch]:
        read.append(number)
        return iter([window])

    blocks = engine.batches(SimpleNamespace(n_blocks=lambda *_: 20, windows=windows), 0, 60)  # type: ignore[arg-type]
    next(blocks)
    limit = time.monotonic() + 60
    while len(read) < 1 + engine.blocks_ahead() and time.monotonic() < limit:
        time.sleep(0.001)
    blocks.close()                                                             # type: ignore[attr-defined]
    assert sorted(read) == list(range(1 + engine.blocks_ahead())) and engine.blocks_ahead() == 4
    assert engine.block_bytes(window) == (2 * 56, 56)


def test_few_repeated_candidates_need_almost_no_memory(tmp_path: Path) -> None:
    """The estimate from a few held-out pairs is not multiplied by the number of pairs."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join("one two three four" for _ in range(30_000)))
    estimate = experiment.plan(experiment.resolve("sgns", corpus=str(text), threads=1, sets=[
        "model.dim=4", "train.engine=autograd", "train.chunk=1024", "text.sample=0", "train.lr=0.001",
        "evaluate.benchmarks=[]"]))
    assert estimate.memory is None or estimate.memory.judging < 100 << 20
