"""Join encoded shards into the ids that one reading of the whole text would give.

A word gets its id by first appearance: by shard, then by its number in the shard. If there are more than MAX_TYPES
distinct words, those that occur at most n times in the whole text are dropped, with the least n that suffices. Their
counts are exact: words are counted in groups by hash, one group in memory at a time.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.common.errors import ResourceError
from embtrain.common.progress import Progress
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.text import tokenize
from embtrain.data.text.findings.census import Census
from embtrain.data.text.findings.tally import Tally
from embtrain.data.text.holdout import slices
from embtrain.data.text.shards.rules import Reading
from embtrain.data.text.tokenize import Offsets
from embtrain.kernels.text import scan as kernel


@dataclass(frozen=True)
class Words:
    """The words of a text that get an id."""

    index: dict[str, int]
    n_types: int            # distinct words, with those that were dropped
    dropped_count: int = 0  # a word with at most this count was dropped; 0: none


def merge(n_shards: int, load: Callable[[int], Reading], joins: Sequence[bool], by_line: bool, max_sequence: int,
          out: AppendableArray) -> tuple[Reading, Words]:
    """Append the ids of all shards to `out`, and return the rest.

    load: returns a shard, once or several times. joins: whether the first document of a shard continues the last one
    of the shard before. Raises ResourceError if no limit on counts leaves at most MAX_TYPES words.
    """
    words = number_words(n_shards, load)
    counts, tally, census = np.zeros(len(words.index), dtype=np.int64), Tally(), Census()
    sequence, document = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    part: list[np.ndarray] = []
    with Progress("joining shards", n_shards, "shards") as progress:
        for i in range(n_shards):
            reading = load(i)
            shard = reading.encoded
            tally.merge(reading.tally)
            census.add_tree(reading.census.tree())
            new_ids = np.fromiter((words.index.get(word, -1) for word in shard.words), np.int32, len(shard.words))
            kept = new_ids >= 0
            counts[new_ids[kept]] += shard.counts[kept]
            begin = out.n
            length = _append(shard, new_ids, out)
            ends = begin + np.concatenate([[0], np.cumsum(length)])          # (S+1,)
            if joins[i]:
                document[-1] = document[-1][:-1]
            skipped = int(joins[i])                                          # its first document has its part already
            document.append(ends[np.searchsorted(shard.sequence, shard.document[1:])])
            part.append((shard.part if len(shard.part) else np.zeros(len(shard.document) - 1, np.int8))[skipped:])
            if by_line:
                sequence.append(ends[1:][length > 0])
            progress.add()
    documents, parts = np.concatenate(document), np.concatenate(part)
    if not by_line:
        offsets = Offsets(max_sequence)
        for end in documents[1:].tolist():
            offsets.end_document(end)
        sequence = [offsets.sequence()]
    facts = {"documents": len(documents) - 1, "tokens": out.n, "types": words.n_types,
             **census.facts(list(words.index), counts)}
    encoded = Encoded(out.array(), np.concatenate(sequence), documents, counts, list(words.index), facts,
                      part=parts if parts.any() else parts[:0])
    return Reading(encoded, tally, census), words


def _append(shard: Encoded, new_ids: np.ndarray, out: AppendableArray) -> np.ndarray:
    """Append the ids of a shard under their new numbers; return the lengths of its sequences, (S,)."""
    length = np.zeros(len(shard.sequence) - 1, dtype=np.int64)
    ids = np.asarray(shard.ids)
    for s, e in slices(shard.sequence, np.array([0, len(length)]), np.zeros(1, np.int64)):
        new, length[s:e] = kernel.renumber(ids, shard.sequence[s:e + 1], new_ids)
        out.append(new)
    return length


def number_words(n_shards: int, load: Callable[[int], Reading]) -> Words:
    """Number the words of all shards by first appearance; drop the rarest if there are more than MAX_TYPES."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    n = 0                                                    # words of the shards, each shard's counted
    is_pruned = False
    for i in range(n_shards):
        words = load(i).encoded.words
        n += len(words)
        if not is_pruned:
            for word in words:
                index[word]
            is_pruned = len(index) > tokenize.MAX_TYPES
            if is_pruned:
                index.clear()
    if not is_pruned:
        return Words(dict(index), len(index))
    kept, n_types, count = frequent_words(lambda: (load(i).encoded for i in range(n_shards)), n)
    for i in range(n_shards):
        for word in load(i).encoded.words:
            if word in kept:
                index[word]
    return Words(dict(index), n_types, count)


def frequent_words(shards: Callable[[], Iterator[Encoded]], n_words: int) -> tuple[set[str], int, int]:
    """Return the at most MAX_TYPES most frequent words, the number of distinct words, and the count that was dropped.

    All words with a count above the dropped one are kept. n_words: words of all shards, an upper bound on the distinct
    ones.
    """
    most = tokenize.MAX_TYPES
    n_groups = -(-2 * n_words // most)
    kept, n_types, dropped = dict[str, int](), 0, 0
    with Progress("dropping rare words", n_groups, "groups") as progress:
        for group in range(n_groups):
            counts: defaultdict[str, int] = defaultdict(int)
            for shard in shards():
                for word, n in zip(shard.words, shard.counts.tolist(), strict=True):
                    if zlib.crc32(word.encode("utf-8", "surrogatepass")) % n_groups == group:
                        counts[word] += n
            n_types += len(counts)
            kept |= {word: n for word, n in counts.items() if n > dropped}
            if len(kept) > most:
                by_count = np.sort(np.fromiter(kept.values(), np.int64, len(kept)))
                dropped = int(by_count[-1 - most])
                kept = {word: n for word, n in kept.items() if n > dropped}
            progress.add()
    if not kept:
        raise ResourceError(f"corpus: more than {most:,} distinct words, all of one count; choose another tokenizer")
    return set(kept), n_types, dropped
