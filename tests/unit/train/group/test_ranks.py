"""Two processes of one run: one folder, and errors in one line of process 0. tests/slow/scale has kills and signals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.forked import Forked
from helpers.groups import bits, ends, fit, losses
from helpers.in_process import small_text

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("empty_charts")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return small_text(tmp_path / "place", 40)


def test_two_processes_train_one_run_twice_with_the_same_bits(place: Path) -> None:
    for out in ("a", "b"):
        results = ends(fit(place, 2, out, "--set", "train.epochs=1"))
        assert [code for code, _ in results] == [0, 0] and results[1][1] == "", results
        assert "log_likelihood" in results[0][1] and (place / out / "report.html").exists()
    assert json.loads((place / "a" / "processes.json").read_text()) == {"launch": "", "processes": 2}
    assert bits(place / "a") == bits(place / "b") and losses(place / "a") == losses(place / "b")
    assert len(losses(place / "a")) > 3


def test_settings_that_differ_end_in_one_line_of_process_0(place: Path) -> None:
    results = ends(fit(place, 2, "out", of_rank={1: ("--set", "train.lr=0.5")}))
    assert [code for code, _ in results] == [2, 2] and results[1][1] == ""
    assert results[0][1] == ("embtrain: error: configuration: train.lr is '0.025' in process 0 and '0.5' in process 1; "
                             "start all processes with the same command and files\n")
    assert not (place / "out").exists()


def test_a_world_size_without_torchrun_is_refused(place: Path) -> None:
    results = Forked(place, ("fit", "--corpus", "text", "--out", "out"), "", {"WORLD_SIZE": "4"}).end()
    assert results[0] == 2 and "WORLD_SIZE: 4: is set, but not RANK, MASTER_ADDR, MASTER_PORT" in results[1]
    results = Forked(place, ("fit", "--corpus", "text", "--out", "out"), "", {"WORLD_SIZE": "x"}).end()
    assert results[0] == 2 and "WORLD_SIZE: x: is not a number of processes" in results[1]
