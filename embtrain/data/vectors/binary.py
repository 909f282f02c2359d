"""Reads word2vec's binary format: "V D\\n", then V times: word, blank, D float32, optional newline.

A word cannot contain a blank in this format, but some programs write one. The following bytes are then read at the
wrong position, and the end of one vector becomes the beginning of the next word. Each row is therefore compared with
the reading in which its word continues to a further blank.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.storage.skipped import counted
from embtrain.data.vectors.files import (
    MAX_WORD,
    WITHOUT_IT,
    VectorRows,
    WordsAndTable,
    decode_word,
    is_word,
    limit_hint,
    read_header,
)
from embtrain.data.vectors.open import PLAIN, ReadOptions, open_unpacked

_CHUNK = 1 << 20
_USUAL = 2.0 ** -40, 2.0 ** 40  # range of absolute values in a vector; misaligned bytes rarely stay within it


def read_binary(path: Path, max_bytes: int, reading: ReadOptions = PLAIN) -> WordsAndTable:
    """Return the words and the table (V, D) float32. DataError names a damaged row, ResourceError if it takes too much
    memory."""
    with open_unpacked(path) as file:
        header, V, D = read_header(path, file, 4, max_bytes, reading)
        rows, newline = VectorRows(path, V, D, max_bytes, reading), False
        buffer, begin, need = b"", 0, 4 * (MAX_WORD + 4 * D)  # buffer[begin:]: the next row and bytes after it
        while True:
            if len(buffer) - begin < need:
                buffer, begin = buffer[begin:] + _read(file, max(_CHUNK, need)), 0
            if rows.is_full or not buffer[begin:begin + 2].strip(b"\n"):
                break
            i = len(rows.words)
            where = f"{path}: row {i + 1:,} of {V:,}"
            end = buffer.find(b" ", begin, begin + MAX_WORD)
            if end < 0 and len(buffer) - begin >= MAX_WORD:
                raise DataError(f"{where}: no word within {MAX_WORD:,} bytes: damaged, or not word2vec binary; fetch "
                                "it again")
            after = end + 1 + 4 * D
            if end < 0 or len(buffer) < after:
                raise DataError(
                    f"{where}: the file ends inside it: it is truncated, or line {header} declares too much"
                    f"{limit_hint(i, reading)}"
                )
            newline = buffer[after:after + 1] == b"\n" if i == 0 else newline
            _refuse_blank(buffer, begin, end, D, newline if i else None, i + 1 == V, reading, where)
            word, row = decode_word(buffer[begin:end], where, reading), np.frombuffer(buffer, "<f4", D, end + 1)
            if not np.isfinite(row).all():
                raise DataError(f"{where}: {word[:40]!r}: contains NaN or infinity; {WITHOUT_IT}")
            rows.add(word)[:] = row
            begin = after + (newline and buffer[after:after + 1] == b"\n")
        if not rows.is_complete:
            n = len(rows.words)
            raise DataError(f"{path}: ends after {counted(n, 'row', 'rows')}; line {header} declares {V:,}"
                            f"{limit_hint(n, reading)}")
        if reading.limit is None and buffer[begin:].strip(b"\n"):
            raise DataError(f"{path}: continues after the {counted(V, 'row', 'rows')} that line {header} declares"
                            f"{limit_hint(V, reading)}")
    return rows.result()


def _read(file: IO[bytes], n: int) -> bytes:
    """Read n bytes, fewer only at the end of the file."""
    parts = []
    while n > 0 and (data := file.read(n)):
        parts.append(data)
        n -= len(data)
    return b"".join(parts)


def _refuse_blank(buffer: bytes, begin: int, end: int, D: int, newline: bool | None, last: bool, reading: ReadOptions,
                  where: str) -> None:
    """Raise DataError if the word at buffer[begin:end] continues after its first blank.

    newline: whether one follows each row, None: not known yet. last: whether the header declares no further row.
    """
    codec = reading.codec
    fits = _row_may_follow(buffer, end + 1 + 4 * D, newline, last, codec)
    later = end
    while (later := buffer.find(b" ", later + 1, begin + MAX_WORD)) >= 0:
        if later == end + 1 or not is_word(buffer[end + 1:later].replace(b" ", b"_"), codec):
            break                                            # the bytes of a vector soon fail to decode as text
        if len(buffer) < later + 1 + 4 * D or not _row_may_follow(buffer, later + 1 + 4 * D, newline, last, codec):
            continue
        if not fits or _is_usual(buffer, later + 1, D) > _is_usual(buffer, end + 1, D):
            word = decode_word(buffer[begin:later], where, reading)
            raise DataError(f"{where}: {word[:40]!r}: a space inside the word, which this format cannot represent; "
                            "write the file again with _ instead, or as text")
    if newline and not fits and buffer[end + 1 + 4 * D:end + 2 + 4 * D] not in (b"\n", b""):
        raise DataError(
            f"{where}: {buffer[begin:end][:40]!r}: no newline follows it, unlike row 1: damaged, or a space inside the "
            "word, which this format cannot represent; fetch it again"
        )


def _row_may_follow(buffer: bytes, after: int, newline: bool | None, last: bool, codec: str) -> bool:
    """Return whether the bytes after a row can be the next one: its newline, and a word up to a blank."""
    if last or after == len(buffer):
        return not buffer[after:].strip(b"\n")
    if newline is not False:
        if newline and buffer[after:after + 1] != b"\n":
            return False
        after += buffer[after:after + 1] == b"\n"
    end = buffer.find(b" ", after, after + MAX_WORD)
    return after == len(buffer) or (end > after and is_word(buffer[after:end], codec))


def _is_usual(buffer: bytes, begin: int, D: int) -> bool:
    """Return whether the D floats at `begin` all have usual sizes."""
    size = np.abs(np.frombuffer(buffer, "<f4", D, begin))
    return bool(((size == 0) | ((size > _USUAL[0]) & (size < _USUAL[1]))).all())
