"""Sums of table rows, in a fixed order and in float32.

    s_i ← s_i + Σ_{j ∈ row[start_i : start_{i+1}]} table_j       one term after the other, from left to right

The order is that of fastText, so that sums are bitwise equal to its own. `np.add.reduceat` would sum in pairs.
"""

from __future__ import annotations

import numpy as np

_CELLS = 1 << 22  # numbers of a chunk


def add_rows(sums: np.ndarray, table: np.ndarray, start: np.ndarray, row: np.ndarray) -> None:
    """Add the rows row[start[i]:start[i + 1]] of a table (R, D) to sums[i]. sums: (n, D) float32. start: (n + 1,)."""
    length = np.diff(start)
    order = np.argsort(-length, kind="stable")                 # the longest first: sums that go on are a prefix
    for begin in range(0, len(order), step := max(1, _CELLS // max(table.shape[1], 1))):
        ids = order[begin:begin + step]
        first, longest_first, total = start[ids], -length[ids], sums[ids]
        for j in range(-int(longest_first[0])):
            m = int(np.searchsorted(longest_first, -j))        # sums that have more than j terms
            with np.errstate(over="ignore"):                   # infinity, which callers reject
                total[:m] += table[row[first[:m] + j]]
        sums[ids] = total
