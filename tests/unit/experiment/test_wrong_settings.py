"""Errors name their cause and the flag that the user gave; settings that cannot be meant are refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.in_process import small_text
from helpers.runs import cache, no_page  # noqa: F401

from embtrain import cli, experiment
from embtrain.cli import options
from embtrain.common import progress, shipped
from embtrain.common.config import Layer, read_yaml
from embtrain.common.errors import DataError, UsageError
from embtrain.data.parallel.files import ParallelLayout
from embtrain.experiment.continuation import continued_settings
from embtrain.experiment.diagnosis import diagnose as diagnosing
from embtrain.experiment.run import components, stored
from embtrain.experiment.tasks import base as tasks

pytestmark = pytest.mark.long

SETS = ["text.valid=0.1", "text.test=0.1", "model.dim=4", "train.epochs=1", "train.threads=1", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=20", "evaluate.resamples=0", "evaluate.neighbours=[]"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "quiet", True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    place = small_text(tmp_path_factory.mktemp("wrong"), 3)
    with pytest.MonkeyPatch.context() as patch:
        no_page(patch)
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr(progress, "quiet", True)
        return experiment.fit(experiment.resolve("sgns", corpus=str(place / "text"), sets=SETS), place / "run")


def command(patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    patch.setattr(sys, "argv", ["embtrain", *words])
    return cli.run(), capsys.readouterr().err


# --- flags -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "line", "code"), [
    (["--device", "cuda"], "--device: train.device: cuda: this machine has 0 CUDA devices; use cpu", 4),
    (["--device", "potato"], "--device: train.device: 'potato' is not a device; use cpu, cuda or cuda:N", 2),
    (["--set", "train.device=cuda"], "train.device: cuda: this machine has 0 CUDA devices; use cpu", 4),
    (["--dry-run", "--device", "cuda"], "--device: train.device: cuda: this machine has 0 CUDA devices; use cpu", 4)])
def test_a_device_is_refused_with_its_flag_before_the_corpus_is_read(
        words: list[str], line: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(components.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    expected = (code, f"embtrain: error: {line}\n")
    assert command(monkeypatch, capsys, "fit", "--corpus", str(tmp_path), *words) == expected


def test_errors_of_other_keys_have_no_flag() -> None:
    flags = {"train.seed": ("--seed", 3), "train.threads": ("--threads", None)}
    lines = ("train.seed: 3: is odd", "train.lr: 3: is large", "train.threads: 3: is odd")
    with pytest.raises(UsageError) as error, options.named_flags(flags):
        raise UsageError(*lines)
    assert error.value.args == ("--seed: train.seed: 3: is odd", *lines[1:])


# --- another source or loss than the strategy's ----------------------------------------------------------------------

def test_a_source_in_place_of_the_strategys_has_its_own_keys() -> None:
    settings = experiment.resolve("sgns", sets=["negatives.source=uniform", "negatives.k=7"])
    assert (settings.negatives.source, settings.negatives.k, settings.negatives.filter) == ("uniform", 7, "target")
    ace = experiment.resolve("sgns", sets=["negatives.source=ace", "negatives.exponent=0.5"])
    assert ace.negatives.exponent == 0.5 and ace.negatives.counts == "raw"  # type: ignore[attr-defined]
    settings = experiment.resolve("nce-learned-z", sets=["loss.name=margin"])
    assert settings.loss.name == "margin"
    with pytest.raises(UsageError, match=r"^--set negatives\.exponent=1: negatives\.exponent: unknown key"):
        experiment.resolve("sgns", sets=["negatives.source=uniform", "negatives.exponent=1"])
    with pytest.raises(UsageError, match=r"^--set negatives\.source=nosuch: .*nosuch"):
        experiment.resolve("sgns", sets=["negatives.source=nosuch"])


@pytest.mark.parametrize("content", ["", "# nothing\n", "loss: {name: nce}\n", "negatives: {k: 3}\n", "negatives:\n"])
def test_the_file_of_a_strategy_names_its_source(tmp_path: Path, content: str) -> None:
    """The default source would train under the name of the file."""
    (tmp_path / "mine.yaml").write_text(content)
    for resolve in (experiment.resolve, lambda name: experiment.resolve(Layer(name, read_yaml(name).tree))):
        with pytest.raises(UsageError, match=r"mine\.yaml: negatives\.source: is missing; name the source of the "
                                             r"strategy$"):
            resolve(str(tmp_path / "mine.yaml"))
    assert experiment.resolve(str(tmp_path / "mine.yaml"), sets=["negatives.source=uniform"]).strategy


@pytest.mark.parametrize("content", ["", "---\n# nothing\n"])
def test_an_empty_file_of_settings_gives_a_warning(tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["embtrain", "config", "show", "train.lr", "--config", "mine.yaml"])
    assert cli.run() == 0
    assert capsys.readouterr().err == "embtrain: mine.yaml: is empty, so it changes no setting\n"


# --- rates -----------------------------------------------------------------------------------------------------------

def test_a_final_rate_above_the_first_is_refused(run: experiment.Run, tmp_path: Path) -> None:
    line = (r"train\.min_lr: 1: is above train\.lr: 0\.025, from which the rate falls to it; set at most 0\.025, or "
            "raise")
    with pytest.raises(UsageError, match=rf"^--set train\.min_lr=1: {line} train\.lr$"):
        experiment.resolve(sets=["train.min_lr=1"])
    with pytest.raises(UsageError, match=rf"^--set train\.min_lr=1: {line} train\.lr$"):
        continued_settings(run.folder, run.settings.corpus, ["train.min_lr=1"])
    (tmp_path / "my.yaml").write_text("train:\n  min_lr: 1\n")
    with pytest.raises(UsageError, match=rf"my\.yaml:2:3: {line}"):
        experiment.resolve(config=tmp_path / "my.yaml")


def test_burn_in_of_all_epochs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--set train\.burn_in=3: train\.burn_in: 3: all train\.epochs: 3 would "
                                         "train at a tenth of the learning rate; set fewer, or lower train.lr$"):
        experiment.resolve(sets=["train.burn_in=3", "train.epochs=3"])
    assert experiment.resolve(sets=["train.burn_in=3", "train.epochs=4"]).train.burn_in == 3
    poincare = experiment.resolve(model="poincare", sets=["train.epochs=1"])    # its own burn-in is kept
    assert poincare.train.epochs == 1


def test_a_default_final_rate_does_not_restrict_the_first() -> None:
    assert experiment.resolve(sets=["train.lr=0.00001"]).train.min_lr > 0.00001
    assert experiment.resolve(sets=["train.lr=0.1", "train.min_lr=0.1"]).train.min_lr == 0.1


# --- output folders --------------------------------------------------------------------------------------------------

def test_a_dry_run_refuses_the_folders_that_a_run_refuses(run: experiment.Run, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text("mine")
    with pytest.raises(UsageError, match=r"^--out: .* contains scores\.json, which belongs to no run; choose another"):
        experiment.plan(run.settings, out=tmp_path)
    with pytest.raises(UsageError, match=r"^--out: \S+ already contains a run; choose another, or: embtrain resume"):
        experiment.plan(run.settings, out=run.folder)
    with pytest.raises(UsageError, match=r"^--out: .* is the corpus"):
        experiment.plan(run.settings, out=Path(run.settings.corpus))
    for words in (["continue", str(run.folder)], ["fit"]):
        words = [*words, "--corpus", run.settings.corpus, "--dry-run", "--out", str(run.folder)]
        code, line = command(monkeypatch, capsys, *words)
        assert code == 2 and "already contains a run" in line and line.count("\n") == 1


@pytest.mark.parametrize("name", ["diagnosis.json", "diagnosis.md", "diagnosis.html"])
def test_a_diagnosis_does_not_replace_files_of_the_user(name: str, run: experiment.Run, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text('{"run": "mine"}')
    with monkeypatch.context() as patch:
        patch.setattr(diagnosing, "_open_run", lambda *_: pytest.fail("worked first"))
        with pytest.raises(UsageError, match=rf"^--out: \S+ contains {name}, which belongs to no diagnosis; choose"):
            diagnosing.diagnose(run.folder, [], [5], out=tmp_path)
    assert (tmp_path / name).read_text() == '{"run": "mine"}' and len(list(tmp_path.iterdir())) == 1


def test_a_diagnosis_replaces_an_earlier_one(run: experiment.Run, tmp_path: Path) -> None:
    for _ in range(2):
        diagnosing.diagnose(run.folder, [], [5], out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(diagnosing.FILES)


# --- diagnose, predict, evaluate -------------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "flag"), [(["--out", "d"], "--out"), (["--draws", "7"], "--draws")])
def test_options_without_effect_on_dumped_negatives_are_refused(
        words: list[str], flag: str, run: experiment.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "drawn.tsv"
    assert command(monkeypatch, capsys, "diagnose", str(run.folder), "--dump-negatives", str(out), *words) == (
        2, f"embtrain: error: {flag}: has no effect with --dump-negatives, which measures nothing; remove it\n")
    assert not out.exists()


def test_an_unknown_strategy_is_refused_before_the_corpus_is_read(run: experiment.Run,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    with pytest.raises(UsageError, match="no strategy named 'nosuch'"):
        diagnosing.diagnose(run.folder, ["nosuch"], [5])


def test_a_missing_corpus_of_a_prediction_is_named(run: experiment.Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^corpus: '\S+/nofile' is neither a file or folder nor a recipe"):
        stored.open_run(run.folder, [f"corpus={tmp_path / 'nofile'}"])
    with pytest.raises(DataError, match=r"^corpus: '\S+/nofile' is neither a file or folder nor a recipe"):
        run.predict("bal", corpus=tmp_path / "nofile")
    (tmp_path / "nofiles").touch()
    with pytest.raises(DataError, match=rf"did you mean '{tmp_path}/nofiles'"):
        run.predict("bal", corpus=tmp_path / "nofile")


@pytest.mark.parametrize("before", ["", "./", "folder/", "{}/"])
@pytest.mark.parametrize("after", ["", "/", "/."])
def test_a_suggested_corpus_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "folder").mkdir()
    (tmp_path / "nofiles").touch()
    (folder / "nofiles").touch()
    with pytest.raises(DataError) as caught:
        shipped.check_corpus(before.format(folder) + "nofile" + after)
    suggested = re.search(r"did you mean '(.*)'\?", str(caught.value))
    assert suggested and Path(suggested[1]).is_file()


def test_a_translation_into_its_own_language_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\n")
    sets = ["translation.source=de", "translation.target=de"]
    with pytest.raises(UsageError, match=r"^translation\.target: de: is the source language too; set "
                                         r"translation\.source and translation\.target to two languages$"):
        tasks.read(experiment.resolve(None, "nmt", str(tmp_path), sets=sets))
    assert ParallelLayout(None, None, ()).source is None


def test_a_comparison_in_place_of_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "comparison.yaml").write_text("strategies: [sgns, nce]\n")
    with pytest.raises(DataError, match=rf"^{tmp_path}: is a comparison, not a run; give one of its runs in"):
        experiment.resume(tmp_path)


def test_a_strategy_in_place_of_a_benchmark_is_named(run: experiment.Run, tmp_path: Path) -> None:
    (tmp_path / "st.yaml").write_text("negatives: {source: uniform, k: 5}\nloss: {name: logistic}\n")
    with pytest.raises(UsageError, match=rf"^--on: {tmp_path}/st\.yaml: is a file of settings: it has the section "
                                         "loss; give a recipe of a benchmark, or a table of words and scores$"):
        experiment.evaluate(run.folder, [str(tmp_path / "st.yaml")])


# --- before the corpus is read ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("sets", "line"), [
    (["negatives.source=candidates", "negatives.file=/no/lists"],
     r"negatives\.file: /no/lists: file or folder not found; give a file of candidates$"),
    (["model.output_table.kind=pretrained", "model.output_table.file=/no/v"],
     r"model\.output_table\.file: /no/v: file or folder not found.*; give a run folder or a vector file"),
    (["train.start=/no/v"], r"train\.start: /no/v: file or folder not found.*; give a run folder or a vector file"),
    (["evaluate.benchmarks=[mine.yaml]"], r"evaluate\.benchmarks: no benchmark named 'mine\.yaml'; embtrain list names "
     r"all \d+; and there is no file of this name$"),
    (["train.track_until=foo"], r"train\.track_until: 'foo' is not a comparison"),
    (["train.patience=2", "text.valid=0"], r"train\.patience: nothing is held out; set .*, or train\.patience: 0$")])
@pytest.mark.parametrize("call", [experiment.fit, lambda settings, out: experiment.plan(settings, out=out)])
def test_settings_are_checked_before_the_corpus_is_read(
        sets: list[str], line: str, call: Callable[..., object], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "read", lambda _: pytest.fail("read the corpus first"))
    settings = experiment.resolve("sgns", corpus=str(tmp_path), sets=["evaluate.benchmarks=[]", *sets])
    with pytest.raises((DataError, UsageError), match=f"^{line}"):
        call(settings, tmp_path / "run")


def test_a_run_is_no_corpus(run: experiment.Run, tmp_path: Path) -> None:
    settings = experiment.resolve("sgns", corpus=str(run.folder), sets=SETS)
    line = rf"^corpus: {run.folder}: is a run, whose files would be read as data; give its corpus$"
    with pytest.raises(UsageError, match=line):
        experiment.fit(settings, tmp_path / "new")
