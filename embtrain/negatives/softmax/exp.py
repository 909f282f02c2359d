"""EXP: the softmax's own distribution, q(c|h) = e^{o_c} / Σ_j e^{o_j}; the dearest source, and the one without bias.

    exclude_target:  q(c|h, t) = e^{o_c} / Σ_{j≠t} e^{o_j},   c ≠ t

Only q ∝ e^o leaves the gradient of sampled softmax unbiased (Bengio and Senécal 2008), and only if q is over the
candidates other than the target: then every corrected draw is e^{o_c} / (m q_c) = Z_t / m, whatever was drawn. With q
over all and masked hits, Z' is unbiased and the gradient is not. That is the default here, and eq. 5-6 of Rawat et al.
2019 want it; NCE needs the target's q, so exclude_target: false.

Masses are e^{max(o - max o, -600)}, drawn and reported alike: for what the scores at hand call impossible, still q > 0.
They are summed in float64 block by block, and the target's block anew without it, for a target's mass is never
subtracted: beside it nothing else might be left. A block is drawn by its sum, then a candidate of it. The model is
asked for the scores, whatever they are made of, or, with `refresh` above 1, a copy of its table that is so many draws
old at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import blocks, proportional
from embtrain.negatives.sampling.within_cell import refuse_settings

CELLS = 8_000_000  # scores held at once
NEAR = 1 << 17     # masses at once on a CPU: few enough to stay in its cache
BLOCK = 64         # candidates that are summed together
LEAST = -600.0     # e^-600 is above zero in float64


class ExpConfig(NegativesConfig):
    exclude_target: bool = Field(True, description="draw among the candidates other than the target; it has no q then")
    refresh: int = Field(1, ge=0, description="draws between two looks at the table; 1: always as it is, 0: once an "
                                              "epoch. The draws between are from the softmax of that table")


class Exp(NegativeSource):
    name = "exp"
    Config = ExpConfig
    uses_model: ClassVar[bool] = True
    supports_total_weight: ClassVar[bool] = True
    sharing_modes: ClassVar[tuple[str, ...]] = ("row", "window")
    config: ExpConfig

    def __init__(self, config: ExpConfig, world: ProblemSpec):
        super().__init__(config, world)
        refuse_settings(self.name, config, config.exclude_target, world)
        if config.exclude_target:
            self.density = "conditional"
        self.iid = config.mass in (None, config.k)                                # else columns do not weigh 1
        self.view: ModelView | None = None
        self.looked, self.since = False, 0                                        # at the table; draws since
        self.stale: Tensor | None = None                                          # (V, D)
        if config.refresh != 1:
            self.geometry = inner_product.GEOMETRIES                                    # for the copy is scored here
            self.stale = torch.zeros(world.n_candidates, world.dim, device=world.device)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        self._follow(view)
        asked, question, target, group = inner_product.asked_by_draw(query, self.config.share)
        ids = torch.empty(len(question), k, dtype=torch.int64, device=target.device)
        log_q = torch.empty(len(question), k, device=target.device)
        for rows, line, masses in self._masses(asked, question):
            t = target[rows] if self.config.exclude_target else None
            drawn, log = masses.draw(line, t, k, self.random)
            ids[rows], log_q[rows] = drawn, log.float()
        of_target = None
        if not self.config.exclude_target:
            of_target = self.log_prob(query, query.target.unsqueeze(1))[:, 0]
        weight, mass = self.weight_and_mass(k)
        return Negatives(ids, draw_id=group, log_q=log_q, weight=weight, log_q_target=of_target, total_weight=mass)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """-inf for an excluded target."""
        ids = ids.expand(len(query), -1)
        asked, question = query.unique()
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
            o = inner_product.questions(asked, self.view).to(self.stale.dtype) @ self.stale.T
        if not torch.isfinite(o.sum(dtype=torch.float64)):
            raise UsageError("negatives.source: exp: the model's scores are not finite; the training has diverged: "
                             "lower train.lr, or set train.clip")
        return o

    # -- keeping up with the model --------------------------------------------------------------------------------

    def prepare_log_prob(self, view: ModelView) -> None:
        self.view = view
        if self.stale is not None and not self.looked:
            self.refresh(view)

    def refresh(self, view: ModelView) -> None:
        self.view = view
        if self.stale is not None:
            self.stale.copy_(inner_product.candidates(view))
            self.looked, self.since = True, 0

    def _follow(self, view: ModelView) -> None:
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
    """w = e^{max(o - max o, LEAST)} of Q questions, and its sums over blocks of candidates."""

    def __init__(self, o: Tensor):
        self.o, self.top = o, o.amax(1, keepdim=True).double()                     # (Q, V), (Q, 1)
        self.near = NEAR if o.device.type == "cpu" else CELLS
        some = max(1, self.near // o.shape[1])
        self.sums = torch.cat([blocks(_mass(*part), BLOCK, "sum")                  # (Q, blocks)
                               for part in zip(o.split(some), self.top.split(some), strict=True)])

    def draw(self, line: Tensor, target: Tensor | None, k: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """k candidates of each of the lines (n,) but for the targets (n,), and log q: (n, k), float64 (n, k)."""
        toss = torch.rand(2, len(line), k, generator=random, device=line.device, dtype=torch.float64)
        step, found = max(1, self.near // max(k * BLOCK, self.sums.shape[1])), []
        for a in range(0, len(line), step):
            some = slice(a, a + step)
            mine, without = line[some], None if target is None else target[some]
            sums = self._sums(mine, without)
            block = proportional(sums, toss[0, some])
            w = self._inside(mine, block, without)
            slot = proportional(w.flatten(0, 1), toss[1, some].reshape(-1, 1)).view_as(block)
            ids = block * BLOCK + slot
            found.append((ids, self._log_w(mine, ids) - sums.sum(1, keepdim=True).log()))
        return torch.cat([ids for ids, _ in found]), torch.cat([log_q for _, log_q in found])

    def log_q(self, line: Tensor, target: Tensor | None, ids: Tensor) -> Tensor:
        """log q of ids (n, K) in the lines (n,): float64 (n, K)."""
        if target is None:
            return self._log_w(line, ids) - self.sums.sum(1).log()[line].unsqueeze(1)
        step = max(1, CELLS // self.sums.shape[1])
        total = torch.cat([self._sums(*some).sum(1) for some in zip(line.split(step), target.split(step), strict=True)])
        log_q = self._log_w(line, ids) - total.log().unsqueeze(1)
        return log_q.masked_fill_(ids == target.unsqueeze(1), -torch.inf)

    def _log_w(self, line: Tensor, ids: Tensor) -> Tensor:
        return (self.o[line.unsqueeze(1), ids].double() - self.top[line]).clamp_(min=LEAST)

    def _sums(self, line: Tensor, target: Tensor | None) -> Tensor:
        """Of the blocks, without the targets (n,): (n, blocks)."""
        sums = self.sums[line]
        if target is not None:
            block = torch.div(target, BLOCK, rounding_mode="floor").unsqueeze(1)
            sums.scatter_(1, block, self._inside(line, block, target).sum(2))
        return sums

    def _inside(self, line: Tensor, block: Tensor, target: Tensor | None) -> Tensor:
        """w of the candidates of blocks (n, K), 0 for the targets and past the last candidate: (n, K, BLOCK)."""
        v = self.o.shape[1]
        ids = block.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=block.device)
        gone = ids >= v if target is None else (ids >= v) | (ids == target.view(-1, 1, 1))
        w = _mass(self.o[line.view(-1, 1, 1), ids.clamp(max=v - 1)], self.top[line].unsqueeze(2))
        return w.masked_fill_(gone, 0.0)


def _mass(o: Tensor, top: Tensor) -> Tensor:
    return (o.double() - top).clamp_(min=LEAST).exp_()
