"""Scans bytes of text into word types and ids.

A type is a distinct word as bytes, numbered by first appearance. ASCII words are delimited and lowercased by the
scanner. A word with other bytes is foreign: it is stored unchanged, with all the context that str.lower() or a
tokenizer could need. The caller converts each distinct foreign word into words once.

  mode         separators                                foreign
  WHITESPACE   those of str.split(), and NUL             a whole word with a byte of 128 or more
  WORDS        all but letters; all of U+2000 to U+203F  a run of letters and other bytes; the whole text between
               except joiners and direction marks        blanks if it has a Σ that must be lowered
  VERBATIM     a blank or a line feed                    nothing

A line ends at a line feed or a carriage return; in VERBATIM only at a line feed.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, check_array, check_range, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.text import scan as reference
from embtrain.kernels.reference.text.scan import VERBATIM, WHITESPACE, WORDS

__all__ = ["VERBATIM", "WHITESPACE", "WORDS", "Scanned", "Types", "expand", "renumber"]


class Scanned(NamedTuple):
    types: np.ndarray   # (n,) int32  the type of each word
    ends: np.ndarray    # (L,) int64  words before each line end; only the first of a run of empty lines
    nul: int            # NULs read as blanks
    # WORDS, ASCII only: digits, underscores between letters or digits, letters of words that are too long, and too
    # short
    left_out: tuple[int, int, int, int] = (0, 0, 0, 0)


class Types:
    """The distinct words scanned so far. Not thread-safe."""

    def __init__(self) -> None:
        self._core = core()
        self._reference = reference.ReferenceTypes()
        self._handle = ctypes.c_void_p()
        if self._core is not None:
            call("text", self._core.embtrain_text_open, byref(self._handle))

    def __del__(self) -> None:
        if self._handle:
            assert self._core is not None
            self._core.embtrain_text_close(self._handle)

    def __len__(self) -> int:
        return len(self._reference) if self._core is None else self._size(0)[0]

    def scan(self, data: bytes, mode: int, lower: bool = False, shortest: int = 1, longest: int = 1 << 30) -> Scanned:
        """Scan whole words: the last word must not continue in the next chunk."""
        if mode not in (WHITESPACE, WORDS, VERBATIM):
            raise ValueError(f"text: unknown mode {mode}")
        if self._core is None:
            return Scanned(*self._reference.scan(data, mode, lower, shortest, longest))
        n = len(data)
        types, ends = np.empty(n // 2 + 1, dtype=np.int32), np.empty(n // 2 + 2, dtype=np.int64)
        counts = (ctypes.c_int64 * 7)()
        call("text", self._core.embtrain_text_scan, self._handle, data, n, ctypes.c_int(mode), ctypes.c_int(lower),
             shortest, longest, pointer(types), pointer(ends), counts)
        return Scanned(types[:counts[0]], ends[:counts[1]], counts[2], (counts[3], counts[4], counts[5], counts[6]))

    def since(self, number: int) -> tuple[list[bytes], np.ndarray]:
        """The types from that number on, and which of them are foreign."""
        if self._core is None:
            return self._reference.since(number)
        n, size = self._size(number)
        lines, foreign = ctypes.create_string_buffer(size), np.empty(n - number, dtype=bool)
        call("text", self._core.embtrain_text_types, self._handle, number, lines, pointer(foreign))
        return lines.raw.split(b"\n")[:-1], foreign

    def _size(self, number: int) -> tuple[int, int]:
        counts = (ctypes.c_int64 * 2)()
        assert self._core is not None
        call("text", self._core.embtrain_text_size, self._handle, number, counts)
        return counts[0], counts[1]


def expand(scanned: Scanned, ids: np.ndarray, start: np.ndarray, word: np.ndarray, counts: np.ndarray
           ) -> tuple[np.ndarray, np.ndarray]:
    """Replace types by ids of words. Returns ids and line ends; increments `counts`.

    ids (T,) int32: the id of the only word of each type; -1 - j if the type has the words
    word[start[j]:start[j + 1]]. start (J+1,) int64, word (W,) int32, counts (V,) int64. Raises IndexError for a type, a
    word or a j that does not exist.
    """
    types, ends = scanned.types, scanned.ends
    types_arg, ends_arg, ids_arg, start_arg, word_arg, counts_arg = (
        array_arg(f"text: {name}", array, dtype, (array.size,)) for name, array, dtype in (
            ("types", types, np.int32), ("ends", ends, np.int64), ("ids", ids, np.int32), ("start", start, np.int64),
            ("word", word, np.int32), ("counts", counts, np.int64)))
    if (library := core()) is None:
        return reference.expand(types, ends, ids, start, word, counts)
    n_words = ctypes.c_int64()
    # most types are one word
    new_ends, out = np.empty(len(ends), dtype=np.int64), np.empty(len(types), dtype=np.int32)
    while True:
        call("text: types", library.embtrain_text_expand, types_arg, len(types), ids_arg, len(ids), start_arg,
             len(start) - 1, word_arg, len(word), ends_arg, len(ends), pointer(out), len(out), pointer(new_ends),
             counts_arg, len(counts), byref(n_words))
        if n_words.value <= len(out):
            break
        out = np.empty(n_words.value, dtype=np.int32)
    return out[:n_words.value], new_ends


def renumber(ids: np.ndarray, sequence: np.ndarray, new_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map types to new ids in the sequences with offsets `sequence` (S+1,). Returns ids and lengths (S,).

    Type t becomes new_ids[t], int32; negative ones are dropped.
    """
    for name, array, dtype in (("ids", ids, np.int32), ("sequence", sequence, np.int64),
                               ("new_ids", new_ids, np.int32)):
        check_array(f"text: {name}", array, dtype, (array.size,))
    if not len(sequence) or bool((np.diff(sequence) < 0).any()) or not 0 <= sequence[0] <= sequence[-1] <= len(ids):
        raise ValueError(f"text: sequence must rise within 0..{len(ids)}")
    begin, end = int(sequence[0]), int(sequence[-1])
    if (library := core()) is None:
        check_range("text: ids", ids[begin:end], 0, len(new_ids))
        return reference.renumber(ids, sequence, new_ids)
    out, length = np.empty(end - begin, dtype=np.int32), np.empty(len(sequence) - 1, dtype=np.int64)
    call("text: ids", library.embtrain_text_renumber, pointer(ids), pointer(sequence), len(length), pointer(new_ids),
         len(new_ids), pointer(out), pointer(length))
    return out[:int(length.sum())], length
