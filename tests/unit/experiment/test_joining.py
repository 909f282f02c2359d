"""Comparisons on several machines: the same bits as on one, take-over, failures, search, budget and one report."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.comparisons import without_times
from helpers.in_process import Here, in_process, replace_processes, small_text
from helpers.processes import embtrain, nothing_is_left_running  # noqa: F401
from helpers.shared_folders import KEYS, assert_same_runs, kill, options, records

from embtrain import cli, experiment
from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError
from embtrain.experiment.comparison import compare, failures, workers
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.comparison.shared import handover, joiner, sharing
from embtrain.experiment.comparison.shared.sharing import ALONE, Alone, Sharing
from embtrain.train import loop
from embtrain.train.state import lease as leases

pytestmark = pytest.mark.long

NAMES = ["sgns-seed1", "nce-seed1", "sgns-seed2", "nce-seed2"]
PROCESS = subprocess.Popen
JOIN = Sharing(stale_after=1.0)
STORING = '''
from embtrain.train.sinks.base import Sink, store_folder

class Storing(Sink):
    name, needs = "storing", ()

    def __init__(self, folder, settings, started):
        with open(store_folder(folder) / "store", "a") as store:
            store.write(folder.name + "\\n")

    def write(self, lines):
        pass

    def write_scores(self, last, scores):
        pass
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("joined"))


@pytest.fixture(autouse=True)
def local_cells(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    _in_process(monkeypatch, place)
    return Here


def _in_process(patch: pytest.MonkeyPatch, place: Path) -> None:
    in_process(patch, place)
    patch.setattr(joiner, "_POLL", 0.01)
    patch.setattr("embtrain.experiment.comparison.compare.page.write",
                  lambda at: (at / "report.html").write_text("all"))


def grid(place: Path, *sets: str, **changes: Any) -> Grid:
    return compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 2, "corpus": str(place / "text"),
                              "sets": [*KEYS, *sets], **changes})


@pytest.fixture(scope="module")
def local(place: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        _in_process(patch, place)
        return compare.compare(grid(place), place / "local", 1, 1)


def states(folder: Path) -> dict[str, list[str]]:
    return {name: [record["state"] for record in of_name] for name, of_name in records(folder).items()}


def test_a_joined_comparison_has_the_bits_and_results_of_a_local_one(place: Path, local: Comparison, tmp_path: Path
                                                                      ) -> None:
    joined = compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert without_times(tmp_path) == without_times(local.folder) and joined.verdict[0] == local.verdict[0]
    assert states(tmp_path) == {name: ["done"] for name in [*NAMES, "results"]}
    written = (tmp_path / "results.json").stat()
    again = compare.compare(compare.read_grid({}, None, tmp_path), tmp_path, 1, 1, sharing=JOIN)  # only prints
    assert (tmp_path / "results.json").stat() == written and again.table() == joined.table()
    with pytest.raises(UsageError, match=r"--seeds: the processes .* have seeds: \[1, 2\], but \[1, 2, 3\]"):
        compare.compare(grid(place, seeds=3), tmp_path, 1, 1, sharing=JOIN)
    extended = compare.compare(grid(place, seeds=3), tmp_path, 1, 1)  # on one machine, after the others have finished
    assert len(extended.results["cells"]) == 6 and not (tmp_path / "join").exists()


def test_a_folder_is_needed() -> None:
    with pytest.raises(UsageError, match="--join: needs a folder that all machines share; give it with --out"):
        compare.compare(Grid(strategies=["sgns", "nce"]), sharing=JOIN)


@pytest.mark.parametrize("sharing", [ALONE, JOIN])
def test_a_file_in_the_place_of_a_run_is_refused_before_training(place: Path, local: Comparison, tmp_path: Path,
                                                                 sharing: Alone | Sharing) -> None:
    """With --join it ended the comparison after the run, which could not be published."""
    shutil.copytree(local.folder, tmp_path / "both")
    (tmp_path / "both" / "cells" / "nce-seed3").touch()
    with pytest.raises(UsageError, match=r"^--out: .*/cells/nce-seed3: is not a folder, and a comparison needs a"):
        compare.compare(grid(place, seeds=3), tmp_path / "both", 1, 1, sharing=sharing)
    assert not (tmp_path / "both" / "cells" / "sgns-seed3").exists()


def fail_for(run: str, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Make a function fail if one of its arguments contains the name of a run, or the end of several names."""
    function = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if any(run in str(argument) for argument in arguments):
            raise ResourceError(f"{run}: cannot be written: No space left on device")
        return function(*arguments)

    patch.setattr(module, name, fail)


def test_a_run_whose_folder_cannot_be_written_fails_alone(place: Path, local: Comparison, tmp_path: Path) -> None:
    """And is trained when the command is repeated."""
    with pytest.MonkeyPatch.context() as patch:
        fail_for("nce-seed1", patch, workers, "write_text")
        result = compare.compare(grid(place), tmp_path, 1, 1)
    error = failures.failed(tmp_path, result.record)
    assert isinstance(error, ResourceError) and re.search(
        "1 of 4 runs failed, .*; nce-seed1: .*: cannot be written: No space left on device; to run it ", str(error))
    compare.compare(grid(place), tmp_path, 1, 1)
    assert_same_runs(tmp_path, local.folder, NAMES)


@pytest.mark.parametrize(("module", "name", "failing"), [
    (workers, "write_text", ""), (handover, "prepare", ""), (handover, "remove_failure", ""), (handover, "publish", ""),
    (handover, "publish", "nce-seed1")])
def test_a_machine_that_cannot_write_a_run_leaves_it_to_others(place: Path, local: Comparison, tmp_path: Path,
                                                               module: Any, name: str, failing: str) -> None:
    """Its process trains the other runs first. Another user may own the folder that a published run replaces."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ResourceError, match=r"^nce-seed1: cannot be written"):
        patch.setattr(Here, "fail", failing)
        patch.setattr(Here, "fail_code", 3)
        fail_for("nce-seed1", patch, module, name)
        compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert states(tmp_path) == {run: ["released" if run == "nce-seed1" else "done"] for run in NAMES}
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert states(tmp_path)["nce-seed1"] == ["released", "done"]
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_a_machine_without_disk_space_tries_each_run_once(place: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ResourceError, match=r"^-seed: cannot be written"):
        fail_for("-seed", patch, handover, "prepare")
        compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert states(tmp_path) == {name: ["released"] for name in NAMES}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="linux: finds the children of a process")
def test_runs_of_a_killed_machine_are_resumed_with_the_same_bits(place: Path, tmp_path: Path) -> None:
    """A process and its run get SIGKILL; the process of this test takes over what they had done."""
    keys = ("train.epochs=50", "train.checkpoint_every=0.05", "train.evaluate_every=1000", "train.log_every=100")
    planned = grid(place, *keys, seeds=1)
    compare.compare(planned, tmp_path / "local", 1, 1)
    with pytest.MonkeyPatch.context() as patch:
        replace_processes(patch, PROCESS)
        other = embtrain(place, "compare", "--negatives", "sgns,nce", "--corpus", "text", "--seeds", "1", "--parallel",
                         "1", "--threads", "1", "--quiet", "--join", "--out", str(tmp_path / "shared"), *options(*keys))
    run = tmp_path / "shared" / "join" / "runs" / "sgns-seed1.1" / "sgns-seed1"
    deadline = time.monotonic() + 120
    while len(list(run.glob("checkpoints/*.json"))) < 2 and other.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    kill(other)
    assert other.wait(60) == -signal.SIGKILL and (run / "config.yaml").exists() and not (run / "scores.json").exists()
    Here.log.clear()
    compare.compare(planned, tmp_path / "shared", 1, 1, sharing=JOIN)
    assert Here.log == ["fit nce-seed1", "resume sgns-seed1"]
    assert_same_runs(tmp_path / "shared", tmp_path / "local", NAMES[:2])
    taken = records(tmp_path / "shared")["sgns-seed1"]
    assert [record["state"] for record in taken] == ["running", "done"] and taken[1]["step"] > 0
    assert taken[0]["pid"] == other.pid and taken[1]["pid"] == os.getpid()


def test_a_run_is_killed_if_another_machine_has_taken_it(place: Path, local: Comparison, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """This process was suspended. Meanwhile the run was finished elsewhere, under the next number."""
    killed: list[str] = []

    class Suspended(Here):
        """A run that does not end while its lease is lost."""

        def __init__(self, words: list[str], stderr: Any, pass_fds: list[int], **how: Any):
            lease = Path(how["env"]["EMBTRAIN_LEASE"])
            self.name = lease.name.rpartition(".")[0]
            if lease.name == "sgns-seed1.1":
                self.returncode = None  # type: ignore[assignment]
                (lease.parent / "sgns-seed1.2").write_text('{"state": "released"}')
            else:
                super().__init__(words, stderr, pass_fds, **how)

        def kill(self) -> None:
            killed.append(self.name)

    replace_processes(monkeypatch, Suspended)
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert killed == ["sgns-seed1"]
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert states(tmp_path)["sgns-seed1"] == ["released", "released", "done"]


def test_a_run_that_ends_after_its_lease_was_taken_is_not_published(place: Path, local: Comparison, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder failed to see that another machine, which then died, had taken the run."""
    class Late(Here):
        def __init__(self, words: list[str], stderr: Any, pass_fds: list[int], **how: Any):
            super().__init__(words, stderr, pass_fds, **how)
            lease = Path(how["env"]["EMBTRAIN_LEASE"])
            if lease.name == "sgns-seed1.1":
                (lease.parent / "sgns-seed1.2").write_text('{"state": "running"}')

    replace_processes(monkeypatch, Late)
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert Here.log.count("fit sgns-seed1") == 2 and states(tmp_path)["sgns-seed1"] == ["released", "running", "done"]
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_sinks_have_one_store_in_the_folder_of_the_published_runs(place: Path, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the sinks of a run that another machine continues."""
    class Environed(Here):
        def __init__(self, words: list[str], stderr: Any, pass_fds: list[int], **how: Any):
            with pytest.MonkeyPatch.context() as patch:
                for name in filter(re.compile("EMBTRAIN_").match, how["env"]):
                    patch.setenv(name, how["env"][name])
                super().__init__(words, stderr, pass_fds, **how)
            if how["env"][leases.VARIABLE].endswith("sgns-seed1.1"):
                self.returncode = -signal.SIGKILL

    (place / "storing.py").write_text(STORING)
    monkeypatch.setenv("EMBTRAIN_PLUGINS", str(place / "storing.py"))
    replace_processes(monkeypatch, Environed)
    compare.compare(grid(place, "train.sinks=[storing]", seeds=1), tmp_path / "shared", 1, 1, sharing=JOIN)
    assert states(tmp_path / "shared")["sgns-seed1"] == ["killed", "done"]
    assert [path.relative_to(tmp_path / "shared") for path in (tmp_path / "shared").rglob("store")] == [
        Path("cells/store")]
    assert sorted((tmp_path / "shared/cells/store").read_text().split()) == ["nce-seed1", "sgns-seed1", "sgns-seed1"]


def test_a_run_whose_lease_was_taken_writes_no_checkpoint(place: Path, local: Comparison, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leases.take(tmp_path, "sgns-seed1", 1)
    assert lease is not None
    monkeypatch.setenv(leases.VARIABLE, str(lease.path))
    settings = experiment.Run(local.folder / "cells" / "sgns-seed1").settings
    experiment.fit(settings, tmp_path / "held")
    assert handover.last_step(tmp_path / "held") > 0
    trained = loop.Trainer._train

    def taken_while_it_trains(trainer: loop.Trainer, *values: Any) -> None:
        trained(trainer, *values)
        leases.take(tmp_path, "sgns-seed1", 2)

    monkeypatch.setattr(loop.Trainer, "_train", taken_while_it_trains)
    with pytest.raises(leases.LeaseLost, match="another machine has taken over this run"):
        experiment.fit(settings, tmp_path / "lost")
    assert handover.last_step(tmp_path / "lost") == 0
    assert not (tmp_path / "lost" / "vectors.safetensors").exists()


def test_a_run_that_is_killed_again_and_again_has_failed(place: Path, local: Comparison, tmp_path: Path) -> None:
    Here.fail = "nce-seed1"
    try:
        with_failure = compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
        assert states(tmp_path)["nce-seed1"] == ["killed"] * joiner.MAX_KILLS + ["failed"]
        error = f"killed {joiner.MAX_KILLS} times without a new checkpoint, which may mean too little memory"
        failed = [cell for cell in with_failure.results["cells"] if cell["status"] == "failed"]
        assert [(cell["cell"], cell["error"]) for cell in failed] == [("nce-seed1", error)]
        compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
        assert len(states(tmp_path)["nce-seed1"]) == joiner.MAX_KILLS + 1 and len(states(tmp_path)["results"]) == 1
    finally:
        Here.fail = ""
    compare.compare(grid(place), tmp_path, 1, 1, sharing=Sharing(1.0, retry_failed=True))
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert without_times(tmp_path) == without_times(local.folder) and states(tmp_path)["results"] == ["done"] * 2


def test_a_run_that_crashes_has_failed_at_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would crash again on each machine that resumes it."""
    monkeypatch.setattr(Here, "fail", "nce-seed1")
    monkeypatch.setattr(Here, "fail_code", -6)
    done = compare.compare(grid(place, seeds=1), tmp_path, 1, 1, sharing=JOIN)
    assert states(tmp_path)["nce-seed1"] == ["failed"]
    (failed,) = [cell for cell in done.results["cells"] if cell["status"] == "failed"]
    assert failed["error"] == "crashed with signal 6 (SIGABRT)"
    assert isinstance(failures.failed(tmp_path, done.record), DataError)


def test_the_error_of_a_run_names_the_folder_that_it_is_moved_to(place: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run has scores") as failed:
        compare.compare(grid(place, "train.lr=1e9", "train.min_lr=0", seeds=1), tmp_path, 1, 1, sharing=JOIN)
    folder, *_ = re.findall(r"the last finite state is in (\S+);", str(failed.value))
    assert Path(folder) == tmp_path / "cells" / "sgns-seed1" / "checkpoints" and Path(folder).is_dir()


def test_a_run_with_an_error_is_recorded_and_continued_when_requested(place: Path, local: Comparison, tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        broken = lambda *_: (_ for _ in ()).throw(DataError("no scores today"))  # noqa: E731
        patch.setattr("embtrain.experiment.run.trainer.load_best", broken)
        with pytest.raises(DataError, match="no run has scores; sgns-seed1: no scores today"):
            compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
        assert states(tmp_path) == {**{name: ["failed"] for name in NAMES}, "results": ["released"]}
        assert (tmp_path / "cells" / "nce-seed2" / "checkpoints").is_dir()
    Here.log.clear()
    compare.compare(grid(place), tmp_path, 1, 1, sharing=Sharing(1.0, retry_failed=True))
    assert Here.log == [f"resume {name}" for name in NAMES]
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_a_stopped_process_gives_up_its_leases_at_once(place: Path, local: Comparison, tmp_path: Path) -> None:
    Here.stop_at = len(Here.log) + 1
    try:
        with pytest.raises(Stopped, match=r"compare --out \S* --parallel 1 --threads 1 --join --lease-seconds 1$"):
            compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    finally:
        Here.stop_at = None
    assert states(tmp_path) == {"sgns-seed1": ["done"], "nce-seed1": ["released"]}
    begun = time.monotonic()
    compare.compare(grid(place), tmp_path, 1, 1, sharing=Sharing(stale_after=1000))
    assert time.monotonic() - begun < 500
    assert_same_runs(tmp_path, local.folder, NAMES)


def test_runs_of_one_machine_are_continued_by_several(place: Path, local: Comparison, tmp_path: Path) -> None:
    Here.fail = "sgns-seed2"
    try:
        compare.compare(grid(place), tmp_path, 1, 1)
    finally:
        Here.fail = ""
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert_same_runs(tmp_path, local.folder, NAMES)
    assert set(states(tmp_path)) == {"sgns-seed2", "results"}


def test_no_run_starts_after_the_cpu_seconds_of_all(place: Path, local: Comparison, tmp_path: Path) -> None:
    few = compare.compare(grid(place), tmp_path, 1, 1, 1e-9, sharing=JOIN)
    assert [cell["status"] for cell in few.results["cells"]] == ["finished", *["not run"] * 3]
    assert states(tmp_path)["nce-seed1"] == ["skipped"]
    compare.compare(grid(place), tmp_path, 1, 1, 1e9, sharing=JOIN)
    assert_same_runs(tmp_path, local.folder, NAMES)


@pytest.mark.parametrize(("budget", "limit"), [(1.0, "1 CPU second"), (60.0, "60 CPU seconds")])
def test_a_run_that_is_not_started_names_the_cpu_seconds(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                         budget: float, limit: str) -> None:
    monkeypatch.setattr(joiner.Joiner, "spent", lambda _, cells: 99.0 * any(cell.is_finished() for cell in cells))
    few = compare.compare(grid(place, seeds=1), tmp_path, 1, 1, budget, sharing=JOIN)
    assert [cell.get("error") for cell in few.results["cells"]] == [
        None, f"not started: the limit of {limit} for all runs was used up"]


def test_a_metric_that_does_not_exist_stops_the_first_run(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sgns-seed1 does not have this score"):
        compare.compare(grid(place, metric="test/mrr/head"), tmp_path, 1, 1, sharing=JOIN)


def test_a_grid_that_is_refused_before_a_run_begins_is_forgotten(place: Path, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a run of sgns does not have this score"):
        compare.compare(grid(place, metric="test/unknown"), tmp_path, 1, 1, sharing=JOIN)
    with monkeypatch.context() as patch, pytest.raises(ResourceError, match="MiB are free"):
        patch.setattr("embtrain.common.machine.free_disk", lambda path: 0)
        compare.compare(grid(place, seeds=9), tmp_path, 1, 1, sharing=JOIN)
    done = compare.compare(grid(place, metric="test/mrr"), tmp_path, 1, 1, sharing=JOIN)
    assert done.results["plan"]["metric"] == "test/mrr"


def test_processes_of_a_launcher_share_the_runs_only_if_they_join(place: Path, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    class InItsEnvironment(Here):
        def __init__(self, words: list[str], stderr: Any, pass_fds: list[int], env: dict[str, str], **how: Any):
            with pytest.MonkeyPatch.context() as patch:
                for name in {*os.environ} - {*env}:
                    patch.delenv(name)
                super().__init__(words, stderr, pass_fds, **how)

    replace_processes(monkeypatch, InItsEnvironment)
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9",
                        "EMBTRAIN_SYNC_SECONDS": "1"}.items():
        monkeypatch.setenv(name, value)
    for out in (None, tmp_path / "alone"):
        with pytest.raises(UsageError, match=r"^WORLD_SIZE: 2: a comparison is not a run of several processes; add -"):
            compare.compare(grid(place, seeds=1), out, 1, 1)
    assert not (tmp_path / "alone").exists()
    done = compare.compare(grid(place, seeds=1), tmp_path / "joined", 1, 1, sharing=JOIN)
    assert [cell["status"] for cell in done.results["cells"]] == ["finished"] * 2


@pytest.mark.slow
def test_a_report_is_written_by_one_process(place: Path, local: Comparison, tmp_path: Path) -> None:
    """The other process holds the lease of the report; this one waits for it, or takes over if it dies."""
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    (tmp_path / "results.json").unlink()
    leases = tmp_path / "join" / "leases"
    (leases / "results.2").write_text('{"state": "running"}')

    def finish() -> None:
        (tmp_path / "results.json").write_text((local.folder / "results.json").read_text())
        (leases / "results.2").write_text((leases / "results.1").read_text())

    finishing = threading.Timer(0.7, finish)
    finishing.start()
    compare.compare(grid(place), tmp_path, 1, 1, sharing=Sharing(stale_after=20))
    finishing.join()
    assert (tmp_path / "results.json").read_text() == (local.folder / "results.json").read_text()
    (leases / "results.3").write_text('{"state": "running"}')
    compare.compare(grid(place), tmp_path, 1, 1, sharing=JOIN)
    assert states(tmp_path)["results"] == ["done", "done", "running", "done"]


def test_a_machine_without_a_compiled_core_does_not_join(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                        ) -> None:
    monkeypatch.setattr(sharing, "core", lambda: None)
    with pytest.raises(ResourceError, match="this machine has no compiled core, so each run would fail here"):
        compare.compare(grid(place, "train.engine=fused"), tmp_path, 1, 1, sharing=JOIN)
    assert not (tmp_path / "join").exists()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("optuna") is None,
                    reason="search: optuna is not installed; pip install -e '.[search]' brings it")
def test_a_search_chooses_the_settings_of_a_local_one(place: Path, tmp_path: Path) -> None:
    """Also if another process is ahead, or if its list of trials is lost."""
    searched = grid(place, seeds=1, search=["negatives.k=2:9"], trials=2)
    compare.compare(searched, tmp_path / "local", 1, 1)
    compare.compare(searched, tmp_path / "shared", 1, 1, sharing=JOIN)
    names = [path.name for path in sorted((tmp_path / "local" / "search").iterdir()) if path.is_dir()]
    assert len(names) == 4
    assert_same_runs(tmp_path / "shared", tmp_path / "local", names, "search")
    assert_same_runs(tmp_path / "shared", tmp_path / "local", NAMES[:2])
    assert without_times(tmp_path / "shared")["plan"] == without_times(tmp_path / "local")["plan"]
    whole = (tmp_path / "shared" / "search.json").read_text()
    (tmp_path / "shared" / "search.json").unlink()
    Here.log.clear()
    compare.compare(searched, tmp_path / "shared", 1, 1, sharing=JOIN)
    assert (tmp_path / "shared" / "search.json").read_text() == whole and Here.log == []


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None,
                    reason="search: optuna is not installed; pip install -e '.[search]' brings it")
def test_a_trial_without_resources_is_run_again_when_requested(place: Path, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    searched = grid(place, seeds=1, search=["negatives.k=2:9"], trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(Here, "fail", "sgns-trial1")
        for _ in range(2):
            with pytest.raises(ResourceError, match=r"search/sgns-trial1: killed .* after --join with --retry"):
                compare.compare(searched, tmp_path, 1, 1, sharing=JOIN)
    done = compare.compare(searched, tmp_path, 1, 1, sharing=Sharing(1.0, retry_failed=True))
    assert done.results["search"][0]["failed"] == 0


@pytest.mark.parametrize("words", ["--join", "--join --retry-failed", "--join --lease-seconds 60 --retry-failed",
                                   "--join --lease-seconds 1234567.5"])
def test_the_command_that_resumes_has_the_options_of_the_stopped_one(
        monkeypatch: pytest.MonkeyPatch, local: Comparison, words: str) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(compare, "compare", lambda *_, **given: calls.append(given) or local)
    monkeypatch.setattr(sys, "argv", ["embtrain", "compare", "--negatives=sgns,nce", "--out=o", *words.split()])
    assert cli.run() == 0 and " ".join(calls[0]["sharing"].options) == words


def test_the_options_of_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                    local: Comparison) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(compare, "compare", lambda *_, **sharing: calls.append(sharing) or local)
    for words in ("", "--join", "--join --retry-failed --lease-seconds 5"):
        monkeypatch.setattr(sys, "argv", ["embtrain", "compare", "--negatives=sgns,nce", "--out=o", *words.split()])
        assert cli.run() == 0
    assert calls == [{}, {"sharing": Sharing(20.0, False)}, {"sharing": Sharing(5.0, True)}]
    capsys.readouterr()
    for word in ("--retry-failed", "--lease-seconds=5"):
        monkeypatch.setattr(sys, "argv", ["embtrain", "compare", "--negatives", "sgns,nce", word])
        assert cli.run() == 2 and f"{word.partition('=')[0]}: needs --join" in capsys.readouterr().err
