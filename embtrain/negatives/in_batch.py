"""The targets of the other rows as negatives; q is estimated from the data.

    N_i = {t_j : j ≠ i, j in the chunk of i},   q(y) = the share of y among the targets

unigram    q(y) = n(y) / Σ n, counted in training; 0 counts as in unigram.py  (logQ correction)
streaming  q(y) ∝ 1 / δ_y;   at step t, where y occurs:  δ_y ← (1 − α) δ_y + α (t − a_y),  a_y ← t
           δ_y, the mean number of steps between two batches with y; α falls as 1 / (occurrences) to `rate`
           (Yi et al., Sampling-bias-corrected neural modeling, RecSys 2019, algorithm 2)
none       no q: the frequency of the negatives is not corrected

If the target is corrected as well (loss.form: ranking, Yi et al. eq. 5), the optimum is log P at every batch size.

Both q are estimates: they assume that rows are independent draws from the data. The rows of a block are therefore
assigned to chunks at random for each draw; neighbours in a text would share windows. The streaming estimate cannot
exceed one batch in every step, δ_y = 1, so it levels off at frequent targets.

A chunk has k + 1 rows, or all rows of a smaller batch; the last chunk overlaps the one before if fewer are left. The
target of a row itself is marked as a false negative. A batch of one row, as the last of an epoch can be, has no other
negative (loss.form: ranking: log p = 0, no gradient). Batches of one row are refused, since nothing could be learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.optimizers.row_growth import copy_rows
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.static.unigram import unigram_masses


class InBatchConfig(NegativesConfig):
    """Settings of `in_batch`."""

    correction: Literal["unigram", "streaming", "none"] = Field("unigram", description="estimate of q")
    rate: float = Field(0.01, gt=0, le=1, description="α of the streaming estimate, once it has converged")


class InBatch(NegativeSource):
    """Uses the targets of a chunk of k + 1 rows as the negatives of each of them."""

    name = "in_batch"
    Config = InBatchConfig
    # one draw per chunk of rows, for every `share_draws_by`
    traits = Traits(density="estimated", min_batch_size=2, standard_layout=False, sharing_modes=("row",),
                    sharing_limit="shares the targets of k + 1 rows among these rows")
    config: InBatchConfig

    def __init__(self, config: InBatchConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if config.correction == "none":
            self.traits = replace(self.traits, density="none", iid=False)
        self.traits = replace(self.traits, uses_counts=config.correction == "unigram")
        n = unigram_masses(problem, 1.0, "subsampled").to(problem.device)
        if config.correction == "unigram" and not n.sum() > 0:
            raise UsageError(f"{key('correction')}: unigram needs counts of the positives; use streaming")
        # (V,) float64; the positives are drawn by their real counts, also where a count of 0 has a mass
        self.log_q = (n / problem.counts.to(n).sum()).log()
        self.step = 0
        self.seen = torch.zeros(len(n), dtype=torch.int64, device=problem.device)    # steps in which y occurred
        self.last = torch.zeros(len(n), dtype=torch.float64, device=problem.device)  # a
        self.gap = torch.zeros(len(n), dtype=torch.float64, device=problem.device)   # δ

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, device = len(query), query.target.device
        size = max(1, min(k + 1, n))
        order = torch.randperm(n, generator=self.random, device=device)
        position = torch.empty_like(order)
        position[order] = torch.arange(n, device=device)
        n_chunks = -(-n // size)
        chunk_start = torch.arange(n_chunks, device=device).mul_(size).clamp_(max=n - size)      # the last may overlap
        ids = query.target[order[chunk_start.unsqueeze(1) + torch.arange(size, device=device)]]  # (G, k + 1)
        draw_id = position // size                                                               # (B,)
        false_negatives = torch.stack([torch.arange(n, device=device), position - chunk_start[draw_id]])
        log_q, log_q_target = None, None
        if self.config.correction != "none":
            all_q = self._log_q()
            log_q, log_q_target = all_q[ids].float(), all_q[query.target].float()
        if self.config.correction == "streaming" and query.is_training:
            self._update_gaps(query.target)
        mass = torch.full((1, 1), float(max(1, size - 1)), dtype=torch.float32, device=device)  # without the own target
        return Negatives(ids, draw_id=draw_id if n_chunks > 1 else None, log_q=log_q, log_q_target=log_q_target,
                         total_weight=mass, false_negatives=false_negatives)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self._log_q()[ids].float()

    def _log_q(self) -> Tensor:
        """log of the estimate of q, (V,) float64; Σ q = 1."""
        if self.config.correction != "streaming":
            return self.log_q
        # A candidate without an occurrence in t steps counts as one occurrence in t + 1.
        gap = torch.where(self.seen > 0, self.gap, float(self.step + 1))
        return torch.log_softmax(-gap.log(), 0)

    def _update_gaps(self, target: Tensor) -> None:
        """Update δ, a and the counts by the targets (B,) of one step."""
        self.step += 1
        y = torch.unique(target)
        self.seen[y] += 1
        alpha = self.seen[y].double().reciprocal().clamp(min=self.config.rate)
        self.gap[y] = (1 - alpha) * self.gap[y] + alpha * (self.step - self.last[y])
        self.last[y] = float(self.step)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "step": self.step, "seen": self.seen, "last": self.last, "gap": self.gap}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        device, self.step = self.problem.device, state["step"]
        self.seen, self.last, self.gap = (state[key].to(device, copy=True) for key in ("seen", "last", "gap"))

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        super().grow_from(earlier, row)
        assert isinstance(earlier, InBatch)
        self.step = earlier.step
        for name in ("seen", "last", "gap"):                      # of a new candidate 0: it was never a target
            copy_rows(getattr(self, name), getattr(earlier, name), row)
        return ""
