"""Reversible tokenizer of a translator, the same for every language.

    He said: "it's 3 o'clock!"   <->   He said : " it 's 3 o' clock ! "
    Il a 50 % !  (no-break blank)  <->   Il a 50 ▁% ⍽!

A word is a run of letters, digits and marks (vowel signs, points, accents, joiners), with single dots and hyphens
between them; 1,000 and 12:30 are words too. An apostrophe between two parts belongs to the second if that is an English
ending, else to the first. Every other character is a sign, a token of its own.

Spacing is reversible. Rules predict from the tokens alone whether a blank is between two of them. If the line differs
from the prediction, the sign at that position gets a mark on that side: ￭ nothing, ▁ a blank, ⍽ a no-break blank, ⎵ a
narrow one. Tokens therefore preserve the spacing of the line; a translator learns the marks as part of the vocabulary.
Other blanks, and runs of blanks, become one blank. Text is not normalized: NFD stays NFD. Source lines, which are only
read, are normalized and have no marks: `tokenize_source`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache
from typing import Literal

Tokenizer = Literal["auto", "whitespace", "signs"]

VERSION = 2  # incremented when the same line gives other tokens
_ENDINGS = "(?i:s|t|re|ll|ve|d|m)"
_GLUE = "￭"
_OF_GAP = {"": _GLUE, " ": "▁", "\xa0": "⍽", "\u202f": "⎵"}
_GAPS = {mark: gap for gap, mark in _OF_GAP.items()}
_LEFT = frozenset(".,!?;:%)]}।॥،؛؟۔。，！？；：、）」』】》")  # signs without a blank before them
_RIGHT = frozenset("([{¿¡$£€#（「『【《")               # signs without a blank after them
_QUOTES = {quote: family for family in ('"', "'‘’‚`´", "“”„‟", "«»", "‹›") for quote in family}
_INVISIBLE = dict.fromkeys(map(ord, "\xad\u2060\ufeff"))     # soft hyphen, word joiner, byte order mark


@cache
def _token() -> re.Pattern[str]:
    places = itertools.chain(range(0xA0, 0x20000), range(0xE0000, 0xE0200))  # the planes in between have no marks
    attached = "".join(c for c in map(chr, places) if unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf")
                       and c != "\u200b") + "\U0001f3fb-\U0001f3ff"           # U+200B separates words
    run = rf"(?:\w++|[{attached}]++)++"
    word = (rf"{run}(?:[-‐.·‧״׳](?=[\w{attached}]){run}|(?<=\d)[,:](?=\d){run}"
            rf"|['’](?=[^\W\d_\0-\u024f]){run})*+")                            # not Latin: the apostrophe is a letter
    ending, elided = rf"['’]{_ENDINGS}(?![\w{attached}])", rf"['’](?=[^\W\d_])(?!{_ENDINGS}(?![\w{attached}]))"
    sign = rf"\S[{attached}]*+(?:(?<=\u200d)[^\w\s][{attached}]*+)*+"         # emoji that U+200D joins are one
    return re.compile(rf"(?<=[\w{attached}]){ending}|{word}(?:{elided})?|{sign}")


def tokenize_line(line: str, tokenizer: Tokenizer, lower: bool) -> list[str]:
    """Return the tokens of a line, with marks where spacing is not the default. `auto` means `signs`."""
    line = line.lower() if lower else line
    return line.split() if tokenizer == "whitespace" else _add_marks(line)


def tokenize_source(line: str, tokenizer: Tokenizer, lower: bool) -> list[str]:
    """Return the tokens of a source line: NFC, without invisible characters and without spacing marks."""
    line = unicodedata.normalize("NFC", line.translate(_INVISIBLE))
    line = line.lower() if lower else line
    return line.split() if tokenizer == "whitespace" else _token().findall(line)


def strip_marks(word: str) -> str:
    """Return a token without its spacing marks."""
    return _split_marks(word)[1]


def detokenize(words: list[str], capital: bool, tokenizer: Tokenizer = "signs") -> str:
    """Return the line of these tokens. capital: capitalize its first letter, for models trained in lower case."""
    if tokenizer == "whitespace":
        text = " ".join(words)
    else:
        spacing, out, after = _Spacing(), list[str](), ""
        for word in words:
            left, core, right = _split_marks(word)
            default = spacing.default(core)
            mark = left or after
            out += [_GAPS[mark] if mark else default, core] if out else [core]
            spacing.advance(core, left)
            after = right
        text = "".join(out)
    return _capitalize(text) if capital else text


class _Spacing:
    """Predicts the blanks between the tokens of a line, from left to right."""

    def __init__(self) -> None:
        self._open: set[str] = set()                          # open families of quotation marks
        self._glued = True                                    # no gap before the first token

    def default(self, core: str) -> str:
        """Return "" or " ", the predicted gap between the last token and this one."""
        ending = core[0] in "'’" and core[1:].isalpha()       # 's
        return "" if self._glued or ending or core[0] in _LEFT or _family(core) in self._open else " "

    def advance(self, core: str, left: str) -> None:
        """Advance past a token. left: the mark before it, '' for none."""
        family = _family(core)
        opens = family is not None and family not in self._open
        self._glued = core[0] in _RIGHT or opens or (core[-1] in "'’" and len(core) > 1)
        if family is not None and not (opens and left == _GLUE):  # after a letter it is an apostrophe: girls'
            self._open ^= {family}


def _family(core: str) -> str | None:
    return None if core[1:].isalpha() else _QUOTES.get(core[0])


def _add_marks(line: str) -> list[str]:
    spacing, end = _Spacing(), 0
    cores, left, right = list[str](), list[str](), list[str]()
    for match in _token().finditer(line):
        core, gap = match.group(), line[end:match.start()]
        gap, end, mark = gap if gap in _OF_GAP else " ", match.end(), ""
        if cores and (gap != spacing.default(core) or _writes_marks(core) or _writes_marks(cores[-1])):
            if _is_sign(core) or not _is_sign(cores[-1]):
                mark = _OF_GAP[gap]
            if _is_sign(cores[-1]):
                right[-1] = "" if mark and not _writes_marks(cores[-1]) else _OF_GAP[gap]
        spacing.advance(core, mark)
        cores.append(core)
        left.append(mark or (_OF_GAP[" "] if _writes_marks(core) else ""))
        right.append(_OF_GAP[" "] if _writes_marks(core) else "")
    return [a + core + b for a, core, b in zip(left, cores, right, strict=True)]


def _writes_marks(core: str) -> bool:
    """Return whether a token itself begins or ends with a mark character.

    Its spacing marks are then always written, so that the two can be distinguished.
    """
    return core[0] in _GAPS or core[-1] in _GAPS


def _is_sign(core: str) -> bool:
    """Return whether a token carries the marks of adjacent gaps: a sign, or a word with an apostrophe at an end. A word
    has a mark only if no sign is adjacent."""
    return not (core[0].isalnum() or core[0] == "_") or core[-1] in "'’"


def _split_marks(word: str) -> tuple[str, str, str]:
    """Return left mark, token and right mark; '' for none."""
    left = word[0] if len(word) > 1 and word[0] in _GAPS else ""
    word = word[len(left):]
    right = word[-1] if len(word) > 1 and word[-1] in _GAPS else ""
    return left, word[:len(word) - len(right)], right


def _capitalize(text: str) -> str:
    first = next((i for i, c in enumerate(text) if c.isalnum()), len(text))
    if text[first:first + 2] == "i\u0307":                    # lower case of İ
        return f"{text[:first]}İ{text[first + 2:]}"
    return text[:first] + text[first:first + 1].title() + text[first + 1:]
