"""TensorBoard and MLflow receive the log lines, each once, also if a run was cut off and resumed."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from helpers.in_process import small_text
from sqlalchemy import engine

import embtrain
from embtrain import cli
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.types import Score
from embtrain.experiment import Run
from embtrain.train.loop import Trainer
from embtrain.train.sinks import base
from embtrain.train.sinks.base import LogLine, Sink
from embtrain.train.sinks.mlflow import MLflow
from embtrain.train.state import lease as leases
from embtrain.train.state.metrics_log import read
from embtrain.train.state.sink_relay import Relay

pytestmark = pytest.mark.long

SETS = {"model.dim": 6, "train.epochs": 3, "train.chunk": 512, "train.log_every": 1, "evaluate.resamples": 0,
        "evaluate.heldout_pairs": 100, "evaluate.neighbours": [], "evaluate.benchmarks": [], "text.valid": 0.1,
        "text.test": 0.1, "text.sample": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("sinks"))


@pytest.fixture(autouse=True)
def _quick(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)


def fit(place: Path, out: Path, *sinks: str, **sets: Any) -> Run:
    return embtrain.fit("sgns", corpus=place / "text", sets={**SETS, "train.sinks": list(sinks), **sets}, seed=1,
                        threads=1, out=out)


def cut_off(place: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *sinks: str) -> Run:
    """Run a training that is killed in its second epoch, after two checkpoints and some lines more, and resume it."""
    with monkeypatch.context() as patch:
        save, run_step = Trainer.save, Trainer.run_step

        def dies(self: Trainer, block: Any, keep_costs: bool = False) -> Any:
            if self.position.step in (4, 7):           # two stretches of the log
                save(self)
            if self.position.step == 10:
                raise KeyboardInterrupt       # like a kill: nothing more is written
            return run_step(self, block, keep_costs)

        patch.setattr(Trainer, "run_step", dies)
        with pytest.raises(KeyboardInterrupt):
            fit(place, out, *sinks)
    assert [line["step"] for line in read(out / "metrics.jsonl")][-1] == 10
    return Run(out).resume()


def expected_values(folder: Path) -> Counter[tuple[str, int]]:
    """Return (key, step) of every number of the log, once."""
    return Counter({(key, line["step"]): 1 for line in read(folder / "metrics.jsonl") for key, value in line.items()
                    if key != "step" and value is not None})


def finals(run: Run) -> dict[str, float]:
    return base.final_values(run.scores)


# --- the interface ---------------------------------------------------------------------------------------------------

class RecordingSink(Sink):
    name = "remembers"
    needs: ClassVar[tuple[str, ...]] = ()
    calls: ClassVar[list[Any]] = []
    fails = False

    def __init__(self, folder: Path, settings: Any, begun: float):
        self.calls.append(("begun", folder.name, settings["negatives.source"], begun))

    def write(self, lines: Sequence[LogLine]) -> None:
        if self.fails and lines:
            raise ResourceError("the store is full")
        self.calls.append(("write", [line.step for line in lines], lines))

    def write_scores(self, at: LogLine, rows: Sequence[Score]) -> None:
        self.calls.append(("score", at.step, len(rows)))

    def close(self, done: bool) -> None:
        self.calls.append(("close", done))


@pytest.fixture
def remembers(monkeypatch: pytest.MonkeyPatch) -> type[RecordingSink]:
    monkeypatch.setattr(base, "find", lambda name: RecordingSink)
    monkeypatch.setattr("embtrain.train.state.sink_relay.find", base.find)
    monkeypatch.setattr(RecordingSink, "calls", [])
    monkeypatch.setattr(RecordingSink, "fails", False)
    return RecordingSink


def test_sink_receives_what_a_checkpoint_keeps_and_nothing_else(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: type[RecordingSink]) -> None:
    cut_off(place, tmp_path / "run", monkeypatch, "remembers")
    log = [line["step"] for line in read(tmp_path / "run/metrics.jsonl")]
    kinds = [call[0] for call in remembers.calls]
    first, second = remembers.calls[:kinds.index("close") + 1], remembers.calls[kinds.index("close") + 1:]
    steps = [step for call in first if call[0] == "write" for step in call[1]]
    assert steps == [step for step in log if step <= 7] and first[-1] == ("close", False)
    steps = [step for call in second if call[0] == "write" for step in call[1]]
    assert steps == log                                             # all of them again, each once in one process
    assert second[-2][:2] == ("score", log[-1]) and second[-1] == ("close", True)
    assert first[0] == second[0] and first[0][:3] == ("begun", "run", "unigram")   # the same time of day, too
    line = next(call for call in second if call[0] == "write" and call[2])[2][0]
    assert line.values["cpu_seconds"] > 0 and line.values["loss"] > 0 and "step" not in line.values


def test_failing_sink_is_dropped_and_the_run_continues(
        place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, remembers: type[RecordingSink]) -> None:
    remembers.fails = True
    with caplog.at_level(logging.WARNING, "embtrain"):
        run = fit(place, tmp_path / "run", "remembers")
    assert run.scores and not any(call[0] in ("score", "close") for call in remembers.calls)
    assert [record.getMessage() for record in caplog.records if "remembers" in record.getMessage()] == [
        "remembers: failed and is switched off: the store is full"]


@pytest.mark.parametrize("during", ["embtrain.train.loop.Trainer._train", "embtrain.experiment.run.run.answers.write"])
def test_a_stream_that_another_machine_continues_is_left_to_it(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: type[RecordingSink], during: str
        ) -> None:
    lease = leases.take(tmp_path, "run", 1)
    assert lease is not None
    monkeypatch.setenv(leases.VARIABLE, str(lease.path))
    monkeypatch.setattr(during, lambda *_: leases.take(tmp_path, "run", 2))
    with pytest.raises(leases.LeaseLost):
        fit(place, tmp_path / "run", "remembers")
    assert {call[0] for call in remembers.calls} == {"begun", "write"}


def test_a_sink_that_cannot_start_stops_a_new_run_but_not_a_resumed_one(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        remembers: type[RecordingSink]) -> None:
    run = fit(place, tmp_path / "run", "remembers")

    def cannot_start(*_: Any) -> None:
        raise ResourceError("the server is away")

    monkeypatch.setattr(RecordingSink, "__init__", cannot_start)
    with pytest.raises(ResourceError, match="the server is away"):
        fit(place, tmp_path / "new", "remembers")
    with caplog.at_level(logging.WARNING, "embtrain"):
        assert run.resume().scores
    assert "remembers: failed and is switched off: the server is away" in caplog.text


@pytest.mark.parametrize("error", [ResourceError("the server is away"), KeyboardInterrupt()])
def test_sinks_that_started_are_closed_if_a_later_one_cannot_start(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: type[RecordingSink], error: BaseException) -> None:
    def cannot_start(*_: Any) -> None:
        raise error

    monkeypatch.setattr("embtrain.train.state.sink_relay.find", {"good": remembers, "bad": cannot_start}.get)
    with pytest.raises(type(error)):
        Relay(tmp_path, ["good", "bad"], {"negatives.source": "unigram"}, 0.0)
    assert [call[0] for call in remembers.calls] == ["begun", "close"] and remembers.calls[-1] == ("close", False)


def test_sinks_do_not_change_training(place: Path, tmp_path: Path, remembers: type[RecordingSink]) -> None:
    a, b = fit(place, tmp_path / "a", "remembers"), fit(place, tmp_path / "b")
    assert (a.word_vectors.table == b.word_vectors.table).all() and not (b.folder / "sinks.json").exists()


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_unknown_sink_is_rejected_before_reading(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    monkeypatch.setattr("sys.argv", ["embtrain", "fit", "--corpus", str(tmp_path), "--set", "train.sinks=[wandb]",
                                     *more])
    assert cli.run() == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("embtrain: error: train.sinks: ") and "wandb" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_missing_package_is_reported_before_reading(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    monkeypatch.setattr(base, "find_spec", lambda package: None)
    monkeypatch.setattr("sys.argv", ["embtrain", "fit", "--corpus", str(tmp_path), "--set", f"train.sinks=[{name}]",
                                     "--out", str(tmp_path / "run")])
    assert cli.run() == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"pip install 'embtrain[{name}]'" in err and not (tmp_path / "run").exists()


def test_name_that_is_not_a_sink_lists_the_sinks() -> None:
    with pytest.raises(UsageError, match=r"train\.sinks: there is no 'tensorbord' \(did you mean 'tensorboard'\?\)"):
        base.find("tensorbord")
    assert base.names() == ["mlflow", "tensorboard"]


# --- TensorBoard -----------------------------------------------------------------------------------------------------

def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events_read = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    return events_read.Reload()


def scalars(folder: Path) -> Counter[tuple[str, int]]:
    events_read = events(folder)
    return Counter((tag, event.step) for tag in events_read.Tags()["scalars"] for event in events_read.Scalars(tag)
                   if not tag.startswith("final/"))


def require(*packages: str) -> None:
    if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
        pytest.skip(f"sinks: {', '.join(missing)} is not installed; pip install -e '.[{packages[0]}]' brings it")


def test_tensorboard_reads_the_log_values(place: Path, tmp_path: Path) -> None:
    require("tensorboard")
    run = fit(place, tmp_path / "run", "tensorboard")
    assert scalars(run.folder) == expected_values(run.folder)
    events_read, lines = events(run.folder), read(run.folder / "metrics.jsonl")
    logged = {event.step: event.value for event in events_read.Scalars("loss")}
    assert logged == {line["step"]: pytest.approx(line["loss"], rel=1e-6) for line in lines if "loss" in line}
    for key, value in finals(run).items():
        (event,) = events_read.Scalars(key)
        assert event.step == lines[-1]["step"] and event.value == pytest.approx(value, rel=1e-6)
    assert b"negatives.source: unigram" in events_read.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]


def test_tensorboard_gets_no_step_twice_after_a_kill(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("tensorboard")
    run = cut_off(place, tmp_path / "run", monkeypatch, "tensorboard")
    assert scalars(run.folder) == expected_values(run.folder)
    run.resume()                                                    # a finished run is evaluated once more
    assert scalars(run.folder) == expected_values(run.folder)
    assert {len(events(run.folder).Scalars(key)) for key in finals(run)} == {1}


# --- MLflow ----------------------------------------------------------------------------------------------------------

def store(folder: Path) -> tuple[Any, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.parent / 'mlflow.db'}")
    return client, client.get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])


def history(folder: Path) -> Counter[tuple[str, int]]:
    client, run = store(folder)
    return Counter((key, metric.step) for key in run.data.metrics if not key.startswith("final/")
                   for metric in client.get_metric_history(run.info.run_id, key))


def as_mlflow(counts: Counter[tuple[str, int]]) -> Counter[tuple[str, int]]:
    return Counter({(key.replace("@", "_at_"), step): n for (key, step), n in counts.items()})


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for MLflow: opening a store raises `error`; `uris`: the stores that were opened."""
    stand_in = SimpleNamespace(error=RuntimeError("unknown store"), uris=[])

    def open_store(tracking_uri: str) -> None:
        stand_in.uris.append(tracking_uri)
        raise stand_in.error

    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=open_store))
    return stand_in


class WrappedError(Exception):
    """As SQLAlchemy's, with the error of the database's driver."""

    orig = OSError("file is not\na database")


def unlinked_error(is_loop: bool) -> Exception:
    """An error without that of a database: its contexts form a loop, or its context is suppressed."""
    error, other = RuntimeError("away"), RuntimeError("other")
    error.__context__ = other if is_loop else WrappedError("")
    error.__suppress_context__, other.__context__ = not is_loop, error
    return error


def mlflow_error(link: str) -> Exception:
    """link: `__cause__` of an error that was raised `from` that of SQLAlchemy, `__context__` while it was handled."""
    error = RuntimeError("(raised as a result of autoflush)\nfile is not a database\n[SQL: INSERT]")
    setattr(error, link, WrappedError(str(error)))
    return error


@pytest.mark.parametrize(("error", "problem"), [
    (RuntimeError("the server\nis away"), "the server is away"),
    (RuntimeError(), "RuntimeError"),
    (WrappedError("(Background on this error at: ...)"), "file is not a database"),
    (mlflow_error("__cause__"), "file is not a database"),
    (mlflow_error("__context__"), "file is not a database"),
    (unlinked_error(is_loop=True), "away"),
    (unlinked_error(is_loop=False), "away"),
])
def test_mlflow_errors_of_any_kind_name_the_store_and_the_cause(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: SimpleNamespace, error: Exception, problem: str
        ) -> None:
    (tmp_path / "mlflow.db").touch()
    stand_in.error = error
    problem += "; set MLFLOW_TRACKING_URI to a store that can be written, or leave mlflow out"
    with pytest.raises(ResourceError, match=f"^train.sinks: mlflow: {tmp_path}/mlflow.db: {problem}$"):
        MLflow(tmp_path / "run", {}, 0.0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user:password@host/store")
    with pytest.raises(ResourceError, match=f"^train.sinks: mlflow: MLFLOW_TRACKING_URI: {problem}$"):
        MLflow(tmp_path / "run", {}, 0.0)


@pytest.mark.parametrize("name", ["", "mlflow.db"])
def test_mlflow_store_that_cannot_be_written_is_not_opened(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: SimpleNamespace, name: str) -> None:
    (tmp_path / "mlflow.db").touch()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path / name)
    with pytest.raises(ResourceError, match=f"^train.sinks: mlflow: {tmp_path}/mlflow.db: no permission to "):
        MLflow(tmp_path / "run", {}, 0.0)
    assert stand_in.uris == []


@pytest.mark.parametrize("name", ["", ":memory:", ":memory:?timeout=9", "file:a.db?uri=true", "file::memory:?uri=true"])
def test_mlflow_creates_no_file_for_a_store_that_is_not_named_by_a_path(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: SimpleNamespace, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{name}")
    with pytest.raises(ResourceError, match="unknown store"):
        MLflow(tmp_path / "run", {}, 0.0)
    assert stand_in.uris == [f"sqlite:///{name}"]


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%3Fb", "a b"])
def test_mlflow_store_is_in_the_folder_of_the_runs_whatever_its_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: SimpleNamespace, name: str) -> None:
    """A `?` ended the path, so that the store was in another folder. A URI that is not read as this path is refused."""
    path = tmp_path / name / "mlflow.db"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ResourceError, match="unknown store"):
        MLflow(path.parent / "run", {}, 0.0)
    assert [engine.make_url(uri).database for uri in stand_in.uris] == [str(path)]
    monkeypatch.setattr(engine, "make_url", lambda uri: SimpleNamespace(database="other"))
    with pytest.raises(ResourceError, match=r"mlflow\.db: the installed SQLAlchemy cannot open"):
        MLflow(path.parent / "run", {}, 0.0)


class MemoryStore:
    """MLflow's client; `error`: that of the second request with parameters."""

    error: BaseException | None = None

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.requests = 0

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="0")

    def create_run(self, *_: Any, **__: Any) -> Any:
        info = SimpleNamespace(run_id=str(len(self.runs)), lifecycle_stage="active", status="RUNNING")
        self.runs.append(SimpleNamespace(info=info, data=SimpleNamespace(params={})))
        return self.runs[-1]

    def get_run(self, run_id: str) -> Any:
        return self.runs[int(run_id)]

    def set_status(self, run_id: str, status: str) -> None:
        self.get_run(run_id).info.status = status

    update_run = set_terminated = set_status

    def log_batch(self, run_id: str, params: Sequence[tuple[str, str]]) -> None:
        self.requests += 1
        if self.error is not None and self.requests > 1:
            raise self.error
        stored = self.get_run(run_id).data.params
        assert not stored.keys() & dict(params).keys()          # MLflow rejects other values
        stored.update(params)


@pytest.mark.parametrize("error", [RuntimeError("the server is away"), KeyboardInterrupt()])
def test_mlflow_run_that_cannot_start_is_closed_and_continued_by_the_next_start(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: SimpleNamespace, error: BaseException) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Param=lambda key, value: (key, value)))
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", SimpleNamespace(MlflowException=ConnectionError))
    store, settings = MemoryStore(), {f"model.key{i}": str(i) for i in range(150)}
    monkeypatch.setattr("embtrain.train.sinks.mlflow._open", lambda uri: store)
    with monkeypatch.context() as patch, pytest.raises((ResourceError, KeyboardInterrupt)):
        patch.setattr(store, "error", error)
        MLflow(tmp_path / "run", settings, 0.0)
    assert [run.info.status for run in store.runs] == ["KILLED"]
    MLflow(tmp_path / "run", settings, 0.0)
    assert [(run.info.status, run.data.params) for run in store.runs] == [("RUNNING", settings)]


def test_mlflow_store_is_created_by_several_runs_at_once(tmp_path: Path) -> None:
    require("mlflow", "sqlalchemy", "alembic")
    code = "import sys; from pathlib import Path; from embtrain.train.sinks.mlflow import MLflow; " \
           "MLflow(Path(sys.argv[1]), {}, 0.0).close(True)"
    for name in "ab":
        (tmp_path / name).mkdir()
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name)]) for name in "ab"]
    assert [run.wait() for run in runs] == [0, 0]
    assert [store(tmp_path / name)[1].info.status for name in "ab"] == ["FINISHED", "FINISHED"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "mlflow.db"]


def test_mlflow_store_that_is_damaged_is_an_error_of_the_store(tmp_path: Path) -> None:
    require("mlflow", "sqlalchemy", "alembic")
    (tmp_path / "mlflow.db").write_text("text")
    with pytest.raises(ResourceError, match=f"^train.sinks: mlflow: {tmp_path}/mlflow.db: .*file is not a database; "):
        MLflow(tmp_path / "run", {}, 0.0)


def test_mlflow_begins_a_new_stream_only_if_the_stored_one_is_gone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("mlflow", "sqlalchemy", "alembic")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    def unavailable(*_: Any) -> None:
        raise MlflowException("the server is away")

    (tmp_path / "run").mkdir()
    first = MLflow(tmp_path / "run", {}, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_run", unavailable)
        with pytest.raises(ResourceError, match="the server is away"):
            MLflow(tmp_path / "run", {}, 0.0)
    assert MLflow(tmp_path / "run", {}, 0.0).run == first.run
    first.client.delete_run(first.run)
    assert MLflow(tmp_path / "run", {}, 0.0).run != first.run


def test_mlflow_keeps_one_stream_of_a_killed_run(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("mlflow", "sqlalchemy", "alembic")
    run = cut_off(place, tmp_path / "run", monkeypatch, "mlflow")
    client, kept = store(run.folder)
    assert history(run.folder) == as_mlflow(expected_values(run.folder))
    assert len(client.search_runs([kept.info.experiment_id])) == 1 and kept.info.status == "FINISHED"
    assert kept.data.params["negatives.source"] == "unigram" and kept.info.run_name == "run"
    for key, value in finals(run).items():
        assert kept.data.metrics[key.replace("@", "_at_")] == pytest.approx(value)
    assert client.get_experiment(kept.info.experiment_id).name == "embtrain"
