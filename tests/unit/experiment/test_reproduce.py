"""Reproductions: files of configs/paper, the rules that check a claim, and published numbers next to ours."""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.comparisons import without_times
from helpers.docs_scripts import DOCS
from helpers.in_process import Here, in_process, small_text
from helpers.looped import looped
from helpers.pages import HOSTILE, checked

from embtrain import cli, experiment
from embtrain.common import progress, shipped
from embtrain.common.config import dump, read_yaml
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.types import Score
from embtrain.data.vectors import vectors as vector_files
from embtrain.evaluate.comparison.reproduction import DOES_NOT_HOLD, HOLDS, NOT_SEPARABLE, SOURCES, ReportedNumber
from embtrain.experiment.comparison import compare, outcome, workers
from embtrain.experiment.comparison.shared.sharing import Sharing
from embtrain.experiment.paper import claims, reproduce, spec as papers
from embtrain.experiment.paper.spec import Paper
from embtrain.experiment.run import components, scoring, settings as run_settings
from embtrain.experiment.tasks import base as tasks
from embtrain.report.comparison import page as report
from embtrain.report.load import comparison

pytestmark = pytest.mark.long

SHIPPED = shipped.names("configs", "paper")
TINY = """\
# Is one draw enough?
title: Are two draws enough?
citation: "Author: On two draws. 1999."
claim: two draws are enough
corpus: TEXT
seeds: 3
cpu_seconds: 1000
baseline: softmax
metric: test/log_likelihood
sets: [text.valid=0.1, text.test=0.1, text.sample=0.01, model.dim=6, train.epochs=1, train.chunk=512, train.lr=0.01,
  train.log_every=1, evaluate.heldout_pairs=1200, evaluate.resamples=40, evaluate.log_z=true]
runs:
  softmax: {strategy: softmax}
  nce-k1: {strategy: nce, sets: [negatives.k=1], x: 1}
  nce-k2: {strategy: nce, sets: [negatives.k=2], x: 2}
axis: {name: k, metrics: [test/log_likelihood]}
checks:
  - {rule: not_worse, run: nce-k2, against: softmax, metric: test/log_likelihood, margin: 9}
expected:
  - {what: least k, value: 2, reading: least, where: page 1, protocol: by hand, source: published}
  - {what: likelihood, value: -3, run: nce-k2, metric: test/log_likelihood, where: page 2, protocol: by eye,
     source: recalled}
protocol:
  - {what: text, theirs: all, ours: some}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = small_text(tmp_path_factory.mktemp("reproduce"))
    (place / "tiny.yaml").write_text(TINY.replace("TEXT", str(place / "text")))
    return place


@pytest.fixture(autouse=True)
def local_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    """Run in this process, without the reports of single runs."""
    in_process(monkeypatch, place)
    return Here


@pytest.fixture(scope="module")
def finished(place: Path) -> compare.Comparison:
    with pytest.MonkeyPatch.context() as patch:
        local_runs.__wrapped__(place, patch)
        return reproduce.reproduce(str(place / "tiny.yaml"), out=place / "done", parallel=1, threads=1)


def yaml_of(place: Path, old: str = "", new: str = "") -> Path:
    assert TINY.count(old) >= 1
    file = place / "changed.yaml"
    file.write_text(TINY.replace("TEXT", str(place / "text")).replace(old, new, 1))
    return file


def test_the_file_in_the_documentation_works_and_needs_the_keys_that_it_names(place: Path, tmp_path: Path) -> None:
    page = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
    section = page[page.index("## A paper"):]
    text, rest = section.split("```yaml\n")[1].split("```\n", 1)
    required = set(re.findall(r"`(\w+)`", rest.split(" are required.")[0]))
    file = tmp_path / "mine.yaml"
    for key in (lines := {line.partition(":")[0]: line for line in text.splitlines()}):
        file.write_text("\n".join(line for name, line in lines.items() if name != key))
        if key in required:
            with pytest.raises(UsageError, match=f"{key}: needs a value"):
                papers.read(file)
        else:
            papers.read(file)
    assert required < lines.keys()
    file.write_text(text)
    done = reproduce.reproduce(str(file), str(place / "text"), seeds=1, out=tmp_path / "out", parallel=1, threads=1)
    checks, expected = (done.results["reproduction"][key] for key in ("checks", "expected"))
    assert checks[0]["mean"] is not None and expected[0]["ours"] < 0


# -- shipped papers ----------------------------------------------------------------------------------------------------

def test_the_first_four_papers_ship() -> None:
    assert {"nce_note_k", "nce_note_gamma", "nce_note_logz", "bose2018_skipgram"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_paper_loads_and_its_runs_resolve(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce.fetch, "gold_path", lambda recipe: Path())
    paper = papers.read(papers.path(name))
    grid, planned = compare.plan(reproduce.paper_grid(name, {}, [], tmp_path)[0], tmp_path)
    assert len(planned) == len(paper.runs) * paper.seeds and grid.paper == name
    assert {cell.label for cell in planned} == set(paper.runs)
    assert all(row.source in SOURCES for row in paper.expected) and paper.cpu_seconds <= 14_400
    metrics = {row.metric for row in [*paper.checks, *paper.expected]} | set(paper.axis.metrics if paper.axis else [])
    logged = any("log_z" in metric or "log_sum" in metric for metric in metrics if metric)
    assert not logged or planned[0].settings.evaluate.log_z
    assert getattr(planned[0].settings.evaluate, "during_training", []) == paper.during_training
    text = papers.path(name).read_text(encoding="utf-8")
    assert text.startswith("# ") and not re.search(r"https?://", text)


def test_runs_differ_in_the_axis_only(tmp_path: Path) -> None:
    k = compare.plan(reproduce.paper_grid("nce_note_k", {"seeds": 1}, [], tmp_path)[0], tmp_path)[1]
    assert {c.label: c.settings.negatives.k for c in k[1:]} == {f"nce-k{n}": n for n in (1, 5, 10, 25, 50, 100)}
    gamma = papers.read(papers.path("nce_note_gamma"))
    cells_of = compare.plan(reproduce.paper_grid("nce_note_gamma", {"seeds": 1}, [], tmp_path)[0], tmp_path)[1]
    for cell in cells_of:
        x, loss = gamma.runs[cell.label].x, cell.settings.loss
        assert (loss.penalty, loss.penalty_share) == ((0, 1) if x is None else (0.1, x))
    starts = [c.settings.loss.log_z_start for c in compare.plan(
        reproduce.paper_grid("nce_note_logz", {"seeds": 1}, [], tmp_path)[0], tmp_path)[1][1:]]
    assert starts == [0, "log n"]


def test_without_a_name_all_papers_are_listed_with_their_budgets(monkeypatch: pytest.MonkeyPatch,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "reproduce"])
    assert cli.run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == SHIPPED
    assert re.search(r"nce_note_logz +15 runs +30 CPU-min +\S", "\n".join(lines))
    monkeypatch.setattr(sys, "argv", ["embtrain", "list"])
    assert cli.run() == 0 and "nce_note_logz" in capsys.readouterr().out


# -- errors in a file ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("old", "new", "line", "message"), [
    ("source: recalled", "source: guessed", 22, "'published', 'repository' or 'recalled'"),
    ("source: published", "origin: published", 20, "unknown key"),
    ("margin: 9", "margin: 0", 18, "greater than 0"),
    (", margin: 9", "", 18, "rule not_worse takes against, margin in addition to run and metric; margin is missing"),
    ("margin: 9", "margin: 9, within: 1", 18, "within is not allowed"),
    ("rule: not_worse", "rule: equal", 18, "'not_worse', 'better' or 'near'"),
    ("run: nce-k2, against", "run: nce-k3, against", 18, "'nce-k3' is not one of the runs: softmax, nce-k1, nce-k2"),
    ("baseline: softmax", "baseline: sgns", 8, "'sgns' is not one of the runs"),
    ("metrics: [test/log_likelihood]", "metrics: [men/spearman]", 16, "'men/spearman' belongs to none of valid, test"),
    ("reading: least", "reading: gain", 20, "reading gain takes run, metric, against; run is missing"),
    ("run: nce-k2, metric: test/log_likelihood, where", "where", 21, "reading value takes run, metric; run is missing"),
    ("axis: {name: k, metrics: [test/log_likelihood]}\n", "", 19, "least requires an axis"),
    ("seeds: 3", "seeds: 0", 6, "greater than or equal to 1"),
    ("cpu_seconds: 1000\n", "", 0, "cpu_seconds: needs a value"),
    ("nce-k1: {", "nce/k1: {", 14, "should match pattern"),
    ("sets: [text", "during_training: [men]\nsets: [text", 10, "'men' is not one of the benchmarks"),
    ("sets: [text", "benchmarks: [mem]\nsets: [text", 10, "no benchmark named 'mem' (did you mean 'men'?)"),
    ("x: 1}", "y: 1}", 14, "unknown key"),
    ("claim: two", "claim: two\nclaim: three", 5, "is set twice"),
])
def test_errors_name_their_line(place: Path, old: str, new: str, line: int, message: str) -> None:
    file = yaml_of(place, old, new)
    with pytest.raises(UsageError) as error:
        papers.read(file)
    assert message in str(error.value) and (f"{file.name}:{line}:" in str(error.value) if line else True), error.value


def test_the_command_ends_with_code_2_and_one_line(place: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str], local_runs: type[Here]) -> None:
    file = yaml_of(place, "source: recalled", "source: guessed")
    for words, message in (([str(file)], "changed.yaml:22:"), (["nce_note"], "did you mean 'nce_note_k'"),
                        ([str(place / "tiny.yaml"), "--set", "text.windw=3"], "did you mean 'window'")):
        monkeypatch.setattr(sys, "argv", ["embtrain", "reproduce", *words, "--out", str(place / "never")])
        assert cli.run() == 2
        err = capsys.readouterr().err
        assert message in err and err.startswith("embtrain: error: ") and "Traceback" not in err
    assert local_runs.log == [] and not (place / "never").exists()


@pytest.mark.parametrize(("old", "new", "message"), [
    ("{strategy: nce, sets: [negatives.k=1]", "{strategy: foo, sets: [negatives.k=1]",
     "14:12: runs.nce-k1.strategy: strategy: no strategy named 'foo'"),
    ("sets: [negatives.k=2]", "sets: [negatives.kk=2]", "15:34: runs.nce-k2.sets[0]: negatives.kk: unknown key"),
    ("model.dim=6", "model.dimm=6", "10:57: sets[3]: model.dimm: unknown key")])
def test_impossible_runs_name_their_place_and_not_a_flag(
        place: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    file = yaml_of(place, old, new)
    for sets in ([], ["text.window=3"]):
        with pytest.raises(UsageError) as error:
            reproduce.reproduce(str(file), sets=sets, out=tmp_path / "out")
        assert f"{file.name}:{message}" in str(error.value), error.value


# -- a complete reproduction -------------------------------------------------------------------------------------------

def test_runs_are_compared_with_the_published_numbers(finished: compare.Comparison) -> None:
    tree = finished.results
    assert [cell["cell"] for cell in tree["cells"]] == [f"{run}-seed{seed}" for seed in (1, 2, 3)
                                                        for run in ("softmax", "nce-k1", "nce-k2")]
    score = {cell["cell"]: next(row["value"] for row in cell["scores"]
                                if (row["benchmark"], row["metric"]) == ("test", "log_likelihood"))
             for cell in tree["cells"]}
    part = tree["reproduction"]
    least, likelihood = part["expected"]
    ours = [score[f"nce-k2-seed{seed}"] for seed in (1, 2, 3)]
    assert likelihood["ours"] == pytest.approx(sum(ours) / 3) and likelihood["n"] == 3
    assert likelihood["theirs"] == -3 and likelihood["source"] == "recalled"
    half = 4.302652730 * statistics.stdev(ours) / math.sqrt(3)  # t of two degrees of freedom
    assert likelihood["high"] - likelihood["ours"] == pytest.approx(half) and likelihood["low"] < likelihood["ours"]
    (check,) = part["checks"]
    differences = [score[f"nce-k2-seed{seed}"] - score[f"softmax-seed{seed}"] for seed in (1, 2, 3)]
    assert check["mean"] == pytest.approx(sum(differences) / 3)
    assert part["verdict"] == check["verdict"] == HOLDS and least["ours"] == 1
    assert tree["verdict"][0] == "The claim holds: two draws are enough." and len(tree["verdict"]) == 4
    assert part["notes"] == []
    assert part["axis"] == {"name": "k", "metrics": ["test/log_likelihood"], "x": {"nce-k1": 1, "nce-k2": 2}}
    assert part["spent"] == pytest.approx(sum(cell["cpu_seconds"] for cell in tree["cells"]))
    k = {cell["cell"]: experiment.Run(finished.folder / cell["folder"]).settings.negatives.k for cell in tree["cells"]}
    assert (k["nce-k1-seed1"], k["nce-k2-seed1"]) == (1, 2)


def test_the_report_contains_the_reproduction_in_every_format(finished: compare.Comparison) -> None:
    page = checked((finished.folder / "report.html").read_text())
    assert "reproduction" in page.ids and "Are two draws enough?" in page.words
    for part in ("recalled, not verified", "Reported and measured", "log-likelihood against k", "The claim holds"):
        assert part in page.words
    assert (finished.folder / "report.html").read_text().count("<svg viewBox") >= 3
    for name in ("report.md", "report.tex"):
        text = (finished.folder / name).read_text()
        assert "Reported and measured" in text and "by eye" in text and "against k" in text
    part = reproduce.format_text(finished)
    assert "likelihood: paper −3.000 (recalled, not verified; page 2), ours" in part
    assert "paper all; ours some" in part
    assert finished.record.reproduction is not None
    assert finished.record.reproduction.command.startswith("embtrain reproduce ")


def test_the_same_folder_is_resumed(finished: compare.Comparison, place: Path, local_runs: type[Here]) -> None:
    name, before = str(place / "tiny.yaml"), (finished.folder / "results.json").read_bytes()
    again = reproduce.reproduce(name, out=finished.folder, parallel=1, threads=1)
    assert local_runs.log == [] and (again.folder / "results.json").read_bytes() == before
    first = read_yaml(finished.folder / "comparison.yaml").tree["sets"]
    sets = reproduce.paper_grid(name, {}, [first[0], "train.log_every=7"], finished.folder)[0].sets
    assert sets == [*first[1:], first[0], "train.log_every=7"]  # existing results are not reported twice
    assert compare.rejudge(finished.folder).results == json.loads(before)  # as `embtrain report` does
    with pytest.raises(UsageError, match="contains another comparison than nce_note_k"):
        reproduce.reproduce("nce_note_k", out=finished.folder)


def test_a_file_that_was_changed_since_the_start_is_reported(
        place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "compare", lambda *_: None)
    file, stored = yaml_of(place), tmp_path / "paper.yaml"
    grid = reproduce.paper_grid(str(file), {}, [], tmp_path)[0]
    (tmp_path / "comparison.yaml").write_text(dump(grid))
    shutil.copy(file, stored)
    for old, new, keys in (("# Is", "# Are", ""), ("margin: 9", "margin: 8", "checks"),
                           ("nce, sets: [negatives.k=1], x: 1", "nce, x: 3", "runs.nce-k1.sets, runs.nce-k1.x")):
        caplog.clear()
        reproduce.reproduce(str(yaml_of(place, old, new)), out=tmp_path)
        assert caplog.messages == [f"{file}: differs in {keys} from {stored}, which is from the start and decides; "
                                   "give another --out to use the changed file"] * bool(keys)
    for n_errors, cause in ((1, file.unlink), (2, lambda: yaml_of(place, "seeds: 3", "seeds: 0\nseed: 3"))):
        cause()
        caplog.clear()
        reproduce.reproduce(str(file), out=tmp_path)
        (message,) = caplog.messages
        *errors, end = message.split("; ")
        assert [error.partition(":")[0] for error in errors] == [str(file)] * n_errors
        assert end == f"{stored} from the start decides"


@pytest.mark.slow
def test_several_machines_reproduce_together(finished: compare.Comparison, place: Path, tmp_path: Path) -> None:
    name, join = str(place / "tiny.yaml"), Sharing(stale_after=1.0)
    joined = reproduce.reproduce(name, out=tmp_path, parallel=1, threads=1, sharing=join)
    ours, theirs = without_times(tmp_path), without_times(finished.folder)
    assert ours["cells"] == theirs["cells"] and ours["differences"] == theirs["differences"]
    assert (tmp_path / "paper.yaml").read_bytes() == (finished.folder / "paper.yaml").read_bytes()
    assert (tmp_path / "join" / "leases" / "results.1").is_file() and joined.verdict[:2] == finished.verdict[:2]
    with pytest.raises(UsageError, match="--join: needs a folder that all machines share"):
        reproduce.reproduce(name, sharing=join)


def with_start(place: Path, sets: str = "") -> Path:
    return yaml_of(place, "runs:\n", f"start: {{strategy: sgns, corpus: {place / 'text'}, sets: [model.dim=6, "
                                     f"train.epochs=1{sets}]}}\nruns:\n")


def test_runs_start_from_the_vectors_of_a_first_run(place: Path, tmp_path: Path) -> None:
    file, folder = with_start(place), tmp_path / "r"
    reproduce.reproduce(str(file), out=folder, seeds=1, parallel=1, threads=1)
    given = vector_files.read(folder / "start" / "vectors.safetensors")
    for label in ("softmax", "nce-k1", "nce-k2"):
        settings = run_settings.from_run(folder / "cells" / f"{label}-seed1")
        assert settings.train.start == str(folder / "start" / "vectors.safetensors")
        record = json.loads((folder / "cells" / f"{label}-seed1" / "start.json").read_text())
        assert record["exact"] == len(given.words) and not record["output_table"]
    before = (folder / "start" / "vectors.safetensors").stat()
    reproduce.reproduce(str(file), out=folder, seeds=2, parallel=1, threads=1)     # trained once
    assert (folder / "start" / "vectors.safetensors").stat() == before
    runs = [folder / "start", *(folder / "cells").glob("*-seed?")]
    spent = json.loads((folder / "results.json").read_text())["reproduction"]["spent"]
    assert spent == pytest.approx(sum(workers.last_position(run)[2] for run in runs)) and len(runs) == 7
    assert "train.start" not in json.loads((folder / "results.json").read_text())["reproduction"]["command"]


def test_the_first_run_counts_against_the_budget(place: Path, tmp_path: Path) -> None:
    file, folder = with_start(place), tmp_path / "r"
    with pytest.raises(DataError, match="not started"):
        reproduce.reproduce(str(file), out=folder, seeds=1, parallel=1, threads=1, cpu_seconds=1e-9)
    assert (folder / "start" / "scores.json").exists()
    assert all(path.suffix == ".json" for path in (folder / "cells").iterdir())      # errors alone


def test_a_first_run_that_fails_ends_the_reproduction(place: Path, tmp_path: Path) -> None:
    file = with_start(place, ", text.min_count=1000000")
    with pytest.raises(DataError, match=r"^start: .*/start: .*no word occurs 1000000 times.*; the other runs need its"):
        reproduce.reproduce(str(file), out=tmp_path / "r", seeds=1, parallel=1, threads=1)
    assert not any((tmp_path / "r" / "cells").iterdir())


def test_a_comparison_may_reuse_the_runs_of_a_paper_without_its_claim(finished: compare.Comparison,
                                                                      tmp_path: Path) -> None:
    whole = compare.read_grid({}, None, finished.folder)
    runs = compare.read_grid({}, finished.folder / "comparison.yaml", tmp_path / "out")
    assert whole.paper is not None and runs == whole.model_copy(update={"paper": None})
    assert compare.read_grid({}, finished.folder / "comparison.yaml", finished.folder) == whole


def test_the_folder_of_a_run_is_unchanged(finished: compare.Comparison, place: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished.folder / "cells" / "softmax-seed1", tmp_path / "run")
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(UsageError, match=r"run contains a run; choose another folder"):
        reproduce.reproduce(str(place / "tiny.yaml"), out=run)
    assert sorted(path.name for path in run.iterdir()) == before


def test_options_override_the_paper_and_are_stored(place: Path, tmp_path: Path, local_runs: type[Here],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(place / "tiny.yaml")
    monkeypatch.setattr(local_runs, "stop_at", 2)
    with pytest.raises(Stopped):
        reproduce.reproduce(name, seeds=1, sets=["model.dim=3"], out=tmp_path / "out", parallel=1, threads=1)
    monkeypatch.setattr(local_runs, "stop_at", None)
    finished = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1)  # the folder stores the rest
    assert local_runs.log == ["fit softmax-seed1", "fit nce-k1-seed1", "fit nce-k2-seed1"]
    part = finished.results["reproduction"]
    assert part["command"] == f"embtrain reproduce {name} --seeds 1 --set model.dim=3 --set train.engine=autograd"
    assert part["notes"] == ["this run: model.dim=3"] and "\n- this run: model.dim=3" in reproduce.format_text(finished)
    assert part["verdict"] == NOT_SEPARABLE and "one seed, no interval" in part["checks"][0]["text"]
    assert part["expected"][1]["low"] is None and part["expected"][0]["ours"] is None


def test_a_stopped_reproduction_prints_the_command_that_resumes_it(place: Path, tmp_path: Path, local_runs: type[Here],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    name, out = str(place / "tiny.yaml"), tmp_path / "out"
    monkeypatch.setattr(local_runs, "stop_at", 1)
    with pytest.raises(Stopped) as stopped:
        reproduce.reproduce(name, seeds=1, out=out, parallel=1, threads=1, cpu_seconds=900)
    again = f"embtrain reproduce {name} --out {out} --parallel 1 --threads 1 --cpu-seconds 900"
    assert str(stopped.value) == f"stopped by signal 15; to resume: {again}"
    monkeypatch.setattr(local_runs, "stop_at", None)
    monkeypatch.setattr(sys, "argv", again.split())
    assert cli.run() == 0 and local_runs.log == ["fit softmax-seed1", "fit nce-k1-seed1", "fit nce-k2-seed1"]


@pytest.mark.parametrize(("old", "new", "message", "fitted"), [
    ("metric: test/log_likelihood, margin", "metric: test/mr, margin", "18:54: checks[0].metric", 0),
    ("metric: test/log_likelihood, margin", "metric: test/mrr/a, margin", "18:54: checks[0].metric", 1),
    ("run: nce-k2, metric: test/log_likelihood, where", "run: nce-k1, metric: test/mr, where",
     "21:48: expected[1].metric", 0),
    ("run: nce-k2, metric: test/log_likelihood, where", "run: nce-k1, metric: test/mrr/a, where",
     "21:48: expected[1].metric", 2),
    ("metrics: [test/log_likelihood]", "metrics: [test/mr]", "16:27: axis.metrics[0]", 0),
    ("metrics: [test/log_likelihood]", "metrics: [test/mrr/a]", "16:27: axis.metrics[0]", 2),
    ("metric: test/log_likelihood\n", "metric: test/mr\n", "9:1: metric", 0)])
def test_a_missing_score_is_reported_before_or_after_the_first_run_with_its_place(
        place: Path, tmp_path: Path, local_runs: type[Here], old: str, new: str, message: str, fitted: int) -> None:
    name, out = str(yaml_of(place, old, new)), tmp_path / "out"
    for count in (fitted, 0):  # on resuming, the existing runs are checked first
        local_runs.log.clear()
        with pytest.raises(UsageError) as error:
            reproduce.reproduce(name, seeds=1, out=out, parallel=1, threads=1)
        printed, file = str(error.value), out / "paper.yaml" if fitted else Path(name)
        assert f"{file}:{message}: test/mr" in printed and "does not have this score; there are: valid/log_" in printed
        then = f"continue: embtrain reproduce {name} --out {out}" if fitted else "repeat the command"
        assert f"; correct the file, then {then}" in printed
        assert len(local_runs.log) == count
    file.write_text((place / "tiny.yaml").read_text())
    finished = reproduce.reproduce(name, seeds=None if fitted else 1, out=out, parallel=1, threads=1)  # as it states
    assert len(local_runs.log) == 3 - fitted and finished.results["plan"]["metric"] == "test/log_likelihood"


def test_another_corpus_and_a_claim_with_a_period(finished: compare.Comparison, place: Path) -> None:
    paper = papers.read(place / "tiny.yaml").model_copy(update={"claim": "two draws are enough."})
    other = finished.results["plan"] | {"corpus": "/texts/my.txt", "sets": [*paper.sets, "train.engine=fused"]}
    result = claims.reproduction(paper, other, [], 0.0)
    assert result.notes == [f"this run: corpus /texts/my.txt in place of {place / 'text'}"]
    assert result.sentence == "The claim is undecided (not measured): two draws are enough."


@pytest.mark.slow
def test_a_spent_budget_leaves_the_rest_out(place: Path, tmp_path: Path, local_runs: type[Here],
                                            capsys: pytest.CaptureFixture[str]) -> None:
    name = str(place / "tiny.yaml")
    finished = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1, cpu_seconds=1e-9)
    assert local_runs.log == ["fit softmax-seed1"]  # the first starts before the budget is used
    assert "the limit of 1e-09 CPU seconds is used up, which skips 8 runs" in capsys.readouterr().err
    assert [cell["status"] for cell in finished.results["cells"]] == ["finished", *["not run"] * 8]
    assert "not started" in finished.results["cells"][1]["error"]
    assert finished.results["reproduction"]["checks"][0]["verdict"] == NOT_SEPARABLE
    whole = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1, cpu_seconds=1e9)
    assert len(local_runs.log) == 9 and {cell["status"] for cell in whole.results["cells"]} == {"finished"}


@pytest.mark.parametrize(("corpus", "seconds", "budget"), [(None, None, 1000), (None, 7.0, 7), ("COPY", None, None),
                                                           ("COPY", 7.0, 7)])
def test_the_budget_of_a_paper_holds_for_its_corpus(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    corpus: str | None, seconds: float | None,
                                                    budget: float | None) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(reproduce.compare, "compare", lambda *what: seen.append(what))
    other = str(place / "text" / "00.txt") if corpus else None
    reproduce.reproduce(str(place / "tiny.yaml"), corpus=other, out=tmp_path, cpu_seconds=seconds)
    assert seen[0][4] == budget and (other is None or seen[0][0].corpus == other)


def test_the_corpus_of_a_paper_is_recognized_by_its_full_path(place: Path, tmp_path: Path, local_runs: type[Here],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    file = tmp_path / "near.yaml"
    file.write_text(TINY.replace("TEXT", "text"))
    options = {"name": str(file), "out": tmp_path / "out", "seeds": 1, "parallel": 1, "threads": 1}
    finished = reproduce.reproduce(**options)
    command = finished.results["reproduction"]["command"]
    assert command == f"embtrain reproduce {file} --seeds 1 --set train.engine=autograd"
    seen: list[Any] = []
    monkeypatch.setattr(reproduce.compare, "compare", lambda *what: seen.append(what))
    reproduce.reproduce(**options)
    assert Path(seen[0][0].corpus).is_absolute() and seen[0][4] == 1000


def test_a_missing_benchmark_is_left_out_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    monkeypatch.setattr(progress, "quiet", False)
    grid = reproduce.paper_grid("bose2018_skipgram", {}, [], tmp_path)[0]
    assert grid.benchmarks == ["wordsim353"] and "evaluate.during_training=[wordsim353]" in grid.sets
    assert "rareword is skipped" in capsys.readouterr().err
    paper = papers.read(papers.path("bose2018_skipgram"))
    measured = outcomes({"ace": [0.3, 0.31, 0.3], "nce": [0.1, 0.12, 0.11]}, "wordsim353/spearman")
    result = claims.reproduction(paper, grid.model_dump(mode="json"), measured, 60.0)
    assert result.notes == ["rareword is skipped: it is not on this machine; fetch it: embtrain data fetch rareword"]
    assert [check.verdict for check in result.checks] == [HOLDS, *[NOT_SEPARABLE] * 3]
    assert result.checks[2].text.endswith("not measured.")
    assert result.verdict == NOT_SEPARABLE and result.sentence.startswith("The claim is undecided (not measured)")
    assert result.expected[3].ours is None and result.expected[3].note == "not measured"
    assert result.command == "embtrain reproduce bose2018_skipgram" and result.spent == 60


# -- rules ----------------------------------------------------------------------------------------------------------

def outcomes(values: dict[str, list[float]], metric: str) -> list[outcome.CellOutcome]:
    benchmark, _, name = metric.partition("/")
    return [outcome.CellOutcome(f"{label}-seed{seed}", label, None, "skipgram", seed, Path(), "", None,
                                [Score(benchmark, name, value)]) for label, row in values.items()
            for seed, value in enumerate(row, 1)]


def verdict(rule: dict[str, Any], a: list[float], b: list[float] | None = None, m: int = 1) -> str:
    metric = rule.get("metric", "test/mrr")
    check = papers.Check(**{"run": "a", "metric": metric, **({} if b is None else {"against": "b"}), **rule})
    values = claims.by_metric(outcomes({"a": a} | ({} if b is None else {"b": b}), metric))
    return claims.judge(check, values, m).verdict


E = [0.001, -0.001, 0.0]  # over three seeds: half the interval is 4.303 × .001 / √3 = .00248
LOWER = {"metric": "test/log_z_abs"}


@looped("rule, shift, expected", [
    ({"rule": "better"}, 0.0030, HOLDS),
    ({"rule": "better"}, 0.0020, NOT_SEPARABLE),
    ({"rule": "better"}, -0.0020, NOT_SEPARABLE),
    ({"rule": "better"}, -0.0030, DOES_NOT_HOLD),
    ({"rule": "better", **LOWER}, -0.0030, HOLDS),
    ({"rule": "better", **LOWER}, 0.0030, DOES_NOT_HOLD),
    ({"rule": "not_worse", "margin": 0.01}, 0.5, HOLDS),
    ({"rule": "not_worse", "margin": 0.01}, -0.0070, HOLDS),
    ({"rule": "not_worse", "margin": 0.01}, -0.0080, NOT_SEPARABLE),
    ({"rule": "not_worse", "margin": 0.01}, -0.0130, DOES_NOT_HOLD),
    ({"rule": "not_worse", "margin": 0.01, **LOWER}, 0.0070, HOLDS),
    ({"rule": "not_worse", "margin": 0.01, **LOWER}, 0.0130, DOES_NOT_HOLD),
    ({"rule": "not_worse", "margin": 0.01, **LOWER}, -0.5, HOLDS),
])
def test_differences_are_decided_by_their_interval(rule: dict[str, Any], shift: float, expected: str) -> None:
    b = [0.3, 0.1, 0.7]  # the common effect of the seed cancels
    assert verdict(rule, [y + shift + e for y, e in zip(b, E, strict=True)], b) == expected


@pytest.mark.parametrize(("mean", "expected"), [(1.0, HOLDS), (1.0070, HOLDS), (1.0080, NOT_SEPARABLE),
                                                (1.0130, DOES_NOT_HOLD), (0.9930, HOLDS), (0.9870, DOES_NOT_HOLD)])
def test_near_bounds_both_sides(mean: float, expected: str) -> None:
    assert verdict({"rule": "near", "value": 0.5, "within": 0.01}, [mean - 0.5 + e for e in E]) == expected


def test_the_interval_of_a_value_ends_where_the_value_does() -> None:
    check = papers.Check(rule="near", run="a", metric="test/mrr", value=0.05, within=0.5)
    result = claims.judge(check, claims.by_metric(outcomes({"a": [0.01, 0.02, 0.09]}, "test/mrr")), 1)
    assert result.low == 0 and result.high == pytest.approx(0.04 + 4.30265 * (19 / 3) ** 0.5 / 100)


def test_two_seeds_decide_nothing() -> None:
    check = papers.Check(rule="better", run="a", against="b", metric="test/mrr")
    values = claims.by_metric(outcomes({"a": [0.5, 0.5002], "b": [0.4, 0.4003]}, "test/mrr"))
    result = claims.judge(check, values, 1)
    assert result.verdict == NOT_SEPARABLE and "2 seeds, too few for a verdict" in result.text
    assert verdict({"rule": "better"}, [0.5, 0.5002, 0.5001], [0.4, 0.4003, 0.4]) == HOLDS


@pytest.mark.parametrize("metric", ["training/seconds", "training/steps to valid/mrr>=0.3"])
def test_lower_costs_of_training_are_better(metric: str) -> None:
    rule, fast, slow = {"rule": "better", "metric": metric}, [10.0, 10.1, 9.9], [100.0, 100.3, 99.7]
    assert (verdict(rule, fast, slow), verdict(rule, slow, fast)) == (HOLDS, DOES_NOT_HOLD)


def test_bounds_are_printed_with_the_digits_that_distinguish_them() -> None:
    check = papers.Check(rule="near", run="a", metric="test/mr", value=120.4, within=2)
    text = claims.judge(check, claims.by_metric(outcomes({"a": [120.1, 120.2, 120.4]}, "test/mr")), 1).text
    assert "+120.23 (95 % interval +119.85 to +120.61, 3 seeds); the claim requires above 118.4 and below 122.4" in text


def test_few_seeds_and_no_spread() -> None:
    assert verdict({"rule": "better"}, [0.9], [0.1]) == NOT_SEPARABLE                  # one seed
    assert verdict({"rule": "better"}, [0.9, 0.9], [0.1, 0.1]) == NOT_SEPARABLE        # no spread, and no interval
    assert verdict({"rule": "better"}, [0.3, 0.1 + 0.2], [0.1, 0.1]) == NOT_SEPARABLE  # except for rounding
    assert verdict({"rule": "better"}, [0.1, 0.2], [0.1, 0.2]) == NOT_SEPARABLE        # equal is not better
    assert verdict({"rule": "not_worse", "margin": 0.1}, [0.1, 0.2], [0.1, 0.2]) == NOT_SEPARABLE
    values = claims.by_metric(outcomes({"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5]}, "test/mrr"))
    check = papers.Check(rule="better", run="a", against="b", metric="test/mrr")
    assert claims.judge(check, values, 1).n == 2  # seed 3 has no partner


def test_one_of_many_checks_fails_only_by_a_larger_difference() -> None:
    """−.003 ± .00248 excludes 0 for a single check; the wider interval of one check of five includes it."""
    b = [0.3, 0.1, 0.7]
    a = [y - 0.003 + e for y, e in zip(b, E, strict=True)]
    assert [verdict({"rule": "better"}, a, b, m) for m in (1, 5)] == [DOES_NOT_HOLD, NOT_SEPARABLE]
    up = [y + 0.003 + e for y, e in zip(b, E, strict=True)]
    assert verdict({"rule": "better"}, up, b, 5) == HOLDS  # all must hold, so no correction is needed


def test_a_claim_holds_if_all_its_checks_hold() -> None:
    assert claims.combine_verdicts([HOLDS, HOLDS]) == HOLDS
    assert claims.combine_verdicts([HOLDS, NOT_SEPARABLE]) == NOT_SEPARABLE
    assert claims.combine_verdicts([HOLDS, NOT_SEPARABLE, DOES_NOT_HOLD]) == DOES_NOT_HOLD


def paper_with(place: Path, **row: Any) -> Paper:
    paper = papers.read(place / "tiny.yaml")
    defaults = {"what": "x", "value": 1, "where": "here", "protocol": "so", "source": "published"}
    number = papers.Expected(**{**defaults, **row})
    return paper.model_copy(update={"expected": [number]})


def test_readings(place: Path) -> None:
    metric = "test/log_likelihood"
    values = claims.by_metric(outcomes({"nce-k1": [-0.2, -0.4], "nce-k2": [-0.3, -0.8], "softmax": [-9, -9]}, metric))
    def read(**row: Any) -> ReportedNumber:
        paper = paper_with(place, **row)
        return claims.reported_and_measured(paper.expected[0], paper, values)
    assert read(run="nce-k1", metric=metric).ours == pytest.approx(-0.3)
    measured = read(run="nce-k1", metric=metric, reading="exp")
    assert measured.ours == pytest.approx(math.exp(-0.3)) \
        and measured.low == pytest.approx(math.exp(-0.3 - 12.7062047 * 0.1)) and measured.high == 1
    gain = read(run="nce-k2", metric=metric, reading="gain", against="nce-k1")
    assert gain.ours == pytest.approx((0.5 + 1.0) / 2) and gain.n == 2  # per seed, then the mean
    assert gain.low == pytest.approx(0.75 - 12.7062047 * 0.25)


@pytest.mark.parametrize(("k1", "k2", "least"), [(-0.1, -0.1, 1), (-9.5, -0.1, 2), (-9.5, -9.5, None)])
def test_the_smallest_x_that_is_not_worse(place: Path, k1: float, k2: float, least: float | None) -> None:
    base = [-7.0, -7.2, -6.9]
    world = {"softmax": base, **{name: [y + shift + e for y, e in zip(base, E, strict=True)]
                                 for name, shift in (("nce-k1", k1), ("nce-k2", k2))}}
    values = claims.by_metric(outcomes(world, "test/log_likelihood"))
    assert claims.min_sufficient_x(papers.read(place / "tiny.yaml"), values) == least


# -- the exact log Z ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("partition", ["global", "context"])
def test_learned_and_true_log_z_of_held_out_contexts(place: Path, tmp_path: Path, partition: str) -> None:
    """Compare with a loop over the pairs: mean c, mean log Σ e^s without c, and their difference."""
    sets = papers.read(place / "tiny.yaml").sets
    settings = experiment.resolve("nce-learned-z", None, str(place / "text"), None, None,
                                  [*sets, f"loss.partition={partition}", "train.epochs=1"], 1)
    built = components.build(settings, tasks.read(settings))
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        built.model.u.copy_(torch.randn(built.model.u.shape, generator=g))
        built.model.v.copy_(torch.randn(built.model.v.shape, generator=g))
        c = built.loss.c
        c.copy_(torch.randn(c.shape, generator=g) + 1.5)
    batch = built.task.heldout("test")
    u, v = built.model.u.tolist(), built.model.v.tolist()
    true = {a: math.log(sum(math.exp(sum(x * y for x, y in zip(u[a], row, strict=True))) for row in v))
            for a in set(batch.centre.tolist())}
    learned = {a: c.item() if partition == "global" else c[a].item() for a in true}
    pairs = batch.centre.tolist()
    rows = {row.metric: row for row in scoring.likelihood(built, batch, "test", settings.evaluate)}
    def mean(values: dict[int, float]) -> float:
        return sum(values[a] for a in pairs) / len(pairs)
    assert rows["learned_log_z"].value == pytest.approx(mean(learned), abs=1e-5)
    assert rows["log_sum_mean"].value == pytest.approx(mean(true), abs=1e-5)
    assert rows["log_z_mean"].value == pytest.approx(mean(true) - mean(learned), abs=1e-5)
    assert rows["log_z_abs"].value == pytest.approx(mean({a: abs(true[a] - learned[a]) for a in true}), abs=1e-5)
    off = settings.evaluate.model_copy(update={"log_z": False})
    assert not [row for row in scoring.likelihood(built, batch, "test", off) if "log_" in row.metric[4:] or
                row.metric.startswith("log_z") or row.metric.startswith("learned")]


def test_the_direction_of_log_z_is_towards_zero(finished: compare.Comparison) -> None:
    """Smaller |log Z| is better; a learned number is not a score and is not tested."""
    by_metric = {d["metric"]: d for d in finished.results["differences"] if d["kind"] == "seeds"}
    assert by_metric["test/log_z_abs"]["higher_better"] is False \
        and by_metric["test/log_likelihood"]["higher_better"] is True
    assert "test/log_z_mean" not in by_metric
    assert {"test/log_z_mean", "test/log_z_abs", "test/log_z_sd"} <= {row["metric"]
                                                                      for row in finished.results["summary"]}


# -- files read by the report ------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("key", "value", "message"), [
    ("verdict", "maybe", "verdict must be one of holds, does not hold, not separable"),
    ("checks", {}, "checks: a list is expected"),
    ("expected", [3], "expected: row 1: a mapping is expected"),
    ("axis", {"name": "k", "metrics": 1, "x": {}}, "reproduction: axis: metrics: a list is expected, not a number"),
    ("axis", {"name": "k", "metrics": [], "x": {"a": "b"}}, "axis: x: a must be a finite number"),
    ("title", None, "title must be text"),
    ("spent", "much", "spent must be a finite number"),
])
def test_a_damaged_reproduction_is_refused(finished: compare.Comparison, tmp_path: Path, key: str, value: Any,
                                           message: str) -> None:
    tree = finished.results | {"reproduction": finished.results["reproduction"] | {key: value}}
    (tmp_path / "results.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match=re.escape(message)):
        comparison.read(tmp_path)


def test_text_of_a_paper_is_never_markup(finished: compare.Comparison, tmp_path: Path) -> None:
    tree, hostile = json.loads(json.dumps(finished.results)), " ".join(HOSTILE)
    part = tree["reproduction"]
    part |= dict.fromkeys(("title", "citation", "claim", "sentence", "command"), hostile)
    part["axis"]["name"] = part["checks"][0]["text"] = part["protocol"][0]["ours"] = hostile
    part["notes"], part["expected"][0]["protocol"] = HOSTILE, hostile
    tree["cells"] = [cell | {"folder": "nowhere"} for cell in tree["cells"]]
    (tmp_path / "results.json").write_text(json.dumps(tree))
    report.write(tmp_path)
    checked((tmp_path / "report.html").read_text())


def test_a_claim_with_only_a_figure_has_no_table_of_numbers(finished: compare.Comparison, tmp_path: Path) -> None:
    for n, numbers in enumerate([finished.results["reproduction"]["expected"], []]):
        tree = json.loads(json.dumps(finished.results))
        tree["reproduction"]["expected"] = numbers
        tree["cells"] = [cell | {"folder": "nowhere"} for cell in tree["cells"]]
        (folder := tmp_path / str(n)).mkdir()
        (folder / "results.json").write_text(json.dumps(tree))
        report.write(folder)
        page = (folder / "report.md").read_text()
        assert ("source of the reported value" in page) == bool(numbers) and "Differences from the paper:" in page
