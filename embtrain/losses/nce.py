"""Noise-contrastive estimation ([nce_note] eq. 7-14; [gutmann2010]; [mnih2012]).

    logit(b) = s_ab − c_a − log(mass·q(b))        L = −log σ(logit(t)) − Σ_j w_j log σ(−logit(j))

c_a is log Z_a: 0 (`partition: fixed`), one learned number (`global`), or one per context (`context`). The optimum is
s − c = log P(b|a) if accidental hits are kept, and log P/(1−P) if they are masked, so the mask should be `none`.
(The paper's eq. 8 has another factor k before the sum; with it the noise would count k times.)
A learned c and the scores can exchange a constant, so "Z stays near 1" only reflects the initial c, `log_z_start`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, ProblemSpec, Query
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus


class NceConfig(LossConfig):
    """Configuration keys of NCE."""

    name: str = "nce"
    partition: Literal["fixed", "global", "context"] = Field(
        "fixed", description="log Z: fixed to 0, one learned number, or a learned number per context")
    log_z_start: float | Literal["log n"] = Field(
        0.0, description="initial value of a learned log Z: a number, or log n")


class Nce(Loss):
    """Noise-contrastive estimation."""

    name = "nce"
    traits = LossTraits(estimates_log_prob=True, cost_label="s - c, the model's log-probability of the negative",
                        needs_q="target")
    Config = NceConfig
    config: NceConfig

    def __init__(self, config: NceConfig, world: ProblemSpec):
        super().__init__(config, world)
        start = math.log(world.n_candidates) if config.log_z_start == "log n" else config.log_z_start
        self.c: nn.Parameter | None = None
        if config.partition == "global":
            self.c = nn.Parameter(torch.full((), start))
        elif config.partition == "context":
            if world.n_contexts is None:
                raise UsageError("loss.partition: context needs contexts that are ids, but this model has none; set "
                                 "loss.partition: global or fixed")
            self.c = nn.Parameter(torch.full((world.n_contexts,), start))

    def example(self, scored: LossInput) -> Tensor:
        log_total_weight = scored.log_total_weight                                             # (B, 1) or (1, 1)
        scored = expand_if_rows_differ(scored, rows_differ=log_total_weight.shape[0] != 1)
        assert scored.log_q is not None and scored.drawn.log_q_target is not None  # needs_q
        log_q = scored.log_q.to(scored.neg.dtype)                              # (R, K), or broadcast to it
        log_q_target = scored.drawn.log_q_target.to(scored.pos.dtype)          # (B,)
        pos = scored.pos - self._log_z(scored.query.context) - (log_total_weight[:, 0] + log_q_target)
        neg = self.negative(scored) - (log_total_weight + log_q)
        return softplus(-pos) + scored.weighted_sum(softplus(neg))

    def negative(self, scored: LossInput) -> Tensor:
        return scored.neg if self.c is None else scored.neg - _as_column(self._log_z(_row_contexts(scored)))

    def logit(self, score: Tensor, query: Query) -> Tensor:
        return score - _as_column(self._log_z(query.context))

    def unnormalized(self, score: Tensor, query: Query) -> Tensor:
        return score

    def log_partition(self, query: Query) -> Tensor | None:
        return None if self.c is None else self._log_z(query.context).detach().expand(len(query))

    def metrics(self) -> dict[str, float]:
        if self.c is None:
            return {}
        c = self.c.detach()
        return {"log_z/mean": c.mean().item(), "log_z/sd": c.std(correction=0).item()}

    def _log_z(self, context: Tensor) -> Tensor:
        """Return log Z of each context (n,), or one number () shared by all contexts."""
        if self.c is None:
            return torch.zeros((), device=context.device)
        return self.c if self.config.partition == "global" else self.c[context]


def _as_column(c: Tensor) -> Tensor:
    return c.unsqueeze(1) if c.ndim else c


def _row_contexts(scored: LossInput) -> Tensor:
    """Return the context of each scored row; all examples of a row have the same context."""
    context = scored.query.context
    if scored.row is None:
        return context
    out = context.new_zeros((scored.neg.shape[0], *context.shape[1:]))
    out[scored.row] = context
    return out
