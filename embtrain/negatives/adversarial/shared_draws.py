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
from embtrain.kernels.sampling.reinforce import ReinforceSpec, ReinforceSums
from embtrain.negatives.adversarial.generator_cache import Drawn, GeneratorCache

CELLS = 1 << 20  # densities asked for at once: in torch each makes a row of w


class Groups(NamedTuple):
    """B rows in G groups of at most N; the rows of a group follow one another."""

    of: Tensor      # (B,) int64  the group of each row
    place: Tensor   # (B,) int64  its place there
    size: Tensor    # (G,) int64
    member: Tensor  # (G, N) int64  the rows of each; the last of a short group stands in the places left over

    def mean(self, log_x: Tensor) -> Tensor:
        """log of the mean over the rows of each group of what has the logs (B, K): (G, K)"""
        over = torch.arange(self.member.shape[1], device=self.of.device) >= self.size.unsqueeze(1)        # (G, N)
        log_each = log_x[self.member].masked_fill_(over.unsqueeze(2), -torch.inf)
        return log_each.logsumexp(1) - self.size.log().unsqueeze(1).to(log_x.dtype)


def groups_of(n_rows: int, n: int, group: Tensor | None, device: torch.device) -> Groups:
    """What `draw_layout` says of n_rows rows: n groups, and the group of each row (None: there is one)."""
    of = torch.zeros(n_rows, dtype=torch.int64, device=device) if group is None else group
    size = torch.bincount(of, minlength=n)
    first = size.cumsum(0) - size
    places = torch.arange(int(size.max()), device=device)
    member = first.unsqueeze(1) + torch.minimum(places, size.unsqueeze(1) - 1)
    return Groups(of, torch.arange(n_rows, device=device) - first[of], size, member)


class Asked(NamedTuple):
    """Who asked, and how likely the columns were: with what they cost, all that is learnt from."""

    row: Tensor        # (B,) int64  of the snapshot
    groups: Groups
    log_g: Tensor      # (B, K)  of each row and column, but for the probes
    log_drawn: Tensor  # (G, K)  log ḡ where the adversary drew, log p where the noise did


def draw(snapshot: GeneratorCache, row: Tensor, groups: Groups, target: Tensor, k: int, both: bool, probe: bool,
         random: torch.Generator) -> tuple[Drawn, Tensor, Asked]:
    """k columns of each group, k of each component with `both`, and with `probe` the greedy answers of its rows behind
    them, the origin theirs; log_g is log ḡ. Beside them log q of each row's target, (B,)."""
    n, each = len(groups.size), 2 if both else 1
    size = groups.size.unsqueeze(1)
    u = torch.rand((n, k), generator=random, device=row.device, dtype=torch.float64)
    asker = groups.member.gather(1, torch.minimum((u * size).long(), size - 1))             # (G, k) rows
    drawn = snapshot.draw(row[asker].view(-1), each, 1 if both else None, False, random)
    ids, origin = (x.view(n, k, each).transpose(1, 2).reshape(n, -1) for x in (drawn.ids, drawn.origin))
    own = ids.shape[1]
    if probe:
        ids = torch.cat([ids, snapshot.greedy[row][groups.member]], 1)
        origin = torch.cat([origin, origin.new_full(groups.member.shape, PROBE)], 1)
    log_g = _densities(snapshot, ids, row, groups)
    log_mean = groups.mean(log_g)
    log_drawn = torch.where(origin[:, :own] == GENERATOR, log_mean[:, :own],
                            snapshot.p[ids[:, :own]].log().to(log_g.dtype))
    return (Drawn(ids, origin, log_mean, snapshot.mixture(log_mean, ids)), _log_q(snapshot, target, row, groups),
            Asked(row, groups, log_g[:, :own], log_drawn))


def _log_q(snapshot: GeneratorCache, target: Tensor, row: Tensor, groups: Groups) -> Tensor:
    """log q of each row's target (B,). All rows of its group are asked for it, some targets at a time."""
    ids = target[groups.member]                                                             # (G, N)
    log_mean = torch.cat([groups.mean(_densities(snapshot, some, row, groups))
                          for some in ids.split(max(1, CELLS // len(row)), 1)], 1)
    return snapshot.mixture(log_mean, ids)[groups.of, groups.place]


def _densities(snapshot: GeneratorCache, ids: Tensor, row: Tensor, groups: Groups) -> Tensor:
    """log g of the ids (G, K) of its group for each row: (B, K)"""
    log_g = torch.empty((len(row), ids.shape[1]), dtype=snapshot.z.dtype, device=row.device)
    for rows in _pieces(*log_g.shape):
        log_g[rows] = snapshot.density(ids[groups.of[rows]], row[rows])[0]
    return log_g


def log_means(log_g: Tensor, question: Tensor, groups: Groups) -> Tensor:
    """log ḡ of all candidates (G, V), from log g of the distinct questions (Q, V) and the question of each row (B,)."""
    share = torch.zeros((len(groups.size), len(log_g)), dtype=torch.float64, device=log_g.device)
    share.index_put_((groups.of, question), 1 / groups.size[groups.of].double(), accumulate=True)
    return (share @ log_g.double().exp()).log().to(log_g.dtype)


def factors(asked: Asked, drawn: Negatives, cost: Tensor, rule: ReinforceSpec) -> tuple[Tensor, ReinforceSums]:
    """a of each row and column (B, K), from the costs of the columns and probes, and sums over the former, in which the
    adversary's count ρ: moments are those under g(.|x_i)."""
    assert drawn.ids is not None and drawn.origin is not None
    of, k = asked.groups.of, asked.log_g.shape[1]
    reward = (cost - rule.centre) / rule.scale
    right = torch.zeros_like(cost, dtype=torch.bool)
    if drawn.false_negatives is not None:
        right[drawn.false_negatives[0], drawn.false_negatives[1]] = True
        reward = torch.where(right, -rule.penalty, reward)
    on, off = (drawn.origin[:, :k] == which for which in (GENERATOR, NOISE))                # (G, K) each
    teaches = (on | off if rule.importance else on)[of]
    rho = (asked.log_g - asked.log_drawn[of]).exp().clamp(max=rule.clip)
    rho = torch.where(teaches, rho, 0.0)
    advantage = reward[:, :k] - _baseline(asked, reward, rho, rule)
    mine, paid = torch.where(on[of], rho, 0.0), cost[:, :k]                                 # (B, K)
    n = float(teaches.sum())
    return rho * advantage, ReinforceSums(
        float(mine.sum()), n, n, float((rho >= rule.clip).sum()), float(mine[right[:, :k]].sum()),
        float((mine * paid).sum()), float((mine * paid.square()).sum()),
        float((mine * advantage).sum()), float((mine * advantage.square()).sum()))


def _baseline(asked: Asked, reward: Tensor, rho: Tensor, rule: ReinforceSpec) -> Tensor:
    """b for each row and column, broadcastable to (B, K); never a function of the column's own draw."""
    k = rho.shape[1]
    if rule.critic == "last":
        return reward.gather(1, k + asked.groups.place.unsqueeze(1))
    if rule.critic == "others":
        weighted = rho * reward[:, :k]
        return (weighted.sum(1, keepdim=True) - weighted) / (1 + rho.sum(1, keepdim=True) - rho)
    return reward.new_full((), rule.baseline)


def collect(snapshot: GeneratorCache, asked: Asked, ids: Tensor, a: Tensor) -> None:
    """Each row hands in its columns. Probes teach nothing and stay behind."""
    own = ids[:, :a.shape[1]]
    for rows in _pieces(*a.shape):
        snapshot.collect(own[asked.groups.of[rows]], asked.row[rows], a[rows])


def _pieces(n: int, width: int) -> Iterator[slice]:
    step = max(1, CELLS // max(1, width))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))
