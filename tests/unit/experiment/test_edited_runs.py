"""A run whose config.yaml contradicts its checkpoint is refused in one line; settings that may change still may."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.in_process import small_text
from helpers.runs import cache, no_page, stop_at  # noqa: F401
from pydantic import BaseModel

from embtrain import experiment
from embtrain.common import progress
from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError
from embtrain.experiment.continuation import continue_run
from embtrain.experiment.diagnosis.diagnose import diagnose
from embtrain.experiment.run import components, provenance, started, stored
from embtrain.experiment.run.run import rescore
from embtrain.experiment.run.started import check_settings, fixed_settings
from embtrain.experiment.tasks import base as tasks
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.train.checks.divergence_remedies import not_finite_error
from embtrain.train.config import TrainConfig
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long

SETS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=6", "train.epochs=3", "train.chunk=256",
        "train.batch=300", "train.engine=autograd", "train.threads=1", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=50", "evaluate.resamples=0", "evaluate.neighbours=[]"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "quiet", True)
    no_page(monkeypatch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped run and a finished one."""
    place = small_text(tmp_path_factory.mktemp("edited"), 3)
    settings = experiment.resolve("sgns", corpus=str(place / "text"), sets=SETS)
    with pytest.MonkeyPatch.context() as patch:
        no_page(patch)
        patch.setattr(progress, "quiet", True)
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        with pytest.MonkeyPatch.context() as stopping, pytest.raises(Stopped):
            stop_at(4, stopping)
            experiment.fit(settings, place / "stopped")
        experiment.fit(settings, place / "finished")
    return place


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "stopped", tmp_path / "run")


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "finished", tmp_path / "run")


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "config.yaml"
    text, n = re.subn(rf"^( *){re.escape(old)}$", rf"\g<1>{new}", path.read_text(), flags=re.MULTILINE)
    assert n == 1, old
    path.write_text(text)


@pytest.mark.parametrize(("old", "new", "key"), [
    ("seed: 1", "seed: 2", "train.seed"), ("strategy: sgns", "strategy: nce", "strategy"),
    ("k: 5", "k: 6", "negatives.k"), ("exponent: 0.75", "exponent: 1", "negatives.exponent"),
    ("dim: 6", "dim: 7", "model.dim"),
    ("window: 5", "window: 4", "text.window"), ("min_count: 5", "min_count: 40", "text.min_count"),
    ("optimizer: sgd", "optimizer: adam", "train.optimizer"), ("chunk: 256", "chunk: 128", "train.chunk"),
    ("shuffle: true", "shuffle: false", "train.shuffle")])
def test_a_contradiction_names_file_and_key_before_the_corpus_is_read(
        stopped: Path, old: str, new: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(stopped, old, new)
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    before, after = (text.partition(": ")[2] for text in (old, new))
    after = "1.0" if after == "1" else after
    with pytest.raises(UsageError) as error:
        experiment.resume(stopped)
    assert re.fullmatch(rf"\S*/run/config\.yaml:\d+:\d+: {key}: {after}: the checkpoint was trained with {before}; "
                        rf"restore {before}; to train another run with {after}: embtrain fit", str(error.value))


@pytest.mark.parametrize(("old", "new", "key"), [
    ("name: logistic", "name: margin", "loss.name"), ("source: unigram", "source: uniform", "negatives.source"),
    ("name: skipgram", "name: transe", "model.name")])
def test_another_component_is_named_and_not_its_keys(stopped: Path, old: str, new: str, key: str) -> None:
    """The other keys of the section belong to the component that training used."""
    edit(stopped, old, new)
    (before, after) = (text.partition(": ")[2] for text in (old, new))
    line = rf"config\.yaml:\d+:3: {key}: {after}: the checkpoint was trained with {before}; restore"
    with pytest.raises(UsageError, match=line):
        experiment.resume(stopped)


def test_of_several_faults_of_a_stored_file_the_first_is_printed(stopped: Path) -> None:
    with (stopped / "config.yaml").open("a") as file:
        file.write("train: {seed: 1}\nmodel: {dim: 6}\n")
    with pytest.raises(DataError, match=r"/run/config\.yaml:\d+:1: train: is set twice, first in line \d+") as error:
        experiment.resume(stopped)
    assert len(error.value.args) == 1


def test_a_finished_run_can_be_continued_with_another_value(finished: Path) -> None:
    edit(finished, "k: 5", "k: 6")
    with pytest.raises(UsageError, match=r"trained with 5; restore 5; to train another run with 6: embtrain continue "
                                         r"\S+/run --corpus \.\.\. --set negatives\.k=6$"):
        experiment.resume(finished)


@pytest.mark.parametrize("use", [
    stored.open_run, rescore, lambda run: diagnose(run, [], [5]), lambda run: experiment.Run(run).predict("bal"),
    lambda run: continue_run(run, experiment.Run(run).settings.corpus)])
def test_other_commands_refuse_the_contradiction(finished: Path, use: Callable[[Path], object],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    edit(finished, "dim: 6", "dim: 7")
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    with pytest.raises(UsageError, match=r"model\.dim: 7: the checkpoint was trained with 6"):
        use(finished)


def test_settings_that_may_change_are_accepted(stopped: Path, runs: Path) -> None:
    for old, new in (("threads: 1", "threads: 2"), ("log_every: 10", "log_every: 3"), ("epochs: 3", "epochs: 4"),
                     ("checkpoint_every: 60.0", "checkpoint_every: 9.0"), ("keep: 2", "keep: 1"),
                     ("lr: 0.025", "lr: 0.02"), ("batch: 300", "batch: 200"), ("clip: null", "clip: 1.0"),
                     ("heldout_pairs: 50", "heldout_pairs: 40"),
                     (f"corpus: {runs / 'text'}", f"corpus: {stopped.parent / 'moved'}")):
        edit(stopped, old, new)
    shutil.copytree(runs / "text", stopped.parent / "moved")
    run = experiment.resume(stopped)
    assert checkpoint.load(stopped / "checkpoints")["position"]["epoch"] == 4
    edit(stopped, "epochs: 4", "epochs: 5")        # the settings of the newest checkpoint count
    assert run.resume().scores


def test_a_file_may_move_because_its_content_is_compared(tmp_path: Path) -> None:
    """A hash of the lists is in the checkpoint."""
    before, after = (experiment.resolve("sgns", sets=["negatives.source=candidates", f"negatives.file={path}"])
                     for path in ("/a/lists.tsv", "/b/lists.tsv"))
    checkpoint.save(tmp_path / "checkpoints", 0, {"settings": fixed_settings(before)}, 1)
    check_settings(tmp_path, after)


def test_fewer_epochs_than_trained_are_refused(finished: Path) -> None:
    edit(finished, "epochs: 3", "epochs: 2")
    with pytest.raises(UsageError, match=r"config\.yaml:\d+:3: train\.epochs: 2: the checkpoint has trained in 3 "
                                         r"epochs; set 3 or more$"):
        experiment.resume(finished)


def test_a_checkpoint_without_settings_is_resumed(stopped: Path) -> None:
    state = checkpoint.load(stopped / "checkpoints")
    assert state.pop("settings")["negatives.k"] == "5"
    checkpoint.save(stopped / "checkpoints", state["position"]["step"], state, 1)
    edit(stopped, "k: 5", "k: 6")
    assert checkpoint.peek(stopped / "checkpoints", "settings") is None
    assert experiment.resume(stopped).scores


def test_one_value_of_a_checkpoint_is_read_without_its_tensors(stopped: Path) -> None:
    folder = stopped / "checkpoints"
    assert checkpoint.peek(folder, "position") == checkpoint.load(folder)["position"]
    assert checkpoint.peek(folder, "model") is None and checkpoint.peek(folder, "nothing") is None
    newest = checkpoint.latest(folder)
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {"step": 7}))
    older = checkpoint.peek(folder, "position")
    assert older["step"] < int(newest.stem.partition("-")[2])
    shutil.rmtree(folder)
    assert checkpoint.peek(folder, "position") is None


# --- devices ---------------------------------------------------------------------------------------------------------

def test_a_missing_device_is_refused_before_the_corpus_is_read(stopped: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    edit(stopped, "device: cpu", "device: cuda")
    with pytest.raises(ResourceError, match=r"/run/config\.yaml: train\.device: cuda: this machine has 0 CUDA devices; "
                                            "use cpu$"):
        experiment.resume(stopped)
    settings = experiment.resolve("sgns", corpus=str(tmp_path), device="cuda")
    for call in (experiment.fit, lambda settings, out: experiment.plan(settings, out=out)):
        with pytest.raises(ResourceError, match=r"^train\.device: cuda: this machine has 0 CUDA devices; use cpu$"):
            call(settings, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- identity.json ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("use", [experiment.resume, stored.open_run, lambda run: diagnose(run, [], [5]),
                                 lambda run: experiment.Run(run).predict("bal")])
def test_a_missing_identity_is_named(finished: Path, use: Callable[[Path], object]) -> None:
    (finished / "identity.json").unlink()
    with pytest.raises(DataError, match=r"/run/identity\.json: is missing, and it describes the corpus of the run; "
                                        "restore the file that training wrote$"):
        use(finished)


def test_to_load_a_run_of_other_code_gives_a_warning(finished: Path, caplog: pytest.LogCaptureFixture,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "check_settings", lambda *_: None)      # earlier versions store no settings to compare
    uses: list[Callable[[Path], object]] = [experiment.resume, rescore, stored.open_run,
                                            lambda run: diagnose(run, [], [5])]
    for use in uses:
        use(finished)
    assert not [record for record in caplog.records if "started it" in record.getMessage()]
    path = finished / "identity.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "0" * 64, "embtrain": "0.0.1"}))
    for use in uses:
        caplog.clear()
        use(finished)
        assert [record.getMessage() for record in caplog.records if "started it" in record.getMessage()] == [
            f"warning: {finished}: {provenance.code_difference(finished)}; results may differ from those of a run "
            "under one version"]
    edit(finished, "optimizer: sgd", "optimizer: adam")
    with pytest.raises(DataError, match=r"does not fit this version: embtrain 0\.0\.1 with code 0{12} started it"):
        experiment.resume(finished)


@pytest.mark.parametrize("use", [stored.open_run, lambda run: diagnose(run, [], [5])])
def test_a_run_that_has_not_trained_is_named(stopped: Path, use: Callable[[Path], object]) -> None:
    for name in ("checkpoints", "metrics.jsonl", "identity.json"):
        path = stopped / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=r"/run: has not been trained yet; to train it: embtrain resume \S+/run$"):
        use(stopped)


@pytest.mark.parametrize(("section", "key", "end"), [
    ("train", "train.loss_lr", "lower it$"), ("model", "model.tau", "lower it and train again$")])
def test_a_diverged_run_names_a_remedy_that_a_resume_accepts(section: str, key: str, end: str, tmp_path: Path) -> None:
    """The checkpoint of a run fits its model, source and loss alone."""
    value = {"loss_lr": 1e9} if section == "train" else {}
    sections: dict[str, BaseModel] = {} if section == "train" else {"model": SkipGramConfig(tau=9e3)}
    error = not_finite_error("the loss is nan", 3, tmp_path, TrainConfig(**value), sections)
    assert re.search(rf"^{key}: .*; {end}", str(error))
