"""Files of word vectors, taken apart within bounds: a header's claim is held against the file before memory is taken.

    word2vec text     "V D\\n", then V lines "word x_1 ... x_D"        (values in decimal)
    word2vec binary   "V D\\n", then V times: word, blank, D float32, perhaps a newline
    GloVe             lines "word x_1 ... x_D" without a header; words may hold blanks (840B has such)

Words end at a blank and lines at a newline byte, nothing else: words may hold any other character, such as U+00A0.
All may be gzipped; a byte order mark before the first line is no part of it. Each reader returns the words and a
float32 table (V, D) as they stand in the file.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import numpy as np

from embtrain.errors import DataError, ResourceError

Format = Literal["word2vec", "word2vec-binary", "glove", "safetensors"]
Read = tuple[list[str], np.ndarray]

MAX_DIM = 65_536
MAX_WORD = 4096           # bytes
MAX_LINE = 64 * MAX_DIM   # bytes
RATIO = 1032              # deflate packs no tighter
_CHUNK = 1 << 20
_LARGEST_SAFE_HEADER = 1 << 27
_WORD_COST = 100          # bytes of memory that a word takes beside its vector
_CONTROL = frozenset(range(9)) | frozenset(range(14, 32))  # bytes that no text holds


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a file; whatever is wrong with it is a DataError, or a ResourceError where it is barred."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for without end
            raise DataError(f"{path}: cannot be read: is a folder, a pipe or a device; name a file")
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if not packed:
                yield plain
                return
            with gzip.GzipFile(fileobj=plain) as file:
                yield file  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file: {error}") from error
    except PermissionError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def detect_format(path: Path) -> Format:
    """What a file is, by its content; DataError where it is none of the four."""
    path = Path(path)
    with opened(path) as file:
        head = file.read(_CHUNK)
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < _LARGEST_SAFE_HEADER:
            return "safetensors"
        if head[:1] == b"\x80":
            raise DataError(f"{path}: is no file of vectors, but looks like a pickle, as gensim's save writes, and a "
                            "pickle may run anything; in gensim: keyed_vectors.save_word2vec_format(...)")
        first, _, rest = head.removeprefix(codecs.BOM_UTF8).partition(b"\n")
        if sizes := _sizes(first):
            while b"\n" not in rest and len(rest) < MAX_LINE and (more := file.read(_CHUNK)):
                rest += more
            values = rest.partition(b"\n")[0].rstrip(b" \t\r").split(b" ")[1:]
            if len(values) == sizes[1] and _floats(values) is not None:
                return "word2vec"
            return "word2vec-binary" if not rest or _CONTROL & set(rest) or not _is_utf8(rest) else "word2vec"
        word, _, last = first.rstrip(b" \t\r").rpartition(b" ")
        if word and _floats([last]) is not None:
            return "glove"
    raise DataError(f"{path}: is no file of vectors: should be word2vec text or binary, GloVe or safetensors")


def read_text(path: Path, max_bytes: int) -> Read:
    with opened(path) as file:
        V, D = _header(path, file.readline(MAX_LINE), least=2, max_bytes=max_bytes)
        words: list[str] = []
        table = np.empty((V, D), np.float32)
        for number, line in _lines(path, file, 2):
            if len(words) == V:
                raise DataError(f"{path}:{number}: more rows than the {V:,} that line 1 declares")
            word, *values = line.split(b" ")
            if len(values) != D:
                raise DataError(f"{path}:{number}: should be a word and {D} numbers, got {len(values)} after the word")
            words.append(_word(word, f"{path}:{number}"))
            _put(table[len(words) - 1], values, f"{path}:{number}")
    if len(words) < V:
        raise DataError(f"{path}: ends after {len(words):,} rows; line 1 declares {V:,}")
    return words, table


def read_glove(path: Path, max_bytes: int) -> Read:
    with opened(path) as file:  # once to count, so that the table is taken once and whole
        V, D = 0, 0
        for number, line in _lines(path, file, 1):
            V, D = V + 1, D or line.count(b" ")
            if not 1 <= D <= MAX_DIM:
                raise DataError(f"{path}:{number}: should be a word and 1 to {MAX_DIM:,} numbers")
            check_memory(path, V, D, max_bytes)
    if V == 0:
        raise DataError(f"{path}: holds no vectors")
    words: list[str] = []
    table = np.empty((V, D), np.float32)
    with opened(path) as file:
        for number, line in _lines(path, file, 1):
            word, *values = line.rsplit(b" ", D)
            last = word.rpartition(b" ")[2]
            if len(values) != D or (last != word and _floats([last]) is not None):
                raise DataError(f"{path}:{number}: should be a word and {D} numbers as in line 1, "
                                f"got {line.count(b' ')} after the word")
            words.append(_word(word, f"{path}:{number}"))
            _put(table[len(words) - 1], values, f"{path}:{number}")
    return words, table


def read_binary(path: Path, max_bytes: int) -> Read:
    with opened(path) as file:
        V, D = _header(path, file.readline(MAX_LINE), least=4, max_bytes=max_bytes)
        words: list[str] = []
        table = np.empty((V, D), np.float32)
        held, at = b"", 0
        for i in range(V):
            row = f"{path}: row {i + 1:,} of {V:,}"
            end = -1
            while True:  # until held[at:] has the word, the blank and the vector
                end = held.find(b" ", at, at + MAX_WORD) if end < 0 else end
                if end < 0 and len(held) - at >= MAX_WORD:
                    raise DataError(f"{row}: no word within {MAX_WORD:,} bytes: damaged, or not word2vec binary")
                if end >= 0 and len(held) >= end + 1 + 4 * D:
                    break
                more = file.read(max(_CHUNK, 4 * D))
                if not more:
                    raise DataError(f"{row}: the file ends inside it: cut off, or line 1 declares too much")
                held, end, at = held[at:] + more, end - at if end >= 0 else -1, 0
            words.append(_word(held[at:end].lstrip(b"\n"), row))
            table[i] = np.frombuffer(held, "<f4", D, end + 1)
            at = end + 1 + 4 * D
            if not np.isfinite(table[i]).all():
                raise DataError(f"{row}: {words[-1][:40]!r}: holds NaN or infinity")
        if (held[at:] + file.read(2)).strip(b"\n"):
            raise DataError(f"{path}: goes on after the {V:,} rows that line 1 declares")
    return words, table


def check_memory(path: Path, V: int, D: int, max_bytes: int) -> None:
    need = V * (4 * D + _WORD_COST)
    if need > max_bytes:
        raise ResourceError(f"{path}: {V:,} vectors of {D:,} numbers take {need:,} bytes of memory, "
                            f"more than the {max_bytes:,} that may be taken")


def _sizes(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) != 2 or not all(p.isdigit() and len(p) <= 18 for p in parts):
        return None
    return int(parts[0]), int(parts[1])


def _header(path: Path, line: bytes, least: int, max_bytes: int) -> tuple[int, int]:
    """V and D, where the file can hold them: `least` is the fewest bytes of a value."""
    sizes = _sizes(line.removeprefix(codecs.BOM_UTF8))
    if sizes is None:
        raise DataError(f"{path}:1: should be the number of words and of dimensions, got {line[:40]!r}")
    V, D = sizes
    if V == 0 or not 1 <= D <= MAX_DIM:
        raise DataError(f"{path}:1: declares {V:,} words of {D:,} dimensions; should be 1 or more words "
                        f"of 1 to {MAX_DIM:,}")
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        size *= RATIO if file.read(2) == b"\x1f\x8b" else 1
    if V * (2 + least * D) - 1 > size:  # a word of a letter, its blank, the values; the last newline may lack
        raise DataError(f"{path}:1: declares {V:,} words of {D:,} dimensions, more than its {os.path.getsize(path):,} "
                        "bytes can hold")
    check_memory(path, V, D, max_bytes)
    return V, D


def _lines(path: Path, file: IO[bytes], first: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, without what stands after their last value."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), first):
        if len(line) > MAX_LINE:
            raise DataError(f"{path}:{number}: a line of more than {MAX_LINE:,} bytes")
        if line := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b" \t\r\n"):
            yield number, line


def _word(word: bytes, where: str) -> str:
    try:
        text = word.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: its word is not UTF-8: {word[:40]!r}") from error
    if not text or len(word) > MAX_WORD:
        raise DataError(f"{where}: its word is empty" if not text else f"{where}: its word is longer than {MAX_WORD:,}")
    return text


def _is_utf8(text: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)  # which forgives a character that the end cuts off
    except UnicodeDecodeError:
        return False
    return True


def _floats(values: list[bytes]) -> list[float] | None:
    """None where one is no number; Python's 1_000 is none."""
    try:
        return None if any(b"_" in v for v in values) else [float(v) for v in values]
    except ValueError:
        return None


def _put(row: np.ndarray, values: list[bytes], where: str) -> None:
    numbers = _floats(values)
    if numbers is None:
        bad = next(v for v in values if _floats([v]) is None)
        raise DataError(f"{where}: should be numbers after the word, got {bad[:40]!r}")
    with np.errstate(over="ignore"):  # 1e39 becomes infinity, refused in the next line
        row[:] = numbers
    if not np.isfinite(row).all():
        raise DataError(f"{where}: holds NaN or infinity, or a number too large for float32")
