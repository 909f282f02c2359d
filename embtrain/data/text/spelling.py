"""Look up words in a vocabulary: the exact spelling first, another one only if that is missing.

    1. the same characters
    2. the same text in another Unicode form: é as one character, or as e and a combining accent
    3. the same text in lower case, as `text.lower` writes a corpus
    4. the same text under Unicode case folding: ß and ss, σ and ς, İ and i

If several words match in one step, the first in the vocabulary, which is the most frequent, is returned.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

_DOTTED_I = "i\u0307"  # case folding maps İ to these two characters


class Spellings:
    """A vocabulary with look-up by spelling. words: V distinct words."""

    def __init__(self, words: Sequence[str], index: Mapping[str, int] | None = None):
        """Store the vocabulary. index: the position of each word, if it was built already."""
        self.words = words
        self.index = {word: i for i, word in enumerate(words)} if index is None else index

    def find(self, word: str) -> int:
        """Return the position of a word, -1 if no spelling of it is in the vocabulary."""
        if (position := self.index.get(word, -1)) >= 0:
            return position
        rows = self._rows(fold(word))
        for key in (_composed, _lowered):
            folded = key(word)
            for position in rows:
                if key(self.words[position]) == folded:
                    return position
        return rows[0] if rows else -1

    def same(self, position: int) -> list[int]:
        """Return the positions of all spellings of the word at `position`, ascending."""
        return self._rows(fold(self.words[position]))

    def spelled(self, words: Iterable[str]) -> dict[str, str]:
        """Map the words that are found under another spelling to that spelling."""
        spellings = {word: self.words[position] for word in words if (position := self.find(word)) >= 0}
        return {word: spelling for word, spelling in spellings.items() if spelling != word}

    @cached_property
    def is_lower(self) -> bool:
        """Return whether every word is in lower case, as in vectors of a folded corpus."""
        return all(word == word.lower() for word in self.words)

    def note(self, words: Iterable[str], max_shown: int = 3) -> str:
        """Return the part of a note that counts words found under another spelling; empty if there are none.

        In a vocabulary of lower-case words a look-up in lower case is not reported.
        """
        spelled = self.spelled(words)
        if self.is_lower:
            spelled = {word: spelling for word, spelling in spelled.items() if spelling != word.lower()}
        if not spelled:
            return ""
        examples = ", ".join(f"{word} as {spelling}" for word, spelling in list(spelled.items())[:max_shown])
        rest = ", ..." if len(spelled) > max_shown else ""
        return f"; {len(spelled):,} word{'s' * (len(spelled) > 1)} found in another spelling ({examples}{rest})"

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
        """Return all positions of the keys that several words share: few, so a list for each is affordable."""
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
