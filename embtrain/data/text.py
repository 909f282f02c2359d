"""Bytes -> ids, and which documents are held out.

Two steps, each cached in a folder named after the sha256 of the content and of the settings that matter to it:
read (every word gets an id) and arrange (documents parted, rare words dropped; ids lie in the order train, valid, test,
so that each part is a view). Another min_count or split thus needs no second reading.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator

from embtrain.config import Section
from embtrain.data import remarks
from embtrain.data.cache import Encoded, Growing, cached, place
from embtrain.data.containers import TEXT, fingerprint
from embtrain.data.readers import Manner, Reader, Tally, documents, wanted
from embtrain.data.scan import Unserved, scan
from embtrain.data.tokens import Split, Tokenizer, encode, tokeniser
from embtrain.data.vocabulary import Vocabulary, choose
from embtrain.errors import DataError, UsageError
from embtrain.kernels import text as kernel
from embtrain.kernels.core import core

PIECE = 10_000      # tokens: a document longer than this is held out in pieces where there are too few documents
SLICE = 1 << 20     # tokens moved at once
RULES = 2           # raised when readers or tokenizers change: cached readings under older rules are not used
_log = logging.getLogger("embtrain")


class PartsConfig(Section):
    """Which words have an id at most, and what is held out."""

    max_size: int | None = Field(None, ge=1, description="at most this many words, the most frequent ones")
    valid: float = Field(0.02, ge=0, le=0.45, description="share of the documents held out for early stopping")
    test: float = Field(0.02, ge=0, le=0.45, description="share of the documents held out to the end")
    split_seed: int = Field(0, ge=0, description="which documents are held out; the run's seed does not matter")


class ReadingConfig(PartsConfig):
    """How text becomes words, whatever is learnt from it."""

    lower: bool = Field(True, description="fold the text to lower case")
    token_min: int = Field(1, ge=1, description="shortest token in characters (tokenizers words and wiki)")
    token_max: int = Field(30, ge=1, description="longest token in characters; wiki never goes beyond gensim's 2 to 15")
    tokenizer: Tokenizer = Field("auto", description="auto: wiki for dumps, whitespace for tokenised text, else words")
    sequence: Literal["line", "document"] = Field("line", description="what is one sequence of words")
    format: Reader = Field("auto", description="format of your own files; auto: judged by their first bytes")
    field: str = Field("text", min_length=1, description="field of each object that holds its text (format jsonl)")
    section: ClassVar[str] = "text"  # of the settings, for errors

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        if self.token_min > self.token_max:
            raise ValueError(f"token_min {self.token_min} is above token_max {self.token_max}")
        if self.format != "jsonl" and self.field != "text":
            raise ValueError(f"field {self.field!r} is of format jsonl, and format is {self.format}")
        return self


class WindowsConfig(PartsConfig):
    """Rare words leave the text, and windows are laid over what stays."""

    min_count: int = Field(5, ge=1, description="words seen less often in the training text have no id")
    max_sequence: int = Field(10_000, ge=2, description="longer sequences are cut, in tokens")
    window: int = Field(5, ge=1, le=1000, description="words on each side of the centre")
    dynamic_window: bool = Field(True, description="each centre draws its window from 1 to `window`")
    sample: float = Field(1e-3, ge=0, le=1, description="threshold t of the subsampling of frequent words; 0: none")
    sample_rule: Literal["word2vec", "eq23"] = Field("word2vec", description="kept with sqrt(t/f)+t/f, or sqrt(t/f)")


class TextConfig(ReadingConfig, WindowsConfig):
    """Skip-gram's, over text."""


@dataclass(frozen=True)
class Corpus:
    ids: np.ndarray                        # (N,) int32  may be memory-mapped, read only
    sequence: np.ndarray                   # (S+1,) int64  offsets that a window never crosses
    document: np.ndarray                   # (D+1,) int64  offsets; what a split may part
    vocabulary: Vocabulary                 # of the training documents
    identity: dict[str, Any]               # name, sha256 of the content, settings, counts
    parts: tuple[int, int] | None = None   # documents before the first are train, from the second on test

    def __len__(self) -> int:
        return len(self.ids)


def load(where: list[Path], reader: str, config: TextConfig, cache: Path | None, name: str) -> Corpus:
    """The corpus at `where`, its documents in the order train, valid, test.

    Raises DataError where a file is missing, damaged, no text, or nothing is left; UsageError for an unknown reader.
    """
    return arrange(*reading(where, reader, config, config.max_sequence, cache, name), config, cache, name)


def arrange(known: dict[str, Any], read: Callable[[], Encoded], config: WindowsConfig, cache: Path | None, name: str
            ) -> Corpus:
    """The corpus of what is read, in the order of its parts, through the cache; `known` tells it from every other."""
    arranging = {**known, **config.model_dump(include={"min_count", "max_size", "valid", "test", "split_seed"})}
    def arranged(out: Growing) -> Encoded:
        return _arranged(read(), config, out)

    key, folder = place(cache, name, "text", arranging)
    found = cached(folder, key, arranged)
    tell(found)
    counts = {n: found.facts[n] for n in ("documents", "tokens", "types")}
    identity = {"name": name, "sha256": known["content"], "settings": arranging,
                "counts": {**counts, "words": len(found.words), "kept": len(found.ids)}}
    vocabulary = Vocabulary(found.words, found.counts, found.facts["total"])
    return Corpus(found.ids, found.sequence, found.document, vocabulary, identity,
                  (found.facts["first_valid"], found.facts["first_test"]))


def reading(where: list[Path], reader: str, config: ReadingConfig, max_sequence: int, cache: Path | None, name: str
            ) -> tuple[dict[str, Any], Callable[[], Encoded]]:
    """What tells the text as it is read from every other, and the reading itself, through the cache.

    Raises as `load` does.
    """
    if not where:
        raise UsageError(f"corpus {name}: no file or folder is named")
    if config.format != "auto" and reader not in ("auto", config.format):
        raise UsageError(f"{config.section}.format: {config.format}: the recipe {name} says that its files are read as "
                         f"{reader}; leave it at auto")
    kind = config.format if config.format != "auto" else cast(Reader, reader)  # documents() refuses unknown names
    tally = Tally()
    known = {"content": fingerprint(where, wanted(kind)), "reader": kind,
             "gensim": importlib.metadata.version("gensim"), "unicode": unicodedata.unidata_version,
             "max_sequence": max_sequence, "rules": RULES,
             **config.model_dump(include={"lower", "token_min", "token_max", "tokenizer", "sequence"}),
             **({"field": config.field} if kind == "jsonl" else {})}
    def read(out: Growing) -> Encoded:
        found = _encoded(where, kind, tally, config, max_sequence, out)
        said = [*remarks.found(tally, config.section, config.field, config.tokenizer == "auto")]
        lost = remarks.left_out(str(where[0]), found.facts, config.section, (config.token_min, config.token_max))
        if out.n == 0:
            n, mine = found.facts["documents"], f"{where[0]}: "
            what = f"holds no words ({n:,} documents were read)" if n else f"the archive holds no {TEXT}"
            if why := [lost] if lost else said:
                what = f"holds no words: {why[0].removeprefix(mine)}"
            raise DataError(mine + what)
        return replace(found, told=(*found.told, *said, *([lost] if lost else [])))

    key, folder = place(cache, name, "read", known)
    return known, lambda: cached(folder, key, read)


def tell(found: Encoded) -> None:
    """Warn of what was found on the way, whether it was read now or comes from the cache."""
    for line in found.told:
        _log.warning("%s", line)


def _encoded(where: list[Path], kind: Reader, tally: Tally, config: ReadingConfig, max_sequence: int, out: Growing
             ) -> Encoded:
    """Through the core where there is one, else in Python: the same to the last id."""
    @cache
    def split_of(of: Reader) -> Split:
        return tokeniser(config.tokenizer, of, config.lower, config.token_min, config.token_max)

    by_line = config.sequence == "line"
    manner = Manner(config.field, config.section, plain=config.tokenizer != "auto")
    if core() is not None:
        try:
            return scan(documents(where, kind, tally, manner), split_of, by_line, max_sequence, out, tally)
        except Unserved:
            tally.clear()
            out.clear()
    return encode(documents(where, kind, tally, manner), split_of, by_line, max_sequence, out)


def split(corpus: Corpus, config: PartsConfig) -> tuple[Corpus, Corpus, Corpus]:
    """(train, valid, test): views of the corpus. One made by hand (`parts` None) is arranged first."""
    if corpus.parts is None:
        part = parts_of(n := len(corpus.document) - 1, config)
        if (reason := unheld(n, config)) is not None:
            _log.warning("%s", reason)
        out = Growing()
        keep = np.arange(len(corpus.vocabulary), dtype=np.int32)
        sequence, document = gather(corpus.ids, corpus.sequence, corpus.document, part, keep, out)
        corpus = replace(corpus, ids=out.array(), sequence=sequence, document=document, parts=_first(part))
    assert corpus.parts is not None
    bounds = (0, *corpus.parts, len(corpus.document) - 1)
    train, valid, test = (_part(corpus, bounds[i], bounds[i + 1], name) for i, name in
                          enumerate(("train", "valid", "test")))
    return train, valid, test


def _part(corpus: Corpus, first: int, last: int, name: str) -> Corpus:
    begin, end = corpus.document[first], corpus.document[last]
    s, e = np.searchsorted(corpus.sequence, [begin, end])
    return replace(corpus, ids=corpus.ids[begin:end], sequence=corpus.sequence[s:e + 1] - begin,
                   document=corpus.document[first:last + 1] - begin, parts=None,
                   identity={**corpus.identity, "part": name})


def _arranged(read: Encoded, config: WindowsConfig, out: Growing) -> Encoded:
    units = units_of(read.sequence, read.document, config)
    part = parts_of(len(units) - 1, config)
    counts = read.counts.copy()
    for s, e in _slices(read.sequence, np.searchsorted(read.sequence, units), np.flatnonzero(part > 0)):
        seen, times = np.unique(read.ids[read.sequence[s]:read.sequence[e]], return_counts=True)
        counts[seen] -= times
    vocabulary, renumber = choose(read.words, counts, config.min_count, config.max_size)
    sequence, document = gather(read.ids, read.sequence, units, part, renumber, out)
    first_valid, first_test = _first(part)
    facts = {**read.facts, "total": vocabulary.total, "first_valid": first_valid, "first_test": first_test}
    reason = unheld(len(units) - 1, config)
    return Encoded(out.array(), sequence, document, vocabulary.counts, vocabulary.words, facts,
                   read.told if reason is None else (*read.told, reason))


def units_of(sequence: np.ndarray, document: np.ndarray, config: PartsConfig) -> np.ndarray:
    """Offsets of what is held out whole: documents, or pieces of long ones where a share is less than one document."""
    shares = [share for share in (config.valid, config.test) if share > 0]
    if not shares or min(shares) * (len(document) - 1) >= 1:
        return document
    cuts = [document]
    for begin, end in itertools.pairwise(document):
        aims = np.arange(begin + PIECE, end, PIECE)
        cuts.append(sequence[np.searchsorted(sequence, aims)])  # a piece ends where a sequence ends
    pieces = np.unique(np.concatenate(cuts))
    return pieces if len(pieces) > len(document) else document


def parts_of(n: int, config: PartsConfig) -> np.ndarray:
    """(n,) int8  0 train, 1 valid, 2 test. A positive share holds out at least one document."""
    part = np.zeros(n, dtype=np.int8)
    shares = (config.valid, config.test)
    if unheld(n, config) is not None:
        return part
    order, taken = np.random.default_rng(config.split_seed).permutation(n), 0
    sizes = [max(1, round(share * n)) if share > 0 else 0 for share in shares]
    if sum(sizes) >= n:
        raise DataError(f"valid, test: shares of {config.valid:g} and {config.test:g} of {n} documents leave none to "
                        "train on; lower them")
    for number, size in enumerate(sizes, 1):
        part[order[taken:taken + size]] = number
        taken += size
    return part


def unheld(n: int, config: PartsConfig) -> str | None:
    """Why of n documents, or pieces, nothing is held out, although a share is asked for."""
    if n > sum(share > 0 for share in (config.valid, config.test)):
        return None
    return (f"text: {n} document{'s' * (n != 1)}, and no piece of {PIECE:,} tokens that ends where a line does: "
            "nothing is held out")


def _first(part: np.ndarray) -> tuple[int, int]:
    n_train, n_valid, _ = np.bincount(part, minlength=3).tolist()
    return n_train, n_train + n_valid


def _slices(sequence: np.ndarray, bounds: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of sequences, at most about SLICE tokens each, that make up the chosen documents in order."""
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
        s, last = (int(bounds[run[0]]), int(bounds[run[-1] + 1])) if len(run) else (0, 0)
        while s < last:
            e = min(max(int(np.searchsorted(sequence, sequence[s] + SLICE, "right")) - 1, s + 1), last)
            yield s, e
            s = e


def gather(ids: np.ndarray, sequence: np.ndarray, document: np.ndarray, part: np.ndarray, renumber: np.ndarray,
            out: Growing) -> tuple[np.ndarray, np.ndarray]:
    """Write the ids in the order of the parts, those without a new id dropped; the new offsets."""
    bounds = np.searchsorted(sequence, document)
    length = np.zeros(len(sequence) - 1, dtype=np.int64)  # of each sequence, after the drop
    order = [np.flatnonzero(part == number) for number in range(3)]
    ids = np.asarray(ids)
    moved: list[np.ndarray] = [length[:0]]
    for chosen in order:
        for s, e in _slices(sequence, bounds, chosen):
            new, length[s:e] = kernel.renumber(ids, sequence[s:e + 1], renumber)
            moved.append(length[s:e])
            out.append(new)
    by_document = np.diff(np.concatenate([[0], np.cumsum(length)])[bounds])
    lengths = np.concatenate(moved)
    return _offsets(lengths[lengths > 0]), _offsets(by_document[np.concatenate(order)])


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
