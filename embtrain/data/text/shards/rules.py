"""Settings of reading text, and the encoding of documents by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import numpy as np

from embtrain.data.inventory.part_names import PARTS
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.text.findings.census import Census
from embtrain.data.text.findings.tally import Tally, TextReadOptions
from embtrain.data.text.readers import Reader, TextDocument
from embtrain.data.text.scan import NeedsPythonReader, scan
from embtrain.data.text.tokenize import Splitter, Tokenizer, encode, make_splitter
from embtrain.kernels.core.loader import core


@dataclass(frozen=True)
class ReadingRules:
    """Settings that decide the ids of a text."""

    reader: Reader
    tokenizer: Tokenizer
    lower: bool
    token_min: int
    token_max: int
    by_line: bool         # a line is a sequence; False: a document is one
    max_sequence: int
    options: TextReadOptions

    def splitter(self, kind: Reader) -> Splitter:
        """Return the splitter for documents of one kind."""
        return make_splitter(self.tokenizer, kind, self.lower, self.token_min, self.token_max)

    def splitting(self, tally: Tally) -> dict[str, Any]:
        """Return how documents were split: `tokenizers`, the first first, `subwords` and `split_subwords`.

        subwords: the sign of subwords that were joined; split_subwords: of those that stayed split. None if there were
        none.
        """
        tokenizers = dict.fromkeys(self.splitter(cast(Reader, kind)).name for kind in tally.readers)
        return {"tokenizers": [*tokenizers], "subwords": tally.joined and tally.joined[1],
                "split_subwords": tally.split}


@dataclass
class Reading:
    """Encoded documents and what was found in them."""

    encoded: Encoded
    tally: Tally = field(default_factory=Tally)
    census: Census = field(default_factory=Census)


def encode_documents(read: Callable[[Tally], Iterator[TextDocument]], rules: ReadingRules, out: AppendableArray,
                     is_range: bool = False, threads: int | None = None) -> Reading:
    """Encode documents through the core if there is one, else in Python: the ids are equal.

    read: returns the documents from their beginning, and adds findings to the tally that it receives. is_range: raise
    NeedsPythonReader instead of encoding in Python, which cuts endless words by their distance from the beginning.
    """
    part: list[int] = []                                     # of each document
    splitter_for = cache(rules.splitter)

    def documents(tally: Tally) -> Iterator[TextDocument]:
        part.clear()
        for document in read(tally):
            part.append(PARTS.index(document.part))
            tally.add_reader(document.kind)
            yield document

    result = None
    if core() is not None:
        tally, census = Tally(), Census()
        try:
            result = Reading(scan(documents(tally), splitter_for, rules.by_line, rules.max_sequence, out, tally,
                                  census, threads), tally, census)
        except NeedsPythonReader:
            if is_range:
                raise
            out.clear()
    if result is None:
        tally, census = Tally(), Census()
        result = Reading(encode(documents(tally), splitter_for, rules.by_line, rules.max_sequence, out, census), tally,
                         census)
    if any(part):
        result.encoded = replace(result.encoded, part=np.array(part, np.int8))
    return result
