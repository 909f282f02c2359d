"""ACE when rows with different queries share their negatives (`share_draws_by: block`, `batch`). n rows form a group.

    ḡ(y) = (1/n) Σ_i g(y|x_i)        q(y) = λ p(y) + (1 - λ) ḡ(y)              one exact q for all rows of the draw
    y_j ~ ḡ: a row of the group, uniformly, and y_j ~ g(.|x) of its query
    a_ij = ρ_ij (r_ij - b_ij)        coefficient of negative j for row i, from the cost of j for row i

ρ   off-policy weight, because row i did not draw alone: min(clip, g(y_j|x_i) / ḡ(y_j)) for negatives of the generator,
    a ratio of at most n; min(clip, g / p) for noise; 0 for a probe. Below the clip
    E ρ_ij f(y_j) = E_{y ~ g(.|x_i)} f(y).
b   self_critical: r of the row's own greedy candidate, one of the group's probes. leave_one_out: Σ ρ r / (1 + Σ ρ) over
    the other negatives of the row. This is their mean under g(.|x_i), shrunk towards 0, the running mean of all
    rewards, with the weight of one negative, because every ρ may be close to 0.

Only the densities (B, K) are computed per row, so that the model scores a group's negatives in one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives
from embtrain.kernels.sampling.reinforce import ReinforceSpec, ReinforceSums
from embtrain.negatives.adversarial.generator_cache import GeneratorCache, GeneratorDraw
from embtrain.negatives.sampling.row_groups import RowGroups

MAX_DENSITIES = 1 << 20  # densities computed at once: in PyTorch each one gathers a row of w


class SharedDraw(NamedTuple):
    """The rows of a draw and the probabilities of its negatives, kept for `learn`."""

    row: Tensor        # (B,) int64  row in the cache
    groups: RowGroups
    log_g: Tensor      # (B, K)  for each row and column, without probes
    log_drawn: Tensor  # (G, K)  log ḡ for negatives of the generator, log p for noise


class AceState(NamedTuple):
    """The part of a draw that `learn` of ACE needs, whether or not rows share it."""

    generation: object               # of the rows of the cache
    row: Tensor                      # (G,) int64  row in the cache; (B,) with `shared`
    log_g: Tensor                    # (G, K)
    shared: SharedDraw | None = None  # with share_draws_by: block and batch


def draw(cache: GeneratorCache, row: Tensor, groups: RowGroups, target: Tensor, k: int, stratified: bool,
         with_probe: bool, random: torch.Generator) -> tuple[GeneratorDraw, Tensor, SharedDraw]:
    """Draw k negatives for each group, or k of each component if stratified.

    With with_probe, the greedy candidates of the group's rows are appended, with origin PROBE. log_g is log ḡ. Also
    returns log q of each row's target, (B,).
    """
    n, n_components = len(groups.size), 2 if stratified else 1
    drawing_row = groups.draw_rows(k, random)                                                     # (G, k)
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
    """log q of each row's target (B,), computed for all rows of its group, a chunk of targets at a time."""
    ids = target[groups.member]                                                             # (G, N)
    log_mean = torch.cat([groups.mean(_densities(cache, part, row, groups))
                          for part in ids.split(max(1, MAX_DENSITIES // len(row)), 1)], 1)
    return cache.mixture(log_mean, ids)[groups.group_id, groups.position]


def _densities(cache: GeneratorCache, ids: Tensor, row: Tensor, groups: RowGroups) -> Tensor:
    """log g, for each row, of the ids (G, K) of its group: (B, K)."""
    log_g = torch.empty((len(row), ids.shape[1]), dtype=cache.z.dtype, device=row.device)
    for rows in _chunks(*log_g.shape):
        log_g[rows] = cache.density(ids[groups.group_id[rows]], row[rows])[0]
    return log_g


def reinforce_coefficients(
    shared: SharedDraw, drawn: Negatives, cost: Tensor, rule: ReinforceSpec
) -> tuple[Tensor, ReinforceSums]:
    """Coefficient a of each row and negative (B, K), and sums over the negatives.

    cost (B, K + probes). Negatives of the generator count with weight ρ: the moments are those under g(.|x_i).
    """
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
    return rho * advantage, ReinforceSums(
        float(generator_weight.sum()), n, n, float((rho >= rule.clip).sum()),
        float(generator_weight[is_false_negative[:, :k]].sum()),
        float((generator_weight * own_cost).sum()), float((generator_weight * own_cost.square()).sum()),
        float((generator_weight * advantage).sum()), float((generator_weight * advantage.square()).sum()))


def _baseline(shared: SharedDraw, reward: Tensor, rho: Tensor, rule: ReinforceSpec) -> Tensor:
    """b of each row and negative, broadcastable to (B, K); never a function of the negative's own draw."""
    k = rho.shape[1]
    if rule.baseline_kind == "last":
        return reward.gather(1, k + shared.groups.position.unsqueeze(1))
    if rule.baseline_kind == "others":
        weighted = rho * reward[:, :k]
        return (weighted.sum(1, keepdim=True) - weighted) / (1 + rho.sum(1, keepdim=True) - rho)
    return reward.new_full((), rule.baseline)


def collect(cache: GeneratorCache, shared: SharedDraw, ids: Tensor, a: Tensor) -> None:
    """Collect the negatives of each row. Probes are left out, since nothing is learnt from them."""
    own_ids = ids[:, :a.shape[1]]
    for rows in _chunks(*a.shape):
        cache.collect(own_ids[shared.groups.group_id[rows]], shared.row[rows], a[rows])


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, MAX_DENSITIES // max(1, width))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def negative_fraction(drawn: Negatives) -> Tensor | None:
    """Share of the rows of a draw for which a column is not a false negative, (G, K); None if there are none."""
    assert drawn.ids is not None
    if drawn.false_negatives is None or drawn.false_negatives.shape[1] == 0:
        return None
    fraction, (row, column) = torch.ones_like(drawn.ids, dtype=torch.float32), drawn.false_negatives
    if drawn.draw_id is None:
        fraction[row, column] = 0.0
        return fraction
    n_readers = torch.bincount(drawn.draw_id, minlength=len(fraction)).to(fraction.dtype)
    draw_id = drawn.draw_id[row]
    return fraction.index_put_((draw_id, column), -1 / n_readers[draw_id], accumulate=True).clamp(min=0)
