"""Tokenizers, and one pass over documents in Python; scan.py does the same through the compiled core.

whitespace  text between blanks, verbatim                                    (text8, PTB: tokenised already)
words       runs of letters of any script with the marks and joiners in them, token_min to token_max characters long
            (prose); soft hyphens, word joiners, byte order marks and other invisible layout characters are removed
wiki        gensim's for Wikipedia, never wider than its own 2 to 15 letters (dumps)
auto        wiki for dumps, whitespace for the readers tokens and tagged and for text with marks (<unk>), words for
            the rest
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from embtrain.common.errors import ResourceError
from embtrain.common.progress import Progress
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.text.findings.census import Census
from embtrain.data.text.readers import Reader, TextDocument, remove_tags
from embtrain.data.text.words import find_words

Tokenizer = Literal["auto", "whitespace", "words", "wiki"]
_READER_TOKENIZERS: dict[Reader, Tokenizer] = {
    "text": "words", "tei": "words", "tokens": "whitespace", "tagged": "whitespace", "wiki": "wiki",
    "wikiextractor": "words", "jsonl": "words", "parquet": "words", "arrow": "words"}
MAX_TYPES = 50_000_000   # distinct words held in memory at once, about 5 GB
MAX_WORD = 1 << 20       # characters without a blank before the text is cut regardless
FLUSH = 1 << 20          # tokens


@dataclass(frozen=True)
class Splitter:
    """A function that splits text of whole words into tokens, and its settings."""

    name: Literal["whitespace", "words", "wiki"]
    lower: bool
    shortest: int
    longest: int
    tokens: Callable[[str], list[str]]


def make_splitter(name: Tokenizer, kind: Reader, lower: bool, shortest: int, longest: int) -> Splitter:
    """Return the splitter for documents of one kind. shortest, longest: token_min and token_max."""
    name = _READER_TOKENIZERS[kind] if name == "auto" else name
    if name == "whitespace":
        return Splitter(name, lower, shortest, longest, lambda text: (text.lower() if lower else text).split())
    if name == "wiki":
        from gensim.corpora.wikicorpus import TOKEN_MAX_LEN, TOKEN_MIN_LEN, tokenize

        min_length, max_length = max(TOKEN_MIN_LEN, shortest), min(TOKEN_MAX_LEN, longest)
        return Splitter(name, lower, min_length, max_length, lambda text: tokenize(text, min_length, max_length, lower))
    return Splitter("words", lower, shortest, longest,
                    lambda text: [word for word in find_words(text.lower() if lower else text)
                                  if shortest <= len(word) <= longest])


class Offsets:
    """The ends of sequences and documents."""

    def __init__(self, max_sequence: int):
        self._max = max_sequence
        self._sequence, self._document = array("q", [0]), array("q", [0])

    def end_lines(self, ends: np.ndarray) -> None:
        """Add sequences that end at the offsets `ends`, (L,) int64, ascending.

        Empty sequences are dropped, and those longer than `max_sequence` are cut.
        """
        ends = ends[np.diff(ends, prepend=self._sequence[-1]) > 0]
        begins = np.concatenate([[self._sequence[-1]], ends[:-1]])
        if len(ends) and (ends - begins).max() > self._max:
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                self._sequence.extend([*range(begin + self._max, end, self._max), end])
        else:
            self._sequence.frombytes(ends.tobytes())

    def end_document(self, end: int) -> None:
        """End the document, and its last sequence, at the offset `end`."""
        if end > (begin := self._sequence[-1]):              # without NumPy, for many short documents
            self._sequence.extend([*range(begin + self._max, end, self._max), end])
        self._document.append(end)

    def sequence(self) -> np.ndarray:
        """Return the offsets of the sequences, (S+1,) int64."""
        return np.array(self._sequence, dtype=np.int64)

    def encoded(self, out: AppendableArray, counts: np.ndarray, words: list[str], census: Census) -> Encoded:
        """Return the encoded text with these offsets. counts: at least (V,). words: V."""
        counts = counts[:len(words)].copy()
        facts = {"documents": len(self._document) - 1, "tokens": out.n, "types": len(words),
                 **census.facts(words, counts)}
        return Encoded(out.array(), self.sequence(), np.array(self._document, dtype=np.int64), counts, words, facts)


def encode(documents: Iterable[TextDocument], splitter_for: Callable[[Reader], Splitter], by_line: bool,
           max_sequence: int, out: AppendableArray, census: Census | None = None) -> Encoded:
    """Encode documents: each distinct word gets the next id, in text order. census: receives the sums.

    Ids are appended to `out`, so that memory stays bounded.
    """
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    number = index.__getitem__
    pending, counts = array("i"), np.zeros(1024, dtype=np.int64)
    ends = array("q")
    offsets, census = Offsets(max_sequence), Census() if census is None else census

    def flush() -> None:
        nonlocal counts, pending, ends
        check_n_types(len(index))
        counts = grow_counts(counts, len(index))
        ids = np.frombuffer(pending, dtype=np.int32)
        if len(ids):
            seen, times = np.unique(ids, return_counts=True)
            counts[seen] += times
            out.append(ids)
        progress.add(len(ids))
        offsets.end_lines(np.array(ends, dtype=np.int64))
        pending, ends = array("i"), array("q")

    with Progress("reading text", unit="tokens") as progress:
        for text in documents:
            split = splitter_for(text.kind)
            for lines in split_lines(text, by_line):
                for line, is_whole in lines:
                    pending.extend(map(number, split.tokens(line)))
                    if split.name != "whitespace":
                        census.add_text(line, split.name, split.lower, split.shortest, split.longest)
                    if is_whole:
                        ends.append(out.n + len(pending))
                if len(pending) >= FLUSH:
                    flush()
            flush()
            offsets.end_document(out.n)
    return offsets.encoded(out, counts, list(index), census)


def split_lines(document: TextDocument, by_line: bool) -> Iterator[list[tuple[str, bool]]]:
    """Yield blocks of whole words, as lists of (line, whether the line ends in this block)."""
    for block in _whole_words(document.pieces):
        block = remove_tags(block) if document.kind == "tagged" else block
        *complete, last = block.split("\n") if by_line else [block]
        yield [*((line, True) for line in complete), (last, False)]


def check_n_types(n: int) -> None:
    """Raise ResourceError for more than MAX_TYPES distinct words."""
    if n > MAX_TYPES:
        raise ResourceError(f"corpus: more than {MAX_TYPES:,} distinct words; give less text, or another tokenizer")


def grow_counts(counts: np.ndarray, n: int) -> np.ndarray:
    """Return the counts with room for at least n, in steps that double."""
    return counts if n <= len(counts) else np.concatenate([counts, np.zeros(2 * n - len(counts), dtype=np.int64)])


def _whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the same text, cut only at blanks."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        cut = max(text.rfind("\n"), text.rfind(" "), text.rfind("\t")) + 1
        if cut == 0 and len(text) > MAX_WORD:
            cut = len(text)
        if cut:
            yield text[:cut]
        rest = text[cut:]
    yield rest
