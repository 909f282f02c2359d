"""Reads and writes fastText's models: `.bin`, version 12, of skip-gram and CBOW [bojanowski2017].

    magic, int32 version · settings: 12 int32, 1 float64 · int32 size, words, labels · int64 tokens, pruned (-1: not)
    for each word: its bytes, 0, int64 count, int8 type (0)
    bool quantized, int64 rows, dim, float32 input (V + B, D): the words, then the buckets of the n-grams
    bool quantized, int64 rows, dim, float32 output (V, D)

All numbers are little-endian. Sizes are compared with the file and with the memory before anything is allocated.
"""

from __future__ import annotations

import codecs
import logging
import struct
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import write_atomically
from embtrain.common.terminal import format_part
from embtrain.data.text.ngrams import MAX_N
from embtrain.data.vectors.fasttext_model import MODELS, FastTextModel, FastTextSettings
from embtrain.data.vectors.files import FASTTEXT_MAGIC, MAX_DIM, MAX_WORD, WITHOUT_IT, check_memory, is_word
from embtrain.data.vectors.open import PLAIN, ReadOptions, max_unpacked_bytes, open_unpacked

VERSION = 12
_HEAD, _SETTINGS, _SIZES, _ENTRY, _MATRIX = (struct.Struct(f) for f in ("<4si", "<12id", "<iiiqq", "<qb", "<?qq"))
_CHUNK = 1 << 20
_log = logging.getLogger("embtrain")


def read_fasttext(path: Path, max_bytes: int, reading: ReadOptions = PLAIN, with_output: bool = False
                  ) -> FastTextModel:
    """Read a model. reading.limit: the first words only; all buckets are read.

    Words that are not UTF-8 are left out with a warning: fastText reads any bytes. DataError for a damaged file, a
    supervised or a quantized model, ResourceError if it takes more than `max_bytes` of memory, UsageError for another
    encoding, since fastText defines n-grams by UTF-8.
    """
    if codecs.lookup(reading.encoding).name != "utf-8":
        raise UsageError(f"--encoding: {reading.encoding}: {path} is a fastText model, whose words are UTF-8; remove "
                         "the option")
    with open_unpacked(path) as file:
        stream = _Stream(path, file)
        settings, V, n_pruned = _read_header(stream)
        words, counts = _read_words(stream, V)
        if n_pruned != -1 or stream.peek() == b"\x01":
            raise DataError(f"{path}: is a quantized fastText model (.ftz), which has no vectors of its own; give the "
                            "model that it was made from")
        n = V if reading.limit is None else min(V, reading.limit)
        check_memory(path, V + settings.bucket + n * (settings.has_ngrams + with_output), settings.dim, max_bytes)
        table = _read_matrix(stream, "input", V + settings.bucket, settings.dim)
        output = _read_matrix(stream, "output", V, settings.dim, keep=with_output)
        if stream.peek():
            raise DataError(f"{path}: continues after the output matrix: damaged; fetch it again")
    kept, texts = _decode_words(path, words[:n])
    chosen = slice(n) if len(kept) == n else kept               # a slice copies nothing
    return FastTextModel(settings, texts, counts[chosen], table[:V][chosen], table[V:],
                         output[chosen] if with_output else None)


def write_fasttext(path: Path, model: FastTextModel) -> None:
    """Write a model atomically. ValueError if the shapes of its arrays do not fit each other."""
    V, (B, D), given = len(model.words), model.ngram_rows.shape, model.settings
    output = np.zeros((V, D), np.float32) if model.output is None else model.output
    if not (model.word_rows.shape == output.shape == (V, D) and len(model.counts) == V and (given.bucket, given.dim) ==
            (B, D)):
        raise ValueError(f"{V} words, {B} buckets and {D} dimensions do not fit {given}, rows "
                         f"{model.word_rows.shape}, output {output.shape} and {len(model.counts)} counts")
    with write_atomically(path) as file:
        file.write(_HEAD.pack(FASTTEXT_MAGIC, VERSION) + _SETTINGS.pack(*astuple(given)))
        file.write(_SIZES.pack(V, V, 0, int(model.counts.sum()), -1))
        for word, count in zip(model.words, model.counts.tolist(), strict=True):
            file.write(word.encode("utf-8") + b"\0" + _ENTRY.pack(count, 0))
        for n, tables in ((V + B, (model.word_rows, model.ngram_rows)), (V, (output,))):
            file.write(_MATRIX.pack(False, n, D))
            for table in tables:
                for begin in range(0, len(table), step := max(1, _CHUNK // D)):
                    file.write(np.ascontiguousarray(table[begin:begin + step], "<f4").tobytes())


class _Stream:
    """Bytes of an open file. DataError where it ends too early."""

    def __init__(self, path: Path, file: IO[bytes]):
        self.path, self._file, self._buffer, self._at = path, file, b"", 0
        self._left = max_unpacked_bytes(path)    # maximal number of bytes that have not been read from the file

    @property
    def most(self) -> int:
        """The maximal number of bytes that follow."""
        return len(self._buffer) - self._at + self._left

    def _fill(self, n: int) -> bool:
        """Read until n bytes are in the buffer; return whether the file has them."""
        while len(self._buffer) - self._at < n:
            data = self._file.read(max(_CHUNK, n))
            if not data:
                return False
            self._buffer, self._at = self._buffer[self._at:] + data, 0
            self._left -= len(data)
        return True

    def peek(self) -> bytes:
        """Return the next byte without reading it; nothing at the end of the file."""
        self._fill(1)
        return self._buffer[self._at:self._at + 1]

    def unpack(self, format: struct.Struct, place: str) -> tuple[Any, ...]:
        if not self._fill(format.size):
            raise DataError(f"{self.path}: ends inside {place}: truncated; fetch it again")
        self._at += format.size
        return format.unpack_from(self._buffer, self._at - format.size)

    def word(self, place: str) -> bytes:
        """Read a word and the zero after it."""
        while (end := self._buffer.find(b"\0", self._at, self._at + MAX_WORD + 1)) < 0:
            n = len(self._buffer) - self._at
            if n > MAX_WORD:
                raise DataError(f"{self.path}: {place}: longer than {MAX_WORD:,} bytes: damaged; fetch it again")
            if not self._fill(n + 1):
                raise DataError(f"{self.path}: ends inside {place}: truncated; fetch it again")
        text = self._buffer[self._at:end]
        self._at = end + 1
        return text

    def numbers(self, n: int, place: str) -> np.ndarray:
        """Read n float32."""
        if not self._fill(4 * n):
            raise DataError(f"{self.path}: ends inside {place}: truncated; fetch it again")
        self._at += 4 * n
        return np.frombuffer(self._buffer, "<f4", n, self._at - 4 * n)


def _read_header(stream: _Stream) -> tuple[FastTextSettings, int, int]:
    """Return the settings, the number of words, and the number of pruned n-grams: -1 if none were."""
    path = stream.path
    magic, version = stream.unpack(_HEAD, "the header")
    if magic != FASTTEXT_MAGIC or version not in (11, VERSION):
        raise DataError(f"{path}: is not a fastText model of version {VERSION}; give one, or its .vec file")
    settings = FastTextSettings(*stream.unpack(_SETTINGS, "the settings"))
    if settings.model not in MODELS.values():
        raise DataError(f"{path}: is a supervised fastText model, whose vectors are for its labels; give a skip-gram "
                        "or CBOW model" if settings.model == 3 else f"{path}: model {settings.model}: damaged; fetch "
                        "it again")
    if not 1 <= settings.dim <= MAX_DIM or settings.bucket < 0 or not 0 <= settings.maxn <= MAX_N or \
            settings.minn < 0 or (settings.maxn and settings.minn <= settings.maxn and not settings.bucket):
        raise DataError(f"{path}: {settings.dim:,} dimensions, {settings.bucket:,} buckets and n-grams of "
                        f"{settings.minn:,} to {settings.maxn:,} characters; should be 1 to {MAX_DIM:,}, 0 or more, "
                        f"and at most {MAX_N}")
    size, n_words, n_labels, _, n_pruned = stream.unpack(_SIZES, "the sizes")
    if size != n_words or n_words < 1 or n_labels != 0 or n_pruned < -1:
        raise DataError(f"{path}: {size:,} entries, {n_words:,} words and {n_labels:,} labels; should be 1 or more, "
                        "as many, and 0")
    _check_room(stream, f"{n_words:,} words", n_words * (_ENTRY.size + 1))
    return settings, n_words, n_pruned


def _check_room(stream: _Stream, declared: str, n_bytes: int) -> None:
    if n_bytes > stream.most:
        raise DataError(f"{stream.path}: declares {declared}, more than its {stream.path.stat().st_size:,} bytes can "
                        "contain; fetch it again")


def _read_words(stream: _Stream, V: int) -> tuple[list[bytes], np.ndarray]:
    """Return the words and their counts (V,) int64."""
    words, counts = list[bytes](), list[int]()
    for i in range(1, V + 1):
        words.append(stream.word(f"word {i:,} of {V:,}"))
        count, kind = stream.unpack(_ENTRY, f"word {i:,} of {V:,}")
        if kind != 0 or count < 0:
            raise DataError(f"{stream.path}: word {i:,} of {V:,}: type {kind}, count {count:,}; should be 0, and 0 or "
                            "more: damaged; fetch it again")
        counts.append(count)
    return words, np.array(counts, np.int64)


def _decode_words(path: Path, words: Sequence[bytes]) -> tuple[np.ndarray, list[str]]:
    """Return the positions (n,) of words that are text, and those words. DataError if there are none."""
    kept = [i for i, word in enumerate(words) if word and is_word(word, "utf-8")]
    if len(kept) < len(words):
        bad = next(word for i, word in enumerate(words) if i >= len(kept) or kept[i] != i)
        n = len(words) - len(kept)
        left_out = f"{path}: {format_part(n, len(words), 'words', 'is', 'are')} not text in UTF-8, e.g. {bad[:40]!r}"
        if not kept:
            raise DataError(f"{left_out}: damaged; fetch it again")
        _log.warning("%s; %s left out", left_out, "it is" if n == 1 else "they are")
    texts = [words[i].decode() for i in kept]
    if len(index := dict(zip(texts, kept, strict=True))) != len(texts):
        twice = next(text for i, text in zip(kept, texts, strict=True) if index[text] != i)
        raise DataError(f"{path}: the word {twice[:40]!r} occurs twice: damaged; fetch it again")
    return np.array(kept, np.int64), texts


def _read_matrix(stream: _Stream, name: str, V: int, D: int, keep: bool = True) -> np.ndarray:
    """Return a matrix (V, D), or, if it is not kept, read over it and return one without rows."""
    is_quantized, n, dim = stream.unpack(_MATRIX, f"the {name} matrix")
    if is_quantized or (n, dim) != (V, D):
        raise DataError(f"{stream.path}: {name} matrix of {n:,} rows and {dim:,} dimensions; should be {V:,} and "
                        f"{D:,}, not quantized")
    _check_room(stream, f"{V:,} rows of {D:,} dimensions", 4 * V * D)
    table = np.empty((V if keep else 0, D), np.float32)
    for begin in range(0, V, step := max(1, _CHUNK // D)):
        rows = stream.numbers(min(step, V - begin) * D, f"the {name} matrix").reshape(-1, D)
        if len(bad := np.flatnonzero(~np.isfinite(rows).all(1))):
            raise DataError(f"{stream.path}: row {begin + bad[0] + 1:,} of the {name} matrix: contains NaN or "
                            f"infinity; {WITHOUT_IT}")
        if keep:
            table[begin:begin + len(rows)] = rows
    return table
