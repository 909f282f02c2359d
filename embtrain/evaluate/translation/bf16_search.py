"""Nearest word by a bfloat16 table: shortlist in bfloat16, rerank in float32.

    S_t = the n words of the greatest r(ê_t)·r(v_b)      y_t = argmax_{b ∈ S_t} s(t, b)        r: rounded to bfloat16

r keeps 8 bits, so it sometimes swaps the two nearest words. Only a nearest word outside the shortlist of n = 16 changes
the result, which is rare. This is faster on processors with bfloat16 products (`embtrain bench nmt`), slower on others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embtrain.common.types import Query
from embtrain.data.parallel.corpus import RARE
from embtrain.models.nmt.model import Nmt

SHORTLIST_SIZE = 16  # n


class Bf16Search:
    """Replaces `decoding.nearest` for losses whose logits increase with the score alone."""

    def __init__(self, model: Nmt):
        table = model.table().detach()
        if model.geometry == "cosine" and not model.has_frozen_table:
            table = nn.functional.normalize(table, dim=1)
        self.model, self.table = model, table.to(torch.bfloat16)

    def __call__(self, query: Query, unknown: bool) -> Tensor:
        """The best word of each query, (n,). unknown: <unk> is allowed."""
        rounded_scores = query.vector.to(torch.bfloat16) @ self.table.T                            # (n, V)
        # ties: the first wins
        ids = rounded_scores.topk(min(SHORTLIST_SIZE, rounded_scores.shape[1]), 1).indices.sort(1).values
        score = self.model.score(query, ids)
        if not unknown:
            score = score.masked_fill(ids == RARE, -torch.inf)
        return ids.gather(1, score.max(1, keepdim=True).indices)[:, 0]
