"""Detects pieces of words in parallel text and joins them to words.

    bpe             am mon@@ tag        @@ ends a piece that the next one continues
    sentencepiece   ▁am ▁mon tag        ▁ begins a word
    wordpiece       am mon ##tag        ## begins a piece that continues a word

A word tokenizer would treat these marks as signs. `auto` detects the kind in a file by the share of lines with a mark:
most lines of segmented text have one, next to none of other text. In between a warning names the key to set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from embtrain.common.terminal import format_part

Pieces = Literal["auto", "none", "bpe", "sentencepiece", "wordpiece"]

MIN_SHARE, MIN_LINES = (
    0.05,
    3,
)  # minimal share and number of lines with marks for automatic joining
KEY = "translation.pieces"
_SEEN = {"bpe": re.compile(r"(?<=\S)@@(?: |$)"), "sentencepiece": re.compile(r"^▁(?=[^▁\s])"),
         "wordpiece": re.compile(r"(?<=\S) ##(?=\w)")}


def detect_kind(lines: Sequence[str]) -> tuple[str, int]:
    """Return the kind of pieces that occurs in most lines, or `none`, and the number of these lines."""
    counts = {kind: sum(seen.search(line) is not None for line in lines) for kind, seen in _SEEN.items()}
    kind = max(counts, key=counts.__getitem__)
    return (kind, counts[kind]) if counts[kind] else ("none", 0)


def join_line(line: str, kind: str) -> str:
    """Return the line with its pieces joined to words."""
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("▁", " ").strip()
    return line if kind == "none" else _SEEN[kind].sub("", line)


def join_pieces(lines: list[str], pieces: str, name: str) -> tuple[list[str], str, str]:
    """Return the lines with pieces joined, the kind of pieces that were joined, and a warning ('' for none)."""
    kind, warning = pieces, ""
    if pieces == "auto":
        kind, n = detect_kind(lines)
        if n and n < max(MIN_LINES, MIN_SHARE * sum(map(bool, lines))):
            mark = {"bpe": "@@ at the end", "sentencepiece": "▁ at the beginning", "wordpiece": "## at the beginning"}
            part = format_part(n, len(lines), "lines", "has", "have")
            warning = f"{name}: {part} {mark[kind]} of a word; if those are subwords, set {KEY}: {kind}"
            kind = "none"
    return ([join_line(line, kind) for line in lines] if kind != "none" else lines), kind, warning
