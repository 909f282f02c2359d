"""The most frequent entries of a run folder, as many as its page can contain: names and unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embtrain.data.storage import stored_corpus
from embtrain.data.vectors import folders, tensors
from embtrain.data.vectors.vectors import Vectors
from embtrain.report.render.json_data import encode

MAX_ENTRIES = 5000          # entries with neighbours
MAX_NAME_BYTES = 640_000    # of all names in the page, which stays below 1.5 MB with its charts


@dataclass(frozen=True)
class Entries:
    """The n most frequent entries of a table, most frequent first."""

    names: list[str]              # (n,)
    unit: NDArray[np.float32]     # (n, D) rows of length 1, or of zeros
    n_table: int                  # rows of the whole table


def read(folder: Path) -> Entries | None:
    """Read the entries of a run folder; None if it has no vectors, or fewer than three. DataError if a file is damaged.
    """
    if not (folder / folders.RUN_FILE).is_file():
        return None
    words, counts = tensors.read_words(folder / folders.RUN_FILE), stored_corpus.counts(folder)
    order = np.arange(len(words)) if counts is None or len(counts) != len(words) else np.argsort(-counts, kind="stable")
    order = order[:n_fitting([words[i] for i in order[:MAX_ENTRIES]])]
    if len(order) < 3:
        return None
    shown = Vectors([words[i] for i in order], tensors.read_rows(folder / folders.RUN_FILE, order))
    return Entries(shown.words, shown.unit, len(words))


def n_fitting(names: Sequence[str]) -> int:
    """Return how many of the first names fit into MAX_NAME_BYTES."""
    sizes = np.cumsum([len(encode(name).encode()) + 1 for name in names])
    return int(np.searchsorted(sizes, MAX_NAME_BYTES, side="right"))
