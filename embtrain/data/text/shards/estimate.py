"""Seconds, memory and disk of reading a text, from a sample of its shards: the text itself is not read.

seconds   hashing, encoding (divided by the workers) and joining, at the rates of the sample; arranging the parts takes
          about as long as joining
memory    of a worker: WORD_BYTES for each distinct word, which grow as the 0.6th power of the tokens; of joining and
          arranging also SEQUENCE_BYTES for each sequence, whose offsets are in memory several times
disk      the ids of the shards and the joined ones, 4 bytes each, and the offsets of the sequences, 8 bytes each
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from embtrain.common import machine
from embtrain.data.inventory.inventory import Inventory
from embtrain.data.storage.cache import AppendableArray
from embtrain.data.storage.containers import PACKED
from embtrain.data.storage.ranges import line_end
from embtrain.data.text import tokenize
from embtrain.data.text.findings.tally import Tally
from embtrain.data.text.readers import TextDocument, find_tokenised
from embtrain.data.text.shards.merge import merge
from embtrain.data.text.shards.plan import Shard, divisible_kind, make_shards
from embtrain.data.text.shards.rules import Reading, ReadingRules, encode_documents

N_SAMPLES = 4             # shards, evenly spaced
SAMPLE_BYTES = 8 << 20    # of each
WORD_BYTES = 200          # of a distinct word in Python
SEQUENCE_BYTES = 48
_GROWTH = 0.6             # exponent of the number of distinct words in the number of tokens (Heaps' law)


@dataclass(frozen=True)
class ReadingEstimate:
    """The cost of reading a text, estimated."""

    corpus: str            # name of a recipe, or a path
    files: int
    bytes: int             # on disk
    shards: int
    sampled_bytes: int     # of text
    tokens: int
    types: int             # distinct words
    workers: int
    seconds: float
    worker_memory: int     # bytes of each worker
    join_memory: int       # bytes of the process that joins the shards
    disk: int              # bytes in the cache at most

    def __str__(self) -> str:
        mib = 2.0**20
        return (f"{self.corpus}: {self.files:,} files, {self.bytes / 1e6:,.0f} MB in {self.shards:,} shards; from a "
                f"sample of {self.sampled_bytes / 1e6:,.1f} MB about {self.tokens:,} tokens, {self.types:,} distinct "
                f"words\n"
                f"time: about {self.seconds:,.0f} s with {self.workers} workers\n"
                f"memory: about {self.worker_memory / mib:,.0f} MiB for each worker, then "
                f"{self.join_memory / mib:,.0f} MiB to join and arrange them\n"
                f"disk: about {self.disk / 1e6:,.0f} MB in the cache")


def estimate(corpus: str, files: Inventory, rules: ReadingRules, n_workers: int) -> ReadingEstimate:
    """Estimate the cost of reading the files of a corpus. Raises the errors of the sampled files as reading would."""
    tokenised = find_tokenised(files, rules.reader, rules.options)
    rules = replace(rules, options=replace(rules.options, examined=True, tokenised=tokenised))
    shards = make_shards(files, rules)
    chosen = [shards[i] for i in np.unique(np.linspace(0, len(shards) - 1, N_SAMPLES).astype(int)).tolist()]
    readings, seconds, sampled, disk_bytes = list[Reading](), 0.0, 0, 0.0
    for shard in chosen:
        sample = _Sample(shard, rules)
        begun = time.process_time()
        readings.append(encode_documents(sample.documents, rules, AppendableArray(), threads=1))
        seconds += time.process_time() - begun
        sampled += sample.n_bytes
        disk_bytes += sample.disk_bytes()
    begun = time.process_time()
    joined = merge(len(readings), readings.__getitem__, [False] * len(readings), rules.by_line, rules.max_sequence,
                   AppendableArray())[0].encoded
    join_seconds = time.process_time() - begun
    begun = time.process_time()
    hashlib.sha256(bytes(SAMPLE_BYTES))
    hash_seconds = (time.process_time() - begun) / SAMPLE_BYTES
    size = sum(shard.size for shard in shards)
    scale = size / max(disk_bytes, 1.0)
    n_tokens = int(joined.facts["tokens"] * scale)
    per_shard = max(shard.size for shard in shards) / max(disk_bytes, 1.0)
    n_types, shard_types = (int(joined.facts["types"] * max(ratio, 1.0) ** _GROWTH) for ratio in (scale, per_shard))
    n_sequences = int(len(joined.sequence) * scale)
    program = machine.process_memory("VmRSS") or 0
    workers = min(n_workers, len(shards))
    return ReadingEstimate(
        corpus, files=len(files.paths()), bytes=size, shards=len(shards), sampled_bytes=sampled, tokens=n_tokens,
        types=n_types, workers=workers, seconds=size * hash_seconds + scale * (seconds / workers + 2 * join_seconds),
        worker_memory=program + WORD_BYTES * min(shard_types, tokenize.MAX_TYPES),
        join_memory=program + WORD_BYTES * min(n_types, tokenize.MAX_TYPES) + SEQUENCE_BYTES * n_sequences,
        disk=8 * n_tokens + 16 * n_sequences)


class _Sample:
    """The first SAMPLE_BYTES of a shard's text."""

    def __init__(self, shard: Shard, rules: ReadingRules):
        self.n_bytes = 0          # of text that was read
        self._shard, self._rules = shard, rules
        self._text = b""          # some of it
        self._kind = divisible_kind(shard.path, rules)
        self._span_bytes: int | None = None

    def documents(self, tally: Tally) -> Iterator[TextDocument]:
        """Yield the documents until SAMPLE_BYTES of text are read."""
        self.n_bytes = 0
        for document in self._begin().documents(tally, self._rules):
            raw = None if document.raw is None else self._counted_bytes(document.raw)
            yield replace(document, pieces=self._counted(document.pieces), raw=raw)
            if self.n_bytes >= SAMPLE_BYTES:
                return

    def disk_bytes(self) -> float:
        """Return the bytes on disk that the sample takes, approximately."""
        if self._span_bytes is not None:
            is_cut = self._kind != "jsonl" and self.n_bytes >= SAMPLE_BYTES       # inside a long line
            return min(self._span_bytes, self.n_bytes) if is_cut else self._span_bytes
        is_packed = self._shard.path.name.lower().endswith((*PACKED, ".parquet", ".pq"))
        ratio = len(zlib.compress(self._text)) / len(self._text) if is_packed and self._text else 1.0
        return min(self.n_bytes * ratio, self._shard.size)

    def _begin(self) -> Shard:
        """Return the shard, cut to its first lines if it is plain text or JSON lines."""
        shard, path = self._shard, self._shard.path
        kind = self._kind
        if kind is None or kind == "parquet" or len(shard.files.entries) > 1:
            return shard
        begin, end = shard.span or (0, shard.size)
        first = line_end(path, min(begin + SAMPLE_BYTES, end))
        self._span_bytes = min(first, end) - begin
        return replace(shard, span=(begin, min(first, end)), reader=kind if begin else shard.reader)

    def _counted(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            self._add(piece.encode("utf-8", "surrogatepass"))
            yield piece
            if self.n_bytes >= SAMPLE_BYTES:
                return

    def _counted_bytes(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._add(piece)
            yield piece
            if self.n_bytes >= SAMPLE_BYTES:
                return

    def _add(self, piece: bytes) -> None:
        self.n_bytes += len(piece)
        if len(self._text) < 1 << 20:
            self._text += piece
