"""The examples of answers in a run's report: what is shown in each format, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.pages import HOSTILE, checked
from helpers.run_folders import run_folder

from embtrain import report
from embtrain.common.errors import DataError

pytestmark = pytest.mark.usefixtures("empty_charts_of_module")

QUERY = {"query": "warsaw capital_of ?", "n_positives": 7,
         "answers": [["poland", 0.164, True], ["czechia", -1.94, False], ["spain", None, False]],
         "positives": [["poland", 1.0], ["tie", 2.5]]}
ANSWERS = {"part": "test", "scores": "score", "queries": [QUERY]}


def test_correct_answers_are_marked_and_have_their_rank(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", answers=ANSWERS, identity={"task": "triples"})
    page = checked(report.write(folder).read_text(encoding="utf-8"))
    for shown in ("Examples of answers", "warsaw capital_of ?", "✓ poland\u00a00.164; czechia\u00a0−1.940; spain",
                  "poland: 1; tie: 2.5; 5 more", "Queries of the test data", "known from other data are left out"):
        assert shown.replace("\u00a0", " ") in page.words.replace("\u00a0", " "), shown
    markdown = (folder / "report.md").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "✓ poland 0.164; czechia −1.940; spain" in markdown
    assert r"\ensuremath{\surd} poland~0.164; czechia~" in (folder / "report.tex").read_text(encoding="utf-8")


def test_probabilities_have_two_digits_and_the_note_names_them(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", answers={**ANSWERS, "part": "valid", "scores": "probability"})
    page = checked(report.write(folder).read_text(encoding="utf-8"))
    assert "✓ poland 0.16" in page.words.replace("\u00a0", " ") and "and their probabilities" in page.words
    assert "Queries of the validation data" in page.words and "Answers known from other data" not in page.words


SENTENCES = {"part": "test", "scores": "none", "queries": [
    {"query": "ein Hund; zwei", "answers": [["a dog; two", None, True]], "positives": [["a dog; two", None]],
     "n_positives": 1},
    {"query": "drei", "answers": [["", None, False]], "positives": [["three", None]], "n_positives": 1}]}


def test_sentences_have_an_answer_and_a_reference_without_rank(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", answers=SENTENCES, identity={"task": "translation"})
    page = checked(report.write(folder).read_text(encoding="utf-8"))
    for shown in ("Examples of answers", "sentence", "answer", "reference", "ein Hund; zwei", "✓ a dog; two", "three",
                  "Sentences of the test data, evenly spaced", "✓ marks one that equals the reference"):
        assert shown in page.words, shown
    assert "and its rank" not in page.words and "a dog; two:" not in page.words
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert "| ein Hund; zwei | ✓ a dog; two | a dog; two |" in markdown


def test_names_are_escaped(tmp_path: Path) -> None:
    queries = [{**QUERY, "query": name, "answers": [[name, 1.0, True]], "positives": [[name, 1.0]]} for name in HOSTILE]
    for scores in ("score", "none"):
        folder = run_folder(tmp_path / scores, answers={**ANSWERS, "scores": scores, "queries": queries})
        checked(report.write(folder).read_text("utf-8"))


def test_a_run_without_examples_has_no_section(tmp_path: Path) -> None:
    for name, answers in (("without", None), ("none", {**ANSWERS, "queries": []})):
        page = report.write(run_folder(tmp_path / name, answers=answers)).read_text(encoding="utf-8")
        assert 'id="answers"' not in page and "answers.json" not in page


@pytest.mark.parametrize(("change", "reason"), [
    ([], "a mapping is expected"), ({"part": 3}, "part: expected a text, not a number"),
    ({"queries": {}}, "queries: expected a list"), ({"queries": [{**QUERY, "answers": [["a", 1.0]]}]},
                                                   "queries: 1: answers: expected 3 values, not 2"),
    ({"queries": [QUERY, {**QUERY, "positives": [["a", "b"]]}]}, "queries: 2"),
    ({"queries": [{**QUERY, "query": None}]}, "queries: 1: expected a text")])
def test_a_damaged_file_is_an_error_with_its_place(tmp_path: Path, change: Any, reason: str) -> None:
    value = {**ANSWERS, **change} if isinstance(change, dict) else change
    folder = run_folder(tmp_path / "run", answers=json.dumps(value))
    with pytest.raises(DataError, match=reason) as caught:
        report.write(folder)
    assert "answers.json" in str(caught.value)
