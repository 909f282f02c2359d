"""A diverged run warns on the terminal, in scores.json and at the top of its report; a healthy one does not."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path

import pytest
import torch
from helpers import tiny_runs

from embtrain.common.errors import UsageError
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment.run import run, scoring
from embtrain.experiment.run.settings import resolve
from embtrain.losses.nce import Nce
from embtrain.negatives.static.unigram import Unigram
from embtrain.report.load.run import read
from embtrain.report.render import html
from embtrain.report.run.page import document
from embtrain.train.checks.divergence_remedies import lower_rate_hint, most_extreme
from embtrain.train.config import TrainConfig

pytestmark = pytest.mark.slow

QUICK = ["train.checkpoint_every=60"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("diverged"))


def circle(folder: Path) -> str:
    """Write a graph of 40 entities in a circle, with relations to the next one and the one after it."""
    path = folder / "graph.tsv"
    path.write_text("".join(f"e{i}\tr{step}\te{(i + step) % 40}\n" for i in range(40) for step in (1, 2)))
    return str(path)


@pytest.mark.parametrize(("name", "engine", "remedy"), [
    ("distmult", "autograd", "lower train.lr, set a smaller train.batch or a train.clip"),
    ("distmult", "fused", "lower train.lr, or set train.engine: autograd and a train.clip"),
    ("nmt", "autograd", "lower train.lr, set a smaller train.batch or a train.clip")])
def test_a_diverged_run_warns_in_three_places(place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str,
                                              engine: str, remedy: str) -> None:
    settings = tiny_runs.config(place, name, engine, *QUICK, "train.lr=30", "train.min_lr=30")
    with caplog.at_level(logging.WARNING):
        done = run.fit(settings, tmp_path / "run")
    warnings = [record.getMessage() for record in caplog.records if "uniform guess" in record.getMessage()]
    assert len(warnings) == 1 and warnings[0].startswith("warning: ") and warnings[0].endswith(remedy)
    rows = [row for row in done.scores if (row.benchmark, row.metric) == ("training", "warning")]
    assert rows and rows[0].note in warnings[0] and "far below the" in rows[0].note
    assert remedy in done.table().replace("\n    ", " ")
    page = html.render(document(read(done.folder)))
    assert page.index('class="warning"') < page.index("<nav") and "uniform guess" in page


def test_a_loss_above_its_start_is_enough_for_a_warning(place: Path, tmp_path: Path) -> None:
    done = run.fit(tiny_runs.config(place, "nmt", "autograd", *QUICK, "train.lr=30", "train.min_lr=30"),
                   tmp_path / "run")
    assert any("the training loss ends at" in row.note and "above the 4.66" in row.note for row in done.scores)


@pytest.mark.parametrize(("name", "engine"), tiny_runs.EVERY)
def test_healthy_runs_of_every_task_and_engine_have_no_warning(place: Path, tmp_path: Path, name: str,
                                                               engine: str) -> None:
    done = run.fit(tiny_runs.config(place, name, engine, *QUICK), tmp_path / "run")
    assert [row for row in done.scores if row.metric == "warning"] == []


@pytest.mark.parametrize("strategy", ["self-adversarial", "margin"])
@pytest.mark.parametrize(("model", "lr", "warns"), [
    ("transe", 1e-6, False), ("transe", 0.1, False), ("distmult", 0.1, False), ("transe", 1e6, True),
    ("distmult", 1e6, True), ("complex", 1e3, True)])
def test_a_loss_without_probabilities_has_a_lower_bound(tmp_path: Path, strategy: str, model: str, lr: float,
                                                        warns: bool) -> None:
    """The distances of an untrained TransE differ by more than log-probabilities of a good model."""
    done = run.fit(resolve(strategy, model, circle(tmp_path), sets=[
        "train.epochs=1", f"train.lr={lr}", f"train.min_lr={lr / 10}", "evaluate.resamples=0"]), tmp_path / "run")
    notes = [row.note for row in done.scores if row.metric == "warning"]
    assert any("the held-out log-likelihood is" in note for note in notes) if warns else notes == []


def test_large_scores_of_a_sound_ranking_are_no_sign(tmp_path: Path) -> None:
    """The scores of products grow with the dimensions and the rate."""
    done = run.fit(resolve("margin", "complex", circle(tmp_path), sets=[
        "train.epochs=60", "model.dim=1000", "train.lr=3", "evaluate.resamples=0"]), tmp_path / "run")
    assert [row.note for row in done.scores if row.metric == "warning"] == []


def test_targets_that_are_never_drawn_are_no_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log-odds of a source that cannot draw half of the entities have no log P, whatever the training does."""
    monkeypatch.setattr(Unigram, "masses", lambda self: torch.arange(self.problem.n_candidates).double() % 2)
    done = run.fit(resolve("sgns", "distmult", circle(tmp_path), sets=[
        "train.epochs=1", "train.lr=0.01", "evaluate.resamples=0"]), tmp_path / "run")
    (note,) = [row.note for row in done.scores if row.metric == "warning"]
    assert re.search(r"is not finite: \w+: \d+ of \d+ held-out targets have probability 0 under unigram", note)
    assert "diverged" not in note


def test_advice_names_keys_of_the_engine() -> None:
    assert "train.batch" not in lower_rate_hint(TrainConfig(engine="fused"))
    assert "train.batch" in lower_rate_hint(TrainConfig(engine="autograd"))
    assert most_extreme({"train": TrainConfig()}) is None
    assert most_extreme({"train": TrainConfig(lr=1e6, min_lr=0.0)}) == ("train.lr", 1e6)


@pytest.mark.parametrize("c", [1e9, -1e30])
def test_a_diverged_log_z_does_not_change_the_likelihood(place: Path, c: float) -> None:
    values = []
    for start in (0.0, c):
        components = tiny_runs.made(tiny_runs.config(place, "skipgram", "autograd", "loss.name=nce",
                                                     "negatives.filter=none",
                                             "loss.partition=global", "evaluate.log_z=true"))
        assert isinstance(components.loss, Nce) and components.loss.c is not None
        torch.nn.init.constant_(components.loss.c, start)
        values.append({row.metric: row.value for row in scoring.likelihood(components, components.task.heldout("test"),
                                                                           "test",
                                                                        WordsConfig(resamples=0, log_z=True))})
    assert values[0]["log_likelihood"] == values[1]["log_likelihood"] == pytest.approx(-math.log(60), abs=0.2)
    assert values[0]["log_sum_mean"] == values[1]["log_sum_mean"]
    assert values[1]["log_z_mean"] == pytest.approx(-c, rel=1e-6)


@pytest.mark.parametrize("model", ["skipgram", "nmt", "lm", "xc"])
def test_an_inverse_temperature_beyond_the_precision_of_cosines_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"model\.tau: should be less than or equal to 10000"):
        resolve(model=model, sets=["model.tau=1e30"])
