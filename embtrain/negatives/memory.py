"""Targets of recent batches as negatives: a first-in, first-out memory, whose counts give q exactly.

    q(b) = (1 − ε) m(b) / M + ε n(b) / Σ n        m(b): how often b is among the last M targets, n(b): its count

The memory follows the training data where counts cannot: targets that arrive in the order of time. It keeps ids, whose
vectors are read from the model's table at each draw, so that none is out of date, unlike in memories of vectors
([wang2020]). A batch enters after its update, in `learn`. The memory starts with M draws from the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import Collective, NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.negatives.static.base import check_masses
from embtrain.negatives.static.unigram import unigram_masses


class TargetMemoryConfig(NegativesConfig):
    """Settings of `memory`."""

    size: int = Field(16_384, ge=1, le=1 << 28, description="M, targets kept")
    epsilon: float = Field(0.1, gt=0, le=1, description="ε, share of draws by the counts of training")


class TargetMemory(NegativeSource):
    """Draws from the last M targets."""

    name = "memory"
    Config = TargetMemoryConfig
    traits = Traits(uses_counts=True, supports_total_weight=True, learns=True, learns_from="targets")
    config: TargetMemoryConfig

    def __init__(self, config: TargetMemoryConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.traits = replace(self.traits, iid=config.total_weight in (None, config.k))     # else weights differ from 1
        masses = check_masses(unigram_masses(problem, 1.0, "subsampled"))
        self.noise = AliasTable(masses / masses.sum(), problem.device)
        self.noise_q = (masses / masses.sum()).to(problem.device)                                    # (V,) float64
        self.targets = self.noise.draw((config.size,), self.random)                                  # (M,) int64
        self.next = 0                                                                                # the oldest
        self.count = torch.bincount(self.targets, minlength=problem.n_candidates)                    # (V,) int64

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, draw_id = self.draw_layout(query)
        weight, total = self.weight_and_total(k)
        place = torch.randint(self.config.size, (n, k), generator=self.random, device=self.targets.device)
        toss = torch.rand(n, k, generator=self.random, dtype=torch.float32, device=place.device)
        from_noise = toss < self.config.epsilon
        ids = torch.where(from_noise, self.noise.draw((n, k), self.random), self.targets[place])
        return Negatives(ids, draw_id=draw_id, log_q=self.log_prob(query, ids), weight=weight, total_weight=total,
                         log_q_target=self.log_prob(query, query.target))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        epsilon = self.config.epsilon
        return ((1 - epsilon) * self.count[ids].float() / self.config.size + epsilon * self.noise_q[ids]).log().float()

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Replace the oldest targets by those of the batch, of which at most M enter."""
        new = query.target[-self.config.size:]
        place = (torch.arange(len(new), device=new.device) + self.next) % self.config.size
        one = torch.ones_like(new)
        self.count.index_add_(0, self.targets[place], -one)
        self.targets[place] = new
        self.count.index_add_(0, new, one)
        self.next = (self.next + len(new)) % self.config.size
        return {}

    def learn_with(self, group: Collective) -> bool:
        """Each process remembers the targets of its own examples, so its q is exact for its own draws."""
        return True

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "targets": self.targets, "next": self.next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        device, self.next = self.problem.device, state["next"]
        self.targets = state["targets"].to(device, copy=True)
        self.count = torch.bincount(self.targets, minlength=self.problem.n_candidates)

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        super().grow_from(earlier, row)
        assert isinstance(earlier, TargetMemory)
        new_id = torch.full((earlier.problem.n_candidates,), -1, dtype=torch.int64, device="cpu")
        known = (row >= 0).nonzero().squeeze(1).cpu()
        new_id[row[known].cpu()] = known
        self.targets, self.next = new_id.to(earlier.targets.device)[earlier.targets], earlier.next
        gone = self.targets < 0                                              # candidates that the new run lacks
        self.targets[gone] = self.noise.draw((int(gone.sum()),), self.random)
        self.count = torch.bincount(self.targets, minlength=self.problem.n_candidates)
        return ""
