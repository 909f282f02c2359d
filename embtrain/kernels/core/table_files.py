"""Tables in files that are mapped into memory, for tables that do not fit into it.

The system reads and writes their pages as it needs the memory. The files have no names: the system deletes them when
the process ends, also if it is killed. They are never read by another process, so a run continues from a checkpoint.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import ResourceError
from embtrain.kernels.core.tables import LINE_FLOATS


class TableFiles:
    """Makes tables in files without names on the file system of a folder that exists."""

    def __init__(self, folder: Path):
        self.folder = folder

    def zeros(self, n: int, dim: int, is_padded: bool = True) -> Tensor:
        """Make zeros (n, dim) float32 in a file; `is_padded`: with the layout of kernels.core.tables.zeros.

        Their disk space is allocated at once: a disk that fills later would end the process at an access. Raises
        ResourceError if there is not enough.
        """
        stride = row_floats(dim) if is_padded else dim
        size = max(4, 4 * n * stride)
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    os.ftruncate(file.fileno(), size)
                buffer = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise ResourceError(f"train.tables: mapped: {self.folder}: a file of {size / 2**20:,.0f} MiB cannot be "
                                f"made: {error.strerror or error}; choose another disk with --out") from error
        return torch.from_numpy(np.frombuffer(buffer, np.float32, n * stride).reshape(n, stride))[:, :dim]


def row_floats(dim: int) -> int:
    """Return the floats that a padded row of a table takes."""
    return -(-dim // LINE_FLOATS) * LINE_FLOATS
