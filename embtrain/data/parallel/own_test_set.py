"""Reads a user's test set for a trained translator, as ids of the vocabularies of its run."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.common.terminal import format_part
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.parallel import files as parallel_files
from embtrain.data.parallel.corpus import ParallelConfig, ParallelCorpus, Side, encode_words
from embtrain.data.parallel.files import Pair, ParallelLayout
from embtrain.data.parallel.tokenize import Tokenizer, tokenize_line, tokenize_source
from embtrain.data.storage.containers import PACKED
from embtrain.data.storage.skipped import counted
from embtrain.data.text.vocabulary import Vocabulary

_log = logging.getLogger("embtrain")


def load(where: Path, layout: ParallelLayout, config: ParallelConfig, tokenizer: Tokenizer, source: Vocabulary,
         target: Vocabulary) -> ParallelCorpus:
    """Load all pairs as the part test; train and valid are empty. Sentences are cut at config.max_length words.

    where: NAME, NAME.de or NAME.en, for two files; a table; or a folder or archive of either. If it has several parts,
    the test part is used. DataError if the files do not fit together or contain no pairs.
    """
    files, layout = _files(where, layout), dataclasses.replace(layout, parts=None)
    read = parallel_files.read(files, parallel_files.inventory_files(files, layout, FilesConfig()), layout)
    for warning in read.warnings:
        _log.warning("%s", warning)
    parts = {part: pairs for part, pairs in read.parts.items() if pairs}
    if len(parts) > 1 and "test" not in parts:
        raise DataError(f"{where}: has the splits {', '.join(sorted(parts))} and no test split; give the file to "
                        "evaluate on")
    pairs = parts["test"] if len(parts) > 1 else next(iter(parts.values()))
    sides = [_side([split(pair[i], tokenizer, config.lower) for pair in pairs], vocabulary, config.max_length)
             for i, (split, vocabulary) in enumerate(((tokenize_source, source), (tokenize_line, target)))]
    _report(where, pairs, sides, config)
    return ParallelCorpus(sides[0], sides[1], (0, 0), pairs, 0, {"name": where.name, "pieces": read.pieces})


def _files(where: Path, layout: ParallelLayout) -> list[Path]:
    """Return the two files of a test set if `where` is one of them or their common name; else `where`."""
    languages = [language for language in (layout.source, layout.target) if language]
    packed = next((end for end in PACKED if where.name.endswith(end)), "")
    inner = where.name.removesuffix(packed)
    language = next((x for x in languages if inner.endswith(f".{x}")), None)
    if language is None and where.exists():
        return [where]
    stem = inner.removesuffix(f".{language}") if language else where.name
    paths = []
    for x in languages:
        ends = [packed, *(end for end in ("", *PACKED) if end != packed)]
        path = next((path for end in ends if (path := where.with_name(f"{stem}.{x}{end}")).is_file()), None)
        if path is None:
            raise DataError(f"{where.with_name(f'{stem}.{x}')}: file not found; a test set is two files that end in "
                            f".{languages[0]} and .{languages[-1]}, or a table (.tsv)")
        paths.append(path)
    if not paths:
        raise DataError(f"{where}: file or folder not found; give a table (.tsv) of source and target")
    return paths


def _side(sentences: Sequence[list[str]], vocabulary: Vocabulary, longest: int) -> Side:
    ids = [encode_words(words[:longest], vocabulary) for words in sentences]
    start = np.concatenate([[0], np.cumsum([len(sentence) for sentence in ids])]).astype(np.int64)
    return Side(np.concatenate([*ids, np.zeros(0, np.int32)]).astype(np.int32), start, vocabulary)


def _report(where: Path, pairs: list[Pair], sides: list[Side], config: ParallelConfig) -> None:
    cut, empty = (int(sum(sides[0].size() == n)) for n in (config.max_length, 0))
    if cut:
        words = f"{config.max_length} words or more and"
        _log.warning("%s: %s truncated (translation.max_length); the references are complete", where, format_part(
            cut, len(pairs), "source lines", f"has {words} is", f"have {words} are"))
    if empty:
        _log.warning("%s: %s too", where, counted(
            empty, "source line is empty; its translation is an empty line",
            "source lines are empty; their translations are empty lines"))
