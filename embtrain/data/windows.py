"""Text -> (centre, context word) pairs.

Of a word with frequency f = count / Σ counts an occurrence is kept with probability          (t is text.sample)
    word2vec   min(1, √(t/f) + t/f)     the C code
    eq23       min(1, √(t/f))           1 - P(w) of the paper's eq. 23, clipped
Rare and dropped words leave the text before the windows are laid, so windows reach further. Each kept occurrence is a
centre; its window is b ~ U{1..W} words on each side (W where text.dynamic_window is off), within its sequence.

Every draw follows from (seed, epoch) alone, so (epoch, start) finds its place again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from embtrain.data.text import Corpus, TextConfig
from embtrain.types import Batch

CHUNK = 1 << 22            # positions worked on at once
_KEEP, _WINDOW, _ORDER, _HELD_OUT = range(4)  # one stream of random numbers for each use


@dataclass(frozen=True)
class SkipGramBatch(Batch):
    """Which context word (target) stands beside the centre."""

    centre: Tensor  # (B,) int64
    window: Tensor  # (B,) int64  0, 1, ...: the centre's occurrence, ascending


@dataclass(frozen=True)
class _Epoch:
    """The kept text of one epoch."""

    number: int
    ids: np.ndarray        # (M,) int32
    sequence: np.ndarray   # (S+1,) int64
    reach: np.ndarray      # (M,) int16  b of each centre


class Windows:
    """The pairs of a corpus, drawn anew each epoch."""

    def __init__(self, corpus: Corpus, config: TextConfig, seed: int):
        self._corpus, self._config, self._seed = corpus, config, seed
        self._epoch: _Epoch | None = None
        self._order: tuple[int, np.ndarray] | None = None
        self.keep = keep_probability(corpus.vocabulary.counts, config)  # (V,) float64
        self.raw_counts = np.zeros(len(self.keep))                      # (V,) float64  occurrences in the text
        for begin in range(0, len(corpus.ids), CHUNK):
            self.raw_counts += np.bincount(corpus.ids[begin:begin + CHUNK], minlength=len(self.keep))
        self.kept_counts = self.raw_counts * self.keep                  # (V,) float64  expected after subsampling

    @cached_property
    def target_counts(self) -> np.ndarray:
        """(V,) float64  how often each word is expected to be a target in an epoch.

        Exact without subsampling. With it, a word's window is laid over the expected kept text, which overstates
        the pairs near the ends of sequences a little.
        """
        w, n_words = self._config.window, len(self.keep)
        # inside[x]: expected words on a side that has x left. E min(b, x) where b is drawn.
        x = np.arange(w + 1)
        inside = x * (x + 1) / 2 / w + x * (w - x) / w if self._config.dynamic_window else x.astype(float)
        total = np.zeros(n_words)
        ids, sequence = self._corpus.ids, self._corpus.sequence
        for s, e in _whole_sequences(sequence):
            begin, end = sequence[s], sequence[e]
            keep = self.keep[ids[begin:end]]
            upto = np.concatenate([[0.0], np.cumsum(keep)])
            of = np.repeat(np.arange(s, e), np.diff(sequence[s:e + 1]))
            before = upto[:-1] - upto[sequence[of] - begin]
            after = upto[sequence[of + 1] - begin] - upto[1:]
            pairs = keep * (np.interp(before, x, inside) + np.interp(after, x, inside))
            total += np.bincount(ids[begin:end], weights=pairs, minlength=n_words)
        return total

    @property
    def examples_per_epoch(self) -> float:
        """Expected pairs of an epoch; see target_counts."""
        return float(self.target_counts.sum())

    def n_centres(self, epoch: int) -> int:
        return len(self._kept(epoch).ids)

    def n_blocks(self, epoch: int, block: int) -> int:
        return -(-self.n_centres(epoch) // block)

    def block_starts(self, epoch: int, block: int) -> np.ndarray:
        """(n_blocks,) int64  centres drawn before each block."""
        return np.arange(0, self.n_centres(epoch), block, dtype=np.int64)

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[SkipGramBatch]:
        """The pairs of `block` centres at a time, from block `start` on; rows in the order of the centres."""
        text = self._kept(epoch)
        order = self._shuffled(text) if shuffle else None
        for begin in range(start * block, len(text.ids), block):
            end = min(begin + block, len(text.ids))
            centres = np.arange(begin, end) if order is None else order[begin:end].astype(np.int64)
            yield _pairs(text.ids, text.sequence, centres, text.reach[centres], self._config.window)

    def _kept(self, epoch: int) -> _Epoch:
        if self._epoch is None or self._epoch.number != epoch:
            self._epoch = None  # before the next is made: one epoch's text in memory, not two
            self._epoch = self._subsampled(epoch)
        return self._epoch

    def _subsampled(self, epoch: int) -> _Epoch:
        ids, sequence, w = self._corpus.ids, self._corpus.sequence, self._config.window
        if (self.keep < 1).any():
            rng = self._rng(epoch, _KEEP)
            parts, before = [np.zeros(0, dtype=np.int32)], np.zeros(len(sequence), dtype=np.int64)
            done = 0
            for begin in range(0, len(ids), CHUNK):
                chunk = np.asarray(ids[begin:begin + CHUNK])
                kept = rng.random(len(chunk), dtype=np.float32) < self.keep[chunk]
                parts.append(chunk[kept])
                upto = done + np.concatenate([[0], np.cumsum(kept)])
                here = slice(np.searchsorted(sequence, begin), np.searchsorted(sequence, begin + len(chunk), "right"))
                before[here] = upto[sequence[here] - begin]  # kept words before each boundary of a sequence
                done = int(upto[-1])
            ids, sequence = np.concatenate(parts), before
        if self._config.dynamic_window:
            reach = self._rng(epoch, _WINDOW).integers(1, w + 1, size=len(ids), dtype=np.int16)
        else:
            reach = np.broadcast_to(np.int16(w), len(ids))
        return _Epoch(epoch, ids, sequence, reach)

    def _shuffled(self, text: _Epoch) -> np.ndarray:
        if self._order is None or self._order[0] != text.number:
            self._order = None
            order = np.arange(len(text.ids), dtype=np.int32 if len(text.ids) < 1 << 31 else np.int64)
            self._rng(text.number, _ORDER).shuffle(order)
            self._order = text.number, order
        return self._order[1]

    def _rng(self, epoch: int, use: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, epoch, use]))


def keep_probability(counts: np.ndarray, config: TextConfig) -> np.ndarray:
    """(V,) float64  the probability that an occurrence of each word stays in the text."""
    if config.sample == 0 or len(counts) == 0:
        return np.ones(len(counts))
    f = np.maximum(counts, 1) / max(counts.sum(), 1)
    ratio = config.sample / f
    keep = np.sqrt(ratio) + ratio if config.sample_rule == "word2vec" else np.sqrt(ratio)
    return np.minimum(keep, 1.0)


def heldout(corpus: Corpus, config: TextConfig, limit: int, seed: int) -> SkipGramBatch:
    """At most `limit` pairs of full windows, nothing subsampled, at centres drawn without replacement.

    The centres stand in the order of the text, so that neighbours in the batch are neighbours there.
    """
    ids, sequence, w = corpus.ids, corpus.sequence, config.window
    order = np.random.default_rng(np.random.SeedSequence([seed, _HELD_OUT])).permutation(len(ids))
    size = _sizes(sequence, order, np.full(len(order), w, dtype=np.int16))
    n = int(np.searchsorted(size.cumsum(), limit)) + 1 if limit > 0 else 0     # centres that reach the limit
    centres = np.sort(order[:n])
    return _pairs(ids, sequence, centres, np.full(len(centres), w, dtype=np.int16), w).rows(slice(0, limit))


def _sizes(sequence: np.ndarray, centres: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """How many pairs each centre has, (n,)."""
    begin, last = _spans(sequence, centres, reach)
    return last - begin


def _spans(sequence: np.ndarray, centres: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last position of each centre's window, (n,) each."""
    after = np.searchsorted(sequence, centres, side="right")
    begin = np.maximum(sequence[after - 1], centres - reach)
    return begin, np.minimum(sequence[np.minimum(after, len(sequence) - 1)] - 1, centres + reach)


def _pairs(ids: np.ndarray, sequence: np.ndarray, centres: np.ndarray, reach: np.ndarray, w: int) -> SkipGramBatch:
    """The pairs of some centres (positions in ids, (n,)) whose windows reach (n,) words to each side."""
    begin, last = _spans(sequence, centres, reach)
    offsets = np.concatenate([np.arange(-w, 0), np.arange(1, w + 1)])             # (2W,)
    position = centres[:, None] + offsets                                         # (n, 2W)
    inside = (position >= begin[:, None]) & (position <= last[:, None])
    size = last - begin                                                           # (n,)
    centre = np.repeat(ids[centres].astype(np.int64), size)
    target = ids[position[inside]].astype(np.int64)
    size = size[size > 0]
    window = np.repeat(np.arange(len(size)), size)
    return SkipGramBatch(target=torch.from_numpy(target), slot=torch.zeros(len(target), dtype=torch.int64),
                         centre=torch.from_numpy(centre), window=torch.from_numpy(window))


def _whole_sequences(sequence: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of sequences of about CHUNK tokens each."""
    s, last = 0, len(sequence) - 1
    while s < last:
        e = min(max(int(np.searchsorted(sequence, sequence[s] + CHUNK, "right")) - 1, s + 1), last)
        yield s, e
        s = e
