"""`embtrain align`: skipped words are counted, inputs are kept, and errors name options that the command has."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embtrain
from embtrain import cli
from embtrain.common.errors import DataError, UsageError
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words.alignment import align

N, D = 20, 3
TABLE = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
WORDS = [f"w{i}" for i in range(N)]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    vector_files.write("a.txt", Vectors(WORDS, TABLE), "word2vec")
    vector_files.write("b.txt", Vectors(WORDS, -TABLE), "glove")
    Path("words.txt").write_text("w1\nw2\n")

    def run_line(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["embtrain", *line.split()])
        return (cli.run(), *capsys.readouterr())
    return run_line


# --- skipped words ----------------------------------------------------------------------------------------------------

def zeros(*rows: int) -> Vectors:
    table = TABLE.copy()
    table[list(rows)] = 0
    return Vectors(WORDS, table)


@pytest.mark.parametrize(("a", "b", "words", "lines"), [
    (zeros(3), zeros(), None, ["1 common word has a vector of zeros and is skipped"]),
    (zeros(3, 4), zeros(4, 5), None, ["3 common words have a vector of zeros and are skipped"]),
    (zeros(), zeros(), [*WORDS, "w1", "x"], ["1 given word is repeated and counts once",
                                           "1 given word is not in both tables and is skipped"]),
    (zeros(3), zeros(), [*WORDS, "x", "y"], ["2 given words are not in both tables and are skipped",
                                           "1 common word has a vector of zeros and is skipped"]),
    (zeros(), Vectors([*WORDS, "x"], np.vstack([TABLE, TABLE[:1]])), None, []),
])
def test_skipped_words_are_counted(caplog: pytest.LogCaptureFixture, a: Vectors, b: Vectors, words: list[str] | None,
                                   lines: list[str]) -> None:
    align(a, b, words=words)
    assert caplog.messages == lines


# --- inputs are kept --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("out", ["a.txt", "b.txt", "words.txt", "./a.txt", "link", "second"])
def test_an_input_is_not_replaced(command: Any, out: str) -> None:
    Path("link").symlink_to("b.txt")
    os.link("a.txt", "second")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    code, text, error = command(f"align a.txt b.txt --words words.txt --out {out}")
    assert code == 2 and not text and error.count("\n") == 1
    assert error.startswith("embtrain: error: --out: ") and "is the file that the command reads; choose" in error
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize("out", ["a.txt", "link"])
@pytest.mark.parametrize("format", ["word2vec", "glove", "safetensors"])
def test_export_does_not_replace_its_input(command: Any, out: str, format: str) -> None:
    Path("link").symlink_to("a.txt")
    before = Path("a.txt").read_bytes()
    code, text, error = command(f"export a.txt --format {format} --out {out}")
    assert code == 2 and not text and "is the file that the command reads; choose another name" in error
    assert Path("a.txt").read_bytes() == before and command(f"export a.txt --format {format} --out new")[0] == 0


# --- options ----------------------------------------------------------------------------------------------------------

def test_counts_of_one_are_singular(command: Any) -> None:
    vector_files.write("two.txt", Vectors(WORDS[:2], TABLE[:2]), "word2vec")
    code, out, _ = command("align two.txt a.txt --most-frequent 1")
    assert code == 0 and "of the 1 most frequent word (cosine after; share of the 1 nearest word)" in out
    code, out, _ = command("align a.txt b.txt")
    assert code == 0 and f"of the {N} most frequent words (cosine after; share of the 2 nearest words)" in out


def test_a_format_needs_a_file(command: Any) -> None:
    code, text, error = command("align a.txt b.txt --format glove")
    assert (code, text) == (2, "") and error == ("embtrain: error: --format: glove: applies only to --out; add --out "
                                                 "FILE, or remove --format\n")
    with pytest.raises(UsageError, match=r"^format: glove: applies only to out; add out FILE"):
        embtrain.align("a.txt", "b.txt", format="glove")
    assert command("align a.txt b.txt --out c.txt")[0] == 0
    assert Path("c.txt").read_text().startswith(f"{N} {D}\n")                      # word2vec is the default


def test_limit_and_encoding_are_those_of_both_files(command: Any) -> None:
    for name in ("a.txt", "b.txt"):
        Path(name).write_bytes(Path(name).read_bytes().replace(b"w1 ", "caf\u00e9 ".encode("latin-1")))
    code, text, error = command("align a.txt b.txt")
    assert code == 3 and not text and error.rstrip().endswith("give their encoding, e.g. --encoding latin-1")
    code, text, _ = command("align a.txt b.txt --encoding latin-1 --limit 7 --json")
    assert code == 0 and '"common_words": 7' in text


def test_all_formats_are_in_the_help(command: Any) -> None:
    _, text, _ = command("align --help")
    assert all(name in text for name in vector_files.FORMATS)


def test_a_missing_file_of_words_is_no_run(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("runs", "nowhere").mkdir(parents=True)
    Path("runs", "nowhere", "config.yaml").touch()
    assert command("align a.txt b.txt --words nowhere") == (
        3, "", "embtrain: error: nowhere: file or folder not found; give a file of words, one a line\n")


def test_a_file_of_words_may_be_a_text(command: Any) -> None:
    found = [embtrain.align("a.txt", "b.txt", words=words) for words in ("words.txt", Path("words.txt"), ["w1", "w2"])]
    assert [one.n_common for one in found] == [2, 2, 2]
    with pytest.raises(DataError, match=r"^nowhere: file or folder not found; give a file of words"):
        embtrain.align("a.txt", "b.txt", words="nowhere")


@pytest.mark.parametrize("words", [{"w2", "w1"}, ("w1", "w2"), np.array(["w1", "w2"]), np.array(["w1", "w2"], object),
                                   {"w1": 1, "w2": 2}.keys(), iter(["w1", "w2"])])
def test_words_may_be_any_texts(command: Any, words: Any) -> None:
    first, second = (embtrain.align("a.txt", "b.txt", words=given) for given in (words, ["w1", "w2"]))
    assert first.n_common == 2 and np.array_equal(first.rotation, second.rotation)


@pytest.mark.parametrize(("words", "message"), [
    (b"w1", "words: b'w1': should be a list of words, or a file with one a line"),
    (np.array("w1"), "words: array('w1', dtype='<U2'): should be a list of words, or a file with one a line"),
    (5, "words: 5: should be a list of words, or a file with one a line"),
    ([b"w1"], "words: b'w1': should be a text"), (["w1", ["a"] * 50], "words: " + repr(["a"] * 12)[:60].rstrip("]")),
    (np.array(["w1", None]), "words: None: should be a text")])
def test_words_that_are_no_texts_are_refused(command: Any, words: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        embtrain.align("a.txt", "b.txt", words=words)
    assert str(caught.value).startswith(message) and len(str(caught.value)) < 130
