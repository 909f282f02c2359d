"""Lists of file names for a line on the terminal and for identity.json, cut where they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SHOWN = 3        # names of one part, or of one reason, in a line
STORED = 100     # the same in identity.json


def line_of(tree: dict[str, Any]) -> str:
    """The line of a `tree`: `files: train: a.txt; test: b.txt; passed over: c.txt~ (a backup copy)`."""
    parts = [f"{part}: {in_words(names)}" for part, names in tree.items() if part != "passed over"]
    passed = [f"{in_words(names)} ({reason})" for reason, names in tree.get("passed over", {}).items()]
    return "files: " + "; ".join([*parts, *([f"passed over: {', '.join(passed)}"] if passed else [])])


def first_of(names: Sequence[str], most: int = STORED) -> list[str]:
    """The first names, and how many more there are."""
    return [*names[:most], *([f"... and {len(names) - most:,} more"] if len(names) > most else [])]


def in_words(names: Sequence[str]) -> str:
    """Up to SHOWN names, else the first and how many there are."""
    if len(names) <= SHOWN:
        return ", ".join(names)
    n = len(names) if not names[-1].startswith("... and ") else STORED + int(names[-1].split()[2].replace(",", ""))
    return f"{n:,} files ({names[0]}, ...)"
