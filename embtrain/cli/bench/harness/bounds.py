"""Lower bounds of the time of a skip-gram epoch on one thread.

rows        every negative and every context of an epoch is read and written once, as fast as rows can be at random:
            P of the contexts, in the order of the text, and k of the noise for each draw: P, C or C / B of them where a
            draw is for a pair (share_draws_by: row), for a window, or for a block of B windows
arithmetic  three passes of d multiply-adds (the score, both gradients) for each score, at the peak rate of the
            processor: P of the contexts, and P k (row) or C k (window, block) of the noise
draws       every id of the noise from the alias table, in batches that fit in a near cache: a kernel that draws itself
            has to do the same, partly while it waits for rows

P pairs and C windows. The row of the centre costs nothing because it stays in the L1 cache. Neither bound is reached:
an update passes over each row twice, with the logistic function in between.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from embtrain.cli.bench.harness.base import timed
from embtrain.common.errors import DataError
from embtrain.data.text.windows import SkipGramWindows
from embtrain.kernels import roofline
from embtrain.kernels.core.tables import zeros
from embtrain.negatives.sampling.alias import AliasTable

TAKES = 5          # a measurement is the median of this many
ROWS = 1 << 20     # rows per measurement
IDS = 1 << 14      # draws per measurement
ADDS = 1 << 22     # multiply-adds of one float per measurement
BLOCK = 32_768     # windows read at once
MIN_PAIRS = 1_000  # of an epoch; fewer take no longer than the calls around them


class Layout(NamedTuple):
    share: str  # unit that shares a draw: row, window or block
    k: int
    block: int  # windows of a block


def require_pairs(windows: SkipGramWindows, corpus: str) -> None:
    """Raise DataError if an epoch of a text has too few pairs to be timed."""
    blocks = windows.windows(0, BLOCK, shuffle=False)
    if not any(n >= MIN_PAIRS for n in accumulate(len(block.target) for block in blocks)):
        raise DataError(f"--corpus: {corpus}: fewer than {MIN_PAIRS:,} pairs of words remain after text.sample, too "
                        "few to be timed; give a longer text, or one with more words")


def of_epoch(windows: SkipGramWindows, dim: int, layouts: Mapping[str, Layout]) -> dict[str, dict[str, float]]:
    """Seconds of one epoch by the name of the layout: rows, arithmetic, draws."""
    blocks = [(len(b.centre), b.target.numpy()) for b in windows.windows(0, BLOCK, shuffle=False)]
    c, p = sum(n for n, _ in blocks), sum(len(target) for _, target in blocks)
    target = np.concatenate([target for _, target in blocks[:4]])[:ROWS]
    noise = torch.from_numpy(windows.raw_counts) ** 0.75
    table, random = AliasTable(noise / noise.sum(), "cpu"), torch.Generator().manual_seed(0)
    drawn = table.draw((ROWS,), random).numpy()
    into = zeros(len(noise), dim)
    context = _each(lambda: roofline.rows(into, target), len(target))
    negative = _each(lambda: roofline.rows(into, drawn), ROWS)
    draw = _each(lambda: table.draw((IDS,), random), IDS)
    floats = roofline.multiply_adds(0, 1, 1).floats
    multiply_add = _each(lambda: roofline.multiply_adds(ADDS, 1, 1), ADDS * floats)
    found = {}
    for name, (share, k, block) in layouts.items():
        draws = {"row": p, "window": c, "block": c / block}[share]
        scores = p + k * (p if share == "row" else c)
        found[name] = {"rows": p * context + draws * k * negative, "arithmetic": scores * 3 * dim * multiply_add,
                       "draws": draws * k * draw}
    return found


def _each(work: Callable[[], object], n: int) -> float:
    """Seconds per item of a call that processes n."""
    work()
    return statistics.median(timed(work)[0] for _ in range(TAKES)) / n
