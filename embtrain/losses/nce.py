"""Noise-contrastive estimation (NCE): negative sampling corrected for q, so that scores are log-probabilities.
[gutmann2010]; [mnih2012]; [nce_note] eq. 7-14.

    x_b = s_ab − c_a − log(M q(b))        L = −log σ(x_t) − Σ_j w_j log σ(−x_j)

An example has a query a, its target t (the positive) and negatives j, drawn from the noise distribution q. s_ab is the
model's score of a candidate b for a. w_j is the weight of a negative, 1 unless the source sets it, and M = Σ_j w_j the
total weight, taken before masking: k for k plain draws. x_b is the log-odds that b came from the data, not from q.

c_a estimates log Z_a, where Z_a = Σ_b e^{s_ab} is the partition function. It is 0 (`partition: fixed`), one learned
number (`global`), or one per context id (`context`). At the optimum s_ab − c_a = log P(b|a) if negatives equal to the
target are kept. If they are masked it is log P/(1 − P), so `negatives.filter` should be `none`. A learned c and the
scores can exchange a constant, so a final Z near 1 only reflects the initial value of c, `log_z_start`.

Erratum: [nce_note] eq. 8 has another factor k before the sum; with it the noise would count k times.
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

    def __init__(self, config: NceConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.start = math.log(problem.n_candidates) if config.log_z_start == "log n" else config.log_z_start
        self.c: nn.Parameter | None = None
        if config.partition == "global":
            self.c = nn.Parameter(torch.empty((), dtype=torch.float32))
        elif config.partition == "context":
            if problem.n_contexts is None:
                raise UsageError("loss.partition: context needs contexts that are ids, but this model has none; set "
                                 "loss.partition: global or fixed")
            self.c = nn.Parameter(torch.empty(problem.n_contexts, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set each c to its value at the start, after `to_empty` too."""
        if self.c is not None:
            nn.init.constant_(self.c, self.start)

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        log_total_weight = scored.log_total_weight                             # log M, (B, 1) or (1, 1)
        scored = expand_if_rows_differ(scored, rows_differ=log_total_weight.shape[0] != 1)
        assert scored.log_q is not None and scored.drawn.log_q_target is not None  # needs_q
        log_q = scored.log_q.to(scored.neg.dtype)                              # (R, K), or broadcast to it
        log_q_target = scored.drawn.log_q_target.to(scored.pos.dtype)          # (B,)
        pos = scored.pos - self._log_z(scored.query.context) - (log_total_weight[:, 0] + log_q_target)
        neg = self.negative(scored) - (log_total_weight + log_q)
        return softplus(-pos) + scored.weighted_sum(softplus(neg))

    def negative(self, scored: LossInput) -> Tensor:
        """Return s_aj − c_a of each negative, (R, K)."""
        return scored.neg if self.c is None else scored.neg - _as_column(self._log_z(_row_contexts(scored)))

    def logit(self, score: Tensor, query: Query) -> Tensor:
        """Return s − c_a for scores (n, K)."""
        return score - _as_column(self._log_z(query.context))

    def unnormalized(self, score: Tensor, query: Query) -> Tensor:
        return score

    def log_partition(self, query: Query) -> Tensor | None:
        return None if self.c is None else self._log_z(query.context).detach().expand(len(query))

    def metrics(self) -> dict[str, float]:
        """Return the mean and the standard deviation of a learned c."""
        if self.c is None:
            return {}
        c = self.c.detach()
        return {"log_z/mean": c.mean().item(), "log_z/sd": c.std(correction=0).item()}

    def _log_z(self, context: Tensor) -> Tensor:
        """Return log Z of each context (n,), or one number () shared by all contexts."""
        if self.c is None:
            return torch.zeros((), dtype=torch.float32, device=context.device)
        return self.c if self.config.partition == "global" else self.c[context]


def _as_column(c: Tensor) -> Tensor:
    """Return c (n,) as (n, 1); a single number () unchanged."""
    return c.unsqueeze(1) if c.ndim else c


def _row_contexts(scored: LossInput) -> Tensor:
    """Return the context of each scored row; all examples of a row have the same context."""
    context = scored.query.context
    if scored.row is None:
        return context
    out = context.new_zeros((scored.neg.shape[0], *context.shape[1:]))
    out[scored.row] = context
    return out
