"""Functions that read an existing run or vector file take a path as text, as a path, or as a Run."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.in_process import WORDS, small_text
from helpers.runs import cache, no_page  # noqa: F401

import embtrain
from embtrain import experiment
from embtrain.common import progress
from embtrain.common.errors import UsageError
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.open import ReadOptions
from embtrain.experiment.inspect import export as run_export, submission
from embtrain.experiment.inspect.neighbours import open_vectors

KEYS: dict[str, Any] = {"model.dim": 4, "train.epochs": 1, "text.min_count": 1, "text.sample": 0, "text.valid": 0,
                        "text.test": 0, "evaluate.benchmarks": [], "evaluate.neighbours": [],
                        "evaluate.heldout_pairs": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> embtrain.Run:
    place = small_text(tmp_path_factory.mktemp("inspected"), 3)
    with pytest.MonkeyPatch.context() as patch:
        no_page(patch)
        patch.setattr(progress, "quiet", True)
        return embtrain.fit("sgns", corpus=place / "text", sets=KEYS, threads=1, out=place / "run")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\t{i}\n" for i, (a, b) in enumerate(itertools.pairwise(WORDS[:9]))))
    return path


KINDS: dict[str, Callable[[embtrain.Run], Any]] = {"Run": lambda run: run, "Path": lambda run: run.folder,
                                                   "text": lambda run: str(run.folder)}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_evaluate_and_its_interval(run: embtrain.Run, table: Path, kind: str) -> None:
    what = KINDS[kind](run)
    expected = experiment.evaluate(run.folder, [str(table)])
    assert expected and experiment.evaluate(what, [table]) == experiment.evaluate(what, str(table)) == expected
    assert experiment.evaluate(what, table) == expected
    assert experiment.interval_share(what, ["evaluate.interval=0.8"]) == 0.8


def test_options_of_a_file_are_refused_where_they_would_change_nothing(run: embtrain.Run, table: Path,
                                                                       tmp_path: Path) -> None:
    """--encoding for folders, and --limit where no vectors are scored; both for a translator, which reads the file."""
    latin, folder = ReadOptions(encoding="latin-1"), run.folder
    refused = rf"--encoding: latin-1: {re.escape(str(folder))}: the words of a folder are UTF-8; leave --encoding out"
    for call in (lambda: experiment.evaluate(run, [table], reading=latin),
                 lambda: experiment.neighbours(run, [WORDS[0]], reading=latin),
                 lambda: experiment.export(run, "glove", tmp_path / "out", latin)):
        with pytest.raises(UsageError, match=refused):
            call()
    with pytest.raises(UsageError, match=r"and .*: the words of a folder"):
        embtrain.align(run, run, reading=latin)
    file = tmp_path / "v.txt"
    vector_files.write(file, run.word_vectors, "word2vec")
    assert embtrain.align(run, file, reading=latin).apply(run.word_vectors).words == run.word_vectors.words
    assert experiment.evaluate(run, [table], reading=ReadOptions(encoding="UTF-8"))
    assert experiment.evaluate(run, [table], reading=ReadOptions(3))[0].n < experiment.evaluate(run, [table])[0].n
    with pytest.raises(UsageError, match=r"--limit: 3: applies to vectors that benchmarks score, not to .*run "):
        experiment.evaluate(run, reading=ReadOptions(3))
    for reading in (latin, ReadOptions(3)):
        with pytest.raises(UsageError, match="--on: a translator reads all vectors of a file in UTF-8"):
            experiment.evaluate(file, ["nmt-multi30k-de-en"], reading=reading)


@kinds
def test_neighbours(run: embtrain.Run, kind: str) -> None:
    what = KINDS[kind](run)
    nearest = experiment.neighbours(what, WORDS[0], 3)                             # one word is not a list of letters
    assert nearest == experiment.neighbours(run.folder, [WORDS[0]], 3) and list(nearest) == [WORDS[0]]
    assert open_vectors(what).words == run.word_vectors.words


@kinds
def test_export(run: embtrain.Run, tmp_path: Path, kind: str) -> None:
    what = KINDS[kind](run)
    for name, out in (("a", tmp_path / "a"), ("b", str(tmp_path / "b"))):
        assert experiment.export(what, "glove", out) is None
        assert vector_files.read(tmp_path / name).words == run.word_vectors.words
    run_export.export(run, "projector", str(tmp_path / "p"))
    run_export.export_vectors(run.word_vectors, "word2vec", str(tmp_path / "v"))
    assert (tmp_path / "p" / "vectors.tsv").is_file() and (tmp_path / "v").is_file()
    with pytest.raises(UsageError, match="is a file of a run; choose another name"):
        experiment.export(what, "glove", os.fspath(run.folder / "scores.json"))


@kinds
def test_align(run: embtrain.Run, tmp_path: Path, kind: str) -> None:
    what = KINDS[kind](run)
    found = embtrain.align(what, what, out=str(tmp_path / "rotated"), format="glove")
    assert found.cosine_after == pytest.approx(1, abs=1e-5) and (tmp_path / "rotated").is_file()
    assert np.allclose(vector_files.read(tmp_path / "rotated").table, run.word_vectors.table, atol=1e-4)
    vector_files.write(tmp_path / "x", vector_files.Vectors(["a"], np.ones((1, 1))), "glove")
    with pytest.raises(UsageError) as caught:
        embtrain.align(tmp_path / "x", what)
    assert str(caught.value).startswith(f"{tmp_path / 'x'}, {run.folder}: vectors of 1 and of 4 numbers cannot be")


@kinds
def test_a_line_of_the_leaderboard(run: embtrain.Run, kind: str) -> None:
    with pytest.raises(UsageError, match=rf"^{run.folder}: was not trained by the command `embtrain fit`"):
        submission.describe(KINDS[kind](run), lambda words: ({}, []))
