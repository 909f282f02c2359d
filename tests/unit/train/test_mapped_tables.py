"""Tables in files (train.tables: mapped) train to the same bits as in memory, survive kills, and need no memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.bits import same
from helpers.tiny_runs import FUSED, blocks, config, learning, made, write

from embtrain import experiment
from embtrain.common import machine
from embtrain.common.errors import ResourceError, UsageError
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.run import dry_run, run
from embtrain.kernels.core.table_files import TableFiles
from embtrain.train.group import requirements
from embtrain.train.loop import Trainer
from embtrain.train.optimizers import RowAdagrad
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
SUBWORD = ["model.subword.buckets=50"]
RUNS = [*((name, []) for name in (*FUSED, "transe sphere")), ("skipgram", SUBWORD),
        ("skipgram", ["model.output_table.kind=sphere"])]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("mapped"))


def trainer(place: Path, folder: Path, tables: str, name: str = "skipgram", *sets: str) -> Trainer:
    return learning(made(config(place, name, "fused", f"train.tables={tables}", *sets)), folder)


def is_in_deleted_file(x: torch.Tensor) -> bool:
    """Whether a tensor begins in a mapping of a file that has no name."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *fields = line.split(maxsplit=5)
        first, end = (int(text, 16) for text in span.split("-"))
        if first <= x.data_ptr() < end:
            return fields[-1].endswith("(deleted)")
    return False


@pytest.mark.parametrize(("name", "sets"), RUNS)
def test_tables_in_files_get_the_bits_of_those_in_memory(place: Path, tmp_path: Path, name: str, sets: list[str]
                                                         ) -> None:
    states = []
    for tables in ("memory", "mapped"):
        training = trainer(place, tmp_path, tables, name, "train.optimizer=row-adagrad", *sets)
        before = [table.data_ptr() for table in training.model.parameters()]
        blocks(training, 2)
        assert [table.data_ptr() for table in training.model.parameters()] == before
        states.append([training._learned_state(), training.optimizers[0].state_dict()])
        accumulators = [training.optimizers[0].state[p]["acc"] for p in training.model.parameters()]
        for table in (*training.model.parameters(), *accumulators):
            assert is_in_deleted_file(table) == (tables == "mapped")
        assert all(float(acc.sum()) > 0 for acc in accumulators)
    assert same(*states)


def test_files_leave_no_name(tmp_path: Path) -> None:
    table = TableFiles(tmp_path).zeros(5, 20)
    assert table.shape == (5, 20) and table.stride() == (32, 1) and not table.any() and table.data_ptr() % 64 == 0
    table += 1
    assert not list(tmp_path.iterdir()) and TableFiles(tmp_path).zeros(5, 20, is_padded=False).is_contiguous()


def state_at_end(folder: Path) -> dict[str, Any]:
    state = checkpoint.load(folder / "checkpoints")
    for name in ("seconds", "cpu_seconds", "log_offset"):
        state["position"].pop(name)
    return state


def train_and_die(training: Trainer, save_at: int, die_at: int) -> None:
    """Train, save a checkpoint before one step, and kill this process before another."""
    run_step = training.run_step

    def step(block: Any, keep_costs: bool = False) -> Any:
        if training.position.step == save_at:
            training.save()
        if training.position.step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_step(block, keep_costs)

    training.run_step = step  # type: ignore[method-assign]
    training.run()


def test_killed_run_continues_from_its_checkpoint_with_the_same_bits(place: Path, tmp_path: Path) -> None:
    sets = ("train.checkpoint_every=1000", "train.optimizer=row-adagrad", "train.epochs=1")
    undisturbed = trainer(place, tmp_path / "memory", "memory", "skipgram", *sets)
    undisturbed.run()
    killed = trainer(place, tmp_path / "killed", "mapped", "skipgram", *sets)
    child = FORK.Process(target=train_and_die, args=(killed, 5, 9))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert checkpoint.load(tmp_path / "killed/checkpoints")["position"]["step"] == 5
    continued = trainer(place, tmp_path / "killed", "mapped", "skipgram", *sets)
    continued.load()
    assert continued.position.step == 5
    continued.run()
    assert undisturbed.position.step > 9 and same(state_at_end(tmp_path / "killed"), state_at_end(tmp_path / "memory"))


def test_checkpoint_is_copied_from_its_file_into_the_tables(place: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    training = trainer(place, tmp_path, "mapped", "skipgram", "train.optimizer=row-adagrad")
    blocks(training, 1)
    training.save()
    saved = training._learned_state(), training.optimizers[0].state_dict()
    monkeypatch.setattr(machine, "total", lambda: 1000)
    with pytest.raises(ResourceError, match="do not fit into this machine's 1,000 of memory"):
        checkpoint.load(tmp_path / "checkpoints")
    state = checkpoint.load(tmp_path / "checkpoints", in_memory=False)
    maps = Path("/proc/self/maps").read_text()
    assert "step-0000000000.safetensors" in maps and same(state["model"], dict(saved[0]["model"]))
    assert not np.shares_memory(state["source"]["random"].numpy(), state["model"]["u"].numpy())
    other = trainer(place, tmp_path, "mapped", "skipgram", "train.optimizer=row-adagrad")
    tables = [*other.model.parameters(), *(other.optimizers[0].state[p]["acc"] for p in other.model.parameters())]
    places = [table.data_ptr() for table in tables]
    other.load()
    assert [table.data_ptr() for table in tables] == places
    optimizer = other.optimizers[0]
    assert isinstance(optimizer, RowAdagrad) and [optimizer.accumulator(p).data_ptr() for p in other.model.parameters()
                                                  ] == places[-2:]
    assert same((other._learned_state(), optimizer.state_dict()), saved)


def test_small_disk_is_refused_before_a_file_is_made(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    settings = config(place, "skipgram", "fused", "train.tables=mapped", "train.keep=3")
    n = made(settings).problem.n_candidates
    # two tables of rows of 16 numbers; four checkpoints, one of them being written; the vectors
    need = 2 * n * 4 * 16 + (3 + 1) * 2 * n * 4 * 6 + n * 4 * 6
    monkeypatch.setattr(machine, "free_disk", lambda folder: need - 1)
    monkeypatch.setattr(TableFiles, "zeros", None)
    with pytest.raises(ResourceError, match=r"^train\.tables: mapped: tables of .* on the disk of .* are free; choose "
                                            r"a folder on another disk, or lower train\.keep or model\.dim$") as error:
        run.fit(settings, tmp_path / "new/run")
    assert error.value.code == 4 and not list(tmp_path.iterdir())
    monkeypatch.undo()
    monkeypatch.setattr(machine, "free_disk", lambda folder: need)
    made(settings)


def test_full_disk_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match=r"a file of 1 MiB cannot be made: No space left on device; choose another"):
        TableFiles(tmp_path).zeros(1 << 14, 16)


def test_tables_that_do_not_fit_into_memory_name_the_remedy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free", lambda: 1000)
    with pytest.raises(ResourceError, match=r"^model\.dim: a table of .* are free; set train\.tables: mapped, or make "
                                            r"it smaller$"):
        made(config(place, "skipgram", "fused"))
    with pytest.raises(ResourceError, match=r"are free; make it smaller$"):
        made(config(place, "skipgram", "autograd"))


@pytest.mark.parametrize(("name", "sets", "reason"), [
    ("skipgram", ["train.engine=autograd"], r"train\.engine: autograd: only the compiled engine"),
    ("skipgram", ["train.engine=auto", "train.device=cuda"], r"train\.device: cuda: only the CPU"),
    ("skipgram", ["train.engine=auto", "train.optimizer=adam"], r"train\.optimizer: adam: "),
    ("rotate", ["train.engine=auto"], r"model\.name: rotate: "),
])
def test_runs_of_other_engines_are_refused(place: Path, name: str, sets: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=rf"^train\.tables: mapped: {reason}.*; or set train\.tables: memory$"):
        run.check(config(place, name, "auto", "train.tables=mapped", *sets))


def test_several_processes_are_refused(place: Path) -> None:
    with pytest.raises(UsageError, match=r"^train\.tables: mapped: is for one process; set train\.tables: sharded to "
                                         r"cut the tables over 2 processes$"):
        settings = config(place, "skipgram", "fused", "train.tables=mapped")
        requirements.check_settings(settings.model, settings.train, 2)


def test_unit_vectors_in_a_file_have_the_same_bits(tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(size=(50, 7)).astype(np.float32)
    table[3], table[4] = 0, 1e-30
    words = [f"w{i}" for i in range(50)]
    unit = Vectors(words, table, new_table=TableFiles(tmp_path).zeros).unit
    assert is_in_deleted_file(torch.from_numpy(unit)) and np.array_equal(unit, Vectors(words, table).unit)


def test_dry_run_reports_the_disk_of_tables_in_files(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    monkeypatch.setattr(dry_run, "MAX_BLOCKS", 0)
    monkeypatch.setattr(machine, "free_disk", lambda folder: 5 << 30)
    settings = config(place, "skipgram", "fused", "train.tables=mapped", "model.dim=4000", "train.chunk=100")
    line = next(line for line in str(experiment.plan(settings, out=tmp_path / "new")).splitlines()
                if line.startswith("tables: "))
    assert line.startswith(f"tables: 2 MiB in files on the disk of {tmp_path}, 6 MiB of checkpoints and vectors; "
                           "5,120 MiB are free there; the free memory of this machine holds 100% of the tables")
