"""Two processes of one run: one folder, and errors in one line of process 0. tests/slow/scale has kills and signals."""

from __future__ import annotations

import inspect
import json
import logging
import re
from pathlib import Path

import pytest
from helpers.forked import Forked
from helpers.groups import bits, ends, fit, fork_ranks, losses, simulated, vectors
from helpers.in_process import small_text
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

import embtrain
from embtrain.common import progress
from embtrain.train.group import launch
from embtrain.train.group.processes import GlooGroup, GroupFailed
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.state.signals import resumable

pytestmark = pytest.mark.long

# An error of torch 2 for a process that was killed.
GLOO = ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:27322. This "
        "is typically caused by a remote worker crashing. Check the logs of the failing process for details. GLHF!")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "place").mkdir()
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "place" / "cache"))
    return small_text(tmp_path / "place", 40)


def test_two_processes_train_one_run_twice_with_the_same_bits(place: Path) -> None:
    for out in ("a", "b"):
        results = ends(fit(place, 2, out, "--set", "train.epochs=1"))
        assert [code for code, _ in results] == [0, 0] and results[1][1] == "", results
        assert "log_likelihood" in results[0][1] and (place / out / "report.html").exists()
    assert json.loads((place / "a" / "processes.json").read_text()) == {"launch": "", "processes": 2}
    assert bits(place / "a") == bits(place / "b") and losses(place / "a") == losses(place / "b")
    assert len(losses(place / "a")) > 3
    # Processes that take turns in one compute the same
    assert {content for content, _ in simulated(place, 2, "train.epochs=1")} == {vectors(place / "a")}
    assert losses(place / "simulated-2") == losses(place / "a")


def test_all_have_the_same_bits_where_a_run_is_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is due at each synchronization, but one is saved only where all rows were exchanged."""
    saved: dict[int, set[bytes]] = {}
    monkeypatch.setattr(GroupTrainer, "save", lambda self: saved.setdefault(self.position.step, set()).add(
        b"".join(table.detach().contiguous().numpy().tobytes() for table in self.model.parameters())))
    trainers = [trainer for _, trainer in simulated(place, 3, "train.checkpoint_every=1e-9", "train.epochs=2")]
    n = trainers[0].examples.n_blocks(0, 128)
    assert 16 <= -(-n // 6) < 32                                   # so each second synchronization has all rows
    assert sorted(saved) == sorted({step for epoch in (0, 1) for step in (epoch * n + n, *range(
        epoch * n + 2 * 6, epoch * n + n, 2 * 6))})
    assert {len(tables) for tables in saved.values()} == {1}
    blocks = [block for epoch in (0, 1) for block in trainers[0].examples.windows(epoch, 128)]
    assert {trainer.position.examples for trainer in trainers} == {sum(len(block.target) for block in blocks)}
    assert len({trainer.source.random.get_state().numpy().tobytes() for trainer in trainers}) == 3
    traffic = trainers[0].traffic                                                          # type: ignore[attr-defined]
    assert traffic.n == 2 * -(-n // 6) and traffic.words == pytest.approx(2 * trainers[0].n_words / 3)


def test_two_processes_continue_a_run(place: Path) -> None:
    assert [code for code, _ in ends(fit(place, 2, "first", "--set", "train.epochs=1"))] == [0, 0]
    results = ends(fork_ranks(place, 2, "continue", "first", "--corpus", "text", "--set", "train.epochs=2", "--out",
                              "second"))
    assert [code for code, _ in results] == [0, 0] and results[1][1] == "", results
    assert json.loads((place / "second" / "processes.json").read_text())["processes"] == 2
    assert not (place / "second-2").exists()


def test_the_last_step_is_evaluated_once_for_patience_and_one_process_warns(
        place: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainers = [trainer for _, trainer in simulated(
        place, 2, "train.epochs=1", "train.patience=3", "train.evaluate_every=1000", "train.warmup=9999")]
    log = (place / "simulated-2" / "metrics.jsonl").read_text().splitlines()
    n = trainers[0].examples.n_blocks(0, 128)
    assert [line["step"] for line in map(json.loads, log) if "valid/log_likelihood" in line] == [n]
    assert {(trainer.position.best_step, trainer.position.evaluated) for trainer in trainers} == {(n, n)}
    assert [text[:text.index(",", 20)] for text in caplog.messages] == [
        f"train.warmup: 9,999: the run has only {n} blocks"]


@pytest.mark.parametrize("rank", [0, 1])
def test_process_0_alone_prints_warnings_and_progress(
        rank: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Alone(GlooGroup):
        def __init__(self) -> None:
            self.rank = rank

        def leave(self) -> None:
            pass

    log = logging.getLogger("embtrain")
    caplog.set_level(logging.WARNING, "embtrain")                        # restores the level at the end
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.setattr(launch, "_connect", lambda size: Alone())
    for name, value in {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with launch.join():
        log.warning("a warning")
        logging.getLogger("embtrain.negatives").warning("a further one")
        log.error("an error")
        assert caplog.messages == (["a warning", "a further one"] if rank == 0 else []) + ["an error"]
        assert progress.quiet == (rank == 1)


def test_settings_that_differ_end_in_one_line_of_process_0(place: Path) -> None:
    results = ends(fit(place, 2, "out", of_rank={1: ("--set", "train.lr=0.5")}))
    assert [code for code, _ in results] == [2, 2] and results[1][1] == ""
    assert results[0][1] == ("embtrain: error: configuration: train.lr is '0.025' in process 0 and '0.5' in process 1; "
                             "start all processes with the same command and files\n")
    assert not (place / "out").exists()


def test_an_exchange_with_a_killed_process_names_the_reason_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlooGroup, "check", lambda self: None)
    group = GlooGroup(0, 2, None, lambda: True)                                            # type: ignore[arg-type]
    for text, reason in ((GLOO, "Connection closed by peer [127.0.0.1]:27322"), ("Timed out", "Timed out")):
        with pytest.raises(GroupFailed) as caught, resumable(lambda: "embtrain resume out"), group._exchanging():
            raise RuntimeError(text)
        assert str(caught.value) == (
            f"process 0 of 2: another process is gone or did not take part in time ({reason}); it stops, and torchrun "
            "can be started again; to resume: embtrain resume out")


def test_a_world_size_without_torchrun_is_refused(place: Path) -> None:
    results = Forked(place, ("fit", "--corpus", "text", "--out", "out"), "", {"WORLD_SIZE": "4"}).end()
    assert results[0] == 2 and "WORLD_SIZE: 4: is set, but not RANK, MASTER_ADDR, MASTER_PORT" in results[1]
    results = Forked(place, ("fit", "--corpus", "text", "--out", "out"), "", {"WORLD_SIZE": "x"}).end()
    assert results[0] == 2 and "WORLD_SIZE: x: is not a number of processes" in results[1]


def test_a_command_of_a_process_is_no_part_of_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's own source names the variables that it sets."""
    for name in ("OMP_NUM_THREADS", "PYTHONPATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING"):
        monkeypatch.delenv(name, raising=False)
    before = launch.child_environment(3)
    names = re.findall(r'"([A-Z_]+)"', inspect.getsource(LocalElasticAgent._start_workers))
    assert {"RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"} < {*names}
    for name in ["LOCAL_RANK", "TORCHELASTIC_ERROR_FILE", *names]:
        if not name.startswith(("OMP_", "TORCH_")):         # they mean the same in every process
            monkeypatch.setenv(name, "1")
    assert launch.child_environment(3) == before and before["OMP_NUM_THREADS"] == "3"
    assert Path(embtrain.__file__).parents[1] == Path(before["PYTHONPATH"])
