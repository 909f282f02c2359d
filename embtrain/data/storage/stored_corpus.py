"""The file corpus.safetensors of a run, so that a trained model works without its corpus.

    counts, raw_counts     (V,) float64, as in types.ProblemSpec; raw_counts only if it differs from counts
    sizes                  (3,) int64: contexts, features, 1 if the candidates are words; −1 if there are none
    context_sizes          (C,) int64, for contexts of several columns
    known                  (1,) int64: 1 if the arrays of the task are in the file, 0 if they were too large

All other arrays are those of `Task.kept`. The file has a sha256 over names, types, shapes and bytes; see
checksummed.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors

from embtrain.common.errors import DataError, read_error
from embtrain.common.files import write_atomically
from embtrain.data.storage import checksummed

FILE = "corpus.safetensors"
MAX_BYTES = 1 << 30   # of the file; larger arrays of a task are not stored
KNOWN = "known"


def write(folder: Path, spec_arrays: Mapping[str, np.ndarray], task_arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file into a run folder, without the arrays of the task if they take more than MAX_BYTES."""
    fits = sum(array.nbytes for array in task_arrays.values()) <= MAX_BYTES
    arrays = {**spec_arrays, **(task_arrays if fits else {}), KNOWN: np.array([int(fits)], np.int64)}
    with write_atomically(folder / FILE) as file:
        file.writelines(checksummed.file_chunks({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read(folder: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of a run folder; None without a file. DataError if it is damaged or too large."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        if (size := path.stat().st_size) > 2 * MAX_BYTES:
            raise DataError(f"{path}: {size:,} bytes are too many; restore the file that training wrote")
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  safe_open is not a dict
            metadata = file.metadata()
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise read_error(path, error, f"cannot be read: {error}; restore the file that training wrote") from error
    if not metadata or checksummed.CHECKSUM_KEY not in metadata:
        raise DataError(f"{path}: has no sha256; restore the file that training wrote")
    checksummed.check(path, metadata, arrays)
    if arrays.get(KNOWN, np.zeros(0)).shape != (1,) or arrays.get("sizes", np.zeros(0)).shape != (3,):
        raise DataError(f"{path}: contains no arrays known or sizes; restore the file that training wrote")
    return arrays


def counts(folder: Path) -> np.ndarray | None:
    """Return the frequencies (V,) of the candidates alone; None without a file. DataError if it is damaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            frequencies: np.ndarray = file.get_tensor("counts")
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise read_error(path, error, f"cannot be read: {error}; restore the file that training wrote") from error
    return frequencies


def has_task_arrays(arrays: Mapping[str, np.ndarray]) -> bool:
    """Return whether the arrays of the task are in the file."""
    return bool(arrays[KNOWN][0])
