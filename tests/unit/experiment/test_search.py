"""Hyperparameter search per strategy: equal budgets, validation scores only, the same choice after a stop."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.in_process import Here, in_process, small_text

from embtrain import experiment
from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError
from embtrain.evaluate.comparison.results import ChosenSettings
from embtrain.experiment.comparison import compare, outcome, search_space, tuning, workers
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.comparison.grid import read_grid
from embtrain.experiment.run.settings import resolve
from embtrain.experiment.tasks.base import find
from embtrain.report.comparison import page
from embtrain.report.load import comparison
from embtrain.report.render import markdown_latex

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=4", "train.epochs=1", "train.chunk=512",
        "evaluate.heldout_pairs=300", "evaluate.resamples=0", "evaluate.neighbours=[]", "evaluate.benchmarks=[]"]
SEARCH = ["train.lr=0.001:0.1:log", "negatives.k=2:9"]

pytestmark = [pytest.mark.long, pytest.mark.skipif(importlib.util.find_spec("optuna") is None,
                                reason="search: optuna is not installed; pip install -e '.[search]' brings it")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("search"))


@pytest.fixture(autouse=True)
def local_cells(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    _in_process(monkeypatch, place)
    return Here


def _in_process(patch: pytest.MonkeyPatch, place: Path) -> None:
    in_process(patch, place)
    patch.setattr("embtrain.experiment.comparison.compare.page.write",
                  lambda at: (at / "report.html").write_text("all"))


def grid(place: Path, **options: Any) -> Grid:
    return compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 1, "corpus": str(place / "text"), "sets": KEYS,
                              "search": SEARCH, "trials": 7, **options})


def run(place: Path, out: Path, **options: Any) -> Comparison:
    return compare.compare(grid(place, **options), out, 1, 1)


@pytest.fixture(scope="module")
def finished(place: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        _in_process(patch, place)
        return run(place, place / "done")


def trials(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads((folder / "search.json").read_text())["trials"]


def settings_of(folder: Path) -> list[tuple[float, int]]:
    config = experiment.Run(folder).settings
    return [(config.train.lr, config.negatives.k)]


# -- a complete search -------------------------------------------------------------------------------------------------

def test_each_strategy_gets_equal_trials_and_its_best_one_is_compared(finished: Comparison) -> None:
    trials_of = trials(finished.folder)
    assert {label: len(group) for label, group in trials_of.items()} == {"sgns": 7, "nce": 7}
    for label, group in trials_of.items():
        for i, trial in enumerate(group, 1):
            folder = finished.folder / "search" / f"{label}-trial{i}"
            run_read = experiment.Run(folder)
            assert settings_of(folder) == [(trial["settings"]["train.lr"], trial["settings"]["negatives.k"])]
            (valid,) = [row.value for row in run_read.scores if (row.benchmark, row.metric) == ("valid",
                                                                                                "log_likelihood")]
            assert trial["value"] == valid and .001 <= run_read.settings.train.lr <= .1
            assert run_read.settings.train.seed == tuning.SEED and run_read.settings.train.epochs == 1
        chosen = max(group, key=lambda trial: trial["value"])["settings"]
        assert settings_of(finished.folder / "cells" / f"{label}-seed1") == [(chosen["train.lr"],
                                                                              chosen["negatives.k"])]
    first = [[trial["settings"] for trial in group[:tuning.RANDOM_TRIALS]] for group in trials_of.values()]
    assert first[0] == first[1] and len({trial["value"] for group in trials_of.values() for trial in group}) == 14


def test_the_choice_is_written_printed_and_reported(finished: Comparison) -> None:
    rows = finished.results["search"]
    assert [(row["strategy"], row["trials"], row["failed"]) for row in rows] == [("sgns", 7, 0), ("nce", 7, 0)]
    assert all(row["metric"] == "valid/log_likelihood" and row["cpu_seconds"] > 0 for row in rows)
    lines = [line for line in finished.table().splitlines() if "the best of 7 trials" in line]
    assert [line.split(":")[0] for line in lines] == ["sgns", "nce"]
    assert f"negatives.k={rows[0]['settings']['negatives.k']}" in lines[0]
    text = markdown_latex.markdown(page.document(comparison.read(finished.folder)))
    assert "## Tuned settings" in text and "--trials 7" in text.replace("\\", "")
    assert finished.results["plan"]["search"] == SEARCH and finished.results["plan"]["trials"] == 7


def test_one_strategy_is_tuned_and_reported_without_differences(place: Path, tmp_path: Path, local_cells: type[Here]
                                                                ) -> None:
    done = run(place, tmp_path / "one", strategies=["sgns"])
    assert list(trials(done.folder)) == ["sgns"] and len(trials(done.folder)["sgns"]) == 7
    assert done.results["differences"] == [] and [row["strategy"] for row in done.results["search"]] == ["sgns"]
    text = markdown_latex.markdown(page.document(comparison.read(done.folder)))
    assert "## Tuned settings" in text and not any(word in text for word in ("· baseline", "Bold", "tested against"))


def test_each_trial_is_printed_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tuning.progress, "quiet", False)
    tried = [{"value": value, "settings": {"train.lr": 0.0123456789, "negatives.k": 7}, "error": "no room"}
             for value in (-7.0, -6.5, -6.75, None)]
    for n in range(1, 5):
        tuning._print_trial("nce", tried[:n], "valid/x", True)
    lines = [line.removeprefix("nce: trial ") for line in capsys.readouterr().err.splitlines()]
    assert lines == ["1: train.lr=0.01235, negatives.k=7: valid/x -7.000; the best so far",
                    "2: train.lr=0.01235, negatives.k=7: valid/x -6.500; the best so far",
                    "3: train.lr=0.01235, negatives.k=7: valid/x -6.750; trial 2 has -6.500",
                    "4: train.lr=0.01235, negatives.k=7: failed: no room"]


def test_test_scores_are_not_used(place: Path, finished: Comparison, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials with inverted test scores give the same choice."""
    read = outcome.run_record.read

    def upside_down(folder: Path) -> Any:
        run_read = read(folder)
        for i, row in enumerate(run_read.scores or []):
            if row.benchmark == "test" and row.value is not None and "search" in str(folder):
                run_read.scores[i] = row._replace(value=-row.value)  # type: ignore[index]
        return run_read

    monkeypatch.setattr(outcome.run_record, "read", upside_down)
    again = run(place, tmp_path / "out", trials=3)
    assert [row["settings"] for row in again.results["search"]] == [
        tuning.best_trial(group[:3], True, label)["settings"] for label, group in trials(finished.folder).items()]


# -- resuming ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stop_at", [1, 3])
def test_a_stopped_search_resumes_to_the_same_choice(
        place: Path, finished: Comparison, tmp_path: Path, local_cells: type[Here], monkeypatch: pytest.MonkeyPatch,
        stop_at: int
        ) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Here, "stop_at", stop_at)
        with pytest.raises(Stopped):
            run(place, tmp_path / "out", trials=3)
    again = compare.compare(compare.read_grid({}, None, tmp_path / "out"), tmp_path / "out", 1, 1)
    assert len(local_cells.log) == 8 and len(set(local_cells.log)) == 8                       # no trial runs twice
    values = {label: [trial["value"] for trial in group] for label, group in trials(again.folder).items()}
    assert values == {label: [trial["value"] for trial in group[:3]] for label,
                      group in trials(finished.folder).items()}


def test_finished_trials_are_kept_and_trials_can_be_added(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    run(place, tmp_path, trials=2)
    ran = len(local_cells.log)
    compare.compare(compare.read_grid({}, None, tmp_path), tmp_path, 1, 1)
    compare.rejudge(tmp_path)
    assert len(local_cells.log) == ran == 6
    for n in (2, 3):
        with pytest.raises(UsageError, match=r"searched over train\.lr=0\.001:0\.1:log; negatives\.k=2:9, but train"):
            run(place, tmp_path, trials=n, search=["train.lr=0.01:0.1"])
    before = trials(tmp_path)
    best = tuning.best_trial(before["sgns"], True, "sgns")
    try:
        run(place, tmp_path, trials=3)
    except UsageError as error:                                               # a strategy has a better trial
        assert "was trained with" in str(error)
    assert {label: group[:2] for label, group in trials(tmp_path).items()} == before and best in before["sgns"]
    tree = json.loads((tmp_path / "search.json").read_text())
    tree["trials"]["sgns"][1]["settings"]["negatives.k"] += 1
    (tmp_path / "search.json").write_text(json.dumps(tree))
    with pytest.raises(UsageError, match=r"search.json: trial 2 of sgns used .* but would use .* now, perhaps"):
        run(place, tmp_path, trials=4)


@pytest.mark.parametrize("text", ["[]", "{", '{"search": [1], "metric": "valid/mrr", "higher": true, "trials": {}}',
                                  '{"metric": "valid/mrr", "higher": true, "trials": {}}',
                                  '{"search": [], "metric": "valid/mrr", "higher": true, "trials": {"sgns": [{}]}}'])
def test_a_file_that_no_search_wrote_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(DataError, match=r"search\.json: was not written by a search"):
        tuning.read(tmp_path)


def test_only_the_requested_number_of_trials_is_used(place: Path, finished: Comparison, tmp_path: Path) -> None:
    shutil.copytree(finished.folder / "search", tmp_path / "search")
    for name in ("search.json", "comparison.yaml"):
        shutil.copy(finished.folder / name, tmp_path)
    sizes = [n for n in range(1, 7)
             if any(tuning.best_trial(group, True, "")["value"] != tuning.best_trial(group[:n], True, "")["value"]
                    for group in trials(tmp_path).values())]
    assert sizes                              # otherwise the test shows nothing
    rows = run(place, tmp_path, trials=sizes[0]).results["search"]
    assert [row["trials"] for row in rows] == [sizes[0]] * 2
    assert [row["settings"] for row in rows] == [
        tuning.best_trial(group[:sizes[0]], True, label)["settings"] for label, group in trials(tmp_path).items()]


def test_a_search_keeps_its_settings_and_its_metric(place: Path, tmp_path: Path, local_cells: type[Here],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Here, "stop_at", 4)
        with pytest.raises(Stopped):
            run(place, tmp_path, trials=2)    # the search has ended, and no cell has begun
    with pytest.raises(UsageError, match=r"sgns-trial1: was trained with model\.dim: 4, but 6 is requested now"):
        run(place, tmp_path, trials=2, sets=[text.replace("dim=4", "dim=6") for text in KEYS])
    for n_trials in (1, 2, 3):                # the stored trials suffice, or more are requested
        with pytest.raises(UsageError, match=r"^--metric: test/mrr: the trials of .* were scored by "
                                             r"valid/log_likelihood, but valid/mrr is requested now; "
                                             r"give the comparison another folder$"):
            run(place, tmp_path, trials=n_trials, metric="test/mrr")
    for name in workers.FINISHED:             # the second trial was killed before it was stored
        (tmp_path / "search" / "sgns-trial2" / name).unlink()
    tree = json.loads((tmp_path / "search.json").read_text())
    tree["trials"] = {label: group[:1] for label, group in tree["trials"].items()}
    (tmp_path / "search.json").write_text(json.dumps(tree))
    with pytest.raises(UsageError, match=r"sgns-trial2: was trained with train\.keep: 2, but 9 is requested now; give"):
        run(place, tmp_path, trials=2, sets=[*KEYS, "train.keep=9"])
    assert len(local_cells.log) == 4
    assert [row["metric"] for row in run(place, tmp_path, trials=2).results["search"]] == ["valid/log_likelihood"] * 2


def test_a_search_is_not_resumed_on_another_corpus(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    shutil.copytree(place / "text", tmp_path / "text")
    options: dict[str, Any] = {"corpus": str(tmp_path / "text"), "strategies": ["sgns", "nce"]}
    run(place, tmp_path / "out", trials=1, **options)
    with (tmp_path / "text" / "00.txt").open("a") as file:
        file.write("bal bam\n")
    shutil.rmtree(tmp_path / "out" / "cells")
    with pytest.raises(DataError, match=r"search/sgns-trial1: the corpus .* is not the one this run was trained"):
        run(place, tmp_path / "out", trials=2, **options)
    assert len(local_cells.log) == 4


def test_a_missing_metric_is_reported_after_the_first_trial(place: Path, tmp_path: Path,
                                                            local_cells: type[Here]) -> None:
    with pytest.raises(UsageError, match=r"^--metric: valid/mrr/head: sgns-trial1 does not have this .*"
                                         r"valid/log_likelihood.*to continue with one of them: embtrain compare --out"):
        run(place, tmp_path, trials=2, metric="test/mrr/head")
    assert len(local_cells.log) == 1 and not (tmp_path / "search.json").exists()
    run(place, tmp_path, trials=1)
    assert len(local_cells.log) == 4                # the trained trial is not trained again


def test_a_strategy_added_later_without_trials_is_left_out_of_the_report(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place, tmp_path, trials=2)
    monkeypatch.setattr(Here, "log", [])
    monkeypatch.setattr(Here, "stop_at", 0)
    with pytest.raises(Stopped):
        run(place, tmp_path, trials=2, strategies=["sgns", "nce", "uniform"])
    report = comparison.read(compare.rejudge(tmp_path).folder)
    assert [group.strategy for group in report.searched] == ["sgns", "nce"]


def test_a_strategy_can_be_added_to_a_finished_search(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    run(place, tmp_path, trials=2)
    before = trials(tmp_path)
    local_cells.log.clear()
    again = run(place, tmp_path, trials=2, strategies=["uniform", "sgns", "nce"])
    assert local_cells.log == ["fit uniform-trial1", "fit uniform-trial2", "fit uniform-seed1"]
    after = trials(tmp_path)
    assert len(after.pop("uniform")) == 2 and after == before
    assert [row["strategy"] for row in again.results["search"]] == ["uniform", "sgns", "nce"]


def test_trials_are_stored_for_each_strategy_that_no_joined_process_is_ahead_with(
        place: Path, finished: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = json.loads((finished.folder / "search.json").read_text())
    ahead, behind = tree["trials"]["sgns"], tree["trials"]["nce"][:1]
    planned, cells = compare.plan(grid(place, trials=2), tmp_path)

    def run_joined(_: Any) -> None:
        (tmp_path / "search.json").write_text(json.dumps(tree | {"trials": {"sgns": ahead, "nce": behind}}))

    monkeypatch.setattr(tuning, "_trial_result", lambda *_: {"value": -5.0, "cpu_seconds": 1.0, "error": None})
    tuning.search(tmp_path, planned, cells[0].settings, find(cells[0].settings), lambda *_: cells[0], run_joined)
    stored = trials(tmp_path)
    assert stored["sgns"] == ahead and len(stored["nce"]) == 2
    assert tuning.best_sets(tmp_path, planned)


def test_the_result_of_a_trial_that_a_joined_process_stored_first_remains(
        place: Path, finished: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is what the next suggestions are made from."""
    tree = json.loads((finished.folder / "search.json").read_text())
    first = {label: done[:1] for label, done in tree["trials"].items()}
    planned, cells = compare.plan(grid(place, trials=2), tmp_path)

    def run_joined(_: Any) -> None:
        if not (tmp_path / "search.json").exists():
            (tmp_path / "search.json").write_text(json.dumps(tree | {"trials": first}))

    reported: list[float | None] = []
    monkeypatch.setattr(tuning, "_report_value", lambda study, trial, value: reported.append(value))
    monkeypatch.setattr(tuning, "_trial_result", lambda *_: {"value": -5.0, "cpu_seconds": 1.0, "error": None})
    tuning.search(tmp_path, planned, cells[0].settings, find(cells[0].settings), lambda *_: cells[0], run_joined)
    assert {label: stored[:1] for label, stored in trials(tmp_path).items()} == first
    assert reported == [*(done[0]["value"] for done in first.values()), -5.0, -5.0]


def test_a_trial_is_not_lost_if_two_joined_processes_store_at_once(
        finished: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one wrote what it had read before the first one wrote."""
    tree = json.loads((finished.folder / "search.json").read_text())
    first = {label: done[:1] for label, done in tree["trials"].items()}
    other = threading.Thread(target=tuning._store, args=(tmp_path, tree))
    read = tuning.read

    def read_slowly(folder: Path) -> dict[str, Any]:
        stored = read(folder)
        if threading.current_thread() is not other:
            other.start()
            other.join(0.3)
        return stored

    monkeypatch.setattr(tuning, "read", read_slowly)
    tuning._store(tmp_path, {**tree, "trials": first})
    other.join()
    assert trials(tmp_path) == tree["trials"]


def test_a_failed_trial_counts_and_is_not_chosen(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Here, "fail", "sgns-trial2")
    monkeypatch.setattr(Here, "fail_code", 3)
    result = run(place, tmp_path / "a", trials=3)
    assert [trial["error"] is None for trial in trials(result.folder)["sgns"]] == [True, False, True]
    assert result.results["search"][0]["failed"] == 1
    assert trials(result.folder)["sgns"][1]["error"] == "ended with code 3"
    lines = [line for line in result.table().splitlines() if "the best of" in line]
    assert ["the best of 2 trials; 1 failed)" in lines[0], "the best of 3 trials)" in lines[1]] == [True, True]
    (one,) = tuning.format_choices([ChosenSettings("sgns", "valid/mrr", 0.5, 3, 2, {"train.lr": 0.1}, 1.0)])
    assert "the best of 1 trial; 2 failed)" in one
    ran_away = workers.Cell("x-trial1", "x", "sgns", None, "skipgram", 0, tmp_path / "x-trial1", result)
    ran_away.folder.mkdir()
    (ran_away.folder / "scores.json").write_text('[{"benchmark": "valid", "metric": "mrr", "value": 1e33, '
                                                 '"low": null, "high": null, "n": 1, "note": ""}]')
    came = tuning._trial_result(tmp_path, ran_away, "valid/mrr")
    assert came["value"] is None and came["error"] == "has no valid/mrr"     # beyond 1e30 a score is a gap
    monkeypatch.setattr(Here, "fail", "sgns-trial1")
    for code, error in ((3, "ended with code 3"), (-11, r"crashed with signal 11 \(SIGSEGV\)")):
        monkeypatch.setattr(Here, "fail_code", code)
        with pytest.raises(DataError, match=f"^--search: the only trial of sgns failed: {error}$"):
            run(place, tmp_path / str(code), trials=1)


@pytest.mark.parametrize(("code", "error"), [
    (4, "ended with code 4"), (143, "ended with code 143"), (-9, "killed by signal 9, which may mean .*")])
def test_a_trial_without_resources_stops_the_search_and_is_run_again(
        place: Path, tmp_path: Path, local_cells: type[Here], monkeypatch: pytest.MonkeyPatch, code: int, error: str
        ) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Here, "fail", "nce-trial2")
        patch.setattr(Here, "fail_code", code)
        with pytest.raises(ResourceError, match=f"^search/nce-trial2: {error}; this trial does not rate its settings"):
            run(place, tmp_path, trials=2)
    assert {label: len(group) for label, group in trials(tmp_path).items()} == {"sgns": 1, "nce": 1}
    local_cells.log.clear()
    again = run(place, tmp_path, trials=2)
    assert local_cells.log[0] == "fit nce-trial2" and [row["failed"] for row in again.results["search"]] == [0, 0]


# -- options ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("options", "message"), [
    ({"trials": None}, "--search and --trials must be set"), ({"search": []}, "--search and --trials must be set"),
    ({"search": ["train.lr"]}, r"--search train\.lr: should be KEY=LOW:HIGH"),
    ({"search": ["train.lr=0.5:0.1"]}, r"^--search train\.lr=0\.5:0\.1: 0\.5 is not below 0\.1; give the lower bound"),
    ({"search": ["train.lr=1:1"]}, r"^--search train\.lr=1:1: 1 is not below 1; give the lower bound first"),
    ({"search": ["train.lr=0:1:log"]}, r"^--search train\.lr=0:1:log: 0 has no logarithm; give bounds above 0"),
    ({"search": ["train.lr=a:b"]}, "should be KEY"), ({"search": ["train.lr=1:2:lin"]}, "should be KEY"),
    ({"search": ["train.lr=[1]"]}, r"^--search train\.lr=\[1\]: has fewer than two values; give two or more"),
    ({"search": ["negatives.k=[5, 5]"]}, r"^--search negatives\.k=\[5, 5\]: 5 occurs twice; give each value once$"),
    ({"search": ["train.lr=[1, 0.2, 1.0]"]}, r"^--search train\.lr=\[1, 0\.2, 1\.0\]: 1\.0 occurs twice; give each"),
    ({"search": ["train.optimizer=[sgd, sgd]"]}, r"^--search .*: 'sgd' occurs twice; give each value once$"),
    ({"search": ["train.lr=0.1:.inf"]}, "should be KEY"),
    ({"search": ["train.lr=[1, 2"]}, r"^--search train\.lr=\[1, 2: should be KEY"),
    ({"search": ["train.lr=0.1:*a"]}, r"^--search train\.lr=0\.1:\*a: should be KEY"),
    ({"search": ["negatives.k=1:2.5"]}, r"^--search negatives\.k=1:2\.5: negatives\.k takes whole numbers"),
    ({"search": ["train.lr=true:2"]}, "should be KEY"),
    ({"search": ["train.epochs=1:9"]}, r"--search train\.epochs: strategies must not differ in this key"),
    ({"search": ["text.window=1:9"]}, "strategies must not differ in this key"),
    ({"search": ["model.dim=1:9"]}, "strategies must not differ in this key"),
    ({"search": ["train.lr=1:2", "train.lr=1:3"]}, "occurs twice"),
    ({"sets": [*KEYS, "train.lr=0.1"]}, r"--search train\.lr: --set gives it a value"),
    ({"search": ["negatives.nonsense=1:9"]}, r"negatives\.nonsense: unknown key"),
    ({"search": ["negatives.exponent=0.5:1.0"], "strategies": ["sgns", "uniform"]}, r"exponent: unknown key"),
    ({"search": ["train.lr=-1.0:1.0"]}, r"^--search train\.lr=-1\.0:1\.0: train\.lr: should be greater than 0, got -1"),
    ({"search": ["negatives.k=[5, 0, 2]"]}, r"^--search negatives\.k=\[5, 0, 2\]: negatives\.k: should be greater"),
    ({"sets": [*KEYS, "train.min_lr=0.05"], "search": ["train.lr=0.01:0.1"]},
     r"^--set train\.min_lr=0\.05: train\.min_lr: 0\.05: is above train\.lr: 0\.01, .*; set at most 0\.01, or raise"),
    ({"search": ["train.lr=[a, 0.2]", "train.min_lr=[0.3, 1]"]},
     r"^--search train\.lr=\[a, 0\.2\]: train\.lr: should be a valid number, got 'a'"),
    ({"search": ["train.lr=[0.1, 0.2]", "train.min_lr=[true, 1]"]},
     r"^--search train\.min_lr=\[true, 1\]: train\.min_lr: should be a number, got true"),
    ({"search": ["train.min_lr=0.001:0.5"]}, r"^--search train\.min_lr=0\.001:0\.5: train\.min_lr: 0\.5: is above "),
    ({"search": ["train.burn_in=0:9"]}, r"^--search train\.burn_in=0:9: train\.burn_in: 9: all train\.epochs: "),
    ({"sets": [*KEYS, "evaluate.heldout_pairs=0", "evaluate.benchmarks=[wordsim353]"], "metric": "wordsim353/spearman"},
     "--search: trials are scored by valid/log_likelihood, and nothing is held out"),
    ({"seeds": [0, 1]}, r"^--seeds: 0 is the seed of the trials that choose the settings; give other seeds"),
    ({"metric": "valid/mrr"}, r"^--metric: valid/mrr: it scores the trials of the search, so it cannot decide .*, "
                              "for example test/log_likelihood"),
])
def test_an_impossible_search_is_refused_before_training(
        place: Path, tmp_path: Path, local_cells: type[Here], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(place, tmp_path / "out", **options)
    assert local_cells.log == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("search", ["train.clip=0.1:10.0:log", "train.optimizer=[sgd, adam]",
                                    "negatives.share_draws_by=[window, batch]", "train.lr=0.001:0.1:log"])
def test_all_runs_have_an_engine_that_trains_every_trial(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str], search: str) -> None:
    monkeypatch.setattr(compare.engine.choose, "core", object)
    monkeypatch.setattr(tuning.progress, "quiet", False)
    monkeypatch.setattr(compare.parts, "check_settings", lambda *_, **__: (_ for _ in ()).throw(Stopped(15)))
    key, expected = search.partition("=")[0], "fused" if "lr" in search else "autograd"
    with pytest.raises(Stopped):
        run(place, tmp_path, search=[search], trials=2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("engine: ")]
    assert line.startswith(f"engine: {expected} for all runs")
    assert (f"sgns, nce: {key}: " in line) == ("lr" not in search)
    planned, cells = compare.plan(grid(place, search=[search], trials=2), tmp_path)
    assert {cell.settings.train.engine for cell in cells} == {expected}
    assert compare.plan(planned, tmp_path)[0] == planned


def test_a_trial_whose_final_rate_is_above_the_first_keeps_its_rate() -> None:
    assert tuning.used_settings({"train.lr": 0.01, "negatives.k": 5, "train.min_lr": 0.05}) == {
        "train.lr": 0.01, "negatives.k": 5, "train.min_lr": 0.01}
    for settings in ({"train.lr": 0.1, "train.min_lr": 0.05}, {"train.min_lr": 0.05}, {"train.lr": 0.01}):
        assert tuning.used_settings(settings) == settings


def test_a_search_of_both_rates_trains_every_trial(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    search = ["train.lr=[0.01, 0.02]", "train.min_lr=[0.05, 0.06]"]
    done = run(place, tmp_path / "out", trials=2, search=search)
    drawn = [trial for group in trials(done.folder).values() for trial in group]
    assert all(trial["value"] is not None and trial["settings"]["train.min_lr"] >= 0.05 for trial in drawn)
    chosen = [row["settings"] for row in done.results["search"]]
    assert all(settings["train.min_lr"] == settings["train.lr"] for settings in chosen)


def test_without_optuna_one_line_names_the_package_to_install(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^--search: optuna is not installed; pip install 'embtrain\[search\]'$"):
        run(place, tmp_path)


def test_ranges_come_from_flags_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("train.lr: 0.01:0.5:log\nnegatives.k: [2, 5]\n")
    expanded = search_space.expand_files(["train.batch=16:64", str(tmp_path / "s.yaml")])
    texts = [text for text, _ in expanded]
    assert [place for _, place in expanded] == [None, *(f"{tmp_path}/s.yaml:{line}:1: {key}" for line, key in (
        (1, "train.lr"), (2, "negatives.k")))]
    assert texts == ["train.batch=16:64", "train.lr=0.01:0.5:log", "negatives.k=[2, 5]"]
    settings = resolve("sgns")
    assert search_space.parse_ranges(texts, [], settings) == [
        search_space.Range("train.batch", 16, 64), search_space.Range("train.lr", 0.01, 0.5, True),
        search_space.Range("negatives.k", among=(2, 5))]
    assert [one.is_integer for one in search_space.parse_ranges(texts, [], settings)] == [True, False, False]


FILE_RANGES = "should be KEY: LOW:HIGH, KEY: LOW:HIGH:log or KEY: [A, B], like train.lr: 0.01:0.5:log"
OPTION_RANGES = "should be KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B], like train.lr=0.01:0.5:log"


@pytest.mark.parametrize(("line", "message"), [
    ("train.lr: 0.1:0.01", "train.lr: 0.1:0.01: 0.1 is not below 0.01; give the lower bound first"),
    ("train.lr: 0.01", f"train.lr: 0.01: {FILE_RANGES}"),
    ("train.lr: 0.1:zzz", f"train.lr: 0.1:zzz: {FILE_RANGES}"),
    ("text.window: 1:9", "text.window: strategies must not differ in this key; search those of negatives, loss or "
                         "train.lr, train.min_lr, train.loss_lr, train.warmup, train.burn_in, train.optimizer, "
                         "train.batch, train.reduction, train.clip"),
    ("negatives.k: [2, 2]", "negatives.k: [2, 2]: 2 occurs twice; give each value once"),
    ("negatives.k: 1.5:2.5", "negatives.k: 1.5:2.5: negatives.k takes whole numbers; give two whole numbers"),
    ("negatives.k: 0:5", "negatives.k: 0:5: should be greater than or equal to 1, got 0"),
    ("negatives.nosuch: 1:2", "negatives.nosuch: 1:2: unknown key (keys here: source, k, filter, share_draws_by, "
                              "share_size, total_weight, replacement, exponent, counts)"),
])
def test_an_error_in_a_file_of_ranges_has_its_place(place: Path, tmp_path: Path, line: str, message: str) -> None:
    """Errors named --search, as if the range had been an option."""
    file = tmp_path / "s.yaml"
    file.write_text(f"# ranges\ntrain.batch: 16:64\n{line}\n")
    whole = read_grid({"search": [str(file), "train.clip=1:2"], "strategies": ["sgns"], "trials": 2,
                       "corpus": str(place / "text"), "seeds": 2})
    with pytest.raises(UsageError, match=rf"^{file}:3:1: {re.escape(message)}$"):
        compare.plan(whole, tmp_path / "out")
    grid_file = tmp_path / "grid.yaml"
    key, _, value = line.partition(": ")
    grid_file.write_text(json.dumps({"strategies": ["sgns"], "seeds": 2, "corpus": str(place / "text"), "trials": 2,
                                     "search": [f"{key}={value}"]}))
    of_option = message.replace(FILE_RANGES, OPTION_RANGES).replace(f"{key}: {value}: ", f"{key}={value}: ")
    with pytest.raises(UsageError, match=rf"^{grid_file}:1:[0-9]+: search\[0\]: {re.escape(of_option)}$"):
        compare.plan(read_grid({}, grid_file), tmp_path / "out")


@pytest.mark.parametrize("is_option_first", [True, False])
def test_an_error_of_equal_ranges_names_the_first(place: Path, tmp_path: Path, is_option_first: bool) -> None:
    """That of an option was reported with the place of the same range in a file after it."""
    file = tmp_path / "ranges.yaml"
    for text, option_message, file_message in (
            ("0.5:0.01", "train.lr=0.5:0.01: 0.5 is not below 0.01; give the lower bound first",
             "train.lr: 0.5:0.01: 0.5 is not below 0.01; give the lower bound first"),
            ("0.01:0.5", "train.lr: occurs twice; remove one", "train.lr: occurs twice; remove one")):
        file.write_text(f"train.lr: {text}\n")
        search = [f"train.lr={text}", str(file)][::1 if is_option_first else -1]
        whole = read_grid({"search": search, "strategies": ["sgns"], "trials": 2, "corpus": str(place / "text"),
                           "seeds": 2})
        message = f"--search {option_message}" if is_option_first else f"{file}:1:1: {file_message}"
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            compare.plan(whole, tmp_path / "out")


@pytest.mark.parametrize(("text", "whole"), [
    ("negatives.exponent=0:1", False), ("train.lr=1:2", False), ("train.clip=1:2", False), ("negatives.k=1:1e2", True),
    ("negatives.k=2:9", True), ("train.warmup=0.0:64", True)])
def test_a_key_gets_numbers_of_its_type(text: str, whole: bool) -> None:
    (one,) = search_space.parse_ranges([text], [], resolve("sgns"))
    assert one.is_integer is whole and all(type(x) is (int if whole else float) for x in one.ends())


@pytest.mark.parametrize(("metric", "expected"), [
    ("test/log_likelihood", ("valid/log_likelihood", True)), ("test/mrr", ("valid/mrr", True)),
    ("test/perplexity", ("valid/perplexity", False)), ("wordsim353/spearman", ("valid/log_likelihood", True)),
    ("men.even/spearman", ("men.odd/spearman", True)), ("men.odd/spearman", ("men.even/spearman", True))])
def test_trials_are_ranked_by_what_does_not_decide_the_comparison(metric: str,
                                                                        expected: tuple[str, bool]) -> None:
    from embtrain.experiment.tasks.windows import WindowsTask

    assert tuning.objective(metric, WindowsTask) == expected
