"""Plain English: counts of avoided words per folder, which may only fall; names of classes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import language
from helpers.looped import looped

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "embtrain"
FILE = language.budget()
WORDS, OPENINGS = FILE["words"], FILE["openings"]


def differences(allowed: dict[str, int], counted: dict[str, int]) -> list[str]:
    """Return one line per folder whose count differs from its budget."""
    lines = []
    for place in sorted({*allowed, *counted}):
        most, n = allowed.get(place, 0), counted.get(place, 0)
        if n > most:
            lines.append(f"{place}: {n} where {most} are allowed: rewrite the new ones (CONTRIBUTING.md)")
        elif n < most:
            lines.append(f"{place}: {n}, and the budget is {most}: lower it (tests/helpers/language.py)")
    return lines


def test_counts_equal_their_budget() -> None:
    counted = language.counts(WORDS, OPENINGS)
    assert {kind: lines for kind, n in counted.items() if (lines := differences(FILE["budget"][kind], n))} == {}


@pytest.mark.parametrize(("n", "line"), [(4, "a: 4 where 3 are allowed"), (2, "a: 2, and the budget is 3"), (3, "")])
def test_counts_above_and_below_the_budget_are_found(n: int, line: str) -> None:
    counted = differences({"a": 3}, {"a": n})
    assert [text[:len(line)] for text in counted] == [line] * bool(line)
    assert len(differences({}, {"new": 1})) == 1 and len(differences({"gone": 1}, {})) == 1


@looped("text, n", [
    ("is told", 1), ("Told", 1), ("def was_asked(x_asks): ...", 2), ("class AsksAll", 1), ("asksAll", 1),
    ("folded families basked shallow suchlike", 0), ("it lies beside such a file", 3), ("", 0),
])
def test_words_are_found_in_prose_and_in_names(text: str, n: int) -> None:
    assert language.n_words(text, WORDS) == n


@pytest.mark.parametrize(("text", "is_empty"), [
    ('"""What a source draws."""', True), ('"""Of a row."""', True), ('"""Whatever."""', False),
    ('"""Draw k negatives."""', False), ("x = 1", False), ('"""How it ends."""', True),
])
def test_empty_openings_are_found(text: str, is_empty: bool) -> None:
    assert language.has_empty_opening(text, OPENINGS) is is_empty


def test_files_of_every_kind_are_counted() -> None:
    folders = {place for place, _ in language.files()}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "configs/strategies", "embtrain",
            "embtrain/negatives", "embtrain/kernels", "tests", "tests/contract", "tests/helpers",
            "tests/unit/negatives"} <= folders
    assert {path.suffix for _, path in language.files()} == {".py", ".cpp", ".h", ".yaml", ".md"}


def public_classes(paths: Iterator[Path]) -> dict[str, list[str]]:
    """Return public class -> modules that define it."""
    counted = defaultdict(list)
    for path in sorted(paths):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                counted[node.name].append(path.as_posix())
    return counted


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: paths for name, paths in public_classes(PACKAGE.rglob("*.py")).items() if len(paths) > 1} == {}


def test_planted_classes_of_one_name_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("class Case: ...\nclass _Private: ...\n")
    assert [len(paths) for paths in public_classes(tmp_path.rglob("*.py")).values()] == [2]
