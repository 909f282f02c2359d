"""Align the vectors of two runs or vector files, and write the rotated ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import check_exists, check_output_file
from embtrain.common.terminal import plain
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_nonblank_lines
from embtrain.data.vectors import folders, vectors as vector_files
from embtrain.evaluate.words.alignment import Alignment, ChangedWord, align


def align_paths(a: str | Path, b: str | Path, out: str | Path | None = None, format: str = "word2vec",
                most_frequent: int | None = None, words: Path | Sequence[str] | None = None, top: int = 10
                ) -> Alignment:
    """`embtrain align` from Python: rotate the vectors of run or vector file `a` onto those of `b`.

    out: a file for all vectors of `a`, rotated; format: word2vec, word2vec-binary, glove or safetensors. most_frequent:
    align only that many common words; None: all. words: align only these, or those of a file with one a line. top:
    changed words to list. Raises UsageError, DataError or ResourceError, each with a one-line message.
    """
    if format not in vector_files.FORMATS:
        raise UsageError(f"--format: {format!r} is not one of {', '.join(vector_files.FORMATS)}")
    target = None if out is None else check_output_file(Path(out))
    chosen = _read_words(words) if isinstance(words, Path) else words
    first, second = folders.read_any(a), folders.read_any(b)
    try:
        alignment = align(first, second, most_frequent, chosen, top)
    except (DataError, UsageError) as error:
        raise type(error)(f"{a}, {b}: {error}") from error
    if target is not None:
        vector_files.write(target, alignment.apply(first), format)
    return alignment


def _read_words(path: Path) -> list[str]:
    """Words of a file, one a line; it may be packed. DataError if it cannot be read or has none."""
    check_exists(path, "a file of words, one a line")
    words = [line.strip() for source in sources([path], lambda _: True) for _, line in read_nonblank_lines(source)]
    if not words:
        raise DataError(f"{path}: contains no words; give one a line")
    return words


def format_text(alignment: Alignment) -> str:
    """The numbers as lines, and the words that changed most by each of the two measures."""
    lines = [f"{alignment.n_common:,} common words",
             f"mean cosine: {alignment.cosine_before:.4f} before, {alignment.cosine_after:.4f} after"]
    for title, changes in (("lowest cosine", alignment.by_cosine), ("fewest shared neighbours",
                                                                    alignment.by_neighbours)):
        lines += ["", f"{title}, of the {alignment.n_frequent:,} most frequent words (cosine after; share of the "
                      f"{alignment.k:,} nearest words)", *_table(changes)]
    return "\n".join(lines)


def _table(changes: Sequence[ChangedWord]) -> list[str]:
    words = [plain(change.word) for change in changes]
    width = max(map(len, words), default=0)
    if not changes:
        return ["  none has changed"]
    return [f"  {word:<{width}}  {change.cosine:6.3f}  {change.neighbours:5.1%}"
            for word, change in zip(words, changes, strict=True)]
