"""How hard each component's negatives are for the model: mean cost, mean rank, mean cosine to the target.

The slides (Bose et al. 2018) call a negative hard when the model under training cannot tell it from a positive; it need
not be near in embedding space. So all three are told, for each component that drew (Negatives.origin).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.types import ORIGINS, PROBE, Negatives, Query, View

ROWS = 64     # rows whose columns are ranked among all V candidates
CELLS = 2048  # columns of one component ranked at most, evenly spread: each is compared with V scores


@torch.no_grad()
def hardness(query: Query, drawn: Negatives, cost: Tensor, view: View) -> dict[str, float]:
    """Of the rows that cost (n, K) covers: `loss/NAME` is the slides' curve, a mean over all of them;
    `hardness/NAME/rank` and `/cosine` are taken on the first ROWS."""
    n = len(cost)
    query, drawn = query.rows(slice(0, n)), drawn.rows(slice(0, n))
    if drawn.ids is None or drawn.k == 0 or n == 0:
        return {}
    origin = drawn.per_row(drawn.origin, n)
    origin = torch.zeros((1, 1), dtype=torch.int8, device=cost.device).expand(n, drawn.k) if origin is None else origin
    some = slice(0, min(ROWS, n))
    lines = drawn.per_row(drawn.ids, n)
    assert lines is not None
    ids = lines[some]                                                             # (r, K)
    part = query.rows(some)
    everyone = torch.arange(view.n_candidates, device=ids.device).unsqueeze(0)
    scores = view.score(part, everyone)                                           # (r, V)
    table = view.table()
    target = torch.nn.functional.normalize(table[part.target], dim=1)             # (r, D)
    found: dict[str, float] = {}
    for which, name in enumerate(ORIGINS):
        mask = origin == which
        if which == PROBE or not mask.any():
            continue
        found[f"loss/{name}"] = float(cost[mask].mean())
        cells = mask[some].nonzero()                                              # (n', 2) row and column
        if not len(cells):
            continue
        row, column = cells[::-(-len(cells) // CELLS)].T
        own = scores[row, ids[row, column]]                                       # (n',)
        cosine = (torch.nn.functional.normalize(table[ids[row, column]], dim=1) * target[row]).sum(1)
        found[f"hardness/{name}/rank"] = _mean_rank(scores, row, own)
        found[f"hardness/{name}/cosine"] = float(cosine.mean())
    return found


def _mean_rank(scores: Tensor, row: Tensor, own: Tensor) -> float:
    """Mean rank of scores own (n',) among those of their rows, (r, V); equals share their ranks.

    Counted by NumPy, cell by cell: the sum of a comparison takes torch twenty times as long.
    """
    s, total = scores.cpu().numpy(), 0.0
    for r, x in zip(row.tolist(), own.cpu().numpy(), strict=True):
        total += 1 + np.count_nonzero(s[r] > x) + 0.5 * (np.count_nonzero(s[r] == x) - 1)
    return total / len(own)
