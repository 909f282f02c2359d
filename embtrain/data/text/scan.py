"""Encode documents through the compiled core: the ids of tokenize.encode, faster and on several threads.

The text goes in chunks of whole words to kernels/text/scan.py; each thread numbers the distinct words of its own
chunks. The new words of each thread then get ids in the order of the text; those that are not ASCII are first lowered
and split by Python. Meanwhile the other threads scan the next chunks. Text that only Python can split (dumps, tags)
arrives as words that Python has split.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.progress import Progress
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.text.findings.census import Census, count_left_out
from embtrain.data.text.readers import Reader, Tally, TextDocument
from embtrain.data.text.tokenize import MAX_WORD, Offsets, Splitter, check_n_types, grow_counts, split_lines
from embtrain.kernels.text.scan import VERBATIM, WHITESPACE, WORDS, Scanned, Types, expand

GROUP = 1 << 20  # bytes that a thread scans at once
THREADS = 8  # more threads would wait for the one that assigns ids
_MODE = {"whitespace": WHITESPACE, "words": WORDS}


class NeedsPythonReader(Exception):
    """A run without blanks is so long that only Python cuts it as Python does."""


@dataclass(frozen=True)
class _Chunk:
    data: bytes        # whole words
    mode: int
    split: Splitter    # splits words that are not ASCII
    source: str        # "": invalid characters are not counted
    is_last: bool      # of its document


@dataclass(frozen=True)
class _Scans:
    """A scanned group of chunks, and the types that its thread had not seen before."""

    scanned: list[Scanned]
    new_types: tuple[list[bytes], np.ndarray]  # words, and whether they are foreign


class _Worker:
    """The types of one thread, and the ids of their words."""

    def __init__(self) -> None:
        self.types, self.n_seen = Types(), 0
        self.ids = array("i")                     # of the only word of each type; -1 - j if it has list j of words
        self.start, self.word = array("q", [0]), array("i")  # list j is word[start[j]:start[j + 1]]
        self.bad: dict[int, int] = {}             # by type: its number of U+FFFD, if not 0
        self.left_out: dict[int, np.ndarray] = {}            # by type: its census counts, if not 0

    def scan(self, group: Sequence[_Chunk]) -> _Scans:
        """Scan chunks through the core: the type of each of their words. Another thread may name earlier types."""
        scans = []
        for chunk in group:
            split = chunk.split
            lower = split.lower and chunk.mode != VERBATIM
            scans.append(self.types.scan(chunk.data, chunk.mode, lower, split.shortest, split.longest))
        new = self.types.since(self.n_seen)
        self.n_seen += len(new[0])
        return _Scans(scans, new)

    def name(self, new_types: tuple[list[bytes], np.ndarray], split: Splitter, number: Callable[[str], int]) -> None:
        """Assign ids to the words of the next types."""
        words, foreign = new_types
        begin = 0
        for position in [*np.flatnonzero(foreign).tolist(), len(words)]:  # types that are one word, many at a time
            self.ids.extend(map(number, map(bytes.decode, words[begin:position])))
            if position < len(words):
                self._name_foreign(words[position].decode("utf-8", "replace"), split, number)
            begin = position + 1

    def _name_foreign(self, text: str, split: Splitter, number: Callable[[str], int]) -> None:
        """Assign ids to the words of the next type, which is not ASCII."""
        kind, found = len(self.ids), [*map(number, split.tokens(text))]
        if len(found) == 1:
            self.ids.append(found[0])
        else:
            self.ids.append(-len(self.start))
            self.word.extend(found)
            self.start.append(len(self.word))
        if n_bad := text.count("\ufffd"):
            self.bad[kind] = n_bad
        if split.name == "words":
            counts = count_left_out(text, split.lower, split.shortest, split.longest)
            if counts.any():
                self.left_out[kind] = counts

    def expand(self, scanned: Scanned, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of a scanned chunk and the ends of its lines; add to the counts of the ids, (V,)."""
        return expand(scanned, np.asarray(self.ids), np.asarray(self.start), np.asarray(self.word), counts)

    def count(self, scans: Sequence[Scanned], census: Census) -> None:
        """Add what was dropped from chunks of running text."""
        for scanned in scans:
            census.add_scanned(scanned)
        if self.left_out and scans:
            types = np.concatenate([scanned.types for scanned in scans])
            for number, n in self._times(types, self.left_out):
                census.add(self.left_out[number] * n)

    def replaced(self, scanned: Scanned) -> int:
        """Return the number of U+FFFD in a scanned chunk."""
        return sum(self.bad[number] * n for number, n in self._times(scanned.types, self.bad)) if self.bad else 0

    def _times(self, types: np.ndarray, chosen: Collection[int]) -> Iterator[tuple[int, int]]:
        """Return those of the chosen types that occur, each with the number of its occurrences."""
        is_chosen = np.zeros(len(self.ids), dtype=bool)
        is_chosen[list(chosen)] = True
        seen, times = np.unique(types[is_chosen[types]], return_counts=True)
        return zip(seen.tolist(), times.tolist(), strict=True)


def scan(documents: Iterable[TextDocument], splitter_for: Callable[[Reader], Splitter], by_line: bool,
         max_sequence: int, out: AppendableArray, tally: Tally, census: Census | None = None, threads: int | None = None
         ) -> Encoded:
    """Encode documents as tokenize.encode does, through the core, on at most `threads` threads; None: THREADS.

    One of them names types; with two or more, the others scan at the same time. Raises NeedsPythonReader if Python must
    read the text.
    """
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    counts, offsets = np.zeros(1024, dtype=np.int64), Offsets(max_sequence)
    n_cores = machine.usable_cores()
    n_threads = min(n_cores, threads or THREADS)
    census = Census() if census is None else census
    groups = _groups(_chunks(documents, splitter_for, by_line, census))
    with (Progress("reading text", unit="tokens") as progress, _memory(),
          contextlib.closing(_scanned(groups, n_threads)) as scanned_groups):
        for worker, group, scans in scanned_groups:
            worker.name(scans.new_types, group[0].split, index.__getitem__)
            check_n_types(len(index))
            counts = grow_counts(counts, len(index))
            for chunk, scanned in zip(group, scans.scanned, strict=True):
                ids, ends = worker.expand(scanned, counts)
                if by_line:
                    offsets.end_lines(ends + out.n)
                out.append(ids)
                progress.add(len(ids))
                if chunk.source:
                    tally.add(chunk.source, worker.replaced(scanned), scanned.nul)
                if chunk.is_last:
                    offsets.end_document(out.n)
            worker.count([scanned for chunk, scanned in zip(group, scans.scanned, strict=True) if chunk.mode == WORDS],
                         census)
    return offsets.encoded(out, counts, list(index), census)


def _scanned(groups: Iterator[list[_Chunk]], n_threads: int
             ) -> Generator[tuple[_Worker, list[_Chunk], _Scans], None, None]:
    """Yield each group with its scans, in order. With several threads the next groups are scanned meanwhile."""
    n_workers = max(1, n_threads - 1)
    # Two groups for each worker, so that it does not wait for the thread that names types.
    n_started = 2 * n_workers if n_threads > 1 else 1
    # A type has other words under another tokenizer, so each tokenizer has its own workers.
    workers = defaultdict[str, list[_Worker]](lambda: [_Worker() for _ in range(n_workers)])
    started = deque[tuple[_Worker, list[_Chunk], Future[_Scans]]]()
    with contextlib.ExitStack() as stack:
        threads = itertools.cycle([stack.enter_context(ThreadPoolExecutor(1)) for _ in range(n_workers)])
        for number, (group, thread) in enumerate(zip(groups, threads, strict=False)):
            worker = workers[group[0].split.name][number % n_workers]
            started.append((worker, group, thread.submit(worker.scan, group)))
            if len(started) == n_started:
                worker, group, scans = started.popleft()
                yield worker, group, scans.result()
        for worker, group, scans in started:
            yield worker, group, scans.result()


def _groups(chunks: Iterable[_Chunk]) -> Iterator[list[_Chunk]]:
    """Yield consecutive chunks of one tokenizer that a thread scans at once: short documents are a chunk each."""
    group, size = list[_Chunk](), 0
    for chunk in chunks:
        if group and (size + len(chunk.data) > GROUP or chunk.split.name != group[0].split.name):
            yield group
            group, size = [], 0
        group.append(chunk)
        size += len(chunk.data)
    if group:
        yield group


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
        mode = _MODE.get(split.name, VERBATIM) if document.kind != "tagged" else VERBATIM
        if mode == VERBATIM:
            for lines in split_lines(document, by_line):
                if split.name != "whitespace":
                    for line, _ in lines:
                        census.add_text(line, split.name, split.lower, split.shortest, split.longest)
                data = "\n".join(" ".join(split.tokens(line)) for line, _ in lines).encode()
                yield _Chunk(data, mode, split, "", False)
            yield _Chunk(b"", mode, split, "", True)
        elif document.raw is None:  # a carriage return from XML does not end a line
            pieces = (piece.replace("\r", " ").encode() for piece in document.pieces)
            yield from (_Chunk(data, mode, split, "", last) for data, last in _whole_words(pieces))
        else:
            yield from (_Chunk(data, mode, split, document.name, last) for data, last in _whole_words(document.raw))


def _whole_words(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the same bytes in chunks, cut only at blanks, and whether they are the last."""
    data = b""
    for more, is_last in _cut(pieces):
        data += more
        if is_last or len(data) >= GROUP // 2:
            yield data, is_last
            data = b""


def _cut(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each piece, cut at its last blank, after the rest of the piece before; last a rest, perhaps empty."""
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
