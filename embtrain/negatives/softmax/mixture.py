"""A defensive mixture: a static source draws a share ε of the negatives of another source.

    q(i|h) = (1 − ε) q_inner(i|h) + ε q_plain(i)

This bounds an importance weight 1 / q by 1 / (ε q_plain) where q_inner is far too small (Owen and Zhou 2000; Rawat et
al. 2019 do not use it, and features that may be negative need it most: docs/science/equations.md). Each negative is
drawn by one component, and its log_q is that of the mixture, whichever drew it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, Traits
from embtrain.negatives.sampling.pool import NestedSettingsOfSameK, NestingSource


class MixtureConfig(NegativesConfig):
    """Settings of `mixture`."""

    inner: NestedSettingsOfSameK = Field({"source": "cluster"}, description="source to be defended, with its settings")
    plain: NestedSettingsOfSameK = Field(
        {"source": "unigram", "exponent": 1.0}, description="unigram or uniform, with its settings")
    epsilon: float = Field(0.1, gt=0, lt=1, description="ε, share of the plain source")


class MixtureState(NamedTuple):
    """The part of a draw that `learn` needs: origin and state of the inner draw."""

    origin: Tensor | None  # (B, K) int8, or broadcast to it
    inner: object


class Mixture(NestingSource):
    """Mixture of an inner source and a static one."""

    name = "mixture"
    Config = MixtureConfig
    # an instance sets what depends on its parts
    traits = Traits(components=("noise", "generator"), uses_model=True, sharing_modes=("row",),
                    sharing_limit="draws for each row")
    parts, imposes_k = ("inner", "plain"), True
    config: MixtureConfig

    def __init__(self, config: MixtureConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.inner, self.plain = self._build("inner", config.inner), self._build("plain", config.plain)
        for part, source in (("inner", self.inner), ("plain", self.plain)):
            if getattr(source.config, "exclude_target", False):
                raise UsageError(f"{key(part)}: a mixture needs q of every candidate including the target; set "
                                 f"exclude_target: false in the settings of {source.name}")
            if source.traits.density != "exact" or not source.traits.iid or source.config.share_draws_by != "row":
                raise UsageError(f"{key(part)}: {source.name} with these settings does not draw the negatives of "
                                 "each row independently from a q that it states for every candidate; choose another "
                                 "source")
        if self.plain.traits.learns or self.plain.traits.geometry:
            raise UsageError(f"{key('plain.source')}: {self.plain.name} depends on the model; use unigram or uniform")
        ours, plain = self.inner.traits, self.plain.traits
        self.traits = replace(self.traits, geometry=ours.geometry, fits_to_queries=ours.fits_to_queries,
                              learns=ours.learns, learns_from=ours.learns_from, learns_per_row=ours.learns_per_row,
                              uses_model=ours.uses_model or plain.uses_model,
                              uses_counts=ours.uses_counts or plain.uses_counts)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n = len(query)
        with self.within("inner") as inner:
            inner_draw = inner.draw(query, k, view)
        with self.within("plain") as plain:
            plain_draw = plain.draw(query, k, view)
        self.floored_fraction = self.inner.floored_fraction
        assert inner_draw.ids is not None and inner_draw.log_q is not None and inner_draw.log_q_target is not None
        assert plain_draw.ids is not None and plain_draw.log_q_target is not None
        ids, log_q = inner_draw.ids.clone(), inner_draw.log_q.expand(n, inner_draw.k).clone()
        log_plain = self._log_prob("plain", query, ids).expand(n, inner_draw.k).clone()
        # A probe, of weight 0, is an additional negative after the k negatives and stays.
        toss = torch.rand(n, k, generator=self.random, dtype=torch.float32, device=ids.device)
        from_plain = toss < self.config.epsilon                                                          # (B, k)
        row, column = from_plain.nonzero(as_tuple=True)
        if len(row):
            ids[row, column] = drawn = plain_draw.ids[row, column]
            log_q[row, column] = self._log_prob("inner", query.rows(row), drawn.unsqueeze(1))[:, 0]
            log_plain[row, column] = self._log_prob("plain", query.rows(row), drawn.unsqueeze(1)).expand(
                len(row), 1)[:, 0]
        origin = torch.full((n, inner_draw.k), GENERATOR, dtype=torch.int8, device=ids.device)
        if inner_draw.origin is not None:
            origin[inner_draw.origin.expand_as(origin) == PROBE] = PROBE
        origin[row, column] = NOISE
        return Negatives(ids, log_q=self._log_mixture(log_q, log_plain), weight=inner_draw.weight, origin=origin,
                         total_weight=inner_draw.total_weight,
                         log_q_target=self._log_mixture(inner_draw.log_q_target, plain_draw.log_q_target),
                         state=MixtureState(inner_draw.origin, inner_draw.state))

    def _log_mixture(self, log_inner: Tensor, log_plain: Tensor) -> Tensor:
        """log q of the mixture from log q of its components."""
        epsilon = self.config.epsilon
        return torch.logaddexp(math.log1p(-epsilon) + log_inner, math.log(epsilon) + log_plain)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        ids = ids.expand(len(query), -1)
        return self._log_mixture(self._log_prob("inner", query, ids), self._log_prob("plain", query, ids))

    def _log_prob(self, part: str, query: Query, ids: Tensor) -> Tensor:
        with self.within(part) as source:
            return source.log_prob(query, ids)

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Pass the costs to the inner source.

        Other negatives, those of the static component or of an outer mixture, are passed as probes, which are not
        learnt from.
        """
        state = drawn.state
        assert drawn.origin is not None and isinstance(state, MixtureState)
        own = state.origin
        if own is None:
            own = torch.zeros((1, 1), dtype=torch.int8, device=cost.device)
        origin = torch.where(drawn.origin == GENERATOR, own.expand(len(query), drawn.k), PROBE).to(torch.int8)
        with self.within("inner") as inner:
            return inner.learn(query, replace(drawn, origin=origin, state=state.inner), cost)
