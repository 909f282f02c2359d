"""Lists of file names for the terminal and identity.json, truncated if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_SHOWN = 3       # names of a part or a reason on a line
MAX_STORED = 100    # names of a part or a reason in identity.json


def format_line(tree: dict[str, Any]) -> str:
    """Return the line of a `tree`: `files: train: a.txt; test: b.txt; skipped: c.txt~ (a backup copy)`."""
    parts = [f"{part}: {summarize(names)}" for part, names in tree.items() if part != "passed over"]
    passed = [f"{summarize(names)} ({reason})" for reason, names in tree.get("passed over", {}).items()]
    return "files: " + "; ".join([*parts, *([f"skipped: {', '.join(passed)}"] if passed else [])])


def truncate(names: Sequence[str], max_names: int = MAX_STORED) -> list[str]:
    """Return the first names, and the number of others."""
    return [*names[:max_names], *([f"... and {len(names) - max_names:,} more"] if len(names) > max_names else [])]


def summarize(names: Sequence[str]) -> str:
    """Return up to MAX_SHOWN names, else their number and the first."""
    if len(names) <= MAX_SHOWN:
        return ", ".join(names)
    n = len(names) if not names[-1].startswith("... and ") else MAX_STORED + int(names[-1].split()[2].replace(",", ""))
    return f"{n:,} files ({names[0]}, ...)"
