"""The case that a rule checks, and the error that it raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from embtrain.common.traits import default_settings, refuse_misplaced_traits
from embtrain.common.types import Negatives, Query
from embtrain.negatives.base import NegativeSource
from embtrain.testing.worlds import V, tiny_problem

TOLERANCE = 1e-5        # absolute, of probabilities and log-probabilities


class ContractError(AssertionError):
    """A source breaks a rule. `rule` is the name of the rule, `problem` its violation; the message is one line."""

    def __init__(self, source: str, rule: str, problem: str):
        self.rule, self.problem = rule, " ".join(problem.split())
        super().__init__(f"{source}: {rule}: {self.problem}")


@dataclass(frozen=True)
class SourceCase:
    """A source class with settings as in a strategy's YAML. `deterministic`: it draws the same under every seed."""

    source: type[NegativeSource]
    settings: Mapping[str, Any]
    deterministic: bool = False

    def build(self, seed: int = 3, counts: Tensor | None = None, **more: Any) -> NegativeSource:
        """Build the source on the tiny problem. counts (V,) replace its own. UsageError for traits of wrong values."""
        keys, problem = {"source": self.source.name, "k": 4, **self.settings, **more}, tiny_problem(seed)
        if counts is not None:
            problem = replace(problem, counts=counts, raw_counts=counts)
        source = self.source(default_settings(self.source.Config, **keys), problem)
        refuse_misplaced_traits(source.name, source)
        return source

    def sharings(self) -> tuple[str, ...]:
        """Values of share_draws_by to check: that of the settings, else all that the source allows."""
        share = self.settings.get("share_draws_by")
        return self.source.traits.sharing_modes if share is None else (share,)

    def require(self, condition: bool | Tensor, rule: str, problem: str) -> None:
        if not condition:
            raise ContractError(self.source.name, rule, problem)


def per_row(drawn: Negatives, n: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """ids, weight and log q, one line per row: (n, K) each. Probes have weight 0."""
    ids, weight, log_q = (drawn.per_row(x, n) for x in (drawn.ids, drawn.weight, drawn.log_q))
    assert ids is not None
    weight = torch.ones_like(ids, dtype=torch.float64) if weight is None else weight.double()
    return ids, weight, log_q if log_q is None else log_q.double()


def is_close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=0, atol=tolerance)


def all_ids() -> Tensor:
    return torch.arange(V).unsqueeze(0)


def log_prob_of_all(source: NegativeSource, batch: Query) -> Tensor:
    """log q of all candidates, (B, V) float64."""
    return source.log_prob(batch, all_ids()).double().expand(len(batch), V)


def q_of_draws(source: NegativeSource, batch: Query, drawn: Negatives) -> Tensor:
    """q of all candidates for each draw, (G, V) float64: the mean over the rows that read the draw."""
    q, draw_id = log_prob_of_all(source, batch).exp(), drawn.draw_index(len(batch), "cpu")
    if draw_id is None:
        return q
    n_rows = torch.bincount(draw_id)                                                        # (G,)
    return torch.zeros(len(n_rows), V, dtype=q.dtype).index_add_(0, draw_id, q) / n_rows.unsqueeze(1)


def drawn_values(drawn: Negatives) -> Tensor:
    value = drawn.ids if drawn.vectors is None else drawn.vectors
    assert value is not None
    return value
