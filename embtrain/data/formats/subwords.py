"""Join running text that was split into subwords.

@@  BPE: `low@@ er`             ##  WordPiece: `low ##er`
▁   SentencePiece: `▁low er`     ￭   a joiner on one side or both: `low￭ er`, `( ￭ the`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from embtrain.data.formats.detect import Subwords

_JOINTS = {"@@": re.compile(r"(?<=\S)@@(?: +|(?=\n)|\Z)"), "##": re.compile(r" +##(?=\S)|(?<!\S)##(?=\S)"),
           "￭": re.compile(r" *￭ *")}


def join_subwords(pieces: Iterable[str], sign: Subwords) -> Iterator[str]:
    """Yield the same text with its subwords joined into words; line feeds stay."""
    rest = ""
    for piece in pieces:
        rest += piece
        cut = rest.rfind("\n") + 1
        if cut:
            yield _join(rest[:cut], sign)
            rest = rest[cut:]
    yield _join(rest, sign)


def _join(text: str, sign: Subwords) -> str:
    if sign == "▁":
        return text.replace(" ", "").replace("▁", " ")
    return _JOINTS[sign].sub("", text)
