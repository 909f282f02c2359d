"""`embtrain.compare`, and its cells as calls of an executor: the same results, repeated calls, stops."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.comparisons import without_times
from helpers.in_process import Here, in_process, small_text
from helpers.shared_folders import KEYS, assert_same_runs, records

import embtrain
from embtrain.common.errors import ResourceError, Stopped, UsageError
from embtrain.experiment import comparing
from embtrain.experiment.comparison import compare
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.comparison.shared import executors, joiner
from embtrain.experiment.comparison.shared.sharing import ALONE, Sharing

pytestmark = pytest.mark.long

NAMES = ["sgns-seed1", "nce-seed1"]
SETS = {key: value for key, _, value in (text.partition("=") for text in KEYS)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("executors"))


@pytest.fixture(autouse=True)
def _cells_in_this_process(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_process(monkeypatch, place)


def _in_process(patch: pytest.MonkeyPatch, place: Path) -> None:
    in_process(patch, place)
    patch.setattr(joiner, "_POLL", 0.01)
    patch.setattr("embtrain.experiment.comparison.compare.page.write",
                  lambda at: (at / "report.html").write_text("all"))


def run(place: Path, out: Path, executor: Any = None, **options: Any) -> Comparison:
    return embtrain.compare(["sgns", "nce"], seeds=1, corpus=place / "text", sets=SETS, out=out, threads=1,
                            executor=executor, lease_seconds=1.0, **options)


@pytest.fixture(scope="module")
def local(place: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        _in_process(patch, place)
        return run(place, place / "local")


class Inline(Executor):
    """Executes a call when its result is requested; `lose`: calls whose worker is lost before it does anything."""

    def __init__(self, lose: Callable[[int], bool] = lambda n: False):
        self.calls: list[str] = []
        self.lose = lose

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Any:
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))  # as it is sent to a worker
        future: Future[None] = Future()
        self.calls.append(arguments[0]["name"])
        if self.lose(len(self.calls)):
            future.set_exception(RuntimeError("worker 3 was lost\nTraceback"))
        else:
            future.set_result(function(*arguments))
        return future


def test_the_arguments_reach_the_grid(monkeypatch: pytest.MonkeyPatch, local: Comparison, tmp_path: Path) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(compare, "compare", lambda *values, **more: calls.append((*values, more)) or local)
    (tmp_path / "grid.yaml").write_text("trials: 3\nbaseline: sgns\n")
    assert embtrain.compare("sgns, nce", seeds=[4, 5], model="skipgram", corpus=Path("c"), loss="own,softmax",
                            sets={"model.dim": 5, "train.lr": 0.5}, benchmarks=["men", "simlex999"], metric="test/mrr",
                            baseline="nce", search="train.lr=1:2", config=tmp_path / "grid.yaml", out=tmp_path / "o",
                            parallel=2, threads=4, cpu_seconds=9) is local
    grid = Grid(strategies=["sgns", "nce"], seeds=[4, 5], models=["skipgram"], corpus="c", losses=[None, "softmax"],
                sets=["model.dim=5", "train.lr=0.5"], benchmarks=["men", "simlex999"], metric="test/mrr",
                baseline="nce", search=["train.lr=1:2"], trials=3, cpu_seconds=9)
    assert calls == [(grid, tmp_path / "o", 2, 4, {"sharing": ALONE})]
    embtrain.compare("sgns,nce", seeds=2, out="o", join=True)
    assert calls[1] == (Grid(strategies=["sgns", "nce"], seeds=[1, 2]), Path("o"), None, 0, {"sharing": Sharing(20.0)})
    with pytest.raises(UsageError, match=r"negatives: 'sgns,,nce': should be names, in a list or separated by commas"):
        embtrain.compare("sgns,,nce")
    with pytest.raises(UsageError, match="corpus: takes no list; give the name of a recipe"):
        embtrain.compare("sgns,nce", corpus=[["a", "b"]])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="executor: needs a folder that its workers share; give it with out"):
        embtrain.compare("sgns,nce", executor=Inline())
    with pytest.raises(UsageError, match="executor: cannot be combined with join"):
        embtrain.compare("sgns,nce", executor=Inline(), join=True, out="o")


def test_the_function_has_the_results_of_the_command(local: Comparison, place: Path, tmp_path: Path) -> None:
    grid = compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 1, "corpus": str(place / "text"), "sets": KEYS})
    compare.compare(grid, tmp_path, 1, 1)
    assert without_times(tmp_path) == without_times(local.folder)
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_calls_have_the_bits_of_a_local_comparison(local: Comparison, place: Path, tmp_path: Path) -> None:
    executor = Inline()
    run(place, tmp_path, executor)
    assert executor.calls == NAMES
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert without_times(tmp_path) == without_times(local.folder)
    run(place, tmp_path, executor)
    assert executor.calls == NAMES and not list((tmp_path / "join" / "sessions").iterdir())


def test_a_call_whose_worker_was_lost_is_repeated(local: Comparison, place: Path, tmp_path: Path) -> None:
    executor = Inline(lambda n: n in (1, 3))
    run(place, tmp_path, executor, parallel=1)
    assert executor.calls == ["sgns-seed1", "nce-seed1", "sgns-seed1", "sgns-seed1"]
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_a_cell_that_is_always_lost_is_one_error(local: Comparison, place: Path, tmp_path: Path) -> None:
    executor = Inline(lambda n: executor.calls[n - 1] == "nce-seed1")
    message = (f"executor: 1 of 2 runs was lost {executors.MAX_CALLS} times; nce-seed1: RuntimeError: worker 3 "
               "was lost; repeat the call to continue")
    with pytest.raises(ResourceError, match=message):
        run(place, tmp_path, executor)
    assert executor.calls.count("nce-seed1") == executors.MAX_CALLS and not (tmp_path / "results.json").exists()
    run(place, tmp_path, Inline())
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_an_executor_that_is_broken_is_one_error(place: Path, tmp_path: Path) -> None:
    class Broken(Inline):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise BrokenExecutor("a child process terminated abruptly")

    with pytest.raises(ResourceError, match="executor: lost a worker and accepts no more calls: a child process term"):
        run(place, tmp_path, Broken())


def test_a_failed_cell_is_recorded_and_run_again_by_the_next_call(local: Comparison, place: Path, tmp_path: Path
                                                                  ) -> None:
    Here.fail = "nce-seed1"
    try:
        failed = run(place, tmp_path, executor := Inline()).results["cells"][1]
        assert failed["status"] == "failed" and "killed 6 times" in failed["error"] and executor.calls == NAMES
    finally:
        Here.fail = ""
    run(place, tmp_path, Inline())
    assert_same_runs(tmp_path, local.folder, NAMES)


@pytest.mark.slow
def test_a_signal_stops_the_calls_and_their_work_is_kept(local: Comparison, place: Path, tmp_path: Path) -> None:
    class Waiting(Inline):
        """Runs its first call in another thread, which ends when the session has ended."""

        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Any:
            if self.calls:
                signal.raise_signal(signal.SIGTERM)
                return Future()
            self.calls.append(arguments[0]["name"])
            (arguments[1] / "join" / "leases" / "sgns-seed1.1").touch()  # another machine has it
            return ThreadPoolExecutor(1).submit(function, *arguments)

    begun = time.monotonic()
    with pytest.raises(Stopped, match=r"--join --lease-seconds 100 --retry-failed$"):
        embtrain.compare(["sgns", "nce"], seeds=1, corpus=place / "text", sets=SETS, out=tmp_path, threads=1,
                         executor=Waiting(), lease_seconds=100)
    assert time.monotonic() - begun < executors.STOP_SECONDS and not list((tmp_path / "join" / "sessions").iterdir())
    assert threading.active_count() < 10
    run(place, tmp_path, Inline())
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_a_worker_that_is_stopped_raises_an_exception_that_executors_return(place: Path, tmp_path: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped is not an Exception: it would end the worker of a pool."""
    monkeypatch.setattr(executors.Joiner, "run", lambda *_: (_ for _ in ()).throw(Stopped(15)))
    (tmp_path / "join" / "leases").mkdir(parents=True)
    cell = compare.plan(compare.read_grid({"strategies": ["sgns", "nce"], "corpus": str(place / "text"),
                                           "sets": KEYS}), tmp_path)[1][0]
    with pytest.raises(InterruptedError, match="stopped by signal 15"):
        executors.run_cell(executors.pack(cell), tmp_path, 1, 1.0, tmp_path / "session", {})


def states(folder: Path) -> dict[str, list[str]]:
    return {name: [record["state"] for record in of_name] for name, of_name in records(folder).items()}


def test_threads_have_the_bits_of_a_local_comparison(local: Comparison, place: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        run(place, tmp_path, pool)
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert without_times(tmp_path) == without_times(local.folder)
    assert states(tmp_path) == {"sgns-seed1": ["done"], "nce-seed1": ["done"], "results": ["done"]}


@pytest.mark.slow
def test_a_process_of_a_pool_has_the_bits_of_a_local_comparison(local: Comparison, place: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the pool starts one for the run; the other run is finished, which saves time."""
    shutil.copy(local.folder / "comparison.yaml", tmp_path)
    shutil.copytree(local.folder / "cells" / NAMES[0], tmp_path / "cells" / NAMES[0])
    monkeypatch.undo()
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(comparing.__file__).parents[2]))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        run(place, tmp_path, pool)
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert states(tmp_path) == {"nce-seed1": ["done"], "results": ["done"]}
