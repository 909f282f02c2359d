"""Text -> windows: a centre and the words around it, as pairs for skip-gram or as a whole for CBOW.

An occurrence of a word with frequency f = count / Σ counts is kept with probability          (t is text.sample)
    word2vec   min(1, √(t/f) + t/f)     the C code
    eq23       min(1, √(t/f))           1 - P(w) of the paper's eq. 23, clipped
Rare and dropped words are removed before windows are formed, so windows reach further. Each kept occurrence is a
centre; its window is b ~ U{1..W} words on each side (W if text.dynamic_window is off), within its sequence.

Every draw depends only on (seed, epoch) and a position (kernels/text/windows.py), so training resumes at (epoch,
block), on any number of threads. Of an epoch only the kept ids and a bit for each are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.common import machine
from embtrain.common.types import Batch
from embtrain.data.text.corpus import Corpus, WindowsConfig
from embtrain.kernels.text import windows as kernel

CHUNK = 1 << 18            # positions counted at once
_KEEP, _WINDOW, _ORDER, _HELD_OUT = range(4)  # one random stream for each use


@dataclass(frozen=True)
class SkipGramBatch(Batch):
    """Pairs of a centre and a context word (target) in its window."""

    centre: Tensor  # (B,) int64
    window: Tensor  # (B,) int64  0, 1, ...: the centre's occurrence, ascending


@dataclass(frozen=True)
class WindowBatch:
    """C windows: the context words of centre c are target[start[c]:start[c + 1]], at least one."""

    centre: Tensor  # (C,) int64
    start: Tensor   # (C+1,) int64
    target: Tensor  # (P,) int64

    def __len__(self) -> int:
        return self.centre.shape[0]

    def pairs(self) -> SkipGramBatch:
        """Return the pairs of all windows, B = P rows."""
        size = self.start.diff()
        window = torch.repeat_interleave(torch.arange(len(self)), size, output_size=len(self.target))
        return SkipGramBatch(target=self.target, slot=torch.zeros_like(self.target), centre=self.centre[window],
                             window=window)


@dataclass(frozen=True)
class ContextBatch(Batch):
    """Centres (target) and the words around them: those of example i are context[start[i]:start[i + 1]], at least one.
    """

    start: Tensor    # (B+1,) int64
    context: Tensor  # (P,) int64

    def rows(self, index: slice | Tensor) -> Self:
        i = torch.arange(len(self), device=self.target.device)[index]
        size = self.start.diff()[i]
        start = nn.functional.pad(size.cumsum(0), (1, 0))
        shift = (self.start[i] - start[:-1]).repeat_interleave(size)
        place = torch.arange(len(shift), device=shift.device) + shift
        return type(self)(self.target[i], self.slot[i], start, self.context[place])

    @property
    def middle(self) -> Tensor:
        """Return the word in the middle of each context, (B,): the one before the centre, if the window is not cut."""
        return self.context[(self.start[:-1] + self.start[1:] - 1) // 2]


class SkipGramWindows:
    """The windows of a corpus, subsampled and drawn again each epoch."""

    def __init__(self, corpus: Corpus, config: WindowsConfig, seed: int):
        self._ids, self._sequence = np.asarray(corpus.ids), corpus.sequence
        self._config, self._seed = config, seed
        self._epoch: tuple[int, kernel.Text] | None = None
        self.keep = keep_probability(corpus.vocabulary.counts, config)  # (V,) float64
        self.raw_counts = np.zeros(len(self.keep))                      # (V,) float64  occurrences in the text
        for begin in range(0, len(self._ids), CHUNK):
            self.raw_counts += np.bincount(self._ids[begin:begin + CHUNK], minlength=len(self.keep))
            machine.release_pages(self._ids)
        self.kept_counts = self.raw_counts * self.keep                  # (V,) float64  expected after subsampling

    @cached_property
    def target_counts(self) -> np.ndarray:
        """Return the expected number of times each word is a target in an epoch, (V,) float64.

        Exact without subsampling. With it, windows are formed over the expected kept text, which slightly overestimates
        the pairs near the ends of sequences.
        """
        w = self._config.window
        # inside[x]: expected words on a side with x words left, E min(b, x) if b is drawn.
        x = np.arange(w + 1)
        inside = x * (x + 1) / 2 / w + x * (w - x) / w if self._config.dynamic_window else x.astype(float)
        return kernel.expected_targets(self._ids, self._sequence, self.keep, inside)

    @property
    def examples_per_epoch(self) -> float:
        """Return the expected number of pairs of an epoch; see target_counts."""
        return float(self.target_counts.sum())

    def n_centres(self, epoch: int) -> int:
        """Return the number of kept occurrences of an epoch."""
        return len(self._kept(epoch).ids)

    def n_blocks(self, epoch: int, block: int) -> int:
        """Return the number of blocks of an epoch."""
        return -(-self.n_centres(epoch) // block)

    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]:
        """Yield the windows of `block` centres at a time, from block `start` on; empty windows are dropped."""
        text, config = self._kept(epoch), self._config
        reach = self._draws(epoch, _WINDOW) if config.dynamic_window else None
        order = self._draws(epoch, _ORDER) if shuffle else None
        for begin in range(start * block, len(text.ids), block):
            end = min(begin + block, len(text.ids))
            arrays = kernel.pairs(text, (begin, end), config.window, reach, order)
            yield WindowBatch(*(torch.from_numpy(x) for x in arrays))

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[SkipGramBatch]:
        """Yield the pairs of the same windows, ordered by centre."""
        return (batch.pairs() for batch in self.windows(epoch, block, start, shuffle))

    def _kept(self, epoch: int) -> kernel.Text:
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = None  # free it first: one epoch's text in memory, not two
            ids, sequence = self._ids, self._sequence
            if (self.keep < 1).any():
                ids, sequence = kernel.subsample(ids, sequence, self.keep, self._draws(epoch, _KEEP),
                                                 torch.get_num_threads())
            self._epoch = epoch, kernel.text(ids, sequence)
        return self._epoch[1]

    def _draws(self, epoch: int, use: int) -> int:
        """Return the seed of an epoch's random stream for one use."""
        return int(np.random.SeedSequence([self._seed, epoch, use]).generate_state(1, np.uint64)[0])


class ContextWindows(SkipGramWindows):
    """The same windows for CBOW: one example for each centre, which is its target."""

    @cached_property
    def target_counts(self) -> np.ndarray:
        """Return the expected number of times each word is a target in an epoch, (V,) float64.

        Exact without subsampling, which can leave a word without neighbours.
        """
        alone = self._ids[self._sequence[:-1][np.diff(self._sequence) == 1]]
        return (self.raw_counts - np.bincount(alone, minlength=len(self.keep))) * self.keep

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[Any]:
        """Yield the same windows, each as one example of a ContextBatch."""
        return (_contexts(batch) for batch in self.windows(epoch, block, start, shuffle))


def _contexts(windows: WindowBatch) -> ContextBatch:
    return ContextBatch(windows.centre, torch.zeros_like(windows.centre), windows.start, windows.target)


def keep_probability(counts: np.ndarray, config: WindowsConfig) -> np.ndarray:
    """Return the probability of each word's occurrences to stay in the text, (V,) float64."""
    if config.sample == 0 or len(counts) == 0:
        return np.ones(len(counts))
    f = np.maximum(counts, 1) / max(counts.sum(), 1)
    ratio = config.sample / f
    keep = np.sqrt(ratio) + ratio if config.sample_rule == "word2vec" else np.sqrt(ratio)
    return np.minimum(keep, 1.0)


def heldout(corpus: Corpus, config: WindowsConfig, limit: int, seed: int) -> SkipGramBatch:
    """Return at most `limit` pairs of full windows, nothing subsampled, at centres drawn without replacement.

    The centres are in text order, so that neighbours in the batch are neighbours in the text.
    """
    ids, sequence, w = np.asarray(corpus.ids), corpus.sequence, config.window
    order = _heldout_order(corpus, seed)
    n_tried, total = 0, np.zeros(0, np.int64)                                  # of the first centres: pairs up to each
    while n_tried < len(order) and (n_tried == 0 or total[-1] < limit):
        n_tried = min(max(2 * n_tried, limit, 1), len(order))                  # a centre usually has several pairs
        tried = order[:n_tried]
        after = np.searchsorted(sequence, tried, side="right")
        begin, end = sequence[after - 1], sequence[np.minimum(after, len(sequence) - 1)]
        total = (np.minimum(tried - begin, w) + np.minimum(end - 1 - tried, w)).cumsum()
    n = int(np.searchsorted(total, limit)) + 1 if limit > 0 else 0             # centres that reach the limit
    arrays = kernel.pairs(kernel.text(ids, sequence), np.sort(order[:n]), w, None)
    return WindowBatch(*(torch.from_numpy(x) for x in arrays)).pairs().rows(slice(0, limit))


def heldout_contexts(corpus: Corpus, config: WindowsConfig, limit: int, seed: int) -> ContextBatch:
    """Return the full windows of at most `limit` centres, nothing subsampled, in text order."""
    text, order = kernel.text(np.asarray(corpus.ids), corpus.sequence), _heldout_order(corpus, seed)
    arrays = kernel.pairs(text, np.sort(order[:max(limit, 0)]), config.window, None)
    return _contexts(WindowBatch(*(torch.from_numpy(x) for x in arrays)))


def _heldout_order(corpus: Corpus, seed: int) -> np.ndarray:
    return np.random.default_rng(np.random.SeedSequence([seed, _HELD_OUT])).permutation(len(corpus.ids))
