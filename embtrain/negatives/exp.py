"""EXP: the softmax's own distribution, q(c|h) = e^{o_c} / Σ_j e^{o_j}; the dearest source, and the one without bias.

    exclude_target:  q(c|h, t) = e^{o_c} / Σ_{j≠t} e^{o_j},   c ≠ t

Only q ∝ e^o leaves the gradient of sampled softmax unbiased (Bengio and Senécal 2008), and only if q is over the
candidates other than the target: then every corrected draw is e^{o_c} / (m q_c) = Z_t / m, whatever was drawn. With q
over all and masked hits, Z' is unbiased and the gradient is not. That is the default here, and eq. 5-6 of Rawat et al.
2019 want it; NCE needs the target's q, so exclude_target: false.

Masses are e^{max(o - max o, -600)}, drawn and reported alike: for what the scores at hand call impossible, still q > 0.
They are summed in float64 from both ends, so that the masses other than the target's are summed without it, and never
by subtracting it. The model is asked for the scores, whatever they are made of, or, with `refresh` above 1, a copy of
its table that is so many draws old at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.negatives import product
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.questions import refuse_settings
from embtrain.types import Negatives, Query, View, World

CELLS = 8_000_000  # masses held at once
LEAST = -600.0     # e^-600 is above zero in float64


class ExpConfig(NegativesConfig):
    exclude_target: bool = Field(True, description="draw among the candidates other than the target; it has no q then")
    refresh: int = Field(1, ge=0, description="draws between two looks at the table; 1: always as it is, 0: once an "
                                              "epoch. The draws between are from the softmax of that table")


class Exp(NegativeSource):
    name = "exp"
    Config = ExpConfig
    looks: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    shares: ClassVar[tuple[str, ...]] = ("row", "window")
    config: ExpConfig

    def __init__(self, config: ExpConfig, world: World):
        super().__init__(config, world)
        refuse_settings(self.name, config, config.exclude_target, world)
        if config.exclude_target:
            self.density = "conditional"
        self.iid = config.mass in (None, config.k)                                # else columns do not weigh 1
        self.view: View | None = None
        self.looked, self.since = False, 0                                        # at the table; draws since
        self.stale: Tensor | None = None                                          # (V, D)
        if config.refresh != 1:
            self.geometry = product.GEOMETRIES                                    # for the copy is scored here
            self.stale = torch.zeros(world.n_candidates, world.dim, device=world.device)

    def draw(self, query: Query, k: int, view: View) -> Negatives:
        self._follow(view)
        asked, question, target, group = product.asked_by_draw(query, self.config.share)
        ids = torch.empty(len(question), k, dtype=torch.int64, device=target.device)
        log_q = torch.empty(len(question), k, device=target.device)
        for rows, line, masses in self._masses(asked, question):
            t = target[rows] if self.config.exclude_target else None
            drawn = masses.draw(line, t, k, self.random)
            ids[rows], log_q[rows] = drawn, masses.log_q(line, t, drawn).float()
        of_target = None
        if not self.config.exclude_target:
            of_target = self.log_prob(query, query.target.unsqueeze(1))[:, 0]
        weight, mass = self.weight_and_mass(k)
        return Negatives(ids, group=group, log_q=log_q, weight=weight, log_q_target=of_target, mass=mass)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """-inf for an excluded target."""
        ids = ids.expand(len(query), -1)
        asked, question = query.questions()
        log_q = torch.empty(ids.shape, device=ids.device)
        for rows, line, masses in self._masses(asked, question):
            log_q[rows] = masses.log_q(line, query.target[rows] if self.config.exclude_target else None,
                                       ids[rows]).float()
        return log_q

    def _masses(self, asked: Query, question: Tensor) -> Iterator[tuple[Tensor, Tensor, _Masses]]:
        """For some of the distinct questions at a time: the rows (n,) that ask them, which line each reads, masses."""
        v = self.world.n_candidates
        step = max(1, CELLS // v)
        for start in range(0, len(asked), step):
            rows = ((question >= start) & (question < start + step)).nonzero().squeeze(1)
            some = asked.rows(torch.arange(start, min(len(asked), start + step), device=question.device))
            yield rows, question[rows] - start, _Masses(self._scores(some))

    def _scores(self, asked: Query) -> Tensor:
        """o of every candidate, (Q, V)."""
        if self.view is None:
            raise UsageError("negatives.source: exp has not seen the model yet, so it has no probabilities")
        if self.stale is None:
            everyone = torch.arange(self.world.n_candidates, device=asked.target.device).unsqueeze(0)
            o = self.view.score(asked, everyone)
        else:
            o = product.questions(asked, self.view).to(self.stale.dtype) @ self.stale.T
        if not torch.isfinite(o.sum(dtype=torch.float64)):
            raise UsageError("negatives.source: exp: the model's scores are not finite; the training has diverged: "
                             "lower train.lr, or set train.clip")
        return o

    # -- keeping up with the model --------------------------------------------------------------------------------

    def meet(self, view: View) -> None:
        self.view = view
        if self.stale is not None and not self.looked:
            self.refresh(view)

    def refresh(self, view: View) -> None:
        self.view = view
        if self.stale is not None:
            self.stale.copy_(product.candidates(view))
            self.looked, self.since = True, 0

    def _follow(self, view: View) -> None:
        self.view = view
        if self.stale is not None:
            if not self.looked or 0 < self.config.refresh <= self.since:
                self.refresh(view)
            self.since += 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "stale": self.stale, "looked": self.looked, "since": self.since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.stale is not None:
            self.stale.copy_(state["stale"])
        self.looked, self.since = state["looked"], state["since"]


class _Masses:
    """w = e^{max(o - max o, LEAST)} of Q questions, with what is before (or at) and after (or at) each candidate."""

    def __init__(self, o: Tensor):
        o = o.double()
        self.log_w = (o - o.amax(1, keepdim=True)).clamp_(min=LEAST)               # (Q, V)
        w = self.log_w.exp()
        self.up = w.cumsum(1)                                                      # Σ_{i<=j} w_i
        self.down = w.flip(1).cumsum(1)                                            # Σ_{i>=V-1-j} w_i

    def around(self, line: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Σ of the masses before and after the targets (n,), (n,) each."""
        v = self.up.shape[1]
        before, after = self.up[line, (target - 1).clamp(min=0)], self.down[line, (v - 2 - target).clamp(min=0)]
        return before.masked_fill(target == 0, 0.0), after.masked_fill(target == v - 1, 0.0)

    def log_q(self, line: Tensor, target: Tensor | None, ids: Tensor) -> Tensor:
        """log q of ids (n, K) in the lines (n,)."""
        if target is None:
            return self.log_w[line.unsqueeze(1), ids] - self.up[line, -1:].log()
        before, after = self.around(line, target)
        log_q = self.log_w[line.unsqueeze(1), ids] - (before + after).log().unsqueeze(1)
        return log_q.masked_fill(ids == target.unsqueeze(1), -torch.inf)

    def draw(self, line: Tensor, target: Tensor | None, k: int, random: torch.Generator) -> Tensor:
        """k candidates of each of the lines (n,) but for the targets (n,): (n, k)."""
        v = self.up.shape[1]
        toss = torch.rand(len(line), k, generator=random, device=line.device, dtype=torch.float64)
        if target is None:
            return _find(self.up, line, toss * self.up[line, -1:]).clamp_(max=v - 1)
        before, after = (x.unsqueeze(1) for x in self.around(line, target))
        u = toss * (before + after)
        low = _find(self.up, line, u).minimum(target.unsqueeze(1) - 1)
        high = v - 1 - _find(self.down, line, u - before).minimum(v - 2 - target.unsqueeze(1))
        return torch.where((u < before) | (after == 0), low, high)


def _find(ends: Tensor, line: Tensor, u: Tensor) -> Tensor:
    """The first column of each line (n,) of rising sums (Q, V) that is above u (n, k). Binary search, all at once."""
    line = line.unsqueeze(1)
    low, high = torch.zeros_like(u, dtype=torch.int64), torch.full_like(u, ends.shape[1], dtype=torch.int64)
    for _ in range(ends.shape[1].bit_length()):
        middle = (low + high) // 2
        above = ends[line, middle.clamp(max=ends.shape[1] - 1)] > u
        low, high = torch.where(above, low, (middle + 1).minimum(high)), torch.where(above, middle, high)
    return low
