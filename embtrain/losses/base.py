"""Base class of losses, and the penalty on log Z that every loss supports.

A loss receives scores s (higher is better) of the target t, which is the positive, and of K negatives j with weights
w_j. A loss that corrects for the noise distribution q subtracts log(M q_j), where M = Σ_j w_j is the total weight of
the noise per positive, not the count K. Masked negatives (`Negatives.false_negatives`) are excluded from every sum, but
they count in M.

Self-normalization (Devlin et al. 2014; on a fraction of the examples, Andreas and Klein 2015), for any loss:

    L += (α / γ) (log Z_a)²   on a share γ of the examples, sampled at each call;   expectation: α (log Z_a)²

Z_a = Σ_b e^{logit_ab} is *exact*, over all V candidates, with the `logit` of the loss, as evaluation computes it (for
NCE with a learned c: log Σ_b e^{s_ab} − c). A sampled Z would make the square biased, so it is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from embtrain.common import registry
from embtrain.common.config import Section
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import UsageError
from embtrain.common.traits import TraitRecord, refuse_misplaced_traits, trait
from embtrain.common.types import LossInput, LossOutput, ProblemSpec, Query
from embtrain.losses.result_checks import guarded


class LossConfig(Section):
    """Configuration keys that every loss has."""

    name: str = Field("logistic", description="loss, a module of embtrain.losses")
    penalty: float = Field(0.0, ge=0, description="α of the penalty α (log Z)²; 0: none")
    penalty_share: float = Field(1.0, gt=0, le=1, description="γ, share of the examples with this penalty (weight α/γ)")


@dataclass(frozen=True, kw_only=True)
class LossTraits(TraitRecord):
    """Traits of a loss, which decide with which sources and models it works and how its values are read.

    A class declares them: `traits = LossTraits(needs_q="target")`. Its constructor sets those that depend on the
    settings: `self.traits = replace(self.traits, monotone=False)`. They do not change afterwards.
    A subclass of a loss that has traits keeps them with `replace(Parent.traits, ...)`.
    """

    geometry: frozenset[str] = trait(frozenset(), "needs", "geometries of the model that it supports; empty: all")
    needs_frozen_table: bool = trait(
        False, "needs", "compares with the target's vector, which must have length 1 and not be trained")
    needs_q: Literal["no", "drawn", "target"] = trait(
        "no", "needs", "q that the source must report: `no`, that of the negatives (`drawn`), or of the `target` too")
    needs_iid: bool = trait(
        False, "needs", "negatives must be i.i.d. draws from one q with weight 1 (probes of weight 0 are allowed)")
    accidental_hits: Literal["any", "masked", "kept"] = trait(
        "any", "needs", "draws equal to the target: `negatives.filter` must mask them (`masked`) or keep them (`kept`)")
    candidate_scope: Literal["drawn", "every", "target"] = trait(
        "drawn", "needs", "candidates that it uses: the negatives of a source, every candidate, or the target alone")
    pairwise: bool = trait(
        False, "needs", "each negative is compared with its example's positive: examples cannot share scored rows")

    estimates_log_prob: bool = trait(
        False, "offers", "at the optimum `logit` equals log P + const, or log-odds: its softmax is a probability")
    estimates_log_odds: bool = trait(
        False, "offers", "at the optimum `logit` equals log P − log q + const: add log q to recover P")
    monotone: bool = trait(
        True, "offers", "`logit` increases with the score; if not, candidates must be ranked by `logit`")
    cost_label: str = trait("score", "offers", "meaning of the cost of a negative, as the label of its curve")


class Loss(nn.Module):
    """Base of every loss. A subclass sets its traits and implements `example`."""

    name: ClassVar[str]
    Config: ClassVar[type[LossConfig]] = LossConfig
    traits: LossTraits = LossTraits()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_misplaced_traits(cls.__qualname__, cls)       # the import of a file of the user names the file

    def __init__(self, config: LossConfig, problem: ProblemSpec):
        super().__init__()
        self.config, self.problem = config, problem
        stream = np.random.SeedSequence([problem.seed, *b"loss"])  # independent of the other streams of the same seed
        # samples the examples that are penalized
        self._sample_generator = torch.Generator().manual_seed(int(stream.generate_state(1)[0]))

    def __call__(self, scored: LossInput) -> LossOutput:
        return super().__call__(scored)

    def forward(self, scored: LossInput) -> LossOutput:
        """Return the loss of each example (B,) and the cost of each negative (R, K).

        Raises UsageError if the source does not report a q that the loss needs.
        """
        self.require_q(scored.log_q, scored.drawn.log_q_target)
        example = self.example(scored)  # (B,)
        if self.config.penalty > 0:
            example = example + self._penalty(scored)
        with torch.no_grad():
            negative = self.negative(scored)  # (R, K)
        return LossOutput(example, negative.detach())

    def example(self, scored: LossInput) -> Tensor:
        """Return the loss of each example (B,), without the penalty.

        `scored` holds the scores `pos` (B,) and `neg` (R, K). R ≤ B: rows with one query and one draw are scored once.
        """
        raise AbstractMethod(self, "example")

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

    def __getstate__(self) -> dict[str, Any]:
        """The generator as bytes. PyTorch pickles it as a temporary tensor, which a spawned process cannot open."""
        return {**self.__dict__, "_sample_generator": self.get_extra_state().numpy().tobytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_sample_generator": torch.Generator()})
        self.set_extra_state(torch.frombuffer(bytearray(state["_sample_generator"]), dtype=torch.uint8))

    def require_q(self, log_q: Tensor | None, log_q_target: Tensor | None) -> None:
        """Raise UsageError if a draw lacks the q that the loss needs."""
        if self.traits.needs_q != "no" and log_q is None:
            raise UsageError(f"loss.name: {self.name} corrects for the probability of each draw, but this source "
                             "states none; use a source whose density is exact or conditional, or loss.name: logistic")
        if self.traits.needs_q == "target" and log_q_target is None:
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
        toss = torch.rand(len(scored.pos), generator=self._sample_generator, dtype=torch.float32, device="cpu")
        is_sampled = toss < gamma
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
    """Return the loss class of that name. Raises UsageError with all names if it does not exist.

    A class of another package is returned as a subclass that checks its results (result_checks.py).
    """
    return guarded(registry.find("embtrain.losses", Loss, name, "loss.name"))
