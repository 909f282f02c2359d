"""The draws of a source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NOISE, GENERATOR, PROBE, SYNTHETIC = 0, 1, 2, 3  # Negatives.origin: the component that drew a negative
ORIGINS = ("noise", "generator", "probe", "synthetic")


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
