"""Safetensors files that contain their own sha256, so that a flipped bit is detected.

    sha256 = SHA-256 of, for each array in the order of the names: name, dtype, shape, bytes        (in the metadata)

A file without one is not checked: other programs write safetensors too.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from embtrain.common.errors import DataError

CHECKSUM_KEY = "sha256"
CHUNK = 1 << 22  # bytes copied at once
_DAMAGED = "damaged: the sha256 of its data differs from the recorded one; restore the file, or write it again"
NAMES = {"<f2": "F16", "<f4": "F32", "<f8": "F64", "<i4": "I32", "<i8": "I64", "|u1": "U8"}  # names of the format


def file_chunks(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
                ) -> Iterator[memoryview | bytes]:
    """Yield the bytes of a safetensors file of `arrays`, in chunks of about CHUNK bytes. metadata: more of it.

    The result is the file that the library would write, which needs all arrays in memory twice. The format is a
    little-endian u64, that many bytes of JSON, and the bytes of the arrays.
    """
    # The widest dtype first, as in the library: each array then starts at a multiple of its element size.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {**(metadata or {}), CHECKSUM_KEY: _digest(arrays)}}
    end = 0
    for name in order:
        start, end = end, end + arrays[name].nbytes
        header[name] = {"dtype": NAMES[arrays[name].dtype.str], "shape": list(arrays[name].shape),
                        "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        yield from _bytes(arrays[name])


def check(path: Path, metadata: Mapping[str, str] | None, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise DataError if the arrays do not have the sha256 of `metadata`; do nothing if it has none."""
    stored = (metadata or {}).get(CHECKSUM_KEY)
    if stored is not None and stored != _digest(arrays):
        raise DataError(f"{path}: {_DAMAGED}")


def blocks(path: Path, name: str) -> Iterator[np.ndarray]:
    """Yield the rows of an array of a safetensors file, at most CHUNK bytes at a time.

    The file is opened for each block, because pages of a mapped file stay in memory until it is closed. If the file
    states a sha256, its other arrays are read too, and the end raises DataError if it differs.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        names, stored = sorted(file.keys()), (file.metadata() or {}).get(CHECKSUM_KEY)
    if stored is None:
        yield from (block for _, block, _ in _blocks_of(path, name))
        return
    digest = hashlib.sha256()
    for key in names:
        for start, block, shape in _blocks_of(path, key):
            if start == 0:
                digest.update(_head(key, block.dtype, shape))
            for chunk in _bytes(block):
                digest.update(chunk)
            if key == name:
                yield block
    if digest.hexdigest() != stored:
        raise DataError(f"{path}: {_DAMAGED}")


def _blocks_of(path: Path, name: str) -> Iterator[tuple[int, np.ndarray, tuple[int, ...]]]:
    """Yield the first row, the rows and the shape of an array, a block at a time; an empty array is one block."""
    start, n = 0, 1
    while start < n:
        with safetensors.safe_open(path, framework="numpy") as file:
            part = file.get_slice(name)
            shape = tuple(part.get_shape())
            n, step = shape[0], max(1, CHUNK // max(1, 8 * math.prod(shape[1:])))
            yield start, part[start:min(n, start + step)] if n else file.get_tensor(name), shape
        start += step


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(_head(name, array.dtype, array.shape))
        for chunk in _bytes(array):
            digest.update(chunk)
    return digest.hexdigest()


def _head(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return json.dumps([name, dtype.str, shape]).encode()


def _bytes(array: np.ndarray) -> Iterator[memoryview]:
    """Yield a few rows at a time, so that a table of padded rows is never copied as a whole."""
    step = max(1, CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start:start + step]).reshape(-1).view(np.uint8).data
