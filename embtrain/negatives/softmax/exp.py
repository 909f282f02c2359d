"""EXP: draws from the model's softmax itself, q(c|h) = e^{o_c} / Σ_j e^{o_j}. The slowest source, without bias.

    exclude_target:  q(c|h, t) = e^{o_c} / Σ_{j≠t} e^{o_j},   c ≠ t

The gradient of sampled softmax is unbiased only for q ∝ e^o (Bengio and Senécal 2008), and only if q is over the
candidates other than the target: then every corrected draw is e^{o_c} / (m q_c) = Z_t / m, whichever candidate was
drawn. With q over all candidates and masked hits, Z' is unbiased and the gradient is not. exclude_target is the
default, as eq. 5-6 of Rawat et al. 2019 require; NCE needs the target's q, so set exclude_target: false.

The weights e^{max(o - max o, -600)} define both the draw and the reported q, so that q > 0 even for candidates that the
current scores make impossible. They are summed in float64, block by block. The target's block is summed again without
it instead of subtracting its weight, which could cancel everything else. A draw picks a block by its sum, then a
candidate in it. The model computes the scores; with `update_every` above 1, a copy of its table does, which is at most
that many draws old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import reduce_blocks, sample_proportional
from embtrain.negatives.sampling.within_cell import check_settings

MAX_SCORES = 8_000_000        # scores held in memory at once
MAX_CACHED_WEIGHTS = 1 << 17  # weights at once on a CPU, few enough to stay in its cache
BLOCK_SIZE = 64               # candidates per block
MIN_LOG_WEIGHT = -600.0       # e^-600 > 0 in float64


class ExpConfig(NegativesConfig):
    """Settings of `exp`."""

    exclude_target: bool = Field(
        True, description="draw among the candidates other than the target, whose q is then undefined")
    update_every: int = Field(
        1, ge=0, description=(
            "draws between two copies of the table, whose softmax is drawn from; 1: the current table; 0: "
            "one copy an epoch"))


class Exp(NegativeSource):
    """Draws from the softmax over all scores."""

    name = "exp"
    Config = ExpConfig
    traits = Traits(uses_model=True, supports_total_weight=True, sharing_modes=("row", "window"))
    config: ExpConfig

    def __init__(self, config: ExpConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        check_settings(self.name, config, config.exclude_target, problem)
        self.traits = replace(self.traits, density="conditional" if config.exclude_target else "exact",
                              iid=config.total_weight in (None, config.k))                # else weights are not 1
        self.view: ModelView | None = None
        self.has_copy, self.draws_since_copy = False, 0  # whether there is a copy; its age in draws
        self.table_copy: Tensor | None = None            # (V, D)
        if config.update_every != 1:
            self.traits = replace(self.traits, geometry=inner_product.GEOMETRIES)       # the copy is scored here
            self.table_copy = torch.zeros(problem.n_candidates, problem.dim, dtype=torch.float32, device=problem.device)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        if query.is_training:
            self._update_if_due(view)
        else:
            self.prepare_log_prob(view)
        unique, query_id, target, draw_id = inner_product.queries_per_draw(query, self.config.share_draws_by)
        ids = torch.empty(len(query_id), k, dtype=torch.int64, device=target.device)
        log_q = torch.empty(len(query_id), k, dtype=torch.float32, device=target.device)
        for rows, query_row, weights in self._weights_by_chunk(unique, query_id):
            t = target[rows] if self.config.exclude_target else None
            drawn, log_w = weights.draw(query_row, t, k, self.random)
            ids[rows], log_q[rows] = drawn, log_w.float()
        log_q_target = None
        if not self.config.exclude_target:
            log_q_target = self.log_prob(query, query.target.unsqueeze(1))[:, 0]
        weight, total = self.weight_and_total(k)
        return Negatives(ids, draw_id=draw_id, log_q=log_q, weight=weight, log_q_target=log_q_target,
                         total_weight=total)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q of ids (1, K) or (B, K): (B, K); -inf for an excluded target."""
        ids = ids.expand(len(query), -1)
        unique, query_id = query.unique()
        log_q = torch.empty(ids.shape, dtype=torch.float32, device=ids.device)
        for rows, query_row, weights in self._weights_by_chunk(unique, query_id):
            log_q[rows] = weights.log_q(query_row, query.target[rows] if self.config.exclude_target else None,
                                        ids[rows]).float()
        return log_q

    def _weights_by_chunk(self, unique: Query, query_id: Tensor) -> Iterator[tuple[Tensor, Tensor, _SoftmaxWeights]]:
        """Weights of a chunk of distinct queries at a time.

        Yields the rows (n,) with these queries, the row of the weights that each reads (n,), and the weights.
        """
        v = self.problem.n_candidates
        step = max(1, MAX_SCORES // v)
        for start in range(0, len(unique), step):
            rows = ((query_id >= start) & (query_id < start + step)).nonzero().squeeze(1)
            chunk = unique.rows(torch.arange(start, min(len(unique), start + step), device=query_id.device))
            yield rows, query_id[rows] - start, _SoftmaxWeights(self._scores(chunk))

    def _scores(self, unique: Query) -> Tensor:
        """Scores o of every candidate, (Q, V). Raises UsageError before the first view, or if one is not finite."""
        if self.view is None:
            raise UsageError(f"{key('source')}: exp has not been fitted to the model yet, so it has no probabilities")
        if self.table_copy is None:
            all_ids = torch.arange(self.problem.n_candidates, device=unique.target.device).unsqueeze(0)
            o = self.view.score(unique, all_ids)
        else:
            o = inner_product.query_vectors(unique, self.view).to(self.table_copy.dtype) @ self.table_copy.T
        if not torch.isfinite(o.sum(dtype=torch.float64)):
            raise UsageError(f"{key('source')}: exp: the model's scores are not finite; the training has diverged: "
                             "lower train.lr, or set train.clip")
        return o

    # -- updates from the model ------------------------------------------------------------------------------------

    def prepare_log_prob(self, view: ModelView) -> None:
        self.view = view
        if self.table_copy is not None and not self.has_copy:
            self.on_epoch_start(view)

    def on_epoch_start(self, view: ModelView) -> None:
        self.view = view
        if self.table_copy is not None:
            self.table_copy.copy_(inner_product.candidate_vectors(view))
            self.has_copy, self.draws_since_copy = True, 0

    def _update_if_due(self, view: ModelView) -> None:
        """Take the view, and copy the table if the copy is too old."""
        self.view = view
        if self.table_copy is not None:
            if not self.has_copy or 0 < self.config.update_every <= self.draws_since_copy:
                self.on_epoch_start(view)
            self.draws_since_copy += 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "stale": self.table_copy, "looked": self.has_copy,
                "since": self.draws_since_copy}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.table_copy is not None:
            self.table_copy.copy_(state["stale"])
        self.has_copy, self.draws_since_copy = state["looked"], state["since"]


class _SoftmaxWeights:
    """Weights w = e^{max(o - max o, MIN_LOG_WEIGHT)} of Q queries, and their sums over blocks of candidates."""

    def __init__(self, o: Tensor):
        self.o, self.max_score = o, o.amax(1, keepdim=True).double()                     # (Q, V), (Q, 1)
        self.chunk_size = MAX_CACHED_WEIGHTS if o.device.type == "cpu" else MAX_SCORES
        rows_per_chunk = max(1, self.chunk_size // o.shape[1])
        chunks = zip(o.split(rows_per_chunk), self.max_score.split(rows_per_chunk), strict=True)
        self.block_sums = torch.cat([reduce_blocks(_weight(*part), BLOCK_SIZE, "sum") for part in chunks])

    def draw(self, query_row: Tensor, target: Tensor | None, k: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw k candidates for each of the query rows (n,), except the targets (n,).

        Returns ids (n, k) int64 and log q (n, k) float64.
        """
        toss = torch.rand(2, len(query_row), k, generator=random, device=query_row.device, dtype=torch.float64)
        step, parts = max(1, self.chunk_size // max(k * BLOCK_SIZE, self.block_sums.shape[1])), []
        for a in range(0, len(query_row), step):
            part = slice(a, a + step)
            rows, excluded = query_row[part], None if target is None else target[part]
            sums = self._block_sums(rows, excluded)
            block = sample_proportional(sums, toss[0, part])
            w = self._block_weights(rows, block, excluded)
            offset = sample_proportional(w.flatten(0, 1), toss[1, part].reshape(-1, 1)).view_as(block)
            ids = block * BLOCK_SIZE + offset
            parts.append((ids, self._log_weight(rows, ids) - sums.sum(1, keepdim=True).log()))
        return torch.cat([ids for ids, _ in parts]), torch.cat([log_q for _, log_q in parts])

    def log_q(self, query_row: Tensor, target: Tensor | None, ids: Tensor) -> Tensor:
        """log q of ids (n, K) for the query rows (n,): (n, K) float64; -inf for the targets (n,)."""
        if target is None:
            return self._log_weight(query_row, ids) - self.block_sums.sum(1).log()[query_row].unsqueeze(1)
        step = max(1, MAX_SCORES // self.block_sums.shape[1])
        parts = zip(query_row.split(step), target.split(step), strict=True)
        total = torch.cat([self._block_sums(*part).sum(1) for part in parts])
        log_q = self._log_weight(query_row, ids) - total.log().unsqueeze(1)
        return log_q.masked_fill_(ids == target.unsqueeze(1), -torch.inf)

    def _log_weight(self, query_row: Tensor, ids: Tensor) -> Tensor:
        return (self.o[query_row.unsqueeze(1), ids].double() - self.max_score[query_row]).clamp_(min=MIN_LOG_WEIGHT)

    def _block_sums(self, query_row: Tensor, target: Tensor | None) -> Tensor:
        """Sums of the blocks without the targets (n,): (n, blocks)."""
        sums = self.block_sums[query_row]
        if target is not None:
            block = torch.div(target, BLOCK_SIZE, rounding_mode="floor").unsqueeze(1)
            sums.scatter_(1, block, self._block_weights(query_row, block, target).sum(2))
        return sums

    def _block_weights(self, query_row: Tensor, block: Tensor, target: Tensor | None) -> Tensor:
        """Weights in blocks (n, K), 0 for the targets and after the last candidate: (n, K, BLOCK_SIZE)."""
        v = self.o.shape[1]
        ids = block.unsqueeze(2) * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=block.device)
        is_excluded = ids >= v if target is None else (ids >= v) | (ids == target.view(-1, 1, 1))
        w = _weight(self.o[query_row.view(-1, 1, 1), ids.clamp(max=v - 1)], self.max_score[query_row].unsqueeze(2))
        return w.masked_fill_(is_excluded, 0.0)


def _weight(o: Tensor, top: Tensor) -> Tensor:
    return (o.double() - top).clamp_(min=MIN_LOG_WEIGHT).exp_()
