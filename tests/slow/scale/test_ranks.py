"""Signals, kills and errors of processes that train one run, and its continuation by another number of processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from helpers.groups import bits, ends, fit, fork_ranks, losses, simulated, vectors
from helpers.in_process import small_text

from embtrain.common.errors import DataError
from embtrain.experiment import grouped
from embtrain.experiment.tasks import base as tasks
from embtrain.train.group.trainer import GroupTrainer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("empty_charts")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return small_text(tmp_path / "place", 40)


def test_a_signal_stops_all_and_they_resume_with_the_same_bits(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = ends(fit(place, 3, "whole"))
    assert [code for code, _ in results] == [0, 0, 0], results
    assert "log_likelihood" in results[0][1] and [text for _, text in results[1:]] == ["", ""]
    whole = place / "whole"
    assert (whole / "report.html").exists() and len(losses(whole)) > 10
    assert json.loads((whole / "processes.json").read_text())["processes"] == 3
    assert {content for content, _ in simulated(place, 3)} == {vectors(whole)}
    # A signal to one process stops all, at a synchronization
    blocks = GroupTrainer._train_blocks
    monkeypatch.setattr(GroupTrainer, "_train_blocks", lambda self, *a: (time.sleep(0.1), blocks(self, *a))[1])
    ranks = fit(place, 3, "stopped")
    while len(losses(place / "stopped")) < 2:
        time.sleep(0.01)
    ranks[2].send(signal.SIGTERM)
    results = ends(ranks)
    monkeypatch.undo()
    assert [code for code, _ in results] == [143] * 3, results
    assert "to resume: embtrain resume stopped" in results[0][1]
    before = losses(place / "stopped")
    assert len(before) < len(losses(whole))
    assert {code for code, _ in ends(fork_ranks(place, 3, "resume", "stopped"))} == {0}
    assert losses(place / "stopped") == losses(whole)
    assert bits(place / "stopped") == bits(whole)


def test_a_run_of_four_continues_in_one_two_or_three_with_the_same_next_loss(place: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """With one block in an interval, the next block of process 0 is the next of the order, whatever their number."""
    one = ("--set", "train.sync.blocks=1")
    assert {code for code, _ in ends(fit(place, 4, "whole", *one))} == {0}
    blocks = GroupTrainer._train_blocks
    monkeypatch.setattr(GroupTrainer, "_train_blocks", lambda self, *a: (time.sleep(0.1), blocks(self, *a))[1])
    ranks = fit(place, 4, "stopped", *one)
    while len(losses(place / "stopped")) < 2:
        time.sleep(0.01)
    ranks[0].send(signal.SIGTERM)
    assert {code for code, _ in ends(ranks)} == {143}
    monkeypatch.undo()
    whole, stopped = losses(place / "whole"), losses(place / "stopped")
    expected = next(loss for step, loss in whole.items() if step > max(stopped))
    for n in (1, 2, 3, 4):
        again = place / f"by-{n}"
        shutil.copytree(place / "stopped", again)
        assert {code for code, _ in ends(fork_ranks(place, n, "resume", again.name))} == {0}
        following = next(loss for step, loss in losses(again).items() if step > max(stopped))
        assert round(following, 6) == round(expected, 6), n
    assert bits(place / "by-4") == bits(place / "whole") != bits(place / "by-3")


@pytest.mark.parametrize(("words", "of_rank", "message"), [
    ((), {1: ("--set", "train.lrr=0.5")}, "process 1 on "),
    (("--set", "train.device=cuda"), {}, "train.device: cuda: 2 processes train one run on the CPU"),
    (("--set", "train.chunk=100000"), {}, "train.chunk: 100000: 2 processes cannot share an epoch of 1 block;"),
    (("--set", "train.lrr=0.5"), {}, "--set train.lrr=0.5: train.lrr: unknown key"),
    (("--corpus", "nowhere"), {}, "nowhere"),
    (("--config", "nowhere.yaml"), {}, "nowhere.yaml"),
])
def test_an_error_is_one_line_of_process_0(place: Path, words: tuple[str, ...], of_rank: dict[int, tuple[str, ...]],
                                           message: str) -> None:
    results = ends(fit(place, 2, "out", *words, of_rank=of_rank))
    errors = [line for line in results[0][1].splitlines() if line.startswith("embtrain: ")]
    assert results[0][0] == results[1][0] in (2, 3) and results[1][1] == "", results
    assert len(errors) == 1 and message in errors[0]
    assert not (place / "out" / "checkpoints").exists()


def test_only_process_0_needs_the_folder_of_a_run(place: Path) -> None:
    results = ends(fork_ranks(place, 2, "resume", "nowhere"))
    assert results[0][0] == results[1][0] == 3 and results[1][1] == "", results
    assert sum(line.startswith("embtrain: ") for line in results[0][1].splitlines()) == 1


def test_a_corpus_that_one_process_lacks_or_sees_otherwise(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = tasks.read

    def missing(settings: object) -> object:
        if os.environ["RANK"] == "1":
            raise DataError("/data/my.txt: file or folder not found")
        return read(settings)                                                  # type: ignore[arg-type]

    monkeypatch.setattr(grouped.tasks, "read", missing)
    results = ends(fit(place, 2, "out"))
    assert [code for code, _ in results] == [3, 3] and results[1][1] == ""
    assert "process 1 on " in results[0][1] and "/data/my.txt: file or folder not found" in results[0][1]


def test_a_killed_process_ends_the_others_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = GroupTrainer._train_blocks
    monkeypatch.setattr(GroupTrainer, "_train_blocks", lambda self, *a: (time.sleep(0.1), blocks(self, *a))[1])
    ranks = fit(place, 2, "killed", EMBTRAIN_SYNC_SECONDS="10")
    while len(losses(place / "killed")) < 2:
        time.sleep(0.01)
    ranks[1].send(signal.SIGKILL)
    code, text = ranks[0].end(20)
    assert code == 4 and "another process is gone" in text and "Traceback" not in text
    assert text.endswith("; it stops, and torchrun can be started again; to resume: embtrain resume killed\n"), text
    assert ranks[1].end()[0] == -9


