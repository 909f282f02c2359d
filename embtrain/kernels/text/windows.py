"""Subsampling of token ids and skip-gram windows.

Every random number depends on a seed and a position alone, so results do not depend on chunks, threads or the start.

  subsample    keep occurrence i of word w if the upper 31 bits of u(seed, i) are below limit[w] = keep[w] · 2³¹
  permutation  a bijection of 0..n-1, computed instead of stored: six rounds of a Feistel network over Z_a × Z_b, ab ≥ n
               (Black and Rogaway 2002), repeated while the image is n or more
  pairs        the window at position p reaches b = 1 + ⌊W u(seed, p)⌋ words to each side (W without a seed), but not
               across a sequence boundary; empty windows are dropped
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from embtrain.common import machine
from embtrain.kernels.core.binding import call, check_array, check_range, parallel_map, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.text import windows as reference

CHUNK = 1 << 18         # tokens that the reference processes at once
PASS = 1 << 20          # tokens of a mapped text that are in memory at once
BOUND = 1 << 52         # positions; beyond it products in the core could overflow
SLACK = 16              # ids that the core may write past the last window
VOCABULARY = "windows: ids of the vocabulary"


class Text(NamedTuple):
    """Token ids and sequence boundaries; see `text`."""

    ids: np.ndarray     # (N,) int32
    first: np.ndarray   # (N/64 + 1,) uint64  bit i: a sequence begins at i; bit N: the end


class Pairs(NamedTuple):
    """Windows: the context words of centre c are target[start[c]:start[c + 1]]."""

    centre: np.ndarray  # (C,) int64
    start: np.ndarray   # (C+1,) int64
    target: np.ndarray  # (P,) int64


def text(ids: np.ndarray, sequence: np.ndarray) -> Text:
    """Text from ids (N,) and offsets `sequence` (S+1,). A bit per word replaces eight bytes per offset."""
    _check(ids, sequence)
    first = np.zeros(len(ids) // 64 + 1, dtype=np.uint64)
    for begin in range(0, len(sequence), CHUNK):
        positions = sequence[begin:begin + CHUNK].astype(np.uint64)
        np.bitwise_or.at(first, (positions >> np.uint64(6)).astype(np.int64),
                         np.uint64(1) << (positions & np.uint64(63)))
    return Text(ids, first)


def subsample(ids: np.ndarray, sequence: np.ndarray, keep: np.ndarray, seed: int, threads: int = 1
              ) -> tuple[np.ndarray, np.ndarray]:
    """Subsample ids; returns the kept ids and their offsets (S+1,). keep (V,) float64: probability of keeping a word.
    """
    _check(ids, sequence)
    limit = np.round(np.clip(keep, 0.0, 1.0) * 2.0 ** 31).astype(np.uint32)     # (V,)
    out = np.empty(len(ids), dtype=np.int32)  # pages that are never written take no memory
    upto = np.zeros(len(sequence), dtype=np.int64)                              # first the lengths of the sequences
    library, n_kept, place = core(), 0, dict[int, int]()

    def subsample_range(s: int, e: int) -> None:
        """Subsample sequences s to e; the kept ids are packed from out[place[s]] on."""
        write_position = place[s]
        if library is not None:
            call(VOCABULARY, library.embtrain_subsample, pointer(ids), pointer(sequence[s:]), e - s, pointer(limit),
                 len(limit), seed, pointer(out[write_position:]), pointer(upto[s + 1:]))
            return
        for a, b in whole_sequences(sequence[s:e + 1], CHUNK):
            check_range(VOCABULARY, ids[sequence[s + a]:sequence[s + b]], 0, len(limit))
            kept, offsets = reference.subsample(ids, sequence[s + a:s + b + 1], limit, seed)
            out[write_position:write_position + len(kept)] = kept
            upto[s + a + 1:s + b + 1] = np.diff(offsets)
            write_position += len(kept)

    for first, last in whole_sequences(sequence, PASS):
        inside = np.linspace(sequence[first], sequence[last], max(threads, 1) + 1)[1:-1]
        cuts = np.unique(np.concatenate([[first], np.searchsorted(sequence, inside).clip(first, last), [last]]))
        ranges = list(itertools.pairwise(cuts.tolist()))
        place = {s: n_kept + int(sequence[s] - sequence[first]) for s, _ in ranges}
        parallel_map(subsample_range, ranges)
        for s, e in ranges:                                                     # close the gaps between the ranges
            n = int(upto[s + 1:e + 1].sum())
            if place[s] != n_kept:
                out[n_kept:n_kept + n] = out[place[s]:place[s] + n]
            n_kept += n
        machine.release_pages(ids)
    np.cumsum(upto, out=upto)
    out.resize(n_kept, refcheck=False)                                          # returns the unused memory
    return out, upto


def expected_targets(ids: np.ndarray, sequence: np.ndarray, keep: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Expected targets per word, (V,) float64: Σ over its positions of keep · (inside(before) + inside(after)).

    before and after are Σ keep on either side within the sequence. inside (W+1,) is given at 0, 1, ..., W: linear in
    between, constant beyond.
    """
    _check(ids, sequence)
    if not len(inside):
        raise ValueError("windows: inside is empty; give its value at 0")
    keep, inside = np.ascontiguousarray(keep, dtype=np.float64), np.ascontiguousarray(inside, dtype=np.float64)
    total = np.zeros(len(keep))
    if (library := core()) is not None:
        for s, e in whole_sequences(sequence, PASS):                            # added to in order: the same bits
            call(VOCABULARY, library.embtrain_expected_targets, pointer(ids), pointer(sequence[s:]), e - s,
                 pointer(keep), len(keep), pointer(inside), len(inside) - 1, pointer(total))
            machine.release_pages(ids)
        return total
    for s, e in whole_sequences(sequence, CHUNK):
        check_range(VOCABULARY, ids[sequence[s]:sequence[e]], 0, len(keep))
        total += reference.expected_targets(ids, sequence[s:e + 1], keep, inside)
    return total


def permutation(n: int, begin: int, end: int, seed: int) -> np.ndarray:
    """The images of `begin` to `end` under the permutation of 0..n-1, (end - begin,) int64."""
    if not 0 <= begin <= end <= n <= BOUND:
        raise ValueError(f"permutation: {begin}..{end} of {n}")
    if (library := core()) is None:
        return reference.permutation(n, begin, end, seed)
    out = np.empty(end - begin, dtype=np.int64)
    call("permutation", library.embtrain_permutation, n, begin, end, seed, pointer(out))
    return out


def pairs(text: Text, centres: np.ndarray | tuple[int, int], window: int, seed: int | None, order: int | None = None
          ) -> Pairs:
    """The windows of the given centres: positions (C,) int64, or a range of positions.

    order: a seed; permutation(N, range) replaces the range. seed: seed of the reach; None: each window reaches `window`
    words.
    """
    ids, first = text
    n = len(ids)
    _check_array("ids", ids, np.int32)
    _check_array("first", first, np.uint64)
    ends = len(first) == n // 64 + 1 and int(first[0]) & 1 and int(first[-1]) >> n % 64 & 1
    if not ends or not 1 <= window < 1 << 20:
        raise ValueError(f"pairs: marks do not fit {n} ids, or a window of {window} is out of range")
    begin, end, positions = 0, 0, None
    if isinstance(centres, tuple):
        begin, end = centres
        if not 0 <= begin <= end <= n <= BOUND:
            raise ValueError(f"pairs: centres {begin}..{end} of {n}")
    else:
        _check_array("centres", centres, np.int64)
        positions, end = centres, len(centres)
        if order is not None:
            raise ValueError("pairs: an order needs a range of centres")
        if len(positions) and not 0 <= positions.min() <= positions.max() < n:
            raise ValueError(f"pairs: a centre is out of range of {n} ids")
    if (library := core()) is None:
        if positions is None:
            positions = np.arange(begin, end) if order is None else reference.permutation(n, begin, end, order)
        return Pairs(*reference.pairs(ids, first, positions, window, seed))
    size = end - begin
    centre, start = np.empty(size, dtype=np.int64), np.empty(size + 1, dtype=np.int64)
    target, counts = np.empty(2 * window * size + SLACK, dtype=np.int64), np.empty(2, dtype=np.int64)
    call("windows", library.embtrain_pairs, pointer(ids), pointer(first), n, pointer(positions), begin, end,
         ctypes.c_int(order is not None), order or 0, window, ctypes.c_int(seed is not None), seed or 0,
         *map(pointer, (centre, start, target, counts)))
    c, p = counts.tolist()
    return Pairs(centre[:c], start[:c + 1], target[:p])


def repeat_by_window(start: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Repeat value[c] for each pair of window c, the pairs start[c] .. start[c+1]: (P,) int64."""
    _check_array("start", start, np.int64)
    _check_array("value", value, np.int64)
    if len(start) != len(value) + 1 or start[0] != 0:
        raise ValueError(f"windows: start must have {len(value) + 1} offsets, the first of them 0")
    if (library := core()) is None or (start[1:] < start[:-1]).any():
        return np.repeat(value, np.diff(start))             # raises its own error if an offset decreases
    out = np.empty(int(start[-1]), dtype=np.int64)
    call("windows", library.embtrain_repeat_by_window, pointer(start), pointer(value), len(value), pointer(out))
    return out


def whole_sequences(sequence: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of about `size` tokens each, of at least one whole sequence."""
    s, last = 0, len(sequence) - 1
    while s < last:
        e = min(max(int(np.searchsorted(sequence, sequence[s] + size, "right")) - 1, s + 1), last)
        yield s, e
        s = e


def _check_array(name: str, array: np.ndarray, dtype: type) -> None:
    check_array(f"windows: {name}", array, dtype, (array.size,))


def _check(ids: np.ndarray, sequence: np.ndarray) -> None:
    _check_array("ids", ids, np.int32)
    _check_array("sequence", sequence, np.int64)
    if not len(sequence) or sequence[0] != 0 or sequence[-1] != len(ids) or bool((sequence[1:] < sequence[:-1]).any()):
        raise ValueError(f"windows: sequence must rise from 0 to {len(ids)}")
