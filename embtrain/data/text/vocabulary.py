"""Vocabulary: the words that have an id, the most frequent first, and equal counts by code point."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from embtrain.common.errors import DataError, read_error
from embtrain.common.files import write_atomically


@dataclass(frozen=True)
class Vocabulary:
    """V words, or entities or labels, and their counts in the training data. The id of a word is its index."""

    words: list[str]      # V, the most frequent first
    counts: np.ndarray    # (V,) int64  occurrences in the training data
    total: int | None     # occurrences of all words, also of those without an id; None: not known

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Map each word to its id."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def sha256(self) -> str:
        """The hash of the words and counts, as `write` writes them."""
        return hashlib.sha256(self._lines()).hexdigest()

    def write(self, path: Path) -> None:
        """Write a file with one line `word TAB count` per word, in the order of the ids."""
        with write_atomically(path) as file:
            file.write(self._lines())

    def _lines(self) -> bytes:
        lines = (f"{word}\t{count}\n" for word, count in zip(self.words, self.counts.tolist(), strict=True))
        return "".join(lines).encode("utf-8", "surrogatepass")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote. `total` is not known then: words without an id are not in the file.

        Raises DataError if the file cannot be read, is malformed, or contains a word twice.
        """
        words, counts = [], []
        try:
            lines = path.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        except OSError as error:
            raise read_error(path, error, f"cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start}: not UTF-8") from error
        for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
            word, _, count = line.partition("\t")
            if not word or not (count.isascii() and count.isdigit()) or len(count) > 18:
                raise DataError(f"{path}:{number}: expected a word, a TAB and a count, found {line[:40]!r}")
            words.append(word)
            counts.append(int(count))
        if not words:
            raise DataError(f"{path}: is empty; restore the file that training wrote")
        if len(set(words)) != len(words):
            raise DataError(f"{path}: contains a word twice")
        return cls(words, np.array(counts, dtype=np.int64), None)


def build_vocabulary(words: list[str], counts: np.ndarray, min_count: int, max_size: int | None, section: str = "text"
                     ) -> tuple[Vocabulary, np.ndarray]:
    """Give an id to the words that occur at least `min_count` times, the `max_size` most frequent of them at most.

    words: the W distinct words of a corpus. counts: (W,) occurrences in the training text; a word that occurs only in
    held-out text has 0 and gets no id. max_size: None for no limit. section: of the settings, for errors. Returns the
    vocabulary and the id of each of the W words, (W,) int32, -1 for none. Raises DataError if no word is left.
    """
    frequent = np.flatnonzero(counts >= max(min_count, 1))
    by_word = np.array(sorted(frequent.tolist(), key=words.__getitem__), dtype=np.int64)
    kept = by_word[np.argsort(-counts[by_word], kind="stable")][:max_size]  # equal counts by code point
    total = int(counts.sum())
    if not len(kept):
        raise DataError(f"{section}.min_count: no word occurs {min_count} times in the training text ({total:,} "
                        "tokens); lower it")
    new_ids = np.full(len(words), -1, dtype=np.int32)
    new_ids[kept] = np.arange(len(kept), dtype=np.int32)
    return Vocabulary([words[i] for i in kept.tolist()], counts[kept].astype(np.int64), total), new_ids


def extend_vocabulary(earlier: Vocabulary, words: list[str], counts: np.ndarray, min_count: int, max_size: int | None
                      ) -> tuple[Vocabulary, np.ndarray]:
    """Add the words of a further text to a vocabulary; arguments and result as those of `build_vocabulary`.

    All earlier words stay, and their counts are summed over both texts. A new word needs `min_count` occurrences in the
    further text, because no vocabulary has the counts of its rarer words; `max_size` limits new words only. Ids are by
    summed count, equal counts by code point: an earlier word may get another id.
    """
    summed = dict(zip(earlier.words, earlier.counts.tolist(), strict=True))
    new = [(-count, word) for word, count in zip(words, counts.tolist(), strict=True)
           if count >= max(min_count, 1) and word not in summed]
    for word, count in zip(words, counts.tolist(), strict=True):
        if word in summed:
            summed[word] += count
    room = None if max_size is None else max(0, max_size - len(summed))
    summed |= {word: -negative for negative, word in sorted(new)[:room]}
    ranked = sorted((-count, word) for word, count in summed.items())
    new_id = {word: i for i, (_, word) in enumerate(ranked)}
    total = int(earlier.counts.sum() + counts.sum())
    vocabulary = Vocabulary(list(new_id), np.array([-negative for negative, _ in ranked], dtype=np.int64), total)
    return vocabulary, np.array([new_id.get(word, -1) for word in words], dtype=np.int32)
