"""Bytes of text -> types -> ids.

A type is a word as bytes, numbered as it first comes. Words in ASCII are known here: where they end, their lower case.
One that holds other bytes is foreign: it is kept as it stands, with all about it that str.lower() or a tokeniser could
look at, and the caller says once for each distinct one which words it stands for.

mode           what parts words                            what is foreign
WHITESPACE     what str.split() parts at, NUL              with a byte of 128 or more: what such blanks part, whole
WORDS          all but letters; of U+2000 to U+203F all    a run of letters and other bytes; with a Σ in it, and to be
               but joiners and direction marks             lowered, what blanks part
AS_IT_STANDS   a blank or a line feed                      nothing
A line ends at a line feed or a carriage return, in AS_IT_STANDS at a line feed alone.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.library import NO_MEMORY, OK, OUT_OF_RANGE, core
from embtrain.kernels.reference.text import scan as reference
from embtrain.kernels.reference.text.scan import VERBATIM, WHITESPACE, WORDS

__all__ = ["VERBATIM", "WHITESPACE", "WORDS", "Scanned", "Types", "expand", "renumber"]


class Scanned(NamedTuple):
    types: np.ndarray   # (n,) int32  the type of each word
    ends: np.ndarray    # (L,) int64  words before each end of a line; of empty lines only the first is told
    nul: int            # NULs that were read as blanks
    # WORDS, in ASCII alone: digits, signs _ between letters or digits, letters of words that are too long and too short
    left_out: tuple[int, int, int, int] = (0, 0, 0, 0)


class Types:
    """The distinct words of what was scanned. One thread at a time."""

    def __init__(self) -> None:
        self._core = None if (library := core()) is None else _typed(library)
        self._reference = reference.ReferenceTypes()
        self._handle = ctypes.c_void_p()
        if self._core is not None:
            _check(self._core.embtrain_text_open(ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if self._handle:
            assert self._core is not None
            self._core.embtrain_text_close(self._handle)

    def __len__(self) -> int:
        return len(self._reference) if self._core is None else self._size(0)[0]

    def scan(self, data: bytes, mode: int, lower: bool = False, shortest: int = 1, longest: int = 1 << 30) -> Scanned:
        """Of whole words: what comes next must not go on in the last of them."""
        if mode not in (WHITESPACE, WORDS, VERBATIM):
            raise ValueError(f"text: no mode {mode}")
        if self._core is None:
            return Scanned(*self._reference.scan(data, mode, lower, shortest, longest))
        n = len(data)
        types, ends = np.empty(n // 2 + 1, dtype=np.int32), np.empty(n // 2 + 2, dtype=np.int64)
        counts = (ctypes.c_int64 * 7)()
        _check(self._core.embtrain_text_scan(self._handle, data, n, mode, lower, shortest, longest, _at(types),
                                             _at(ends), counts))
        return Scanned(types[:counts[0]], ends[:counts[1]], counts[2], (counts[3], counts[4], counts[5], counts[6]))

    def since(self, number: int) -> tuple[list[bytes], np.ndarray]:
        """The types from that number on, and which of them are foreign."""
        if self._core is None:
            return self._reference.since(number)
        n, size = self._size(number)
        lines, foreign = ctypes.create_string_buffer(size), np.empty(n - number, dtype=bool)
        _check(self._core.embtrain_text_types(self._handle, number, lines, _at(foreign)))
        return lines.raw.split(b"\n")[:-1], foreign

    def _size(self, number: int) -> tuple[int, int]:
        counts = (ctypes.c_int64 * 2)()
        assert self._core is not None
        _check(self._core.embtrain_text_size(self._handle, number, counts))
        return counts[0], counts[1]


def expand(scanned: Scanned, start: np.ndarray, word: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and ends where type t stands for word[start[t]:start[t + 1]]; each id is counted in `counts`, in place.

    start (T+1,) int64, word (W,) int32, counts (V,) int64.
    """
    types, ends = scanned.types, scanned.ends
    for name, array, dtype in (("types", types, np.int32), ("ends", ends, np.int64), ("start", start, np.int64),
                               ("word", word, np.int32), ("counts", counts, np.int64)):
        _check_array(name, array, dtype)
    if (library := core()) is None:
        return reference.expand(types, ends, start, word, counts)
    typed, n_words = _typed(library), (ctypes.c_int64 * 1)()
    new_ends, out = np.empty(len(ends), dtype=np.int64), np.empty(len(types), dtype=np.int32)  # most stand for one word
    while True:
        _check(typed.embtrain_text_expand(_at(types), len(types), _at(start), len(start) - 1, _at(word), _at(ends),
                                           len(ends), _at(out), len(out), _at(new_ends), _at(counts), n_words))
        if n_words[0] <= len(out):
            break
        out = np.empty(n_words[0], dtype=np.int32)
    return out[:n_words[0]], new_ends


def renumber(ids: np.ndarray, sequence: np.ndarray, new_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """New ids of the sequences that end at the offsets `sequence` (S+1,), and their lengths (S,).

    Type t becomes to[t], int32; below 0 it is left out.
    """
    for name, array, dtype in (("ids", ids, np.int32), ("sequence", sequence, np.int64), ("to", new_ids, np.int32)):
        _check_array(name, array, dtype)
    if not len(sequence) or bool((np.diff(sequence) < 0).any()) or not 0 <= sequence[0] <= sequence[-1] <= len(ids):
        raise ValueError(f"text: sequence must rise within 0..{len(ids)}")
    begin, end = int(sequence[0]), int(sequence[-1])
    if (library := core()) is None:
        if begin < end and not 0 <= ids[begin:end].min() <= ids[begin:end].max() < len(new_ids):
            _check(OUT_OF_RANGE)
        return reference.renumber(ids, sequence, new_ids)
    out, length = np.empty(end - begin, dtype=np.int32), np.empty(len(sequence) - 1, dtype=np.int64)
    _check(_typed(library).embtrain_text_renumber(_at(ids), _at(sequence), len(length), _at(new_ids), len(new_ids),
                                                  _at(out), _at(length)))
    return out[:int(length.sum())], length


@cache
def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    at, n, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.embtrain_text_open.argtypes = [at]
    library.embtrain_text_close.argtypes = [at]
    library.embtrain_text_scan.argtypes = [at, ctypes.c_char_p, n, flag, flag, n, n, at, at, at]
    library.embtrain_text_size.argtypes = [at, n, at]
    library.embtrain_text_types.argtypes = [at, n, at, at]
    library.embtrain_text_renumber.argtypes = [at, at, n, at, n, at, at]
    library.embtrain_text_expand.argtypes = [at, n, at, n, at, at, n, at, n, at, at, at]
    return library


def _at(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _check_array(name: str, array: np.ndarray, dtype: type) -> None:
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        raise TypeError(f"text: {name} must be a contiguous array of {np.dtype(dtype)} with one axis")


def _check(code: int) -> None:
    if code == NO_MEMORY:
        raise MemoryError("text: no memory for more words")
    if code != OK:
        raise IndexError("text: a type that is none")
