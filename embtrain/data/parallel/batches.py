"""Makes batches from pairs of sentences: each target word is predicted from the source and the words before it.

    sentence     x_1 ... x_S <eos>  ->  y_1 ... y_T <eos>;      rows of a batch: its T + 1 targets, sentence by sentence
    block        n sentences of similar length, n (T + 1) ≤ `block`: sorted by T, ties by S, further ties random, cut
                 greedily. Padding is small, and every epoch has the same number of blocks
    order        of the blocks: random. All randomness depends only on (seed, epoch)

A block is one update: sentences cannot be split into rows (`rows` raises TypeError).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import Batch
from embtrain.data.parallel.corpus import END, ParallelCorpus
from embtrain.data.text.windows import WindowBatch

_TIES, _ORDER = range(2)  # one random stream per use


@dataclass(frozen=True)
class TranslationBatch(Batch):
    """A batch of n sentences with B target words; S and T are the longest lengths, <eos> included."""

    source: Tensor    # (n, S) int64  words, padded with <eos>
    length: Tensor    # (n,) int64  source lengths with one <eos>
    prev_tokens: Tensor  # (n, T) int64  previous word of each target; V, not a word, at the beginning of a sentence
    position: Tensor  # (B,) int64  positions of the targets in the flat (n · T), sentence by sentence
    window: Tensor    # (B,) int64  the sentence of each target

    def rows(self, index: slice | Tensor) -> Self:
        raise TypeError("sentences are not split into rows: a block of them is one update")

    def pieces(self, words: int) -> Iterator[TranslationBatch]:
        """Yield the sentences in order, in batches of at most about `words` word positions (at least one sentence)."""
        size = torch.bincount(self.window, minlength=len(self.source))                    # (n,) targets
        begin, n, first = 0, len(self.source), 0
        while begin < n:
            end = begin + 1
            longest = [int(self.length[begin]), int(size[begin])]
            while end < n:
                grown = [max(longest[0], int(self.length[end])), max(longest[1], int(size[end]))]
                if (end + 1 - begin) * max(grown) > words:
                    break
                longest, end = grown, end + 1
            rows = slice(first, first := first + int(size[begin:end].sum()))
            row, column = self.window[rows] - begin, self.position[rows] % self.prev_tokens.shape[1]
            yield TranslationBatch(self.target[rows], self.slot[rows], self.source[begin:end, :longest[0]],
                                   self.length[begin:end], self.prev_tokens[begin:end, :longest[1]],
                                   row * longest[1] + column, row)
            begin = end


def make_batch(text: ParallelCorpus, sentences: np.ndarray) -> TranslationBatch:
    """Make a batch of the sentences with these indices, in this order."""
    source, length = _padded([text.source.sentence(i) for i in sentences.tolist()])
    target, size = _padded([text.target.sentence(i) for i in sentences.tolist()])          # (n, T) with <eos>
    prev_tokens = np.roll(target, 1, axis=1)
    prev_tokens[:, :1] = len(text.target.vocabulary)
    is_word = np.arange(target.shape[1]) < size[:, None]                                     # (n, T)
    position, answers = np.flatnonzero(is_word), torch.from_numpy(target[is_word])
    return TranslationBatch(answers, torch.zeros_like(answers), torch.from_numpy(source), torch.from_numpy(length),
                            torch.from_numpy(prev_tokens), torch.from_numpy(position),
                            torch.from_numpy(np.repeat(np.arange(len(size)), size)))


def pad_sources(sentences: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return source ids (n, S) with <eos> and lengths (n,), from sentences without <eos>."""
    ids, length = _padded(sentences)
    return torch.from_numpy(ids), torch.from_numpy(length)


def _padded(sentences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (n, longest + 1) int64, padded with <eos>, and lengths (n,) that count one <eos>."""
    length = np.array([len(words) + 1 for words in sentences], dtype=np.int64)
    out = np.full((len(sentences), int(length.max(initial=1))), END, dtype=np.int64)
    for row, words in zip(out, sentences, strict=True):
        row[:len(words)] = words
    return out, length


class SentencePairs:
    """The training pairs."""

    def __init__(self, text: ParallelCorpus, seed: int):
        self._text, self._seed, self._n = text, seed, len(text.part("train"))
        self._size = text.target.size()[:self._n] + 1                                      # (n,) with <eos>
        self._other = text.source.size()[:self._n]
        self._cuts: dict[int, np.ndarray] = {}

    def n_blocks(self, epoch: int, block: int) -> int:
        return len(self._cut(block)) - 1

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[TranslationBatch]:
        """Yield blocks from block number `start` on."""
        cut, n = self._cut(block), self.n_blocks(epoch, block)
        ties = self._draw(epoch, _TIES).random(self._n) if shuffle else np.arange(self._n)
        order = np.lexsort((ties, self._other, self._size))
        block_order = self._draw(epoch, _ORDER).permutation(n) if shuffle else np.arange(n)
        for b in block_order[start:].tolist():
            yield make_batch(self._text, order[cut[b]:cut[b + 1]])

    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]:
        raise TypeError("sentences have no windows for the fused engine")

    def _cut(self, block: int) -> np.ndarray:
        """Return the block boundaries among the sorted sentences. They depend only on lengths, so they are equal in
        each epoch."""
        if block not in self._cuts:
            cut, begin = [0], 0
            for i, size in enumerate(np.sort(self._size).tolist()):
                if i > begin and (i + 1 - begin) * size > block:
                    cut.append(i)
                    begin = i
            self._cuts[block] = np.array([*cut, self._n])
        return self._cuts[block]

    def _draw(self, epoch: int, use: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, epoch, use]))
