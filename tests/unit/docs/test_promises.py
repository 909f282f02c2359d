"""The page of promises: each figure has a slow test that prints it, and is replaced by its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.hostile_files import KINDS
from helpers.promises import PAGE, block, names, replaced, with_row

SLOW = Path(__file__).resolve().parents[2] / "slow"
TEXT = PAGE.read_text(encoding="utf-8")
TESTS = "".join(path.read_text(encoding="utf-8") for path in SLOW.rglob("*.py"))


def test_every_block_is_printed_by_a_test() -> None:
    assert len(set(names(TEXT))) == len(names(TEXT)) >= 10
    assert [name for name in names(TEXT) if f'tell("{name}"' not in TESTS] == []
    assert [name for name in names(TEXT) if not block(TEXT, name)] == []


def test_every_test_that_records_a_figure_has_a_block() -> None:
    recorded = [part.split('"')[0] for part in TESTS.split('tell("')[1:]]
    assert sorted(set(recorded) - set(names(TEXT))) == []


def test_every_kind_of_file_has_its_row() -> None:
    rows = [line.split(" | ")[0][2:] for line in block(TEXT, "damaged files").splitlines()[2:]]
    assert rows == [kind.name for kind in KINDS]


def test_a_block_is_replaced_and_nothing_else() -> None:
    page = "a\n<!-- printed: x -->\nold\n<!-- end -->\nb\n<!-- printed: y -->\nz\n<!-- end -->\n"
    assert block(replaced(page, "x", "new"), "x") == "new" and block(replaced(page, "x", "new"), "y") == "z"
    assert replaced(page, "x", "old") == page
    with pytest.raises(AssertionError, match="no block for 'w'"):
        replaced(page, "w", "new")


def test_a_row_takes_its_place() -> None:
    table = "| kind | n |\n|---|---|\n| a | 1 |\n| c | 3 |"
    assert with_row(table, "| b | 2 |", ["a", "b", "c"]).splitlines()[2:] == ["| a | 1 |", "| b | 2 |", "| c | 3 |"]
    assert with_row(table, "| a | 9 |", ["c", "a"]).splitlines()[2:] == ["| c | 3 |", "| a | 9 |"]
