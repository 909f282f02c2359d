"""Running text as streams for a language model: predict w_i from all words before it.

    words      w_1 ... w_N, with <eos> at the end of each sequence (a line, or a document); w_0 = <eos>
    streams    S pieces of L = ⌊N / S⌋ words that are read in parallel; stream s begins at word o + s L of the ring
    block b    words b T + 1 ... (b + 1) T of every stream, T = ⌊block / S⌋; row t S + s is word t of stream s

o is 0, or drawn again in each epoch (`shuffle`): this moves the cuts of streams and blocks, not their order.

A word without an id is <unk>, in every part. <unk> has an id if it occurs in the training text, or if rare words
became <unk>. Otherwise, held-out words that do not occur in training are dropped from the text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import Batch
from embtrain.data.catalogue.recipes import CorpusParts
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.storage.skipped import log_lines
from embtrain.data.text import corpus
from embtrain.data.text.corpus import Corpus, ReadingConfig
from embtrain.data.text.holdout import choose_held_out, split_warnings
from embtrain.data.text.phrases import join_phrases, phrase_pairs
from embtrain.data.text.vocabulary import Vocabulary, build_vocabulary
from embtrain.data.text.windows import WindowBatch

EOS, UNKNOWN = "<eos>", "<unk>"
NO_LIMIT = 1 << 62  # longest sequence: none is cut, because each ends in <eos>
_log = logging.getLogger("embtrain")


class LanguageConfig(ReadingConfig):
    """Settings of a language model over text."""

    section: ClassVar[str] = "language"
    lower: bool = Field(False, description="fold the text to lower case")
    max_size: int | None = Field(
        None, ge=3, description="maximum vocabulary size, <unk> and <eos> included; null: no limit")
    min_count: int | None = Field(
        None, ge=1, description=(
            "minimum count in the training text; rarer words become <unk>; null: 2, or 1 if the recipe "
            "says that rare words were replaced"))
    streams: int = Field(20, ge=1, le=65_536, description="S, pieces of the text read in parallel")


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """The next word (target); rows are T times the words of all S streams."""

    word: Tensor    # (B,) int64  previous word
    begins: Tensor  # (B,) bool   no word before it; true in the first S rows of a block or in none
    streams: int    # S


def load(where: list[Path], reader: str, config: LanguageConfig, cache: Path | None, name: str,
         recipe_parts: CorpusParts | None = None, parts_by_name: bool = True) -> Corpus:
    """Load the corpus at `where` with its <eos> and <unk>, in the order train, valid, test.

    recipe_parts, parts_by_name: as in corpus.plan_reading. Raises as corpus.load, also if only <eos> and <unk> would
    have an id.
    """
    min_count = config.min_count or 2
    settings_read, read = corpus.plan_reading(where, reader, config, NO_LIMIT, cache, name, recipe_parts, parts_by_name)
    settings_read, read = join_phrases(settings_read, read, config, cache, name)
    files, places = settings_read.pop("files"), settings_read.pop("places")
    encoded = read()
    log_lines(encoded.warnings, places)
    held = choose_held_out(encoded, config)
    units, part = held.units, held.part
    for line in split_warnings(encoded, held, config.section):
        _log.warning("%s", line)
    words = [*encoded.words, *(word for word in (EOS, UNKNOWN) if word not in encoded.words)]
    ids_with_ends, sequence, units = _insert_ends(encoded, units, words.index(EOS))
    counts = np.bincount(ids_with_ends[np.repeat(part == 0, np.diff(units))], minlength=len(words))
    vocabulary, new_ids, rare = _vocabulary(words, counts, min_count, config)
    out = AppendableArray()
    sequence, document = corpus.gather(ids_with_ends, sequence, units, part, new_ids, out)
    ids, (n_train, n_valid) = out.array(), np.bincount(part, minlength=3).tolist()[:2]
    if n_dropped := len(ids_with_ends) - len(ids):
        _log.warning("%s: %s held-out words do not occur in training and are removed, because there is no %s",
                     name, f"{n_dropped:,}", UNKNOWN)
    shares = ["min_count", "max_size"]
    if not {1, 2} <= set(encoded.part.tolist()):
        shares += ["valid", "test", "split_seed"]
    settings = {**settings_read, **config.model_dump(include=set(shares)), "min_count": min_count}
    counts_by_name: dict[str, int] = {n: encoded.facts[n] for n in ("documents", "types", "phrases")
                                      if n in encoded.facts}
    counts_by_name |= {"tokens": len(ids_with_ends), "words": len(vocabulary), "kept": len(ids), "became_unknown": rare}
    identity = {"name": name, "sha256": settings_read["content"], "settings": settings, "files": files,
                "counts": counts_by_name, "splitting": encoded.facts["splitting"]}
    return Corpus(ids, sequence, document, vocabulary, identity, (n_train, n_train + n_valid),
                  phrase_pairs(encoded, config.phrases))


def _insert_ends(encoded: Encoded, units: np.ndarray, eos: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids with <eos> at the end of each sequence, and the new offsets of sequences and units."""
    def moved(offsets: np.ndarray) -> np.ndarray:
        return offsets + np.searchsorted(encoded.sequence, offsets)
    return np.insert(np.asarray(encoded.ids), encoded.sequence[1:], eos), moved(encoded.sequence), moved(units)


def _vocabulary(words: list[str], counts: np.ndarray, min_count: int, config: LanguageConfig
                ) -> tuple[Vocabulary, np.ndarray, int]:
    """Return the vocabulary, the new id of each word (-1: dropped), and the count of words that became <unk>.

    The count is of occurrences in the training text.
    """
    unknown, added = words.index(UNKNOWN), [words.index(EOS), words.index(UNKNOWN)]
    text_counts, most = counts.copy(), None if config.max_size is None else config.max_size - len(added)
    text_counts[added] = 0                                                # their ids need no min_count
    rare = build_vocabulary(words, text_counts, min_count, most, config.section)[1] < 0
    rare[added] = False
    became, counts = int(counts[rare].sum()), np.where(rare, 0, counts)
    counts[unknown] += became
    vocabulary, new_ids = build_vocabulary(words, counts, 1, None, config.section)
    new_ids[rare] = new_ids[unknown]
    return vocabulary, new_ids, became


class Streams:
    """The training text, cut into S streams."""

    def __init__(self, ids: np.ndarray, eos: int, streams: int, seed: int):
        self._ids, self._eos, self._seed, self.streams = np.asarray(ids), eos, seed, streams
        self.length = len(ids) // streams                                     # L

    def n_blocks(self, epoch: int, block: int) -> int:
        """Return the number of blocks of an epoch."""
        return -(-self.length // self._times(block))

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[LanguageBatch]:
        """Yield blocks of at most `block` words, from block `start` on."""
        n, times = len(self._ids), self._times(block)
        begin = np.random.default_rng([self._seed, epoch]).integers(n) if shuffle else 0
        heads = begin + np.arange(self.streams) * self.length                 # (S,)
        for t in range(start * times, self.length, times):
            positions = ((np.arange(t, min(t + times, self.length))[:, None] + heads) % n).ravel()  # (B,)
            yield make_batch(self._ids, positions, self._eos, self.streams, t == 0)

    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]:
        """Raise TypeError: running text has no windows."""
        raise TypeError("running text has no windows for the fused engine")

    def _times(self, block: int) -> int:
        return max(1, block // self.streams)


def make_batch(ids: np.ndarray, positions: np.ndarray, eos: int, streams: int, begins: bool) -> LanguageBatch:
    """Build the batch whose targets are the words at `positions`, (B,). begins: of the first `streams` rows."""
    target = torch.from_numpy(ids[positions].astype(np.int64))
    word = torch.from_numpy(np.where(positions == 0, eos, ids[positions - 1]).astype(np.int64))
    first = torch.zeros(len(positions), dtype=torch.bool)
    first[:streams] = begins
    return LanguageBatch(target, torch.zeros_like(target), word, first, streams)


def heldout(ids: np.ndarray, eos: int, limit: int) -> LanguageBatch:
    """Return the first `limit` words of a text, as one stream."""
    ids = np.asarray(ids[:limit])
    return make_batch(ids, np.arange(len(ids)), eos, 1, True)
