"""Exact softmax over all V candidates ([nce_note] eq. 4-6; [rawat2019] eq. 2-4).

    L = −s_t + log Σ_b e^{s_b}        ∂L/∂s_b = P(b|a) − [b = t]

The negatives must be all candidates, each counted once (source `every`), or there are none (source `none`) and the
model computes log Z. The sum includes the target, so a masked target is counted again; other masked known positives
stay excluded. With `absolute`, |s| replaces s (absolute.py).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, Negatives
from embtrain.losses.absolute import AbsoluteConfig, SoftmaxLoss
from embtrain.losses.base import LossTraits, expand_if_rows_differ


class SoftmaxConfig(AbsoluteConfig):
    """Configuration keys of the exact softmax."""

    name: str = "softmax"


class ExactSoftmaxLoss(SoftmaxLoss):
    """Exact softmax."""

    name = "softmax"
    traits = LossTraits(estimates_log_prob=True, candidate_scope="every", cost_label="s, the score of the negative")
    Config = SoftmaxConfig

    def example(self, scored: LossInput) -> Tensor:
        if scored.drawn.k == 0 and scored.whole_table is not None:
            return scored.whole_table.log_partition(slice(0, len(scored.pos))) - scored.pos
        if not _is_every_candidate_once(scored.drawn, self.problem.n_candidates):
            raise UsageError(f"loss.name: softmax needs all {self.problem.n_candidates} candidates as negatives, but "
                             f"the source drew {scored.drawn.k}; set negatives.source: every")
        scored = expand_if_rows_differ(_with_target(scored))
        return scored.weighted_logsumexp(scored.neg) - scored.pos


def _is_every_candidate_once(drawn: Negatives, n_candidates: int) -> bool:
    """Return whether the weights of each candidate sum to 1 in every draw (probes have weight 0)."""
    if drawn.ids is None or drawn.k < n_candidates:
        return False
    weight = drawn.ids.new_ones((), dtype=torch.float32) if drawn.weight is None else drawn.weight.float()
    n_draws = max(drawn.ids.shape[0], weight.shape[0] if weight.ndim == 2 else 1)
    ids = drawn.ids.expand(n_draws, -1)
    total = weight.new_zeros((n_draws, n_candidates)).scatter_add(1, ids, weight.expand_as(ids))
    return bool(((total - 1).abs() < 1e-6).all())


def _with_target(scored: LossInput) -> LossInput:
    """Return the input with each example's target removed from its false negatives."""
    drawn = scored.drawn
    if drawn.false_negatives is None or drawn.ids is None:
        return scored
    row, column = drawn.false_negatives
    draw = drawn.draw_index(len(scored.pos), scored.pos.device)
    is_target = drawn.ids[row if draw is None else draw[row], column] == scored.query.target[row]
    return replace(scored, drawn=replace(drawn, false_negatives=drawn.false_negatives[:, ~is_target]))
