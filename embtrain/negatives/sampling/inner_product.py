"""Scores as inner products, s(a, b) = h·c, for sources that summarize candidates.

    dot      h = u_a               c = v_b
    cosine   h = τ u_a / ‖u_a‖      c = v_b / ‖v_b‖

A weight n e^{h·c} is valid for any norms: without normalization, longer vectors simply get more weight.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Query, first_occurrence

GEOMETRIES = frozenset({"dot", "cosine"})


def query_vectors(query: Query, view: ModelView) -> Tensor:
    """h of each row, (B, D). Raises UsageError if a number is not finite."""
    h = query.vector
    if view.geometry == "cosine":
        h = h * (view.tau / torch.linalg.vector_norm(h, dim=1, keepdim=True).clamp_min_(1e-12))
    return require_finite(h, "queries")


def candidate_vectors(view: ModelView) -> Tensor:
    """c of every candidate, (V, D). Raises UsageError if a number is not finite."""
    return require_finite(_normalized(view, view.table()), "candidates")


def candidate_rows(view: ModelView, ids: Tensor) -> Tensor:
    """c of ids (K,): (K, D). Not checked for finite numbers."""
    return _normalized(view, view.table().index_select(0, ids))


def queries_per_draw(query: Query, share: str) -> tuple[Query, Tensor, Tensor, Tensor | None]:
    """Distinct queries (Q); the query and the target of the first row of each draw (G,) each; the draw of each row
    (B,).

    The last is None if each row has its own draw. Under `window`, rows of a window with the same query share a draw.
    """
    unique, query_id = query.unique()
    if share != "window":
        return unique, query_id, query.target, None
    draw_id = torch.unique(query.windows() * len(unique) + query_id, return_inverse=True)[1]
    first = first_occurrence(draw_id)
    return unique, query_id[first], query.target[first], draw_id


def _normalized(view: ModelView, c: Tensor) -> Tensor:
    return normalize(c, dim=1) if view.geometry == "cosine" else c


def require_finite(x: Tensor, name: str) -> Tensor:
    """Return x. Raises UsageError if a number in it is not finite."""
    # A number that is not finite makes the sum not finite; isfinite would allocate a mask as large as the table. A sum
    # in double takes longer, and is needed only where that of finite numbers is too large for the type.
    if not math.isfinite(x.sum()) and not math.isfinite(x.sum(dtype=torch.float64)):
        raise UsageError(f"{key('source')}: vectors of {name} are not finite, so nothing can be drawn; lower "
                         "train.lr, or set train.clip")
    return x
