"""Word look-up: the exact spelling first, then other Unicode forms, lower case, and case folding."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from helpers.looped import looped
from hypothesis import given, strategies as st

from embtrain import experiment
from embtrain.data.text.spelling import Spellings, fold
from embtrain.data.vectors.vectors import Vectors, write
from embtrain.experiment.inspect import neighbours

NFC, NFD = (lambda text: unicodedata.normalize("NFC", text)), (lambda text: unicodedata.normalize("NFD", text))


@looped("words, word, result", [
    (["us", "US", "Us"], "US", "US"), (["us", "US", "Us"], "uS", "us"), (["Turkey", "turkey"], "turkey", "turkey"),
    (["Turkey", "turkey"], "TURKEY", "Turkey"),                                       # the first: the most frequent
    (["strasse", "straße"], "Straße", "straße"), (["strasse"], "Straße", "strasse"), (["Straße"], "STRASSE", "Straße"),
    (["οδοσ", "οδος"], "ΟΔΟΣ", "οδος"), (["οδοσ"], "Οδος", "οδοσ"),                    # σ and ς
    (["i\u0307stanbul", "istanbul"], "İstanbul", "i\u0307stanbul"), (["istanbul"], "İSTANBUL", "istanbul"),
    (["İstanbul"], "istanbul", "İstanbul"), (["ısı", "isi"], "isi", "isi"), (["ısı"], "isi", None),
    (["Café", NFD("café")], "café", NFD("café")), ([NFD("é"), "é"], "é", "é"), ([NFD("Été")], "ÉTÉ", NFD("Été")),
    (["ﬁn"], "FIN", "ﬁn"), (["a", "b"], "c", None), ([], "a", None), (["ὀδυσσεύς"], "ὈΔΥΣΣΕΎΣ", "ὀδυσσεύς"),
])
def test_word_is_found_in_its_nearest_spelling(words: list[str], word: str, result: str | None) -> None:
    at = Spellings(words).find(word)
    assert (words[at] if at >= 0 else None) == result


@given(st.lists(st.text("aAéÉßsSİiIς", min_size=1, max_size=4), unique=True), st.text("aAéÉßsSİiIς", max_size=4))
def test_every_word_is_itself_and_a_folded_one_the_first_of_its_class(words: list[str], word: str) -> None:
    spellings = Spellings(words)
    assert [spellings.find(w) for w in words] == list(range(len(words)))
    same = [i for i, w in enumerate(words) if fold(w) == fold(word)]
    assert (spellings.find(word) in same) if same else spellings.find(word) == -1
    assert all(spellings.same(i) == same for i in same)
    assert fold(NFC(word)) == fold(NFD(word)) == fold(fold(word)) == fold(word.upper())


def test_found_spellings_are_listed_except_lower_case() -> None:
    cased, lower = Spellings(["US", "Rome", "a"]), Spellings(["us", "strasse", "a"])
    assert cased.spelled(["us", "US", "ROME", "x"]) == {"us": "US", "ROME": "Rome"}
    assert cased.note(["us", "US", "x"]) == "; 1 word found in another spelling (us as US)"
    assert lower.note(["US", "A"]) == "" and lower.note(["Straße"]).endswith("(Straße as strasse)")
    many = Spellings([*"ABCDE"]).note("abcde")
    assert many == "; 5 words found in another spelling (a as A, b as B, c as C, ...)"


CASE = """8 2\nus 1 0\nwe 0.99 0.1\nour 0.98 0.15\nUS 0 1\nUSA 0.1 0.99\nAmerica 0.15 0.98\nTurkey 0.2 0.97
turkey 0.97 0.2\n"""


def test_command_prints_results_under_the_query_spelling(tmp_path: Path) -> None:
    (tmp_path / "case.txt").write_text(CASE)
    result = neighbours.neighbours(tmp_path / "case.txt", ["US", "turkey", "TURKEY", "x"], 2)
    assert neighbours.format_text(result).splitlines() == [
        "US: USA 0.995, America 0.988", "turkey: our 0.999, we 0.995",
        "TURKEY (found as Turkey): America 0.999, USA 0.995",
        "x: not in the vocabulary"]
    assert [tree["found_as"] for tree in neighbours.as_tree(result)] == ["US", "turkey", "Turkey", None]
    write(tmp_path / "nfd", Vectors([NFD("é"), "b", "c"], [[1, 0], [1, 1], [0, 1]]), "safetensors")
    printed = neighbours.format_text(neighbours.neighbours(tmp_path / "nfd", ["é"], 1))
    assert printed.startswith("é (found in another Unicode form): b")


@pytest.mark.parametrize("lower", [True, False])
def test_run_that_keeps_case_distinguishes_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lower: bool
                                                 ) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("US USA Canada Mexico\nus we our them\nthe The them\n" * 60)
    run = experiment.fit(experiment.resolve("sgns", "skipgram", str(tmp_path / "text"), threads=1, sets=[
        f"text.lower={lower}".lower(), "text.min_count=1", "text.valid=0", "text.test=0", "text.sample=0",
        "train.epochs=3", "model.dim=4", "evaluate.benchmarks=[]", "evaluate.neighbours=[US, us, MEXICO]",
        "evaluate.heldout_pairs=0"]), tmp_path / "run")
    tree = json.loads((tmp_path / "run/neighbours.json").read_text())
    result = experiment.neighbours(tmp_path / "run", ["US", "us", "MEXICO"], 3)
    assert [near.found_as for near in result.values()] == (["us", "us", "mexico"] if lower else ["US", "us", "Mexico"])
    assert (result["US"] == result["us"]) == lower and (tree["near"]["US"] == tree["near"]["us"]) == lower
    assert tree["found_as"] == ({"US": "us", "MEXICO": "mexico"} if lower else {"MEXICO": "Mexico"})
    assert ("US" in run.vectors) != lower and "us" in run.vectors
