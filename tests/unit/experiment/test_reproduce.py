"""Reproductions: files of configs/paper, the rules by which a claim is judged, and theirs beside ours."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.in_process import Here, in_process, small_text
from helpers.pages import HOSTILE, checked

from embtrain import cli, experiment
from embtrain.common import progress, shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.types import Score
from embtrain.evaluate.comparison.reproduction import DOES_NOT_HOLD, HOLDS, NOT_SEPARABLE, SOURCES, ReportedNumber
from embtrain.experiment.comparison import compare, outcome
from embtrain.experiment.paper import claims, reproduce, spec as papers
from embtrain.experiment.paper.spec import Paper
from embtrain.experiment.run import components, scoring
from embtrain.experiment.tasks import base as tasks
from embtrain.report.charts import strategies
from embtrain.report.comparison import page as report
from embtrain.report.load import comparison

pytestmark = pytest.mark.long

SHIPPED = shipped.names("configs", "paper")
TINY = """\
# Is one draw enough?
title: Are two draws enough?
citation: "Somebody: On two draws. 1999."
claim: two draws are enough
corpus: TEXT
seeds: 2
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
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    """Runs happen in this process, and their own pages are left out."""
    in_process(monkeypatch, place)
    return Here


@pytest.fixture(scope="module")
def done(place: Path) -> compare.Comparison:
    with pytest.MonkeyPatch.context() as patch:
        here.__wrapped__(place, patch)
        return reproduce.reproduce(str(place / "tiny.yaml"), out=place / "done", parallel=1, threads=1)


def yaml_of(place: Path, old: str = "", new: str = "") -> Path:
    assert TINY.count(old) >= 1
    file = place / "changed.yaml"
    file.write_text(TINY.replace("TEXT", str(place / "text")).replace(old, new, 1))
    return file


# -- what ships -----------------------------------------------------------------------------------------------------

def test_the_first_four_are_there() -> None:
    assert {"nce_note_k", "nce_note_gamma", "nce_note_logz", "bose2018_skipgram"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_paper_loads_and_its_runs_resolve(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce.fetch, "gold_path", lambda recipe: Path())
    paper = papers.read(papers.path(name))
    of, planned = compare.plan(reproduce.paper_grid(name, {}, [], tmp_path)[0], tmp_path)
    assert len(planned) == len(paper.runs) * paper.seeds and of.paper == name
    assert {cell.label for cell in planned} == set(paper.runs)
    assert all(row.source in SOURCES for row in paper.expected) and paper.cpu_seconds <= 14_400
    told = {row.metric for row in [*paper.checks, *paper.expected]} | set(paper.axis.metrics if paper.axis else [])
    logged = any("log_z" in metric or "log_sum" in metric for metric in told if metric)
    assert not logged or planned[0].settings.evaluate.log_z
    assert getattr(planned[0].settings.evaluate, "during_training", []) == paper.during_training
    text = papers.path(name).read_text(encoding="utf-8")
    assert text.startswith("# ") and not re.search(r"https?://", text)


def test_what_varies_is_what_the_axis_says(tmp_path: Path) -> None:
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


def test_without_a_name_all_are_listed_with_their_budgets(monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "reproduce"])
    assert cli.run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == SHIPPED
    assert re.search(r"nce_note_logz +15 runs +30 CPU-min +\S", "\n".join(lines))
    monkeypatch.setattr(sys, "argv", ["embtrain", "list"])
    assert cli.run() == 0 and "nce_note_logz" in capsys.readouterr().out


# -- what is wrong in a file ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("old", "new", "line", "says"), [
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
    ("seeds: 2", "seeds: 0", 6, "greater than or equal to 1"),
    ("cpu_seconds: 1000\n", "", 0, "cpu_seconds: needs a value"),
    ("nce-k1: {", "nce/k1: {", 14, "should match pattern"),
    ("sets: [text", "during_training: [men]\nsets: [text", 10, "'men' is not one of the benchmarks"),
    ("sets: [text", "benchmarks: [mem]\nsets: [text", 10, "no evals named 'mem' (did you mean 'men'?)"),
    ("x: 1}", "y: 1}", 14, "unknown key"),
    ("claim: two", "claim: two\nclaim: three", 5, "is set twice"),
])
def test_what_is_wrong_is_told_with_its_line(place: Path, old: str, new: str, line: int, says: str) -> None:
    file = yaml_of(place, old, new)
    with pytest.raises(UsageError) as error:
        papers.read(file)
    assert says in str(error.value) and (f"{file.name}:{line}:" in str(error.value) if line else True), error.value


def test_the_command_ends_with_2_and_one_line(place: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str], here: type[Here]) -> None:
    file = yaml_of(place, "source: recalled", "source: guessed")
    for words, says in (([str(file)], "changed.yaml:22:"), (["nce_note"], "did you mean 'nce_note_k'"),
                        ([str(place / "tiny.yaml"), "--set", "text.windw=3"], "did you mean 'window'")):
        monkeypatch.setattr(sys, "argv", ["embtrain", "reproduce", *words, "--out", str(place / "never")])
        assert cli.run() == 2
        err = capsys.readouterr().err
        assert says in err and err.startswith("embtrain: error: ") and "Traceback" not in err
    assert here.log == [] and not (place / "never").exists()


@pytest.mark.parametrize(("old", "new", "says"), [
    ("{strategy: nce, sets: [negatives.k=1]", "{strategy: foo, sets: [negatives.k=1]",
     "14:12: runs.nce-k1.strategy: strategy: no strategies named 'foo'"),
    ("sets: [negatives.k=2]", "sets: [negatives.kk=2]", "15:34: runs.nce-k2.sets[0]: negatives.kk: unknown key"),
    ("model.dim=6", "model.dimm=6", "10:57: sets[3]: model.dimm: unknown key")])
def test_what_cannot_be_run_is_told_with_its_place_and_not_by_a_flag(
        place: Path, tmp_path: Path, old: str, new: str, says: str) -> None:
    file = yaml_of(place, old, new)
    for sets in ([], ["text.window=3"]):
        with pytest.raises(UsageError) as error:
            reproduce.reproduce(str(file), sets=sets, out=tmp_path / "out")
        assert f"{file.name}:{says}" in str(error.value), error.value


# -- the whole of it ------------------------------------------------------------------------------------------------

def test_runs_are_compared_and_theirs_stand_beside_ours(done: compare.Comparison) -> None:
    tree = done.results
    assert [cell["cell"] for cell in tree["cells"]] == [f"{run}-seed{seed}" for seed in (1, 2)
                                                        for run in ("softmax", "nce-k1", "nce-k2")]
    score = {cell["cell"]: next(row["value"] for row in cell["scores"]
                                if (row["benchmark"], row["metric"]) == ("test", "log_likelihood"))
             for cell in tree["cells"]}
    part = tree["reproduction"]
    least, likelihood = part["expected"]
    ours = [score[f"nce-k2-seed{seed}"] for seed in (1, 2)]
    assert likelihood["ours"] == pytest.approx(sum(ours) / 2) and likelihood["n"] == 2
    assert likelihood["theirs"] == -3 and likelihood["source"] == "recalled"
    half = 12.706204736 * abs(ours[0] - ours[1]) / 2  # t of one degree of freedom, s/√n = |difference| / 2
    assert likelihood["high"] - likelihood["ours"] == pytest.approx(half) and likelihood["low"] < likelihood["ours"]
    (check,) = part["checks"]
    assert check["mean"] == pytest.approx(sum(score[f"nce-k2-seed{s}"] - score[f"softmax-seed{s}"] for s in (1, 2)) / 2)
    assert part["verdict"] == check["verdict"] == HOLDS and least["ours"] == 1
    assert tree["verdict"][0] == "The claim holds: two draws are enough." and len(tree["verdict"]) == 4
    assert part["axis"] == {"name": "k", "metrics": ["test/log_likelihood"], "x": {"nce-k1": 1, "nce-k2": 2}}
    assert part["spent"] == pytest.approx(sum(cell["cpu_seconds"] for cell in tree["cells"]))
    k = {cell["cell"]: experiment.Run(done.folder / cell["folder"]).settings.negatives.k for cell in tree["cells"]}
    assert (k["nce-k1-seed1"], k["nce-k2-seed1"]) == (1, 2)


def test_the_report_has_it_in_every_format(done: compare.Comparison) -> None:
    page = checked((done.folder / "report.html").read_text())
    assert "reproduction" in page.ids and "Are two draws enough?" in page.words
    for told in ("recalled, not verified", "Reported and measured", "log-likelihood against k", "The claim holds"):
        assert told in page.words
    assert (done.folder / "report.html").read_text().count("<svg viewBox") >= 3
    for name in ("report.md", "report.tex"):
        text = (done.folder / name).read_text()
        assert "Reported and measured" in text and "by eye" in text and "against k" in text
    told = reproduce.format_text(done)
    assert "likelihood: paper −3.000 (recalled, not verified; page 2), ours" in told
    assert "paper all; ours some" in told
    assert done.record.reproduction is not None
    assert done.record.reproduction.command.startswith("embtrain reproduce ")


def test_the_same_folder_goes_on(done: compare.Comparison, place: Path, here: type[Here]) -> None:
    name, before = str(place / "tiny.yaml"), (done.folder / "results.json").read_bytes()
    again = reproduce.reproduce(name, out=done.folder, parallel=1, threads=1)
    assert here.log == [] and (again.folder / "results.json").read_bytes() == before
    first = read_yaml(done.folder / "comparison.yaml").tree["sets"]
    told = reproduce.paper_grid(name, {}, [first[0], "train.log_every=7"], done.folder)[0].sets
    assert told == [*first[1:], first[0], "train.log_every=7"]  # what it holds already is not said twice
    assert compare.rejudge(done.folder).results == json.loads(before)  # as `embtrain report` does
    with pytest.raises(UsageError, match="contains another comparison than nce_note_k"):
        reproduce.reproduce("nce_note_k", out=done.folder)


def test_a_comparison_may_take_the_runs_of_a_paper_without_its_claim(done: compare.Comparison, tmp_path: Path) -> None:
    whole = compare.read_grid({}, None, done.folder)
    runs = compare.read_grid({}, done.folder / "comparison.yaml", tmp_path / "out")
    assert whole.paper is not None and runs == whole.model_copy(update={"paper": None})
    assert compare.read_grid({}, done.folder / "comparison.yaml", done.folder) == whole


def test_the_folder_of_a_run_is_left_as_it_is(done: compare.Comparison, place: Path, tmp_path: Path) -> None:
    run = shutil.copytree(done.folder / "cells" / "softmax-seed1", tmp_path / "run")
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(UsageError, match=r"run contains a run; choose another folder"):
        reproduce.reproduce(str(place / "tiny.yaml"), out=run)
    assert sorted(path.name for path in run.iterdir()) == before


def test_options_are_laid_over_the_paper_and_told_again(place: Path, tmp_path: Path, here: type[Here],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(place / "tiny.yaml")
    monkeypatch.setattr(here, "stop_at", 2)
    with pytest.raises(Stopped):
        reproduce.reproduce(name, seeds=1, sets=["model.dim=3"], out=tmp_path / "out", parallel=1, threads=1)
    monkeypatch.setattr(here, "stop_at", None)
    done = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1)  # the folder knows the rest
    assert here.log == ["fit softmax-seed1", "fit nce-k1-seed1", "fit nce-k2-seed1"]
    part = done.results["reproduction"]
    assert part["command"] == f"embtrain reproduce {name} --seeds 1 --set model.dim=3 --set train.engine=autograd"
    assert part["verdict"] == NOT_SEPARABLE and "one seed, no interval" in part["checks"][0]["text"]
    assert part["expected"][1]["low"] is None and part["expected"][0]["ours"] is None


def test_who_stops_it_is_told_how_it_goes_on(place: Path, tmp_path: Path, here: type[Here],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    name, out = str(place / "tiny.yaml"), tmp_path / "out"
    monkeypatch.setattr(here, "stop_at", 1)
    with pytest.raises(Stopped) as stopped:
        reproduce.reproduce(name, seeds=1, out=out, parallel=1, threads=1, cpu_seconds=900)
    again = f"embtrain reproduce {name} --out {out} --parallel 1 --threads 1 --cpu-seconds 900"
    assert str(stopped.value) == f"stopped by signal 15; to resume: {again}"
    monkeypatch.setattr(here, "stop_at", None)
    monkeypatch.setattr(sys, "argv", again.split())
    assert cli.run() == 0 and here.log == ["fit softmax-seed1", "fit nce-k1-seed1", "fit nce-k2-seed1"]


@pytest.mark.parametrize(("old", "new", "says", "fitted"), [
    ("metric: test/log_likelihood, margin", "metric: test/mr, margin", "18:54: checks[0].metric", 1),
    ("run: nce-k2, metric: test/log_likelihood, where", "run: nce-k1, metric: test/mr, where",
     "21:48: expected[1].metric", 2),
    ("metrics: [test/log_likelihood]", "metrics: [test/mr]", "16:27: axis.metrics[0]", 2),
    ("metric: test/log_likelihood\n", "metric: test/mr\n", "9:1: metric", 1)])
def test_a_score_that_no_run_has_is_told_at_the_first_with_its_place(
        place: Path, tmp_path: Path, here: type[Here], old: str, new: str, says: str, fitted: int) -> None:
    name, out = str(yaml_of(place, old, new)), tmp_path / "out"
    for count in (fitted, 0):  # asked for once more, what is there is looked at first
        here.log.clear()
        with pytest.raises(UsageError) as error:
            reproduce.reproduce(name, seeds=1, out=out, parallel=1, threads=1)
        told = str(error.value)
        assert f"out/paper.yaml:{says}: test/mr: " in told and "does not have this score; there are: valid/log_" in told
        assert f"then continue: embtrain reproduce {name} --out {out}" in told and len(here.log) == count
    (out / "paper.yaml").write_text((place / "tiny.yaml").read_text())
    done = reproduce.reproduce(name, out=out, parallel=1, threads=1)  # as the line says
    assert len(here.log) == 3 - fitted and done.results["plan"]["metric"] == "test/log_likelihood"


def test_a_budget_that_is_spent_leaves_the_rest_out(place: Path, tmp_path: Path, here: type[Here],
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    name = str(place / "tiny.yaml")
    done = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1, cpu_seconds=1e-9)
    assert here.log == ["fit softmax-seed1"]  # the first begins before anything is spent
    assert "5 runs are skipped" in capsys.readouterr().err
    assert [cell["status"] for cell in done.results["cells"]] == ["finished", *["failed"] * 5]
    assert "not started" in done.results["cells"][1]["error"]
    assert done.results["reproduction"]["checks"][0]["verdict"] == NOT_SEPARABLE
    whole = reproduce.reproduce(name, out=tmp_path / "out", parallel=1, threads=1, cpu_seconds=1e9)
    assert len(here.log) == 6 and {cell["status"] for cell in whole.results["cells"]} == {"finished"}


@pytest.mark.parametrize(("corpus", "asked", "budget"), [(None, None, 1000), (None, 7.0, 7), ("COPY", None, None),
                                                         ("COPY", 7.0, 7)])
def test_the_papers_budget_is_for_its_own_corpus(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 corpus: str | None, asked: float | None, budget: float | None) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(reproduce.compare, "compare", lambda *what: seen.append(what))
    other = str(place / "text" / "00.txt") if corpus else None
    reproduce.reproduce(str(place / "tiny.yaml"), corpus=other, out=tmp_path, cpu_seconds=asked)
    assert seen[0][-1] == budget and (other is None or seen[0][0].corpus == other)


def test_a_papers_own_corpus_is_known_again_by_its_full_path(place: Path, tmp_path: Path, here: type[Here],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    file = tmp_path / "near.yaml"
    file.write_text(TINY.replace("TEXT", "text"))
    asked = {"name": str(file), "out": tmp_path / "out", "seeds": 1, "parallel": 1, "threads": 1}
    done = reproduce.reproduce(**asked)
    assert done.results["reproduction"]["command"] == f"embtrain reproduce {file} --seeds 1 --set train.engine=autograd"
    seen: list[Any] = []
    monkeypatch.setattr(reproduce.compare, "compare", lambda *what: seen.append(what))
    reproduce.reproduce(**asked)
    assert Path(seen[0][0].corpus).is_absolute() and seen[0][-1] == 1000


def test_a_benchmark_that_is_not_here_is_left_out_visibly(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    monkeypatch.setattr(progress, "quiet", False)
    of = reproduce.paper_grid("bose2018_skipgram", {}, [], tmp_path)[0]
    assert of.benchmarks == ["wordsim353"] and "evaluate.during_training=[wordsim353]" in of.sets
    assert "rareword is skipped" in capsys.readouterr().err
    paper = papers.read(papers.path("bose2018_skipgram"))
    told = claims.reproduction(paper, of.model_dump(mode="json"), some({"ace": [0.3, 0.31], "nce": [0.1, 0.12]},
                                                                       "wordsim353/spearman"))
    assert told.notes == ["rareword is skipped: it is not on this machine; fetch it: embtrain data fetch rareword"]
    assert [check.verdict for check in told.checks] == [HOLDS, *[NOT_SEPARABLE] * 3]
    assert told.checks[2].text.endswith("not measured.")
    assert told.verdict == NOT_SEPARABLE and told.sentence.startswith("The claim is undecided (not measured)")
    assert told.expected[3].ours is None and told.expected[3].note == "not measured"
    assert told.command == "embtrain reproduce bose2018_skipgram"


# -- rules ----------------------------------------------------------------------------------------------------------

def some(values: dict[str, list[float]], metric: str) -> list[outcome.CellOutcome]:
    benchmark, _, name = metric.partition("/")
    return [outcome.CellOutcome(f"{label}-seed{seed}", label, None, "skipgram", seed, Path(), "", None,
                                [Score(benchmark, name, value)]) for label, row in values.items()
            for seed, value in enumerate(row, 1)]


def verdict(rule: dict[str, Any], a: list[float], b: list[float] | None = None, m: int = 1) -> str:
    metric = rule.get("metric", "test/mrr")
    check = papers.Check(**{"run": "a", "metric": metric, **({} if b is None else {"against": "b"}), **rule})
    values = claims.by_metric(some({"a": a} | ({} if b is None else {"b": b}), metric))
    return claims.judge(check, values, m).verdict


E = [0.001, -0.001, 0.0]  # over three seeds: half the interval is 4.303 × .001 / √3 = .00248
LOWER = {"metric": "test/log_z_abs"}


@pytest.mark.parametrize(("rule", "shift", "expected"), [
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
def test_differences_are_judged_by_their_interval(rule: dict[str, Any], shift: float, expected: str) -> None:
    b = [0.3, 0.1, 0.7]  # what the seed does to both cancels
    assert verdict(rule, [y + shift + e for y, e in zip(b, E, strict=True)], b) == expected


@pytest.mark.parametrize(("mean", "expected"), [(1.0, HOLDS), (1.0070, HOLDS), (1.0080, NOT_SEPARABLE),
                                                (1.0130, DOES_NOT_HOLD), (0.9930, HOLDS), (0.9870, DOES_NOT_HOLD)])
def test_near_is_within_on_both_sides(mean: float, expected: str) -> None:
    assert verdict({"rule": "near", "value": 1.0, "within": 0.01}, [mean + e for e in E]) == expected


def test_bounds_are_told_with_the_digits_that_tell_them_apart() -> None:
    check = papers.Check(rule="near", run="a", metric="test/mr", value=120.4, within=2)
    told = claims.judge(check, claims.by_metric(some({"a": [120.1, 120.2, 120.4]}, "test/mr")), 1).text
    assert "+120.23 (95 % interval +119.85 to +120.61, 3 seeds); the claim requires above 118.4 and below 122.4" in told


def test_few_seeds_and_no_spread() -> None:
    assert verdict({"rule": "better"}, [0.9], [0.1]) == NOT_SEPARABLE                  # one seed
    assert verdict({"rule": "better"}, [0.9, 0.9], [0.1, 0.1]) == NOT_SEPARABLE        # no spread, and no interval
    assert verdict({"rule": "better"}, [0.3, 0.1 + 0.2], [0.1, 0.1]) == NOT_SEPARABLE  # but for rounding
    assert verdict({"rule": "better"}, [0.1, 0.2], [0.1, 0.2]) == NOT_SEPARABLE        # the same is not better
    assert verdict({"rule": "not_worse", "margin": 0.1}, [0.1, 0.2], [0.1, 0.2]) == NOT_SEPARABLE
    values = claims.by_metric(some({"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5]}, "test/mrr"))
    check = papers.Check(rule="better", run="a", against="b", metric="test/mrr")
    assert claims.judge(check, values, 1).n == 2  # seed 3 has no partner


def test_of_many_checks_one_that_fails_must_fail_by_more() -> None:
    """−.003 with .00248 on each side: beyond 0 for a check alone, within the wider interval of one of five."""
    b = [0.3, 0.1, 0.7]
    a = [y - 0.003 + e for y, e in zip(b, E, strict=True)]
    assert [verdict({"rule": "better"}, a, b, m) for m in (1, 5)] == [DOES_NOT_HOLD, NOT_SEPARABLE]
    up = [y + 0.003 + e for y, e in zip(b, E, strict=True)]
    assert verdict({"rule": "better"}, up, b, 5) == HOLDS  # all must hold, which is hard enough


def test_a_claim_holds_where_all_of_it_holds() -> None:
    assert claims.combine_verdicts([HOLDS, HOLDS]) == HOLDS
    assert claims.combine_verdicts([HOLDS, NOT_SEPARABLE]) == NOT_SEPARABLE
    assert claims.combine_verdicts([HOLDS, NOT_SEPARABLE, DOES_NOT_HOLD]) == DOES_NOT_HOLD


def paper_with(place: Path, **row: Any) -> Paper:
    told = papers.read(place / "tiny.yaml")
    told_so = {"what": "x", "value": 1, "where": "here", "protocol": "so", "source": "published"}
    number = papers.Expected(**{**told_so, **row})
    return told.model_copy(update={"expected": [number]})


def test_readings(place: Path) -> None:
    values = claims.by_metric(some({"nce-k1": [0.2, 0.4], "nce-k2": [0.3, 0.8], "softmax": [9.0, 9.1]}, "test/mrr"))
    def read(**row: Any) -> ReportedNumber:
        paper = paper_with(place, **row)
        return claims.reported_and_measured(paper.expected[0], paper, values)
    assert read(run="nce-k1", metric="test/mrr").ours == pytest.approx(0.3)
    of = read(run="nce-k1", metric="test/mrr", reading="exp")
    assert of.ours == pytest.approx(math.exp(0.3)) and of.low == pytest.approx(math.exp(0.3 - 12.7062047 * 0.1))
    gain = read(run="nce-k2", metric="test/mrr", reading="gain", against="nce-k1")
    assert gain.ours == pytest.approx((0.5 + 1.0) / 2) and gain.n == 2  # of each seed, then the mean
    assert gain.low == pytest.approx(0.75 - 12.7062047 * 0.25)


@pytest.mark.parametrize(("k1", "k2", "least"), [(-0.1, -0.1, 1), (-9.5, -0.1, 2), (-9.5, -9.5, None)])
def test_the_least_x_that_is_not_worse(place: Path, k1: float, k2: float, least: float | None) -> None:
    base = [-7.0, -7.2, -6.9]
    world = {"softmax": base, **{name: [y + shift + e for y, e in zip(base, E, strict=True)]
                                 for name, shift in (("nce-k1", k1), ("nce-k2", k2))}}
    values = claims.by_metric(some(world, "test/log_likelihood"))
    assert claims.min_sufficient_x(papers.read(place / "tiny.yaml"), values) == least


# -- the exact log Z ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("partition", ["global", "context"])
def test_learned_and_true_log_z_of_held_out_contexts(place: Path, tmp_path: Path, partition: str) -> None:
    """By a loop over the pairs: mean c, mean log Σ e^s without c, and what is left of it."""
    sets = papers.read(place / "tiny.yaml").sets
    settings = experiment.resolve("nce-learned-z", None, str(place / "text"), None, None,
                                  [*sets, f"loss.partition={partition}", "train.epochs=1"], 1)
    made = components.build(settings, tasks.read(settings))
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        made.model.u.copy_(torch.randn(made.model.u.shape, generator=g))
        made.model.v.copy_(torch.randn(made.model.v.shape, generator=g))
        c = made.loss.c
        c.copy_(torch.randn(c.shape, generator=g) + 1.5)
    batch = made.task.heldout("test")
    u, v = made.model.u.tolist(), made.model.v.tolist()
    true = {a: math.log(sum(math.exp(sum(x * y for x, y in zip(u[a], row, strict=True))) for row in v))
            for a in set(batch.centre.tolist())}
    learned = {a: c.item() if partition == "global" else c[a].item() for a in true}
    pairs = batch.centre.tolist()
    rows = {row.metric: row for row in scoring.likelihood(made, batch, "test", settings.evaluate)}
    def mean(of: dict[int, float]) -> float:
        return sum(of[a] for a in pairs) / len(pairs)
    assert rows["learned_log_z"].value == pytest.approx(mean(learned), abs=1e-5)
    assert rows["log_sum_mean"].value == pytest.approx(mean(true), abs=1e-5)
    assert rows["log_z_mean"].value == pytest.approx(mean(true) - mean(learned), abs=1e-5)
    assert rows["log_z_abs"].value == pytest.approx(mean({a: abs(true[a] - learned[a]) for a in true}), abs=1e-5)
    off = settings.evaluate.model_copy(update={"log_z": False})
    assert not [row for row in scoring.likelihood(made, batch, "test", off) if "log_" in row.metric[4:] or
                row.metric.startswith("log_z") or row.metric.startswith("learned")]


def test_log_z_has_its_own_direction(done: compare.Comparison) -> None:
    """Smaller |log Z| is better; a learned number is no score, and is not tested."""
    of = {d["metric"]: d for d in done.results["differences"] if d["kind"] == "seeds"}
    assert of["test/log_z_abs"]["higher_better"] is False and of["test/log_likelihood"]["higher_better"] is True
    assert "test/log_z_mean" not in of
    assert {"test/log_z_mean", "test/log_z_abs", "test/log_z_sd"} <= {row["metric"] for row in done.results["summary"]}


# -- what a report reads --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("key", "value", "says"), [
    ("verdict", "maybe", "verdict must be one of holds, does not hold, not separable"),
    ("checks", {}, "checks: a list is expected"),
    ("expected", [3], "expected: row 1: a mapping is expected"),
    ("axis", {"name": "k", "metrics": 1, "x": {}}, "reproduction: axis: metrics: a list is expected, not a number"),
    ("axis", {"name": "k", "metrics": [], "x": {"a": "b"}}, "axis: x: a must be a finite number"),
    ("title", None, "title must be text"),
    ("spent", "much", "spent must be a finite number"),
])
def test_a_damaged_reproduction_is_refused(done: compare.Comparison, tmp_path: Path, key: str, value: Any,
                                           says: str) -> None:
    tree = done.results | {"reproduction": done.results["reproduction"] | {key: value}}
    (tmp_path / "results.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match=re.escape(says)):
        comparison.read(tmp_path)


def test_what_a_paper_says_is_never_markup(done: compare.Comparison, tmp_path: Path) -> None:
    tree, hostile = json.loads(json.dumps(done.results)), " ".join(HOSTILE)
    part = tree["reproduction"]
    part |= dict.fromkeys(("title", "citation", "claim", "sentence", "command"), hostile)
    part["axis"]["name"] = part["checks"][0]["text"] = part["protocol"][0]["ours"] = hostile
    part["notes"], part["expected"][0]["protocol"] = HOSTILE, hostile
    tree["cells"] = [cell | {"folder": "nowhere"} for cell in tree["cells"]]
    (tmp_path / "results.json").write_text(json.dumps(tree))
    report.write(tmp_path)
    checked((tmp_path / "report.html").read_text())


def test_a_claim_with_a_picture_alone_has_no_table_of_numbers(done: compare.Comparison, tmp_path: Path) -> None:
    for n, numbers in enumerate([done.results["reproduction"]["expected"], []]):
        tree = json.loads(json.dumps(done.results))
        tree["reproduction"]["expected"] = numbers
        tree["cells"] = [cell | {"folder": "nowhere"} for cell in tree["cells"]]
        (folder := tmp_path / str(n)).mkdir()
        (folder / "results.json").write_text(json.dumps(tree))
        report.write(folder)
        page = (folder / "report.md").read_text()
        assert ("source of the reported value" in page) == bool(numbers) and "Differences from the paper:" in page


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_axis_is_drawn_whatever_its_name(hostile: str) -> None:
    along = [(1.0, (0.1, 0.0, 0.2)), (100.0, (0.3, 0.3, 0.3))]
    drawing = strategies.against("a", "about", along, [(1, (0.2, 0.1, 0.3))], 0, hostile)
    assert drawing.startswith("<svg") and "<script" not in drawing
