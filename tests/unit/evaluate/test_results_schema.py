"""The schema of results.json: files round-trip, and a wrong key gives one line with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.comparisons import comparison

from embtrain.common.errors import DataError
from embtrain.common.json_records import MAX_VALUE
from embtrain.common.types import Score
from embtrain.evaluate.comparison.reproduction import (
    CheckResult,
    ClaimAxis,
    ProtocolDifference,
    ReportedNumber,
    Reproduction,
)
from embtrain.evaluate.comparison.results import ChosenSettings, ComparisonResults
from embtrain.experiment.comparison import results
from embtrain.experiment.comparison.outcome import CellOutcome, Point
from embtrain.report.load import comparison as reader

CLAIM = Reproduction(
    "x", "title", "citation", "claim", "holds", "sentence",
    [CheckResult("near", "a", "test/mrr", None, None, 1.0, 0.1, 1.0, 0.95, 1.05, 3, 0.9, 1.1, "holds", "text")],
    [ReportedNumber("what", 0.5, "table 1", "theirs", "published", None, None, None, 0, "not measured")],
    [ProtocolDifference("what", "theirs", "ours")], ClaimAxis("k", ["test/mrr"], {"a": 1.0}), "novels", 60.0, 12.5,
    "embtrain reproduce x", ["a note"])
KEYS = {
    "": ["plan", "cells", "summary", "differences", "at_equal", "notes", "verdict", "search", "reproduction"],
    "cells": ["cell", "strategy", "loss", "model", "seed", "folder", "status", "scores", "cpu_seconds"],
    "summary": ["strategy", "metric", "mean", "sd", "low", "high", "n"],
    "differences": ["a", "b", "metric", "mean", "low", "high", "p", "p_holm", "effect", "n", "verdict", "detectable",
                    "needed", "kind", "sd", "level", "higher_better", "note"],
    "search": ["strategy", "metric", "value", "trials", "failed", "settings", "cpu_seconds"],
}


def written(folder: Path) -> dict[str, Any]:
    """Write results.json as a comparison does: six finished cells and a failed one."""
    curve = [Point(10.0 * i, 100.0 * i, float(i), 2.0 * i, 0.1 * i) for i in (1, 2)]
    outcomes = [CellOutcome(f"{label}-seed{seed}", label, None, "transe", seed, folder / label, label,
                            scores=[Score("test", "mrr", level + seed / 10, 0.1, 0.9, 7, "a note")],
                            cpu_seconds=4.0 + seed, reached={"step": 20.0, "examples": 200.0, "epoch": 2.0},
                            curves={"valid/mrr": curve}) for label, level in (("a", 0.2), ("b", 0.3))
                for seed in (1, 2, 3)]
    outcomes.append(CellOutcome("b-seed4", "b", None, "transe", 4, folder / "b", "b", error="DataError: no"))
    results.write(folder, {"metric": "test/mrr", "baseline": "a", "benchmarks": []}, outcomes, CLAIM,
                  [ChosenSettings("a", "valid/mrr", 0.5, 3, 1, {"train.lr": 0.1, "loss.name": "nce"}, 9.0)])
    return json.loads((folder / "results.json").read_text())


def test_results_of_a_comparison_round_trip(tmp_path: Path) -> None:
    tree = written(tmp_path)
    record = ComparisonResults.from_json(tree)
    assert record.to_json() == tree and json.dumps(record.to_json()) == json.dumps(tree)
    assert record.reproduction == CLAIM and record.cells[-1].error == "DataError: no"
    assert not record.cells[-1].finished and record.cells[0].finished and len(record.at_equal.epochs.rows) == 6
    assert record.verdict[0] == "sentence"


def test_an_interval_over_seeds_ends_where_its_value_does(tmp_path: Path) -> None:
    outcomes = [CellOutcome(f"a-seed{seed}", "a", None, "transe", seed, tmp_path / "a", "a",
                            scores=[Score("test", "mrr", x), Score("drift", "accuracy", x)])
                for seed, x in enumerate((0.01, 0.02, 0.09))]
    results.write(tmp_path, {"metric": "test/mrr", "baseline": "a", "benchmarks": []}, outcomes)
    mrr, cost = json.loads((tmp_path / "results.json").read_text())["summary"]
    assert mrr["low"] == 0 and cost["low"] < -0.05 and mrr["high"] == cost["high"] > 0.09


def test_the_keys_of_the_file_and_their_order(tmp_path: Path) -> None:
    tree = written(tmp_path)
    for part, keys in KEYS.items():
        assert list(tree[part][0] if part else tree) == keys, part
    assert list(tree["cells"][-1]) == [*KEYS["cells"], "error"]
    assert list(tree["at_equal"]["epochs"]) == ["epochs", "steps", "examples", "rows", "note"]
    assert list(tree["at_equal"]["cpu_seconds"]) == ["budget", "rows", "note", "differences"]
    assert list(tree["at_equal"]["epochs"]["rows"][0]) == ["strategy", "seed", "metric", "value", "step", "cpu_seconds"]


def test_missing_keys_have_defaults(tmp_path: Path) -> None:
    """Files written before the keys search, reproduction and at_equal.cpu_seconds.differences existed."""
    folder = comparison(tmp_path / "novels")
    tree = json.loads((folder / "results.json").read_text())
    assert "differences" not in tree["at_equal"]["cpu_seconds"] and "search" not in tree
    record = ComparisonResults.from_json(tree)
    assert record.search is None and record.at_equal.cpu_seconds.differences == []
    assert "search" not in record.to_json() and len(reader.read(folder).cells) == 9
    assert ComparisonResults.from_json({}) == ComparisonResults()


@pytest.mark.parametrize(("place", "key", "message"), [
    ("", None, "unknown key 'typo'; the keys are plan, cells, summary"),
    ("cells/1", None, "cells: row 2: unknown key 'typo'; the keys are cell, strategy, loss"),
    ("cells/0/scores/0", None, "cells: row 1: scores: row 1: unknown key 'typo'; the keys are benchmark, metric"),
    ("summary/2", None, "summary: row 3: unknown key 'typo'"),
    ("at_equal/epochs/rows/1", None, "at_equal: epochs: rows: row 2: unknown key 'typo'"),
    ("reproduction/checks/0", None, "reproduction: checks: row 1: unknown key 'typo'"),
    ("cells/6", "status", "cells: row 7: key 'status' is missing"),
    ("cells/0/scores/0", "value", "cells: row 1: scores: row 1: key 'value' is missing"),
    ("summary/0", "n", "summary: row 1: key 'n' is missing"),
    ("differences/0", "verdict", "differences: row 1: key 'verdict' is missing"),
    ("search/0", "settings", "search: row 1: key 'settings' is missing"),
    ("reproduction", "command", "reproduction: key 'command' is missing"),
])
def test_an_unknown_or_missing_key_is_one_line_with_its_place(tmp_path: Path, place: str, key: str | None,
                                                              message: str) -> None:
    tree = inner = written(tmp_path)
    for step in place.split("/") if place else []:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    if key is None:
        inner["typo"] = 1
    else:
        del inner[key]
    (tmp_path / "results.json").write_text(json.dumps(tree))
    with pytest.raises(DataError) as caught:
        reader.read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'results.json'}: {message}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("place", "value", "message"), [
    ("differences/0/kind", "weeks", "differences: row 1: kind must be one of seeds, items"),
    ("differences/0/needed", 1.5, "differences: row 1: needed must be a count"),
    ("differences/0/higher_better", 1, "differences: row 1: higher_better must be true or false"),
    ("differences/0/level", None, "differences: row 1: level must be a finite number"),
    ("search/0/settings", [], "search: row 1: settings: a mapping is expected, not a list"),
    ("at_equal", [], "at_equal: a mapping is expected, not a list"),
    ("cells/0/scores", None, "cells: row 1: scores: a list is expected, not nothing"),
    ("cells/0/cpu_seconds", True, "cells: row 1: cpu_seconds must be a finite number or null"),
])
def test_a_value_of_the_wrong_type_is_named(tmp_path: Path, place: str, value: Any, message: str) -> None:
    tree = inner = written(tmp_path)
    *steps, last = place.split("/")
    for step in steps:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    inner[last] = value
    with pytest.raises(ValueError) as caught:
        ComparisonResults.from_json(tree)
    assert str(caught.value).startswith(message)


def test_a_value_too_large_to_draw_is_read_as_none(tmp_path: Path) -> None:
    tree = written(tmp_path)
    tree["summary"][0]["mean"] = 10 * MAX_VALUE
    assert ComparisonResults.from_json(tree).summary[0].mean is None
