"""Adversarial contrastive estimation: half of the noise is drawn by an adversary that learns what costs the model most.

    q(y|x) = λ p_nce(y) + (1 - λ) g_θ(y|x)                              (slides; the mixture is what log_q reports)
    max_θ  E_{y ~ g_θ(.|x)} [r(x, y)] - β max(0, c - H(g_θ(.|x))),  c = log(modes)       (slide eq. 1 and 2)
    ∇_θ ≈ Σ_i (r_i - b_i) ρ_i ∇_θ log g_θ(y_i|x)                        (REINFORCE, ρ = 1 for y_i ~ g_θ)

r   what the column cost the model: un-hinged, not corrected for q, on a running scale; minus `penalty` where y is a
    right answer that the mask forgave.
b   none | moving average | leave-one-out mean of the batch | self_critical: r of the greedy answer argmax_y g_θ(y|x),
    which is drawn as one more column with weight 0. Each leaves the gradient unbiased.
ρ   noise columns teach too, off policy, with ρ = min(clip, g_θ(y|x) / p_nce(y)), held constant.

g depends on the context x alone (a word; an entity and a relation), which is what makes it affordable: `share:
window` draws once for all pairs of a centre, `refresh` keeps g as it is for so many draws (snapshot.py), `shortlist`
puts rare candidates into groups (classes.py). log_q is exact under each. Without the three (`ace-full`) g has a logit
for each candidate and moves after each block. Under `share: block` and `batch` rows share columns that ask different
questions: they are drawn from the mean of g over a group's questions, and learnt from by each (together.py).

Bose, Ling and Cao, Adversarial Contrastive Estimation, ACL 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, ModelView, Negatives, ProblemSpec, Query
from embtrain.kernels.sampling.reinforce import DrawnNegatives, ReinforceSpec, ReinforceSums, factors
from embtrain.negatives.adversarial import shared_draws
from embtrain.negatives.adversarial.generator import Generator
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.negatives.adversarial.shortlist import Shortlist
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.sampling.alias import Alias
from embtrain.negatives.sampling.context_index import begins, sizes_of
from embtrain.negatives.static.base import checked
from embtrain.negatives.static.unigram import unigram_masses

MODES = 500  # among many candidates, unless told


class AceConfig(NegativesConfig):
    mix: float = Field(0.5, ge=0, le=1, description="λ; 1 is the noise alone, 0 the adversary alone (ADV)")
    columns: Literal["mixture", "both"] = Field(
        "mixture", description="k draws from the mixture, or k of the noise (weight λ) and k of the adversary (1-λ)")
    exponent: float = Field(0.75, ge=-10, le=10, description="α of the noise p_nce ∝ n(y)^α")
    counted: Literal["before", "after"] = Field("before", description="n(y) before or after subsampling")
    hidden: int = Field(31, ge=1, le=4096, description="dimensions of the generator; one less than 16, 32, ... is fast")
    generator_lr: float = Field(0.01, gt=0, description="learning rate of the generator's own Adam")
    refresh: int = Field(0, ge=0, description="draws (rows, under share: block) between two steps of the generator; 0: "
                                              "those of a block")
    shortlist: int | None = Field(None, ge=1, description="S, candidates with a logit of their own; null: all")
    groups: int = Field(128, ge=1, description="T, groups of the others, which keep the noise's shares")
    entropy: float = Field(1.0, ge=0, description="β, the weight of the entropy hinge; 0 turns it off")
    modes: int | None = Field(None, ge=1, description="c = log(modes): entropy below that of so many even choices is "
                                                      "punished; null: 500, half of the candidates if they are fewer")
    baseline: Literal["none", "moving", "leave_one_out", "self_critical"] = Field(
        "self_critical", description="b, what the reward is compared with")
    importance: bool = Field(True, description="learn from the noise columns too, weighted by ρ")
    clip: float = Field(10.0, gt=0, description="the largest ρ")
    penalty: float = Field(1.0, ge=0, description="reward of a forgiven right answer is minus this, in running sd")


class Ace(NegativeSource):
    name = "ace"
    Config = AceConfig
    learns: ClassVar[bool] = True
    supports_total_weight: ClassVar[bool] = True
    components: ClassVar[tuple[str, ...]] = ("noise", "generator")
    config: AceConfig

    def __init__(self, config: AceConfig, world: ProblemSpec):
        super().__init__(config, world)
        sizes = sizes_of(world, self.name)
        v = world.n_candidates
        self.modes = min(MODES, -(-v // 2)) if config.modes is None else config.modes
        if self.modes > v and config.entropy > 0:
            raise UsageError(f"negatives.modes: {self.modes} is more than the {v:,} candidates; leave it out, or give "
                             "fewer")
        self.learns_per_row = config.share in ("block", "batch")
        if config.share == "batch" and config.baseline == "self_critical":
            raise UsageError("negatives.baseline: self_critical costs a column for each row that shares a draw, and "
                             "under negatives.share: batch all do; use share: block, or baseline: leave_one_out")
        self.iid = config.columns == "mixture" and config.mass in (None, config.k)   # else columns do not weigh 1
        p = checked(unigram_masses(world, config.exponent, config.counted))
        p = (p / p.sum()).to(world.device)
        classes = Shortlist(p.log(), config.shortlist, config.groups, world.counts)
        self.n_logits = classes.n
        self.generator = Generator(sizes, classes, config.hidden, world.seed).to(world.device)
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=config.generator_lr)
        self.snapshot = GeneratorCache(self.generator, Alias(p, world.device), p, config.mix)
        self.scale = torch.ones((), device=world.device)      # running sd of the raw rewards
        self.centre = torch.zeros((), device=world.device)    # running mean of the raw rewards
        self.used = 0                                         # columns collected since the last step
        self.stepped = False                                  # whether there was a step in this epoch
        self.told: dict[str, float] = {}                      # the newest of each metric
        self._last: tuple[Tensor, Tensor] | shared_draws.Asked | None = None  # rows and log g of the last draw

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, group = self.draw_layout(query)
        both, probe = self.config.columns == "both", self.config.baseline == "self_critical"
        if self.learns_per_row:
            groups = shared_draws.groups_of(len(query), n, group, query.target.device)
            drawn, target, self._last = shared_draws.draw(self.snapshot, self.snapshot.find(query.context), groups,
                                                      query.target, k, both, probe, self.random)
        else:
            start = _starts(n, group, query)
            row = self.snapshot.find(query.context if group is None else query.contexts(start))    # (G,)
            drawn = self.snapshot.draw(row, 2 * k if both else k, k if both else None, probe, self.random)
            target = self.snapshot.log_q(query.target, row, start)
            self._last = row, drawn.log_g
        weight, mass = self.weight_and_mass(k)
        if both:
            parts = torch.tensor([[self.config.mix, 1 - self.config.mix]], device=mass.device).repeat_interleave(k, 1)
            weight = parts if weight is None else parts * weight
        if probe:  # it is costed and not trained on
            shape = (1, 2 * k if both else k)
            weight = torch.ones(shape, device=mass.device) if weight is None else weight.expand(shape)
            weight = torch.cat([weight, weight.new_zeros(1, drawn.ids.shape[1] - shape[1])], 1)
        return Negatives(drawn.ids, draw_id=group, log_q=drawn.log_q, weight=weight, origin=drawn.origin,
                         log_q_target=target, total_weight=mass)

    @torch.no_grad()
    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        ids = ids.expand(len(query), -1)
        asked, question = query.unique()
        log_g = self.generator(asked.context)                                                   # (Q, V)
        if self.learns_per_row:
            groups = shared_draws.groups_of(len(query), *self.draw_layout(query), query.target.device)
            log_g, question = shared_draws.log_means(log_g, question, groups), groups.of              # (G, V), (B,)
        return self.snapshot.mixture(log_g[question].gather(1, ids), ids)

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Collect the columns' costs, (G, K) or by row; an ascent step of the generator once `refresh` draws have
        come."""
        assert drawn.ids is not None and self._last is not None
        last, self._last = self._last, None
        if isinstance(last, shared_draws.Asked):
            a, told = shared_draws.factors(last, drawn, cost.to(last.log_g.dtype), self._rule())
            shared_draws.collect(self.snapshot, last, drawn.ids, a)
        else:
            row, log_g = last
            a, told = self._factors(drawn, log_g, cost.to(log_g.dtype))
            self.snapshot.collect(drawn.ids, row, a)
        self.used += int(told.n_used)
        if (n := told.n_generator) > 0:
            mean, spread = _moments(told.cost, told.cost2, n)
            self.told["reward"] = mean
            self.told["advantage"], self.told["advantage_sd"] = _moments(told.advantage, told.advantage2, n)
            self.told["false_negatives"] = told.n_false_negatives / n
            # The running mean and sd of the raw rewards move towards this block's; they are used from the next on.
            for running, now in ((self.centre, mean), (self.scale, max(spread, 1e-3))):
                running.lerp_(torch.tensor(now, dtype=running.dtype, device=running.device), 0.05)
        if (self.config.importance or self.learns_per_row) and told.n_noise:
            self.told["clipped"] = told.n_clipped / told.n_noise
        if self.snapshot.drawn >= self.config.refresh:
            self._ascend()
        return dict(self.told)

    def refresh(self, view: ModelView) -> None:
        """At least one step for an epoch, however short."""
        if self.snapshot.drawn and not self.stepped:
            self._ascend()
        self.stepped = False

    def _ascend(self) -> None:
        """One step of the generator on all that was collected."""
        entropy, hinge = self.snapshot.gradient(1 / max(1, self.used), self.config.entropy, math.log(self.modes))
        self.told |= {"entropy": entropy, "hinge": hinge}
        self.optimizer.step()
        self.snapshot.forget()
        self.used, self.stepped = 0, True

    def _wrong(self, drawn: Negatives) -> Tensor | None:
        """(G, K): the share of the rows that read a draw whose right answer a column is not; None: all of all."""
        assert drawn.ids is not None
        if drawn.false_negatives is None or drawn.false_negatives.shape[1] == 0:
            return None
        wrong, (row, column) = torch.ones(drawn.ids.shape, device=drawn.ids.device), drawn.false_negatives
        if drawn.draw_id is None:
            wrong[row, column] = 0.0
            return wrong
        readers = torch.bincount(drawn.draw_id, minlength=len(wrong)).to(wrong.dtype)
        draw = drawn.draw_id[row]
        return wrong.index_put_((draw, column), -1 / readers[draw], accumulate=True).clamp(min=0)

    def _factors(self, drawn: Negatives, log_g: Tensor, cost: Tensor) -> tuple[Tensor, ReinforceSums]:
        """a of each column (G, K), and sums over the columns."""
        wrong = self._wrong(drawn)
        if not self.snapshot.native:
            return self._plain_factors(drawn, log_g, cost, wrong)
        assert drawn.ids is not None and drawn.origin is not None
        a, told = factors(self._rule(), self.snapshot.word, DrawnNegatives(
            drawn.ids.numpy(), drawn.origin.numpy(), log_g.numpy(), cost.contiguous().numpy(),
            None if wrong is None else wrong.numpy()))
        return torch.from_numpy(a), told

    def _rule(self) -> ReinforceSpec:
        centre, scale, config = float(self.centre), float(self.scale), self.config
        # moving: rewards are centred on their running mean already; none: undo the centring, the bare reward remains.
        fixed = -centre / scale if config.baseline == "none" else 0.0
        critic: dict[str, Literal["last", "others"]] = {"self_critical": "last", "leave_one_out": "others"}
        return ReinforceSpec(centre, scale, config.penalty, fixed, config.clip, critic.get(config.baseline, "none"),
                    config.importance)

    def _plain_factors(self, drawn: Negatives, log_g: Tensor, cost: Tensor, wrong: Tensor | None
                       ) -> tuple[Tensor, ReinforceSums]:
        """The same in torch, of any number type on any device."""
        assert drawn.ids is not None and drawn.origin is not None
        on, off = (drawn.origin == which for which in (GENERATOR, NOISE))                       # (G, K) each
        mine = on.to(cost.dtype)
        reward = (cost - self.centre) / self.scale
        if wrong is not None:
            reward = wrong * reward - (1 - wrong) * self.config.penalty
        advantage = reward - self._baseline(reward, mine)
        rho = self._rho(log_g, drawn.ids, mine, off)
        wrongly = 0.0 if wrong is None else float(((1 - wrong) * mine).sum())
        return rho * advantage, ReinforceSums(
            float(mine.sum()), float((rho > 0).sum()), float(off.sum()), float((off & (rho >= self.config.clip)).sum()),
            wrongly, float((mine * cost).sum()), float((mine * cost.square()).sum()),
            float((mine * advantage).sum()), float((mine * advantage.square()).sum()))

    def _rho(self, log_g: Tensor, ids: Tensor, mine: Tensor, off: Tensor) -> Tensor:
        """1 for the adversary's columns, the clipped importance weight for the noise's, 0 for the probe: (G, K)."""
        if not self.config.importance:
            return mine
        ratio = (log_g.exp() / self.snapshot.p[ids]).clamp(max=self.config.clip)
        return torch.where(off, ratio, mine)

    def _baseline(self, reward: Tensor, mine: Tensor) -> Tensor:
        """b for each column, broadcastable to (G, K); never a function of the column's own draw."""
        kind = self.config.baseline
        if kind == "self_critical":
            return reward[:, -1:]
        if kind == "leave_one_out":
            total, n = (reward * mine).sum(), mine.sum()
            others = (total - reward * mine) / (n - mine).clamp(min=1)
            return torch.where(n > 1, others, reward.new_zeros(()))
        if kind == "moving":
            return reward.new_zeros(())  # rewards are centred on their running mean already
        return -self.centre / self.scale  # none: undo the centring, the bare reward remains

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "generator": self.generator.state_dict(),
                "optimizer": self.optimizer.state_dict(), "scale": self.scale, "centre": self.centre,
                "snapshot": self.snapshot.state_dict(), "used": self.used,
                "stepped": self.stepped, "told": dict(self.told)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.load_state_dict(state["generator"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scale, self.centre = state["scale"].to(self.scale), state["centre"].to(self.centre)
        self.snapshot.load_state_dict(state["snapshot"])
        self.used, self.stepped, self.told = state["used"], state["stepped"], dict(state["told"])
        self._last = None


def _moments(total: float, squares: float, n: float) -> tuple[float, float]:
    """Mean and sd of n numbers, from their sum and that of their squares."""
    mean = total / n
    return mean, math.sqrt(max(0.0, squares / n - mean * mean))


def _starts(n: int, group: Tensor | None, query: Query) -> Tensor:
    """Where the rows of each of n draws begin, and the end, (n + 1,): the rows of a draw follow one another."""
    if group is None:
        return torch.arange(n + 1, device=query.target.device)
    if query.window_offsets is not None:
        return query.window_offsets
    return torch.nn.functional.pad(begins(group), (0, 1), value=len(group))
