"""Finds words in a vocabulary: the exact spelling first, another one only if the exact one is missing.

    1. the same characters
    2. the same text in another Unicode form: é as one character, or as e and a combining accent
    3. the same text in lower case, as `text.lower` writes a corpus
    4. the same text under Unicode case folding: ß and ss, σ and ς, İ and i

If several words match at one step, the first in the vocabulary, which is the most frequent, is taken.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

_DOTTED_I = "i\u0307"  # case folding turns İ into these two characters


class Spellings:
    """A vocabulary whose words are looked up by `find`. words: no word occurs twice."""

    def __init__(self, words: Sequence[str], index: Mapping[str, int] | None = None):
        """index: the position of each word, if it has been built already."""
        self.words = words
        self.index = {word: i for i, word in enumerate(words)} if index is None else index

    def find(self, word: str) -> int:
        """Return the position of a word, -1 if no spelling of it is in the vocabulary."""
        if (at := self.index.get(word, -1)) >= 0:
            return at
        rows = self._rows(fold(word))
        for key in (_composed, _lowered):
            wanted = key(word)
            for at in rows:
                if key(self.words[at]) == wanted:
                    return at
        return rows[0] if rows else -1

    def same(self, at: int) -> list[int]:
        """Return the positions of all spellings of the word at position `at`, in ascending order."""
        return self._rows(fold(self.words[at]))

    def spelled(self, words: Iterable[str]) -> dict[str, str]:
        """Return the words that are found under another spelling, and that spelling."""
        found = {word: self.words[at] for word in words if (at := self.find(word)) >= 0}
        return {word: other for word, other in found.items() if other != word}

    @cached_property
    def is_lower(self) -> bool:
        """Whether every word is in lower case, as in vectors of a corpus that was folded."""
        return all(word == word.lower() for word in self.words)

    def note(self, words: Iterable[str], named: int = 3) -> str:
        """Return the part of a note that counts words found under another spelling; empty if there are none.

        In a vocabulary of lower-case words a look-up in lower case is not reported.
        """
        spelled = self.spelled(words)
        if self.is_lower:
            spelled = {word: other for word, other in spelled.items() if other != word.lower()}
        if not spelled:
            return ""
        some = ", ".join(f"{word} as {other}" for word, other in list(spelled.items())[:named])
        rest = ", ..." if len(spelled) > named else ""
        return f"; {len(spelled):,} word{'s' * (len(spelled) > 1)} found in another spelling ({some}{rest})"

    def _rows(self, key: str) -> list[int]:
        return self._more.get(key) or ([self._first[key]] if key in self._first else [])

    @cached_property
    def _first(self) -> dict[str, int]:
        first: dict[str, int] = {}
        for i, word in enumerate(self.words):
            first.setdefault(fold(word), i)
        return first

    @cached_property
    def _more(self) -> dict[str, list[int]]:
        """All positions of the keys that several words share: few, so a list for each is affordable."""
        more: dict[str, list[int]] = {}
        if len(self._first) < len(self.words):
            for i, word in enumerate(self.words):
                if self._first[key := fold(word)] != i:
                    more.setdefault(key, [self._first[key]]).append(i)
        return more


def fold(word: str) -> str:
    """Return the key that all spellings of a word share: canonical caseless matching, with İ as i."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", word).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", decomposed).replace(_DOTTED_I, "i"))


def _composed(word: str) -> str:
    return unicodedata.normalize("NFC", word)


def _lowered(word: str) -> str:
    return unicodedata.normalize("NFC", _composed(word).lower())
