"""A run that diverged says so on the terminal, in scores.json and on top of its report; a healthy one does not."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path

import pytest
import torch
from helpers import tiny_runs

from embtrain.common.errors import UsageError
from embtrain.evaluate.comparison.results import CellResult, ComparisonResults
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment.comparison import failures
from embtrain.experiment.run import provenance, run, scoring
from embtrain.losses.nce import Nce
from embtrain.report.load.run import read
from embtrain.report.render import html
from embtrain.report.run.page import document
from embtrain.train.checks.divergence_remedies import lower_rate_hint, most_extreme
from embtrain.train.config import TrainConfig

pytestmark = pytest.mark.long

QUICK = ["train.checkpoint_every=60"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("diverged"))


@pytest.mark.parametrize(("name", "engine", "remedy"), [
    ("distmult", "autograd", "lower train.lr, set a smaller train.batch or a train.clip"),
    ("distmult", "fused", "lower train.lr, or set train.engine: autograd and a train.clip"),
    ("nmt", "autograd", "lower train.lr, set a smaller train.batch or a train.clip")])
def test_a_diverged_run_says_so_in_three_places(place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
                                                name: str, engine: str, remedy: str) -> None:
    settings = tiny_runs.config(place, name, engine, *QUICK, "train.lr=30", "train.min_lr=30")
    with caplog.at_level(logging.WARNING):
        done = run.fit(settings, tmp_path / "run")
    said = [record.getMessage() for record in caplog.records if "uniform guess" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith("warning: ") and said[0].endswith(remedy)
    rows = [row for row in done.scores if (row.benchmark, row.metric) == ("training", "warning")]
    assert rows and rows[0].note in said[0] and "far below the" in rows[0].note
    assert remedy in done.table().replace("\n    ", " ")
    page = html.render(document(read(done.folder)))
    assert page.index('class="warning"') < page.index("<nav>") and "uniform guess" in page


def test_a_loss_that_ends_above_its_start_is_a_sign_by_itself(place: Path, tmp_path: Path) -> None:
    done = run.fit(tiny_runs.config(place, "nmt", "autograd", *QUICK, "train.lr=30", "train.min_lr=30"),
                   tmp_path / "run")
    assert any("the training loss ends at" in row.note and "above the 4.66" in row.note for row in done.scores)


@pytest.mark.parametrize(("name", "engine"), tiny_runs.EVERY)
def test_healthy_runs_of_every_task_and_engine_have_no_warning(place: Path, tmp_path: Path, name: str, engine: str
                                                               ) -> None:
    done = run.fit(tiny_runs.config(place, name, engine, *QUICK), tmp_path / "run")
    assert [row for row in done.scores if row.metric == "warning"] == []


def test_advice_names_what_the_engine_reads() -> None:
    assert "train.batch" not in lower_rate_hint(TrainConfig(engine="fused"))
    assert "train.batch" in lower_rate_hint(TrainConfig(engine="autograd"))
    assert most_extreme({"train": TrainConfig()}) is None
    assert most_extreme({"train": TrainConfig(lr=1e6, min_lr=0.0)}) == ("train.lr", 1e6)


@pytest.mark.parametrize("c", [1e9, -1e30])
def test_a_learned_log_z_that_ran_away_does_not_move_the_likelihood(place: Path, c: float) -> None:
    found = []
    for start in (0.0, c):
        of = tiny_runs.made(tiny_runs.config(place, "skipgram", "autograd", "loss.name=nce", "negatives.filter=none",
                                             "loss.partition=global", "evaluate.log_z=true"))
        assert isinstance(of.loss, Nce) and of.loss.c is not None
        torch.nn.init.constant_(of.loss.c, start)
        found.append({row.metric: row.value for row in scoring.likelihood(of, of.task.heldout("test"), "test",
                                                                        WordsConfig(resamples=0, log_z=True))})
    assert found[0]["log_likelihood"] == found[1]["log_likelihood"] == pytest.approx(-math.log(60), abs=0.2)
    assert found[0]["log_sum_mean"] == found[1]["log_sum_mean"]
    assert found[1]["log_z_mean"] == pytest.approx(-c, rel=1e-6)


@pytest.mark.parametrize("model", ["skipgram", "nmt", "lm", "xc"])
def test_an_inverse_temperature_beyond_what_cosines_are_right_to_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"model\.tau: should be less than or equal to 10000"):
        run.settings.resolve(model=model, sets=["model.tau=1e30"])


def test_a_run_that_other_code_began_is_resumed_with_a_warning(place: Path, tmp_path: Path,
                                                               caplog: pytest.LogCaptureFixture) -> None:
    done = run.fit(tiny_runs.config(place, "distmult", "autograd", *QUICK), tmp_path / "run")
    run.resume(done.folder)
    assert not [record for record in caplog.records if "started it" in record.getMessage()]
    path = done.folder / "identity.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "0" * 64, "embtrain": "0.0.1"}))
    run.resume(done.folder)
    assert [record.getMessage() for record in caplog.records if "started it" in record.getMessage()] == [
        f"warning: {done.folder}: {provenance.code_difference(done.folder)}; results may differ from those of a run "
        "under one version"]
    config = done.folder / "config.yaml"
    config.write_text(re.sub("optimizer: .*", "optimizer: adam", config.read_text()))
    with pytest.raises(run.DataError, match=r"does not fit this version: embtrain 0\.0\.1 with code 0{12} began"):
        run.resume(done.folder)


@pytest.mark.parametrize(("codes", "ends"), [
    ([None, None], None), ([3, None], 3), ([4, 3], 3), ([4, 4], 4), ([70], 3)])
def test_a_comparison_with_failed_cells_is_no_success(tmp_path: Path, codes: list[int | None],
                                                      ends: int | None) -> None:
    (tmp_path / "cells").mkdir()
    cells = [CellResult(cell="sgns-seed1", strategy="sgns", seed=1, status="finished")]
    for i, code in enumerate(codes):
        cells.append(CellResult(cell=f"nce-seed{i}", strategy="nce", seed=i, status="failed", error="a reason"))
        (tmp_path / "cells" / f"nce-seed{i}.error.json").write_text(json.dumps({"error": "a reason", "code": code}))
    error = failures.failed(tmp_path, ComparisonResults(plan={"paper": None}, cells=cells))
    assert (None if error is None else error.code) == ends
    if error is not None:
        assert "nce-seed0: a reason; to run them again: embtrain compare --out" in str(error)
        assert str(error).count("\n") == 0
