"""The words with an id, in order: count descending, then the code points of the word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from embtrain.common.errors import DataError
from embtrain.common.files import write_atomically


@dataclass(frozen=True)
class Vocabulary:
    """V words and their counts in the training text."""

    words: list[str]      # V, the most frequent first
    counts: np.ndarray    # (V,) int64  occurrences in the training text
    total: int            # tokens of the training text, rare ones included

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Map each word to its id."""
        return {word: i for i, word in enumerate(self.words)}

    def write(self, path: Path) -> None:
        """Write `word TAB count`, one a line."""
        with write_atomically(path) as file:
            for word, count in zip(self.words, self.counts.tolist(), strict=True):
                file.write(f"{word}\t{count}\n".encode("utf-8", "surrogatepass"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of `write`; `total` is then the sum of the counts, since rare words are not in the file.

        Raises DataError if the file cannot be read, is malformed, or contains a word twice.
        """
        words, counts = [], []
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start}: not UTF-8") from error
        for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
            word, _, count = line.partition("\t")
            if not word or not (count.isascii() and count.isdigit()) or len(count) > 18:
                raise DataError(f"{path}:{number}: expected a word, a TAB and a count, found {line[:40]!r}")
            words.append(word)
            counts.append(int(count))
        if len(set(words)) != len(words):
            raise DataError(f"{path}: contains a word twice")
        return cls(words, np.array(counts, dtype=np.int64), sum(counts))


def choose(words: list[str], counts: np.ndarray, min_count: int, max_size: int | None
           ) -> tuple[Vocabulary, np.ndarray]:
    """Choose the words that occur at least `min_count` times, at most `max_size` of them.

    words: all words that were read. counts: (W,) in the training text. Returns the vocabulary and the new id of each
    word, (W,) int32, -1 for none. Raises DataError if no word is left.
    """
    candidates = np.flatnonzero(counts >= max(min_count, 1))
    times = counts[candidates].tolist()
    ranked = sorted(zip([-c for c in times], [words[i] for i in candidates.tolist()], candidates.tolist(), strict=True))
    if max_size is not None:
        ranked = ranked[:max_size]
    total = int(counts.sum())
    if not ranked:
        raise DataError(f"text.min_count: no word occurs {min_count} times in the training text ({total:,} "
                        "tokens); lower it")
    chosen = np.array([old for _, _, old in ranked], dtype=np.int64)
    renumber = np.full(len(words), -1, dtype=np.int32)
    renumber[chosen] = np.arange(len(chosen), dtype=np.int32)
    return Vocabulary([word for _, word, _ in ranked], counts[chosen].astype(np.int64), total), renumber
