"""embtrain.fit on lists of tokens: the run of the same text in a file, streamed, and refusals."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import embtrain
from embtrain.common import progress
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.data.storage import token_lists
from embtrain.data.storage.folders import cache_folder

pytestmark = pytest.mark.long

KEYS: dict[str, Any] = {"model.dim": 6, "train.epochs": 2, "text.min_count": 1, "text.sample": 0,
                        "evaluate.benchmarks": [], "evaluate.neighbours": []}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "quiet", True)


def lists() -> Iterator[list[str]]:
    """A generator of tokens that a tokenizer would change."""
    draw = np.random.default_rng(0)
    for _ in range(400):
        yield [f"W-{i}_x" for i in draw.integers(30, size=12)]


def vectors(run: embtrain.Run) -> tuple[list[str], np.ndarray]:
    return run.word_vectors.words, run.word_vectors.table


def test_a_run_equals_that_of_the_same_text_in_a_file(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(line) + "\n" for line in lists()))
    run = embtrain.fit("sgns", corpus=lists(), sets=KEYS, threads=1, out=tmp_path / "a")
    file = embtrain.fit("sgns", corpus=text, threads=1, out=tmp_path / "b",
                        sets=KEYS | {"text.tokenizer": "whitespace", "text.lower": False, "text.format": "tokens"})
    assert vectors(run)[0] == vectors(file)[0] and "W-3_x" in vectors(run)[0]
    assert np.array_equal(vectors(run)[1], vectors(file)[1])
    (tmp_path / "a" / "scores.json").unlink()
    assert np.array_equal(vectors(run.resume())[1], vectors(file)[1])  # the text is still in the cache


def test_a_run_is_continued_on_lists(tmp_path: Path) -> None:
    run = embtrain.fit("sgns", corpus=lists(), sets=KEYS, threads=1, out=tmp_path / "a")
    child = embtrain.continue_run(run, ([*line, "NEW"] for line in lists()), threads=1, out=tmp_path / "b")
    assert {"NEW", "W-3_x"} <= set(vectors(child)[0])
    (tmp_path / "text.txt").write_text("".join(" ".join(line) + "\n" for line in lists()))
    other = embtrain.fit("sgns", corpus=tmp_path / "text.txt", sets=KEYS, threads=1, out=tmp_path / "c")
    with pytest.raises(UsageError, match=r"^text.lower: False: the text of .* was read with True"):
        embtrain.continue_run(other, lists(), out=tmp_path / "d")
    with pytest.raises(UsageError, match=r"^corpus: takes no int; give the name of a recipe or the path"):
        embtrain.continue_run(run, 5, out=tmp_path / "d")  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "keys"), [
    ("node2vec", {"walks.min_count": 1, "walks.window": 3, "walks.valid": 0, "walks.test": 0,
                  "evaluate.heldout_pairs": 0, "evaluate.benchmarks": [], "evaluate.neighbours": []}),
    ("lm", {"language.streams": 4, "train.chunk": 140, "train.batch": 140, "model.hidden": 6})])
def test_other_tasks_train_on_lists(model: str, keys: dict[str, Any], tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(20, size=(200, 3))  # integers are tokens too; three look like an edge
    run = embtrain.fit(model=model, corpus=numbers, sets={"model.dim": 6, "train.epochs": 1, **keys}, threads=1,
                       out=tmp_path / "run")
    assert set(map(str, range(20))) <= {line.split("\t")[0] for line in
                                        (run.folder / "vocabulary.txt").read_text().splitlines()}


def test_keys_of_the_user_win(tmp_path: Path) -> None:
    run = embtrain.fit("sgns", corpus=lists(), sets=KEYS | {"text.lower": True}, threads=1, out=tmp_path / "run")
    assert "w-3_x" in vectors(run)[0]


def test_lists_are_read_once_into_one_file_and_never_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_lists, "CHUNK", 1000)
    pieces = list(token_lists._chunks(lists()))
    assert len(pieces) > 20 and max(map(len, pieces)) < 1100
    first, second = (token_lists.write_token_lists(lists(), tmp_path / "lists") for _ in range(2))
    assert first == second and [path.name for path in (tmp_path / "lists").iterdir()] == [first.name]
    other = token_lists.write_token_lists([["a"]], tmp_path / "lists")
    assert other != first and other.read_text() == "a\n"


@given(st.lists(st.lists(st.text(max_size=6) | st.integers()), max_size=6))
def test_a_text_is_read_back_or_refused(tmp_path_factory: pytest.TempPathFactory, tokens: list[list[Any]]) -> None:
    expected = [[str(token) for token in line] for line in tokens]
    try:
        path = token_lists.write_token_lists(tokens, tmp_path_factory.mktemp("lists"))
    except DataError as error:
        words = [word for line in tokens for word in line]
        assert not words or any(isinstance(word, str) and not token_lists.is_token(word) for word in words), error
        return
    assert [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == expected


@pytest.mark.parametrize(("corpus", "keys", "kind", "message"), [
    ([["a b"]], {}, DataError, "corpus: item 1: 'a b': a token should be an integer, or a string without spaces"),
    ([["a"], ["\0"]], {}, DataError, "corpus: item 2: '"), ([["\ufeffa"]], {}, DataError, "corpus: item 1: "),
    ([["\ud800"]], {}, DataError, "corpus: item 1: "), ([[1.5]], {}, DataError, "corpus: item 1: 1.5: a token"),
    (["a text"], {}, DataError, "corpus: item 1: should be a list of tokens, got 'a text'; split texts first"),
    (np.zeros(3), {}, DataError, "corpus: item 1: should be a list of tokens, got "),
    ([], {}, DataError, "corpus: contains no tokens; an iterator that was read before is empty"),
    ([[], []], {}, DataError, "corpus: contains no tokens"),
    ([["a", "r", "b"]], {"model": "transe"}, UsageError,
     "corpus: takes no list, because the model learns from triples"),
])
def test_lists_that_cannot_be_trained_on_are_one_line(corpus: Any, keys: dict[str, Any], kind: type[EmbtrainError],
                                                      message: str, tmp_path: Path) -> None:
    with pytest.raises(kind) as caught:
        embtrain.fit(corpus=corpus, out=tmp_path / "run", **keys)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists() and not list(cache_folder().glob("lists/*"))


def test_errors_of_the_program_and_of_the_disk_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[list[str]]:
        yield ["a"]
        raise FileNotFoundError("of the program")

    with pytest.raises(FileNotFoundError, match="of the program"):
        token_lists.write_token_lists(broken(), tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="cannot be written: No space left on device"):
        token_lists.write_token_lists(lists(), tmp_path)
    assert list(tmp_path.glob("*.txt")) == []
