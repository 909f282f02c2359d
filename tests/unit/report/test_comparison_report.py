"""The report of a comparison shows results.json in four formats; text from files is never markup."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shlex
import subprocess
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from helpers.comparisons import comparison
from helpers.looped import looped
from helpers.pages import HOSTILE, Page, checked
from hypothesis import given, settings, strategies as st

from embtrain.common.errors import DataError
from embtrain.evaluate.comparison.reproduction import HOLDS, Reproduction
from embtrain.evaluate.statistics.difference import A_BEATS_B, B_BEATS_A
from embtrain.evaluate.statistics.significance import paired_t
from embtrain.report.charts import strategies as charts
from embtrain.report.charts.seed_bands import MAX_POINTS, band, pareto_front
from embtrain.report.comparison import differences, figures, page as report, reproduction, rerun
from embtrain.report.comparison.decimals import Decimals, heading, metric_label, p_value, true_minus
from embtrain.report.comparison.tables import score_grid
from embtrain.report.format import number
from embtrain.report.load import comparison as results, run as record
from embtrain.report.load.run import Curve
from embtrain.report.render import markdown_latex
from embtrain.report.render.document import (
    Code,
    Collapsible,
    Figure,
    GridCell,
    Items,
    Paragraph,
    ReportDocument,
    ReportSection,
    ReportTable,
    ScoreGrid,
    WordNeighbours,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finished = comparison(tmp_path_factory.mktemp("one") / "novels", failed=["nce-seed3"])
    report.write(finished)
    return finished


@pytest.fixture(scope="module")
def tree(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return checked(html)


def changed(folder: Path, **parts: Any) -> Path:
    """Replace some keys of results.json; keys joined by / address nested values."""
    path = folder / "results.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    for keys, value in parts.items():
        *above, last = keys.split("__")
        inner = tree
        for key in above:
            inner = inner[int(key) if isinstance(inner, list) else key]
        inner[int(last) if isinstance(inner, list) else last] = value
    path.write_text(json.dumps(tree), encoding="utf-8")
    return folder


# --- contents --------------------------------------------------------------------------------------------------

def test_the_page_contains_all_results(page: Page, tree: dict[str, Any]) -> None:
    words = page.words.replace("\u00a0", " ")
    for shown in (*map(true_minus, tree["verdict"]), "skipgram · on novels · 3 seeds · baseline sgns",
                 "primary metric test log-likelihood", "95 % t interval", "wordsim353 Spearman's ρ",
                 "against sgns", "nce against sgns on test log-likelihood: two seeds are too few to separate",
                 "g: Hedges' effect size", "at equal CPU time",
                 "74.25 CPU seconds", "Line: mean over seeds; band: from the lowest to the highest seed",
                 "On the Pareto front:", "noise samples", "adversarial samples", "1–5", "45–50", "frequency rank",
                 "1 of 9 runs has no scores and is not in the tables above", "nce-seed3", "failed, code 4",
                 "4.1 GB are needed",
                 "embtrain compare --negatives sgns,nce,ace --model skipgram --corpus novels --seeds 3 --baseline sgns "
                 "--metric test/log_likelihood --benchmarks wordsim353,simlex999 --set model.dim=50", "ab" * 32,
                 "metric: test/log_likelihood",
                 "They differ in command", "negatives.source=ace"):
        assert shown in words, shown


@pytest.mark.parametrize(("spent", "budget", "line"), [
    (1.0, 0.5, "These runs took 1 CPU second. The budget on novels is 0.5."),
    (0.25, 1.0, "These runs took 0.25 CPU seconds. The budget on novels is 1."),
    (1234.5, 6e4, "These runs took 1,234 CPU seconds. The budget on novels is 60,000.")])
def test_cpu_seconds_of_a_reproduction_are_counted(folder: Path, spent: float, budget: float, line: str) -> None:
    claim = Reproduction("x", "title", "citation", "claim", HOLDS, "sentence", [], [], [], None, "novels", budget,
                         spent, "embtrain reproduce x", [])
    result = results.read(folder)
    assert Paragraph(line, "note") in reproduction.blocks(result, claim, Decimals(result))


def test_every_format_has_every_mean_and_its_interval(folder: Path, page: Page) -> None:
    result = results.read(folder)
    decimals = Decimals(result)
    rows = [[m.strategy, decimals.format(m.metric, m.mean), decimals.format(m.metric, m.sd),
             decimals.format_interval(m.metric, m.low, m.high), str(m.n)] for m in result.summary]
    assert len(rows) == 18
    text = {name: (folder / f"report.{name}").read_text(encoding="utf-8") for name in ("md", "tex")}
    tex = text["tex"].replace(r"\ensuremath{-}", "−").replace(",{}", ",").replace("{[}", "[").replace("{]}", "]")
    for row in rows:
        assert " ".join(row) in page.words
        assert "| " + " | ".join(row).replace("[", r"\[").replace("]", r"\]") + " |" in text["md"]
        assert " & ".join(row) + r" \\" in tex


def test_the_formats_have_the_same_sections_and_tables(folder: Path, html: str) -> None:
    result = report.document(results.read(folder))
    names = [section.name for section in result.sections]
    md, tex = ((folder / f"report.{name}").read_text(encoding="utf-8") for name in ("md", "tex"))
    assert re.findall(r"^## (.*)$", md, re.MULTILINE) == names
    assert re.findall(r"\\subsection\*\{(.*)\}$", tex, re.MULTILINE) == names
    assert re.findall(r"<h2>(.*?)</h2>", html) == names
    tables = len(re.findall(r"^\|(?: -+:? \|)+$", md, re.MULTILINE))
    tex = tex.partition(r"\end{table}")[2]               # after the table for a paper
    marks = (r"\begin{longtable}", r"\toprule", r"\midrule", r"\bottomrule")
    assert {tex.count(mark) for mark in marks} == {tables - 1}
    assert tables == len(re.findall("<table", html)) + 4 + 5 + 1 + 5  # curves, costs, components and words


def test_latex_begins_with_a_table_for_a_paper(folder: Path) -> None:
    result = results.read(folder)
    tex = (folder / "report.tex").read_text(encoding="utf-8")
    before, _, rest = tex.partition(r"\begin{table}")
    assert r"\begin{longtable}" not in before and r"\subsection" not in before and tex.count(r"\begin{table}") == 1
    grid = rest.partition(r"\end{table}")[0]
    for escaped, mark in ((r"\ensuremath{-}", "−"), ("-{}", "-"), (",{}", ","), ("{[}", "["), ("{]}", "]")):
        grid = grid.replace(escaped, mark)
    assert re.search(r"\\begin\{tabular\}\{lr+\}\n\\toprule\nstrategy & test log-likelihood & ", grid)
    rows = grid.partition("\\midrule\n")[2].partition("\n\\bottomrule")[0].splitlines()
    assert [row.split(" & ")[0] for row in rows] == result.strategies
    decimals, metric = Decimals(result), "test/log_likelihood"
    means = {m.strategy: m for m in result.means(metric)}
    best = max(means.values(), key=lambda m: m.mean or 0).strategy
    for row, name in zip(rows, result.strategies, strict=True):
        m = means[name]
        value = decimals.format(metric, m.mean)
        shown = rf"\textbf{{{value}}}" if name == best else value
        assert row.split(" & ")[1] == rf"{shown} {{\scriptsize {decimals.format_interval(metric, m.low, m.high)}}}"


def test_the_page_begins_with_a_table_that_its_head_sorts(folder: Path, html: str) -> None:
    result = results.read(folder)
    metrics = figures.drawn_metrics(result)
    before, table, _ = re.split(r"(<table class=.sortable.>.*?</table>)", html, maxsplit=1, flags=re.DOTALL)
    assert 'class="verdict"' in before and "<h2>" not in before
    heads = re.findall(r'<th scope="col"[^>]* aria-sort="none" data-first="(\w+)"><button type="button">(.*?)<span',
                       table)
    assert heads == [("ascending", "strategy"), *(("descending", escape(metric_label(m))) for m in metrics)]
    rows = re.findall(r'<tr><th scope="row" data-order="(.*?)">\1</th>(.*?)</tr>', table)
    assert [name for name, _ in rows] == result.strategies
    decimals, values = Decimals(result), [re.findall(r'data-order="(.*?)">(.*?)</td>', cells) for _, cells in rows]
    for column, metric in enumerate(metrics):
        means = {m.strategy: m for m in result.means(metric)}
        for (name, _), cells in zip(rows, values, strict=True):
            order, shown = cells[column]
            assert float(order) == means[name].mean
            assert escape(decimals.format_interval(metric, means[name].low, means[name].high)) in shown
        best = max(means, key=lambda name: means[name].mean or 0)
        assert [name for (name, _), cells in zip(rows, values, strict=True) if "(best)" in cells[column][1]] == [best]
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert markdown.index("| strategy | test log-likelihood |") < markdown.index("## ")


def test_less_can_be_best_and_a_missing_score_is_a_dash(tmp_path: Path) -> None:
    result = results.read(comparison(tmp_path / "novels"))
    metric = "test/log_likelihood"
    lower = replace(result, differences=[replace(d, higher_better=False) for d in result.differences])
    for found, choose in ((result, max), (lower, min)):
        grid = score_grid(found, Decimals(found), [metric, "no/metric"])
        assert grid is not None and len(grid.measures) == 1
        assert ("less is better" in grid.measures[0]) is (choose is min) is grid.less_is_better[0]
        means = {m.strategy: m.mean for m in found.means(metric)}
        assert [name for name, (cell,) in grid.rows if cell.is_best] == [choose(means, key=lambda name: means[name])]
    first = result.strategies[0]
    partly = replace(result, summary=[m for m in result.summary if m.strategy != first],
                     cells=result.cells)
    grid = score_grid(partly, Decimals(partly), [metric])
    assert grid is not None and dict(grid.rows)[first] == [GridCell("–", "", False)]
    assert score_grid(replace(result, summary=[]), Decimals(result), [metric]) is None


def test_a_metric_without_differences_has_its_direction(tmp_path: Path) -> None:
    """Of a comparison of one strategy, for example."""
    result = replace(results.read(comparison(tmp_path / "novels")), differences=[])
    for name, lower in (("test/perplexity", True), ("test/mr/head", True), ("test/mrr", False), ("bad", False)):
        means = [replace(m, metric=name) for m in result.means("test/log_likelihood")]
        grid = score_grid(replace(result, summary=means), Decimals(result), [name])
        assert grid is not None and ("less is better" in grid.measures[0]) is lower is grid.less_is_better[0]
        best = (min if lower else max)(means, key=lambda mean: mean.mean or 0.0)
        assert [label for label, (cell,) in grid.rows if cell.is_best] == [best.strategy]


def test_the_number_of_seeds_is_that_of_each_mean(tmp_path: Path) -> None:
    result = results.read(comparison(tmp_path / "novels"))
    shifted = replace(result, cells=[replace(c, seed=c.seed + (c.strategy == "nce")) for c in result.cells])
    fewer = replace(shifted, summary=[replace(m, n=2) if m.strategy == "nce" else m for m in result.summary],
                    cells=[c for c in shifted.cells if (c.strategy, c.seed) != ("nce", 4)])
    for found, seeds in ((shifted, "3 seeds"), (fewer, "2 to 3 seeds")):
        page = report.document(found)
        assert page.grid is not None and page.grid.caption.startswith(f"Mean over {seeds} with its 95 % t interval.")
        assert f" · {seeds} · " in page.name


def test_each_difference_states_the_number_of_seeds_that_would_separate(folder: Path, tree: dict[str, Any],
                                                                        page: Page) -> None:
    unclear = [d for d in tree["differences"] if d["verdict"] == "not separable"]
    assert {d["n"] for d in unclear} == {3}
    few = [d for d in tree["differences"] if d["kind"] == "seeds" and d["n"] == 2]
    assert few and {d["verdict"] for d in few} == {"two seeds are too few to separate"}
    for d in unclear:
        part = f"not separable: {d['n']} seeds would separate {number(d['detectable'])}; the observed difference takes "
        assert part + (f"{d['needed']:,}" if d["needed"] else "more than 1,000") in page.words, part
    worse = changed(comparison(folder.parent / "worse"), differences__0__verdict="B beats A", differences__0__mean=-0.5)
    blocks = report.document(results.read(worse)).sections[1].blocks
    assert any("sgns beats nce" in row for t in blocks if isinstance(t, ReportTable) for row in t.rows)


def test_each_curve_is_drawn_against_epochs_and_cpu_seconds(html: str) -> None:
    drawn = re.findall(r"<svg viewBox.*?</svg>", html, re.DOTALL)
    epochs = [svg for svg in drawn if ">epoch</text>" in svg]
    cpu = [svg for svg in drawn if re.search(r">CPU seconds(, log scale)?</text>", svg)]
    assert len(epochs) == len(cpu) == 4 + 1  # four measures; NCE and adversarial samples only for ace
    assert len(re.findall(r">CPU seconds per run", html)) == 5
    assert all(max(float(x) for x in re.findall(r">([\d.]+)</text>", svg) if float(x) >= 1) == 4 for svg in epochs[:1])
    assert all(svg.count("<path") > 3 for svg in drawn)


def test_every_score_of_every_cell_is_in_the_csv(folder: Path, tree: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO((folder / "scores.csv").read_text(encoding="utf-8"))))
    calls = [(c["cell"], r["benchmark"], r["metric"], r["value"], r["low"], r["n"]) for c in tree["cells"]
             for r in c["scores"]]
    scored = [(r["cell"], r["benchmark"], r["metric"], float(r["value"]), float(r["low"]), int(r["n"]))
              for r in rows if r["value"]]
    assert scored == calls and len(calls) == 48
    failed = [r for r in rows if not r["value"]]
    assert [(r["cell"], r["status"]) for r in failed] == [("nce-seed3", "failed")] and "4.1 GB" in failed[0]["note"]


def test_the_same_comparison_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    other = comparison(tmp_path / "novels", failed=["nce-seed3"])
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.fonttype": "path", "lines.linewidth": 9}):
        paths = report.write(other)
    assert [p.name for p in paths] == ["report.html", "report.md", "report.tex", "scores.csv"]
    for path in paths:
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


# --- missing parts -----------------------------------------------------------------------------------------------

def test_one_seed_without_any_run_folder(tmp_path: Path) -> None:
    finished = comparison(tmp_path / "bare", ["sgns", "nce"], 1, 1, 1)
    for file in finished.glob("cells/*/*"):
        file.unlink()
    (finished / "comparison.yaml").unlink()
    page = checked(report.write(finished)[0].read_text(encoding="utf-8"))
    assert re.findall("<h2>(.*?)</h2>", (finished / "report.html").read_text(encoding="utf-8")) == [
        "Scores", "Differences from the baseline", "Score against cost", "At equal epochs and CPU time",
        "Results by seed", "How to reproduce"]
    for shown in ("corpus and code are unknown", "embtrain report cells/sgns-seed1 cells/nce-seed1 "
                 "--baseline sgns --metric test/log_likelihood",
                 "one seed: no interval"):
        assert shown in page.words, shown
    markdown = (finished / "report.md").read_text()
    assert "| nce | one seed: no interval |" in markdown and not re.search("(sgns|nce) beats (sgns|nce)", markdown)


def test_a_comparison_without_finished_cells(tmp_path: Path) -> None:
    finished = comparison(tmp_path / "none", ["sgns", "nce"], 1, failed=["sgns-seed1", "nce-seed1"])
    page = checked(report.write(finished)[0].read_text(encoding="utf-8"))
    assert "No run finished" in page.words and page.tags["svg"] == 0
    assert "2 of 2 runs have no scores and are not in the tables above." in page.words


@pytest.mark.parametrize(("strategies", "failed", "line"), [
    (["sgns"], ["sgns-seed1"], "The only run has no scores and is not in the tables above."),
    (["sgns", "nce"], ["nce-seed1"], "1 of 2 runs has no scores and is not in the tables above."),
    (["sgns", "nce"], ["nce-seed1"], "The table contains the identity.json of one run."),
    (["sgns", "nce"], [], "Shared by all 2 runs."),
])
def test_one_run_is_counted_in_the_singular(tmp_path: Path, strategies: list[str], failed: list[str], line: str
                                            ) -> None:
    finished = comparison(tmp_path / "one", strategies, 1, failed=failed)
    assert line in checked(report.write(finished)[0].read_text(encoding="utf-8")).words.replace("\u00a0", " ")


def test_runs_that_were_joined_name_their_own_commands(tmp_path: Path) -> None:
    finished = comparison(tmp_path / "joined", ["sgns", "nce"], 2, 1, 2)
    (finished / "comparison.yaml").unlink()
    blocks = report.document(results.read(changed(finished, cells__0__folder="../joined/cells/sgns-seed1"))).sections[
        -1]
    assert isinstance(blocks.blocks[0], Code)
    assert shlex.split(blocks.blocks[0].text)[:3] == ["embtrain", "report", "../joined/cells/sgns-seed1"]
    table = next(b for b in blocks.blocks if isinstance(b, ReportTable))
    assert ["nce-seed2", "embtrain fit --negatives nce --seed 2"] in table.rows


@pytest.mark.parametrize(("content", "message"), [
    ("{", r"results\.json:1: not JSON"), ("[]", r"results\.json: a mapping"), ('{"a": NaN}', "NaN is not a"),
    ('{"cells": {}}', "cells: a list is expected, not a mapping"),
    ('{"cells": [1]}', "cells: row 1: a mapping is expected, not a number"),
    ('{"cells": [{"cell": "a", "strategy": "b", "status": "finished", "seed": -1}]}', "row 1: seed must be a count"),
    ('{"cells": [{"cell": "a", "strategy": 1, "status": "finished", "seed": 1}]}', "row 1: strategy must be text"),
    ('{"cells": [{"cell": "a", "strategy": "b", "status": "finished", "seed": 1, "scores": [{}]}]}', "'benchmark' is"),
    ('{"cells": [{"cell": "a", "strategy": "b", "status": "finished", "seed": 1, "folder": 1}]}', "folder must be"),
    ('{"summary": [{"strategy": "a", "metric": "b", "mean": "x", "n": 1}]}', "mean must be a finite"),
    ('{"differences": [{"a": "x"}]}', "row 1: key 'b' is missing"), ('{"differences": [{"q": 1}]}', "unknown key 'q'"),
    ('{"verdict": [1]}', "verdict: row 1 must be text"), ('{"notes": "x"}', "notes: a list"),
    ('{"at_equal": {"epochs": {"rows": [{"value": 1}]}}}', "at_equal: epochs: rows: row 1: key 'strategy' is missing"),
    ('{"plan": []}', "plan: a mapping"), ('{"cells": [' + ",".join(["{}"] * 2001) + "]}", "2,001 are too many"),
])
def test_damaged_results_are_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        report.write(tmp_path)
    assert len(str(caught.value).splitlines()) == 1 and str(caught.value).startswith(str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="file not found; give a folder written by `embtrain compare`"):
        report.write(tmp_path)


# --- text is never markup ----------------------------------------------------------------------------------

def hostile(folder: Path, words: list[str]) -> Path:
    """Make every text of results.json and of the files of runs a hostile word."""
    comparison(folder, ["sgns", "ace"], 1, 1, 2)
    names = dict(zip(["sgns", "ace"], words, strict=False))
    text = (folder / "results.json").read_text(encoding="utf-8")
    tree = json.loads(text, object_hook=lambda d: {k: names.get(v, v) if k in ("strategy", "a", "b", "baseline") else v
                                                   for k, v in d.items()})
    tree |= {"verdict": words[:3], "notes": words}
    tree["plan"] |= {"corpus": words[0], "models": words, "sets": words, "strategies": words}
    for row in tree["cells"][0]["scores"]:
        row["note"] = words[-1]
    tree["differences"][0]["note"] = words[2]
    (folder / "results.json").write_text(json.dumps(tree), encoding="utf-8")
    (folder / "comparison.yaml").write_text(json.dumps(words) + "\n```\n", encoding="utf-8")
    near = {w: [[other, 0.5] for other in words] for w in words}
    for run in (folder / "cells").iterdir():
        (run / "neighbours.json").write_text(json.dumps({"near": near, "far": near}), encoding="utf-8")
        (run / "identity.json").write_text(json.dumps({w: {w: w} for w in words}), encoding="utf-8")
    return folder


def test_hostile_words_are_shown_verbatim(tmp_path: Path) -> None:
    words = [*HOSTILE, "| a | b |", "]]>", "```", "\\end{document}", "\\input{x}", "https://x.example/a",
             "# a", "=cmd()"]
    report.write(hostile(tmp_path / "<script>", words))
    finished = tmp_path / "<script>"
    text = (finished / "report.html").read_text(encoding="utf-8")
    page = checked(re.sub("https://x.example/a", "", text, flags=re.IGNORECASE))
    for shown in HOSTILE[:6]:
        assert shown in page.words
    md = (finished / "report.md").read_text(encoding="utf-8")
    outside, fenced = re.subn(r"^(`{3,})$.*?^\1$", "", md, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"(?<!\\)<|^`", outside, re.MULTILINE) and fenced == 2
    assert not re.search(r"(?<!\\)://", outside)
    tex = (finished / "report.tex").read_text(encoding="utf-8")
    assert tex.count(r"\end{document}") == 1 and r"\input" not in tex
    rows = list(csv.reader(io.StringIO((finished / "scores.csv").read_text(encoding="utf-8"))))
    assert {len(row) for row in rows} == {12} and "'=cmd()" in {row[-1] for row in rows}
    for name in ("report.html", "report.md", "report.tex", "scores.csv"):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", (finished / name).read_text(encoding="utf-8"))


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_words_are_escaped_in_latex(words: str) -> None:
    document = ReportDocument(words, words, [words],
                              [ReportSection("a", words, [Paragraph(words), Items([words]), Code(words),
                                                                 ReportTable([(words, "")], [words, [words]])])],
                              grid=ScoreGrid(words, [words], [(words, [GridCell(words, words, True)])]))
    bare = ReportDocument("", "", [""], [ReportSection("a", "", [Paragraph(""), Items([""]), Code(""),
                                                                 ReportTable([("", "")], ["", [""]])])],
                          grid=ScoreGrid("", [""], [("", [GridCell("", "", True)])]))
    def commands(text: str) -> set[str]:
        return set(re.findall(r"\\(?:begin|end|input|include|write|def|openout)\b\{?\w*", text))
    text = markdown_latex.latex(document)
    assert commands(text) == commands(markdown_latex.latex(bare))
    body = text.partition(r"\begin{document}")[2]
    assert not re.search(r"(?<!\\)[%#]", body) and len(re.findall(r"(?<!\\)\$", body)) == 0
    opened = re.sub(r"\\[{}]", "", body.replace("\\\\", ""))
    assert opened.count("{") == opened.count("}")


def test_markdown_syntax_is_escaped() -> None:
    document = ReportDocument("+ a", "1. b", ["- c", "0.52", "= d", "12", "<b>", "a_b*c*"], [])
    assert markdown_latex.markdown(document).splitlines()[::2] == [
        r"# \+ a", r"1\. b", r"\- c", "0.52", r"\= d", "12", r"\<b\>", r"a\_b\*c\*", "**"]


def test_a_heading_without_text_below_it_is_left_out() -> None:
    """Drawings without a table are in HTML alone."""
    drawn = Figure("a name", "a caption", ["<svg/>"], None)
    document = ReportDocument("x", "x", [], [
        ReportSection("a", "shown", [Paragraph("words"), drawn, Collapsible("closed", [drawn, drawn])]),
        ReportSection("b", "hidden", [drawn])])
    for text in (markdown_latex.markdown(document), markdown_latex.latex(document)):
        assert "shown" in text and "words" in text and "\n\n\n" not in text
        assert "closed" not in text and "hidden" not in text and "a name" not in text


# --- bands and the front -------------------------------------------------------------------------------------------

def curve(steps: list[float], values: list[float], cpu: list[float] | None = None, per_epoch: float = 1.0) -> Curve:
    finished = Curve()
    for step, value, spent in zip(steps, values, cpu or steps, strict=True):
        finished.add(step, spent, value)
    finished.epoch = np.asarray(steps) / per_epoch
    return finished


def test_a_band_is_the_mean_and_the_range_over_seeds() -> None:
    seeds = [curve([10, 20], values, cpu, 10.0) for values, cpu in (([1.0, 4.0], [5, 10]), ([3.0, 5.0], [7, 20]),
                                                              ([5.0, 9.0], [9, 30]))]
    finished = band("x", 0, seeds, "epoch")
    assert finished is not None and finished.joined and finished.seeds == 3
    for got, calls in ((finished.x, [1, 2]), (finished.mean, [3, 6]), (finished.low, [1, 4]), (finished.high, [5, 9])):
        assert got.tolist() == calls
    against_cpu = band("x", 0, seeds, "cpu")
    assert against_cpu is not None and against_cpu.x.tolist() == [7, 20]
    unknown = curve([10, 20], [1.0, 4.0], per_epoch=math.nan)
    assert band("x", 0, [unknown], "epoch") is None and band("x", 0, [Curve()], "cpu") is None


def test_seeds_evaluated_at_other_steps_are_interpolated_in_their_common_range() -> None:
    finished = band("x", 0, [curve([0, 10, 20], [0.0, 10.0, 20.0], None, 5.0), curve([5, 15], [0.0, 10.0], None, 5.0)],
                "epoch")
    assert finished is not None and not finished.joined
    assert finished.x.tolist() == [1, 2, 3] and finished.mean.tolist() == [2.5, 7.5, 12.5] \
        and finished.low.tolist() == [0, 5, 10]
    assert band("x", 0, [curve([1, 2], [0, 0]), curve([8, 9], [0, 0])], "epoch") is None


def test_a_long_curve_is_drawn_as_means_of_its_parts() -> None:
    steps = list(range(1, 201))
    finished = band("x", 0, [curve(steps, [float(s % 2) for s in steps])] * 2, "epoch")
    assert finished is not None and len(finished.x) <= MAX_POINTS and np.allclose(finished.mean, 0.5) \
        and finished.x.mean() == 100.5


def test_seeds_with_other_steps_but_equal_epochs_are_joined() -> None:
    seeds = [curve([10, 20], [0.0, 1.0], per_epoch=10.0), curve([9, 18], [2.0, 3.0], per_epoch=9.0)]
    finished = band("x", 0, seeds, "epoch")
    assert finished is not None and finished.joined and (finished.x.tolist(), finished.mean.tolist()) == ([1, 2],
                                                                                                          [1, 2])


def log_of(*lines: tuple[float, int, float]) -> record.MetricCurves:
    """Return log lines of (step, whole epochs, examples)."""
    finished = record.MetricCurves()
    for step, epoch, examples in lines:
        record._add_entry(finished, step, {"step": step, "epoch": epoch, "examples": examples, "loss": 0.0})
    finished.place(finished.epoch_size)
    return finished


def test_a_point_is_drawn_at_its_examples_in_epochs_of_its_run(folder: Path) -> None:
    """Epochs of 100 and 104 examples: a point within each, and one after the last complete one, 102 on average."""
    finished = log_of((1, 0, 50), (2, 1, 100), (3, 1, 126), (4, 2, 204), (5, 2, 255))
    assert finished.curves["loss"].epoch.tolist() == [0.5, 1, 1.25, 2, 2.5] and finished.epoch_size == 102
    cut = log_of((1, 0, 51))
    assert np.isnan(cut.curves["loss"].epoch).all()
    results.place([cut, finished])
    assert cut.curves["loss"].epoch.tolist() == [0.5] and finished.curves["loss"].epoch[-1] == 2.5
    shown = [c.run.metrics for c in results.read(folder).cells if c.run and c.run.metrics]
    assert shown and all(run.epoch_size == 288_000 for run in shown)


def test_the_front_of_points_by_hand() -> None:
    points = [(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (1.0, 1.0)]
    assert pareto_front(points, True) == [0, 5, 1, 4]
    assert pareto_front(points, False) == [0, 5]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12), st.booleans())
def test_the_front_contains_exactly_the_undominated_points(points: list[tuple[int, int]], higher: bool) -> None:
    result = pareto_front([(float(c), float(s)) for c, s in points], higher)
    sign = 1 if higher else -1
    for i, (cost, score) in enumerate(points):
        beaten = any(c <= cost and sign * s >= sign * score and (c < cost or s != score) for c, s in points)
        assert (i in result) != beaten
    scores = [sign * points[i][1] for i in result]
    assert scores == sorted(scores)


def test_the_page_names_the_front(tmp_path: Path) -> None:
    finished = comparison(tmp_path / "three", ["sgns", "uniform", "nce", "ace-no-entropy"], 2, 1, 1)
    first = cost_figure(finished)
    assert first.caption == "On the Pareto front: uniform, sgns, nce."
    assert first.data is not None and [row[3] for row in first.data.rows] == ["yes", "yes", "yes", "no"]
    changed(finished, **{f"cells__{i}__cpu_seconds": 1.0 for i in (4, 5)})  # nce, which scores best
    assert cost_figure(finished).caption == "On the Pareto front: nce."
    lower = {f"differences__{i}__higher_better": False for i in range(3)}
    assert cost_figure(changed(finished, **lower)).caption == "On the Pareto front: nce, uniform."


def cost_figure(folder: Path) -> Figure:
    result = results.read(folder)
    result.summary[:] = [m for m in result.summary if m.metric == "test/log_likelihood"]
    return next(b for b in figures.costs(result, Decimals(result)) if isinstance(b, Figure))


# --- figures -------------------------------------------------------------------------------------------------------

def test_the_spread_between_seeds_determines_the_decimals(folder: Path) -> None:
    decimals = Decimals(results.read(folder))
    assert decimals.format("test/log_likelihood", -7.16249) == "−7.1625"  # the smallest sd is 0.0087
    assert decimals.format("test/log_likelihood", -7.16249, 1) == "−7.16249"
    assert decimals.format("nothing/known", 1234.5) == "1,234" and decimals.format("test/log_likelihood", None) == "–"
    assert decimals.format("test/log_likelihood", 1e12) == "1.00e+12"


@pytest.mark.parametrize(("key", "shown", "head"), [
    ("test/log_likelihood", "test log-likelihood", "Test log-likelihood"),
    ("valid/mrr/scores", "validation mean reciprocal rank, bare scores",
     "Validation mean reciprocal rank, bare scores"),
    ("test/mr/1-N/tail", "test mean rank, 1-N, tail queries", "Test mean rank, 1-N, tail queries"),
    ("valid/amri/head", "validation adjusted mean rank index, head queries",
     "Validation adjusted mean rank index, head queries"),
    ("wordsim353/spearman", "wordsim353 Spearman's\u00a0ρ", "wordsim353 Spearman's\u00a0ρ"),
    ("training/cpu_seconds", "CPU seconds of training", "CPU seconds of training"), ("odd", "odd", "odd"),
])
def test_names_of_measures(key: str, shown: str, head: str) -> None:
    assert (metric_label(key), heading(key)) == (shown, head)


def test_small_figures() -> None:
    assert [p_value(p) for p in (None, 0.0004, 0.0406, 1.0)] == ["–", "< 0.001", "0.041", "1.000"]
    assert true_minus("ace-no-entropy by -0.3 [-1, -.5], p = 1e-05") == "ace-no-entropy by −0.3 [−1, −.5], p = 1e-05"


@pytest.mark.parametrize(("plan", "words"), [
    ({"strategies": ["a", "my file.yaml"], "seeds": [1, 2]}, ["--negatives", "a,my file.yaml", "--seeds", "2"]),
    ({"losses": [None, "nce"], "cpu_seconds": 2.5}, ["--losses", "own,nce", "--cpu-seconds", "2.5"]),
    ({"strategies": ["a"], "seeds": [3, 5]}, ["--config", "comparison.yaml"]),
    ({"strategies": ["a,b.yaml", "a"]}, ["--config", "comparison.yaml"]),
    ({"benchmarks": []}, []),
    ({"losses": [None], "sets": ["x=$(id)"]}, ["--set", "x=$(id)"]),
])
def test_the_command_that_reproduces_it(tmp_path: Path, plan: dict[str, Any], words: list[str]) -> None:
    finished = changed(comparison(tmp_path / "c", ["sgns", "nce"], 1, 1, 1), plan=plan)
    assert shlex.split(rerun.command(results.read(finished))) == ["embtrain", "compare", *words]


def test_make_look_reports_missing_files(tmp_path: Path) -> None:
    (tmp_path / ".ready").touch()
    os.utime(tmp_path / ".ready", (4e9, 4e9))
    done = subprocess.run(["make", "look", f"VENV={tmp_path}", "CHROMIUM=missing-browser"], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if not line.startswith("make")] == [
        "missing-browser is not there; Debian has it: apt install chromium"]


@pytest.mark.parametrize(("plan", "models"), [
    ({"strategies": ["sgns"], "models": ["skipgram"]}, ["skipgram"]),
    ({"strategies": [], "models": ["skipgram"], "runs": {"a": {"model": "order"}, "b": {"model": "order"}}}, ["order"]),
    ({"strategies": ["sgns"], "models": ["lm"], "runs": {"a": {"model": "xc"}}}, ["lm", "xc"]),
    ({"models": ["transe"]}, ["transe"]), ({"models": 3, "runs": [1]}, [])])
def test_the_models_of_a_comparison_are_those_of_its_runs(plan: dict[str, Any], models: list[str]) -> None:
    assert report._models(plan) == models


@pytest.mark.parametrize("a, b, verdict, message", [("noiseB", "ACE", A_BEATS_B, "noiseB beats ACE"),
                                                    ("noiseB", "ACE", B_BEATS_A, "ACE beats noiseB")])
def test_names_do_not_change_the_verdict(a: str, b: str, verdict: str, message: str) -> None:
    assert differences._verdict(replace(paired_t([1.0, 2], [1.0, 2], (a, b), "test/mrr"), verdict=verdict)) == message


def test_only_cosines_get_a_minus() -> None:
    near = WordNeighbours("bracket", [("sgns", [("-lrb-", 0.5), ("-rrb-", -0.4)], [])]).table().rows[0]
    assert near == ["sgns", "-lrb- 0.50, -rrb- \N{MINUS SIGN}0.40", "none"]


@looped("hostile", HOSTILE)
def test_an_axis_with_any_name_is_drawn(hostile: str) -> None:
    along = [(1.0, (0.1, 0.0, 0.2)), (100.0, (0.3, 0.3, 0.3))]
    drawing = charts.against("a", "about", along, [(1, (0.2, 0.1, 0.3))], 0, hostile)
    assert drawing.startswith("<svg") and "<script" not in drawing
