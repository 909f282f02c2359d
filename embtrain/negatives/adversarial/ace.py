"""Adversarial contrastive estimation: half of the noise is drawn by a generator trained on the model's costs.

    q(y|x) = λ p_nce(y) + (1 - λ) g_θ(y|x)                              ([bose2018]; log_q is that of the mixture)
    max_θ  E_{y ~ g_θ(.|x)} [r(x, y)] - β max(0, c - H(g_θ(.|x))),  c = log(min_perplexity)  ([bose2018] eq. 1 and 2)
    ∇_θ ≈ Σ_i (r_i - b_i) ρ_i ∇_θ log g_θ(y_i|x)                        (REINFORCE, ρ = 1 for y_i ~ g_θ)

r   cost of the negative: un-hinged, not corrected for q, normalized by running moments; minus `penalty` if y is a
    masked false negative.
b   none | moving average | leave-one-out mean of the batch | self_critical: r of the greedy candidate argmax g_θ(y|x),
    which is drawn as an additional negative with weight 0. None of them biases the gradient.
ρ   off-policy weight of noise negatives, which are learnt from too: ρ = min(clip, g_θ(y|x) / p_nce(y)), constant.

g depends only on the context x (a word; an entity and a relation), which makes it affordable. `share_draws_by: window`
draws once for all pairs of a centre. `update_every` keeps g for that many draws (generator_cache.py). `shortlist`
groups rare candidates (shortlist.py). log_q is exact with each. Without all three (`ace-full`) g has a logit per
candidate and takes a step after each block. Under `share_draws_by: block` and `batch`, rows with different queries
share negatives, drawn from the mean of g over a group's queries; every row learns from them (shared_draws.py).

Bose, Ling and Cao, Adversarial Contrastive Estimation, ACL 2018. A q that approaches P(y|x) is hard, but it is not the
noise of least variance for NCE (Chehab, Gramfort and Hyvärinen 2022): λ and β keep q away from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.optimizers.eager import EagerAdam
from embtrain.common.types import GENERATOR, NOISE, ModelView, Negatives, ProblemSpec, Query
from embtrain.kernels.sampling.reinforce import DrawnNegatives, ReinforceSpec, ReinforceSums, factors, moments
from embtrain.negatives.adversarial import shared_draws
from embtrain.negatives.adversarial.ace_config import AceConfig
from embtrain.negatives.adversarial.generator import Generator
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.negatives.adversarial.shared_draws import AceState
from embtrain.negatives.adversarial.shortlist import Shortlist
from embtrain.negatives.base import Collective, NegativeSource, Traits
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.negatives.sampling.context_index import context_sizes_of, row_offsets
from embtrain.negatives.sampling.row_groups import group_rows
from embtrain.negatives.static.base import check_masses
from embtrain.negatives.static.unigram import unigram_masses

MAX_DEFAULT_MODES = 500  # default of modes, if there are many candidates


class Ace(NegativeSource):
    """Draws from a mixture of unigram noise and a trained generator."""

    name = "ace"
    Config = AceConfig
    traits = Traits(uses_counts=True, learns=True, supports_total_weight=True, components=("noise", "generator"))
    config: AceConfig

    def __init__(self, config: AceConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        v = problem.n_candidates
        self.modes = min(MAX_DEFAULT_MODES, -(-v // 2)) if config.min_perplexity is None else config.min_perplexity
        if self.modes > v and config.entropy > 0:
            raise UsageError(f"{key('min_perplexity')}: {self.modes} is more than the {v:,} candidates; remove it, or "
                             "set fewer")
        if config.share_draws_by == "batch" and config.baseline == "self_critical":
            raise UsageError(f"{key('baseline')}: self_critical needs one candidate for each row that shares a draw, "
                             f"and under {key('share_draws_by')}: batch all rows do; set {key('share_draws_by')}: "
                             f"block, or {key('baseline')}: leave_one_out")
        mixes = config.share_draws_by in ("block", "batch")
        iid = config.sampling == "mixture" and config.total_weight in (None, config.k)        # else weights are not 1
        self.traits = replace(self.traits, learns_per_row=mixes, mixes_queries=mixes, iid=iid)
        self._build_generator(None)
        self.reward_sd = torch.ones((), dtype=torch.float32, device=problem.device)  # running sd of the raw rewards
        self.reward_mean = torch.zeros_like(self.reward_sd)            # running mean of the raw rewards
        self.columns_since_step, self.has_stepped = 0, False   # negatives since the last step; one in this epoch?
        self.group: Collective | None = None                # processes that learn together; None: this one
        self.latest_metrics: dict[str, float] = {}                      # latest value of each metric

    def _build_generator(self, klass: Tensor | None) -> None:
        """Make an untrained generator. klass (V,): the classes of its shortlist; None: those of the counts."""
        config, problem = self.config, self.problem
        p = check_masses(unigram_masses(problem, config.exponent, config.counts))
        p = (p / p.sum()).to(problem.device)
        shortlist = Shortlist(p.log(), config.shortlist, config.groups, problem.counts, klass)
        sizes = context_sizes_of(problem, self.name)
        self.generator = Generator(sizes, shortlist, config.hidden, problem.seed).to(problem.device)
        self.optimizer = EagerAdam(self.generator.parameters(), lr=config.generator_lr)
        self.cache = GeneratorCache(self.generator, AliasTable(p, problem.device), p, config.mix)

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        with self.cache.rows_for(query):
            return self._draw(query, k)

    def _draw(self, query: Query, k: int) -> Negatives:
        n, draw_id = self.draw_layout(query)
        stratified, with_probe = self.config.sampling == "stratified", self.config.baseline == "self_critical"
        if self.traits.learns_per_row:
            groups = group_rows(len(query), n, draw_id, query.target.device)
            drawn, target, shared = shared_draws.draw(self.cache, self.cache.find_rows(query.context), groups,
                                                      query.target, k, stratified, with_probe, self.random)
            state = AceState(self.cache.generation, shared.row, shared.log_g, shared)
        else:
            start = row_offsets(n, draw_id, query)
            row = self.cache.find_rows(query.context if draw_id is None else query.contexts(start))    # (G,)
            drawn = self.cache.draw(row, 2 * k if stratified else k, k if stratified else None, with_probe, self.random)
            target = self.cache.log_q(query.target, row, start)
            state = AceState(self.cache.generation, row, drawn.log_g)
        weight, total = self.weight_and_total(k)
        if stratified:
            component_weight = total.new_tensor([[self.config.mix, 1 - self.config.mix]])
            component_weight = component_weight.repeat_interleave(k, 1)
            weight = component_weight if weight is None else component_weight * weight
        if with_probe:  # scored but not trained on
            shape = (1, 2 * k if stratified else k)
            weight = total.new_ones(shape) if weight is None else weight.expand(shape)
            weight = torch.cat([weight, weight.new_zeros(1, drawn.ids.shape[1] - shape[1])], 1)
        return Negatives(drawn.ids, draw_id=draw_id, log_q=drawn.log_q, weight=weight, origin=drawn.origin,
                         log_q_target=target, total_weight=total, state=state)

    @torch.no_grad()
    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        ids = ids.expand(len(query), -1)
        unique, query_id = query.unique()
        log_g = self.generator(unique.context)                                                   # (Q, V)
        return self.cache.mixture(log_g[query_id].gather(1, ids), ids)

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Collect the costs of the negatives, (G, K) or (B, K). The generator steps after `update_every` draws."""
        state = drawn.state
        assert drawn.ids is not None and isinstance(state, AceState)
        cost, row = cost.to(state.log_g.dtype), state.row
        if state.generation is not self.cache.generation:  # a step since the draw has dropped its rows
            row = self._find_rows(query, drawn)
        if state.shared is not None:
            a, sums = shared_draws.reinforce_coefficients(state.shared, drawn, cost, self._rule())
            shared_draws.collect(self.cache, state.shared._replace(row=row), drawn.ids, a)
        else:
            a, sums = self._coefficients(drawn, state.log_g, cost)
            self.cache.collect(drawn.ids, row, a)
        self.columns_since_step += int(sums.n_used)
        if (n := sums.n_generator) > 0:
            mean, spread = moments(sums.cost, sums.cost2, n)
            advantage, advantage_sd = moments(sums.advantage, sums.advantage2, n)
            self.latest_metrics |= {"reward": mean, "advantage": advantage, "advantage_sd": advantage_sd,
                                    "false_negatives": sums.n_false_negatives / n}
            # The running moments move towards those of this block; they apply from the next block on.
            for running, latest in ((self.reward_mean, mean), (self.reward_sd, max(spread, 1e-3))):
                running.lerp_(torch.tensor(latest, dtype=running.dtype, device=running.device), 0.05)
        if (self.config.importance or self.traits.learns_per_row) and sums.n_noise:
            self.latest_metrics["clipped"] = sums.n_clipped / sums.n_noise
        if self.group is None and self.cache.n_draws >= self.config.update_every:
            self._step_generator()
        return dict(self.latest_metrics)

    def _find_rows(self, query: Query, drawn: Negatives) -> Tensor:
        """Row in the cache of each draw (G,), or of each row of the batch (B,) if `learns_per_row`."""
        if self.traits.learns_per_row or drawn.draw_id is None:
            return self.cache.find_rows(query.context)
        assert drawn.ids is not None
        return self.cache.find_rows(query.contexts(row_offsets(len(drawn.ids), drawn.draw_id, query)))

    def on_epoch_start(self, view: ModelView) -> None:
        """Step at least once per epoch, however short."""
        if self.cache.n_draws and not self.has_stepped:
            self._step_generator()
        self.has_stepped = False

    def learn_with(self, group: Collective) -> bool:
        self.group = group
        return True

    def synchronize(self) -> None:
        """Step with the mean gradient of all processes since the last synchronization."""
        if self.group is not None and self.group.gather_numbers([self.cache.n_draws]).any():
            self._step_generator()

    def _step_generator(self) -> None:
        """One step of the generator with all that was collected."""
        entropy, hinge = self.cache.gradient(1 / max(1, self.columns_since_step), self.config.entropy,
                                             math.log(self.modes))
        self.latest_metrics |= {"entropy": entropy, "hinge": hinge}
        if self.group is not None:
            self.group.average([p.grad for p in self.generator.parameters() if p.grad is not None])
            self.group.average([self.reward_mean, self.reward_sd])
        self.optimizer.step()
        self.cache.invalidate()
        self.columns_since_step, self.has_stepped = 0, True

    def _coefficients(self, drawn: Negatives, log_g: Tensor, cost: Tensor) -> tuple[Tensor, ReinforceSums]:
        """Coefficient a of each column (G, K), and sums over the columns."""
        negative_fraction = shared_draws.negative_fraction(drawn)
        if not self.cache.uses_core:
            return self._coefficients_torch(drawn, log_g, cost, negative_fraction)
        assert drawn.ids is not None and drawn.origin is not None
        a, sums = factors(self._rule(), self.cache.word, DrawnNegatives(
            drawn.ids.numpy(), drawn.origin.numpy(), log_g.numpy(), cost.contiguous().numpy(),
            None if negative_fraction is None else negative_fraction.numpy()))
        return torch.from_numpy(a), sums

    def _rule(self) -> ReinforceSpec:
        centre, scale, config = float(self.reward_mean), float(self.reward_sd), self.config
        # moving: rewards are already centred. none: undo the centring, so that the bare reward remains.
        baseline = -centre / scale if config.baseline == "none" else 0.0
        kinds: dict[str, Literal["last", "others"]] = {"self_critical": "last", "leave_one_out": "others"}
        return ReinforceSpec(centre, scale, config.penalty, baseline, config.clip, kinds.get(config.baseline, "none"),
                    config.importance)

    def _coefficients_torch(self, drawn: Negatives, log_g: Tensor, cost: Tensor, negative_fraction: Tensor | None
                       ) -> tuple[Tensor, ReinforceSums]:
        """`_coefficients` in PyTorch, for any floating-point type and device."""
        assert drawn.ids is not None and drawn.origin is not None
        by_generator, by_noise = (drawn.origin == which for which in (GENERATOR, NOISE))                   # (G, K) each
        generator_mask = by_generator.to(cost.dtype)
        reward = (cost - self.reward_mean) / self.reward_sd
        if negative_fraction is not None:
            reward = negative_fraction * reward - (1 - negative_fraction) * self.config.penalty
        advantage = reward - self._baseline(reward, generator_mask)
        rho = self._rho(log_g, drawn.ids, generator_mask, by_noise)
        false_negatives = 0.0 if negative_fraction is None else float(((1 - negative_fraction) * generator_mask).sum())
        return rho * advantage, ReinforceSums(
            float(generator_mask.sum()), float((rho > 0).sum()), float(by_noise.sum()),
            float((by_noise & (rho >= self.config.clip)).sum()),
            false_negatives, float((generator_mask * cost).sum()), float((generator_mask * cost.square()).sum()),
            float((generator_mask * advantage).sum()), float((generator_mask * advantage.square()).sum()))

    def _rho(self, log_g: Tensor, ids: Tensor, generator_mask: Tensor, by_noise: Tensor) -> Tensor:
        """ρ, (G, K): 1 for negatives of the generator, the clipped importance weight for noise, 0 for the probe."""
        if not self.config.importance:
            return generator_mask
        ratio = (log_g.exp() / self.cache.p[ids]).clamp(max=self.config.clip)
        return torch.where(by_noise, ratio, generator_mask)

    def _baseline(self, reward: Tensor, generator_mask: Tensor) -> Tensor:
        """b of each column, broadcastable to (G, K); never a function of the column's own draw."""
        kind = self.config.baseline
        if kind == "self_critical":
            return reward[:, -1:]
        if kind == "leave_one_out":
            total, n = (reward * generator_mask).sum(), generator_mask.sum()
            other_mean = (total - reward * generator_mask) / (n - generator_mask).clamp(min=1)
            return torch.where(n > 1, other_mean, reward.new_zeros(()))
        if kind == "moving":
            return reward.new_zeros(())            # rewards are centred on their running mean already
        return -self.reward_mean / self.reward_sd  # none: undo the centring, the bare reward remains

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "generator": self.generator.state_dict(),
                "optimizer": self.optimizer.state_dict(), "scale": self.reward_sd, "centre": self.reward_mean,
                "snapshot": self.cache.state_dict(), "used": self.columns_since_step,
                "stepped": self.has_stepped, "metrics": dict(self.latest_metrics),
                "classes": self.generator.shortlist.klass, "shortlist": self.generator.shortlist.sizes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        klass, sizes = self.generator.shortlist.klass, self.generator.shortlist.sizes
        if (saved_sizes := tuple(state.get("shortlist", sizes))) != sizes:
            raise ValueError(f"{key('shortlist')} and {key('groups')}: the state has {saved_sizes[0]:,} candidates "
                             f"with their own logit and {saved_sizes[1]:,} groups, and this source {sizes[0]:,} and "
                             f"{sizes[1]:,}; set those of the state")
        super().load_state_dict(state)
        if not torch.equal(saved := state.get("classes", klass).to(klass), klass):           # of other counts
            self._build_generator(saved)
        self.generator.load_state_dict(state["generator"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.reward_sd, self.reward_mean = state["scale"].to(self.reward_sd), state["centre"].to(self.reward_mean)
        self.cache.load_state_dict(state["snapshot"])
        self.columns_since_step, self.has_stepped = state["used"], state["stepped"]
        self.latest_metrics = dict(state["metrics"])

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        """Keep the generator and the moments of the rewards; the gradient collected since its last step is dropped."""
        super().grow_from(earlier, row)
        assert isinstance(earlier, Ace)
        self.generator.grow_from(earlier.generator, row, self.optimizer, earlier.optimizer)
        self.reward_sd.copy_(earlier.reward_sd)
        self.reward_mean.copy_(earlier.reward_mean)
        self.cache.invalidate()
        return ""
