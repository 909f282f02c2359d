"""KBGAN: a generator with its own vectors chooses among a few uniform candidates (Cai and Wang 2018).

    Y ~ uniform, |Y| = candidates        g(y|x, Y) = softmax_{y in Y}(f(x, y) / T)        negatives y ~ g
    max_θ  E_{y ~ g} [r(x, y)],  ∇_θ ≈ (r - b) ∇_θ log g_θ(y|x, Y)            b: mean reward of the epoch before
    f: DistMult  Σ_d z_d v_yd        ComplEx  Re Σ_d z_d v̄_yd                 z = Π_i e^i_{x_i}, elementwise

r is the cost of the negative, un-hinged; nothing is learnt from masked false negatives. In the context of a triple
(entity, relation), the entity has its candidate vector, and r⁻¹ has a vector of its own. log_q is log g +
log(candidates / V), given Y; a target outside Y has none. (In the paper both players are pretrained.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.optimizers.eager import EagerAdam
from embtrain.common.optimizers.row_growth import copy_rows, grow_optimizer
from embtrain.common.types import GENERATOR, ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import Collective, NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling.context_index import context_sizes_of, group_starts


class KbganConfig(NegativesConfig):
    """Settings of `kbgan`."""

    candidates: int = Field(20, ge=2, le=100_000, description="uniform candidates from which the adversary chooses")
    generator: Literal["distmult", "complex"] = Field("distmult", description="f, score function of the adversary")
    hidden: int = Field(50, ge=2, le=4096, description="dimension of its vectors; even for complex")
    generator_lr: float = Field(0.01, gt=0, description="learning rate of the adversary, with Adam")
    temperature: float = Field(1.0, gt=0, description="T of its softmax; small: the most likely candidate alone")


class KbganScorer(nn.Module):
    """The score f: a table of candidates v (V, H), and one for each context column that has no candidates."""

    def __init__(self, config: KbganConfig, sizes: tuple[int, ...], problem: ProblemSpec):
        super().__init__()
        seed = np.random.SeedSequence([problem.seed, *b"adversary"])  # own stream: models use problem.seed
        random = torch.Generator().manual_seed(int(seed.generate_state(1)[0]))

        def table(n: int) -> nn.Parameter:
            toss = torch.rand(n, config.hidden, generator=random, dtype=torch.float32, device="cpu")
            return nn.Parameter((toss * 2 - 1) * (6 / config.hidden) ** 0.5)
        self.complex = config.generator == "complex"
        self.separate_tables = len(sizes) == 1 or sizes[0] != problem.n_candidates  # the context has no candidates
        self.v = table(problem.n_candidates)
        self.e = nn.ParameterList([table(n) for n in (sizes if self.separate_tables else sizes[1:])])

    def forward(self, context: Tensor, ids: Tensor) -> Tensor:
        """f of contexts (n,) or (n, C) and ids (n, K): (n, K)."""
        columns = list(context.unsqueeze(1).T if context.ndim == 1 else context.T)
        parts = [] if self.separate_tables else [self.v[columns.pop(0)]]
        parts += [e[x] for e, x in zip(self.e, columns, strict=True)]
        z = parts[0]
        for part in parts[1:]:
            z = self._times(z, part)
        return torch.einsum("nh,nkh->nk", z, self.v[ids])  # for complex numbers too: Re Σ z v̄

    def _times(self, x: Tensor, y: Tensor) -> Tensor:
        """Elementwise product, real or complex."""
        if not self.complex:
            return x * y
        (a, b), (c, d) = x.chunk(2, 1), y.chunk(2, 1)
        return torch.cat([a * c - b * d, a * d + b * c], 1)


class KbganState(NamedTuple):
    """The part of a draw that `learn` needs."""

    context: Tensor  # (G,) or (G, C)
    pool: Tensor     # (G, Y)
    chosen: Tensor   # (G, K)  positions in the pool


class Kbgan(NegativeSource):
    """Draws from a softmax over a pool of uniform candidates."""

    name = "kbgan"
    Config = KbganConfig
    traits = Traits(density="conditional", iid=False, learns=True, components=("generator",),
                    sharing_modes=("row", "window"))
    config: KbganConfig

    def __init__(self, config: KbganConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if config.generator == "complex" and config.hidden % 2:
            raise UsageError(f"{key('hidden')}: {config.hidden}: must be even for complex, half for real and half for "
                             "imaginary parts")
        self.scorer = KbganScorer(config, context_sizes_of(problem, self.name), problem).to(problem.device)
        self.optimizer = EagerAdam(self.scorer.parameters(), lr=config.generator_lr)
        self.group: Collective | None = None  # processes that learn together; None: this one
        self.n_collected = 0                  # draws whose gradients were added up since the last step
        self.baseline, self.reward_sum, self.n_rewards = 0.0, 0.0, 0  # b; sum and number of rewards in this epoch

    @torch.no_grad()
    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, draw_id = self.draw_layout(query)
        context = query.context if draw_id is None else query.context[group_starts(draw_id)]       # (G,) or (G, C)
        device, shape = context.device, (n, self.config.candidates)
        pool = torch.randint(self.problem.n_candidates, shape, generator=self.random, device=device)
        log_g = torch.log_softmax(self._logits(context, pool), 1)                             # (G, Y)
        chosen = torch.multinomial(log_g.exp(), k, replacement=True, generator=self.random)   # (G, k)
        share = math.log(self.config.candidates / self.problem.n_candidates)
        return Negatives(pool.gather(1, chosen), draw_id=draw_id, log_q=log_g.gather(1, chosen) + share,
                         origin=torch.full((1, 1), GENERATOR, dtype=torch.int8, device=device),
                         total_weight=torch.full((1, 1), float(k), dtype=torch.float32, device=device),
                         state=KbganState(context, pool, chosen))

    def _logits(self, context: Tensor, ids: Tensor) -> Tensor:
        return self.scorer(context, ids) / self.config.temperature

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        assert isinstance(drawn.state, KbganState)
        context, pool, chosen = drawn.state
        is_negative = torch.ones_like(cost)
        if drawn.false_negatives is not None and drawn.false_negatives.shape[1]:
            row, column = drawn.false_negatives
            is_negative[row if drawn.draw_id is None else drawn.draw_id[row], column] = 0.0
        n = is_negative.sum().clamp(min=1)
        with torch.enable_grad():
            log_g = torch.log_softmax(self._logits(context, pool), 1)                    # (G, Y)
            objective = (is_negative * (cost - self.baseline) * log_g.gather(1, chosen)).sum() / n
            if self.n_collected == 0:
                self.optimizer.zero_grad(set_to_none=True)
            (-objective).backward()
        self.n_collected += 1
        if self.group is None:
            self._step()
        reward, log_g = float((is_negative * cost).sum() / n), log_g.detach()
        self.reward_sum, self.n_rewards = self.reward_sum + reward, self.n_rewards + 1
        return {"reward": reward, "entropy": float(-(log_g.exp() * log_g).sum(1).mean()),
                "false_negatives": float((1 - is_negative).mean())}

    def learn_with(self, group: Collective) -> bool:
        self.group = group
        return True

    def synchronize(self) -> None:
        """Step with the mean gradient of all draws of all processes since the last synchronization."""
        assert self.group is not None
        if not (n := float(self.group.gather_numbers([self.n_collected]).mean())):
            return
        parameters = list(self.scorer.parameters())
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None or not self.n_collected else p.grad / n
        self.group.average([p.grad for p in parameters if p.grad is not None])
        self._step()

    def _step(self) -> None:
        self.optimizer.step()
        self.n_collected = 0

    def on_epoch_start(self, view: ModelView) -> None:
        if self.n_rewards:
            self.baseline, self.reward_sum, self.n_rewards = self.reward_sum / self.n_rewards, 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scorer": self.scorer.state_dict(), "optimizer": self.optimizer.state_dict(),
                "baseline": self.baseline, "total": self.reward_sum, "count": self.n_rewards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.scorer.load_state_dict(state["scorer"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.baseline, self.reward_sum, self.n_rewards = state["baseline"], state["total"], state["count"]

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        super().grow_from(earlier, row)
        assert isinstance(earlier, Kbgan)
        for table, earlier_table in zip(self.scorer.parameters(), earlier.scorer.parameters(), strict=True):
            copy_rows(table, earlier_table, row)                  # one context column: a word, as the candidates
        grow_optimizer(self.optimizer, earlier.optimizer.state_dict(), [row] * len(list(self.scorer.parameters())))
        self.baseline, self.reward_sum, self.n_rewards = earlier.baseline, earlier.reward_sum, earlier.n_rewards
        return ""
