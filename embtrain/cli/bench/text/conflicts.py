"""Conflicts: the share of row updates that another thread makes at the same time, counted for any number of threads.

Nothing is trained. The windows of blocks of a text, with negatives as training draws them, are split into one range for
each thread, as the compiled trainer does. All threads are equally fast: those that have made as many updates
make the next 32 at the same time. An update of a row conflicts if another thread writes the row meanwhile.

output  rows of contexts and negatives, written in place
copied  the same with copies of frequent rows in each thread, which write a row once in `max_uses` uses and at the end
        (decision 079); the share is of all updates too
input   rows of centres, one update for each window, 2 of a thread at the same time
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.cli.bench.text.skipgram import CORPUS, MIN_COUNT, TOKENS, K
from embtrain.common.errors import DataError
from embtrain.data.text.windows import SkipGramWindows
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.train.engines.compiled import CompiledStep

LAYOUTS = ("PAIR", "CENTRE")            # K negatives for each pair, or for each window
AT_ONCE, BLOCKS = 32, 4                 # updates of a thread; blocks that are counted
HOT, ALL_USES, MIN_USES, MIN_USES_PER_COPY = 256, 128, 16, 64  # of kernels/source/training/skipgram/hot_rows.h


class Writes(NamedTuple):
    """Writes of rows in one block, in the order of each thread."""

    thread: np.ndarray  # (N,) int64
    row: np.ndarray     # (N,) int64
    time: np.ndarray    # (N,) int64  equal numbers: at the same time


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Count both layouts; `only` names some, for example PAIR. DataError if no word has a neighbour."""
    known = {f"{layout}-t{n}": (layout, n) for n in threads for layout in LAYOUTS}
    chosen = {name: known[name] for name in choose(known, only)}
    file = words.prefix(corpus or CORPUS, TOKENS)
    windows = words.read(file, MIN_COUNT).windows
    if next(_blocks(windows, LAYOUTS[0]), None) is None:
        raise DataError(f"{corpus or CORPUS}: no word has a neighbour in its window; give a text with longer lines")
    groups = [Group(1, {name: partial(_count, windows, layout, n)}) for name, (layout, n) in chosen.items()]
    return run("conflicts", "s of counting", groups, rounds, {
        "corpus": corpus or CORPUS, "words": len(windows.raw_counts), "at_once": AT_ONCE, "blocks": BLOCKS,
        "hot": HOT, "max_uses": {str(n): max_uses(n) for n in threads},
        "settings": words.shared("train.lr", "train.min_lr", "train.epochs")})


def _count(windows: SkipGramWindows, layout: str, threads: int) -> Timed:
    def shares() -> dict[str, float]:
        found = np.array([[*conflicts(*block, threads)] for block in _blocks(windows, layout)])
        return dict(zip(("output", "copied", "input"), found.mean(0).tolist(), strict=True))

    return Timed(*timed(shares))


def _blocks(windows: SkipGramWindows, layout: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the centres (C,) of a block, the end of each window (C,) among the output rows, and these rows (N,)."""
    noise = torch.from_numpy(windows.raw_counts) ** 0.75
    table, random = AliasTable(noise / noise.sum(), "cpu"), torch.Generator().manual_seed(0)
    blocks = filter(len, windows.windows(0, CompiledStep.default_block_size, shuffle=False))
    for block in itertools.islice(blocks, BLOCKS):
        start, target = block.start.numpy(), block.target.numpy()
        owner = np.repeat(np.arange(len(block)), np.diff(start))                            # (P,) window of a pair
        drawing = owner if layout == "PAIR" else np.arange(len(block))
        drawn = table.draw((len(drawing) * K,), random).numpy()
        window = np.concatenate([owner, np.repeat(drawing, K)])
        order = np.argsort(window, kind="stable")
        yield block.centre.numpy(), np.searchsorted(window[order], np.arange(1, len(block) + 1)), np.concatenate(
            [target, drawn])[order]


def conflicts(centre: np.ndarray, end: np.ndarray, row: np.ndarray, threads: int) -> tuple[float, float, float]:
    """Return the shares `output`, `copied` and `input` of a block; arguments as `_blocks` yields them."""
    cuts = np.searchsorted(end, np.linspace(0, len(row), threads + 1)[1:-1])             # of windows: equal updates
    window_thread = np.searchsorted(cuts, np.arange(len(centre)), side="right")
    thread = np.repeat(window_thread, np.diff(end, prepend=0))
    output = Writes(thread, row, _position(thread) // AT_ONCE)
    centres = Writes(window_thread, centre, _position(window_thread) // max(1, AT_ONCE // 16))
    return (n_conflicts(output) / len(row), n_conflicts(with_copies(output, max_uses(threads))) / len(row),
            n_conflicts(centres) / len(centre))


def max_uses(threads: int) -> int:
    """Uses of a copy between two writes of its row."""
    return max(ALL_USES // threads, MIN_USES)


def with_copies(writes: Writes, most: int) -> Writes:
    """The writes of shared rows that remain if each thread has copies of the frequent ones, written every `most` uses.
    """
    thread, row, time = writes
    n_rows, n_updates = int(row.max(initial=0)) + 1, np.bincount(thread)
    n_copies = np.minimum(min(HOT, n_rows), n_updates // MIN_USES_PER_COPY)
    is_copied = row < n_copies[thread]
    key = thread * n_rows + row
    order = np.argsort(key, kind="stable")
    use = np.empty(len(key), dtype=np.int64)
    use[order] = _position(key[order])                                                   # uses of a copy before this
    kept = ~is_copied | (use % most == most - 1)
    flushed_thread = np.repeat(np.arange(len(n_copies)), n_copies)                       # at the end, by rows
    flushed_row = _position(flushed_thread)
    flushed_time = (n_updates[flushed_thread] + flushed_row) // AT_ONCE
    return Writes(np.concatenate([thread[kept], flushed_thread]), np.concatenate([row[kept], flushed_row]),
                  np.concatenate([time[kept], flushed_time]))


def n_conflicts(writes: Writes) -> int:
    """The number of writes of a row that another thread writes at the same time."""
    place = writes.time * (int(writes.row.max(initial=0)) + 1) + writes.row
    n_threads = int(writes.thread.max(initial=0)) + 1
    inverse, n = np.unique(place, return_inverse=True)[1], len(place)
    pairs = np.unique(inverse * n_threads + writes.thread) // n_threads                  # once for each thread
    return int((np.bincount(pairs, minlength=n)[inverse] > 1).sum())


def _position(group: np.ndarray) -> np.ndarray:
    """The position of each item in its group; the items of a group are consecutive."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
