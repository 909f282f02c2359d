"""Documents -> ids: tokenisers, and the one pass over the text.

whitespace  what blanks part, as it stands                                   (text8, PTB: tokenised already)
words       runs of letters of any script, token_min to token_max long       (prose)
wiki        gensim's for Wikipedia, never wider than its own 2 to 15 letters (dumps)
auto        wiki for dumps, whitespace for the readers tokens and tagged, words for the rest
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np

from embtrain.data.cache import Encoded, Growing
from embtrain.data.readers import Document, Reader, untagged
from embtrain.errors import DataError, ResourceError
from embtrain.progress import Progress

Tokenizer = Literal["auto", "whitespace", "words", "wiki"]
_OF_READER: dict[Reader, Tokenizer] = {"text": "words", "tei": "words", "tokens": "whitespace", "tagged": "whitespace",
                                       "wiki": "wiki"}
_LETTERS = re.compile(r"[^\W\d_]+")
MAX_TYPES = 50_000_000   # distinct words held in memory at once, about 5 GB
LONGEST_WORD = 1 << 20   # characters without a blank before the text is cut regardless
FLUSH = 1 << 20          # tokens


def tokeniser(name: Tokenizer, kind: Reader, lower: bool, shortest: int, longest: int) -> Callable[[str], list[str]]:
    """The function from text (whole words) to tokens for documents of one kind."""
    name = _OF_READER[kind] if name == "auto" else name
    if name == "whitespace":
        return lambda text: (text.lower() if lower else text).split()
    if name == "wiki":
        from gensim.corpora.wikicorpus import TOKEN_MAX_LEN, TOKEN_MIN_LEN, tokenize

        least, most = max(TOKEN_MIN_LEN, shortest), min(TOKEN_MAX_LEN, longest)
        return lambda text: tokenize(text, least, most, lower)
    return lambda text: [word for word in _LETTERS.findall(text.lower() if lower else text)
                         if shortest <= len(word) <= longest]


def encode(documents: Iterable[Document], tokens_of: Callable[[Reader], Callable[[str], list[str]]], by_line: bool,
           max_sequence: int, out: Growing) -> Encoded:
    """Give every distinct word the next id, in the order of the text; ids go to `out`, so memory stays bounded."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    number = index.__getitem__
    pending, counts = array("i"), np.zeros(1024, dtype=np.int64)
    sequence, document = array("q", [0]), array("q", [0])
    n_documents = 0

    def flush() -> None:
        nonlocal counts, pending
        if len(index) > MAX_TYPES:
            raise ResourceError(f"text: more than {MAX_TYPES:,} distinct words; take another tokenizer")
        if len(index) > len(counts):
            counts = np.concatenate([counts, np.zeros(2 * len(index) - len(counts), dtype=np.int64)])
        ids = np.frombuffer(pending, dtype=np.int32)
        if len(ids):
            seen, times = np.unique(ids, return_counts=True)
            counts[seen] += times
            out.append(ids)
        progress.add(len(ids))
        pending = array("i")

    def close() -> None:
        """End the open sequence here, cut where it is too long."""
        begin, end = sequence[-1], out.n + len(pending)
        sequence.extend(range(begin + max_sequence, end, max_sequence))
        if end > begin:
            sequence.append(end)

    with Progress("reading text", unit="tokens") as progress:
        for text in documents:
            tokens = tokens_of(text.kind)
            for block in _whole_words(text.pieces):
                if text.kind == "tagged":
                    block = untagged(block)
                lines = block.split("\n") if by_line else [block]
                for line in lines[:-1]:
                    pending.extend(map(number, tokens(line)))
                    close()
                pending.extend(map(number, tokens(lines[-1])))
                if len(pending) >= FLUSH:
                    flush()
            close()
            document.append(sequence[-1])
            n_documents += 1
        flush()
    if out.n == 0:
        raise DataError(f"the corpus holds no words ({n_documents} documents were read)")
    facts = {"documents": n_documents, "tokens": out.n, "types": len(index)}
    return Encoded(out.array(), np.array(sequence, dtype=np.int64), np.array(document, dtype=np.int64),
                   counts[:len(index)].copy(), list(index), facts)


def _whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """The same text, cut only at blanks."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        cut = max(text.rfind("\n"), text.rfind(" "), text.rfind("\t")) + 1
        if cut == 0 and len(text) > LONGEST_WORD:
            cut = len(text)
        if cut:
            yield text[:cut]
        rest = text[cut:]
    yield rest
