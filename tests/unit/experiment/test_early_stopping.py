"""The report of a run: early stopping, a target that is not reached, a warm-up that is too long."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.in_process import small_text
from helpers.runs import cache, metric_rows  # noqa: F401

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.common.types import Score
from embtrain.experiment import Run
from embtrain.experiment.tasks.windows import WindowsTask
from embtrain.negatives.static.unigram import Unigram

TARGET = "valid/log_likelihood>-0.001"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("text")) / "text"


def settings(text: Path, *sets: str) -> experiment.Settings:
    return experiment.resolve("sgns", corpus=str(text), threads=1, sets=[
        "text.valid=0.1", "text.test=0.1", "text.sample=0", "text.min_count=1", "model.dim=6", "train.epochs=3",
        "train.chunk=900", "train.batch=300", "evaluate.benchmarks=[]", "evaluate.heldout_pairs=300",
        "evaluate.resamples=0", "evaluate.neighbours=[]", *sets])


def fit(text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, values: list[float], *sets: str) -> Run:
    """Train with given values of the validation score, the last one of which repeats."""
    left = iter(values)
    row = Score("valid", "log_likelihood", 0.0)
    monkeypatch.setattr(WindowsTask, "validate", lambda *_: [row._replace(value=next(left, values[-1]))])
    return experiment.fit(settings(text, *sets), folder)


def note_of_seconds(run: Run) -> str:
    return next(row.note for row in run.scores if (row.benchmark, row.metric) == ("training", "seconds"))


def test_early_stopping_is_reported(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(text, tmp_path / "run", monkeypatch, [-5.0, -6.0], "train.epochs=60", "train.patience=2")
    best, _, last = [line["step"] for line in metric_rows(run.folder) if "valid/log_likelihood" in line]
    note = note_of_seconds(run)
    assert note.endswith(f" CPU-s, {last} blocks, stopped early; scores of block {best}")
    assert note.partition(", ")[2] in run.table()
    assert "3 whole epochs of 60, stopped early, " in (run.folder / "report.md").read_text()
    assert note_of_seconds(run.resume()) == note


def test_patience_is_refused_before_training_if_the_corpus_is_too_small_for_validation(tmp_path: Path) -> None:
    """Before, training was lost at its first evaluation."""
    small = tmp_path / "small.txt"
    small.write_text("a b c d e f\n" * 9)
    with pytest.raises(UsageError, match=rf"^train\.patience: nothing of {small} was held out as valid"):
        experiment.fit(settings(small, "train.patience=1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert experiment.fit(settings(small), tmp_path / "run").scores


def test_patience_is_refused_before_training_if_targets_are_never_drawn(text: Path, tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unigram, "masses", lambda self: torch.arange(self.problem.n_candidates).double() % 2)
    reason = (r"train\.patience: \d+ of 300 held-out targets have probability 0 under unigram, so valid/log_likelihood "
              r"is not finite; choose negatives")
    for command in (lambda: experiment.fit(settings(text, "train.patience=1"), tmp_path / "run"),
                    lambda: experiment.plan(settings(text, "train.patience=1"))):
        with pytest.raises(UsageError, match=reason):
            command()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("values", "sets", "ends_with"), [
    ([-5.0, -6.0], [], "blocks"),                              # no early stopping: the scores are those of the end
    ([-7.0, -6.0, -5.0], ["train.patience=2"], "blocks"),
    ([-7.0, -5.0, -6.0], ["train.patience=2"], "blocks; scores of block {half}"),
    ([-5.0, -6.0, -6.0], ["train.patience=2"], "blocks; scores of block {third}"),   # out of patience at the end
    ([-5.0, -6.0], ["train.patience=1", "train.evaluate_every={before}"], "blocks; scores of block {before}"),
    ([-5.0, -6.0], ["train.patience=1", "train.evaluate_every={third}"], ", stopped early; scores of block {third}"),
    ([-7.0, -5.0, -6.0], ["train.patience=1", "train.epochs=1", "train.evaluate_every=1"],
     " 3 blocks, stopped early; scores of block 2")])
def test_the_note_of_each_way_to_end(
        text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[float], sets: list[str],
        ends_with: str) -> None:
    third = experiment.plan(settings(text)).blocks // 3
    assert third > 3
    names = {"third": third, "half": 2 * third, "before": 3 * third - 1}
    run = fit(text, tmp_path / "run", monkeypatch, values, *(text.format(**names) for text in sets))
    assert note_of_seconds(run).endswith(ends_with.format(**names))


def test_the_end_is_no_early_stop_if_the_last_block_uses_up_the_patience(
        text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate_every` divides the blocks of the run, so that the evaluation is inside its last epoch."""
    n = experiment.plan(settings(text, "train.epochs=2")).blocks
    run = fit(text, tmp_path / "run", monkeypatch, [-5.0, -6.0], "train.epochs=2", "train.patience=1",
              f"train.evaluate_every={n // 2}")
    assert note_of_seconds(run).endswith(f" CPU-s, {n} blocks; scores of block {n // 2}")


@pytest.mark.parametrize("every", [0, 1000])
def test_a_target_that_was_not_reached_has_a_row(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 every: int) -> None:
    sets = [f"train.track_until={TARGET}", f"train.evaluate_every={every}"]
    missed = fit(text, tmp_path / "missed", monkeypatch, [-5.0], *sets)
    rows = [row for row in missed.scores if row.metric.endswith(TARGET)]
    assert [(row.benchmark, row.metric, row.value, row.note) for row in rows] == [
        ("training", f"step to {TARGET}", None, "not reached")]
    assert "not reached" in missed.table() and "not reached" in (missed.folder / "report.md").read_text()


def test_a_target_is_reached_at_the_last_step(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(text, tmp_path / "run", monkeypatch, [-5.0, 0.0], f"train.track_until={TARGET}",
              "train.evaluate_every=1000")
    rows = {row.metric: row.value for row in run.scores if row.metric.endswith(TARGET)}
    assert len(rows) == 3 and rows[f"step to {TARGET}"] == metric_rows(run.folder)[-1]["step"]


def test_rows_of_a_run_without_a_target(text: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(text), tmp_path / "run")
    assert [row.metric for row in run.scores if row.benchmark == "training"] == ["seconds"]


def test_the_plan_warns_of_a_warm_up_as_long_as_the_run(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    n = experiment.plan(settings(text)).blocks
    assert experiment.plan(settings(text, f"train.warmup={n - 1}")).blocks == n and not caplog.messages
    experiment.plan(settings(text, f"train.warmup={n}"))
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(f"train.warmup: {n}: the run has only {n} ")
