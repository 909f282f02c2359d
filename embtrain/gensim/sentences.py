"""Sentences and corpus files as word ids, in a file that is memory-mapped.

An iterable of sentences is read twice: Word2Vec counts its words, then `encode_sentences` writes their ids. At no time
are more than BUFFER words in memory. A corpus file is read once, through the cache of the text reader.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embtrain.data.storage import npy
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.storage.folders import cache_folder
from embtrain.data.text.corpus import ReadingConfig, gather, plan_reading
from embtrain.data.text.tokenize import Offsets
from embtrain.gensim.arguments import MAX_LINE, check_rule, check_type
from embtrain.gensim.errors import SentencesError

BUFFER = 1 << 20  # words
_CONFIG = ReadingConfig(tokenizer="whitespace", lower=False)
_IDS = "ids.npy"


@dataclass(frozen=True)
class Ids:
    """A text as ids of the vocabulary; words without an id are left out."""

    ids: np.ndarray       # (N,) int32, memory-mapped
    sequence: np.ndarray  # (S+1,) int64  offsets that a window never crosses
    n_words: int          # with those left out


def read_file(path: Path) -> Encoded:
    """Read a corpus file through the cache: words between blanks, a sentence per line. Raises DataError."""
    return plan_reading([path], "tokens", _CONFIG, MAX_LINE, cache_folder() / "text", path.stem)[1]()


def encode_file(path: Path, index: Mapping[Hashable, int], folder: Path) -> Ids:
    """Write the ids of a corpus file into `folder`. index: id of each word."""
    text = read_file(path)
    renumber = np.array([index.get(word, -1) for word in text.words], dtype=np.int32)
    with open(folder / _IDS, "wb") as file:
        out = AppendableArray(file)
        sequence, _ = gather(text.ids, text.sequence, text.document, np.zeros(len(text.document) - 1, np.int8),
                             renumber, out)
        out.finish()
    return Ids(npy.load(folder / _IDS, "r"), sequence, len(text.ids))


def encode_sentences(sentences: Iterable[Iterable[Hashable]], index: Mapping[Hashable, int], folder: Path) -> Ids:
    """Write the ids of sentences into `folder`. index: id of each word. Raises SentencesError."""
    offsets, n_words = Offsets(MAX_LINE), 0
    with open(folder / _IDS, "wb") as file:
        out = AppendableArray(file)
        for ids, ends in _chunks(sentences, index):
            kept = ids >= 0
            offsets.end_lines(out.n + np.concatenate([[0], np.cumsum(kept)])[ends])
            out.append(ids[kept])
            n_words += len(ids)
        out.finish()
    return Ids(npy.load(folder / _IDS, "r"), offsets.sequence(), n_words)


def _chunks(sentences: Iterable[Iterable[Hashable]], index: Mapping[Hashable, int]
            ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids (n,) int32, −1 for words without an id, and the ends of sentences among them, (s,) int64."""
    ids, ends, none = array("i"), array("q"), itertools.repeat(-1)
    try:
        for sentence in sentences:
            ids.extend(map(index.get, sentence, none))
            ends.append(len(ids))
            if len(ids) >= BUFFER:
                yield np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int64)
                ids, ends = array("i"), array("q")
    except TypeError as error:
        raise not_words(error) from error
    yield np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int64)


def not_words(error: TypeError) -> SentencesError:
    """Return the error for items that are not lists of words."""
    return SentencesError(f"sentences: every item should be a list of words: {error}")


@contextmanager
def counting(trim_rule: Callable[..., int] | None, max_vocab_size: float | None
             ) -> Iterator[Callable[..., int] | None]:
    """Raise SentencesError for a TypeError while words are counted, unless `trim_rule` raised it.

    Yields the rule to count with. Raises ArgumentTypeError for settings of another type.
    """
    check_rule(trim_rule)
    check_type("max_vocab_size", max_vocab_size)
    of_rule = list[TypeError]()

    def decide(word: Hashable, count: int, min_count: float) -> int:
        assert trim_rule is not None
        try:
            return trim_rule(word, count, min_count)
        except TypeError as error:
            of_rule.append(error)
            raise

    try:
        yield decide if trim_rule is not None else None
    except TypeError as error:
        if any(error is other for other in of_rule):
            raise
        raise not_words(error) from error


def check_rereadable(sentences: object, passes: int) -> None:
    """Raise SentencesError for an iterator, which is empty after one of several passes."""
    if passes > 1 and isinstance(sentences, Iterator):
        raise SentencesError(f"sentences: a {type(sentences).__name__} can be read only once, and {passes} passes are "
                             "needed; give a list, or an object whose __iter__ starts again")
