"""Hardness of each component's negatives, and how their gradient turns the query.

Negatives may be ids or synthetic vectors.

Bose et al. (2018) call a negative hard if the model cannot distinguish it from a positive; it need not be near in
embedding space. Mean cost, mean rank and mean cosine to the target are therefore reported for each component that drew
(Negatives.origin). A query's unit vector ĥ and its target's e span a plane. For the unit vector x of a negative

    ĥ = cos θ e + sin θ o,  o ⊥ e        x = λ₃ e + λ₄ o + y,  y ⊥ e, o           (Bhat et al. 2019, section 3.1)

The loss of a pair depends only on λ₃ and λ₄, its gradient also on y. λ₃ is the cosine to the target. Also reported are
λ₄, ‖y‖, and the standard deviations of λ₃ and λ₄: 0 for a projection, by construction.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.types import ORIGINS, PROBE, ModelView, Negatives, Query
from embtrain.models.rounding import tie_bounds

MAX_ROWS = 64          # rows whose negatives are ranked
MAX_CANDIDATES = 2048  # evenly spaced candidates that are scored: with all, a log line takes as long as a block
MAX_RANKED = 256       # negatives ranked per component, evenly spaced
VECTOR_GEOMETRIES = ("dot", "cosine")    # geometries in which queries and candidates share a space
MIN_SINE = 1e-4               # sin θ below which o is undefined


@torch.no_grad()
def hardness(query: Query, drawn: Negatives, cost: Tensor, view: ModelView) -> dict[str, float]:
    """Metrics of the n rows that `cost` (n, K) covers, by name.

    `loss/NAME` is the mean cost over all rows, the curve of Bose et al. (2018). `hardness/NAME/rank`, `/cosine` and the
    quantities of the plane use at most the first MAX_ROWS rows. A rank is that among all V candidates, estimated from
    MAX_CANDIDATES of them if V is larger.
    """
    n = len(cost)
    query, drawn = query.rows(slice(0, n)), drawn.rows(slice(0, n))
    if drawn.k == 0 or n == 0:
        return {}
    origin = drawn.per_row(drawn.origin, n)
    origin = torch.zeros((1, 1), dtype=torch.int8, device=cost.device).expand(n, drawn.k) if origin is None else origin
    is_negative = _negative_mask(drawn, n, cost.device)
    ranked = slice(0, min(n, MAX_ROWS))
    negatives = _ScoredNegatives(query.rows(ranked), drawn.rows(ranked), view)
    metrics: dict[str, float] = {}
    for component, name in enumerate(ORIGINS):
        mask = (origin == component) & is_negative
        if component == PROBE or not mask.any():
            continue
        metrics[f"loss/{name}"] = float(cost[mask].mean())
        cells = mask[ranked].nonzero()                                              # (n', 2) row, column
        if not len(cells):
            continue
        row, column = cells[::-(-len(cells) // MAX_RANKED)].T
        metrics[f"hardness/{name}/rank"] = negatives.mean_rank(row, column)
        metrics |= {f"hardness/{name}/{key}": value for key, value in negatives.plane(row, column).items()}
    return metrics


def _negative_mask(drawn: Negatives, n: int, device: torch.device) -> Tensor:
    """Mask (n, K) of the columns that are negatives: not false negatives and not fillers of weight 0."""
    weight = drawn.per_row(drawn.weight, n)
    mask = torch.ones(n, drawn.k, dtype=torch.bool, device=device) if weight is None else weight > 0
    if drawn.false_negatives is not None:
        mask = mask.clone()
        mask[drawn.false_negatives[0], drawn.false_negatives[1]] = False
    return mask


class _ScoredNegatives:
    """The negatives (r, K) of the ranked rows, as ids or vectors, with the scores of evenly spaced candidates."""

    def __init__(self, query: Query, drawn: Negatives, view: ModelView):
        self.query, self.vectors, self.view = query, drawn.vectors, view
        self.ids = None if self.vectors is not None else drawn.per_row(drawn.ids, len(query))
        self.table = view.table()
        self.stride = -(-view.n_candidates // MAX_CANDIDATES)
        candidates = torch.arange(0, view.n_candidates, self.stride, device=query.target.device)
        self.candidate_scores = view.score(query, candidates.unsqueeze(0)).cpu().numpy()           # (r, C)

    def mean_rank(self, row: Tensor, column: Tensor) -> float:
        """Mean rank of the negatives at (row, column) (n',), rows ascending; ties share the mean of their ranks.

        Two scores that differ by rounding are tied (models/rounding.py). A negative is compared with the candidates
        other than itself. Counted by NumPy, the negatives of a row at once: summing a comparison takes PyTorch twenty
        times as long.
        """
        rows, n_candidates = row.cpu().numpy(), self.candidate_scores.shape[1]
        scores, n_others, n_own = self._scores(row, column), self.view.n_candidates, 0
        if self.ids is not None:
            ids = self.ids[row, column].cpu().numpy()
            is_scored = ids % self.stride == 0
            scores[is_scored] = self.candidate_scores[rows[is_scored], ids[is_scored] // self.stride]
            n_others, n_own = n_others - 1, int(is_scored.sum())
        low, high = (bound.cpu().numpy() for bound in tie_bounds(
            self.view.geometry, self.view.tau, torch.from_numpy(scores).to(self.query.vector.device),
            self.query.vector[row], self._vectors(row, column)))
        n_above = -0.5 * n_own                                          # a negative is tied with itself
        for places in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows)) + 1):
            candidates = self.candidate_scores[rows[places[0]]]
            n_above += 0.5 * (np.count_nonzero(candidates > high[places, np.newaxis])
                              + np.count_nonzero(candidates >= low[places, np.newaxis]))
        return 1 + n_above / (len(rows) * n_candidates - n_own) * n_others

    def _vectors(self, row: Tensor, column: Tensor) -> Tensor:
        """Vectors (n', D) of the negatives at (row, column)."""
        if self.vectors is not None:
            return self.vectors[row, column]
        assert self.ids is not None
        return self.table[self.ids[row, column]]

    def _scores(self, row: Tensor, column: Tensor) -> np.ndarray:
        """Scores (n',) of the negatives at (row, column)."""
        if self.ids is not None:
            negatives = self.ids[row, column].unsqueeze(1)                              # (n', 1)
        else:
            assert self.vectors is not None
            negatives = self.vectors[row, column].unsqueeze(1)                          # (n', 1, D)
        return self.view.score(self.query.rows(row), negatives)[:, 0].cpu().numpy()

    def plane(self, row: Tensor, column: Tensor) -> dict[str, float]:
        """λ₃ as `cosine`; in a vector geometry also its standard deviation, λ₄ with its own, and ‖y‖ as `rest`."""
        x, e = (normalize(z.double(), dim=1) for z in (self._vectors(row, column), self.table[self.query.target[row]]))
        lambda3 = (x * e).sum(1)                                                    # λ₃
        metrics = {"cosine": float(lambda3.mean())}
        if self.view.geometry not in VECTOR_GEOMETRIES:
            return metrics
        h = normalize(self.query.vector[row].double(), dim=1)
        o = h - (h * e).sum(1, keepdim=True) * e
        has_plane = o.norm(dim=1) > MIN_SINE
        if not bool(has_plane.any()):
            return metrics
        x, e, o, lambda3 = x[has_plane], e[has_plane], normalize(o[has_plane], dim=1), lambda3[has_plane]
        lambda4 = (x * o).sum(1)                                                   # λ₄
        residual = (x - lambda3.unsqueeze(1) * e - lambda4.unsqueeze(1) * o).norm(dim=1)  # ‖y‖
        return metrics | {"cosine_sd": float(lambda3.std(correction=0)), "lambda4": float(lambda4.mean()),
                          "lambda4_sd": float(lambda4.std(correction=0)), "rest": float(residual.mean())}

