"""Words and their vectors, in memory and in files that other tools read.

    word2vec          text, nine significant digits: float32 values are preserved exactly
    word2vec-binary   the raw float32 values, as gensim writes them
    glove             text without a header
    safetensors       tensors `vectors` (V, D) float32 and `words` (bytes,) uint8: UTF-8, separated by newlines
    fasttext          fastText's .bin (embtrain/data/vectors/fasttext_file.py), with the vectors of n-grams

If a word occurs twice in a file, its first vector is kept, as in gensim, with a warning (GloVe's own files have
duplicates). Every other fault of a file is an error.
"""

from __future__ import annotations

import codecs
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import write_atomically
from embtrain.common.progress import tracked
from embtrain.data.storage import checksummed
from embtrain.data.storage.skipped import counted
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.text.spelling import Spellings
from embtrain.data.vectors.binary import read_binary
from embtrain.data.vectors.fasttext_file import read_fasttext, write_fasttext
from embtrain.data.vectors.fasttext_model import ModelDetails, make_model
from embtrain.data.vectors.files import MAX_DIM, MAX_WORD, WITHOUT_IT, Format, detect_format, read_glove, read_text
from embtrain.data.vectors.open import PLAIN, ReadOptions, default_max_bytes
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.tensors import read_tensors

if TYPE_CHECKING:
    from gensim.models import KeyedVectors
    from torch import Tensor

__all__ = ["FORMATS", "Format", "Vectors", "detect_format", "read", "write"]

FORMATS: tuple[Format, ...] = ("word2vec", "word2vec-binary", "glove", "safetensors", "fasttext")
_log = logging.getLogger("embtrain")
_BREAKS = frozenset({" ", "\x7f", *map(chr, range(32))})  # readers end a word at these, or reject it
_BREAKS_OF = {"safetensors": frozenset("\n"), "fasttext": _BREAKS - {" "}}


@dataclass(eq=False)
class Vectors:
    """Words and a table (V, D) float32; row i belongs to words[i]. The most frequent word is first. Immutable by
    convention."""

    words: list[str]
    table: np.ndarray  # (V, D) float32
    subword_source: SubwordTable | Path | None = None  # pools vectors of words without a row; a path is read when used
    new_table: Callable[[int, int, bool], Tensor] | None = None  # makes copies in a file (ProblemSpec.new_table)
    offset: np.ndarray | None = None  # (D,) float64, subtracted from composed vectors; None: nothing

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float32)     # the padded rows of the engines are not copied
        self.table = table if table.strides[-1:] == (4,) else np.ascontiguousarray(table)
        if self.table.ndim != 2 or len(self.words) != len(self.table):
            raise ValueError(f"{len(self.words)} words and a table of shape {self.table.shape}")

    def __len__(self) -> int:
        return len(self.words)

    @property
    def dim(self) -> int:
        return self.table.shape[1]

    def first(self, n: int | None) -> Vectors:
        """Return the vectors of the first n words, the most frequent ones, without rows of the others; None: all."""
        return self if n is None or n >= len(self) else Vectors(self.words[:n], self.table[:n], self.subword_source,
                                                                offset=self.offset)

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def subwords(self) -> SubwordTable | None:
        """The rows of these words and of n-grams, which pool any vector. DataError if their file does not fit."""
        subwords = self.subword_source
        if isinstance(subwords, Path):
            subwords = SubwordTable.load(subwords)
            if subwords.word_rows.shape[1] != self.dim or not set(self.words) <= subwords.index.keys():
                raise DataError(f"{self.subword_source}: belongs to other vectors: {len(subwords.words):,} words of "
                                f"{subwords.word_rows.shape[1]:,} dimensions; restore it, or remove it")
        return None if subwords is None else subwords.of_words(self.words)

    def compose(self, words: Sequence[str]) -> np.ndarray:
        """Return vectors (n, D) float32 of words without a row; zeros for a word whose n-grams have no rows."""
        if not words or self.subwords is None:
            return np.zeros((len(words), self.dim), np.float32)
        made = self.subwords.compose(words)
        if self.offset is not None:
            made[made.any(1)] -= self.offset  # zeros mean that a word has no vector
        return made

    @cached_property
    def spellings(self) -> Spellings:
        """Index of other spellings, for words without a row."""
        return Spellings(self.words, self.index)

    @cached_property
    def unit(self) -> np.ndarray:
        """The table (V, D) with rows of length 1; a row of zeros is unchanged."""
        norms = np.sqrt(np.einsum("vd,vd->v", self.table, self.table, dtype=np.float64))     # (V,)
        norms, limits, unit = np.where(norms > 0, norms, 1), np.finfo(np.float32), self._new_table()
        np.divide(self.table, norms.clip(max=limits.max).astype(np.float32)[:, None], out=unit)
        is_extreme = (norms > limits.max) | (norms < limits.tiny)  # outside float32's range or precision
        unit[is_extreme] = self.table[is_extreme] / norms[is_extreme, None]
        return unit

    @cached_property
    def centred(self) -> Vectors:
        """These vectors, and those composed from n-grams, minus the mean row, where all words count once [mu2018]."""
        mean, table = self.table.mean(0, dtype=np.float64), self._new_table()
        np.subtract(self.table, mean, out=table, casting="same_kind")
        return replace(self, table=table, offset=mean if self.offset is None else mean + self.offset)

    def _new_table(self) -> np.ndarray:
        """Return an empty table (V, D) float32, in a file if `new_table` makes one."""
        return np.empty(self.table.shape, np.float32) if self.new_table is None else \
            self.new_table(len(self), self.dim, False).numpy()

    def find(self, words: Iterable[str], lower: bool = False) -> np.ndarray:
        """Return rows (n,) int64, -1 for a missing word.

        lower: look up a missing word in other spellings (embtrain/data/text/spelling.py).
        """
        if lower:
            return np.array([self.spellings.find(w) for w in words], np.int64)
        return np.array([self.index.get(w, -1) for w in words], np.int64)

    def are_zeros(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each row (...) of the table is zeros, so that its cosine is undefined; False for -1."""
        used, place = np.unique(rows, return_inverse=True)
        is_zero: np.ndarray = ((used >= 0) & ~self.table[used].any(-1))[place]
        return is_zero.reshape(rows.shape)

    @classmethod
    def of(cls, keyed: KeyedVectors) -> Vectors:
        """Make Vectors from gensim's KeyedVectors, or from FastTextKeyedVectors with their n-grams.

        Words that are integers become their digits, as in the files that gensim writes. DataError for words of other
        types than these and str.
        """
        words = [str(key) if isinstance(key, Integral) else key for key in keyed.index_to_key]
        for i, word in enumerate(words):
            if not isinstance(word, str):
                raise DataError(f"word {i + 1:,}, {word!r:.60}: is of the type {type(word).__name__}; give str or int")
        if not getattr(keyed, "bucket", 0) or keyed.min_n > keyed.max_n:
            return cls(words, keyed.vectors)
        ngrams = Ngrams(keyed.min_n, keyed.max_n, keyed.bucket)
        return cls(words, keyed.vectors, SubwordTable(ngrams, keyed.vectors_ngrams, words, keyed.vectors_vocab, "mean"))

    def keyed(self, counts: Mapping[str, int] | None = None) -> KeyedVectors:
        """Return the vectors as gensim's KeyedVectors, which pool those of other words if there are subwords.

        counts: of the words, for gensim's attribute `count`; None: unknown.
        """
        from gensim.models import KeyedVectors

        from embtrain.data.vectors.keyed import SubwordKeyedVectors

        if self.subwords is not None:
            keyed: KeyedVectors = SubwordKeyedVectors(self.words, self.table, self.subwords)
        else:
            keyed = KeyedVectors(self.dim)
            keyed.add_vectors(self.words, self.table)
        if counts is not None:
            keyed.expandos["count"] = np.array([counts.get(word, 0) for word in self.words], np.int64)
        return keyed


def read(path: str | os.PathLike[str], format: Format | None = None, max_bytes: int | None = None,
         reading: ReadOptions = PLAIN) -> Vectors:
    """Read the vectors of a file, plain or packed by gzip, bzip2, xz or zip.

    format: None: detected by content. max_bytes: memory for the table, by default four fifths of the machine's.
    reading: maximal rows, and the encoding of the words. DataError and ResourceError name the file and the line or row.
    """
    path = Path(path)
    limit = default_max_bytes() if max_bytes is None else max_bytes
    format = detect_format(path, reading) if format is None else format
    if format == "fasttext":
        model = read_fasttext(path, limit, reading)
        table = model.table()
        if len(bad := np.flatnonzero(~np.isfinite(table).all(1))):
            raise DataError(f"{path}: word {bad[0] + 1:,}, {model.words[bad[0]][:40]!r}: the sum of its rows is too "
                            f"large for float32; {WITHOUT_IT}")
        return Vectors(model.words, table, model.subwords)
    readers = {"word2vec": read_text, "word2vec-binary": read_binary, "glove": read_glove, "safetensors": read_tensors}
    if format not in readers:
        raise UsageError(f"there is no vector format {format!r}; there are: {', '.join(FORMATS)}")
    return _drop_repeated_words(path, *readers[format](path, limit, reading))


def write(path: str | os.PathLike[str], vectors: Vectors, format: Format, metadata: Mapping[str, str] | None = None,
          dtype: Literal["float32", "float16"] = "float32", details: ModelDetails | None = None) -> None:
    """Write a file atomically. DataError if the format cannot represent a word, a number, or the n-grams.

    metadata, dtype: of safetensors; the other formats have float32 alone. details: counts and other parts of a model,
    for fasttext.
    """
    if format not in FORMATS:
        raise UsageError(f"there is no vector format {format!r}; there are: {', '.join(FORMATS)}")
    path = Path(path)
    words = _check_words(path, vectors, _BREAKS_OF.get(format, _BREAKS))
    if format == "fasttext":
        details = details or ModelDetails()
        return write_fasttext(path, make_model(path, vectors.words, vectors.table, vectors.subwords, details))
    if format == "glove" and words[0].startswith(codecs.BOM_UTF8):
        raise DataError(f"{path}: word 1, {vectors.words[0][:40]!r}: begins with a byte order mark, which readers take "
                        "for the file's own; choose the format word2vec")
    V, D = vectors.table.shape
    counted = partial(tracked, label=f"writing {path.name}", total=V, unit="vectors")
    with write_atomically(path) as file:
        if format == "safetensors":
            text = np.frombuffer(b"\n".join(words), np.uint8)
            table = vectors.table if dtype == "float32" else round_to_float16(path, vectors)
            file.writelines(checksummed.file_chunks({"vectors": table, "words": text}, metadata))
            return
        if format != "glove":
            file.write(f"{V} {D}\n".encode())
        if format == "word2vec-binary":
            for word, row in counted(zip(words, vectors.table.astype("<f4", copy=False), strict=True)):
                file.write(word + b" " + row.tobytes())
            return
        # Nine digits identify every float32. A point, because a whole number for each word would be read as its count.
        line = b" ".join([b"%s", *[b"%#.9g" if (format, D) == ("glove", 1) else b"%.9g"] * D]) + b"\n"
        for word, row in counted(zip(words, vectors.table, strict=True)):
            file.write(line % (word, *row.tolist()))


def round_to_float16(path: Path, vectors: Vectors) -> np.ndarray:
    """Return the table (V, D) as float16. DataError for a number that it cannot represent; path: for the error."""
    with np.errstate(over="ignore"):
        table = vectors.table.astype("<f2")
    if len(bad := np.flatnonzero(~np.isfinite(table).all(1))):
        raise DataError(f"{path}: word {bad[0] + 1:,}, {vectors.words[bad[0]][:40]!r}: its vector contains numbers "
                        "above 65,504, the largest float16; export float32")
    return table


def _check_words(path: Path, vectors: Vectors, breaks: frozenset[str]) -> list[bytes]:
    """Return the words as bytes. DataError if a reader would not read a word back, or if a vector is not finite."""
    V, D = vectors.table.shape
    if V == 0 or not 1 <= D <= MAX_DIM:
        raise DataError(f"{path}: {V:,} vectors of {D:,} numbers cannot be written; give 1 or more of 1 to {MAX_DIM:,}")
    words = []
    for i, word in enumerate(vectors.words):
        if not isinstance(word, str):
            raise DataError(f"{path}: word {i + 1:,}, {str(word)[:40]}: is of the type {type(word).__name__}; give str")
        try:
            code = word.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{path}: word {i + 1:,}, {word[:40]!r}: cannot be written as UTF-8; rename it") from error
        if not breaks.isdisjoint(word) or not word:
            raise DataError(f"{path}: word {i + 1:,}, {word[:40]!r}: {_refusal(word, breaks)}")
        if len(code) > MAX_WORD:
            raise DataError(f"{path}: word {i + 1:,}, {word[:40]!r}...: is longer than {MAX_WORD:,} bytes; shorten it")
        words.append(code)
    if len(vectors.index) != V:
        twice = next(word for i, word in enumerate(vectors.words) if vectors.index[word] != i)
        raise DataError(f"{path}: the word {twice[:40]!r} occurs twice; rename one, or omit it with its vector")
    if len(bad := np.flatnonzero(~np.isfinite(vectors.table).all(1))):
        raise DataError(f"{path}: word {bad[0] + 1:,}, {vectors.words[bad[0]][:40]!r}: its vector contains NaN or "
                        "infinity; train again with a lower train.lr, or omit the word with its vector")
    return words


def _refusal(word: str, breaks: frozenset[str]) -> str:
    """Return why a format that has `breaks` between words cannot represent a word, and the formats that can."""
    why = "is empty" if not word else "contains a space" if not (breaks - {" "}) & set(word) else \
        "contains a control character"
    others = [format for format in FORMATS if word and _BREAKS_OF.get(format, _BREAKS).isdisjoint(word)]
    return f"{why}, which this format cannot represent; choose the format {' or '.join(others)}" if others else \
        f"{why}, which no format can represent; rename the word"


def _drop_repeated_words(path: Path, words: Sequence[str], table: np.ndarray) -> Vectors:
    first: dict[str, int] = {}
    for i, word in enumerate(words):
        first.setdefault(word, i)
    if len(first) == len(words):
        return Vectors(list(words), table)
    twice = next(word for i, word in enumerate(words) if first[word] != i)
    repeated = counted(len(words) - len(first), "row repeats", "rows repeat")
    _log.warning("%s: %s a word (for example %r); the first of each is kept", path, repeated, twice[:40])
    return Vectors(list(first), table[list(first.values())])
