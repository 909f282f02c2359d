"""Parameter tables (n, D), in memory or, with `train.tables: mapped`, in files (kernels/core/table_files.py).

They are filled in chunks of rows, which draw the same numbers as one draw of the whole table.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from embtrain.common.types import ProblemSpec

CHUNK = 1 << 20   # numbers that are drawn at once
NORMAL_ROWS = 16  # torch.randn fills 16 numbers at a time


def zeros(problem: ProblemSpec, n: int, dim: int) -> Tensor:
    """Make a table of zeros, (n, dim)."""
    return problem.new_table(n, dim, True) if problem.new_table is not None \
        else torch.zeros(n, dim, dtype=torch.float32, device="cpu")


def fill_uniform(table: Tensor, generator: torch.Generator, scale: Callable[[Tensor], Tensor]) -> Tensor:
    """Fill a table (n, D) with `scale` of uniform numbers in [0, 1), and return it. scale: elementwise."""
    for rows in table.split(max(1, CHUNK // max(1, table.shape[1]))):
        rows.copy_(scale(torch.rand(rows.shape, generator=generator, dtype=torch.float32, device="cpu")))
    return table


def symmetric(problem: ProblemSpec, n: int, dim: int, span: float, generator: torch.Generator) -> Tensor:
    """Draw a table (n, dim) from U(−span, span)."""
    return fill_uniform(zeros(problem, n, dim), generator, lambda x: (x * 2 - 1) * span)


def normal(problem: ProblemSpec, n: int, dim: int, std: float, generator: torch.Generator) -> Tensor:
    """Draw a table (n, dim) from N(0, std²)."""
    table = zeros(problem, n, dim)
    rows = max(1, CHUNK // (NORMAL_ROWS * max(1, dim))) * NORMAL_ROWS
    n_chunks = max(1, n // rows)          # the last one has the rest, because torch draws few numbers in another way
    for i in range(n_chunks):
        part = table[i * rows:n if i + 1 == n_chunks else (i + 1) * rows]
        part.copy_(torch.randn(part.shape, generator=generator, dtype=torch.float32, device="cpu") * std)
    return table


def moved(problem: ProblemSpec, table: Tensor) -> Tensor:
    """Move a table (n, D) that was made in memory to where the problem's tables are."""
    return table if problem.new_table is None else zeros(problem, *table.shape).copy_(table)
