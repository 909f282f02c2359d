"""A stopped and resumed run is bitwise equal to an uninterrupted one, for every source, loss and optimiser with a
state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.in_process import WORDS, small_text
from helpers.runs import assert_same_run, cache, interrupted, metric_rows, no_page, state, stop_at  # noqa: F401

from embtrain import experiment
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.files import lock_folder
from embtrain.experiment import Run, Settings
from embtrain.experiment.continuation import continue_run
from embtrain.experiment.diagnosis import diagnose
from embtrain.experiment.run import components, started, trainer as trainers
from embtrain.experiment.run.run import rescore
from embtrain.train.engines.autograd import Step
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("resume"), 8) / "text"


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)


ACE = ["negatives.min_perplexity=30", "negatives.hidden=4", "negatives.generator_lr=0.05"]
CASES: dict[str, tuple[str, list[str]]] = {
    "sgns": ("sgns", []),
    "nce, one z": ("nce-learned-z", []),
    "nce, a z per context": ("nce-learned-z", ["loss.partition=context"]),
    "ace": ("ace", ACE),
    "ace, a moving baseline, a step of its own now and then": (
        "ace", [*ACE, "negatives.baseline=moving", "negatives.update_every=2000"]),
    "softmax": ("softmax", []),
    "a penalty on some examples": ("sgns", ["loss.penalty=0.1", "loss.penalty_share=0.3"]),
    "adagrad": ("sgns", ["train.optimizer=adagrad", "train.lr=0.1"]),
    "adam": ("ace", [*ACE, "train.optimizer=adam", "train.lr=0.01"]),
    "a warm-up, a mean, clipped": ("nce", ["train.warmup=10", "train.reduction=mean", "train.clip=0.5"]),
    "shared draws without replacement": ("uniform", ["negatives.share_draws_by=window", "negatives.replacement=false"]),
    "evaluations in between, patience": ("sgns", ["train.evaluate_every=4", "train.patience=3", "train.lr=0.08"]),
    "any engine": ("sgns", ["train.engine=auto"]),
    "any engine, a z, rows of Adagrad, blocks": ("nce-learned-z", [
        "train.engine=auto", "train.optimizer=row-adagrad", "negatives.share_draws_by=block",
        "negatives.share_size=4"]),
    "ace, any engine": ("ace", [*ACE, "train.engine=auto"]),
    "a target": ("sgns", ["train.track_until=valid/log_likelihood>-3.8"]),
}


def settings(text: Path, case: str = "sgns", *more: str) -> Settings:
    strategy, sets = CASES[case]
    return experiment.resolve(strategy, corpus=str(text), threads=1, sets=[
        "text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=6", "train.epochs=3", "train.chunk=256",
        "train.batch=300", "train.engine=autograd", "train.log_every=2", "train.checkpoint_every=1e9",
        "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=300", "evaluate.resamples=0", "evaluate.neighbours=[bal]", *sets, *more])


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_bitwise_equal(text: Path, tmp_path: Path, case: str) -> None:
    config = settings(text, case)
    experiment.fit(config, tmp_path / "whole")
    assert len(metric_rows(tmp_path / "whole")) > 6
    # Stop in the first epoch, after its end, and in the rest.
    interrupted(config, tmp_path / "cut", 3, 6, 4)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_run_stopped_at_any_block(text: Path, tmp_path: Path) -> None:
    """Includes the last block of an epoch, the first of the next and the last of the run."""
    config = settings(text, "ace", "train.epochs=2", "train.chunk=900")
    experiment.fit(config, tmp_path / "whole")
    steps = state(tmp_path / "whole")["position"]["step"]
    assert 4 <= steps <= 8
    for block in range(1, steps + 1):
        interrupted(config, tmp_path / str(block), block)
        assert_same_run(tmp_path / "whole", tmp_path / str(block))


def test_a_killed_run_resumes_from_its_last_checkpoint(text: Path, tmp_path: Path) -> None:
    """Later metrics and an incomplete last line are dropped."""
    config = settings(text, "ace")
    experiment.fit(config, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(5, patch)
        experiment.fit(config, tmp_path / "cut")
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "loss": 1}\n{"step": 7, "lo')
    experiment.resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_finished_run_is_evaluated_again_and_not_trained(text: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(text, "evaluations in between, patience"), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("scores.json", "vectors.safetensors"):
        (tmp_path / "b" / name).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", lambda *_: pytest.fail("trained"))
        again = Run(tmp_path / "b").resume()
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert again.scores == run.scores


def test_two_runs_cannot_train_in_one_folder(text: Path, tmp_path: Path) -> None:
    folder, config = tmp_path / "a", settings(text, "sgns", "train.epochs=1")
    with lock_folder(folder, "held"):
        with pytest.raises(UsageError, match=r"/a: another process is training there; wait until it ends, or stop it"):
            experiment.fit(config, folder)
        assert list(folder.iterdir()) == []
    experiment.fit(config, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with lock_folder(folder, "held"), pytest.raises(UsageError, match="another process is training there"):
        experiment.resume(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    experiment.resume(folder)                   # the lock is free again


def test_a_run_started_meanwhile_is_not_overwritten(text: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    config, original = settings(text), components.build_for_training

    def slowly(*arguments: Any) -> Any:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "config.yaml").write_text("another's")
        return original(*arguments)

    monkeypatch.setattr("embtrain.experiment.run.run.components.build_for_training", slowly)
    with pytest.raises(UsageError, match="/a already contains a run"):
        experiment.fit(config, tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["config.yaml"]
    assert (tmp_path / "a" / "config.yaml").read_text() == "another's"


def test_the_best_tables_are_exported(text: Path, tmp_path: Path) -> None:
    """The learning rate is so high that the last evaluation is not the best one."""
    run = experiment.fit(settings(text, "evaluations in between, patience"), tmp_path / "a")
    last, best = (checkpoint.load(tmp_path / "a" / name)["model"]["u"] for name in ("checkpoints", "best"))
    vectors = run.word_vectors.table
    assert not np.array_equal(vectors, last.numpy()) and np.array_equal(vectors, best.numpy())
    values = [line["valid/log_likelihood"] for line in metric_rows(tmp_path / "a") if "valid/log_likelihood" in line]
    assert max(values) != values[-1]
    scores = {(row.benchmark, row.metric): row.value for row in run.scores}
    assert scores["valid", "log_likelihood"] == pytest.approx(max(values))


def test_the_target_is_reported(text: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(text, "a target"), tmp_path / "a")
    reached = {row.metric: row.value for row in run.scores if row.metric.endswith("to valid/log_likelihood>-3.8")}
    lines = [line for line in read(tmp_path / "a" / "metrics.jsonl") if line.get("valid/log_likelihood", -9) > -3.8]
    assert set(reached) == {f"{key} to valid/log_likelihood>-3.8" for key in ("step", "seconds", "cpu_seconds")}
    assert reached["step to valid/log_likelihood>-3.8"] == lines[0]["step"]


# -- changes since the start of the run --------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["nothing", "config.yaml", "identity.json", "vocabulary.txt", "metrics.jsonl",
                                   "the tensors of the first checkpoint"])
def test_a_run_killed_before_its_first_checkpoint_restarts(text: Path, tmp_path: Path, after: str) -> None:
    config, names = settings(text), ["config.yaml", "identity.json", "vocabulary.txt", "metrics.jsonl"]
    experiment.fit(config, tmp_path / "whole")
    cut = tmp_path / "cut"
    cut.mkdir()
    for name in names[:names.index(after) + 1] if after in names else names if after.startswith("the") else []:
        shutil.copy(tmp_path / "whole" / name, cut / name)
        if name == "metrics.jsonl":
            (cut / name).write_text("")
    if after.startswith("the"):
        (cut / "checkpoints").mkdir()
        shutil.copy(tmp_path / "whole" / "checkpoints" / "step-0000000000.safetensors", cut / "checkpoints")
    if after == "nothing":
        with pytest.raises(DataError, match="is not a run: it has no config"):
            experiment.resume(cut)
        experiment.fit(config, cut)
    else:
        experiment.resume(cut)
    assert_same_run(tmp_path / "whole", cut)
    assert (cut / "identity.json").is_file()


def test_a_run_that_lost_its_checkpoints_does_not_restart(text: Path, tmp_path: Path) -> None:
    experiment.fit(settings(text), tmp_path / "a")
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    for path in (tmp_path / "a" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="no complete checkpoint"):
        experiment.resume(tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    with pytest.raises(DataError, match="no complete checkpoint"):
        experiment.resume(tmp_path / "a")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before


@pytest.fixture
def stopped(text: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a stopped run and its private training text."""
    corpus = shutil.copytree(text, tmp_path / "own")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(4, patch)
        experiment.fit(settings(corpus), tmp_path / "run")
    return tmp_path / "run", corpus


def test_a_changed_corpus_is_refused(stopped: tuple[Path, Path]) -> None:
    run, corpus = stopped
    file = corpus / "00.txt"
    lines = file.read_text().split("\n")
    for changed in ("\n".join(lines + lines), "\n".join(lines[::-1]), " ".join(WORDS) * 5):
        file.write_text(changed)  # reversed lines keep the count and id of every word
        with pytest.raises(DataError, match="is not the one this run was trained on") as error:
            experiment.resume(run)
        assert "\n" not in str(error.value) and str(run) in str(error.value)
    file.write_text("\n".join(lines))
    experiment.resume(run)


@pytest.mark.parametrize("left", [b"", b"one two\n"])
def test_a_shortened_corpus_is_refused_before_it_is_read(stopped: tuple[Path, Path], left: bytes,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    """The words that are left would give advice on text.min_count, and warnings of the split."""
    run, corpus = stopped
    for file in corpus.iterdir():
        file.write_bytes(left if file.name == "00.txt" else b"")
    caplog.clear()
    for command in (experiment.resume, rescore, diagnose.open_run):
        with pytest.raises(DataError, match=r"is not the one this run was trained on: its sha256 differs from the one "
                                            r"in identity\.json; restore the same files$"):
            command(run, *([["sgns"], [5]] if command is diagnose.open_run else []))
    assert caplog.messages == []


def test_a_missing_corpus_is_named(stopped: tuple[Path, Path]) -> None:
    run, corpus = stopped
    corpus.rename(corpus.with_name("renamed"))
    with pytest.raises(DataError) as error:
        experiment.resume(run)
    assert str(error.value) == f"corpus: {corpus}: is missing; restore it at this path"
    corpus.with_name("renamed").rename(corpus)
    shutil.rmtree(run / "checkpoints")                       # a run that has not trained begins again
    (run / "metrics.jsonl").unlink()
    corpus.rename(corpus.with_name("renamed"))
    with pytest.raises(DataError, match=r"is missing; restore it at this path$"):
        experiment.resume(run)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.fixture
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of earlier versions have no settings; test_edited_runs.py tests those that do."""
    monkeypatch.setattr(started, "check_settings", lambda *_: None)


@pytest.mark.usefixtures("without_settings")
def test_changed_ids_are_refused(stopped: tuple[Path, Path]) -> None:
    edit(stopped[0] / "config.yaml", "\n  min_count: 5", "\n  min_count: 40")
    with pytest.raises(DataError, match=r"vocabulary\.txt: differs from what the corpus gives with the settings"):
        experiment.resume(stopped[0])


@pytest.mark.usefixtures("without_settings")
@pytest.mark.parametrize(("old", "new"), [("dim: 6", "dim: 7"), ("optimizer: sgd", "optimizer: adam")])
def test_a_changed_configuration_is_refused(stopped: tuple[Path, Path], old: str, new: str) -> None:
    edit(stopped[0] / "config.yaml", old, new)
    with pytest.raises(DataError, match="belongs to another model, source, loss or optimizer"):
        experiment.resume(stopped[0])


@pytest.mark.parametrize(("name", "kind"), [("report.html", "file"), ("scores.json", "file"), ("best", "folder")])
def test_a_folder_in_the_place_of_a_file_is_refused_before_training(
        stopped: tuple[Path, Path], name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error was a lack of machine resources, after the run was trained and scored."""
    run, place = stopped[0], stopped[0] / name
    place.mkdir() if kind == "file" else place.write_text("mine")
    monkeypatch.setattr(components, "build", lambda *_, **__: pytest.fail("worked first"))
    with pytest.raises(UsageError, match=rf"^{place}: is not a {kind}, and a run needs a {kind} there; move it$"):
        experiment.resume(run)


def test_epochs_can_be_added(stopped: tuple[Path, Path]) -> None:
    edit(stopped[0] / "config.yaml", "epochs: 3", "epochs: 5")
    experiment.resume(stopped[0])
    assert metric_rows(stopped[0])[-1]["epoch"] == 5


def test_results_of_an_earlier_end_are_removed_when_a_run_is_trained_further(text: Path, tmp_path: Path) -> None:
    experiment.fit(settings(text), tmp_path / "run")
    edit(tmp_path / "run" / "config.yaml", "epochs: 3", "epochs: 5")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(2, patch)
        experiment.resume(tmp_path / "run")
    assert [name for name in trainers.RESULTS if (tmp_path / "run" / name).exists()] == []
    with pytest.raises(DataError, match="has not finished"):
        continue_run(tmp_path / "run", text)
    experiment.resume(tmp_path / "run")
    assert metric_rows(tmp_path / "run")[-1]["epoch"] == 5 and (tmp_path / "run" / "vectors.safetensors").exists()


@pytest.mark.parametrize(("target", "at"), [("-9.0", 0), ("-0.001", None)])
def test_a_target_changed_before_a_resume_is_looked_up_in_the_log(text: Path, tmp_path: Path, target: str,
                                                                  at: int | None) -> None:
    """The run has already passed the first target. at: the number of the evaluation that passed the new one."""
    run = experiment.fit(settings(text, "a target"), tmp_path / "a")
    config = tmp_path / "a" / "config.yaml"
    edit(config, "log_likelihood>-3.8", f"log_likelihood>{target}")
    edit(config, "epochs: 3", "epochs: 4")
    rows = {row.metric: row.value for row in run.resume().scores if " to " in row.metric}
    logged = [x for x in read(tmp_path / "a" / "metrics.jsonl") if "valid/log_likelihood" in x]
    assert len(logged) == 4 and rows[f"step to valid/log_likelihood>{target}"] == (
        None if at is None else logged[at]["step"])


def test_an_evaluation_leaves_a_run_in_training_unchanged(text: Path, tmp_path: Path) -> None:
    """Its log has lines after the last checkpoint."""
    experiment.fit(settings(text), tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as log:
        log.write('{"step": 1000}\n')
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with lock_folder(tmp_path / "run", "held"):
        rows = rescore(tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert rows == [row for row in Run(tmp_path / "run").scores if row.benchmark != "training"]


@pytest.mark.parametrize(("trained", "other"), [("autograd", "fused"), ("fused", "autograd")])
def test_another_engine_is_refused(text: Path, tmp_path: Path, trained: str, other: str) -> None:
    run = tmp_path / "run"
    experiment.fit(settings(text, "sgns", f"train.engine={trained}"), run)
    edit(run / "config.yaml", f"\n  engine: {trained}", f"\n  engine: {other}")
    with pytest.raises(UsageError, match=rf"train\.engine: {other}: the checkpoint was trained with {trained}"):
        experiment.resume(run)
    edit(run / "config.yaml", f"\n  engine: {other}", "\n  engine: auto")
    experiment.resume(run)


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"corpus": 3}', '{"corpus": {}}', "[" * 99_999])
def test_a_damaged_identity_is_refused(stopped: tuple[Path, Path], damaged: str) -> None:
    (stopped[0] / "identity.json").write_text(damaged)
    with pytest.raises(DataError, match=r"identity\.json: does not contain (corpus\.sha256|the engine)") as error:
        experiment.resume(stopped[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("target", ["valid/log_likelihood", "valid/log_likelihood>far", "valid/log_likelihood>nan"])
def test_an_unreachable_target_is_refused(text: Path, tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match=r"train\.track_until: .* is not a comparison"):
        experiment.fit(settings(text, "sgns", f"train.track_until='{target}'"), tmp_path / "a")


def test_patience_without_held_out_text_is_refused_before_training(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.patience: nothing is held out"):
        experiment.fit(settings(text, "sgns", "train.patience=2", "evaluate.heldout_pairs=0"), tmp_path / "a")
