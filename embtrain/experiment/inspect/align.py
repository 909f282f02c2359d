"""Align the vectors of two runs or vector files, and write the rotated ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from embtrain.common.config.arguments import named_arguments, whole_number
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import check_exists
from embtrain.common.output_paths import check_output_file
from embtrain.common.terminal import plain
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_nonblank_lines
from embtrain.data.storage.skipped import counted
from embtrain.data.vectors import folders, vectors as vector_files
from embtrain.data.vectors.open import BY_OPTIONS, ReadOptions
from embtrain.data.vectors.replaced_files import new_folder
from embtrain.evaluate.words.alignment import Alignment, ChangedWord, align as align_vectors


def align(a: str | os.PathLike[str], b: str | os.PathLike[str], out: str | os.PathLike[str] | None = None,
          format: str | None = None, most_frequent: int | None = None,
          words: str | os.PathLike[str] | Iterable[str] | None = None, top: int = 10,
          reading: ReadOptions = BY_OPTIONS) -> Alignment:
    """`embtrain align` from Python: rotate the vectors of `a` onto those of `b`, each a run or a vector file.

    a, b: paths, or Runs. out: a file for all vectors of `a`, rotated; format: one of `vectors.FORMATS`, None: word2vec.
    most_frequent: align only that many common words; None: all. words: align only these, or those of a file with one a
    line. top: changed words to list. reading: how files of vectors are read. Raises UsageError, DataError or
    ResourceError, each with a one-line message.
    """
    a, b = Path(a), Path(b)
    folders.check_encoding(reading, a, b)
    if format is not None and format not in vector_files.FORMATS:
        raise UsageError(f"--format: {format!r} is not one of {', '.join(vector_files.FORMATS)}")
    if format is not None and out is None:
        raise UsageError(f"--format: {format}: applies only to --out; add --out FILE, or remove --format")
    if most_frequent is not None:
        whole_number("--most-frequent", most_frequent, 1)
    whole_number("top", top, 0)
    words_file = Path(words) if isinstance(words, str | os.PathLike) else None
    inputs = [a, b, *([] if words_file is None else [words_file])]
    target = None if out is None else check_output_file(Path(out), inputs=inputs)
    chosen = None if words is None else _given_words(words) if words_file is None else _read_words(words_file)
    first, second = (folders.read_any(path, reading) for path in (a, b))
    try:
        alignment = align_vectors(first, second, most_frequent, chosen, top)
    except (DataError, UsageError) as error:
        raise type(error)(f"{a}, {b}: {error}") from error
    if target is not None:
        with new_folder(target.parent):
            vector_files.write(target, alignment.apply(first), format or "word2vec")
    return alignment


align_api = named_arguments()(align)  # `embtrain.align`; the command calls `align`


def _given_words(words: object) -> list[str]:
    """Words of an iterable as a list; those of a set are sorted, because equal ranks keep their order. UsageError."""
    try:
        found = None if isinstance(words, bytes) or not isinstance(words, Iterable) else list(words)
    except TypeError:                                        # of a NumPy array without a dimension
        found = None
    if found is None:
        raise UsageError(f"--words: {words!r:.60}: should be a list of words, or a file with one a line")
    for word in found:
        if not isinstance(word, str):
            raise UsageError(f"--words: {word!r:.60}: should be a text")
    return sorted(found) if isinstance(words, Set) else found


def _read_words(path: Path) -> list[str]:
    """Words of a file, one a line; it may be packed. DataError if it cannot be read or has none."""
    check_exists(path, "a file of words, one a line", may_be_run=False)
    words = [line.strip() for source in sources([path], lambda _: True) for _, line in read_nonblank_lines(source)]
    if not words:
        raise DataError(f"{path}: contains no words; give one a line")
    return words


def format_text(alignment: Alignment) -> str:
    """The numbers as lines, and the words that changed most by each of the two measures."""
    lines = [counted(alignment.n_common, "common word", "common words"),
             f"mean cosine: {alignment.cosine_before:.4f} before, {alignment.cosine_after:.4f} after"]
    most_frequent = counted(alignment.n_frequent, "most frequent word", "most frequent words")
    nearest = counted(alignment.k, "nearest word", "nearest words")
    for title, changes in (("lowest cosine", alignment.by_cosine), ("fewest shared neighbours",
                                                                    alignment.by_neighbours)):
        lines += ["", f"{title}, of the {most_frequent} (cosine after; share of the {nearest})", *_table(changes)]
    return "\n".join(lines)


def _table(changes: Sequence[ChangedWord]) -> list[str]:
    words = [plain(change.word) for change in changes]
    width = max(map(len, words), default=0)
    if not changes:
        return ["  none has changed"]
    return [f"  {word:<{width}}  {change.cosine:6.3f}  {change.neighbours:5.1%}"
            for word, change in zip(words, changes, strict=True)]
