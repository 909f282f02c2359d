"""Base class of losses, and the penalty on log Z that every loss supports.

A loss receives scores s (higher is better) of the positive t and of K negatives j with weights w_j. A loss that
corrects for the noise distribution q subtracts log(mass·q_j), where mass is the noise mass per positive, not the count
K. False negatives (`Negatives.false_negatives`) are excluded from every sum, but they count in the mass.

Self-normalization (Devlin et al. 2014; on a fraction of the examples, Andreas and Klein 2015), for any loss:

    L += (α / γ) (log Z_a)²   on a share γ of the examples, sampled at each call;   expectation: α (log Z_a)²

Z_a = Σ_b e^{logit_ab} is *exact*, over all V candidates, with the `logit` of the loss, as evaluation computes it (for
NCE with a learned c: log Σ_b e^{s_ab} − c). A sampled Z would make the square biased, so it is not used.
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
    """Configuration keys that every loss has."""

    name: str = Field("logistic", description="loss, a module of embtrain.losses")
    penalty: float = Field(0.0, ge=0, description="α of the penalty α (log Z)²; 0: none")
    penalty_share: float = Field(1.0, gt=0, le=1, description="γ, share of the examples with this penalty (weight α/γ)")


class Loss(nn.Module):
    """Base of every loss. Subclasses set the declarations below and implement `example`.

    Declarations that depend on the configuration are set on the instance in `__init__`.
    """

    name: ClassVar[str]
    Config: ClassVar[type[LossConfig]] = LossConfig
    #: Meaning of LossOutput.per_negative, as the label of its curve.
    cost_label: ClassVar[str] = "score"
    #: Probabilities q that the source must report: none, of the negatives, or of the negatives and the target.
    needs_q: Literal["no", "drawn", "target"] = "no"
    #: Negatives must be iid draws from one q with weight 1 (probes of weight 0 are allowed).
    needs_iid: bool = False
    #: Each negative is compared with the positive of its example, so examples cannot share scored rows.
    pairwise: bool = False
    #: Draws equal to the target: the mask of the strategy must mask them (`masked`) or keep them (`kept`).
    accidental_hits: Literal["any", "masked", "kept"] = "any"
    #: Candidates that the loss uses: the negatives of a source, every candidate, or the target alone.
    candidate_scope: Literal["drawn", "every", "target"] = "drawn"
    #: The loss compares with the target's vector, which must have length 1 and not be trained.
    needs_frozen_table: bool = False
    #: Geometries of the model that the loss supports; empty: any.
    geometry: frozenset[str] = frozenset()
    #: At the optimum `logit` equals log P + const, or log-odds (below): its softmax is a probability.
    estimates_log_prob: bool = False
    #: At the optimum `logit` equals log P − log q + const. Add log q to recover P.
    estimates_log_odds: bool = False
    #: `logit` increases with the score. If not, candidates must be ranked by `logit`.
    monotone: bool = True

    def __init__(self, config: LossConfig, world: ProblemSpec):
        super().__init__()
        self.config, self.world = config, world
        stream = np.random.SeedSequence([world.seed, *b"loss"])  # independent of the other streams of the same seed
        # samples the examples that are penalized
        self._sample_generator = torch.Generator().manual_seed(int(stream.generate_state(1)[0]))

    def __call__(self, scored: LossInput) -> LossOutput:
        return super().__call__(scored)

    def forward(self, scored: LossInput) -> LossOutput:
        """Return the loss of each example (B,) and the cost of each negative (R, K).

        Raises UsageError if the source does not report a q that the loss needs.
        """
        self._require_q(scored)
        example = self.example(scored)  # (B,)
        if self.config.penalty > 0:
            example = example + self._penalty(scored)
        with torch.no_grad():
            negative = self.negative(scored)  # (R, K)
        return LossOutput(example, negative.detach())

    def example(self, scored: LossInput) -> Tensor:
        """Return the loss of each example (B,), without the penalty."""
        raise TypeError(f"{type(self).__name__} does not implement example")

    def negative(self, scored: LossInput) -> Tensor:
        """Return the cost of each negative (R, K); by default its score.

        It is not hinged, because an easy negative must still show how easy it is, and not corrected for q, because an
        adversary would be penalized for its own density.
        """
        return scored.neg

    def logit(self, score: Tensor, query: Query) -> Tensor:
        """Convert scores (n, K) to log-probabilities up to a constant per query. Evaluation reads these."""
        return score

    def unnormalized(self, score: Tensor, query: Query) -> Tensor:
        """Return `logit` without subtracting `log_partition`.

        A learned log Z can be so large that rounding hides all other differences.
        """
        return self.logit(score, query)

    def log_scale(self, query: Query) -> Tensor | None:
        """Return the term (n, 1) that turns `logit` into the log of a density over directions.

        None if the loss defines no density or the term is zero.
        """
        return None

    def log_partition(self, query: Query) -> Tensor | None:
        """Return the learned log Z of each query (n,), which `logit` subtracts; None if the loss does not learn it."""
        return None

    def negative_weights(self, scored: LossInput) -> Tensor | None:
        """Return detached weights (R, K) that sum to 1 over a row's counted negatives; None: use the source's weights.
        """
        return None

    def metrics(self) -> dict[str, float]:
        """Return learned values of the loss for the log."""
        return {}

    def get_extra_state(self) -> Tensor:
        return self._sample_generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self._sample_generator.set_state(state.cpu())

    def _require_q(self, scored: LossInput) -> None:
        if self.needs_q != "no" and scored.log_q is None:
            raise UsageError(f"loss.name: {self.name} corrects for the probability of each draw, but this source "
                             "states none; use a source whose density is exact or conditional, or loss.name: logistic")
        if self.needs_q == "target" and scored.drawn.log_q_target is None:
            raise UsageError(f"loss.name: {self.name} needs the probability of the target under the source, but this "
                             "source has none; use a source whose density is exact, or loss.name: logistic")

    def _penalty(self, scored: LossInput) -> Tensor:
        """Return (α/γ) (log Z)² for the sampled examples and 0 for the others, (B,)."""
        if scored.whole_table is None:
            raise UsageError("loss.penalty: this engine has no exact log Z; "
                             "set train.engine: autograd, or loss.penalty: 0")
        alpha, gamma = self.config.penalty, self.config.penalty_share
        if gamma == 1:
            return alpha * scored.whole_table.log_partition(slice(0, len(scored.pos))).square()
        is_sampled = torch.rand(len(scored.pos), generator=self._sample_generator) < gamma
        rows = is_sampled.nonzero().squeeze(1).to(scored.pos.device)
        zeros = torch.zeros_like(scored.pos)
        if len(rows) == 0:
            return zeros
        return zeros.index_add(0, rows, (alpha / gamma) * scored.whole_table.log_partition(rows).square())


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x) = −log σ(−x), accurate at every x (PyTorch's own softplus switches to x at 20)."""
    return -logsigmoid(-x)


def expand_if_rows_differ(scored: LossInput, rows_differ: bool = False) -> LossInput:
    """Return one scored row per example if the examples of a row have different false negatives, or if `rows_differ`.
    """
    false_negatives = scored.drawn.false_negatives
    if rows_differ or (false_negatives is not None and false_negatives.shape[1] > 0):
        return scored.expanded()
    return scored


def names() -> list[str]:
    """Return the names of all losses."""
    return list(registry.classes("embtrain.losses", Loss))


def find(name: str) -> type[Loss]:
    """Return the loss class of that name. Raises UsageError with all names if it does not exist."""
    return registry.find("embtrain.losses", Loss, name, "loss.name")
