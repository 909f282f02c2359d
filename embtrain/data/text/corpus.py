"""Read text into ids, and arrange its train, valid and test parts.

Two steps, each cached in a folder named after the sha256 of the content and of the settings it depends on: read (every
word gets an id) and arrange (documents are split, rare words dropped). Arranged ids are ordered train, valid, test, so
that each part is a view. Another min_count or split needs no second reading.
"""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator

from embtrain.common import machine
from embtrain.common.errors import DataError, UsageError
from embtrain.data.catalogue.recipes import CorpusParts
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FileRules, Inventory
from embtrain.data.inventory.saved_data_sets import check_saved_files
from embtrain.data.storage.cache import AppendableArray, Encoded, cache_location, load_or_build
from embtrain.data.storage.skipped import log_lines, number_files
from embtrain.data.text import holdout, readers
from embtrain.data.text.findings import remarks
from embtrain.data.text.findings.tally import TextReadOptions
from embtrain.data.text.holdout import PartsConfig, choose_held_out, slices
from embtrain.data.text.phrases import PhrasesConfig, join_phrases
from embtrain.data.text.readers import Reader
from embtrain.data.text.shards.reading import is_large, read_text, working_in
from embtrain.data.text.shards.rules import ReadingRules
from embtrain.data.text.tokenize import Tokenizer
from embtrain.data.text.vocabulary import Vocabulary, build_vocabulary, extend_vocabulary
from embtrain.kernels.text import scan as kernel

RULES = 2           # incremented if readers or tokenizers change: older cached readings are not used
FIELD_FORMATS: tuple[Reader, ...] = ("jsonl", "parquet", "arrow")  # whose text is one field of several
_log = logging.getLogger("embtrain")


class ReadingConfig(PhrasesConfig):
    """Settings of reading and tokenizing text, for all tasks on text."""

    lower: bool = Field(True, description="fold the text to lower case")
    token_min: int = Field(1, ge=1, description="minimum word length in characters (tokenizers words and wiki)")
    token_max: int = Field(
        30, ge=1, description="maximum word length in characters; wiki never exceeds gensim's 2 to 15")
    tokenizer: Tokenizer = Field("auto", description="auto: wiki for dumps, whitespace for tokenized text, else words")
    sequence: Literal["line", "document"] = Field("line", description="unit that no window crosses")
    format: Reader = Field("auto", description="format of your own files; auto: by their first bytes")
    field: str = Field(
        "text", min_length=1, description="field or column with the text (formats jsonl, parquet and arrow)")
    workers: int = Field(1, ge=1, le=1024, description="processes that read a large text; more than one read any text "
                                                       "in parallel")

    @property
    def joins_subwords(self) -> bool:
        """Whether words that were split into subwords are joined."""
        return self.tokenizer == "auto"

    def rules(self, reader: Reader, max_sequence: int) -> ReadingRules:
        """Return the settings that decide the ids of a text."""
        options = TextReadOptions(self.field, self.section, plain=not self.joins_subwords)
        return ReadingRules(reader, self.tokenizer, self.lower, self.token_min, self.token_max,
                            self.sequence == "line", max_sequence, options)

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        if self.token_min > self.token_max:
            raise ValueError(f"token_min {self.token_min} is above token_max {self.token_max}")
        if self.format not in FIELD_FORMATS and self.field != "text":
            raise ValueError(f"field {self.field!r} requires format: {', '.join(FIELD_FORMATS)}, but format is "
                             f"{self.format}")
        return self


MAX_WINDOW = 1000  # words on each side of the centre


class WindowsConfig(PartsConfig):
    """Settings of rare words, and of the skip-gram windows over the remaining text."""

    min_count: int = Field(5, ge=1, description="minimum count in the training text; rarer words get no id")
    max_sequence: int = Field(10_000, ge=2, description="maximum length of a sequence in tokens; longer ones are cut")
    window: int = Field(5, ge=1, le=MAX_WINDOW, description="words on each side of the centre")
    dynamic_window: bool = Field(True, description="draw each centre's window from 1 to `window`")
    sample: float = Field(1e-3, ge=0, le=1, description="threshold t of the subsampling of frequent words; 0: none")
    sample_rule: Literal["word2vec", "eq23"] = Field(
        "word2vec", description="probability of keeping a word: sqrt(t/f)+t/f, or sqrt(t/f)")


class TextConfig(ReadingConfig, WindowsConfig):
    """Settings of skip-gram over text."""


@dataclass(frozen=True)
class Corpus:
    """A corpus of ids, in the order train, valid, test."""

    ids: np.ndarray                        # (N,) int32  may be memory-mapped, read-only
    sequence: np.ndarray                   # (S+1,) int64  offsets that a window never crosses
    document: np.ndarray                   # (D+1,) int64  offsets; units of a split
    vocabulary: Vocabulary                 # of the training documents
    identity: dict[str, Any]               # name, sha256 of the content, settings, counts
    parts: tuple[int, int] | None = None   # index of the first valid and the first test document
    phrases: Sequence[Collection[tuple[str, str]]] | None = ()  # of a language model: the pairs that each pass joins;
                                                                # None: not known

    def __len__(self) -> int:
        return len(self.ids)


def load(where: list[Path], reader: str, config: TextConfig, cache: Path | None, name: str,
         recipe_parts: CorpusParts | None = None, parts_by_name: bool = True, earlier: Vocabulary | None = None
         ) -> Corpus:
    """Load the corpus at `where`, its documents in the order train, valid, test.

    recipe_parts, parts_by_name: as in `plan_reading`. earlier: the vocabulary that the text extends. Raises DataError
    if a file is missing, damaged or not text, or nothing is left; UsageError for an unknown reader.
    """
    settings, read = plan_reading(where, reader, config, config.max_sequence, cache, name, recipe_parts, parts_by_name)
    settings, read = join_phrases(settings, read, config, cache, name)
    return arrange(settings, read, config, cache, name, earlier)


def arrange(settings: dict[str, Any], read_encoded: Callable[[], Encoded], config: WindowsConfig, cache: Path | None,
            name: str, earlier: Vocabulary | None = None) -> Corpus:
    """Arrange a text in the order of its parts, through the cache.

    settings: from `plan_reading`; they identify the text. read_encoded: reads it. earlier: the vocabulary that it
    extends, whose hash is then a part of the corpus's sha256. Logs its warnings.
    """
    settings = dict(settings)
    files, places = settings.pop("files", {}), settings.pop("places", ())
    arranging = {**settings, **config.model_dump(include={"min_count", "max_size", "valid", "test", "split_seed"}),
                 **({"keeps_words": True} if config.keeps_words else {}),
                 **({} if earlier is None else {"earlier": earlier.sha256})}

    def arranged(out: AppendableArray) -> Encoded:
        return _arrange(read_encoded(), config, out, earlier)

    key, folder = cache_location(cache, name, "text", arranging)
    encoded = load_or_build(folder, key, arranged)
    log_lines(encoded.warnings, places)
    content = settings["content"]
    if earlier is not None:
        content = hashlib.sha256(f"{content} {earlier.sha256}".encode()).hexdigest()
    counts: dict[str, int] = {n: encoded.facts[n] for n in ("documents", "tokens", "types", "phrases")
                              if n in encoded.facts}
    counts |= {"words": len(encoded.words), "kept": len(encoded.ids)}
    identity = {"name": name, "sha256": content, "settings": arranging, "files": files, "counts": counts,
                **({"splitting": encoded.facts["splitting"]} if "splitting" in encoded.facts else {})}
    vocabulary = Vocabulary(encoded.words, encoded.counts, encoded.facts["total"])
    return Corpus(encoded.ids, encoded.sequence, encoded.document, vocabulary, identity,
                  (encoded.facts["first_valid"], encoded.facts["first_test"]))


def plan_reading(where: list[Path], reader: str, config: ReadingConfig, max_sequence: int, cache: Path | None,
                 name: str, recipe_parts: CorpusParts | None = None, parts_by_name: bool = True,
                 rules: FileRules | None = None) -> tuple[dict[str, Any], Callable[[], Encoded]]:
    """Return the settings that identify a text, and a function that reads it through the cache.

    recipe_parts: patterns of held-out files. parts_by_name: names give the part of a file; False: all files of a
    recipe are one text. rules: which files are read, instead of text files. `files` of the result is the inventory,
    for identity.json; `places` are the paths for `log_lines`. Raises as `load`.
    """
    kind, files = find_files(where, reader, config, name, recipe_parts, parts_by_name, rules)
    settings = {"content": files.content(where), "reader": kind,
                "gensim": machine.package_version("gensim"), "unicode": unicodedata.unidata_version,
                "max_sequence": max_sequence, "rules": RULES,
                **config.model_dump(include={"lower", "token_min", "token_max", "tokenizer", "sequence"}),
                **({"joins_subwords": True} if config.joins_subwords and config.tokenizer != "auto" else {}),
                **({"field": config.field} if kind in FIELD_FORMATS else {}),
                **({"parts": held_out_parts} if (held_out_parts := files.held_out()) else {})}

    def read(out: AppendableArray) -> Encoded:
        reading_rules = config.rules(kind, max_sequence)
        reading = read_text(files, reading_rules, settings, folder, config.workers, out)
        facts = {**reading.encoded.facts, "splitting": reading_rules.splitting(reading.tally)}
        encoded = replace(reading.encoded, facts=facts)
        findings = [*remarks.finding_lines(reading.tally, config.section, config.field, config.tokenizer == "auto")]
        left_out = remarks.left_out_line(str(where[0]), encoded.facts, config.section,
                                         (config.token_min, config.token_max))
        if out.n == 0:
            is_empty = where[0].is_file() and where[0].stat().st_size == 0
            raise DataError(remarks.no_words_line(str(where[0]), encoded.facts["documents"], is_empty,
                                                  [left_out] if left_out else findings))
        lines = (*encoded.warnings, *findings, *filter(None, [left_out]))
        return replace(encoded, warnings=number_files(lines, places))

    def read_through_cache() -> Encoded:
        with working_in(folder if config.workers > 1 or is_large(files) else None):
            return load_or_build(folder, key, files.checked(read))

    key, folder = cache_location(cache, name, "read", settings)
    places = [where[0], *files.paths()]
    return {**settings, "files": files.tree(), "places": places}, read_through_cache


def find_files(where: list[Path], reader: str, config: ReadingConfig, name: str,
               recipe_parts: CorpusParts | None = None, parts_by_name: bool = True, rules: FileRules | None = None
               ) -> tuple[Reader, Inventory]:
    """Return the reader of a text, and its files with their parts; arguments and errors as in `plan_reading`."""
    if not where:
        raise UsageError(f"corpus {name}: is empty; give a file or folder")
    if config.format != "auto" and reader not in ("auto", config.format):
        raise UsageError(f"{config.section}.format: {config.format}: the recipe {name} sets the reader {reader}; leave "
                         "it at auto")
    kind = config.format if config.format != "auto" else cast(Reader, reader)  # file_rules() rejects unknown names
    files = inventory.build_inventory(where, rules or readers.file_rules(kind, config.section, parts_by_name),
                                      config.files, None if recipe_parts is None else recipe_parts.patterns())
    if kind == "arrow":
        files = check_saved_files(files)
    return kind, files


def split(corpus: Corpus, config: PartsConfig) -> tuple[Corpus, Corpus, Corpus]:
    """Return (train, valid, test), views of the corpus. A corpus without `parts` is arranged first."""
    if corpus.parts is None:
        part = holdout.draw_parts(n := len(corpus.document) - 1, config)
        if (reason := holdout.missing_split_reason(n, config)) is not None:
            _log.warning("%s", reason)
        out = AppendableArray()
        keep = np.arange(len(corpus.vocabulary), dtype=np.int32)
        sequence, document = gather(corpus.ids, corpus.sequence, corpus.document, part, keep, out)
        corpus = replace(corpus, ids=out.array(), sequence=sequence, document=document, parts=_part_offsets(part))
    assert corpus.parts is not None
    bounds = (0, *corpus.parts, len(corpus.document) - 1)
    train, valid, test = (_view(corpus, bounds[i], bounds[i + 1], name) for i, name in
                          enumerate(("train", "valid", "test")))
    return train, valid, test


def _view(corpus: Corpus, first: int, last: int, name: str) -> Corpus:
    begin, end = corpus.document[first], corpus.document[last]
    s, e = np.searchsorted(corpus.sequence, [begin, end])
    sequence = corpus.sequence[s:e + 1]
    return replace(corpus, ids=corpus.ids[begin:end], sequence=sequence - begin if begin else sequence,
                   document=corpus.document[first:last + 1] - begin, parts=None,
                   identity={**corpus.identity, "part": name})


def _arrange(read: Encoded, config: WindowsConfig, out: AppendableArray, earlier: Vocabulary | None) -> Encoded:
    held = choose_held_out(read, config)
    units, part = held.units, held.part
    counts = holdout.training_counts(read, units, part)
    limits = config.min_count, config.max_size
    vocabulary, new_ids = build_vocabulary(read.words, counts, *limits, config.section) if earlier is None \
        else extend_vocabulary(earlier, read.words, counts, *limits)
    if not counts[new_ids >= 0].any():
        raise DataError(f"{config.section}.min_count: the {int(counts.sum()):,} tokens of the training text contain no "
                        f"word of the earlier vocabulary, and no new word {config.min_count} times; lower it, or give "
                        "more text")
    sequence, document = gather(read.ids, read.sequence, units, part, new_ids, out)
    first_valid, first_test = _part_offsets(part)
    total = int(counts.sum()) + (0 if earlier is None else int(earlier.counts.sum()))
    facts = {**read.facts, "total": total, "first_valid": first_valid, "first_test": first_test}
    return Encoded(out.array(), sequence, document, vocabulary.counts, vocabulary.words, facts,
                   (*read.warnings, *holdout.split_warnings(read, held, config.section),
                    *filter(None, [holdout.lost_line(counts, config)])))


def _part_offsets(part: np.ndarray) -> tuple[int, int]:
    n_train, n_valid, _ = np.bincount(part, minlength=3).tolist()
    return n_train, n_train + n_valid


def gather(ids: np.ndarray, sequence: np.ndarray, document: np.ndarray, part: np.ndarray, new_ids: np.ndarray,
           out: AppendableArray) -> tuple[np.ndarray, np.ndarray]:
    """Append the ids to `out` in the order of the parts, without words that have no new id.

    part: (D,) of each document. new_ids: (V,) new id of each word, -1 for none. Returns the new offsets of sequences
    and documents.
    """
    bounds = np.searchsorted(sequence, document)
    length = np.zeros(len(sequence) - 1, dtype=np.int64)  # of each sequence, without dropped words
    order = [np.flatnonzero(part == number) for number in range(3)]
    ids = np.asarray(ids)
    moved: list[np.ndarray] = [length[:0]]
    for chosen in order:
        for s, e in slices(sequence, bounds, chosen):
            new, length[s:e] = kernel.renumber(ids, sequence[s:e + 1], new_ids)
            moved.append(length[s:e])
            out.append(new)
    by_document = np.diff(np.concatenate([[0], np.cumsum(length)])[bounds])
    lengths = np.concatenate(moved)
    return _offsets(lengths[lengths > 0]), _offsets(by_document[np.concatenate(order)])


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
