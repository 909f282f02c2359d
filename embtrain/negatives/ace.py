"""Adversarial contrastive estimation: half of the noise is drawn by an adversary that learns what costs the model most.

    q(y|x) = λ p_nce(y) + (1 - λ) g_θ(y|x)                              (slides; the mixture is what log_q reports)
    max_θ  E_{y ~ g_θ(.|x)} [r(x, y)] - β max(0, c - H(g_θ(.|x))),  c = log(modes)       (slide eq. 1 and 2)
    ∇_θ ≈ Σ_i (r_i - b_i) ρ_i ∇_θ log g_θ(y_i|x)                        (REINFORCE, ρ = 1 for y_i ~ g_θ)

r   what the column cost the model: un-hinged, not corrected for q, on a running scale; minus `penalty` where y is a
    right answer that the mask forgave.
b   none | moving average | leave-one-out mean of the batch | self_critical: r of the greedy answer argmax_y g_θ(y|x),
    which is drawn as one more column with weight 0. Each leaves the gradient unbiased.
ρ   noise columns teach too, off policy, with ρ = min(clip, g_θ(y|x) / p_nce(y)), held constant.

Bose, Ling and Cao, Adversarial Contrastive Estimation, ACL 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.negatives.alias import Alias
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.generator import Generator, Rows, draw_rows
from embtrain.negatives.unigram import unigram_masses
from embtrain.types import GENERATOR, NOISE, PROBE, Negatives, Query, View, World


class AceConfig(NegativesConfig):
    mix: float = Field(0.5, ge=0, le=1, description="λ; 1 is the noise alone, 0 the adversary alone (ADV)")
    columns: Literal["mixture", "both"] = Field(
        "mixture", description="k draws from the mixture, or k of the noise (weight λ) and k of the adversary (1-λ)")
    exponent: float = Field(0.75, ge=-10, le=10, description="α of the noise p_nce ∝ n(y)^α")
    counted: Literal["before", "after"] = Field("before", description="n(y) before or after subsampling")
    hidden: int = Field(31, ge=1, le=4096, description="dimensions of the generator; with the bias 32, which is fast")
    generator_lr: float = Field(0.01, gt=0, description="learning rate of the generator's own Adam")
    learn_every: int = Field(1, ge=1, description="draws between two updates of the generator")
    entropy: float = Field(1.0, ge=0, description="β, the weight of the entropy hinge; 0 turns it off")
    modes: int = Field(500, ge=1, description="c = log(modes): entropy below that of so many even choices is punished")
    baseline: Literal["none", "moving", "leave_one_out", "self_critical"] = Field(
        "self_critical", description="b, what the reward is compared with")
    importance: bool = Field(True, description="learn from the noise columns too, weighted by ρ")
    clip: float = Field(10.0, gt=0, description="the largest ρ")
    penalty: float = Field(1.0, ge=0, description="reward of a forgiven right answer is minus this, in running sd")


class Ace(NegativeSource):
    name = "ace"
    Config = AceConfig
    learns: ClassVar[bool] = True
    components: ClassVar[tuple[str, ...]] = ("noise", "generator")
    config: AceConfig

    def __init__(self, config: AceConfig, world: World):
        super().__init__(config, world)
        if world.n_contexts is None:
            raise UsageError("negatives.source: ace conditions on context ids, and this model's contexts have none")
        if config.share != "row":
            raise UsageError(f"negatives.share: ace draws for each row; {config.share!r} is not possible")
        if not config.replacement:
            raise UsageError("negatives.replacement: ace draws with replacement; false is not possible")
        if config.modes > world.n_candidates:
            raise UsageError(f"negatives.modes: {config.modes} is more than the {world.n_candidates:,} candidates")
        self.iid = config.columns == "mixture"
        p = unigram_masses(world, config.exponent, config.counted)
        p = p / p.sum()
        self.noise = Alias(p, world.device)
        self.log_p = p.log().to(world.device, torch.float32)                                    # (V,)
        self.generator = Generator(world.n_contexts, world.n_candidates, config.hidden, self.log_p, world.seed)
        self.generator.to(world.device)
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=config.generator_lr)
        self.scale = torch.ones((), device=world.device)      # running sd of the raw rewards
        self.centre = torch.zeros((), device=world.device)    # running mean of the raw rewards
        self.drawn = 0
        self._space: Tensor | None = None
        self._rows: Rows | None = None                        # what the last draw came from, until it is learnt from

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: View) -> Negatives:
        asked, question = query.questions()
        if self._space is None or self._space.shape[1] < len(asked):
            self._space = self.generator.space_for(len(asked))
        rows = self.generator.rows(asked.context, question, self._space)
        self._rows = rows if self.drawn % self.config.learn_every == 0 else None
        self.drawn += 1
        n, device = len(query), question.device
        if self.config.columns == "mixture":
            by_noise = torch.rand(n, k, generator=self.random, device=device) < self.config.mix  # (B, k)
            weight = None
        else:
            by_noise = (torch.arange(2 * k, device=device) < k).expand(n, 2 * k)
            weight = torch.where(by_noise[:1], self.config.mix, 1 - self.config.mix)
        ids = torch.empty(by_noise.shape, dtype=torch.int64, device=device)
        ids[by_noise] = self.noise.draw((int(by_noise.sum()),), self.random)
        adversary = (~by_noise).nonzero()[:, 0]                                                  # the row of each
        ids[~by_noise] = draw_rows(rows.g, question[adversary], self.random)
        origin = torch.where(by_noise, NOISE, GENERATOR).to(torch.int8)
        if self.config.baseline == "self_critical":
            ids, origin, weight = self._with_probe(rows.greedy[question], ids, origin, weight)
        mass = torch.full((1, 1), float(k), device=device)
        target = query.target.unsqueeze(1)
        return Negatives(ids, log_q=self._mixture(rows.log_prob(ids), ids), weight=weight, origin=origin,
                         log_q_target=self._mixture(rows.log_prob(target), target).squeeze(1), mass=mass)

    def _with_probe(self, greedy: Tensor, ids: Tensor, origin: Tensor,
                    weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """One more column: the greedy answer (B,), which is costed and not trained on."""
        ids = torch.cat([ids, greedy.unsqueeze(1)], 1)
        origin = torch.cat([origin, origin.new_full((len(origin), 1), PROBE)], 1)
        if weight is None:
            weight = torch.ones(1, ids.shape[1] - 1, device=ids.device)
        return ids, origin, torch.cat([weight, weight.new_zeros(1, 1)], 1)

    def _mixture(self, log_g: Tensor, ids: Tensor) -> Tensor:
        """log(λ p_nce + (1 - λ) g) of ids (B, K), from their log g (B, K)."""
        if self.config.mix == 0:
            return log_g
        if self.config.mix == 1:
            return self.log_p[ids]
        return torch.logaddexp(math.log(self.config.mix) + self.log_p[ids], math.log1p(-self.config.mix) + log_g)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        ids = ids.expand(len(query), -1)
        asked, question = query.questions()
        return self._mixture(self.generator.rows(asked.context, question).log_prob(ids), ids)

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """One ascent step of the generator on the columns' costs (B, K)."""
        rows, self._rows = self._rows, None
        if rows is None:
            return {}
        assert drawn.ids is not None and drawn.origin is not None
        cost = cost.to(rows.g.dtype)
        wrong = torch.ones_like(drawn.ids, dtype=torch.bool)                                   # (B, K)
        if drawn.right is not None:
            wrong[drawn.right[0], drawn.right[1]] = False
        reward = torch.where(wrong, (cost - self.centre) / self.scale, -self.config.penalty)
        on, off = drawn.origin == GENERATOR, drawn.origin == NOISE                             # (B, K) each
        advantage = reward - self._baseline(reward, on)
        rho = self._rho(rows.log_prob(drawn.ids), drawn.ids, on, off)
        share = torch.bincount(rows.question, minlength=len(rows.g)) / len(query)              # (Q,)
        hinge = (math.log(self.config.modes) - rows.entropy).clamp(min=0)
        told = {"entropy": float((share * rows.entropy).sum()), "hinge": float((share * hinge).sum())}
        self.generator.ascend(rows, drawn.ids, rho * advantage / (rho > 0).sum().clamp(min=1),
                              self.config.entropy * share * (hinge > 0))
        self.optimizer.step()
        if on.any():
            told |= {"reward": float(cost[on].mean()), "advantage": float(advantage[on].mean()),
                     "advantage_sd": float(advantage[on].std(correction=0)),
                     "false_negatives": float((~wrong[on]).float().mean())}
        if self.config.importance and off.any():
            told["clipped"] = float((rho[off] >= self.config.clip).float().mean())
        self._rescale(cost[on])
        return told

    def _rho(self, log_g_y: Tensor, ids: Tensor, on: Tensor, off: Tensor) -> Tensor:
        """1 for the adversary's columns, the clipped importance weight for the noise's, 0 for the probe: (B, K)."""
        if not self.config.importance:
            return on.float()
        ratio = torch.exp(log_g_y - self.log_p[ids]).clamp(max=self.config.clip)
        return torch.where(off, ratio, on.float())

    def _baseline(self, reward: Tensor, on: Tensor) -> Tensor:
        """b for each column, broadcastable to (B, K); never a function of the column's own draw."""
        kind = self.config.baseline
        if kind == "self_critical":
            return reward[:, -1:]
        if kind == "leave_one_out":
            total, n = reward[on].sum(), on.sum()
            others = (total - reward * on) / (n - on.float()).clamp(min=1)
            return torch.where(n > 1, others, reward.new_zeros(()))
        if kind == "moving":
            return reward.new_zeros(())  # rewards are centred on their running mean already
        return -self.centre / self.scale  # none: undo the centring, the bare reward remains

    def _rescale(self, cost: Tensor) -> None:
        """Move the running mean and sd towards this batch's raw rewards; used from the next batch on."""
        if not len(cost):
            return
        self.centre = self.centre.lerp(cost.mean(), 0.05)
        self.scale = self.scale.lerp(cost.std(correction=0).clamp(min=1e-3), 0.05)

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "generator": self.generator.state_dict(),
                "optimizer": self.optimizer.state_dict(), "scale": self.scale, "centre": self.centre,
                "drawn": self.drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.load_state_dict(state["generator"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scale, self.centre = state["scale"].to(self.scale), state["centre"].to(self.centre)
        self.drawn, self._rows = state["drawn"], None
