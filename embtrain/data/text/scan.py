"""Documents -> ids through the core: what tokens.encode gives, to the last id, sooner and on several threads.

The text goes in chunks of whole words to kernels/text/scan.py; each thread numbers the distinct words of its own
chunks. In
the order of the text each thread's new words are then given ids, those that are not ASCII after Python has lowered and
parted them. What only Python can part (dumps, tags) arrives as the words that Python made of it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from embtrain.common.errors import ResourceError
from embtrain.common.progress import Progress
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.text.census import Census, count_left_out
from embtrain.data.text.readers import Reader, Tally, TextDocument
from embtrain.data.text.tokenize import MAX_WORD, Offsets, Splitter, check_n_types, grow_counts, split_lines
from embtrain.kernels.text.scan import AS_IT_STANDS, WHITESPACE, WORDS, Scanned, Types, spread

THREADS = 8  # more wait for the one that hands out ids
_MODE = {"whitespace": WHITESPACE, "words": WORDS}


class NeedsPythonReader(Exception):
    """A text without a blank in it for so long that only Python cuts it as Python does."""


@dataclass(frozen=True)
class _Chunk:
    data: bytes        # whole words
    mode: int
    split: Splitter    # what foreign words are parted with
    source: str        # "": bad characters are not counted
    is_last: bool      # of its document


class _Worker:
    """The types of one thread, and which words they stand for."""

    def __init__(self) -> None:
        self.types = Types()
        self.start, self.word = array("q", [0]), array("i")  # type t stands for word[start[t]:start[t + 1]]
        self.bad = array("q")                                # U+FFFD in each type
        self.left_out: dict[int, np.ndarray] = {}            # by type: what the census counts in it, where not 0

    def scan(self, chunk: _Chunk) -> Scanned:
        split = chunk.split
        lower = split.lower and chunk.mode != AS_IT_STANDS
        return self.types.scan(chunk.data, chunk.mode, lower, split.shortest, split.longest)

    def name(self, split: Splitter, number: Callable[[str], int]) -> None:
        """Give the words of types that have come since the last call their ids."""
        words, foreign = self.types.since(first := len(self.bad))
        begin = 0
        for position in [*np.flatnonzero(foreign).tolist(), len(words)]:  # what stands for itself, many at a time
            self.word.extend(map(number, map(bytes.decode, words[begin:position])))
            self.start.extend(range(self.start[-1] + 1, len(self.word) + 1))
            self.bad.extend(itertools.repeat(0, position - begin))
            if position < len(words):
                text = words[position].decode("utf-8", "replace")
                self.word.extend(map(number, split.tokens(text)))
                self.start.append(len(self.word))
                self.bad.append(text.count("\ufffd"))
                if split.name == "words":
                    counts = count_left_out(text, split.lower, split.shortest, split.longest)
                    if counts.any():
                        self.left_out[first + position] = counts
            begin = position + 1

    def spread(self, scanned: Scanned, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return spread(scanned, np.frombuffer(self.start, dtype=np.int64), np.frombuffer(self.word, dtype=np.int32),
                      counts)

    def count(self, scanned: Scanned, census: Census) -> None:
        """Add what was left out of a chunk of running text."""
        census.add_scanned(scanned)
        if self.left_out:
            is_short = np.zeros(len(self.bad), dtype=bool)
            is_short[list(self.left_out)] = True
            seen, times = np.unique(scanned.types[is_short[scanned.types]], return_counts=True)
            for number, n in zip(seen.tolist(), times.tolist(), strict=True):
                census.add(self.left_out[number] * n)

    def replaced(self, scanned: Scanned) -> int:
        bad = np.frombuffer(self.bad, dtype=np.int64)
        return int(bad[scanned.types].sum()) if bad.any() else 0


def scan(documents: Iterable[TextDocument], splitter_for: Callable[[Reader], Splitter], by_line: bool,
         max_sequence: int, out: AppendableArray, tally: Tally) -> Encoded:
    """tokens.encode through the core. Raises Unserved where the text must be read there."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    counts, offsets = np.zeros(1024, dtype=np.int64), Offsets(max_sequence)
    n_threads = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, THREADS)
    census = Census()
    # A type stands for other words under another tokenizer: each has its own workers.
    workers = defaultdict[str, list[_Worker]](lambda: [_Worker() for _ in range(n_threads)])
    chunks = _chunks(documents, splitter_for, by_line, census)
    with (Progress("reading text", unit="tokens") as progress, ThreadPoolExecutor(n_threads) as pool,
          _memory()):
        while round_ := list(itertools.islice(chunks, n_threads)):
            pairs = [(workers[chunk.split.name][i], chunk) for i, chunk in enumerate(round_)]
            for (worker, chunk), scanned in zip(pairs, pool.map(lambda p: p[0].scan(p[1]), pairs), strict=True):
                worker.name(chunk.split, index.__getitem__)
                check_n_types(len(index))
                counts = grow_counts(counts, len(index))
                ids, ends = worker.spread(scanned, counts)
                if by_line:
                    offsets.end_lines(ends + out.n)
                out.append(ids)
                progress.add(len(ids))
                if chunk.mode == WORDS:
                    worker.count(scanned, census)
                if chunk.source:
                    tally.add(chunk.source, worker.replaced(scanned), scanned.nul)
                if chunk.is_last:
                    offsets.end_document(out.n)
    return offsets.encoded(out, counts, list(index), census)


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise ResourceError(f"text: {error}") from error


def _chunks(documents: Iterable[TextDocument], splitter_for: Callable[[Reader], Splitter], by_line: bool, census: Census
            ) -> Iterator[_Chunk]:
    for document in documents:
        split = splitter_for(document.kind)
        mode = _MODE.get(split.name, AS_IT_STANDS) if document.kind != "tagged" else AS_IT_STANDS
        if mode == AS_IT_STANDS:
            for lines in split_lines(document, by_line):
                if split.name != "whitespace":
                    for line, _ in lines:
                        census.add_text(line, split.name, split.lower, split.shortest, split.longest)
                data = "\n".join(" ".join(split.tokens(line)) for line, _ in lines).encode()
                yield _Chunk(data, mode, split, "", False)
            yield _Chunk(b"", mode, split, "", True)
        elif document.raw is None:  # a carriage return that XML has let through ends no line
            pieces = (piece.replace("\r", " ").encode() for piece in document.pieces)
            yield from (_Chunk(data, mode, split, "", last) for data, last in _whole_words(pieces))
        else:
            yield from (_Chunk(data, mode, split, document.name, last) for data, last in _whole_words(document.raw))


def _whole_words(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The same bytes, cut only at blanks, and whether they are the last."""
    rest = b""
    for piece in pieces:
        room = MAX_WORD - len(rest) + 1
        if len(piece) >= room and not (b" " in piece[:room] or b"\n" in piece[:room]):
            raise NeedsPythonReader
        data = rest + piece
        cut = max(data.rfind(b"\n"), data.rfind(b" "), data.rfind(b"\t")) + 1
        if cut:
            yield data[:cut], False
        rest = data[cut:]
    yield rest, True
