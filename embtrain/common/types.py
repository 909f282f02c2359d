"""Records passed between data, models, sources and losses. All tensor shapes are documented here.

B examples of a batch · K negatives of a draw · V candidates · D dimensions ·
G draws: B, or fewer if the rows of a window, block or batch share one ·
R scored rows: B, or fewer if rows with the same query and the same draw are scored once.

A higher score is always better. Only Query.vector and the scores in LossInput carry a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from embtrain.common.candidate_lists import ListReader
from embtrain.common.machine import to_device

NOISE, GENERATOR, PROBE, SYNTHETIC = 0, 1, 2, 3  # Negatives.origin: the component that drew a negative
ROWS_DIFFER = "examples that share a scored row have different positives; call expanded() first"
ORIGINS = ("noise", "generator", "probe", "synthetic")


def _map_tensors(record: Any, change: Callable[[Tensor], Tensor], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields of a record, with `change` applied to the tensors among them."""
    return {n: change(v) if isinstance(v := getattr(record, n), Tensor) else v for n in names}


@dataclass(frozen=True)
class Batch:
    """Examples: a target candidate and an open slot each. Each model adds the fields it needs."""

    target: Tensor  # (B,) int64  the positive
    slot: Tensor    # (B,) int64  the slot to predict (0 if a model has only one)
    weight: Tensor | None = field(default=None, kw_only=True)  # (B,) float32  factor of each example's loss; None: 1

    def __len__(self) -> int:
        return self.target.shape[0]

    def rows(self, index: slice | Tensor) -> Self:
        return replace(self, **_map_tensors(self, lambda x: x[index], tuple(f.name for f in fields(self))))

    def to(self, device: torch.device | str) -> Self:
        return replace(self, **_map_tensors(self, lambda x: to_device(x, device), tuple(f.name for f in fields(self))))


@dataclass(frozen=True)
class Query:
    """The queries of a batch: one vector per example, and the ids it was computed from."""

    vector: Tensor                  # (B, D) float, with gradient
    context: Tensor                 # (B,) or (B, C) int64  the known ids (a centre word; head and relation)
    target: Tensor                  # (B,) int64
    slot: Tensor                    # (B,) int64
    query_id: Tensor | None = None  # (B,) int64  rows with equal ids have the same query; ids 0..Q-1
    window: Tensor | None = None    # (B,) int64  rows of one window may share a draw; ids ascending
    window_offsets: Tensor | None = None  # (W+1,) int64  the rows of window w are offsets[w] .. [w+1]; None: unknown

    def __len__(self) -> int:
        return self.target.shape[0]

    def contexts(self, offsets: Tensor) -> Tensor:
        """Return the context of each draw, (G,) or (G, C), for the row offsets of the draws (G+1,)."""
        return self.context[offsets[:-1]]

    def windows(self) -> Tensor:
        """Return the window of each row, (B,) ascending; each row is its own window if examples come in none."""
        return torch.arange(len(self), device=self.target.device) if self.window is None else self.window

    def detach(self) -> Query:
        return replace(self, vector=self.vector.detach())

    def rows(self, index: slice | Tensor) -> Query:
        names = tuple(f.name for f in fields(self) if f.name != "window_offsets")
        part = replace(self, window_offsets=None, **_map_tensors(self, lambda x: x[index], names))
        if part.query_id is None:
            return part
        return replace(part, query_id=torch.unique(part.query_id, return_inverse=True)[1])

    def unique(self) -> tuple[Query, Tensor]:
        """Return the distinct queries (Q rows) and the index of each example's query, (B,)."""
        if self.query_id is None:
            return self, torch.arange(len(self), device=self.target.device)
        return replace(self, query_id=None).rows(first_occurrence(self.query_id)), self.query_id


def first_occurrence(query_id: Tensor, n: int | None = None) -> Tensor:
    """Return the first row of each id 0..Q-1 in `query_id` (B,): (Q,); n: Q, if known. Deterministic everywhere."""
    n = (int(query_id.max()) + 1 if len(query_id) else 0) if n is None else n
    first = torch.full((n,), len(query_id), dtype=torch.int64, device=query_id.device)
    return first.scatter_reduce(0, query_id, torch.arange(len(query_id), device=query_id.device), "amin")


@dataclass(frozen=True)
class Negatives:
    """The draws of a source: candidate ids or synthesized vectors. Shared draws broadcast over their rows."""

    ids: Tensor | None = None           # (G, K) int64
    vectors: Tensor | None = None       # (B, K, D) float, detached
    draw_id: Tensor | None = None       # (B,) int64  row i reads draw draw_id[i]; None: G is 1 or B
    log_q: Tensor | None = None         # (G, K), or broadcast to it; None: the source reports no density
    weight: Tensor | None = None        # (G, K), or broadcast to it; None: 1
    origin: Tensor | None = None        # (G, K) int8, or broadcast to it; None: NOISE
    log_q_target: Tensor | None = None  # (B,)    log q of the row's target
    total_weight: Tensor | None = None  # (B, 1) or (1, 1)  M, weight of the noise per positive, before masking
    false_negatives: Tensor | None = None  # (2, N) int64  (row of B, column) pairs that are known positives
    state: object = None                # opaque: set by the source's `draw` for its own `learn`; for all rows

    @property
    def k(self) -> int:
        if self.vectors is not None:
            return self.vectors.shape[1]
        return 0 if self.ids is None else self.ids.shape[1]

    def draw_index(self, n: int, device: torch.device | str) -> Tensor | None:
        """Return the index of the draw that each of n rows reads, (n,); None if row i reads draw i."""
        if self.draw_id is not None:
            return self.draw_id
        if self.ids is not None and self.ids.shape[0] == 1 and n != 1:
            return torch.zeros(n, dtype=torch.int64, device=device)
        return None

    def per_row(self, value: Tensor | None, n: int) -> Tensor | None:
        """Expand a per-draw field (ids, log_q, weight, origin) to one line per row: (n, K)."""
        if value is None:
            return None
        value = value if value.ndim == 2 else value.reshape(1, -1)
        if self.draw_id is not None and value.shape[0] != 1:
            value = value.index_select(0, self.draw_id)
        return value.expand(n, self.k)

    def rows(self, index: slice, pairs: slice | None = None) -> Negatives:
        """Return the draws of a slice of the batch's rows, without `state`. pairs: its false negatives, if known."""
        drawn = self.vectors if self.ids is None else self.ids
        n_draws = 0 if drawn is None else drawn.shape[0]
        has_draw_per_row = self.draw_id is None and n_draws > 1
        def cut_draw_field(x: Tensor | None) -> Tensor | None:
            return x[index] if has_draw_per_row and x is not None and x.ndim == 2 and x.shape[0] == n_draws else x
        def cut_row_field(x: Tensor | None) -> Tensor | None:
            return x if x is None or (x.ndim == 2 and x.shape[0] == 1) else x[index]
        if (false_negatives := self.false_negatives) is not None:
            start = index.start or 0
            keep = (false_negatives[0] >= start) & (false_negatives[0] < index.stop) if pairs is None else pairs
            false_negatives = torch.stack([false_negatives[0][keep] - start, false_negatives[1][keep]])
        draw_id = None if self.draw_id is None else self.draw_id[index]
        vectors, target = (None if x is None else x[index] for x in (self.vectors, self.log_q_target))
        return Negatives(cut_draw_field(self.ids), vectors, draw_id, cut_draw_field(self.log_q),
                         cut_draw_field(self.weight), cut_draw_field(self.origin), target,
                         cut_row_field(self.total_weight), false_negatives)


class WholeTable(Protocol):
    """Values of the queries that need the whole table, computed when a loss requests them."""

    def log_partition(self, rows: Tensor | slice) -> Tensor: ...   # exact log Z of these rows, (n,), in chunks
    def target_vectors(self) -> Tensor: ...                        # unit vectors of the targets (B, D), no gradient


@dataclass(frozen=True)
class LossInput:
    """All that a loss may use.

    `neg` has R rows: B, or fewer if rows share both query and draw (then `row` maps examples to scored rows).
    Elementwise work on `neg` runs on the R rows; `weighted_sum` and `weighted_logsumexp` return (B,).
    A loss that compares `pos` with `neg` calls `expanded()` first.
    """

    pos: Tensor              # (B,)   score of the positive
    neg: Tensor              # (R, K) scores of the negatives
    drawn: Negatives
    query: Query
    row: Tensor | None = None  # (B,) int64  the scored row of each example; None: R = B
    # Per-draw fields aligned with the rows of neg; None if the source reported none.
    log_q: Tensor | None = field(default=None)   # (R, K), (1, K) or (1, 1)
    weight: Tensor | None = field(default=None)  # (R, K), (1, K) or (1, 1)
    whole_table: WholeTable | None = None        # None: the engine does not offer it

    def expanded(self) -> LossInput:
        """Return the same input with one scored row per example (R = B)."""
        if (row := self.row) is None:
            return self
        def lift(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[0] == 1 else x.index_select(0, row)
        return replace(self, neg=self.neg.index_select(0, row), row=None,
                       log_q=lift(self.log_q), weight=lift(self.weight))

    @property
    def log_total_weight(self) -> Tensor:
        """log M of the total weight per positive, (B, 1) or (1, 1); log K only if all K negatives have weight 1."""
        if self.drawn.total_weight is None:
            return torch.tensor([[math.log(max(self.drawn.k, 1))]], dtype=self.pos.dtype, device=self.pos.device)
        return self.drawn.total_weight.to(self.pos.dtype).log()

    def kept_negatives(self) -> Tensor | None:
        """Return a mask (B, K), True at the negatives that count, False at false negatives; None if all count."""
        if self.drawn.false_negatives is None or self.drawn.false_negatives.shape[1] == 0:
            return None
        assert self.row is None, ROWS_DIFFER
        keep = torch.ones(self.neg.shape, dtype=torch.bool, device=self.neg.device)
        keep[self.drawn.false_negatives[0], self.drawn.false_negatives[1]] = False
        return keep

    def _fill_false_negatives(self, x: Tensor, value: float) -> Tensor:
        """Return x (R, K) with `value` at false negatives, which then have no gradient. A mask takes more passes."""
        if (pairs := self.drawn.false_negatives) is None or pairs.shape[1] == 0:
            return x
        assert self.row is None, ROWS_DIFFER
        return x.index_put((pairs[0], pairs[1]), x.new_full((), value))

    def weighted_sum(self, x: Tensor) -> Tensor:
        """Return Σ_j weight_j x_j over the negatives, false negatives excluded: x (R, K) -> (B,)."""
        x, weight = self._fill_false_negatives(x, 0.0), self.weight
        if weight is not None:                  # where, not multiply: a negative of weight 0 may have an infinite score
            x = torch.where(weight != 0, weight * x, x.new_zeros(()))
        out = x.sum(1)
        return out if self.row is None else out.index_select(0, self.row)

    def weighted_logsumexp(self, x: Tensor) -> Tensor:
        """Return log Σ_j weight_j e^{x_j} over the negatives, false negatives excluded: x (R, K) -> (B,).

        A row without any counted negative gives a finite number near the lowest one and a zero gradient.
        """
        lowest = torch.finfo(x.dtype).min / 4
        x = self._fill_false_negatives(x, lowest)
        if self.weight is not None:
            counted = self.weight != 0
            x = torch.where(counted, x + torch.where(counted, self.weight, 1.0).log(), x.new_full((), lowest))
        out = x.logsumexp(1) if x.shape[1] else x.new_full((x.shape[0],), lowest)
        out = torch.where(out <= lowest / 2, x.new_full((), lowest), out)   # NaN stays NaN
        return out if self.row is None else out.index_select(0, self.row)


@dataclass(frozen=True)
class LossOutput:
    """The result of a loss."""

    per_example: Tensor   # (B,)   the complete weighted loss, the only differentiated output
    per_negative: Tensor  # (R, K) cost of each negative to the model: not hinged, not corrected for q, detached


class ModelView(Protocol):
    """Read-only protocol of the model for a source, without gradients."""

    @property
    def n_candidates(self) -> int: ...
    @property
    def geometry(self) -> str: ...           # score function: dot, s = h·c; cosine, s = τ cos(h, c); ...
    @property
    def tau(self) -> float: ...              # τ, the inverse temperature; 1 for dot
    @property
    def has_frozen_table(self) -> bool: ...  # the rows of the table have length 1 and are not trained
    def table(self) -> Tensor: ...                                       # (V, D)
    def score(self, query: Query, candidates: Tensor) -> Tensor: ...     # (B, K) of ids (1|B, K), vectors (B, K, D)


class WordVectors(Protocol):
    """Protocol of a file of word vectors."""

    @property
    def table(self) -> np.ndarray: ...                                   # (n, D)
    def find(self, words: Iterable[str], lower: bool = False) -> np.ndarray: ...  # rows (m,), -1: unknown in any case


@dataclass(frozen=True)
class ProblemSpec:
    """The facts about the problem that models, sources and losses receive before training."""

    n_candidates: int                       # V
    counts: Tensor                          # (V,) float64  how often each candidate is a positive in training
    n_contexts: int | None = None           # contexts are ids 0..n-1; None: they are not single ids
    context_sizes: tuple[int, ...] | None = None  # number of ids in each column of Query.context, if it has several
    raw_counts: Tensor | None = None        # (V,) float64  counts before subsampling, if they differ
    dim: int = 0                            # D of the model
    seed: int = 0
    device: str = "cpu"
    n_features: int | None = None           # length of the sparse input vectors; None: inputs are ids
    feature_counts: Tensor | None = None    # (n_features,) float64  training documents with each feature
    words: Sequence[str] | None = None      # the V candidates, if they are words
    vectors: Callable[[str], WordVectors] | None = None  # reads a file or folder of vectors
    lists: ListReader | None = None         # lists of candidates by query, from a file or from the training data
    # min_n, max_n, buckets or "exact", n words -> start (n + 1,), row (R,) of their character n-grams, number of rows
    ngram_rows: Callable[[int, int, int | str, Sequence[str]], tuple[np.ndarray, np.ndarray, int]] | None = None
    new_table: Callable[[int, int, bool], Tensor] | None = None  # n, D, is_padded -> zeros in a file; None: memory


class Score(NamedTuple):
    """One line of scores.json: a value, its 95 % interval, the number of items and a note."""

    benchmark: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str = ""
