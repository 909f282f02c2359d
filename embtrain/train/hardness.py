"""How hard each component's negatives are for the model, and which way they turn it: ids and made vectors alike.

The slides (Bose et al. 2018) call a negative hard when the model under training cannot tell it from a positive; it need
not be near in embedding space. So mean cost, mean rank and mean cosine to the target are told, for each component that
drew (Negatives.origin). A question's unit vector ĥ and its target's e span a plane; a column's unit vector x is

    ĥ = cos θ e + sin θ o,  o ⊥ e        x = λ₃ e + λ₄ o + y,  y ⊥ e, o           (Bhat et al. 2019, section 3.1)

The loss of a pair sees λ₃ and λ₄ alone, its gradient y as well. λ₃ is the cosine to the target; beside it λ₄ and ‖y‖
are told, and how far λ₃ and λ₄ scatter: 0 for a projection, which is what it is made for.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.types import ORIGINS, PROBE, ModelView, Negatives, Query

MAX_ROWS, MIN_ROWS = 64, 8            # rows whose columns are ranked among all V candidates, at most and at least
MAX_SCORES = 1 << 20  # fewer than MAX_ROWS where V is large, or a line of the log would cost more than its block
MAX_RANKED = 2048  # columns of one component ranked at most, evenly spread: each is compared with V scores
VECTOR_GEOMETRIES = ("dot", "cosine")    # geometries in which questions and candidates are vectors of one space
MIN_SINE = 1e-4               # sin θ below which there is no o


@torch.no_grad()
def hardness(query: Query, drawn: Negatives, cost: Tensor, view: ModelView) -> dict[str, float]:
    """Of the rows that cost (n, K) covers: `loss/NAME` is the slides' curve, a mean over all of them;
    `hardness/NAME/rank`, `/cosine` and those of the plane are taken on the first MAX_ROWS at most."""
    n = len(cost)
    query, drawn = query.rows(slice(0, n)), drawn.rows(slice(0, n))
    if drawn.k == 0 or n == 0:
        return {}
    origin = drawn.per_row(drawn.origin, n)
    origin = torch.zeros((1, 1), dtype=torch.int8, device=cost.device).expand(n, drawn.k) if origin is None else origin
    is_negative = _negative_mask(drawn, n, cost.device)
    ranked = slice(0, min(n, MAX_ROWS, max(MIN_ROWS, MAX_SCORES // view.n_candidates)))
    ranked_query = query.rows(ranked)
    all_ids = torch.arange(view.n_candidates, device=ranked_query.target.device).unsqueeze(0)
    scores = view.score(ranked_query, all_ids)                                           # (r, V)
    negatives = _ScoredNegatives(ranked_query, drawn.rows(ranked), scores, view)
    metrics: dict[str, float] = {}
    for component, name in enumerate(ORIGINS):
        mask = (origin == component) & is_negative
        if component == PROBE or not mask.any():
            continue
        metrics[f"loss/{name}"] = float(cost[mask].mean())
        cells = mask[ranked].nonzero()                                              # (n', 2) row and column
        if not len(cells):
            continue
        row, column = cells[::-(-len(cells) // MAX_RANKED)].T
        metrics[f"hardness/{name}/rank"] = _mean_rank(scores, row, negatives.scores(row, column))
        metrics |= {f"hardness/{name}/{key}": value for key, value in negatives.plane(row, column).items()}
    return metrics


def _negative_mask(drawn: Negatives, n: int, device: torch.device) -> Tensor:
    """Which of the columns (n, K) are negatives: neither right answers nor fillers, which weigh 0."""
    weight = drawn.per_row(drawn.weight, n)
    mask = torch.ones(n, drawn.k, dtype=torch.bool, device=device) if weight is None else weight > 0
    if drawn.false_negatives is not None:
        mask = mask.clone()
        mask[drawn.false_negatives[0], drawn.false_negatives[1]] = False
    return mask


class _ScoredNegatives:
    """The columns of some rows, which are ids or vectors."""

    def __init__(self, query: Query, drawn: Negatives, scores: Tensor, view: ModelView):
        self.query, self.vectors, self.view, self.all_scores = query, drawn.vectors, view, scores
        self.ids = None if self.vectors is not None else drawn.per_row(drawn.ids, len(query))
        self.table = view.table()

    def scores(self, row: Tensor, column: Tensor) -> Tensor:
        if self.vectors is not None:
            return self.view.score(self.query, self.vectors)[row, column]
        assert self.ids is not None
        return self.all_scores[row, self.ids[row, column]]

    def plane(self, row: Tensor, column: Tensor) -> dict[str, float]:
        """λ₃ as `cosine`; where vectors mean something, its scatter, λ₄ with its scatter, and ‖y‖."""
        if self.vectors is not None:
            x = self.vectors[row, column]                                         # (n', D)
        else:
            assert self.ids is not None
            x = self.table[self.ids[row, column]]
        x, e = (normalize(z.double(), dim=1) for z in (x, self.table[self.query.target[row]]))
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


def _mean_rank(scores: Tensor, row: Tensor, drawn_scores: Tensor) -> float:
    """Mean rank of scores own (n',) among those of their rows, (r, V); equals share their ranks.

    Counted by NumPy, cell by cell: the sum of a comparison takes torch twenty times as long. What was made is no
    candidate, and has its rank among them as if it were one more.
    """
    s, total = scores.cpu().numpy(), 0.0
    for r, x in zip(row.tolist(), drawn_scores.cpu().numpy(), strict=True):
        total += 1 + np.count_nonzero(s[r] > x) + 0.5 * max(0, int(np.count_nonzero(s[r] == x)) - 1)
    return total / len(drawn_scores)
