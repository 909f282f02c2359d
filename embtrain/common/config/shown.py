"""Keys and values as errors show them."""

from __future__ import annotations

from typing import Any

KeyPath = tuple[str | int, ...]  # the path of a value: names of keys, positions in lists


def dotted(path: KeyPath) -> str:
    """Return the path of a key as text: a.b[0]."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f"{'.' if text else ''}{printable(key)}"
    return text


def describe_value(value: Any) -> str:
    """Return a value as errors show it, in at most 60 characters."""
    words = {True: "true", False: "false", None: "null"}
    if isinstance(value, dict):
        return "a section"
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: str) -> str:
    """Return the text on one line of at most 200 characters, unprintable characters escaped."""
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= 200 else text[:197] + "..."
