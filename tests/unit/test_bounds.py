"""What a hostile or a huge file costs: CPU time and memory grow with its size and no faster, or it is refused first."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import embtrain
from embtrain import files
from embtrain.errors import DataError
from embtrain.experiment import results
from embtrain.experiment.begun import as_begun
from embtrain.experiment.found import Found
from embtrain.experiment.run import Run
from embtrain.report import comparison as page
from embtrain.types import Row


@contextmanager
def cpu_seconds(most: float) -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < most


# --- score rows ------------------------------------------------------------------------------------------------------

def _joined(folder: Path, n: int, seeds: int = 1) -> None:
    """Compare two strategies that have n scores each, and write the report."""
    cells = [Found(f"{label}-{seed}", label, None, "m", seed, folder / label, label,
                   scores=[Row(f"b{i % 50}", f"m{i}", i + len(label), None, None, 5, "") for i in range(n)])
             for label in ("a", "bb") for seed in range(seeds)]
    results.write(folder, {"metric": "b0/m0", "baseline": "a", "benchmarks": []}, cells)
    page.write(folder)


def test_many_scores_are_joined_in_a_time_that_grows_with_their_number(tmp_path: Path) -> None:
    with cpu_seconds(40):                                    # about 8; as the square of n it was 500
        _joined(tmp_path, 10_000)
    table = (tmp_path / "scores.csv").read_text()
    assert table.count("\n") == 20_001 and "bb-0,bb,0,finished,,b49,m9999,10001.0,,,5," in table
    assert re.search(r"\| m9999[^|]*\| 9,999 \||m9999", (tmp_path / "report.md").read_text())


def test_more_scores_than_a_report_can_hold_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_SCORES", 100)
    with pytest.raises(DataError, match=r"102 scores in 2 cells; at most 100 are compared: name fewer runs"):
        _joined(tmp_path, 51)
    assert not (tmp_path / "results.json").exists()


# --- JSON ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("content", "says"), [
    (b"[" * 100_000, "nested too deep"), (b'{"a":' * 100_000, "nested too deep"),
    (b'"' + b"x" * 2000 + b'"', "more than"),
    (b"[1", "Expecting"), (b'"\xff"', "utf-8"),
])
def test_a_json_file_is_read_within_bounds(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        files.read_json(tmp_path / "a.json", max(1000, len(content) - 10 if says == "more than" else len(content)))


def test_a_json_file_of_100_mb_is_left_unread(tmp_path: Path) -> None:
    with open(tmp_path / "scores.json", "wb") as file:
        file.truncate(100 << 20)
    with cpu_seconds(2), pytest.raises(DataError, match=r"scores.json: holds no scores: more than 16,777,216 bytes"):
        _ = Run(tmp_path).scores


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{", "5"])
def test_an_identity_that_is_none_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    config: Any = type("", (), {"train": type("", (), {"engine": "auto"})})
    with pytest.raises(DataError, match=r"identity\.json: does not say which engine trained"):
        as_begun(tmp_path, config)


def test_json_of_a_folder_is_read_by_one_function() -> None:
    """json.loads stays where the text is bounded first."""
    package = Path(embtrain.__file__).parent
    parsing = {path.relative_to(package).as_posix() for path in package.rglob("*.py")
               if re.search(r"json\.loads?\(", path.read_text(encoding="utf-8"))}
    assert parsing == {"files.py", "data/formats.py", "data/json_lines.py", "data/members.py", "experiment/cells.py",
                       "experiment/handover.py", "report/record.py", "train/checkpoint.py", "train/log.py"}
