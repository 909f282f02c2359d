"""Pieces of words in parallel text: recognised, and joined to words again.

    bpe             am mon@@ tag        @@ at the end of a piece that the next one continues
    sentencepiece   ▁am ▁mon tag        ▁ where a word begins
    wordpiece       am mon ##tag        ## at the beginning of a piece that continues a word

A tokenizer of words would read these marks as signs. `auto` recognises them in a file by the share of its lines that
have one: text cut into pieces has them in most lines, other text in next to none. In between a warning names the key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Pieces = Literal["auto", "none", "bpe", "sentencepiece", "wordpiece"]

MIN_SHARE, MIN_LINES = (
    0.05,
    3,
)  # of a file's lines, at least, and lines, where its pieces are joined without being named
KEY = "translation.pieces"
_SEEN = {"bpe": re.compile(r"(?<=\S)@@(?: |$)"), "sentencepiece": re.compile(r"^▁(?=[^▁\s])"),
         "wordpiece": re.compile(r"(?<=\S) ##(?=\w)")}


def detect_kind(lines: Sequence[str]) -> tuple[str, int]:
    """The kind of pieces that most lines have, or `none`, and how many lines have them."""
    counts = {kind: sum(seen.search(line) is not None for line in lines) for kind, seen in _SEEN.items()}
    kind = max(counts, key=counts.__getitem__)
    return (kind, counts[kind]) if counts[kind] else ("none", 0)


def join_line(line: str, kind: str) -> str:
    """A line of whole words."""
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("▁", " ").strip()
    return line if kind == "none" else _SEEN[kind].sub("", line)


def join_pieces(lines: list[str], pieces: str, name: str) -> tuple[list[str], str, str]:
    """Lines of whole words, the kind of pieces that were joined, and a warning, '' for none."""
    kind, warning = pieces, ""
    if pieces == "auto":
        kind, n = detect_kind(lines)
        if n and n < max(MIN_LINES, MIN_SHARE * sum(map(bool, lines))):
            mark = {"bpe": "@@ at the end", "sentencepiece": "▁ at the beginning", "wordpiece": "## at the beginning"}
            warning = (f"{name}: {n:,} of {len(lines):,} lines have {mark[kind]} of a word; if those are "
                       f"pieces of words, set {KEY}: {kind}")
            kind = "none"
    return ([join_line(line, kind) for line in lines] if kind != "none" else lines), kind, warning
