"""Escape text from files for Markdown: words, code spans and code blocks."""

from __future__ import annotations

import re

from embtrain.common.terminal import plain

MARKS = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def words(text: str) -> str:
    """Return `text` on one line, with Markdown marks, addresses and list markers escaped."""
    text = MARKS.sub(r"\\\1", plain(text).strip()).replace("://", r"\://").replace("www.", r"www\.")
    return re.sub(r"^(?:(?=[-+=])|(?P<number>\d+)(?=[.)](?:\s|$)))", lambda m: (m["number"] or "") + "\\", text)


def code(text: str) -> str:
    """Return `text` on one line as a code span, between more backticks than it contains in a row."""
    text = plain(text)
    ticks = "`" * (1 + _longest_run(text))
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def block(text: str, language: str = "") -> str:
    """Return the lines of `text` as a fenced code block, between more backticks than it contains in a row."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return "\n".join([fence + language, *(plain(line) for line in text.split("\n")), fence])


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
