"""A run that is stopped at any moment ends with the command that resumes it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.in_process import small_text
from helpers.runs import cache  # noqa: F401

from embtrain import cli, experiment
from embtrain.cli import interrupt
from embtrain.common import progress
from embtrain.common.errors import Interrupted, Stopped
from embtrain.experiment.run import run as runs
from embtrain.train.loop import Trainer
from embtrain.train.state import signals

pytestmark = pytest.mark.long

SETS = ["model.dim=4", "train.epochs=1", "train.threads=1", "text.valid=0.1", "text.test=0.1", "evaluate.benchmarks=[]",
        "evaluate.heldout_pairs=20", "evaluate.resamples=0", "evaluate.neighbours=[]", "train.engine=autograd"]
MOMENTS = {
    "identity.json is written": (runs, "write_identity"), "the first checkpoint": (Trainer, "save"),
    "training": (Trainer, "run"), "evaluation": (runs.trainers, "load_best"), "items": (runs.scoring, "write_items"),
    "divergence": (runs.divergence, "rows"), "the report": (runs.report, "write")}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "quiet", True)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("stopped"), 3) / "text"


def stopping(after: Callable[..., Any] | None = None) -> Callable[..., Any]:
    def call(*arguments: Any, **keys: Any) -> None:
        if after is not None:
            after(*arguments, **keys)
        raise Stopped(signal.SIGTERM)
    return call


def wrapped(stopped: Stopped) -> Exception:
    error = SystemError("returned a result with an exception set")
    error.__cause__ = stopped
    return error


def dropping(*_: Any, **__: Any) -> None:
    """Like a C++ library that replaces the exception of a signal handler by an error of its own."""
    with contextlib.suppress(Stopped):
        signals.raise_stopped(signal.SIGTERM)
    raise ValueError("Invalid affine transformation matrix")


def test_a_stop_that_a_library_drops_is_a_stop(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MOMENTS["the report"], dropping)
    with pytest.raises(Stopped, match=r"^stopped by signal 15; to resume: embtrain resume "):
        experiment.fit(experiment.resolve("sgns", corpus=str(text), sets=SETS), tmp_path / "run")
    signals.forget_signals()


def test_other_errors_after_a_stop_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_raised", [])
    assert signals.hidden_stop(ValueError("a bug")) is None
    with pytest.raises(Stopped):
        signals.raise_stopped(signal.SIGINT)
    found = signals.hidden_stop(ValueError("a bug"))
    assert found is not None and found.signal == signal.SIGINT
    assert signals.hidden_stop(OSError(28, "No space left on device")) is None
    with signals.protect_caller():                                     # another call of the Python interface
        assert signals.hidden_stop(ValueError("a bug")) is None


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_command_to_resume_is_named(text: Path, tmp_path: Path, moment: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    place, name = MOMENTS[moment]
    settings, run = experiment.resolve("sgns", corpus=str(text), sets=SETS), tmp_path / "run"
    message = f"stopped by signal 15; to resume: embtrain resume {run}"
    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(place, name, stopping(getattr(place, name)))
        experiment.fit(settings, run)
    assert str(stopped.value) == message
    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(place, name, stopping())
        if moment == "identity.json is written":           # as after the first one, nothing is trained
            patch.setattr(Trainer, "save", stopping())
        experiment.resume(run)
    assert str(stopped.value) == message
    assert experiment.resume(run).scores and (run / "report.html").is_file()


def test_a_resumed_run_that_is_stopped_while_it_reads_names_the_command(text: Path, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    settings, run = experiment.resolve("sgns", corpus=str(text), sets=SETS), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
        patch.setattr(runs.tasks, "read", stopping())
        experiment.fit(settings, run)
    assert str(stopped.value) == "stopped by signal 15" and not run.exists()      # there is nothing to resume
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Trainer, "run", stopping())
        experiment.fit(settings, run)
    with monkeypatch.context() as patch, pytest.raises(Stopped, match=rf"to resume: embtrain resume {run}$"):
        patch.setattr(runs.tasks, "read", stopping())
        experiment.resume(run)


def test_processes_of_a_group_name_the_command(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They start runs by themselves, and train by this function."""
    settings, run = experiment.resolve("sgns", corpus=str(text), sets=SETS), tmp_path / "run"
    experiment.fit(settings, run)
    _, parts, *_ = runs.reopen(run, settings)
    monkeypatch.setattr(Trainer, "run", stopping())
    with pytest.raises(Stopped, match=rf"to resume: embtrain resume {run}$"):
        runs.train_and_report(run, settings, parts, fresh=False)


def test_a_translator_that_an_evaluation_trains_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.txt").write_text("1 2\na 0 1\n")

    def score(*_: Any) -> None:
        with signals.resumable(lambda: "embtrain resume /tmp/x"):
            raise Stopped(15)

    monkeypatch.setattr("embtrain.experiment.evaluate", score, raising=False)
    monkeypatch.setattr(sys, "argv", ["embtrain", "evaluate", str(tmp_path / "v.txt")])
    assert cli.run() == 143 and capsys.readouterr().err == "embtrain: stopped by signal 15\n"


@pytest.mark.parametrize("second", [False, True])
def test_a_process_that_ends_at_once_names_the_command(second: bool, monkeypatch: pytest.MonkeyPatch,
                                                       capfd: pytest.CaptureFixture[str]) -> None:
    """During an import, and at a second signal."""
    class Ended(BaseException):
        """Raised in place of the end of the process."""

    def leave(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(interrupt, "_is_importing", lambda _: not second)
    handler = interrupt._StopHandler()
    handler.stopped_at = 0.0 if second else None
    with pytest.raises(Ended) as ended, signals.resumable(lambda: "embtrain resume a"), \
            signals.resumable(lambda: "embtrain resume a/nmt"):
        handler(15, None)
    assert ended.value.args == (143,)
    assert capfd.readouterr().err == "embtrain: stopped by signal 15; to resume: embtrain resume a\n"


@pytest.mark.parametrize(("error", "kind"), [(KeyboardInterrupt(), Interrupted), (wrapped(Stopped(2)), Stopped)])
def test_other_forms_of_a_signal_name_the_command(error: BaseException, kind: type[Stopped]) -> None:
    """Ctrl-C in a program without a handler of embtrain, and a library that turns Stopped into its own error."""
    with pytest.raises(kind) as stopped, signals.resumable(lambda: "embtrain resume a"), \
            signals.resumable(lambda: "embtrain resume a/nmt"):
        raise error
    assert type(stopped.value) is kind and str(stopped.value) == "stopped by signal 2; to resume: embtrain resume a"
