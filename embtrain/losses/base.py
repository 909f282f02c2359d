"""What every loss is: scores in, one cost per example and one per column out.

A loss sees scores s (higher is better) of the right candidate t and of K drawn columns j with weight w_j, and nothing
else. Where it corrects for the draw it subtracts log(mass·q_j): mass is the noise mass per positive, never the count K.
Columns that are right answers of the row (`Negatives.right`) are left out of every sum; they stay in the mass.

Self-normalisation (Devlin et al. 2014; on a fraction of the examples, Andreas and Klein 2015), for any loss:

    L += (α / γ) (log Z_a)²   on a share γ of the examples, chosen anew at each call;   E over the choice: α (log Z_a)²

Z_a = Σ_b e^{logit_ab} is *exact*, over all V candidates, with the loss's own `logit`, as the model is evaluated (for
NCE with a learned c: log Σ_b e^{s_ab} − c). A sampled Z would make the square biased, so none is used here.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from embtrain.common import registry
from embtrain.common.config import Section
from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, LossOutput, ProblemSpec, Query


class LossConfig(Section):
    """Keys that every loss has."""

    name: str = Field("logistic", description="the loss: a file of embtrain/losses")
    penalty: float = Field(0.0, ge=0, description="alpha of the penalty alpha (log Z)^2; 0: none")
    penalty_share: float = Field(1.0, gt=0, le=1, description="gamma, the share of examples that pay it (alpha/gamma)")


class Loss(nn.Module):
    """Base of every loss. Sub-classes set the declarations below and implement `example`.

    The declarations may depend on the configuration: a sub-class then sets them on itself in `__init__`.
    """

    name: ClassVar[str]
    Config: ClassVar[type[LossConfig]] = LossConfig
    #: What Cost.negative is, in words: the label of the curve that shows it.
    cost_label: ClassVar[str] = "score"
    #: Which probabilities a source must state: none, those of the drawn columns, those of the target as well.
    needs_q: Literal["no", "drawn", "target"] = "no"
    #: Columns must be drawn iid from one q, each with weight 1 (weight-0 probes are fine).
    needs_iid: bool = False
    #: Each column is compared with the positive of its example, so rows cannot be shared among examples.
    pairwise: bool = False
    #: Draws that hit the example's own target: `forgiven` and `kept` are promises the strategy's mask must keep.
    accidental_hits: Literal["any", "forgiven", "kept"] = "any"
    #: What the loss looks at besides: the columns that a source drew, every candidate, or nothing but the target.
    candidate_scope: Literal["drawn", "every", "target"] = "drawn"
    #: It compares with the target's vector, which must be of length 1 and stay as it is.
    needs_frozen_table: bool = False
    #: Geometries of the model that it needs; empty: any.
    geometry: frozenset[str] = frozenset()
    #: At the optimum `logit` is log P + const, or log-odds (below): its softmax is a probability.
    estimates_log_prob: bool = False
    #: At the optimum `logit` is log P − log q + const, not log P + const: whoever wants P gives q back.
    estimates_log_odds: bool = False
    #: `logit` does not rise with the score, so answers must not be ranked by the score itself.
    monotone: bool = True

    def __init__(self, config: LossConfig, world: ProblemSpec):
        super().__init__()
        self.config, self.world = config, world
        stream = np.random.SeedSequence([world.seed, *b"loss"])  # apart from the other streams of the same seed
        self._sample_generator = torch.Generator().manual_seed(int(stream.generate_state(1)[0]))  # who pays the penalty

    def __call__(self, scored: LossInput) -> LossOutput:
        return super().__call__(scored)

    def forward(self, scored: LossInput) -> LossOutput:
        self._require_q(scored)
        example = self.example(scored)  # (B,)
        if self.config.penalty > 0:
            example = example + self._penalty(scored)
        with torch.no_grad():
            negative = self.negative(scored)  # (R, K)
        return LossOutput(example, negative.detach())

    def example(self, scored: LossInput) -> Tensor:
        """The loss of each example (B,), without the penalty."""
        raise TypeError(f"{type(self).__name__} does not implement example")

    def negative(self, scored: LossInput) -> Tensor:
        """How bad each column looks (R, K): never hinged (an easy column must still say how easy) and never corrected
        for q (an adversary would be punished for its own density). The score itself, unless a loss says otherwise."""
        return scored.neg

    def logit(self, score: Tensor, query: Query) -> Tensor:
        """The log-probability, up to a constant per query, that evaluation reads from scores (n, K)."""
        return score

    def unnormalized(self, score: Tensor, query: Query) -> Tensor:
        """`logit` without what `log_partition` takes off: a learned log Z can be so large that nothing else is left."""
        return self.logit(score, query)

    def log_scale(self, query: Query) -> Tensor | None:
        """What `logit` lacks of the log of a density over directions, (n, 1) of each question; None: nothing, or the
        loss states no density."""
        return None

    def log_partition(self, query: Query) -> Tensor | None:
        """log Z (n,) of each question as the loss has learnt it, which `logit` takes off; None: it learns none."""
        return None

    def negative_weights(self, scored: LossInput) -> Tensor | None:
        """Weights (R, K), detached, that sum to 1 over a row's counted columns; None: the source's weights stand."""
        return None

    def metrics(self) -> dict[str, float]:
        """What the loss has learnt, for the log."""
        return {}

    def get_extra_state(self) -> Tensor:
        return self._sample_generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self._sample_generator.set_state(state.cpu())

    def _require_q(self, scored: LossInput) -> None:
        if self.needs_q != "no" and scored.log_q is None:
            raise UsageError(f"loss.name: {self.name} corrects for the probability of each draw, and this source "
                             "states none; use a source whose density is exact or conditional, or loss.name: logistic")
        if self.needs_q == "target" and scored.drawn.log_q_target is None:
            raise UsageError(f"loss.name: {self.name} needs the probability with which the source draws the target, "
                             "and this source has none; use a source whose density is exact, or loss.name: logistic")

    def _penalty(self, scored: LossInput) -> Tensor:
        """(α/γ) (log Z)² at the chosen examples, 0 at the others: (B,)."""
        if scored.exact_log_partition is None:
            raise UsageError("loss.penalty: this engine has no exact log Z; set train.engine: step, or loss.penalty: 0")
        alpha, gamma = self.config.penalty, self.config.penalty_share
        if gamma == 1:
            return alpha * scored.exact_log_partition(slice(0, len(scored.pos))).square()
        is_sampled = torch.rand(len(scored.pos), generator=self._sample_generator) < gamma
        rows = is_sampled.nonzero().squeeze(1).to(scored.pos.device)
        zeros = torch.zeros_like(scored.pos)
        if len(rows) == 0:
            return zeros
        return zeros.index_add(0, rows, (alpha / gamma) * scored.exact_log_partition(rows).square())


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x) = −log σ(−x), right at every x (the library's own is cut off at 20)."""
    return -logsigmoid(-x)


def expand_if_rows_differ(scored: LossInput, rows_differ: bool = False) -> LossInput:
    """One scored row per example where the examples of a row differ: in their right answers or by `rows_differ`."""
    false_negatives = scored.drawn.false_negatives
    if rows_differ or (false_negatives is not None and false_negatives.shape[1] > 0):
        return scored.expanded()
    return scored


def names() -> list[str]:
    return list(registry.classes("embtrain.losses", Loss))


def find(name: str) -> type[Loss]:
    """The loss class of a name; UsageError that lists the names where there is none."""
    return registry.find("embtrain.losses", Loss, name, "loss.name")
