"""Nearest neighbours of words in a run or vector file. Imports no PyTorch, so that the command starts fast."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.config.shown import printable
from embtrain.common.errors import DataError, UsageError, did_you_mean
from embtrain.common.terminal import plain
from embtrain.data.vectors import folders
from embtrain.data.vectors.open import BY_OPTIONS, ReadOptions
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words.neighbours import NeighbourList, near

MAX_COMPARED = 20_000  # words from which an error suggests one; more would take seconds
AnyPath = str | os.PathLike[str]  # a Run is one, too


def neighbours(
    what: AnyPath, words: str | Sequence[str], count: int = 10, reading: ReadOptions = BY_OPTIONS
) -> dict[str, NeighbourList]:
    """Return the nearest words of each word with their cosines; empty for a word without a vector, or with zeros.

    Vectors with subwords compose that of a missing word.

    what: a path, or a Run. words: several, or one. reading: how a file of vectors is read. UsageError if no word has a
    vector, as for an unknown word of `embtrain predict`.
    """
    what, words = Path(what), [words] if isinstance(words, str) else words
    table = open_vectors(what, reading)
    if len(table.words) < 2:
        raise DataError(f"{what}: contains the vector of one word, so it has no neighbours")
    nearest = {word: near(table, word, 1, count) for word in words}
    if not any(near or near.found_as for near in nearest.values()):
        hints = (printable(word) + did_you_mean(word, table.words[:MAX_COMPARED]) for word in words)
        raise UsageError(f"{what}: none of these words has a vector: {', '.join(hints)}")
    return nearest


def format_text(nearest: Mapping[str, NeighbourList]) -> str:
    """One line per word, with the spelling that was matched if it differs from the query."""
    return "\n".join(plain(f"{word}{_spelled(word, near)}: " + (
        ", ".join(f"{other} {cosine:.3f}" for other, cosine in near) or _why_empty(near)))
        for word, near in nearest.items())


def _why_empty(near: NeighbourList) -> str:
    return "not in the vocabulary" if near.found_as is None else \
        "no neighbours, because its vector, or that of every other word, is zeros or contains NaN"


def _spelled(word: str, near: NeighbourList) -> str:
    if near.is_composed:
        return " (composed from its n-grams)"
    if near.found_as in (word, None):
        return ""
    same = unicodedata.normalize("NFC", word) == unicodedata.normalize("NFC", str(near.found_as))
    return " (found in another Unicode form)" if same else f" (found as {near.found_as})"


def as_tree(nearest: Mapping[str, NeighbourList]) -> list[dict[str, Any]]:
    return [{"word": word, "found_as": near.found_as, "composed": near.is_composed,
             "neighbours": [{"word": other, "cosine": cosine} for other, cosine in near]}
            for word, near in nearest.items()]


def is_run(what: AnyPath) -> bool:
    """Whether a path is a run folder, not a vector file or an exported folder."""
    what = Path(what)
    return what.is_dir() and not folders.is_huggingface(what)


def open_vectors(what: AnyPath, reading: ReadOptions = BY_OPTIONS) -> Vectors:
    """Read the vectors of a run or vector file. DataError if the run has none yet, or if they cannot be read."""
    what = Path(what)
    folders.check_encoding(reading, what)
    if is_run(what) and not (what / folders.RUN_FILE).exists():
        # Lazy, because it imports PyTorch: only the error needs the settings of the run.
        from embtrain.experiment.run.run import Run

        return Run(what).word_vectors
    return folders.read_any(what, reading)
