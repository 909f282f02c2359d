"""Count the letters and digits that a tokenizer drops.

digits        digits; the tokenizers words and wiki read only letters
joints        signs _ between two letters or digits, at which words are split
long, short   letters of words longer than token_max or shorter than token_min
lost, unsplit  letters in long runs of scripts that are written without blanks between words: dropped, and read as if
              the run were one word
letters       all of them; counted only if one of the others is not 0
prose         1 if the tokenizer words split any of it, 0 if wiki split all
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from embtrain.data.text.words import find_words
from embtrain.kernels.text.scan import Scanned

DIGITS, JOINTS, LONG, SHORT, LOST = range(5)
_NAMES = ("digits", "joints", "long", "short", "lost")
_JOINT = re.compile("(?<=[0-9A-Za-z\x80-\U0010ffff])_(?=[0-9A-Za-z\x80-\U0010ffff])")
_FOREIGN_DIGIT = re.compile(r"[^\D\x00-\x7f]")
_LETTER = re.compile(r"[^\W_]")
_IDEOGRAPHS = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d" \
              "\U00020000-\U000323af"  # Chinese and Japanese
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff" \
             "\uaa60-\uaadf"             # Thai, Lao, Burmese, Khmer, Tai, Balinese, Javanese
MAX_UNSEGMENTED = 10  # ideographs in a word of segmented text; twice as many letters and signs of the others
_RUN = re.compile(f"[{_IDEOGRAPHS}]{{{MAX_UNSEGMENTED + 1}}}|[{_SYLLABLES}]{{{2 * MAX_UNSEGMENTED + 1}}}")


class Census:
    """Sums over all documents that were split into words."""

    def __init__(self) -> None:
        self._n = np.zeros(len(_NAMES), dtype=np.int64)
        self._is_used = self._is_prose = False

    def add(self, counts: np.ndarray) -> None:
        """Add counts, (5,) int64."""
        self._n += counts
        self._is_used = True

    def add_scanned(self, scanned: Scanned) -> None:
        """Add the counts of a chunk that the core scanned."""
        self._is_prose = True
        self.add(np.array([*scanned.left_out, 0], dtype=np.int64))

    def add_text(self, text: str, tokenizer: str, lower: bool, shortest: int, longest: int) -> None:
        """Add the counts of a text that Python split."""
        self._is_prose |= tokenizer == "words"
        counts = count_left_out(text, lower, shortest, longest)
        counts[DIGITS] += sum(map(text.count, "0123456789"))
        counts[JOINTS] = len(_JOINT.findall(text)) if "_" in text else 0
        self.add(counts)

    def tree(self) -> list[int]:
        """Return the sums as a list, for `add_tree`."""
        return [*self._n.tolist(), int(self._is_used), int(self._is_prose)]

    def add_tree(self, tree: list[int]) -> None:
        """Add the sums of another census, from its `tree`."""
        *counts, is_used, is_prose = tree
        if is_used:
            self.add(np.array(counts, dtype=np.int64))
        self._is_prose |= bool(is_prose)

    def facts(self, words: list[str], counts: np.ndarray) -> dict[str, int]:
        """Return all counts by name; empty if nothing is to be reported.

        words: V kept words. counts: (V,) their occurrences.
        """
        if not self._is_used:
            return {}
        unsplit = sum(n * count_letters(word) for word, n in zip(words, counts.tolist(), strict=True)
                      if len(word) > MAX_UNSEGMENTED and not word.isascii() and _RUN.search(word))
        if not unsplit and not self._n.any():
            return {}
        kept = sum(n * (len(word) if word.isalpha() else count_letters(word))
                   for word, n in zip(words, counts.tolist(), strict=True))
        left_out = int(self._n.sum() - self._n[JOINTS])
        return {**dict(zip(_NAMES, self._n.tolist(), strict=True)), "unsplit": unsplit, "letters": kept + left_out,
                "prose": int(self._is_prose)}


def count_left_out(text: str, lower: bool, shortest: int, longest: int) -> np.ndarray:
    """Count the letters that are dropped from a text, without digits and signs in ASCII: (5,) int64."""
    counts = np.zeros(len(_NAMES), dtype=np.int64)
    if not text.isascii():
        counts[DIGITS] = len(_FOREIGN_DIGIT.findall(text))
    for word in _beyond(find_words(text.lower() if lower else text), shortest, longest):
        kind = SHORT if len(word) < shortest else LOST if _RUN.search(word) else LONG
        counts[kind] += count_letters(word)
    return counts


def count_letters(word: str) -> int:
    """Return the number of letters and digits of a word."""
    return len(_LETTER.findall(word))


def _beyond(words: Iterable[str], shortest: int, longest: int) -> list[str]:
    return [word for word in words if not shortest <= len(word) <= longest]
