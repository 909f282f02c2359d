"""Lists of file names for a line on the terminal and for identity.json, cut where they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_SHOWN = 3       # names of one part, or of one reason, in a line
MAX_STORED = 100    # the same in identity.json


def format_line(tree: dict[str, Any]) -> str:
    """The line of a `tree`: `files: train: a.txt; test: b.txt; passed over: c.txt~ (a backup copy)`."""
    parts = [f"{part}: {summarize(names)}" for part, names in tree.items() if part != "passed over"]
    passed = [f"{summarize(names)} ({reason})" for reason, names in tree.get("passed over", {}).items()]
    return "files: " + "; ".join([*parts, *([f"passed over: {', '.join(passed)}"] if passed else [])])


def truncate(names: Sequence[str], max_names: int = MAX_STORED) -> list[str]:
    """The first names, and how many more there are."""
    return [*names[:max_names], *([f"... and {len(names) - max_names:,} more"] if len(names) > max_names else [])]


def summarize(names: Sequence[str]) -> str:
    """Up to SHOWN names, else the first and how many there are."""
    if len(names) <= MAX_SHOWN:
        return ", ".join(names)
    n = len(names) if not names[-1].startswith("... and ") else MAX_STORED + int(names[-1].split()[2].replace(",", ""))
    return f"{n:,} files ({names[0]}, ...)"
