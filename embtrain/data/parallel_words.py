"""A line of running text <-> words of a translator: letters, numbers and signs apart, the same in every language.

    it's well-known: 3.5 l'eau!   <->   it 's well-known : 3.5 l' eau !

A number keeps the points and commas inside it, a word its hyphens and dots inside. Of two parts with an apostrophe
between them the second takes it where it is one of English's endings, else the first does. So `untokenised` knows from
the words alone where no blank was; quotation marks stand at the word after the first of two, before the second.
"""

from __future__ import annotations

import re
from typing import Literal

Tokenizer = Literal["auto", "whitespace", "signs"]

_ENDINGS = "s|t|re|ll|ve|d|m"
_WORD = re.compile(
    r"\d+(?:[.,:]\d+)*"                                       # 3.5  1,000  12:30
    rf"|(?<=\w)['’](?:{_ENDINGS})\b"                          # it's: 's
    r"|[^\W\d_]+(?:[-‐.][^\W\d_]+)*"                          # well-known  e.g
    rf"(?:['’](?=[^\W\d_])(?!(?:{_ENDINGS})\b))?"             # l'eau: l'
    r"|\w+|[^\w\s]", re.IGNORECASE)
_LEFT = re.compile(rf"[.,!?;:%…)\]}}»]+|['’](?:{_ENDINGS})", re.IGNORECASE)  # no blank stands before these
_RIGHT = re.compile(r"[(\[{«¿¡$£€#]|[^\W\d_]+(?:[-‐.][^\W\d_]+)*['’]")    # nor after these
_QUOTE = re.compile(r"""["'’`]""")


def words_of(line: str, tokenizer: Tokenizer, lower: bool) -> list[str]:
    """The words of a line; `auto` is `signs` here."""
    if lower:
        line = line.lower()
    return line.split() if tokenizer == "whitespace" else _WORD.findall(line)


def untokenised(words: list[str], capital: bool) -> str:
    """Running text again. capital: its first letter becomes a large one, for what was learnt in lower case."""
    out: list[str] = []
    glued, opened = True, False                               # nothing stands before; no quotation is open
    for word in words:
        quote = _QUOTE.fullmatch(word) is not None
        if not (glued or _LEFT.fullmatch(word) or (quote and opened)):
            out.append(" ")
        out.append(word)
        glued = _RIGHT.fullmatch(word) is not None or (quote and not opened)
        opened = opened != quote
    text = "".join(out)
    return text[:1].upper() + text[1:] if capital else text
