"""The page is valid, self-contained and deterministic; text from files is never markup."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from helpers.looped import looped
from helpers.pages import HOSTILE, Page, checked
from helpers.run_folders import SCORES, lines_of, run_folder
from hypothesis import given, settings, strategies as st

from embtrain import report
from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.report import format
from embtrain.report.charts import curves, svg as charts
from embtrain.report.format import cells, duration, format_text, interval, number, plain, wrap
from embtrain.report.load.run import Curve, read
from embtrain.report.run import summary
from embtrain.report.run.definitions import definitions
from embtrain.report.run.page import document

LINE = {"step": 1, "loss": 1.0}


def page_of(folder: Path) -> Page:
    return checked(report.write(folder).read_text(encoding="utf-8"))


# --- the page ------------------------------------------------------------------------------------------------------

def test_the_page_contains_all_files_of_the_run(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run"))
    for said in ("skipgram trained with ace negatives (k = 7, nce loss) on novels", "3 epochs", "60 steps",
                 "6,000 examples in 1 min 30 s (2 min 30 s of CPU)", "−8.412 [−8.441, −8.382]", "90 % interval",
                 "242 of 353 pairs", "before the hinge", "noise samples", "adversarial", "CPU seconds", "Training loss",
                 "Held-out log-likelihood", "Entropy of the generator", "Share of false negatives",
                 "Hardness: mean rank", "king 0.81", "treaty −0.31", "frequency rank 3,512", "−1.25",
                 "negatives: {source: ace, k: 7}", "ab" * 32, "embtrain fit --out 'my run'"):
        assert said in page.words.replace("\u00a0", " "), said
    assert "/opt/x" not in page.words


def test_each_row_and_word_of_the_notes_has_a_definition(tmp_path: Path) -> None:
    note = "20,000 pairs, 659 queries, 3,056 candidates, 44 clusters"
    rows = [Score("test", name, -8.0, -9.0, -7.0, 20000, note) for name in ("log_likelihood", "hits@1", "mrr")]
    rows += [Score("test", f"{name}/{end}", 0.5, n=9, note="ties") for name in ("hits@1", "mrr/1-N")
             for end in ("scores", "optimistic", "pessimistic", "tail", "head")]
    rows += [Score("neighbours 45-50", name, 3.0, n=5) for name in ("mean frequency rank", "mean PMI")]
    rows += [Score("training", "seconds", 3.0, n=5, note="6 CPU-s, 8 blocks"), Score("training", "step to x/y>3", 3.0)]
    found = definitions(rows)
    assert list(found) == [
        "log-likelihood", "hits@k", "mean reciprocal rank", "mean frequency rank", "mean PMI", "seconds", "bare scores",
        "ties for the model", "ties against the model", "tail queries", "head queries", "1-1, 1-N, N-1, N-N", "cluster",
        "query", "candidate", "block", "n"]
    page = page_of(run_folder(tmp_path / "run", scores=[row._asdict() for row in rows]))
    assert all(about in page.words for about in found.values())
    assert definitions([Score("a", "b", 1.0)]) == {} and "query" not in definitions(rows[-2:])


@looped("end, name", format.ROW_ORIGINS.items())
def test_a_curve_has_the_name_of_its_row(end: str, name: str) -> None:
    assert curves.title(f"valid/hits@1/{end}") == f"Validation hits@1, {name}"
    assert curves.metric(f"hits@1/{end}") == f"hits@1, {name}" == format.origin_named(f"hits@1/{end}")
    assert format.origin_named(end) == end


def test_each_main_curve_is_drawn_against_steps_and_cpu_seconds(tmp_path: Path) -> None:
    text = report.write(run_folder(tmp_path / "run", scores=None)).read_text(encoding="utf-8")
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    cpu = [i for i, svg in enumerate(drawn) if ">CPU seconds<" in svg]
    assert len(cpu) == 3  # loss, two held-out measures

    def largest(svg: str) -> float:
        return max(float(tick) for tick in re.findall(r">([\d.]+)</text>", svg))

    # 60 steps took 150 CPU seconds
    assert all(largest(drawn[i]) >= 120 for i in cpu) and all(largest(svg) <= 60 for svg in drawn[:3])
    shown, _, folded = text.partition("<h2>Further curves</h2>")
    assert shown.count("Training loss against") == 1 and "against CPU seconds" not in shown
    assert folded.count("Training loss against CPU seconds") == 1


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first = report.write(run_folder(tmp_path / "a" / "run")).read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.fonttype": "path", "lines.linewidth": 9}):
        second = report.write(run_folder(tmp_path / "b" / "run")).read_bytes()
    assert first == second


def test_matplotlib_settings_are_unchanged(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    report.write(run_folder(tmp_path / "run", metrics=json.dumps(LINE) + "\n"))
    assert dict(matplotlib.rcParams) == before


def test_a_score_too_large_to_draw_is_a_gap_and_not_an_error(tmp_path: Path) -> None:
    """A run writes e^390, the perplexity of a diverged model."""
    row = {"benchmark": "test", "metric": "perplexity", "value": 3e169, "low": 1e168, "high": 12.0, "n": 3, "note": ""}
    folder = run_folder(tmp_path / "run", scores=json.dumps([row, row | {"metric": "x", "value": 10 ** 400}]))
    result = read(folder).scores
    assert result is not None and [(r.value, r.low, r.high) for r in result] == [(None, None, 12.0)] * 2
    (folder / "scores.json").write_text(json.dumps([row]).replace("3e+169", "1e999"))
    with pytest.raises(DataError, match="value must be a finite number or null"):
        read(folder)


@pytest.mark.parametrize(("part", "file"), [("config", "config.yaml"), ("identity", "identity.json"),
                                            ("metrics", "metrics.jsonl"), ("scores", "scores.json"),
                                            ("neighbours", "neighbours.json")])
def test_a_missing_file_is_named_and_the_rest_is_shown(tmp_path: Path, part: str, file: str) -> None:
    page = page_of(run_folder(tmp_path / "run", **({"metrics": json.dumps(LINE) + "\n"} | {part: None})))
    assert f"has no {file}" in page.words
    assert ("Training loss" in page.words) == (part != "metrics")
    assert ("242 of 353 pairs" in page.words) == (part != "scores")


def test_each_file_alone_makes_a_page(tmp_path: Path) -> None:
    parts = ["config", "identity", "metrics", "scores", "neighbours"]
    for part in parts:
        page = page_of(run_folder(tmp_path / part, **{other: None for other in parts if other != part}))
        missing = {other for other in parts if re.search(rf"has no {other}\.", page.words)}
        assert missing == set(parts) - {part}


def test_a_folder_that_is_not_a_run_is_refused_and_unchanged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        report.write(tmp_path)
    with pytest.raises(DataError, match="file or folder not found"):
        report.write(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("part", "content", "message"), [
    ("config", "a: [1", r"config\.yaml:1:6: expected ',' or ']'"), ("config", "- 1", r"yaml:1: should be keys and"),
    ("config", "", r"config\.yaml: is empty; restore the run's own"),
    ("config", "5", r"yaml:1: should be keys and values.* got 5"),
    ("identity", "null", "a mapping is expected, not nothing"),
    ("scores", '"a"', "expected a list of rows, not text"),
    ("scores", "[true]", "row 1: a mapping is expected, not true or false"), ("neighbours", "[]", "not a list"),
    ("config", "a: !!timestamp 2020-99-99", r"config\.yaml:1:4: the tag .* is not supported"),
    ("config", "[" * 5000, r"config\.yaml:1:41: nested more than 40 deep"),
    ("config", "a: [" + "1, " * 66_000 + "1]", r"config\.yaml:1:\d+: more than 2,000 values"),
    ("config", "a: 1\n" * 1_000_000, r"config\.yaml: is longer than 200,000 bytes"),
    ("config", "a: !!python/object/apply:os.getcwd []", r"config\.yaml:1:4: the tag .* is not supported"),
    ("identity", "[]", r"identity\.json: a mapping"), ("identity", "{", r"identity\.json:1: not JSON"),
    ("identity", '{"a":' * 100_000, r"identity\.json: "),
    ("scores", "{}", r"scores\.json: expected a list"), ("scores", "[1]", r"scores\.json: row 1"),
    ("scores", '[{"benchmark":"a","metric":"b"}]', r"row 1: key 'value' is missing"),
    ("scores", '[{"benchmark":"a","metric":"b","value":NaN}]', r"scores\.json: NaN"),
    ("scores", '[{"benchmark":"a","metric":"b","value":1e999}]', r"row 1: value must be a finite"),
    ("scores", '[{"benchmark":"a","metric":"b","value":"1"}]', r"row 1: value must be a finite"),
    ("scores", '[{"benchmark":"a","metric":"b","value":1,"n":true}]', r"row 1: n must be a count"),
    ("scores", '[{"benchmark":"a","metric":"b","value":1,"vaule":2}]', r"unknown key 'vaule'"),
    ("neighbours", '{"near":{"w":[["a"]]}}', r"neighbours\.json: near: 'w'"),
    ("neighbours", '{"far":[]}', r"neighbours\.json: far"), ("neighbours", '{"far_pmi":"x"}', r"far_pmi must be"),
    ("metrics", '{"step":1}\nnonsense\n', r"metrics\.jsonl:2: "),
    ("metrics", '{"loss":1}\n', r"metrics\.jsonl:1: .*'step'"),
    ("metrics", '{"step":1}\n{"step":"2"}\n', r"metrics\.jsonl:2: .*'step'"),
])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, part: str, content: str, message: str) -> None:
    folder = run_folder(tmp_path / "run", **{part: content})
    with pytest.raises(DataError, match=message) as caught:
        report.write(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert not (folder / "report.html").exists()


def test_invalid_utf8_and_paths_that_are_not_files(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "scores.json").write_bytes(b'["\xff"]')
    with pytest.raises(DataError, match=r"scores\.json: not UTF-8 at byte 2"):
        report.write(folder)
    (folder / "scores.json").unlink()
    (folder / "scores.json").mkdir()
    with pytest.raises(DataError, match="not a plain file"):
        report.write(folder)


# --- Markdown and LaTeX ---------------------------------------------------------------------------------------------

def test_a_run_has_the_same_sections_in_every_format(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    assert report.write(folder) == folder / "report.html"
    html, md, tex = ((folder / f"report.{name}").read_text(encoding="utf-8") for name in ("html", "md", "tex"))
    names = [section.name for section in document(read(folder)).sections]
    assert names == ["Scores", "Curves", "How to reproduce", "Settings", "Near and far neighbours", "Negative sampler",
                     "Further curves", "Identity"]
    assert re.findall(r"<h2>(.*?)</h2>", html) == re.findall(r"^## (.*)$", md, re.MULTILINE) == names
    assert re.findall(r"\\subsection\*\{(.*)\}$", tex, re.MULTILINE) == names
    assert "<svg" not in md and md.startswith("# skipgram · ace\n") and tex.endswith("\\end{document}\n")


def test_markdown_and_latex_have_the_figures_of_the_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    report.write(folder)
    md = (folder / "report.md").read_text(encoding="utf-8").replace("\u00a0", " ")
    for line in ("| measure | value | 90 % interval | n |", "| **wordsim353** |  |  |  |",
                 "| log-likelihood | −8.412 | \\[−8.441, −8.382\\] | 20,000 |", "| *242 of 353 pairs* |  |  |  |",
                 "| step | CPU seconds | Training loss |", "| 1 | 2.500 | 3.000 |", "| 60 | 150.0 | 0.0500 |",
                 "| step | CPU seconds | noise samples | adversarial samples |", "### queen",
                 "| king 0.81, crown 0.70 | treaty −0.31 |", "embtrain fit --out 'my run'",
                 "negatives: {source: ace, k: 7}"):
        assert line in md, line
    assert f"sha256 | {'ab' * 32} |" in md
    tex = (folder / "report.tex").read_text(encoding="utf-8")
    for said in (r"log-{}likelihood & \ensuremath{-}8.412 & {[}\ensuremath{-}8.441,{} \ensuremath{-}8.382{]} & 20,",
                 r"{\textit{242 of 353 pairs}} \\", r"\textbf{queen}"):
        assert said in tex, said
    tables = len(re.findall(r"^\|(?: -+:? \|)+$", md, re.MULTILINE))
    assert {tex.count(mark) for mark in (r"\begin{longtable}", r"\toprule", r"\bottomrule")} == {tables}


def test_a_warning_is_before_the_sections_in_every_format(tmp_path: Path) -> None:
    warning = Score("training", "warning", None, note="the loss grew <b>")
    folder = run_folder(tmp_path / "run", scores=[row._asdict() for row in [*SCORES, warning]])
    report.write(folder)
    for name, said, section in (("html", 'role="alert"><b>Warning:</b> the loss grew &lt;b&gt;</p>', "<nav"),
                                ("md", "**Warning:** the loss grew \\<b\\>", "## Scores"),
                                ("tex", r"\textbf{Warning:} the loss grew \textless{}b\textgreater{}", "subsection")):
        text = (folder / f"report.{name}").read_text(encoding="utf-8")
        assert said in text and text.index(said) < text.index(section), name


def test_a_missing_file_is_named_in_markdown(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", scores=None, identity=None)
    report.write(folder)
    md = (folder / "report.md").read_text(encoding="utf-8")
    assert "No scores: the run folder has no scores.json." in md.replace("\\", "")
    assert "has no identity.json" in md


# --- text is never markup ----------------------------------------------------------------------------------

def hostile_run(folder: Path, words: list[str]) -> Path:
    """Make every text of every file a hostile word."""
    steps = [{"step": i, **dict.fromkeys(words, i), f"source/{words[1]}/noise": i, f"heldout/{words[0]}/mrr": i}
             for i in (1, 2)]
    neighbours = {w: [[other, 0.5] for other in words] for w in words}
    pairs = [w.encode("utf-8", "replace").decode() for w in words]  # config.yaml may not contain a lone surrogate
    return run_folder(
        folder, metrics="".join(json.dumps(s) + "\n" for s in steps),
        neighbours={"near": neighbours, "far": neighbours},
        scores=[Score(w, words[i % 2], 0.5, 0.4, 0.6, 9, w)._asdict() for i, w in enumerate(words)],
        identity={"argv": ["embtrain", *words], **{w: {w: w} for w in words}},
        config=json.dumps({"model": pairs[0], "corpus": pairs[1], "negatives": {"source": pairs[2], "k": pairs[3]},
                           "loss": pairs[4], **{f"{i}": w for i, w in enumerate(pairs)}}, ensure_ascii=True))


def test_hostile_words_are_shown_verbatim(tmp_path: Path) -> None:
    page = page_of(hostile_run(tmp_path / "run", HOSTILE))
    for said in HOSTILE[:6]:
        assert said in page.words
    whole = "".join(page.said)
    assert "\x1b" not in whole and "\x00" not in whole and "\\x1b[31mred\\x00" in whole and "\\u202eright" in whole
    assert "pre" in page.tags and page.tags["img"] == 0


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(hostile_run(tmp_path_factory.mktemp("known") / "run", list("abcde")))


@settings(max_examples=5, deadline=None)
@given(words=st.lists(st.text(st.characters(codec=None), min_size=1, max_size=12), min_size=5, max_size=5, unique=True))
def test_any_words_are_shown_verbatim(tmp_path_factory: pytest.TempPathFactory, known: Page, words: list[str]) -> None:
    page = page_of(hostile_run(tmp_path_factory.mktemp("any") / "run", [f"<{w}" for w in words]))
    assert page.tags == known.tags and page.names == known.names  # no word became a tag or an attribute


def test_a_hostile_folder_name(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "<script>&'\"", config=None, metrics=None))
    assert "<script>&'\"" in page.words


# --- curves --------------------------------------------------------------------------------------------------------

def test_an_incomplete_last_line_is_dropped_and_repeated_steps_count_once(tmp_path: Path) -> None:
    text = "".join(json.dumps({"step": s, "cpu_seconds": s, "loss": v}) + "\n"
                   for s, v in ((1, 5.0), (2, 4.0), (3, 3.0), (2, 7.0), (3, None)))
    run = read(run_folder(tmp_path / "run", metrics=text + '{"step": 4, "lo'))
    assert run.metrics is not None
    curve = run.metrics.curves["loss"]
    assert list(curve.step) == [1, 2, 3] and list(curve.value[:2]) == [5.0, 7.0] and math.isnan(curve.value[2])


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "null", "9" * 400, "true", '"text"', "[1]"])
def test_values_that_cannot_be_drawn_still_give_a_page(tmp_path: Path, value: str) -> None:
    text = "".join(f'{{"step": {s}, "cpu_seconds": {value}, "loss": {value}, "source/x": {value}}}\n' for s in (1, 2))
    page = page_of(run_folder(tmp_path / "run", metrics=text, scores=[SCORES[0]._asdict()]))
    assert page.tags["svg"] == 1 and "2 steps" in page.words  # only of the scores


def test_extremes_and_long_runs_are_drawn(tmp_path: Path) -> None:
    text = "".join(f'{{"step": {s * 10**9}, "loss": {v}}}\n' for s, v in enumerate([1e30, -1e30, 0, 1e-300, 5e-324]))
    page_of(run_folder(tmp_path / "run", metrics=text))
    curve = Curve()
    for step in range(10_000):
        curve.add(step, step, float(step % 2))
    drawn = charts.line("loss", curve, "step")
    assert drawn is not None and len(drawn.x) <= charts.MAX_POINTS
    assert (drawn.y.min(), drawn.low.min(), drawn.high.max()) == (0.5, 0.0, 1.0)
    assert abs(drawn.x.mean() - 4999.5) < drawn.parts


def test_components_share_a_panel_and_every_key_is_drawn() -> None:
    result = curves.grouped({key: Curve() for key in (
        "loss", "loss/generator", "loss/noise", "heldout/mrr", "heldout/log_likelihood", "heldout/hits10", "lr",
        "masked", "source/entropy", "hardness/noise/rank", "hardness/generator/rank", "source/new_thing",
        "x/noise_share")})
    assert result.loss is not None and result.components is not None
    assert [label for label, _ in result.components.curves] == ["noise samples", "adversarial samples"]
    assert [g.title for g in result.heldout] == ["Held-out log-likelihood", "Held-out mean reciprocal rank"]
    assert [(g.title, len(g.curves)) for g in result.source] == [
        ("Entropy of the generator, nats", 1), ("Hardness: mean rank", 2), ("Share of negatives masked", 1),
        ("New thing", 1)]
    assert [g.key for g in result.other] == ["heldout/hits10", "lr", "x/share"]


def test_an_interrupted_run_has_a_note(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"step": x["step"], "epoch": x["epoch"]}) + "\n" for x in lines_of(30))
    page = page_of(run_folder(tmp_path / "run", metrics=lines, scores=None))
    assert "1 whole epoch of 3, 30 steps" in page.words


def test_a_run_of_one_step_is_counted_in_the_singular(tmp_path: Path) -> None:
    config = "model: {name: skipgram}\ntrain: {epochs: 1}\n"
    line = json.dumps({"step": 1, "epoch": 1, "examples": 1}) + "\n"
    page = page_of(run_folder(tmp_path / "run", metrics=line, config=config, scores=None))
    assert ": 1 epoch, 1 step, 1 example." in page.words


@pytest.mark.parametrize(("argv", "command"), [
    (["/a/b/embtrain", "fit", "--set", "a=b c"], "embtrain fit --set 'a=b c'"),
    (["/a/embtrain/__main__.py", "fit"], "embtrain fit"), (["fit", "--seed", "3"], "embtrain fit --seed 3"),
    (["my script.py", "x"], "'my script.py' x"), ([], "has no argv"),
    (["/a/embtrain/__main__.py", "resume", "cells/x"], "cp config.yaml again && embtrain resume again In the folder"),
    ("embtrain fit", "has no argv"), ([1], "has no argv"),
])
def test_the_command_that_repeats_the_run(tmp_path: Path, argv: Any, command: str) -> None:
    assert command in page_of(run_folder(tmp_path / "run", identity={"argv": argv}, metrics=None, scores=None)).words


# --- the terminal --------------------------------------------------------------------------------------------------

def test_the_table_shows_every_figure() -> None:
    lines = report.table(SCORES).splitlines()
    assert re.fullmatch(r"benchmark +metric +value +95 % interval +n( +note)?", lines[0])
    assert set(lines[1]) == {"-"}
    assert lines[2].split()[:6] == ["wordsim353", "spearman", "0.523", "[0.421,", "0.611]", "242"]
    assert "242 of 353 pairs" in " ".join(" ".join(lines).split())
    assert re.search(r"rare-word +spearman +- +3$", "\n".join(lines), re.MULTILINE)
    assert report.table([]) == "no scores"
    assert "90 % interval" in report.table(SCORES, 0.9)


NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs", "Cc")), max_size=60)
VALUES = st.one_of(st.none(), st.floats(-1e30, 1e30))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds(Score, NAMES, NAMES, VALUES, VALUES, VALUES, st.integers(0, 2**40), NAMES),
                min_size=1, max_size=4))
def test_the_table_fits_80_columns_without_losing_a_letter(rows: list[Score]) -> None:
    text = report.table(rows)
    assert max(map(cells, text.split("\n"))) <= 80
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    have = Counter(text)
    # Consecutive rows with equal notes print the note once, so count it once per group.
    notes = [r.note for i, r in enumerate(rows) if (r.benchmark, r.note) != (rows[i + 1:i + 2] or [r])[0][::6]
             or i + 1 == len(rows)]
    for letter, n in Counter("".join(map(plain, [*notes, *(r.benchmark + r.metric for r in rows)]))).items():
        assert letter.isspace() or have[letter] >= n


def test_a_long_note_is_printed_below_its_row() -> None:
    rows = [Score("wordsim353", "spearman", 0.5, 0.4, 0.6, 242, "one word after the other " * 6)]
    lines = report.table(rows).splitlines()
    assert len(lines) > 3 and all(line.startswith("    ") for line in lines[3:])


@looped("value, like, shown", [
    (0.5231, None, "0.523"), (0.04567, None, "0.0457"), (-8.41234, None, "-8.412"), (43.219, None, "43.22"),
    (12345.6, None, "12,346"), (0.0, None, "0.000"), (1e-6, None, "1.00e-06"), (3e12, None, "3.00e+12"),
    (-0.0, None, "0.000"), (-0.0004, 1.0, "0.000"), (0.09, 0.52, "0.090"), (0.1, 0.05, "0.1000"),
    (None, None, "-"), (math.nan, None, "-"),
])
def test_numbers(value: float | None, like: float | None, shown: str) -> None:
    assert number(value, like) == shown


def test_intervals_durations_and_wrapping() -> None:
    assert interval(Score("a", "b", 0.5, 0.04, 0.6)) == "[0.040, 0.600]"
    assert interval(Score("a", "b", 0.5)) == ""
    assert [duration(s) for s in (5.25, 59.96, 61, 3725)] == ["5.2 s", "1 min 0 s", "1 min 1 s", "1 h 2 min"]
    assert wrap("日本語日本語", 4) == ["日本", "語日", "本語"]


def test_leading_rows_are_first_and_the_others_are_counted(tmp_path: Path) -> None:
    rows = [
        Score("valid", "mr", 2.0, 1.0, 3.0, 9, "all"),
        Score("valid", "mr/tail", 1.5, n=5, note="tails"),
        Score("valid", "hits@10/optimistic", 0.125, n=9),
        Score("test", "mr", 4.0, 1.0, 5.0, 9, "some"),
        Score("test", "amri", None),
        Score("training", "seconds to valid/mr<3", 7.0),
        Score("x", "a/tail", 0.25, n=1),
    ]
    lines = format_text(rows, tmp_path / "report.html").splitlines()
    assert [line.split()[:2] for line in lines[2:] if not line.startswith(" ")][:3] == [
        ["valid", "mr"], ["test", "mr"], ["training", "seconds"]]
    end = " ".join(" ".join(lines).partition("4 further rows: ")[2].split())
    assert end.startswith("tail queries, ties for the model, without a value; /")
    assert format_text(rows[:1], tmp_path) == report.table(rows[:1])
    folder = run_folder(tmp_path / "run", scores=[row._asdict() for row in rows])
    text = report.write(folder).read_text(encoding="utf-8")
    led, _, folded = text.partition("<details><summary>4 further rows")
    assert led.index("<span>test<") < led.index("<span>valid<") < led.index("<span>training<")
    assert "<th scope=\"row\">mean rank</th>" in led and "mean rank, tail queries" not in led
    assert "mean rank, tail queries" in folded and "hits@10, ties for the model" in folded
    assert "1 is best" in checked(text).words and text.count(">all</td>") == 1


def test_durations_are_not_scores_of_the_verdict() -> None:
    rows = [Score("valid", "mrr", 0.5, 0.4, 0.6), Score("valid", "bleu", 20.0), Score("test", "mrr", 0.25, 0.2, 0.3),
            Score("test", "bleu", 21.0), Score("training", "seconds", 9.0), Score("wordsim353", "spearman", 0.7)]
    said = summary._main_scores(rows).replace("\N{NO-BREAK SPACE}", " ")
    assert said == ("Result on wordsim353: Spearman's ρ 0.700; on the test part: BLEU 21.00, mean reciprocal rank "
                    "0.250 [0.200, 0.300].")


# --- settings --------------------------------------------------------------------------------------------------------

def test_only_settings_that_differ_from_the_defaults_are_shown(tmp_path: Path) -> None:
    config = ("strategy: nce\nmodel: {name: skipgram, dim: 30, tau: 1.0}\nnegatives: {source: unigram, k: 5, "
              "exponent: 0.75, filter: none, share_size: 8}\nloss: {name: nce, unknown: 3}\ntrain: {epochs: 10}\n")
    page = page_of(run_folder(tmp_path / "run", config=config, metrics=None, scores=None, neighbours=None))
    shown, _, every = page.words.partition("All keys, as in config.yaml")
    table = shown.partition("Keys that differ from the defaults, model skipgram and strategy nce.")[2]
    assert table.split() == ("key this run default model.dim 30 100 negatives.share_size 8 64 loss.unknown 3 –").split()
    assert "exponent: 0.75" in every and "exponent" not in shown


def test_a_source_of_another_package_has_unknown_defaults(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run", config="negatives: {source: theirs, power: 2}\n", metrics=None))
    assert "negatives.source theirs unigram negatives.power 2 –" in page.words


def test_a_run_with_default_settings(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "run", config="train: {epochs: 10}\n", metrics=None))
    assert "All keys have the values of the defaults." in page.words


def test_scores_of_the_test_part_are_shown_and_the_others_folded(tmp_path: Path) -> None:
    rows = [Score("valid", "mrr", 0.5), Score("test", "mrr", 0.25), Score("training", "seconds", 9.0),
            Score("neighbours 45-50", "mean PMI", 1.5)]
    text = report.write(run_folder(tmp_path / "run", scores=[r._asdict() for r in rows], metrics=None)).read_text()
    shown, _, folded = text.partition("<summary>Also measured: valid, neighbours 45-50, training</summary>")
    assert "<span>test<" in shown and "<span>valid<" not in shown and "<span>valid<" in folded
    only = report.write(run_folder(tmp_path / "run", scores=[rows[0]._asdict()], metrics=None)).read_text()
    assert "<span>valid<" in only and "Also measured" not in only
