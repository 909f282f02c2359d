"""Conflicting writes: the counts of a block against a loop over updates, and the constants of the kernel."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import embtrain
from embtrain.cli.bench.text import conflicts as module
from embtrain.cli.bench.text.conflicts import conflicts

HEADER = Path(embtrain.__file__).parent / "kernels" / "source" / "training" / "skipgram" / "hot_rows.h"


def shares(writers: dict[tuple[int, int], list[int]], n: int) -> float:
    """The share of n updates that is in a list with several threads."""
    return sum(len(threads) for threads in writers.values() if len(set(threads)) > 1) / n


def by_loop(centre: list[int], ends: list[int], rows: list[int], threads: int) -> tuple[float, float, float]:
    """Each thread makes its updates one by one, and counts the uses of its copies."""
    at = module.AT_ONCE
    windows = [rows[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    cuts = [sum(end < len(rows) * i / threads for end in ends) for i in range(1, threads)]
    output, shared, inputs = (defaultdict[tuple[int, int], list[int]](list) for _ in range(3))
    for t, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(windows)], strict=True)):
        own, uses = [row for window in windows[first:last] for row in window], Counter[int]()
        n_copies = min(module.HOT, len(own) // module.MIN_USES_PER_COPY)
        for i, row in enumerate(own):
            output[i // at, row].append(t)
            uses[row] += row < n_copies
            if row >= n_copies or uses[row] % module.max_uses(threads) == 0:
                shared[i // at, row].append(t)
        for row in range(n_copies):
            shared[(len(own) + row) // at, row].append(t)
        for i, row in enumerate(centre[first:last]):
            inputs[i // max(1, at // 16), row].append(t)
    return shares(output, len(rows)), shares(shared, len(rows)), shares(inputs, len(centre))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("at_once", [1, 7, 32])
def test_the_counts_are_those_of_a_loop(monkeypatch: pytest.MonkeyPatch, threads: int, at_once: int) -> None:
    for name, value in (("AT_ONCE", at_once), ("HOT", 6), ("ALL_USES", 9), ("MIN_USES", 3), ("MIN_USES_PER_COPY", 30)):
        monkeypatch.setattr(module, name, value)
    random = np.random.default_rng(threads)
    end = random.integers(1, 9, 150).cumsum()
    row, centre = random.zipf(1.6, end[-1]) % 40, random.integers(0, 12, 150)
    found = conflicts(centre, end, row, threads)
    assert found == pytest.approx(by_loop(centre.tolist(), end.tolist(), row.tolist(), threads), abs=1e-12)
    assert found == (0, 0, 0) if threads == 1 else 0 < found[1] < found[0] < 1


def test_the_constants_are_those_of_the_kernel() -> None:
    constants = dict(re.findall(r"constexpr \w+ (\w+) = (\d+);", HEADER.read_text(encoding="utf-8")))
    names = ("HOT", "ALL_USES", "MIN_USES", "MIN_USES_PER_COPY")
    assert {name: int(constants[name]) for name in names} == {name: getattr(module, name) for name in names}
