"""Reads safetensors files of vectors: tensors `vectors` (V, D) and `words` (bytes,) uint8, separated by newlines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors

from embtrain.common.errors import DataError
from embtrain.data.storage import checksummed
from embtrain.data.vectors.files import WITHOUT_IT, WordsAndTable, check_memory, decode_word
from embtrain.data.vectors.open import PLAIN, ReadOptions, default_max_bytes, detect_packing, open_unpacked

FLOATS = ("F32", "F16", "BF16")  # types of a table
RESTORE_IT = "restore it, or fetch it again"
HUB_TABLE = "embedding.weight"   # the table in a Hugging Face folder


def read_float_tensor(path: Path, name: str, limit: int | None = None, max_bytes: int | None = None) -> np.ndarray:
    """Read the first rows of a tensor (V, D) of a safetensors file as float32.

    It may be stored as float32, float16 or bfloat16 (which NumPy does not support); DataError for any other type.
    """
    with safetensors.safe_open(path, framework="pt") as file:
        tensor = file.get_slice(name)
        shape, kind = tensor.get_shape(), tensor.get_dtype()
        if len(shape) != 2 or kind not in FLOATS:
            raise DataError(f"{path}: {name}: should be float32, float16 or bfloat16 of two axes, got {kind} {shape}; "
                            "convert it, or give another file")
        n = shape[0] if limit is None else min(shape[0], limit)
        check_memory(path, n, shape[1], default_max_bytes() if max_bytes is None else max_bytes)
        table: np.ndarray = tensor[:n].float().numpy()
    return table


def read_words(path: Path) -> list[str]:
    """Read the words of a run's table. DataError for a damaged or other file."""
    with _damage(path), safetensors.safe_open(path, framework="numpy") as file:
        words: list[str] = file.get_tensor("words").tobytes().decode().split("\n")
    return words


def read_rows(path: Path, rows: np.ndarray) -> np.ndarray:
    """Read some rows (n, D) of a run's table, of which only a few megabytes are in memory at a time.

    DataError for a damaged file, for a row that it lacks, and for NaN or infinity in these rows.
    """
    order, begin = np.argsort(rows, kind="stable"), 0
    table, first = np.empty((len(rows), 0), np.float32), 0
    with _damage(path):
        for block in checksummed.blocks(path, "vectors"):
            if first == 0:
                table = np.empty((len(rows), block.shape[1]), np.float32)
            end = begin + int(np.searchsorted(rows[order[begin:]], first + len(block)))
            table[order[begin:end]] = block[rows[order[begin:end]] - first]
            begin, first = end, first + len(block)
    if begin < len(rows):
        raise DataError(f"{path}: {first:,} vectors, fewer than words; {RESTORE_IT}")
    if len(bad := np.flatnonzero(~np.isfinite(table).all(1))):
        raise DataError(f"{path}: row {rows[bad[0]] + 1:,}: contains NaN or infinity; {WITHOUT_IT}")
    return table


@contextlib.contextmanager
def _damage(path: Path, reading: ReadOptions = PLAIN) -> Iterator[None]:
    """Turn errors of a damaged file into one line."""
    try:
        yield
    except safetensors.SafetensorError as error:
        raise DataError(f"{path}: is not a complete safetensors file: {error}; {RESTORE_IT}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: its words are not {reading.codec.upper()}; {reading.encoding_remedy()}") from error


def read_tensors(path: Path, max_bytes: int, reading: ReadOptions = PLAIN) -> WordsAndTable:
    """Read the words and the table (V, D) float32 of a file. DataError for a damaged or other file."""
    expected = (
        "should be tensors `vectors` (V, D) float32, float16 or bfloat16 and `words` uint8, as written by `embtrain "
        "export`"
    )
    with open_unpacked(path), open(path, "rb") as raw_file:
        if kind := detect_packing(raw_file):
            raise DataError(f"{path}: a safetensors file must not be compressed, but this one is with {kind}; unpack "
                            "it")
    with _damage(path, reading), safetensors.safe_open(path, framework="numpy") as file:
        if set(file.keys()) != {"vectors", "words"}:
            hub = ", as in a Hugging Face folder: give the folder" if HUB_TABLE in file.keys() else ""  # noqa: SIM118
            raise DataError(f"{path}: {expected}; got {', '.join(sorted(file.keys()))[:80]}{hub}")
        vectors, text = file.get_slice("vectors"), file.get_slice("words")
        shape, kinds = vectors.get_shape(), (vectors.get_dtype(), text.get_dtype())
        if len(shape) != 2 or len(text.get_shape()) != 1 or kinds not in {(kind, "U8") for kind in FLOATS}:
            raise DataError(f"{path}: {expected}; got {kinds[0]} {shape}, {kinds[1]} {text.get_shape()}")
        n = shape[0] if reading.limit is None else min(shape[0], reading.limit)
        check_memory(path, n, shape[1], max_bytes)
        is_sealed, code = checksummed.CHECKSUM_KEY in (file.metadata() or {}), file.get_tensor("words")
        table = file.get_tensor("vectors") if is_sealed else read_float_tensor(path, "vectors", n, max_bytes)
        checksummed.check(path, file.metadata(), {"vectors": table, "words": code})
        words = code.tobytes().decode(reading.codec).split("\n")
        if not is_sealed:                                     # no hash verifies these words
            words = [decode_word(word.encode(), f"{path}: row {i + 1:,}") for i, word in enumerate(words)]
    if len(words) != shape[0] or "" in words or table.shape[1] == 0:
        raise DataError(f"{path}: {len(words):,} words for {shape[0]:,} vectors of {table.shape[1]:,} numbers, "
                        f"or an empty word; {RESTORE_IT}")
    words, table = words[:n], table[:n]
    if len(bad := np.flatnonzero(~np.isfinite(table).all(1))):
        raise DataError(f"{path}: row {bad[0] + 1:,}: {words[bad[0]][:40]!r}: contains NaN or infinity; {WITHOUT_IT}")
    return words, table
