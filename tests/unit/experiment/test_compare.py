"""Comparisons: grid, paired design, failed, stopped and resumed cells, and the final report."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.comparisons import without_times
from helpers.in_process import Here, in_process, small_text

from embtrain import cli, experiment
from embtrain.common import progress
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, Stopped, UsageError
from embtrain.common.files import write_json
from embtrain.common.types import Score
from embtrain.data.vectors import vectors as vector_files
from embtrain.evaluate.heldout import heldout, higher_better
from embtrain.evaluate.statistics.difference import A_BEATS_B, B_BEATS_A
from embtrain.experiment.comparison import compare, engine, join, outcome, results, tuning, workers
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.run import components, scoring
from embtrain.experiment.tasks import base as tasks
from embtrain.report.comparison import page as comparison_page
from embtrain.report.load import comparison as read_results
from embtrain.report.render import markdown_latex
from embtrain.report.run import page as run_page
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read

pytestmark = pytest.mark.long

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=6", "train.epochs=1", "train.chunk=512",
        "train.log_every=1", "train.lr=0.1", "evaluate.heldout_pairs=1200", "evaluate.resamples=40",
        "evaluate.neighbours=[bal]", "evaluate.benchmarks=[]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `text`: twenty small documents whose words come in pairs."""
    return small_text(tmp_path_factory.mktemp("compare"))


@pytest.fixture(autouse=True)
def _quiet(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
    monkeypatch.setattr(progress, "quiet", True)


@pytest.fixture
def local_cells(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    """Run cells in this process, without charts, which other tests cover."""
    in_process(monkeypatch, place)
    _no_drawing(monkeypatch)
    return Here


def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.experiment.comparison.compare.page.write",
                  lambda at: (at / "report.html").write_text("all"))


def grid(place: Path, *sets: str, **options: Any) -> Grid:
    return compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 2, "corpus": str(place / "text"),
                              "sets": [*KEYS, *sets], **options})


@pytest.fixture(scope="module")
def finished(place: Path) -> Comparison:
    """An uninterrupted comparison of two strategies and two seeds."""
    with pytest.MonkeyPatch.context() as patch:
        in_process(patch, place)
        _no_drawing(patch)
        return compare.compare(grid(place), place / "done", parallel=1, threads=1)


# -- a complete comparison ---------------------------------------------------------------------------------------------


def test_a_comparison_leaves_runs_results_and_a_report(finished: Comparison) -> None:
    names = ["sgns-seed1", "nce-seed1", "sgns-seed2", "nce-seed2"]
    tree = finished.results
    assert [cell["cell"] for cell in tree["cells"]] == names
    assert sorted(path.name for path in (finished.folder / "cells").iterdir()) == sorted(names)
    assert tree["plan"]["labels"] == ["sgns", "nce"] and tree["plan"]["baseline"] == "sgns"
    for cell in tree["cells"]:
        run = experiment.Run(finished.folder / cell["folder"])
        assert cell["status"] == "finished" and cell["cpu_seconds"] > 0
        assert cell["scores"] == [row._asdict() for row in run.scores]
        assert run.settings.train.seed == cell["seed"] and run.settings.strategy == cell["strategy"]
        assert run.settings.train.threads == 1
    score = {cell["cell"]: next(row["value"] for row in cell["scores"]
                                if (row["benchmark"], row["metric"]) == ("test", "log_likelihood"))
             for cell in tree["cells"]}
    (summary,) = [x for x in tree["summary"] if x["strategy"] == "nce" and x["metric"] == "test/log_likelihood"]
    assert summary["mean"] == pytest.approx((score["nce-seed1"] + score["nce-seed2"]) / 2) and summary["n"] == 2
    first = tree["differences"][0]
    assert (first["a"], first["b"], first["metric"], first["kind"]) == ("nce", "sgns", "test/log_likelihood", "seeds")
    assert first["mean"] == pytest.approx(np.mean([score[f"nce-seed{k}"] - score[f"sgns-seed{k}"] for k in (1, 2)]))
    items = {d["metric"]: d for d in tree["differences"] if d["kind"] == "items"}
    assert set(items) == {"test/log_likelihood", "test/mrr"} and items["test/mrr"]["n"] == 1200
    assert items["test/log_likelihood"]["mean"] == pytest.approx(first["mean"])  # means of means
    assert (finished.folder / "report.html").read_text() == "all"
    assert len(finished.verdict) == 3 and all(text in finished.table() for text in finished.verdict)


def test_the_design_is_paired(finished: Comparison) -> None:
    """Runs of one seed have equal initial tables, equal pairs in equal order and equal held-out pairs."""
    runs = {cell["cell"]: finished.folder / cell["folder"] for cell in finished.results["cells"]}
    tables = {name: checkpoint.load(_first(run))["model"] for name, run in runs.items()}
    blocks = {}
    for name, run in runs.items():
        config = experiment.Run(run).settings
        text = tasks.read(config)
        blocks[name] = [torch.stack([block.centre, block.target]) for block in text.windows.blocks(0, 512)]
        assert len(blocks[name]) > 3
    for seed in (1, 2):
        a, b = f"sgns-seed{seed}", f"nce-seed{seed}"
        assert all(torch.equal(tables[a][key], tables[b][key]) for key in tables[a])
        assert all(torch.equal(x, y) for x, y in zip(blocks[a], blocks[b], strict=True))
        examples = [[line["examples"] for line in read(runs[name] / "metrics.jsonl")] for name in (a, b)]
        assert examples[0] == examples[1]
    assert not torch.equal(tables["sgns-seed1"]["u"], tables["sgns-seed2"]["u"])
    assert not all(x.shape == y.shape and torch.equal(x, y)
                   for x, y in zip(blocks["sgns-seed1"], blocks["sgns-seed2"], strict=False))
    items = [scoring.read_items(run / "items.safetensors") for run in runs.values()]
    assert all(np.array_equal(other["test/cluster"], items[0]["test/cluster"]) for other in items)


def _first(run: Path) -> Path:
    """Return a folder with only the first checkpoint of a run."""
    folder = run.parent.parent / "first" / run.name
    shutil.copytree(run / "checkpoints", folder, dirs_exist_ok=True, ignore=lambda _, names: [
        name for name in names if not name.startswith("step-0000000000")])
    return folder


def test_finished_cells_are_unchanged(finished: Comparison, place: Path, local_cells: type[Here]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (finished.folder / "cells").rglob("*") if path.is_file()}
    tree = (finished.folder / "results.json").read_bytes()
    # no options: the grid is read from the folder
    compare.compare(compare.read_grid({}, None, finished.folder), finished.folder, 1, 1)
    assert local_cells.log == [] and (finished.folder / "results.json").read_bytes() == tree
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize(("strategies", "sets", "compiled", "expected"), [
    (["sgns", "nce"], [], True, "fused"), (["sgns", "nce"], [], False, "autograd"),
    (["sgns", "softmax"], [], True, "autograd"),         # one that cannot be compiled decides for all
    (["sgns", "softmax"], ["train.engine=autograd"], True, "autograd"),
    (["sgns", "nce"], ["train.engine=autograd"], True, "autograd"),
    (["sgns", "nce"], ["train.engine=fused"], False, "fused"),  # refused when the cell is built, with its own error
])
def test_all_cells_have_one_engine(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategies: list[str],
                                   sets: list[str], compiled: bool, expected: str) -> None:
    monkeypatch.setattr(engine.choose, "core", lambda: object() if compiled else None)
    cells_grid, planned = compare.plan(grid(place, *sets, strategies=strategies), tmp_path)
    assert {cell.settings.train.engine for cell in planned} == {expected}
    assert f"train.engine={expected}" in cells_grid.sets
    assert compare.plan(cells_grid, tmp_path)[0] == cells_grid
    line = engine.describe(planned)
    assert line.startswith(f"engine: {expected} for all runs") \
        and ("softmax: loss.name" in line) == ("softmax" in line)


def test_strategies_with_one_reason_against_an_engine_share_its_line(place: Path, tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.choose, "core", object)
    both = {"strategies": ["sgns", "nce", "softmax"], "seeds": 2}
    planned = compare.plan(grid(place, "train.clip=1", **both), tmp_path)[1]
    reasons = engine.describe(planned).split("; ")
    assert [reason for reason in reasons if "train.clip" in reason] == [
        "sgns, nce, softmax: train.clip: the gradient of a whole update is never formed, so it cannot be clipped"]
    assert next(reason for reason in reasons if "loss.name: softmax" in reason).startswith("softmax: loss.name")
    with pytest.raises(UsageError) as caught:
        compare.plan(grid(place, "train.clip=1", "train.engine=fused", **both), tmp_path)
    lines = [line for line in caught.value.args if "train.clip" in line]
    assert len(lines) == 1 and lines[0].startswith("--set train.engine=fused: sgns, nce, softmax: train.clip: ")


def test_models_on_one_corpus_warn_once_of_its_contents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = small_text(tmp_path) / "text"
    for file in [text] if text.is_file() else text.iterdir():
        file.write_text(file.read_text() + " 1984 2001 40 1 2 3 17")
    first, second = compare.plan(grid(tmp_path, seeds=1), tmp_path)[1]
    larger = second.settings.model_copy(update={"model": second.settings.model.model_copy(update={"dim": 5})})
    cells = {first.name: first, second.name: replace(second, settings=larger)}
    for _ in range(2):
        caplog.clear()
        compare.first_run.prepare(tmp_path, list(cells.values()), cells, 0, 1, lambda _: None)
        assert len(messages := [record.getMessage() for record in caplog.records]) == len(set(messages))
        assert sum("text.tokenizer=words omits" in message for message in messages) == 1


@pytest.mark.parametrize(("strategies", "sets", "more"), [
    (["sgns", "cluster"], [], ["train.engine=fused", "train.chunk=4096"]),
    (["sgns", "nce"], [], ["train.engine=fused"]),
    (["sgns", "cluster"], ["train.engine=fused"], ["train.chunk=4096"]),
    (["sgns", "cluster"], ["train.chunk=512"], ["train.engine=fused"]),
    (["sgns", "cluster"], ["train.engine=autograd"], []),
])
def test_all_cells_have_one_block(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategies: list[str],
                                  sets: list[str], more: list[str]) -> None:
    """Centres are shuffled within blocks, so another block size gives another order."""
    monkeypatch.setattr(engine.choose, "core", object)
    options = {"strategies": strategies, "corpus": str(place / "text"), "seeds": 1, "sets": sets}
    parsed = compare.read_grid(options, None, tmp_path)
    planned = compare.plan(parsed, tmp_path)[0]
    assert planned.sets == [*sets, *more] and compare.plan(planned, tmp_path)[0] == planned


GRAPH = ["self-adversarial", "bernoulli", "kbgan", "nscaching", "ace-kg"]


@pytest.mark.parametrize(("strategies", "more"), [
    (GRAPH, ["train.engine=fused", "train.chunk=2048"]),              # one strategy sets its own block
    (["ace-kg", *GRAPH[:1]], ["train.engine=fused", "train.chunk=2048"]),
    (["ace-kg", "igan"], ["train.engine=fused"]),                     # both have the same block
    (["ace-kg", "small.yaml"], ["train.engine=fused", "train.chunk=512"]),
])
def test_strategies_with_different_blocks_use_the_smallest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           strategies: list[str], more: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine.choose, "core", object)
    Path("small.yaml").write_text("negatives: {source: uniform}\nloss: {name: margin}\ntrain: {chunk: 512}\n")
    Path("graph.tsv").write_text("".join(f"a{i % 7}\tr\tb{i % 11}\n" for i in range(60)))
    requested = compare.read_grid({"strategies": strategies, "models": ["transe"], "corpus": "graph.tsv", "seeds": 2},
                                  None,
                              tmp_path)
    resolved, planned = compare.plan(requested, tmp_path)
    assert resolved.sets == more and compare.plan(resolved, tmp_path)[0] == resolved
    block = {"train.chunk=512": 512}.get(more[-1], 2048)
    assert {cell.settings.train.chunk for cell in planned} == {block}
    line = engine.describe(planned, compare._plan(requested, tmp_path)[1])
    assert (f"train.chunk={block} for all runs, whose strategies have" in line) == (len(more) == 2)
    if strategies is GRAPH:
        assert line.endswith(" 2,048 (ace-kg), 4,096 (nscaching), 32,768 (self-adversarial, bernoulli, kbgan)")


def test_a_block_set_for_one_run_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.chunk: is .* and 64 in b: so the runs cannot be paired"):
        compare.plan(compare.read_grid({"strategies": [], "corpus": str(place / "text"), "seeds": 1, "runs": {
            "a": {"strategy": "sgns"}, "b": {"strategy": "nce", "sets": ["train.chunk=64"]}}}, None, tmp_path),
                     tmp_path)


def test_an_engine_that_cannot_train_all_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.engine=fused: softmax: loss\.name: softmax"):
        compare.plan(grid(place, "train.engine=fused", strategies=["sgns", "softmax"]), tmp_path)
    overlay = tmp_path / "own.yaml"
    overlay.write_text("negatives: {source: unigram}\ntrain: {engine: autograd}\n")
    _, planned = compare.plan(grid(place, strategies=["sgns", str(overlay)]), tmp_path)   # named for one, so for all
    assert {cell.settings.train.engine for cell in planned} == {"autograd"}


# -- interruptions, failures and changes -------------------------------------------------------------------------------


def test_a_stopped_comparison_resumes(finished: Comparison, place: Path, tmp_path: Path, local_cells: type[Here],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop before the second cell, inside it, after its scores and before its report; then let it finish."""
    monkeypatch.setattr(local_cells, "stop_at", 1)
    with pytest.raises(Stopped):
        compare.compare(grid(place), tmp_path, 1, 1)
    assert local_cells.log == ["fit sgns-seed1"] and not (tmp_path / "results.json").exists()
    cut = tmp_path / "cells" / "nce-seed1"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("embtrain.experiment.run.run.scoring.benchmarks", _stopped)
        experiment.resume(cut)
    (tmp_path / "cells" / "sgns-seed1" / "report.html").unlink()
    monkeypatch.setattr(local_cells, "stop_at", None)
    compare.compare(grid(place), tmp_path, 1, 1)
    assert local_cells.log[1:] == ["resume sgns-seed1", "resume nce-seed1", "fit sgns-seed2", "fit nce-seed2"]
    assert without_times(tmp_path) == without_times(finished.folder)


def test_a_stopped_comparison_prints_the_command_that_resumes_it(place: Path, tmp_path: Path, local_cells: type[Here],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself chose the name of its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_cells, "stop_at", 1)
    with pytest.raises(Stopped) as stopped:
        compare.compare(grid(place), None, 1, 2)
    (folder,) = (tmp_path / "runs").iterdir()
    again = f"embtrain compare --out runs/{folder.name} --parallel 1 --threads 2"
    assert str(stopped.value) == f"stopped by signal 15; to resume: {again}" and stopped.value.code == 143
    monkeypatch.setattr(sys, "argv", again.split())
    assert cli.run() == 143 and len(local_cells.log) == 1
    monkeypatch.setattr(local_cells, "stop_at", None)
    assert cli.run() == 0 and local_cells.log[1:] == ["fit nce-seed1", "fit sgns-seed2", "fit nce-seed2"]
    requested = grid(place, metric="test/foo")
    with pytest.raises(UsageError, match=r"finished runs are kept; name one of them with --metric$"):
        compare.compare(requested, Path("runs") / folder.name, 1, 2)


def test_a_folder_whose_name_begins_with_a_dash_is_not_an_option(place: Path, tmp_path: Path, local_cells: type[Here],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_cells, "stop_at", 1)
    with pytest.raises(Stopped, match=r"embtrain compare --out \./-cmp --parallel 1$"):
        compare.compare(grid(place), Path("-cmp"), 1)
    (tmp_path / "-cmp" / "cells" / "sgns-seed1" / "report.html").unlink()            # the cell is resumed
    monkeypatch.setattr(local_cells, "stop_at", None)
    resumed = compare.compare(grid(place), Path("-cmp"), 1).results
    assert local_cells.log[1] == "resume sgns-seed1" and {cell["status"] for cell in resumed["cells"]} == {"finished"}


def test_comparisons_started_in_one_second_get_separate_folders(place: Path, tmp_path: Path, local_cells: type[Here],
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process creates its folder after this one has chosen the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "embtrain.experiment.comparison.compare.dated_folder", lambda name: Path("runs") / f"1-{name}"
    )
    (tmp_path / "runs" / "1-compare").mkdir(parents=True)
    monkeypatch.setattr(local_cells, "stop_at", 1)
    with pytest.raises(Stopped, match="--out runs/1-compare-2 "):
        compare.compare(grid(place), None, 1)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["1-compare", "1-compare-2"]
    assert not list((tmp_path / "runs" / "1-compare").iterdir())
    assert (tmp_path / "runs" / "1-compare-2" / "cells" / "sgns-seed1" / "scores.json").is_file()


@pytest.mark.parametrize("out, kind, message", [("text.txt", UsageError, "is not a folder"),
                                                ("text.txt/below", UsageError, "text.txt is not a folder"),
                                                ("/proc/none", ResourceError, "cannot be written")])
def test_a_path_where_no_folder_can_be_created_is_refused_first(place: Path, tmp_path: Path, local_cells: type[Here],
                                                                out: str, kind: type[EmbtrainError],
                                                                message: str) -> None:
    (tmp_path / "text.txt").write_text("a b")
    with pytest.raises(kind, match=message):
        compare.compare(grid(place), tmp_path / out, 1, 1)
    with pytest.raises(kind, match=message if kind is UsageError else "cannot be written|No such file"):
        experiment.fit(experiment.resolve("sgns", corpus=str(place / "text"), sets=KEYS), tmp_path / out)
    assert local_cells.log == [] and (tmp_path / "text.txt").read_text() == "a b"


def test_a_run_refuses_the_folder_of_a_comparison_and_of_its_corpus(finished: Comparison, place: Path,
                                                                    tmp_path: Path) -> None:
    report = (finished.folder / "report.html").read_bytes()
    with pytest.raises(UsageError, match=r"contains comparison\.yaml, which belongs to no run"):
        experiment.fit(experiment.resolve("sgns", corpus=str(place / "text"), sets=KEYS), finished.folder)
    assert (finished.folder / "report.html").read_bytes() == report
    (tmp_path / "a.txt").write_text("a b c d\n" * 50)
    with pytest.raises(UsageError, match="is the corpus, and the files of a run would be read as text"):
        experiment.fit(experiment.resolve("sgns", corpus=str(tmp_path), sets=KEYS), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_run_may_be_named_as_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    with pytest.raises(ResourceError, match="is not on this machine"):  # so the recipe was read
        experiment.fit(experiment.resolve("sgns", corpus="text8"), Path("text8"))


@pytest.mark.parametrize("metric", ["mrr", "test/", "/mrr"])
def test_a_metric_names_its_benchmark(place: Path, tmp_path: Path, metric: str) -> None:
    with pytest.raises(UsageError, match="metric: should be BENCHMARK/METRIC, for example test/mrr"):
        compare.read_grid({"strategies": ["sgns"], "corpus": str(place / "text"), "metric": metric}, None, tmp_path)


@pytest.mark.parametrize("metric", ["test/log_z_mean", "test/learned_log_z", "test/similarity_wrong"])
def test_a_value_that_is_not_a_score_cannot_be_the_primary_metric(place: Path, tmp_path: Path, metric: str) -> None:
    with pytest.raises(UsageError, match=f"--metric: {metric}: is not a score"):
        compare.compare(grid(place, metric=metric), tmp_path, 1, 1)


@pytest.mark.parametrize("metric, better", [("test/mr", False), ("test/mr/head", False), ("test/perplexity", False),
                                            ("valid/perplexity/scores", False), ("test/mrr/tail", True)])
def test_parts_of_a_score_have_its_direction(metric: str, better: bool) -> None:
    assert higher_better(metric) is better
    assert tuning.objective(metric, tasks.find_for_model("transe"))[1] is better


def test_a_missing_part_of_a_score_is_reported_after_the_first_cell_and_stops_the_rest(
        place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    """Whether a measure has parts can depend on the data; unknown measures are refused before the first cell."""
    message = r"^--metric: valid/mrr/head: sgns-seed1 does not have this score; there are: valid/log_likelihood, " \
              r".*; finished runs are kept; to continue with one of them: embtrain compare --out .* --metric \.\.\.$"
    for fitted in (["fit sgns-seed1"], []):  # on resuming, the existing cells are checked first
        local_cells.log.clear()
        with pytest.raises(UsageError, match=message):
            compare.compare(grid(place, metric="valid/mrr/head"), tmp_path, 1, 1)
        assert local_cells.log == fitted
    compare.compare(grid(place, metric="valid/log_likelihood"), tmp_path, 1, 1)
    assert local_cells.log == ["fit nce-seed1", "fit sgns-seed2", "fit nce-seed2"]


def _stopped(*_: Any) -> None:
    raise Stopped(15)


def test_a_failed_cell_is_reported_and_the_others_continue(place: Path, tmp_path: Path, local_cells: type[Here],
                                                           monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    """A strategy needs a device that this machine lacks, so that building its runs fails."""
    monkeypatch.setattr(local_cells, "fail", "sgns-seed2")
    bad = tmp_path / "bad.yaml"
    bad.write_text("negatives: {source: unigram}\nloss: {name: logistic}\ntrain: {device: 'cuda:99'}\n")
    finished = compare.compare(grid(place, strategies=["sgns", "nce", str(bad)]), tmp_path / "out", 1, 1)
    status = {cell["cell"]: cell["status"] for cell in finished.results["cells"]}
    assert status == {"sgns-seed1": "finished", "nce-seed1": "finished", "bad-seed1": "failed", "bad-seed2": "failed",
                      "nce-seed2": "finished", "sgns-seed2": "failed"}
    error = json.loads((tmp_path / "out" / "cells" / "bad-seed1.error.json").read_text())
    assert error["cell"] == "bad-seed1" and error["code"] == 4 and "\n" not in error["error"]
    assert error["error"] and not error["error"].startswith("embtrain")
    killed = json.loads((tmp_path / "out" / "cells" / "sgns-seed2.error.json").read_text())
    assert killed["code"] == 137 and "killed by signal 9" in killed["error"]
    first = finished.results["differences"][0]
    assert first["n"] == 1 and first["p"] is None  # seed 2 has no partner
    assert "bad" in finished.verdict[2] and "failed" in finished.verdict[2]
    assert f"bad-seed1: {error['error']}" in finished.results["notes"]
    assert "bad-seed1: failed: " in capsys.readouterr().err  # in spite of --quiet
    monkeypatch.setattr(local_cells, "fail", "")
    local_cells.log.clear()
    fewer = compare.read_grid({"strategies": ["sgns", "nce"]}, None, tmp_path / "out")
    again = compare.compare(fewer, tmp_path / "out", 1, 1)
    assert local_cells.log == ["fit sgns-seed2"] and again.results["differences"][0]["n"] == 2
    assert not (tmp_path / "out" / "cells" / "sgns-seed2.error.json").exists()


def test_there_is_no_report_if_every_cell_fails(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    cells_grid = grid(place, "train.device=cuda:99")
    with pytest.raises(ResourceError, match=r"no run has scores; sgns-seed1: train\.device"):
        compare.compare(cells_grid, tmp_path / "out", 1, 1)
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(("codes", "kind"), [
    ([4, 4], ResourceError), ([137, 143], ResourceError), ([4, None], ResourceError), ([3, 3], DataError),
    ([137, 3], DataError), ([None, None], DataError), ([139, 134], DataError), ([137, 135], DataError)])
def test_cells_ended_by_a_full_disk_or_a_signal_are_not_data_errors(tmp_path: Path, codes: list[int | None],
                                                                    kind: type[EmbtrainError]) -> None:
    cells = []
    for seed, code in enumerate(codes, 1):
        name = f"sgns-seed{seed}"
        failure = tmp_path / "cells" / f"{name}.error.json"
        write_json(failure, {"cell": name, "error": "x: cannot be written", "code": code})
        cells.append(outcome.read_outcome(tmp_path, name, "sgns", None, "skipgram", seed, tmp_path / name, failure))
    with pytest.raises(kind, match="no run has scores; sgns-seed1: x: cannot be written"):
        results.write(tmp_path, {}, cells)


@pytest.mark.parametrize(("code", "kind"), [(4, ResourceError), (137, ResourceError), (3, DataError), (139, DataError)])
def test_a_failed_start_run_ends_the_comparison_with_its_kind_of_error(finished: Comparison, place: Path,
                                                                       tmp_path: Path, code: int,
                                                                       kind: type[EmbtrainError]) -> None:
    start = replace(compare.plan(grid(place), finished.folder)[1][0], folder=tmp_path / "start")
    write_json(start.failure, {"cell": start.name, "error": "x: cannot be written", "code": code})
    with pytest.raises(kind, match=r"^start: .*: x: cannot be written; the other runs need its vectors"):
        compare._train_start(start, lambda *_, **__: None)


def test_seeds_and_strategies_can_be_added_but_settings_cannot_change(
        finished: Comparison, place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    out = shutil.copytree(finished.folder, tmp_path / "out")
    more = compare.compare(compare.read_grid({"seeds": 3}, None, out), out, 1, 1)
    assert local_cells.log == ["fit sgns-seed3", "fit nce-seed3"] and more.results["differences"][0]["n"] == 3
    with pytest.raises(UsageError, match=r"sgns-seed1: was trained with train\.lr: 0\.1, but 0\.2 is requested now; "
                                         "give the comparison another folder, or remove that folder$"):
        compare.compare(compare.read_grid({"sets": [*KEYS, "train.lr=0.2"]}, None, out), out, 1, 1)
    assert local_cells.log[2:] == []


def test_a_changed_corpus_is_reported_before_training(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    shutil.copytree(place / "text", tmp_path / "text")
    options = {"corpus": str(tmp_path / "text"), "seeds": 1}
    compare.compare(grid(place, **options), tmp_path / "out", 1, 1)
    with (tmp_path / "text" / "00.txt").open("a") as file:
        file.write("bal bam\n")
    with pytest.raises(DataError, match=r"cells/sgns-seed1: the corpus .* is not the one this run was trained on"):
        compare.compare(grid(place, **options | {"seeds": 2}), tmp_path / "out", 1, 1)
    assert local_cells.log == ["fit sgns-seed1", "fit nce-seed1"]


def test_two_comparisons_cannot_use_one_folder(finished: Comparison) -> None:
    ours = os.open(finished.folder, os.O_RDONLY)
    fcntl.flock(ours, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another comparison is running there"):
        compare.compare(compare.read_grid({}, None, finished.folder), finished.folder, 1, 1)
    os.close(ours)
    with workers.working_in(finished.folder) as lock:
        assert lock > 2


def test_a_comparison_waits_for_cells_of_a_killed_one(finished: Comparison) -> None:
    """Such a cell still holds the lock that it inherited."""
    held = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], 0), 2); print(flush=True); time.sleep(0.5)"
    with subprocess.Popen([sys.executable, "-c", held, str(finished.folder / "cells")],
                          stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None and orphan.stdout.readline()
        begun = time.monotonic()
        with workers.working_in(finished.folder):
            assert time.monotonic() - begun > 0.3


# -- processes ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_stopped_by_a_signal_resumes(
        finished: Comparison, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell runs in its own process and gets SIGTERM while it trains; then the comparison ends."""
    monkeypatch.setattr("embtrain.experiment.comparison.compare.page.write", lambda at: None)
    cell = tmp_path / "cells" / "nce-seed2"
    shutil.copytree(finished.folder / "cells", tmp_path / "cells", ignore=shutil.ignore_patterns(cell.name))
    shutil.copy(finished.folder / "comparison.yaml", tmp_path)
    def stop() -> None:
        until((cell / "metrics.jsonl").exists)
        os.kill(os.getpid(), signal.SIGTERM)
    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped):
        compare.compare(grid(place), tmp_path, 2, 2)
    thread.join()
    assert (cell / "config.yaml").exists() and not (cell / "scores.json").exists()
    with workers.working_in(tmp_path):  # no process is left
        assert not cell.with_name("nce-seed2.error.json").exists()
    compare.compare(grid(place), tmp_path, 2, 2)
    assert without_times(tmp_path) == without_times(finished.folder)
    assert scoring.read_items(cell / "items.safetensors").keys() == {f"{part}/{name}" for part in ("valid", "test")
                                                                   for name in ("log_p", "rank", "cluster")}


def until(true: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "never came to be"
        time.sleep(0.005)


def test_cells_get_the_given_cores(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(workers, "run", lambda planned, parallel, threads, **_: seen.append((parallel, threads)))
    for parallel, threads in ((None, 3), (2, 8), (8, 2), (None, 9)):
        with pytest.raises(DataError, match="not run yet"):
            compare.compare(grid(place), tmp_path / "out", parallel, threads)
    assert seen == [(3, 1), (2, 4), (4, 1), (4, 1)]  # there are four cells


def test_remaining_time_uses_the_pace_of_each_strategy(
        place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = compare.plan(grid(place), tmp_path)[1]
    at = {"sgns-seed1": '{"step": 100, "seconds": 10.0}\n{"st', "nce-seed1": '{"step": 50, "seconds": 50.0}\n'}
    for cell in planned[:2]:
        cell.folder.mkdir(parents=True)
        (cell.folder / "metrics.jsonl").write_text(at[cell.name])
    for name in workers.FINISHED:
        (planned[0].folder / name).touch()
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0)
    workers._ProgressPrinter(planned, 2, 100).print_status([planned[1]])
    # sgns: .1 s per block, one cell remains; nce: 1 s, one and a half remain; two at a time: (10 + 50 + 100) / 2
    assert capsys.readouterr().err == ("comparing: 1 of 4 runs done; running: nce-seed1 (50%); about 1 min 20 s "
                                       "left\n")
    (planned[1].folder / "metrics.jsonl").write_text('{"step": 100, "seconds": 100}\n')
    for cell in planned[2:]:
        for name in workers.FINISHED:
            cell.folder.mkdir(parents=True, exist_ok=True)
            (cell.folder / name).touch()
    workers._ProgressPrinter(planned, 2, 100).print_status([planned[1]])
    assert capsys.readouterr().err == "comparing: 3 of 4 runs done; running: nce-seed1 (evaluating)\n"


def test_remaining_time_includes_what_finished_runs_needed_besides_training(
        place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs spend most of their time on their start and their evaluation."""
    first, second, *others = planned = compare.plan(grid(place), tmp_path)[1]
    now = 1000.0
    monkeypatch.setattr(workers.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0)
    printer = workers._ProgressPrinter(planned, 1, 100)
    printer.print_status([first])
    now += 35
    first.folder.mkdir(parents=True)
    (first.folder / "metrics.jsonl").write_text('{"step": 100, "seconds": 5.0}\n')
    for name in workers.FINISHED:
        (first.folder / name).touch()
    printer.print_end(first, "")
    printer.print_status([second])
    now += 10
    capsys.readouterr()
    printer.print_status([second])
    # 5 s of training for each of three runs, and 30 s besides, of which the running one has used 10
    assert len(others) == 2 and capsys.readouterr().err.endswith("; about 1 min 35 s left\n")


@pytest.mark.parametrize("cpu, report", [(25, "25%); about 2 min 30 s left"), (99, "99%); about 2.0 s left"),
                                         (100, "evaluating)")])
def test_progress_follows_cpu_seconds_if_they_end_before_the_blocks(
        place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        cpu: int, report: str) -> None:
    cell = compare.plan(grid(place).model_copy(update={"cpu_seconds": 100.0}), tmp_path)[1][0]
    cell.folder.mkdir(parents=True)
    # Half of a core: one second of wall time per half a CPU second. Counted in blocks, a tenth is done.
    (cell.folder / "metrics.jsonl").write_text(f'{{"step": 10, "seconds": {2 * cpu}, "cpu_seconds": {cpu}}}\n')
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0)
    workers._ProgressPrinter([cell], 1, 100).print_status([cell])
    assert capsys.readouterr().err == f"comparing: 0 of 1 runs done; running: {cell.name} ({report}\n"


@pytest.mark.parametrize(("n", "text"), [(1, "1 run"), (3, "3 runs")])
def test_runs_without_cpu_seconds_left_are_counted(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                   n: int, text: str) -> None:
    cells = compare.plan(grid(place), tmp_path)[1][:n]
    for budget, limit in ((60.0, "60 CPU seconds"), (1.0, "1 CPU second"), (0.0001, "0.0001 CPU seconds")):
        workers._leave_out(deque(cells), budget)
        assert f"the limit of {limit} is used up, which skips {text}; set a larger limit" in capsys.readouterr().err
        assert f"not started: the limit of {limit} for all runs was used up" in cells[0].failure.read_text()


def test_runs_that_evaluate_a_cell_count_in_spent_and_remaining_time(
        place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cell = compare.plan(grid(place), tmp_path)[1][0]
    assert cell.downstream_limits == {}
    cell = replace(cell, downstream_limits={cell.folder / "x": 300.0, cell.folder / "y": None})
    for folder, step, seconds, cpu in ((cell.folder, 100, 50, 50), (cell.folder / "x", 7, 120, 60)):
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(f'{{"step": {step}, "seconds": {seconds}, "cpu_seconds": {cpu}}}\n')
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0)
    workers._ProgressPrinter([cell], 1, 100).print_status([cell])
    assert capsys.readouterr().err == (f"comparing: 0 of 1 runs done; running: {cell.name} (evaluating); "
                                       "about 8 min 0 s left\n")
    assert workers.spent([cell]) == 110


@pytest.mark.parametrize(("edit", "options"), [
    ("k: 9", {}), ("k: [", {}), ("k: 9", {"search": ["train.min_lr=0.001:0.01"], "trials": 1}), (None, {})])
def test_all_runs_of_a_strategy_file_have_its_settings_of_the_start(
        place: Path, tmp_path: Path, local_cells: type[Here], monkeypatch: pytest.MonkeyPatch, edit: str | None,
        options: dict[str, Any]) -> None:
    """Edit the file before the first run trains, or start the runs in a folder where its relative path names none."""
    monkeypatch.chdir(tmp_path)
    file, begin = tmp_path / "mine.yaml", local_cells.__init__
    file.write_text("negatives: {source: unigram, k: 3}\nloss: {name: logistic}\n")

    def begin_later(*arguments: Any, **more: Any) -> None:
        if edit is None:
            monkeypatch.chdir(place)
        else:
            file.write_text(file.read_text().replace("k: 3", edit))
        begin(*arguments, **more)

    monkeypatch.setattr(local_cells, "__init__", begin_later)
    compare.compare(grid(place, strategies=["sgns", "mine.yaml"], **options), tmp_path / "out", 1, 1)
    runs = [path.parent for path in (tmp_path / "out").glob("*/mine-*/scores.json")]
    assert [experiment.Run(run).settings.negatives.k for run in runs] == [3] * (2 + len(options) // 2)


def test_the_command_in_the_report_of_a_cell_repeats_its_run(place: Path, tmp_path: Path, local_cells: type[Here],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """With a learning rate below the default of train.min_lr, and a strategy file of a relative path."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("negatives: {source: unigram, k: 3}\nloss: {name: logistic}\n")
    compare.compare(grid(place, "train.lr=0.00001", strategies=["sgns", "mine.yaml"], seeds=1), tmp_path / "out", 1, 1)
    run = tmp_path / "out" / "cells" / "mine-seed1"
    run_page.write(run)
    command = re.search(r"## How to reproduce\n\n```\w*\n(.+)\n```", (run / "report.md").read_text())
    assert command is not None
    subprocess.run(command[1].replace("embtrain", f"{sys.executable} -m embtrain"), shell=True, cwd=run, check=True)
    (again,) = (path.parent for path in run.rglob("scores.json") if path.parent != run)
    assert vector_files.read(again / "vectors.safetensors").table.tobytes() == \
        vector_files.read(run / "vectors.safetensors").table.tobytes()


# -- the grid -------------------------------------------------------------------------------------------------------


def test_options_override_a_grid_read_from_yaml(place: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(f"strategies: [sgns, nce]\nseeds: 4\ncorpus: {place / 'text'}\n"
                                        "sets: [model.dim=3]\nmetric: test/mrr\n")
    cells_grid = compare.read_grid({"metric": None, "losses": [None, "softmax"], "seeds": [7, 9]},
                                   tmp_path / "grid.yaml")
    filled, planned = compare.plan(cells_grid, tmp_path)
    assert [cell.name for cell in planned] == [f"{name}-seed{seed}" for seed in (7, 9) for name in (
        "sgns", "sgns+softmax", "nce", "nce+softmax")]
    assert (filled.baseline, filled.metric, filled.benchmarks) == ("sgns", "test/mrr", ["wordsim353", "simlex999"])
    assert {cell.settings.model.dim for cell in planned} == {3}
    assert [cell.settings.loss.name for cell in planned[:4]] == ["logistic", "softmax", "nce", "softmax"]
    assert compare.read_grid({}, tmp_path / "grid.yaml").seeds == [1, 2, 3, 4]
    cell = compare.plan(cells_grid.model_copy(update={"cpu_seconds": 2.5, "benchmarks": ["simlex999"]}),
                                 tmp_path)[1][0]
    assert cell.settings.train.cpu_seconds == 2.5 and cell.settings.evaluate.benchmarks == ["simlex999"]


@pytest.mark.parametrize(("options", "message"), [
    ({"strategies": []}, "--negatives: is missing"),
    ({"strategies": ["sgns"]}, "sgns is the only strategy; add another, or tune it with --search"),
    ({"strategies": ["sgns", "sgsn"]}, "'sgsn'"),
    ({"strategies": ["sgns", "nce", "sgns"]}, "--negatives: two runs would have the name sgns-seed1"),
    ({"losses": [None, None]}, "--losses: two runs would have the name sgns-seed1"),
    ({"models": ["skipgram", "skipgram"]}, "--model: two runs would have the name sgns@skipgram-seed1"),
    ({"seeds": [1, 1]}, "--seeds: two runs would have the name sgns-seed1"),
    ({"baseline": "ace"}, "--baseline: 'ace' is not one of sgns, nce"),
    ({"metric": "wordsim/spearman"}, "'wordsim' is neither valid, test nor one of evaluate.benchmarks"),
    ({"metric": "spearman"}, "--metric: metric: "),
    ({"sets": ["evaluate.heldout_pairs=0"]}, "nothing is held out"),
    ({"sets": ["train.seed=3"]}, "--set train.seed: each run has its own"),
    ({"sets": ["strategy=ace"]}, "--set strategy: each run has its own"),
    ({"sets": ["model.name=cbow"]}, "--set model.name: each run has its own; use --model"),
    ({"sets": ["loss.name=nce"], "losses": [None, "softmax"]}, "--set loss.name: each run has its own; use --losses"),
    ({"sets": ["train.cpu_seconds=9"], "cpu_seconds": 5},
     "--set train.cpu_seconds: 9.0: --cpu-seconds is 5.0; remove one of the two"),
    ({"sets": ["evaluate.benchmarks=[]"], "benchmarks": ["men", "yp130"]},
     "--benchmarks: men,yp130: the settings have evaluate.benchmarks: []; remove one of the two"),
    ({"sets": ["text.windw=3"]}, "did you mean 'window'"),
    ({"seeds": 0}, "--seeds: seeds"),
    ({"seeds": []}, "--seeds: seeds"),
    ({"cpu_seconds": -1.0}, "--cpu-seconds: cpu_seconds"),
    ({"corpus": "nowhere"}, "corpus: 'nowhere' is neither a file"),
    ({"benchmarks": ["wordsim"], "metric": "test/mrr"}, "wordsim353"),
    ({"strategies": ["sgns", "OWN"]}, "text.window: is 5 in sgns and 3 in own"),
])
def test_an_impossible_comparison_is_refused_before_training(
        place: Path, tmp_path: Path, local_cells: type[Here], options: dict[str, Any], message: str) -> None:
    (tmp_path / "own.yaml").write_text("negatives: {source: uniform, k: 5, filter: none}\nloss: {name: nce}\n"
                                       "text: {window: 3}\n")
    names = options.get("strategies", ["sgns", "nce"])
    names = [str(tmp_path / "own.yaml") if name == "OWN" else name for name in names]
    with pytest.raises(EmbtrainError) as error:
        compare.compare(compare.read_grid({"corpus": str(place / "text"), "seeds": 2, **options, "strategies": names}),
                        tmp_path / "out", 1, 1)
    assert message in str(error.value) and local_cells.log == []


@pytest.mark.parametrize(("text", "message"), [
    ("strategies: [sgns, nce]\nmodels: [foo]\n", "g.yaml:3:10: models[0]: model.name: no model named 'foo'"),
    ("strategies:\n- sgns\n- foo\n", "g.yaml:4:3: strategies[1]: strategy: no strategy named 'foo'"),
    ("runs:\n  x: {strategy: sgns, loss: foo}\n", "g.yaml:3:23: runs.x.loss: loss.name: there is no 'foo'"),
    ("runs:\n  x: {strategy: sgns, sets: [train.epoch=3]}\n",
     "g.yaml:3:30: runs.x.sets[0]: train.epoch: unknown key (did you mean 'epochs'?"),
    ("strategies: [sgns, nce]\nsets: [model.dim=3, model.dim]\n", "g.yaml:3:21: sets[1]: should be KEY.KEY=VALUE"),
    ("strategies: [sgns, nce]\nbenchmarks: [men, mem]\n", "g.yaml:3:19: benchmarks[1]: no benchmark named 'mem'"),
    ("strategies: [sgns, nce]\nbaseline: ace\n", "g.yaml:3:1: baseline: 'ace' is not one of sgns, nce"),
    ("strategies: [sgns, nce]\nmetric: men/spearman\n", "g.yaml:3:1: metric: men/spearman: 'men' is neither valid"),
    ("runs: {a: {strategy: sgns}, b: {strategy: bernoulli, model: transe}}\n",
     "g.yaml:2:54: runs.b.model: skipgram learns from windows and transe does not"),
])
def test_errors_in_a_grid_file_name_their_place(place: Path, tmp_path: Path, text: str, message: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(f"corpus: {place / 'text'}\n{text}")
    with pytest.raises(UsageError) as error:
        compare.plan(compare.read_grid({}, tmp_path / "g.yaml"), tmp_path / "out")
    assert str(error.value).startswith(message), error.value


@pytest.mark.parametrize(("line", "message"), [
    ("--negatives sgns,nce --losses nce,foo", "--losses: loss.name: there is no 'foo'"),
    ("--negatives sgns,foo", "--negatives: strategy: no strategy named 'foo'"),
    ("--negatives sgns,nce --set train.epoch=3", "--set train.epoch=3: train.epoch: unknown key"),
    ("--negatives sgns,nce --set train.epoch", "--set train.epoch: should be KEY.KEY=VALUE"),
    ("--negatives sgns,nce --model skipgram,transe", "--model: skipgram learns from windows and transe does not, "),
    ("--negatives sgns,nce --benchmarks mem", "--benchmarks: no benchmark named 'mem' (did you mean 'men'?)"),
    ("--negatives sgns,nce --set evaluate.during_training=[mem]", "evaluate.during_training: no benchmark named 'mem'"),
    ("--negatives bernoulli,uniform --model transe --benchmarks wordsim353", "--benchmarks: transe learns from"),
    ("--negatives bernoulli,vmf --model transe", "--negatives: vmf is not for model.name: transe (it sets "),
])
def test_errors_in_a_command_name_the_given_flag(
        place: Path, tmp_path: Path, local_cells: type[Here], monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "compare", *line.split(), "--corpus", str(place / "text"), "--out",
                                      str(tmp_path / "out")])
    assert cli.run() == 2
    err = capsys.readouterr().err
    assert err.startswith(f"embtrain: error: {message}") and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_repeated_benchmark_counts_once() -> None:
    assert compare.read_grid({"benchmarks": ["men", "wordsim353", "men"]}).benchmarks == ["men", "wordsim353"]
    twice = ["evaluate.benchmarks=[men, wordsim353, men]", "evaluate.during_training=[men, men]"]
    config = experiment.resolve("sgns", sets=twice).evaluate
    assert (config.benchmarks, config.during_training) == (["men", "wordsim353"], ["men"])


def test_equal_grids_are_equal_from_a_file_and_from_options() -> None:
    assert compare.read_grid({"strategies": ["sgns"]}) == Grid(strategies=["sgns"]) != Grid(strategies=["nce"])


# -- joined runs ---------------------------------------------------------------------------------------------


def test_runs_are_joined_by_strategy_and_seed(finished: Comparison, place: Path, tmp_path: Path,
                                              local_cells: type[Here]) -> None:
    inside = finished.folder / "cells"
    joined = join.join([inside / "nce-seed1", inside / "sgns-seed1", inside / "nce-seed2", inside / "sgns-seed2"],
                       tmp_path / "a", "sgns")
    whole = join.join([finished.folder], tmp_path / "b", "sgns", "test/mrr")
    for one, metric in ((joined, "test/log_likelihood"), (whole, "test/mrr")):
        key = next(d for d in one.results["differences"] if d["metric"] == metric)
        expected = next(d for d in finished.results["differences"] if d["metric"] == metric)
        assert key["mean"] == pytest.approx(expected["mean"]) and key["p"] == pytest.approx(expected["p"])
        assert (one.folder / one.results["cells"][0]["folder"] / "scores.json").is_file()
    assert joined.results["plan"]["metric"] == "test/log_likelihood" and whole.results["plan"]["metric"] == "test/mrr"


def test_labels_contain_every_other_difference_between_runs(finished: Comparison, place: Path, tmp_path: Path) -> None:
    config = experiment.Run(finished.folder / "cells" / "sgns-seed1").settings
    other = tmp_path / "other"
    shutil.copytree(finished.folder / "cells" / "sgns-seed1", other)
    changed = (other / "config.yaml").read_text().replace("dim: 6", "dim: 7")
    (other / "config.yaml").write_text(changed)
    settings_of_runs = {other: experiment.Run(other).settings, finished.folder / "cells" / "sgns-seed1": config,
            finished.folder / "cells" / "nce-seed1": experiment.Run(finished.folder / "cells" / "nce-seed1").settings}
    assert list(join._labels(settings_of_runs).values()) == ["sgns (model.dim=7)", "sgns (model.dim=6)", "nce"]


@pytest.mark.parametrize(("content", "source"), [
    ("loss: {name: nce}\nnegatives: {k: 4}", "uniform"),
    ("loss: {name: nce}\nnegatives: {k: 4, clusters: 9}", "cluster"),
    ("loss: {name: nce}\nnegatives: {source: uniform, k: 4}", "cluster")])
def test_the_label_of_a_joined_run_with_another_loss_is_that_of_compare(tmp_path: Path, content: str, source: str
                                                                        ) -> None:
    """A strategy file needs no source if --set names one."""
    (path := tmp_path / "mine.yaml").write_text(content)
    sets = [f"negatives.source={source}"]
    labels = [label for label, _ in compare.read_grid({
        "strategies": ["sgns", str(path)], "losses": ["sampled_softmax"], "sets": sets}).kinds()]
    settings_by_run = {Path(str(loss)): experiment.resolve(str(path), loss=loss, sets=sets)
                       for loss in ("sampled_softmax", "nce", None)}
    assert labels[1] == "mine+sampled_softmax"
    assert list(join._labels(settings_by_run).values()) == [labels[1], "mine", "mine"]
    path.unlink()
    assert join._changed_loss(settings_by_run[Path("nce")]) is None


def test_runs_that_cannot_be_joined_are_refused(finished: Comparison, tmp_path: Path) -> None:
    inside, other, copy = finished.folder / "cells", tmp_path / "other", tmp_path / "copy"
    with pytest.raises(UsageError, match="all are sgns"):
        join.join([inside / "sgns-seed1", inside / "sgns-seed2"], tmp_path / "out")
    shutil.copytree(inside / "nce-seed1", copy)
    with pytest.raises(DataError, match="are both nce with seed 1"):
        join.join([inside / "sgns-seed1", inside / "nce-seed1", copy], tmp_path / "out")
    shutil.copytree(inside / "nce-seed1", other)
    identity = (other / "identity.json").read_text()
    (other / "identity.json").write_text(identity.replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(DataError, match="was trained on another corpus"):
        join.join([inside / "sgns-seed1", other], tmp_path / "out")
    (other / "config.yaml").write_text((other / "config.yaml").read_text().replace("window: 5", "window: 4"))
    with pytest.raises(DataError, match=r"other: cannot .* with .*sgns-seed1, which has text\.window: 5 instead of 4$"):
        join.join([inside / "sgns-seed1", other], tmp_path / "out")
    (other / "scores.json").unlink()
    with pytest.raises(DataError, match="is not finished"):
        join.join([inside / "sgns-seed1", other], tmp_path / "out")
    with pytest.raises(UsageError, match="--baseline: 'ace' is not one of sgns, nce"):
        join.join([inside / "sgns-seed1", copy], tmp_path / "out", "ace")


@pytest.mark.parametrize(("metric", "message"), [
    ("foo", "--metric: metric: should be BENCHMARK/METRIC, for example test/mrr, got 'foo'"),
    ("test/foo", "--metric: test/foo: nce-seed1 does not have this score; there are: valid/log_likelihood, "),
])
def test_a_metric_that_no_joined_run_has_is_an_error_of_the_command(finished: Comparison, tmp_path: Path, metric: str,
                                                                    message: str) -> None:
    inside = finished.folder / "cells"
    with pytest.raises(UsageError) as error:
        join.join([inside / "nce-seed1", inside / "sgns-seed1"], tmp_path / "out", metric=metric)
    assert str(error.value).startswith(message) and not (tmp_path / "out").exists()


def test_runs_are_not_joined_into_the_path_of_a_file(finished: Comparison, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text("mine")
    monkeypatch.setattr(join, "_runs", lambda folders: pytest.fail("work was done"))
    with pytest.raises(UsageError, match=r"^--out: .*out: is not a folder; choose another$"):
        join.join([finished.folder], tmp_path / "out")


def test_the_command_report_distinguishes_one_run_from_several(
        finished: Comparison, tmp_path: Path, local_cells: type[Here], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr("embtrain.experiment.comparison.join.report.write",
                        lambda run, check: written.append(run) or run)
    run = finished.folder / "cells" / "sgns-seed1"
    assert join.write([run]) == run and written == [run]
    assert join.write([finished.folder]) == finished.folder / "report.html"
    assert join.write([run, run.parent / "nce-seed1"], tmp_path / "out") == tmp_path / "out" / "report.html"
    with pytest.raises(UsageError, match="--metric: applies to several runs"):
        join.write([run], metric="test/mrr")
    assert written == [run]


def test_an_unfinished_run_names_the_command_that_finishes_it(finished: Comparison, tmp_path: Path) -> None:
    runs = [shutil.copytree(run, tmp_path / run.name) for run in sorted((finished.folder / "cells").iterdir())[:2]]
    (runs[1] / "scores.json").unlink()
    with pytest.raises(DataError, match=rf"{runs[1].name}: is not finished: it has no scores\.json; finish it with: "
                                        r"embtrain resume "):
        join.write(runs, tmp_path / "out")


# -- items, budgets, verdicts ------------------------------------------------------------------------------------------


def test_scores_are_computed_from_the_items(finished: Comparison) -> None:
    run = experiment.Run(finished.folder / "cells" / "sgns-seed1")
    items = scoring.read_items(run.folder / "items.safetensors")
    rows = {(row.benchmark, row.metric): row.value for row in run.scores}
    for part in ("valid", "test"):
        assert items[f"{part}/log_p"].mean() == pytest.approx(rows[part, "log_likelihood"], abs=1e-12)
        assert (1 / items[f"{part}/rank"]).mean() == pytest.approx(rows[part, "mrr"], abs=1e-12)
        assert items[f"{part}/cluster"].dtype == np.int64 and np.all(np.diff(items[f"{part}/cluster"]) >= 0)


def test_rows_are_equal_with_and_without_items(finished: Comparison) -> None:
    config = experiment.Run(finished.folder / "cells" / "nce-seed1").settings
    built = components.build(config, tasks.read(config))
    with torch.no_grad():
        built.model.v.copy_(built.model.u.flip(0) * 30)
    batch, items = built.task.heldout("test"), {}
    assert scoring.likelihood(built, batch, "test", config.evaluate, items) == scoring.likelihood(
        built, batch, "test", config.evaluate)
    query = built.model.encode(batch).detach()
    plain = heldout(scoring.logits(built, corrected=True), query, config.evaluate)
    assert [row._replace(benchmark="test") for row in plain] == scoring.likelihood(
        built, batch, "test", config.evaluate)[:len(plain)]
    assert len(items["test/rank"]) == len(batch) and items["test/rank"].min() >= 1


def test_items_of_a_benchmark(finished: Comparison) -> None:
    run, items = experiment.Run(finished.folder / "cells" / "sgns-seed1"), {}
    vectors_of_run = run.word_vectors
    vectors_of_run = type(vectors_of_run)(["king", "queen", *vectors_of_run.words[2:]], vectors_of_run.table)
    config = run.settings.evaluate
    rows = scoring.benchmarks(vectors_of_run, ["wordsim353"], config, items)
    assert rows == scoring.benchmarks(vectors_of_run, ["wordsim353"], config)
    score, gold = items["wordsim353/score"], items["wordsim353/gold"]
    assert len(score) == len(gold) == 353 and np.isfinite(score).sum() == rows[0].n == 1 and np.isfinite(gold).all()


@pytest.mark.parametrize("content", [b"", b"no header", b"\xff" * 20])
def test_invalid_items_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "items.safetensors"
    assert scoring.read_items(path) == {}
    path.write_bytes(content)
    with pytest.raises(DataError, match="no items of a run"):
        scoring.read_items(path)
    scoring.write_items(path, {"x/score": np.zeros((2, 2))})
    with pytest.raises(DataError, match="x/score: float64 of shape"):
        scoring.read_items(path)


def test_too_many_items_are_left_out_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "items.safetensors"
    monkeypatch.setattr(scoring, "MAX_ITEMS", scoring.MAX_HEADER + 800)
    scoring.write_items(path, {"x/score": np.zeros(100)})
    assert scoring.read_items(path)["x/score"].shape == (100,) and not caplog.messages
    scoring.write_items(path, {"x/score": np.zeros(101)})
    assert scoring.read_items(path) == {} and "the 808 bytes of values of held-out items are too many" in caplog.text


def test_a_run_ends_when_its_cpu_seconds_run_out(place: Path, tmp_path: Path, local_cells: type[Here]) -> None:
    """With a clock of one second per block: five blocks, a decreasing learning rate, one last evaluation."""
    cells_grid = grid(place, "train.cpu_seconds=5", "train.epochs=50", "train.min_lr=0", "train.log_every=1")
    config = compare.plan(cells_grid, tmp_path)[1][0].settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embtrain.train.stopwatch.time", Clock())
        run = experiment.fit(config, tmp_path / "a")
        lines = read(run.folder / "metrics.jsonl")
        assert [line["lr"] for line in lines if "lr" in line] == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02])
        assert [line["step"] for line in lines if "valid/mrr" in line] == [5] and lines[-1]["cpu_seconds"] == 5
        run.resume()
        assert read(run.folder / "metrics.jsonl") == lines
        assert experiment.Run(run.folder).settings.train.cpu_seconds == 5


class Clock:
    """Replacement for the module time in the stopwatch of training."""

    cpu = 0.0

    def process_time(self) -> float:
        self.cpu += 1
        return self.cpu

    monotonic = staticmethod(time.monotonic)


def test_a_budget_that_is_not_reached_changes_nothing(finished: Comparison, place: Path, tmp_path: Path,
                                                      local_cells: type[Here]) -> None:
    config = compare.plan(grid(place, "train.cpu_seconds=1e6"), tmp_path)[1][0].settings
    run = experiment.fit(config.model_copy(update={"train": config.train.model_copy(update={"threads": 1})}), tmp_path)
    whole = finished.folder / "cells" / "sgns-seed1"
    assert (run.folder / "vectors.safetensors").read_bytes() == (whole / "vectors.safetensors").read_bytes()


def cell(label: str, seed: int, value: float, cpu: float,
         curve: list[tuple[float, float, float]]) -> outcome.CellOutcome:
    return outcome.CellOutcome(f"{label}-seed{seed}", label, None, "skipgram", seed, Path("no folder"), "", None,
                             [Score("test", "mrr", value), Score("training", "seconds", 1.0)], cpu,
                             {"step": curve[-1][0], "epoch": 2, "examples": curve[-1][0]} if curve else {},
                             {"valid/mrr": [outcome.Point(step, step, step / 5, *rest) for step, *rest in curve]},
                             "text", "code")


def judged_tree(tmp_path: Path, cells_of: list[outcome.CellOutcome]) -> dict[str, Any]:
    plan = Grid(strategies=["base"], metric="test/mrr", baseline="base").model_dump(mode="json")
    results.write(tmp_path, plan, cells_of)
    return json.loads((tmp_path / "results.json").read_text())


def test_what_describes_a_run_is_not_tested(tmp_path: Path) -> None:
    cells_of = [replace(cell(label, seed, 0.5 + 0.01 * seed, 10, [(1, 1, 0.5)]), scores=[
        Score("test", "mrr", 0.5 + 0.01 * seed), Score("drift", "mean cosine", drift + 0.001 * seed),
        Score("neighbours 45-50", "mean PMI", drift), Score("training", "seconds", drift)])
        for label, drift in (("base", 0.7), ("new", 0.9)) for seed in (1, 2, 3)]
    tree = judged_tree(tmp_path, cells_of)
    assert {row["metric"] for row in tree["differences"]} == {"test/mrr"}
    assert {row["metric"] for row in tree["summary"]} > {"drift/mean cosine"}


def planted() -> list[outcome.CellOutcome]:
    """Scores where `up` is better by .2, `same` by noise alone, and `slow` at the end, at four times the cost."""
    noise, out = [0.001, -0.002, 0.003, 0.0, -0.001], []
    for seed, e in enumerate(noise, 1):
        other = noise[-seed]
        out += [cell("base", seed, 0.3 + e, 10 + e, [(5, 5, 0.2 + e), (10, 10 + e, 0.3 + e)]),
                cell("up", seed, 0.5 + other, 10.5, [(5, 5, 0.4), (10, 10.001, 0.5 + other)]),
                cell("same", seed, 0.3 + other, 12, [(5, 5, 0.2), (10, 12, 0.3 + other)]),
                cell("slow", seed, 0.4 + other, 40, [(5, 20, 0.3), (10, 40, 0.4 + other)])]
    return out


def test_the_verdict_names_the_winner_the_cost_and_what_is_not_separated(tmp_path: Path) -> None:
    tree = judged_tree(tmp_path, planted())
    first, second, third = tree["verdict"]
    assert first == ("On test/mrr, over 5 seeds, up (+0.2) and slow (+0.1) beat base, same (+0) is not separable from "
                     "base.")
    assert second.startswith("A run of base takes 10 CPU seconds, one of up as much, one of same 1.2 times as much and "
                             "one of slow 4 times as much; at 10 CPU seconds for each, on valid/mrr, up (+0.2) beats")
    assert "same (-0.0286) is worse than base" in second and "slow could not be tested against base" in second
    assert "whether same differs from base by less than" in third and "there are 5" in third
    worse = judged_tree(tmp_path, [one for one in planted() if one.label in ("base", "slow")
                                   and one.seed == 1])["verdict"]
    assert worse[0] == "On test/mrr, over 1 seed, slow could not be tested against base."
    assert "3 or more seeds" in worse[2]
    two = judged_tree(tmp_path, [one for one in planted() if one.label in ("base", "up") and one.seed < 3])["verdict"]
    assert two[0] == "On test/mrr, over 2 seeds, two seeds are too few to separate up (+0.2) from base."
    assert "beats" not in " ".join(two) and two[2].startswith(
        "Not shown: whether up and base differ (run 3 seeds or more), and whether the result holds on other data.")


@pytest.mark.parametrize(("failed", "sentences"), [
    ("base", ("On test/mrr, up and slow could not be tested against base.",
              "The cost is unknown, because no run of base has scores.")),
    ("up", ("On test/mrr, over 5 seeds, slow (+0.1) beats base, up could not be tested against base.",
            "A run of base takes 10 CPU seconds, one of slow 4 times as much; "))])
def test_the_verdict_counts_no_seeds_and_no_cost_of_runs_that_all_failed(tmp_path: Path, failed: str,
                                                                         sentences: tuple[str, str]) -> None:
    runs = [replace(one, error="no memory", scores=[], cpu_seconds=None, curves={}) if one.label == failed else one
            for one in planted() if one.label != "same"]
    first, second, third = judged_tree(tmp_path, runs)["verdict"]
    assert (first, second[:len(sentences[1])]) == sentences
    assert f"differ at all, because no run of {failed} has a value" in third and "or more seeds" not in third


def test_cpu_seconds_of_unlike_processors_are_not_compared(tmp_path: Path) -> None:
    def trained_on(*processors: str | None) -> dict[str, Any]:
        return judged_tree(tmp_path, [replace(one, processor=processors[i % len(processors)])
                                      for i, one in enumerate(planted())])

    same = judged_tree(tmp_path, planted())
    assert trained_on("Xeon")["verdict"] == trained_on("Xeon", None)["verdict"] == same["verdict"]
    unlike = trained_on("Xeon", "EPYC")
    why = "CPU seconds are not compared, because the runs were trained on unlike processors: Xeon and EPYC."
    assert unlike["verdict"] == [same["verdict"][0], why, same["verdict"][2]]
    at_equal = unlike["at_equal"]["cpu_seconds"]
    assert at_equal["differences"] == [] and at_equal["note"] == why
    compared = same["at_equal"]["cpu_seconds"]
    assert at_equal["rows"] == compared["rows"] and compared["differences"]


def test_scores_at_equal_cpu_time_are_read_from_the_curves(tmp_path: Path) -> None:
    tree = judged_tree(tmp_path, planted())["at_equal"]
    assert tree["cpu_seconds"]["budget"] == pytest.approx(9.998)  # the shortest run, so all curves contain it
    rows = {(row["strategy"], row["seed"]): row["value"] for row in tree["cpu_seconds"]["rows"]}
    assert rows["base", 2] == pytest.approx(0.298) and rows["slow", 3] is None
    assert rows["base", 3] == pytest.approx(0.203 + 0.1 * 4.998 / 5.003)
    assert rows["same", 3] == pytest.approx(0.2 + 0.103 * 4.998 / 7)
    rows = {(row["strategy"], row["seed"]): row["value"] for row in tree["epochs"]["rows"]}
    assert tree["epochs"]["steps"] == 10 and rows["slow", 1] == pytest.approx(0.399)


def test_the_last_of_several_evaluations_at_one_cpu_time_counts_and_none_without_a_time() -> None:
    runs = [cell("base", 1, 0, 2, [(1, 1, 0.1), (2, 2, 0.2), (3, 2, 0.3)]),
            cell("up", 1, 0, 4, [(1, math.nan, 9), (2, 1, 0.1), (3, math.nan, 9), (4, 4, 0.7), (5, math.nan, 9)])]
    at_equal = results.at_equal_cpu(runs, ["base", "up"], {"metric": "test/mrr", "baseline": "base"})
    assert at_equal.budget == 2 and [row.value for row in at_equal.rows] == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize("n_evaluations", [1, 2])
def test_values_of_one_strategy_alone_are_not_compared_at_equal_cpu_time(tmp_path: Path, n_evaluations: int) -> None:
    """With one evaluation of each run, the fastest run alone has a value at the time that all runs reached."""
    curves = {(label, seed): [(5, 5, 0.2), (10, 10 + seed + (label == "copy") / 2, 0.3)]
              for label in ("base", "copy") for seed in (1, 2, 3)}
    tree = judged_tree(tmp_path, [cell(*name, 0.3, curve[-1][1], curve[-n_evaluations:])
                                  for name, curve in curves.items()])
    cpu = tree["at_equal"]["cpu_seconds"]
    text = markdown_latex.markdown(comparison_page.document(read_results.read(tmp_path)))
    assert ("set train.evaluate_every" in tree["verdict"][1]) == (n_evaluations == 1)
    assert (cpu["budget"] is None, cpu["rows"] == [], cpu["differences"] == []) == (n_evaluations == 1,) * 3
    assert (" CPU seconds for each" in tree["verdict"][1], "at equal CPU time |" in text) == (n_evaluations == 2,) * 2


@pytest.mark.parametrize(("base", "others", "reason"), [
    ((10, 10), (5, 10), None),
    ((12, 20), (5, 10), "were base and another strategy both evaluated by the time that all runs reached; set train.e"),
    ((5, 10), (12, 20), "were base and another strategy both evaluated by the time that all runs reached; set train.e"),
    ((math.nan, math.nan), (5, 10), "do base and another strategy both have evaluations with a CPU time."),
    ((math.nan, math.nan), (math.nan, math.nan), "do base and another strategy both have evaluations with a CPU time.")
])
def test_the_reason_for_no_comparison_at_equal_cpu_time_is_that_of_the_tested_curve(
        tmp_path: Path, base: tuple[float, float], others: tuple[float, float], reason: str | None) -> None:
    """Two strategies have values if the baseline has none; another metric has values of all strategies."""
    times = {"base": base, "up": others, "same": others}
    runs = [cell(label, seed, 0.3, 20, [(5, times[label][0], 0.2), (10, times[label][1], 0.3)])
            for label in times for seed in (1, 2, 3)]
    for run in runs:
        run.curves["own/spearman"] = [outcome.Point(5, 5, 1, 5, 0.1), outcome.Point(10, 10, 2, 10, 0.1)]
    tree = judged_tree(tmp_path, runs)
    cpu = tree["at_equal"]["cpu_seconds"]
    assert (cpu["budget"] is None, cpu["rows"] == []) == (reason is not None,) * 2
    if reason is not None:
        start = "nothing is compared at equal CPU time, because at no seed "
        assert f"; {start}{reason}" in tree["verdict"][1] and tree["verdict"][1].endswith(f"{cpu['note']}.")


EVALUATED = [(5, 5, 0.2), (10, 20, 0.3)]
UNTIMED = [(5, math.nan, 0.2), (10, math.nan, 0.3)]
DIVERGED = [(5, 5, math.nan), (10, 20, math.nan)]


@pytest.mark.parametrize(("curves", "reason"), [
    ({"base": DIVERGED, "up": EVALUATED}, "do base and another strategy both have finite values at the time that"),
    ({"base": EVALUATED, "up": DIVERGED}, "do base and another strategy both have finite values at the time that"),
    ({"base": None, "up": EVALUATED}, "were base and another strategy both evaluated on valid/mrr during training"),
    ({"base": None, "up": None}, "were base and another strategy both evaluated during training"),
    ({"base": EVALUATED, "other": EVALUATED}, "were base and another strategy both evaluated on valid/mrr during tra"),
    ({"base": UNTIMED, "other": UNTIMED}, "were base and another strategy both evaluated on valid/mrr during training"),
])
def test_nothing_is_compared_at_equal_cpu_time_without_values_of_two_strategies(
        tmp_path: Path, curves: dict[str, list[tuple[float, float, float]] | None], reason: str) -> None:
    """Their runs diverged, were not evaluated during training, or have no seed in common: those of `other`."""
    runs = [cell(label, seed + 3 * (label == "other"), 0.3, 20, curve or EVALUATED)
            for label, curve in curves.items() for seed in (1, 2, 3)]
    tree = judged_tree(tmp_path, [run if curves[run.label] else replace(run, curves={}) for run in runs])
    cpu = tree["at_equal"]["cpu_seconds"]
    assert (cpu["budget"], cpu["rows"], cpu["differences"]) == (None, [], [])
    assert cpu["note"].startswith(f"nothing is compared at equal CPU time, because at no seed {reason}")
    assert tree["verdict"][1].endswith(f"; {cpu['note']}.")


def test_a_single_strategy_without_evaluations_has_no_values_at_equal_cpu_time(tmp_path: Path) -> None:
    runs = [cell("base", seed, 0.3, 20, EVALUATED) for seed in (1, 2)]
    assert judged_tree(tmp_path, runs)["at_equal"]["cpu_seconds"]["budget"] == 20
    tree = judged_tree(tmp_path, [replace(run, curves={}) for run in runs])
    cpu = tree["at_equal"]["cpu_seconds"]
    assert (cpu["budget"], cpu["rows"], cpu["note"]) == (None, [], "no evaluation during training has a CPU time")
    assert tree["verdict"][0] == "A run of base takes 20 CPU seconds."


def test_a_metric_that_was_not_evaluated_during_training_is_not_tested_at_equal_cpu_time(tmp_path: Path) -> None:
    runs = [cell(label, seed, 0.3, 20, EVALUATED) for label in ("base", "up") for seed in (1, 2, 3)]
    tree = judged_tree(tmp_path, [replace(run, curves={"sim/x": run.curves["valid/mrr"]}) for run in runs])
    cpu, reason = tree["at_equal"]["cpu_seconds"], "nothing is tested at equal CPU time, because valid/mrr was not eval"
    assert (cpu["budget"], cpu["differences"], {row["metric"] for row in cpu["rows"]}) == (20, [], {"sim/x"})
    assert cpu["note"].startswith(reason) and f"; {reason}uated during training." in tree["verdict"][1]


@pytest.mark.parametrize(("step", "text"), [(5, "within 1 epoch, "), (10, "within 2 epochs, ")])
def test_the_report_counts_the_epochs_that_all_runs_completed(tmp_path: Path, step: int, text: str) -> None:
    judged_tree(tmp_path, [cell(label, seed, 0.3, 20, [(step, 5, 0.2)]) for label in ("base", "up") for seed in (1, 2)])
    assert text in markdown_latex.markdown(comparison_page.document(read_results.read(tmp_path)))


@pytest.mark.parametrize("n_seeds", [3, 5, 10])
def test_equal_strategies_are_rarely_separated_at_equal_cpu_time(n_seeds: int) -> None:
    """Four evaluations of a rising curve, 3 % noise of the CPU time; 1,000 comparisons at a level of 5 %."""
    rng, n_separated = np.random.default_rng(n_seeds), 0
    for _ in range(1000):
        runs = []
        for label, seed in itertools.product(("base", "copy"), range(n_seeds)):
            cpu, noise = 100 * (1 + 0.03 * rng.normal()), 0.005 * rng.normal()
            runs.append(cell(label, seed, 0, cpu, [(t, t * cpu / 4, t / 4 + noise) for t in (1, 2, 3, 4)]))
        [d] = results.at_equal_cpu(runs, ["base", "copy"], {"metric": "test/mrr", "baseline": "base"}).differences
        assert d.n == n_seeds
        n_separated += d.verdict in (A_BEATS_B, B_BEATS_A)
    assert n_separated <= 65


@pytest.mark.parametrize(("blocks", "examples"), [(8, 100), (2, 101)])
def test_equal_epochs_do_not_depend_on_block_and_epoch_sizes(tmp_path: Path, blocks: int, examples: int) -> None:
    """Engines have different block sizes, and subsampling leaves different epoch sizes per seed."""
    first, other = cell("base", 1, 0.3, 9, []), cell("up", 1, 0.5, 9, [])
    for one, block_size, size in ((first, 2, 100), (other, blocks, examples)):
        one.reached.update({"step": 6 * block_size, "epoch": 6, "examples": 6 * size})
        one.curves["valid/mrr"] = [outcome.Point(block_size * e, size * e, e, e, e / 10) for e in range(1, 7)]
    tree = judged_tree(tmp_path, [first, other])["at_equal"]["epochs"]
    assert tree["epochs"] == 6 and [row["value"] for row in tree["rows"]] == [0.6, 0.6]


def test_runs_that_end_in_their_first_epoch_are_compared_at_equal_examples(tmp_path: Path) -> None:
    cells_of = [cell("base", 1, 0.3, 9, []), cell("up", 1, 0.5, 9, [])]
    for one, last in zip(cells_of, (4, 2), strict=True):
        one.reached.update({"step": last, "epoch": 0, "examples": 10 * last})
        one.curves["valid/mrr"] = [outcome.Point(x, 10 * x, math.nan, x, x / 10) for x in range(1, last + 1)]
    tree = judged_tree(tmp_path, cells_of)["at_equal"]["epochs"]
    assert tree["epochs"] is None and [row["value"] for row in tree["rows"]] == [0.2, 0.2]


def test_more_seeds_are_not_advised_if_no_seed_has_both_values(tmp_path: Path) -> None:
    cells_of = [one for one in planted() if one.label in ("base", "up")]
    for one in cells_of:
        if one.label == "up":
            one.scores[0] = Score("test", "mrr", None)
    assert judged_tree(tmp_path, cells_of)["verdict"][2].startswith(
        "Not shown: whether up and base differ at all, because no run of up has a value, and whether the result holds")
    apart = [one for one in planted() if (one.label, one.seed % 2) in (("base", 0), ("up", 1))]
    assert "(run 3 or more seeds with values of both)" in judged_tree(tmp_path, apart)["verdict"][2]


def test_the_primary_metric_is_a_separate_family(tmp_path: Path) -> None:
    """Other metrics do not change its correction; they are corrected together."""
    many = [replace(one, scores=[*one.scores, *(Score("other", f"m{i}", row.value) for i in range(9)
                                                for row in one.scores[:1])]) for one in planted()]
    family = judged_tree(tmp_path, many)["differences"]
    first = [d for d in family if d["metric"] == "test/mrr"]
    others = [d for d in family if d["metric"].startswith("other/")]
    up = next(d for d in first if d["a"] == "same")
    assert len(first) == 3 and len(others) == 27 and not [d for d in family if d["metric"].startswith("training")]
    assert up["p_holm"] == pytest.approx(up["p"])  # the largest of three
    smallest = min(others, key=lambda d: d["p"])
    assert smallest["p_holm"] == pytest.approx(27 * smallest["p"])


# -- the command ----------------------------------------------------------------------------------------------------


def test_options_of_compare_reach_the_grid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                           finished: Comparison) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(compare, "compare", lambda *what: calls.append(what) or finished)
    line = ("compare --negatives sgns,nce --losses own,softmax --model skipgram --corpus brown --seeds 3 "
            "--baseline nce --metric test/mrr --benchmarks men,simlex999 --cpu-seconds 9 --set a.b=1 --set c=2 "
            "--parallel 2 --threads 4 --out o")
    monkeypatch.setattr(sys, "argv", ["embtrain", *line.split()])
    assert cli.run() == 0
    assert calls == [(Grid(strategies=["sgns", "nce"], losses=[None, "softmax"], models=["skipgram"], corpus="brown",
                           seeds=[1, 2, 3], baseline="nce", metric="test/mrr", benchmarks=["men", "simlex999"],
                           cpu_seconds=9, sets=["a.b=1", "c=2"]), Path("o"), 2, 4)]
    out = capsys.readouterr().out
    assert finished.verdict[0] in out and out.endswith(f"comparison: {finished.folder}\n")
    monkeypatch.setattr(sys, "argv", ["embtrain", "compare", "--negatives", "sgns,nce", "--json"])
    assert cli.run() == 0 and json.loads(capsys.readouterr().out) == {
        "folder": str(finished.folder), **finished.results}
    monkeypatch.setattr(sys, "argv", ["embtrain", "compare", "--negatives", "sgns,,nce"])
    assert cli.run() == 2 and "names, separated by commas" in capsys.readouterr().err
