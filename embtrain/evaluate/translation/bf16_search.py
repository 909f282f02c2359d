"""The best word by a table of half the bytes: bfloat16 finds a few, float32 decides among them.

    S_t = the n words of the greatest r(ê_t)·r(v_b)      y_t = argmax_{b ∈ S_t} s(t, b)        r: rounded to bfloat16

r keeps 8 bits, so the two nearest words of an answer are confused now and then; that the nearest is not among n = 16 is
rare, and is all that can go wrong. Processors with bfloat16 products are faster so (`embtrain bench nmt`), others are
slower.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embtrain.common.types import Query
from embtrain.data.parallel.corpus import RARE
from embtrain.models.nmt.model import Nmt

SHORTLIST_SIZE = 16  # n


class Bf16Search:
    """Answers what `decoding.nearest` does, for losses whose logits rise with the score alone."""

    def __init__(self, model: Nmt):
        table = model.table().detach()
        if model.geometry == "cosine" and not model.has_frozen_table:
            table = nn.functional.normalize(table, dim=1)
        self.model, self.table = model, table.to(torch.bfloat16)

    def __call__(self, query: Query, unknown: bool) -> Tensor:
        """The best word of each question (n,)."""
        rounded_scores = query.vector.to(torch.bfloat16) @ self.table.T                            # (n, V)
        # of equal ones the first wins
        ids = rounded_scores.topk(min(SHORTLIST_SIZE, rounded_scores.shape[1]), 1).indices.sort(1).values
        score = self.model.score(query, ids)
        if not unknown:
            score = score.masked_fill(ids == RARE, -torch.inf)
        return ids.gather(1, score.max(1, keepdim=True).indices)[:, 0]
