"""Procrustes alignment: rotated copies, permuted words, changed words, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import embtrain
from embtrain import cli
from embtrain.common.errors import DataError, UsageError
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words.alignment import align, shared_neighbours

N, D = 60, 5
RANDOM = np.random.default_rng(0)
WORDS = [f"w{i}" for i in range(N)]
TABLE = RANDOM.normal(size=(N, D)).astype(np.float32)
ROTATION = stats.ortho_group.rvs(D, random_state=1)


def rotated(words: list[str] = WORDS, order: np.ndarray | None = None) -> Vectors:
    order = np.arange(N) if order is None else order
    return Vectors([words[i] for i in order], (TABLE @ ROTATION)[order])


@pytest.mark.parametrize("reflect", [False, True])
def test_a_rotated_copy_aligns_exactly(reflect: bool) -> None:
    b = Vectors(WORDS, rotated().table * ([-1, 1, 1, 1, 1] if reflect else 1) * 3)
    found = align(Vectors(WORDS, TABLE), b)
    assert found.cosine_after == pytest.approx(1, abs=1e-6) and found.cosine_before < 0.9
    assert np.allclose(found.rotation @ found.rotation.T, np.eye(D), atol=1e-12)
    assert found.by_cosine == found.by_neighbours == []                                    # no word has changed
    assert np.allclose(found.apply(Vectors(WORDS, TABLE)).table * 3, b.table, atol=1e-5)     # lengths are those of A


def test_words_are_matched_by_name() -> None:
    """Another order, and words of one table alone, change nothing."""
    order = RANDOM.permutation(N)
    b = rotated(order=order)
    b = Vectors(["only-b", *b.words], np.vstack([np.ones((1, D)), b.table]))
    a = Vectors([*WORDS, "only-a"], np.vstack([TABLE, np.ones((1, D))]))
    found = align(a, b)
    assert found.n_common == N and found.cosine_after == pytest.approx(1, abs=1e-6)


def test_the_rotation_is_that_of_scipy() -> None:
    from scipy.linalg import orthogonal_procrustes

    a, b = Vectors(WORDS, TABLE), Vectors(WORDS, TABLE @ ROTATION + RANDOM.normal(size=(N, D)))
    expected = orthogonal_procrustes(a.unit.astype(float), b.unit.astype(float))[0]
    found = align(a, b)
    assert np.allclose(found.rotation, expected, atol=1e-6)
    assert found.cosine_after == pytest.approx(float(((a.unit @ expected) * b.unit).sum(1).mean()), abs=1e-6)
    assert found.cosine_before == pytest.approx(float((a.unit * b.unit).sum(1).mean()), abs=1e-6)


def test_a_changed_word_is_first_by_both_measures() -> None:
    table = rotated().table.copy()
    table[7] = -table[7]
    found = align(Vectors(WORDS, TABLE), Vectors(WORDS, table), top=3)
    assert found.by_cosine[0].word == found.by_neighbours[0].word == "w7"
    assert found.by_cosine[0].cosine < -0.8 and found.by_neighbours[0].neighbours == 0
    assert len(found.by_cosine) == 1 and len(found.by_neighbours) == 3      # it was a neighbour of others


def test_frequent_words_are_by_the_lower_of_two_ranks() -> None:
    """w59 is first in B, but last in A; w0 is first in A, but last in B."""
    order = np.array([N - 1, *range(1, N - 1), 0])
    b = rotated(order=order)
    b = Vectors(b.words, b.table + RANDOM.normal(size=(N, D)) / 10)
    found = align(Vectors(WORDS, TABLE), b, most_frequent=10)
    assert found.n_common == 10 and {change.word for change in found.by_cosine} == set(WORDS[1:11])
    with_limit = align(Vectors(WORDS, TABLE), b, frequent=5)
    assert with_limit.n_common == N and with_limit.n_frequent == 5 and len(with_limit.by_cosine) == 5
    chosen = align(Vectors(WORDS, TABLE), b, words=["w3", "w9", "w59", "nowhere", "w9"])
    assert chosen.n_common == 3


def test_shared_neighbours_against_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from embtrain.evaluate.words import alignment

    monkeypatch.setattr(alignment, "CHUNK", 7)
    a, b = Vectors(WORDS, TABLE).unit, Vectors(WORDS, RANDOM.normal(size=(N, D))).unit
    def nearest(unit: np.ndarray, i: int) -> set[int]:
        return set(sorted(set(range(N)) - {i}, key=lambda j: -float(unit[i] @ unit[j]))[:4])
    expected = [len(nearest(a, i) & nearest(b, i)) / 4 for i in range(N)]
    assert shared_neighbours(a, b, 4).tolist() == expected
    assert shared_neighbours(a[:1], b[:1], 1).tolist() == [1]


def test_few_words_give_a_warning_and_zero_vectors_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    table = TABLE.copy()
    table[2:] = 0
    assert align(Vectors(WORDS, table), rotated()).n_common == 2
    assert "only 2 common words for 5 dimensions: the rotation is not unique" in caplog.text
    align(Vectors(WORDS, table), rotated(), most_frequent=1)
    assert "only 1 common word for 5 dimensions: the rotation is not unique" in caplog.text


@pytest.mark.parametrize(("words", "message"), [
    (["nowhere"], "the given word is not in both tables, so they cannot be aligned; "),
    (["nowhere", "x"], "none of the 2 given words is in both tables, so they cannot be aligned; ")])
def test_words_of_one_table_only_are_refused_by_their_number(words: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}"):
        align(Vectors(WORDS, TABLE), Vectors(WORDS, TABLE), words=words)


@pytest.mark.parametrize(("b", "kind", "message"), [
    (Vectors(["x", "y"], np.ones((2, D))), DataError, "no word is in both tables"),
    (Vectors(WORDS, np.ones((N, D + 1))), UsageError, "vectors of 5 and of 6 numbers cannot be aligned"),
    (Vectors(WORDS, np.zeros((N, D))), DataError, "all vectors of the common words are zero"),
])
def test_tables_that_cannot_be_aligned(b: Vectors, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as found:
        align(Vectors(WORDS, TABLE), b)
    assert "\n" not in str(found.value)


# --- the command ------------------------------------------------------------------------------------------------------

@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    vector_files.write("a.txt", Vectors(WORDS, TABLE), "word2vec")
    vector_files.write("b.bin", rotated(order=RANDOM.permutation(N)), "word2vec-binary")
    vector_files.write("other.txt", Vectors(["x"], np.ones((1, D))), "glove")

    def run_line(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["embtrain", *line.split()])
        return (cli.run(), *capsys.readouterr())
    return run_line


@pytest.mark.parametrize("format", vector_files.FORMATS)
def test_the_rotated_vectors_are_written_in_each_format(command: Any, format: str) -> None:
    code, out, err = command(f"align a.txt b.bin --out rotated --format {format} --count 2 --json")
    assert (code, err) == (0, "")
    tree = json.loads(out)
    assert tree["common_words"] == N and tree["cosine_after"] == pytest.approx(1)
    assert tree["by_cosine"] == tree["by_neighbours"] == []
    vectors = vector_files.read("rotated")
    expected = rotated()
    assert vectors.words == WORDS and np.allclose(vectors.table, expected.table, atol=1e-5)
    again = embtrain.align("rotated", "b.bin")
    assert again.cosine_before == pytest.approx(1, abs=1e-6) and np.allclose(again.rotation, np.eye(D), atol=1e-5)


def test_the_text_lists_both_measures(command: Any) -> None:
    Path("words.txt").write_text("w1\n\nw2\nw40\nw41\nw42\nw43\nw44\n")
    code, out, _ = command("align a.txt b.bin --words words.txt --count 1")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "7 common words" and lines[1].endswith("1.0000 after")
    assert lines[3].startswith("lowest cosine, of the 7 most frequent") and lines[6].startswith("fewest shared")
    assert lines[4] == lines[7] == "  none has changed" and len(lines) == 8
    vectors = vector_files.read("b.bin")
    vectors.table[vectors.words.index("w2")] *= -1
    vector_files.write(Path("turned.txt"), vectors, "word2vec")
    lines = command("align a.txt turned.txt --words words.txt --count 1")[1].splitlines()
    assert lines[4].split()[0] == "w2" and float(lines[4].split()[1]) < .9 and len(lines) == 8


@pytest.mark.parametrize(("line", "code", "message"), [
    ("align a.txt other.txt", 3, "a.txt, other.txt: no word is in both tables"),
    ("align a.txt nowhere.txt", 3, "nowhere.txt: file or folder not found"),
    ("align a.txt b.bin --words empty.txt", 3, "empty.txt: contains no words; give one a line"),
    ("align a.txt b.bin --words nowhere.txt", 3, "nowhere.txt: file or folder not found"),
    ("align a.txt b.bin --out x --format projector", 2, "--format: 'projector' is not one of word2vec, "),
    ("align a.txt b.bin --out . ", 2, "--out: .: is a folder; give a file"),
])
def test_errors_are_one_line(command: Any, line: str, code: int, message: str) -> None:
    Path("empty.txt").write_text("\n")
    result = command(line)
    assert result[0] == code and result[1] == "" and message in result[2] and result[2].count("\n") == 1
