"""ACE's columns where rows that ask different questions share them (`share: block`, `batch`). n rows are a group:

    ḡ(y) = (1/n) Σ_i g(y|x_i)        q(y) = λ p(y) + (1 - λ) ḡ(y)              one q for all rows of the group, exact
    y_j ~ ḡ: a row of the group, each as likely, and y_j ~ g(.|x) of what it asks
    a_ij = ρ_ij (r_ij - b_ij)        what row i learns of column j, from what that column cost that row

ρ   off policy, for row i did not draw alone: min(clip, g(y_j|x_i) / ḡ(y_j)) of the adversary's columns, where the ratio
    is n at most; min(clip, g / p) of the noise's; 0 of a probe's. Below the clip E ρ_ij f(y_j) = E_{y ~ g(.|x_i)} f(y).
b   self_critical: r of the row's own greedy answer, one of the group's probes. leave_one_out: Σ ρ r / (1 + Σ ρ) over
    the row's other columns: their mean under g(.|x_i), drawn to the running mean of all rewards, 0, by the weight of
    one column, for ρ may be next to nothing in each of them.

Only the densities (B, K) are made for each row, so that the model scores a group's columns in one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives
from embtrain.kernels.sampling.reinforce import Rule, Sums
from embtrain.negatives.adversarial.generator_cache import GeneratorCache, GeneratorDraw

MAX_DENSITIES = 1 << 20  # densities asked for at once: in torch each makes a row of w


class RowGroups(NamedTuple):
    """B rows in G groups of at most N; the rows of a group follow one another."""

    group_id: Tensor  # (B,) int64  the group of each row
    position: Tensor  # (B,) int64  its place there
    size: Tensor      # (G,) int64
    member: Tensor    # (G, N) int64  the rows of each; the last of a short group stands in the places left over

    def mean(self, log_x: Tensor) -> Tensor:
        """log of the mean over the rows of each group of what has the logs (B, K): (G, K)"""
        over = torch.arange(self.member.shape[1], device=self.group_id.device) >= self.size.unsqueeze(1)        # (G, N)
        log_each = log_x[self.member].masked_fill_(over.unsqueeze(2), -torch.inf)
        return log_each.logsumexp(1) - self.size.log().unsqueeze(1).to(log_x.dtype)


def group_rows(n_rows: int, n_groups: int, draw_id: Tensor | None, device: torch.device) -> RowGroups:
    """What `draw_layout` says of n_rows rows: n groups, and the group of each row (None: there is one)."""
    group_id = torch.zeros(n_rows, dtype=torch.int64, device=device) if draw_id is None else draw_id
    size = torch.bincount(group_id, minlength=n_groups)
    group_start = size.cumsum(0) - size
    places = torch.arange(int(size.max()), device=device)
    member = group_start.unsqueeze(1) + torch.minimum(places, size.unsqueeze(1) - 1)
    return RowGroups(group_id, torch.arange(n_rows, device=device) - group_start[group_id], size, member)


class SharedDraw(NamedTuple):
    """Who asked, and how likely the columns were: with what they cost, all that is learnt from."""

    row: Tensor        # (B,) int64  of the snapshot
    groups: RowGroups
    log_g: Tensor      # (B, K)  of each row and column, but for the probes
    log_drawn: Tensor  # (G, K)  log ḡ where the adversary drew, log p where the noise did


def draw(cache: GeneratorCache, row: Tensor, groups: RowGroups, target: Tensor, k: int, stratified: bool,
         with_probe: bool, random: torch.Generator) -> tuple[GeneratorDraw, Tensor, SharedDraw]:
    """k columns of each group, k of each component with `both`, and with `probe` the greedy answers of its rows behind
    them, the origin theirs; log_g is log ḡ. Beside them log q of each row's target, (B,)."""
    n, n_components = len(groups.size), 2 if stratified else 1
    size = groups.size.unsqueeze(1)
    u = torch.rand((n, k), generator=random, device=row.device, dtype=torch.float64)
    drawing_row = groups.member.gather(1, torch.minimum((u * size).long(), size - 1))             # (G, k) rows
    drawn = cache.draw(row[drawing_row].view(-1), n_components, 1 if stratified else None, False, random)
    ids, origin = (x.view(n, k, n_components).transpose(1, 2).reshape(n, -1) for x in (drawn.ids, drawn.origin))
    n_own = ids.shape[1]
    if with_probe:
        ids = torch.cat([ids, cache.greedy[row][groups.member]], 1)
        origin = torch.cat([origin, origin.new_full(groups.member.shape, PROBE)], 1)
    log_g = _densities(cache, ids, row, groups)
    log_mean = groups.mean(log_g)
    log_drawn = torch.where(origin[:, :n_own] == GENERATOR, log_mean[:, :n_own],
                            cache.p[ids[:, :n_own]].log().to(log_g.dtype))
    return (GeneratorDraw(ids, origin, log_mean, cache.mixture(log_mean, ids)), _log_q(cache, target, row, groups),
            SharedDraw(row, groups, log_g[:, :n_own], log_drawn))


def _log_q(cache: GeneratorCache, target: Tensor, row: Tensor, groups: RowGroups) -> Tensor:
    """log q of each row's target (B,). All rows of its group are asked for it, some targets at a time."""
    ids = target[groups.member]                                                             # (G, N)
    log_mean = torch.cat([groups.mean(_densities(cache, part, row, groups))
                          for part in ids.split(max(1, MAX_DENSITIES // len(row)), 1)], 1)
    return cache.mixture(log_mean, ids)[groups.group_id, groups.position]


def _densities(cache: GeneratorCache, ids: Tensor, row: Tensor, groups: RowGroups) -> Tensor:
    """log g of the ids (G, K) of its group for each row: (B, K)"""
    log_g = torch.empty((len(row), ids.shape[1]), dtype=cache.z.dtype, device=row.device)
    for rows in _chunks(*log_g.shape):
        log_g[rows] = cache.density(ids[groups.group_id[rows]], row[rows])[0]
    return log_g


def log_means(log_g: Tensor, query_id: Tensor, groups: RowGroups) -> Tensor:
    """log ḡ of all candidates (G, V), from log g of the distinct questions (Q, V) and the question of each row (B,)."""
    share = torch.zeros((len(groups.size), len(log_g)), dtype=torch.float64, device=log_g.device)
    share.index_put_((groups.group_id, query_id), 1 / groups.size[groups.group_id].double(), accumulate=True)
    return (share @ log_g.double().exp()).log().to(log_g.dtype)


def reinforce_coefficients(shared: SharedDraw, drawn: Negatives, cost: Tensor, rule: Rule) -> tuple[Tensor, Sums]:
    """a of each row and column (B, K), from the costs of the columns and probes, and sums over the former, in which the
    adversary's count ρ: moments are those under g(.|x_i)."""
    assert drawn.ids is not None and drawn.origin is not None
    group_id, k = shared.groups.group_id, shared.log_g.shape[1]
    reward = (cost - rule.centre) / rule.scale
    is_false_negative = torch.zeros_like(cost, dtype=torch.bool)
    if drawn.false_negatives is not None:
        is_false_negative[drawn.false_negatives[0], drawn.false_negatives[1]] = True
        reward = torch.where(is_false_negative, -rule.penalty, reward)
    by_generator, by_noise = (drawn.origin[:, :k] == which for which in (GENERATOR, NOISE))                # (G, K) each
    is_used = (by_generator | by_noise if rule.importance else by_generator)[group_id]
    rho = (shared.log_g - shared.log_drawn[group_id]).exp().clamp(max=rule.clip)
    rho = torch.where(is_used, rho, 0.0)
    advantage = reward[:, :k] - _baseline(shared, reward, rho, rule)
    generator_weight, own_cost = torch.where(by_generator[group_id], rho, 0.0), cost[:, :k]                     # (B, K)
    n = float(is_used.sum())
    return rho * advantage, Sums(
        float(generator_weight.sum()), n, n, float((rho >= rule.clip).sum()),
        float(generator_weight[is_false_negative[:, :k]].sum()),
        float((generator_weight * own_cost).sum()), float((generator_weight * own_cost.square()).sum()),
        float((generator_weight * advantage).sum()), float((generator_weight * advantage.square()).sum()))


def _baseline(shared: SharedDraw, reward: Tensor, rho: Tensor, rule: Rule) -> Tensor:
    """b for each row and column, broadcastable to (B, K); never a function of the column's own draw."""
    k = rho.shape[1]
    if rule.critic == "last":
        return reward.gather(1, k + shared.groups.position.unsqueeze(1))
    if rule.critic == "others":
        weighted = rho * reward[:, :k]
        return (weighted.sum(1, keepdim=True) - weighted) / (1 + rho.sum(1, keepdim=True) - rho)
    return reward.new_full((), rule.baseline)


def collect(cache: GeneratorCache, shared: SharedDraw, ids: Tensor, a: Tensor) -> None:
    """Each row hands in its columns. Probes teach nothing and stay behind."""
    own_ids = ids[:, :a.shape[1]]
    for rows in _chunks(*a.shape):
        cache.collect(own_ids[shared.groups.group_id[rows]], shared.row[rows], a[rows])


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, MAX_DENSITIES // max(1, width))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))
