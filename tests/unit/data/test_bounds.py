"""Cost of hostile and huge files: CPU time and memory grow linearly with their size, or the file is rejected first."""

from __future__ import annotations

import re
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embtrain
from embtrain.common import files, machine
from embtrain.common.errors import DataError, ResourceError
from embtrain.common.types import Score
from embtrain.data.hierarchy import closure
from embtrain.data.labels import examples as labelled
from embtrain.data.labels.sparse import LabelsConfig
from embtrain.experiment.comparison import results
from embtrain.experiment.comparison.outcome import CellOutcome
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.started import restore_engine
from embtrain.report.comparison import page

pytestmark = pytest.mark.long


@contextmanager
def cpu_seconds(most: float) -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < most


@contextmanager
def peak_of(most: int) -> Iterator[None]:
    """Return the peak of the bytes that Python and NumPy allocate."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# --- score rows ------------------------------------------------------------------------------------------------------

def _joined(folder: Path, n: int, seeds: int = 1) -> None:
    """Compare two strategies that have n scores each, and write the report."""
    cells = [CellOutcome(f"{label}-{seed}", label, None, "m", seed, folder / label, label,
                         scores=[Score(f"b{i % 50}", f"m{i}", i + len(label), None, None, 5, "") for i in range(n)])
             for label in ("a", "bb") for seed in range(seeds)]
    results.write(folder, {"metric": "b0/m0", "baseline": "a", "benchmarks": []}, cells)
    page.write(folder)


def test_time_to_join_scores_is_linear(tmp_path: Path) -> None:
    with cpu_seconds(12):                                    # about 2; quadratic code took 45
        _joined(tmp_path, 3_000)
    table = (tmp_path / "scores.csv").read_text()
    assert table.count("\n") == 6_001 and "bb-0,bb,0,finished,,b49,m2999,3001.0,,,5," in table
    assert re.search(r"\| m2999[^|]*\| 2,999 \||m2999", (tmp_path / "report.md").read_text())


def test_too_many_scores_for_a_report_are_rejected_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_SCORES", 100)
    with pytest.raises(DataError, match=r"102 scores in 2 runs; at most 100 are compared; give fewer runs"):
        _joined(tmp_path, 51)
    assert not (tmp_path / "results.json").exists()


# --- labels ----------------------------------------------------------------------------------------------------------

def _documents(place: Path, n_features: int, n_labels: int, last: int = 4) -> Path:
    """Return a file of about 500 bytes in the format of the Extreme Classification repository."""
    lines = [f"20 {n_features} {n_labels}", f"{last} 0:1", *(f"{i % 5} {i}:1 {i + 1}:0.5" for i in range(19))]
    (place / "data.txt").write_text("".join(f"{line}\n" for line in lines))
    return place / "data.txt"


@pytest.mark.parametrize(("features", "labels", "last", "says"), [
    (50, 30_000_000, 4, "declares 30,000,000 labels, but its documents contain 20 in total; correct"),
    (50, 2_000_000_000, 4, "declares 2,000,000,000 labels"), (50, 30_000_000, 29_999_999, "declares 30,000,000 labels"),
    (2_000_000_000, 5, 4, "declares 2,000,000,000 features, but its documents contain 39 in total; correct"),
])
def test_header_may_not_exceed_its_documents(tmp_path: Path, features: int, labels: int, last: int,
                                             says: str) -> None:
    where = _documents(tmp_path, features, labels, last)
    with peak_of(20 << 20), pytest.raises(DataError, match=says):  # 2.4 GB of names
        labelled.load([where], "auto", LabelsConfig(), None, "data")


def test_largest_public_data_sets_are_within_the_bounds(tmp_path: Path) -> None:
    """Amazon-3M has 2,812,281 labels; a few lines of it, with its header, are read."""
    result, _ = labelled.load([_documents(tmp_path, 337_067, 2_812_281)], "auto", LabelsConfig(), None, "data")
    assert result.n_labels == 2_812_281


# --- hierarchies -----------------------------------------------------------------------------------------------------

def _chain(n: int) -> np.ndarray:
    return np.stack([np.arange(1, n), np.arange(n - 1)], 1)


def test_closure_takes_little_more_memory_than_its_pairs() -> None:
    names = [str(i) for i in range(500)]
    with peak_of(7 << 20):                                   # the pairs take 2 MB; dictionaries took 15
        whole = closure.closure(_chain(500), 500, names, "x")
    assert len(whole) == 500 * 499 // 2
    held = np.arange(len(whole)) % 10 == 0
    with peak_of(15 << 20):
        assert closure.is_implied(whole[~held], whole[held], 500).sum() == (whole[held] @ [1, -1] > 1).sum()
    with cpu_seconds(5):                                     # .3; a set for each concept took 15
        closure.is_implied(whole[~held], whole[held], 500)
        assert np.array_equal(closure.closure(whole, 500, names, "x"), whole)
        assert np.array_equal(closure.reduction(whole, whole, 500), _chain(500))


def test_concept_with_many_parents_is_not_quadratic() -> None:
    star = np.stack([np.full(20_000, 20_000), np.arange(20_000)], 1)
    with cpu_seconds(5):
        whole = closure.closure(star, 20_001, [], "x")
        assert np.array_equal(closure.reduction(star, whole, 20_001), star)
    layers = np.stack(np.meshgrid(np.arange(401, 801), np.arange(1, 401)), -1).reshape(-1, 2)
    pairs = np.concatenate([np.stack([np.arange(1, 401), np.zeros(400, np.int64)], 1), layers])
    with cpu_seconds(5):
        assert len(closure.closure(pairs, 801, [], "x")) == 400 + 400 * 401


def test_too_long_chain_is_rejected_before_memory_is_allocated() -> None:
    """55 kB of text make 20 million pairs and more."""
    with cpu_seconds(5), peak_of(10 << 20), pytest.raises(
            ResourceError, match=r"x: more than 20,000,000 pairs or paths follow from it; give a smaller"):
        closure.closure(_chain(7000), 7000, [], "x")


def test_closure_that_does_not_fit_into_memory_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free", lambda: 100 * 1000)
    assert len(closure.closure(_chain(45), 45, [], "x")) == 990
    with pytest.raises(ResourceError, match="more than 1,000 pairs"):
        closure.closure(_chain(46), 46, [], "x")


def test_total_number_of_paths_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of 40 rungs has 2**39 paths from its foot; there are as many rows as paths."""
    ladder = np.array([(2 * i + a, 2 * i - 2 + b) for i in range(1, 40) for a in (0, 1) for b in (0, 1)])
    with cpu_seconds(5), pytest.raises(ResourceError, match="pairs or paths"):
        closure.closure_with_paths(ladder, 80, [], "x")
    assert len(closure.closure(ladder, 80, [], "x")) == 4 * 40 * 39 // 2
    monkeypatch.setattr(closure, "MAX_PAIRS", 104)
    few = closure.closure_with_paths(ladder[:16], 10, [], "x")  # pairs of levels k apart: 2**(k - 1) paths each
    assert few.paths.sum() == 4 * (4 * 1 + 3 * 2 + 2 * 4 + 8) and len(few.pairs) == 40
    monkeypatch.setattr(closure, "MAX_PAIRS", 103)
    with pytest.raises(ResourceError, match="more than 103 pairs or paths follow from it"):
        closure.closure_with_paths(ladder[:16], 10, [], "x")


# --- JSON ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("content", "says"), [
    (b"[" * 100_000, "nested too deep"), (b'{"a":' * 100_000, "nested too deep"),
    (b'"' + b"x" * 2000 + b'"', "more than"),
    (b"[1", "Expecting"), (b'"\xff"', "utf-8"),
])
def test_json_file_is_read_within_bounds(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        files.read_json(tmp_path / "a.json", max(1000, len(content) - 10 if says == "more than" else len(content)))


def test_json_file_of_100_mb_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "scores.json", "wb") as file:
        file.truncate(100 << 20)
    with cpu_seconds(2), pytest.raises(DataError, match=r"scores.json: contains no scores: more than 16,777,216 bytes"):
        _ = Run(tmp_path).scores


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{", "5"])
def test_invalid_identity_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    (tmp_path / "metrics.jsonl").write_text("{}\n")                            # the run has trained
    config: Any = type("", (), {"train": type("", (), {"engine": "auto"})})
    with pytest.raises(DataError, match=r"identity\.json: does not contain the engine"):
        restore_engine(tmp_path, config)


def test_json_of_a_folder_is_read_by_one_function() -> None:
    """json.loads is used only where the text is bounded first."""
    package = Path(embtrain.__file__).parent
    parsing = {path.relative_to(package).as_posix() for path in package.rglob("*.py")
               if re.search(r"json\.loads?\(", path.read_text(encoding="utf-8"))}
    assert parsing == {
        "common/files.py", "data/catalogue/members.py", "data/formats/candidate_files.py", "data/formats/detect.py",
        "data/formats/json_lines.py", "experiment/comparison/workers.py", "experiment/inspect/export.py",
        "experiment/inspect/submission.py",
        "gensim/saved.py", "report/load/run.py", "train/state/checkpoint.py", "train/state/metrics_log.py",
        # states in a tensor that the program holds already
        "train/state/serialize.py",
        # messages of processes that one torchrun started, and states inside a checkpoint, whose size is checked
        "train/group/meeting.py", "train/group/processes.py", "train/group/states.py", "train/group/turns.py"}


# --- labels ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("content", "what"), [
    ("2 5 200000000\n0 1:1\n1 2:1\n", "labels"), ("2 200000000 5\n0 1:1\n1 2:1\n", "features"),
    ("30000000 1:1\n1 2:1\n", "labels"), ("3 1:1\n1 30000000:1\n", "features"),
])
def test_number_of_labels_without_documents_is_rejected(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "x.txt").write_text(content)
    with cpu_seconds(2), pytest.raises(DataError, match=rf"x\.txt: declares [\d,]+ {what}, but its documents "
                                                        r"contain 2 in total"):
        labelled.load([tmp_path / "x.txt"], "auto", LabelsConfig(), None, "x")
