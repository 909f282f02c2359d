"""Words of prose: runs of letters with the marks and joiners inside them (UAX #29, rule WB4)."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

ZWNJ, _ZWJ = "\u200c", "\u200d"
_SPELT = f"{ZWNJ}{_ZWJ}\u070f\u180e"  # format characters that are part of the spelling; two are of Syriac and Mongolian
_SEPARATE = "\u200b\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2\U000110bd\U000110cd"  # not in WB4
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"  # emoji modifiers


def find_words(text: str) -> list[str]:
    """Split text into words at every character that is neither a letter nor transparent inside a word.

    Marks, joiners and format characters do not end a word (UAX #29, rule WB4). Layout characters without a meaning of
    their own are removed, so that a word with a soft hyphen and the same word without one are equal. U+200C and U+200D
    change the spelling and stay; U+200C at the end of a word separates nothing and is removed.
    """
    letters, layout = _patterns()
    if text.isascii():
        return letters.findall(text)
    words = letters.findall(layout.sub("", text))
    return [word.rstrip(ZWNJ) for word in words] if ZWNJ in text else words


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a word, and of a layout character that is removed before words are matched."""
    places = [chr(c) for c in itertools.chain(range(0x80, 0x20000), range(0xE0000, 0xE0200))]  # no others in between
    formats = {c for c in places if unicodedata.category(c) == "Cf" and c not in _SEPARATE}
    spelt = {c for c in formats if c in _SPELT or "\U00013430" <= c <= "\U0001345f"}  # the range is of hieroglyphs
    marks = {c for c in places if unicodedata.category(c)[0] == "M"} | set(_SKIN_TONES)
    inner, layout = ("".join(sorted(group)) for group in (marks | spelt, formats - spelt))
    return re.compile(rf"[^\W\d_]+(?:[{inner}]+[^\W\d_]*)*"), re.compile(f"[{layout}]")
