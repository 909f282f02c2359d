"""Character n-grams of words, and the rows of a table that belong to them [bojanowski2017].

The n-grams of a word are all substrings of `<word>` of min_n to max_n characters (code points), in the order of their
first character, shorter ones first. As in fastText, a single `<` at the beginning or `>` at the end does not count, and
`</s>`, the end of a line in fastText's files, has none. An n-gram that occurs twice in a word counts twice.

    hashed   row = FNV-1a(UTF-8 bytes) mod buckets, equal to fastText bit for bit: colliding n-grams share a row
    exact    one row per distinct n-gram of a vocabulary; other n-grams are left out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from embtrain.common.errors import DataError

END_OF_LINE = "</s>"
MAX_N = 64              # characters of an n-gram
MAX_BUCKETS = 2**31 - 1  # fastText stores them as int32
_CELLS = 1 << 21        # n-grams that are computed at once
_OFFSET, _PRIME = np.uint32(2166136261), np.uint32(16777619)  # FNV-1a, 32 bits
_POINT_BITS = 21        # bits of a code point


class _Text:
    """Code points of `<word>` for several words, one after the other: C characters."""

    def __init__(self, words: Sequence[str]):
        self.joined = "<" + "><".join(words) + ">" if words else ""
        length = np.fromiter(map(len, words), np.int64, len(words)) + 2
        ends = np.cumsum(length)
        self.word = np.repeat(np.arange(len(words), dtype=np.int32), length)    # (C,) word of a character
        self.left = np.repeat(ends, length)                                     # (C,) characters to the word's end
        self.left -= np.arange(len(self.word))
        self.is_first = np.zeros(len(self.word), bool)
        self.is_first[ends - length] = True
        is_silent = np.fromiter((word == END_OF_LINE for word in words), bool, len(words))
        if is_silent.any():
            self.left[np.repeat(is_silent, length)] = 0

    def counted(self, n: int) -> np.ndarray:
        """Return the first characters (N,) of the n-grams of n characters."""
        if n > 1:
            return np.flatnonzero(self.left >= n)
        return np.flatnonzero((self.left > 1) & ~self.is_first)

    def points(self) -> np.ndarray:
        """Return the code points (C,) int64."""
        return np.frombuffer(self.joined.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)


class _Rule(Protocol):
    """Maps n-grams to rows."""

    @property
    def n_rows(self) -> int: ...

    def lengths(self, text: _Text, max_n: int) -> Iterator[np.ndarray]:
        """Yield, for n = 1 to max_n, the row (C,) of the n-gram that begins at each character; -1: left out."""
        ...


@dataclass(frozen=True)
class _Hash:
    """fastText's hash. Bytes from 0x80 on are sign-extended before they are combined, as in fastText."""

    n_rows: int

    def lengths(self, text: _Text, max_n: int) -> Iterator[np.ndarray]:
        signed = np.frombuffer(text.joined.encode("utf-8", "surrogatepass"), np.int8)
        start = np.flatnonzero((signed.view(np.uint8) & 0xC0) != 0x80)      # (C,) first byte of each character
        size = np.diff(start, append=len(signed))                           # (C,) its bytes
        code = signed.astype(np.int32).view(np.uint32)
        widest = int(size.max(initial=1))
        state = np.full(len(start), _OFFSET)
        for n in range(1, max_n + 1):
            begin = np.flatnonzero(text.left >= n)
            last = begin + (n - 1)
            for i in range(widest):
                if i:
                    is_long = size[last] > i
                    begin, last = begin[is_long], last[is_long]
                state[begin] = (state[begin] ^ code[start[last] + i]) * _PRIME
            yield (state % np.uint32(self.n_rows)).astype(np.int64)


class _Trie:
    """Prefix tree of the n-grams of a vocabulary; a node is an n-gram, and its row is its rank among the counted ones.

    Level n stores the nodes of n characters as sorted keys (parent node, code point), so that a node's number is its
    position, and n-grams are in the order of length, then code points.
    """

    def __init__(self, keys: list[np.ndarray], is_counted: list[np.ndarray]):
        """Store the levels. keys[n - 1]: (N,) int64, sorted; is_counted[n - 1]: (N,) whether a node has a row."""
        self.keys, self.row, self.n_rows = keys, list[np.ndarray](), 0
        for counted in is_counted:
            row = np.where(counted, self.n_rows + np.cumsum(counted) - 1, -1)
            self.row.append(row)
            self.n_rows += int(counted.sum())

    @classmethod
    def of_words(cls, text: _Text, min_n: int, max_n: int) -> _Trie:
        keys, is_counted = [], []
        points, node = text.points(), np.zeros(len(text.word), np.int64)
        for n in range(1, max_n + 1):
            begin = np.flatnonzero(text.left >= n)
            key = node[begin] << _POINT_BITS | points[begin + n - 1]
            level = np.unique(key)
            if not len(level):
                break
            node[begin] = np.searchsorted(level, key)
            counted = np.zeros(len(level), bool)
            if n >= min_n:
                counted[node[text.counted(n)]] = True
            keys.append(level)
            is_counted.append(counted)
        return cls(keys, is_counted)

    def lengths(self, text: _Text, max_n: int) -> Iterator[np.ndarray]:
        points, node = text.points(), np.zeros(len(text.word), np.int64)
        for n, (keys, row) in enumerate(zip(self.keys[:max_n], self.row, strict=False), 1):
            begin = np.flatnonzero((text.left >= n) & (node >= 0))
            key = node[begin] << _POINT_BITS | points[begin + n - 1]
            place = np.searchsorted(keys, key).clip(max=len(keys) - 1)
            node[begin] = np.where(keys[place] == key, place, -1)
            found = np.full(len(node), -1, np.int64)
            is_known = node[begin] >= 0
            found[begin[is_known]] = row[node[begin[is_known]]]
            yield found
        for _ in range(len(self.keys), max_n):
            yield np.full(len(node), -1, np.int64)

    def texts(self) -> list[str]:
        """Return the n-grams that have a row, in the order of their rows."""
        texts, level = list[str](), [""]
        for keys, row in zip(self.keys, self.row, strict=True):
            points = (keys & (1 << _POINT_BITS) - 1).tolist()
            level = [level[parent] + chr(point)
                     for parent, point in zip((keys >> _POINT_BITS).tolist(), points, strict=True)]
            texts += [level[i] for i in np.flatnonzero(row >= 0).tolist()]
        return texts


class Ngrams:
    """Character n-grams of min_n to max_n characters, mapped to rows 0 to n_rows - 1."""

    def __init__(self, min_n: int, max_n: int, buckets: int):
        """Map n-grams to `buckets` rows by fastText's hash. ValueError for a number out of range."""
        if not 1 <= min_n <= max_n <= MAX_N:
            raise ValueError(f"n-grams of {min_n} to {max_n} characters; give 1 <= min_n <= max_n <= {MAX_N}")
        if not 1 <= buckets <= MAX_BUCKETS:
            raise ValueError(f"{buckets:,} buckets; give 1 to {MAX_BUCKETS:,}")
        self.min_n, self.max_n = min_n, max_n
        self._rule: _Rule = _Hash(buckets)

    @classmethod
    def exact(cls, min_n: int, max_n: int, words: Sequence[str]) -> Ngrams:
        """Give every distinct n-gram of `words` a row of its own. The order of the words does not matter."""
        return cls._with(min_n, max_n, _Trie.of_words(_Text(words), min_n, max_n))

    @classmethod
    def restore(cls, settings: Mapping[str, int], texts: Sequence[str] | None) -> Ngrams:
        """Return the n-grams of `settings` and `texts`. DataError if they do not fit each other."""
        try:
            min_n, max_n = int(settings["min_n"]), int(settings["max_n"])
            if texts is None:
                return cls(min_n, max_n, int(settings["buckets"]))
            ngrams = cls._with(min_n, max_n, _restored(texts, min_n, max_n))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"n-grams: {error!s:.200}; write the file again") from error
        return ngrams

    @classmethod
    def _with(cls, min_n: int, max_n: int, trie: _Trie) -> Ngrams:
        ngrams = cls(min_n, max_n, 1)
        ngrams._rule = trie
        return ngrams

    @property
    def n_rows(self) -> int:
        """The number of rows: the buckets, or the distinct n-grams."""
        return self._rule.n_rows

    @property
    def is_exact(self) -> bool:
        """Whether every n-gram of the vocabulary has a row of its own."""
        return isinstance(self._rule, _Trie)

    def settings(self) -> dict[str, int]:
        """Return the numbers that `restore` needs, in addition to `texts`."""
        return {"min_n": self.min_n, "max_n": self.max_n} | ({} if self.is_exact else {"buckets": self.n_rows})

    def texts(self) -> list[str] | None:
        """Return the n-gram of each row; None if they are hashed."""
        return self._rule.texts() if isinstance(self._rule, _Trie) else None

    def rows(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return start (n + 1,) int64 and row (R,) int64: word i has the rows row[start[i]:start[i + 1]]."""
        start, parts = np.zeros(len(words) + 1, np.int64), []
        for begin, end in self._chunks(words):
            text = _Text(words[begin:end])
            widest = min(self.max_n, int(text.left.max(initial=0)))
            found = np.full((len(text.word), max(widest - self.min_n + 1, 0)), -1, np.int64)    # (C, lengths)
            for n, row in enumerate(self._rule.lengths(text, widest), 1):
                if n >= self.min_n:
                    counted = text.counted(n)
                    found[counted, n - self.min_n] = row[counted]
            is_row = found >= 0
            start[begin + 1:end + 1] = np.bincount(text.word, is_row.sum(1), end - begin)
            parts.append(found[is_row])
        np.cumsum(start, out=start)
        return start, np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _chunks(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Split words into ranges of at most about _CELLS n-grams."""
        width, begin, cells = self.max_n - self.min_n + 1, 0, 0
        for i, word in enumerate(words):
            cells += (len(word) + 2) * width
            if cells >= _CELLS:
                yield begin, i + 1
                begin, cells = i + 1, 0
        if begin < len(words):
            yield begin, len(words)


def _restored(texts: Sequence[str], min_n: int, max_n: int) -> _Trie:
    """Return the trie of a list that `Ngrams.texts` returned. ValueError for a list that it would not return."""
    if not all(min_n <= len(text) <= max_n for text in texts):
        raise ValueError(f"an n-gram is not of {min_n} to {max_n} characters")
    keys, is_counted = [], []
    length = np.fromiter(map(len, texts), np.int64, len(texts))
    first = np.cumsum(length) - length
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    node = np.zeros(len(texts), np.int64)
    for n in range(1, int(length.max(initial=0)) + 1):
        is_long = length >= n
        key = node[is_long] << _POINT_BITS | points[first[is_long] + n - 1]
        level = np.unique(key)
        node[is_long] = np.searchsorted(level, key)
        counted = np.zeros(len(level), bool)
        counted[node[length == n]] = True
        keys.append(level)
        is_counted.append(counted)
    trie = _Trie(keys, is_counted)
    if trie.texts() != list(texts):
        raise ValueError("the list is not in order, or an n-gram occurs twice")
    return trie
