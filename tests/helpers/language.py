"""Counts avoidable words per folder, for tests/language_budget.yaml.

    PYTHONPATH=tests python -m helpers.language

lowers the budget to the current counts. It never raises a number.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BUDGET = ROOT / "tests" / "language_budget.yaml"
HEAD = """\
# Words that plain English does without, and openings of module docstrings that name nothing, counted per folder.
# A folder that is not listed has none. The numbers may only fall: PYTHONPATH=tests python -m helpers.language
"""
PATTERNS = ("embtrain/**/*.py", "embtrain/**/*.cpp", "embtrain/**/*.h", "configs/**/*.yaml", "tests/**/*.py",
            "*.md", "docs/**/*.md")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")   # part of a name in any style
# Generated, and in docs/results/comparisons the recorded output of programs.
NO_PAGES = ("docs/_build", "docs/reference/registry", "docs/results/generated", "docs/results/comparisons")


def budget() -> dict[str, Any]:
    loaded = yaml.safe_load(BUDGET.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def n_words(text: str, words: list[str]) -> int:
    """Count words, also as parts of names in any style: x, has_x, HasX."""
    counted = Counter(part.lower() for part in PART.findall(text))
    return sum(counted[word] for word in words)


def has_empty_opening(text: str, openings: list[str]) -> bool:
    """Whether the module docstring begins with one of these words."""
    first = (ast.get_docstring(ast.parse(text)) or "").split(maxsplit=1)[:1]
    return bool(first) and first[0] in openings


def files() -> Iterator[tuple[str, Path]]:
    """(folder, path) of every counted file. A page in the root counts as a folder."""
    for glob in PATTERNS:
        for path in sorted(ROOT.glob(glob)):
            name = path.relative_to(ROOT)
            if not name.as_posix().startswith(NO_PAGES) and "__pycache__" not in name.parts:
                yield folder(name), path


def folder(name: Path) -> str:
    """Two levels of embtrain and docs, three of tests, or the name of a page in the root."""
    parts = name.parts[:-1][:3 if name.parts[0] == "tests" else 2]
    return "/".join(parts) or name.name


def counts(words: list[str], openings: list[str]) -> dict[str, dict[str, int]]:
    """{"words": {folder: n}, "module_openings": {folder: n}}, without empty folders."""
    totals: dict[str, Counter[str]] = {"words": Counter(), "module_openings": Counter()}
    for place, path in files():
        text = path.read_text(encoding="utf-8")
        totals["words"][place] += n_words(text, words)
        if path.suffix == ".py":
            totals["module_openings"][place] += has_empty_opening(text, openings)
    return {kind: {place: n for place, n in sorted(by_folder.items()) if n} for kind, by_folder in totals.items()}


def main() -> None:
    old = budget()
    now = counts(old["words"], old["openings"])
    lower = {kind: {place: min(n, now[kind].get(place, 0)) for place, n in old["budget"][kind].items()}
             for kind in now}
    kept = {kind: {place: n for place, n in by_folder.items() if n} for kind, by_folder in lower.items()}
    BUDGET.write_text(HEAD + yaml.safe_dump({**old, "budget": kept}, sort_keys=False, width=110), encoding="utf-8")


if __name__ == "__main__":
    main()
