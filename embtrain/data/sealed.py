"""Arrays in a safetensors file that holds its own sha256, so that no flipped bit is taken for a number.

    sha256 = SHA-256 of, for each array in the order of the names: name, dtype, shape, bytes        (in the metadata)

A file without one is not ours to judge: other programs write safetensors too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy

from embtrain.errors import DataError

SEAL = "sha256"


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The file's bytes."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # Metadata of one key: the library writes several in an order that differs from call to call.
    return safetensors.numpy.save(whole, {SEAL: _digest(whole)})


def check(path: Path, metadata: Mapping[str, str] | None, arrays: Mapping[str, np.ndarray]) -> None:
    """DataError where the arrays are not those that were packed."""
    said = (metadata or {}).get(SEAL)
    if said is not None and said != _digest(arrays):
        raise DataError(f"{path}: damaged: its numbers do not have the sha256 that it was written with")


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
