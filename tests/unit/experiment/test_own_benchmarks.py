"""Benchmarks of the user as settings of runs and comparisons."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.in_process import in_process
from scipy.stats import spearmanr

import embtrain
from embtrain.common import progress
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, UsageError
from embtrain.experiment.comparison import join, tuning
from embtrain.experiment.comparison.compare import rejudge
from embtrain.experiment.comparison.grid import read_grid
from embtrain.experiment.inspect import export
from embtrain.experiment.inspect.evaluate import evaluate_run

pytestmark = pytest.mark.long

WORDS = [f"w{i}" for i in range(40)]
SETS: dict[str, Any] = {"model.dim": 6, "train.epochs": 1, "evaluate.resamples": 0, "text.min_count": 1,
                        "text.tokenizer": "whitespace", "evaluate.heldout_pairs": 50}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a corpus, a table of 30 pairs, and a recipe of the table's second half."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "quiet", True)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    (tmp_path / "text.txt").write_text("\n".join(" ".join(rng.choice(WORDS, 12)) for _ in range(900)))
    write_gold(tmp_path / "gold.tsv", rng)
    (tmp_path / "half.yaml").write_text("kind: similarity\nmetric: spearman\nhalf: even\n"
                                        "copies: [{mirror: gold.tsv, sha256: unverified}]\n")
    return tmp_path


def write_gold(path: Path, rng: np.random.Generator, n: int = 30) -> None:
    pairs = [rng.choice(WORDS, 2, replace=False) for _ in range(n)]
    path.write_text("".join(f"{a}\t{b}\t{rng.random():.3f}\n" for a, b in pairs))


def compare(benchmarks: Any, **options: Any) -> Any:
    return embtrain.compare("sgns,nce", seeds=2, corpus="text.txt", sets=SETS, benchmarks=benchmarks, out="both",
                            threads=1, **options)


def test_a_run_is_scored_on_own_files_from_any_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = embtrain.fit("sgns", corpus="text.txt", out="run", threads=1, sets={
        **SETS, "evaluate.benchmarks": [Path("gold.tsv"), "half.yaml"], "evaluate.during_training": ["gold.tsv"],
        "train.evaluate_every": 1})
    scores = {(row.benchmark, row.metric): row for row in run.scores}
    vectors, rows = run.word_vectors, [line.split("\t") for line in Path("gold.tsv").read_text().splitlines()]
    table = dict(zip(vectors.words, vectors.table.astype(np.float64), strict=True))

    def cosine(a: str, b: str) -> float:
        return float(table[a] @ table[b] / np.linalg.norm(table[a]) / np.linalg.norm(table[b]))

    for name, part in (("gold.tsv", rows), ("half", rows[1::2])):
        expected = spearmanr([cosine(a, b) for a, b, _ in part], [float(gold) for *_, gold in part]).statistic
        assert scores[name, "spearman"].value == pytest.approx(expected, abs=1e-9)
        assert scores[name, "spearman"].n == len(part)
    log = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("gold.tsv/spearman" in line for line in log)
    stored = read_yaml(place / "run" / "config.yaml").tree["evaluate"]["benchmarks"]
    assert stored == [str(place / "gold.tsv"), str(place / "half.yaml")]
    monkeypatch.chdir("/")
    again = {(row.benchmark, row.metric): row.value for row in evaluate_run(embtrain.Run(place / "run"))}
    assert again["gold.tsv", "spearman"] == scores["gold.tsv", "spearman"].value


def test_a_comparison_is_decided_by_one_version_of_an_own_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch, place)
    comparison = compare(["gold.tsv", "half.yaml"], metric="gold.tsv/spearman")
    assert comparison.results["plan"]["metric"] == "gold.tsv/spearman"
    assert "sgns" in comparison.table() and "half/spearman" in comparison.table()
    assert "on gold.tsv/spearman" in comparison.verdict[0].lower()
    assert "<h" in (place / "both" / "report.html").read_text()
    shutil.rmtree(place / "both" / "cells" / "nce-seed2")
    write_gold(place / "gold.tsv", np.random.default_rng(4))
    with pytest.raises(DataError, match=r"gold\.tsv: has changed since 3 of 3 finished runs .*; restore the file, or"):
        embtrain.compare(out="both", threads=1)            # the grid is read from the folder
    assert not (place / "both" / "cells" / "nce-seed2").exists()
    change_hash(place / "both" / "cells" / "nce-seed1")
    with pytest.raises(DataError, match=r"scored on another version of gold\.tsv than .*remove the older"):
        join.join([place / "both"], Path("joined"))


def test_any_name_of_a_file_and_a_lost_file_are_possible(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch, place)
    odd = [Path(name) for name in ("a: [b], c #1.tsv", "plain.tsv")]
    for path in odd:
        shutil.copy("gold.tsv", path)
    comparison = compare(odd, metric="plain.tsv/spearman")
    scored = {row["benchmark"] for cell in comparison.results["cells"] for row in cell["scores"]}
    assert {path.name for path in odd} <= scored
    for path in odd:
        path.unlink()
    rejudge(place / "both")                            # the values are stored
    with pytest.raises(UsageError, match=r"a: \[b\], c #1\.tsv: does not exist; restore it, or give another"):
        embtrain.compare(out="both", seeds=3, threads=1)


def change_hash(folder: Path) -> None:
    identity = json.loads((folder / "identity.json").read_text())
    identity["benchmarks"]["gold.tsv"] = "0" * 64
    (folder / "identity.json").write_text(json.dumps(identity))


def test_a_change_during_training_is_reported(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A benchmark that is scored during training alone has a hash too; a resumed run stores that of now."""
    sets = {**SETS, "evaluate.benchmarks": [], "evaluate.during_training": ["gold.tsv"], "train.evaluate_every": 1}
    run = embtrain.fit("sgns", corpus="text.txt", out="run", threads=1, sets=sets)
    before = json.loads((place / "run" / "identity.json").read_text())["benchmarks"]
    assert list(before) == ["gold.tsv"] and not [line for line in caplog.messages if "has changed" in line]
    write_gold(place / "gold.tsv", np.random.default_rng(4))
    run.resume()
    assert [line for line in caplog.messages if "gold.tsv has changed since the run began" in line]
    assert json.loads((place / "run" / "identity.json").read_text())["benchmarks"] != before


@pytest.mark.parametrize(("benchmarks", "expected"), [
    (["missing.tsv"], "^benchmarks: no benchmark named 'missing.tsv'; embtrain list names all 22; and there is no "
                      "file of this name"),
    (["./missing.tsv"], "missing.tsv: does not exist; restore it, or give another file"),
    (["folder"], "folder: is a folder; give a file in it"),
    (["gold.tsv", "folder/gold.tsv"], r"gold.tsv: has the name of .*gold.tsv in scores; rename the file"),
    (["test"], "has the name of the rows test in scores; rename the file"),
    (["training.yaml"], "has the name of the rows training in scores; rename the file"),
    (["settings.yaml"], "settings.yaml: is a file of settings: it has the section train"),
    (["wordsim353.odd.yaml"], "has the name of wordsim353.odd in scores; rename the file"),
    (["cut.tsv"], "cut.tsv:61: score should be a number"),
    (["nogold.yaml"], r"nogold.yaml: copies: there is no gold file .*/missing.tsv; put it there"),
    (["translate.yaml"], "trains a translator, which is possible for benchmarks of evals/ only"),
    (["named.yaml"], "named.yaml: name: should be 'named' like the file name, got 'other'"),
    (["wordsim35"], r"no benchmark named 'wordsim35' \(did you mean 'wordsim353'\?\)")])
def test_wrong_files_are_named_before_training(place: Path, benchmarks: list[str], expected: str) -> None:
    (place / "folder").mkdir()
    shutil.copy("gold.tsv", "folder/gold.tsv")
    shutil.copy("gold.tsv", "test")
    Path("settings.yaml").write_text("train: {seed: 1}\n")
    Path("translate.yaml").write_text("kind: translation\nmetric: bleu\ntraining: {corpus: multi30k-de-en, "
                                      "strategy: ace}\n")
    Path("training.yaml").write_text(Path("half.yaml").read_text())
    Path("wordsim353.odd.yaml").write_text(Path("half.yaml").read_text())
    Path("cut.tsv").write_text(Path("gold.tsv").read_text() * 2 + "w1\tw2\thello\n")
    Path("nogold.yaml").write_text(Path("half.yaml").read_text().replace("gold.tsv", "missing.tsv"))
    Path("named.yaml").write_text(Path("half.yaml").read_text() + "name: other\n")
    with pytest.raises((UsageError, DataError), match=expected):
        compare(benchmarks)
    assert not (place / "both" / "cells").exists()


def test_a_hierarchy_needs_labels(place: Path) -> None:
    Path("kinds.tsv").write_text("dog\tmammal\ncat\tmammal\nmammal\tanimal\nbird\tanimal\nrobin\tbird\nowl\tbird\n")
    Path("labels.txt").write_text("dog mammal True\ncat mammal True\nbird mammal False\nrobin owl False\n" * 3)
    sets = {"model.dim": 4, "train.epochs": 1, "evaluate.resamples": 0}
    run = embtrain.fit(model="order", corpus="kinds.tsv", out="order", threads=1,
                       sets={**sets, "evaluate.benchmarks": ["labels.txt"]})
    assert ("labels.txt", "accuracy") in {(row.benchmark, row.metric) for row in run.scores}
    with pytest.raises(UsageError, match=r"gold\.tsv is of kind similarity, but this run needs kind entailment"):
        embtrain.fit(model="order", corpus="kinds.tsv", out="graded", threads=1,
                     sets={**sets, "evaluate.benchmarks": ["gold.tsv"]})


def test_the_path_is_not_published(place: Path) -> None:
    run = embtrain.fit("sgns", corpus="text.txt", out="run", threads=1,
                       sets={**SETS, "evaluate.benchmarks": ["gold.tsv"]})
    export.export(run, "huggingface", Path("card"))
    published = Path("card/config.json").read_text() + Path("card/README.md").read_text()
    assert "gold.tsv" in published and os.fspath(place) not in published


def test_a_name_with_the_ending_of_a_half_is_no_half(place: Path) -> None:
    assert tuning.trial_benchmarks("men.even/spearman") == ["men.odd"]
    assert tuning.trial_benchmarks("gold.even/spearman") == []
    assert read_grid({"benchmarks": ["men.odd", "gold.tsv"]}).benchmarks == ["men.odd", str(place / "gold.tsv")]


@pytest.mark.parametrize("key", ["benchmarks", "during_training"])
@pytest.mark.parametrize("has_trained", [True, False])
def test_a_run_whose_benchmark_is_gone_is_not_resumed(place: Path, key: str, has_trained: bool) -> None:
    """The error of a trained run named neither the key nor the file of the settings.

    The corpus is gone too: the settings are checked before it.
    """
    run = embtrain.fit("sgns", corpus="text.txt", out="run", threads=1, sets={
        **SETS, "train.evaluate_every": 1, "evaluate.benchmarks": [], f"evaluate.{key}": ["gold.tsv"]})
    if not has_trained:
        shutil.rmtree(run.folder / "checkpoints")
        (run.folder / "metrics.jsonl").unlink()
    Path("gold.tsv").unlink()
    Path("text.txt").unlink()
    with pytest.raises(UsageError, match=rf"^run/config\.yaml:\d+:3: evaluate\.{key}: /.*gold\.tsv: does not exist; "
                                         "restore it, or give another file$"):
        run.resume()
