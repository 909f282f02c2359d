"""A balanced binary tree over candidates with a logistic regression at each node, fitted to (features, target) pairs.

    q(y|x) = Π_ν σ(±(w_ν·x + b_ν)),   + if the path to y turns right at ν                    ([bamler2020])

`fit` goes down from the root. At a node it splits the candidates and fits the node's regression, alternately:

    split   the half with the larger Δ_y = Σ_{(x, y)} (w·x + b) goes right; at first w is the main direction of Σ_x x of
            the candidates
    w, b    maximize Σ log σ(±(w·x + b)) − λ/2 ‖(w, b − b_0)‖² by steps that bound the curvature of log σ by 1/4

b_0 is the log-odds of the counts of the two halves. Before `fit` w = 0 and b = b_0, so that q is the unigram, where a
count of 0 is 1. Candidate of rank r is at leaf ⌊r 2^L / V⌋; at a node with an empty half b_0 = ±FORCED, so that σ is 0
or 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

N_ROUNDS, N_STEPS = 3, 10      # splits of a node; steps of its regression after each
FORCED = 1e4                   # log-odds; finite, because states of sources are checked
MAX_NUMBERS = 8_000_000        # numbers held at once


class LabelTree:
    """q(y|x) over V candidates for features x (n, F)."""

    def __init__(self, counts: Tensor, n_features: int):
        v, device = len(counts), counts.device
        self.counts, self.depth = counts.double().clamp(min=1), max(1, math.ceil(math.log2(v)))
        self.leaf = (torch.arange(v, device=device) << self.depth) // v  # (V,) leaf of each rank
        self.arrange(torch.arange(v, device=device))
        # (2^L, F + 1) w, b; the root is 1
        self.weight = torch.zeros(1 << self.depth, n_features + 1, dtype=torch.float32, device=device)
        for level in range(self.depth):
            self.weight[1 << level:2 << level, -1] = self._log_odds(level).float()

    def arrange(self, order: Tensor) -> None:
        """Put the candidates order (V,) at the leaves, from left to right."""
        self.order, self.leaf_of = order, torch.empty_like(order)  # (V,) leaf of each candidate
        self.leaf_of[order] = self.leaf
        self.at_leaf = order.new_zeros(1 << self.depth)  # (2^L,) candidate; 0 if it is empty
        self.at_leaf[self.leaf] = order

    def draw(self, x: Tensor, k: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw k candidates for each of x (n, F): ids and log q, (n, k) each."""
        node = torch.ones(len(x), k, dtype=torch.int64, device=x.device)
        log_q = torch.zeros(len(x), k, dtype=torch.float32, device=x.device)
        for _ in range(self.depth):
            z = self._logit(x, node)
            # in float64: a branch may be less likely than a step of float32, 2^-24
            toss = torch.rand(z.shape, generator=random, dtype=torch.float64, device=x.device)
            is_right = toss < z.double().sigmoid()
            log_q += logsigmoid(torch.where(is_right, z, -z))
            node = 2 * node + is_right
        return self.at_leaf[node - (1 << self.depth)], log_q

    def log_q(self, x: Tensor, ids: Tensor) -> Tensor:
        """log q of ids (n, K) for x (n, F): (n, K)."""
        leaf, log_q = self.leaf_of[ids], torch.zeros(ids.shape, dtype=torch.float32, device=x.device)
        for level in range(self.depth):
            z = self._logit(x, (1 << level) + (leaf >> (self.depth - level)))
            is_right = (leaf >> (self.depth - level - 1)) & 1 == 1
            log_q += logsigmoid(torch.where(is_right, z, -z))
        return log_q

    def fit(self, x: Tensor, y: Tensor, ridge: float) -> None:
        """Fit all nodes to pairs of features x (N, F) and candidates y (N,)."""
        x = torch.cat([x, x.new_ones(len(x), 1)], 1).double()  # (N, F + 1)
        sums = x.new_zeros(len(self.order), x.shape[1]).index_add_(0, y, x)  # (V, F + 1) Σ_x x, number
        for level in range(self.depth):
            rank_node, n_nodes = self.leaf >> (self.depth - level), 1 << level
            rank_is_right = (self.leaf >> (self.depth - level - 1)) & 1
            label_node = torch.empty_like(self.order)
            label_node[self.order] = rank_node
            node = label_node[y]  # (N,)
            damping = ridge * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
            bound = torch.linalg.cholesky(_moments(x, node, n_nodes) / 4 + damping)
            means = x.new_zeros(n_nodes, x.shape[1]).index_add_(0, label_node, sums)
            means /= torch.bincount(label_node, minlength=n_nodes).clamp(min=1).unsqueeze(1)
            spread = _moments((sums - means[label_node])[:, :-1], label_node, n_nodes)
            delta = (sums[:, :-1] * torch.linalg.eigh(spread)[1][label_node, :, -1]).sum(1)  # (V,)
            w = x.new_zeros(n_nodes, x.shape[1])
            for _ in range(N_ROUNDS):
                by_delta = torch.argsort(delta, stable=True)
                self.order = by_delta[torch.argsort(label_node[by_delta], stable=True)]
                log_odds = self._log_odds(level)
                label_is_right = torch.empty_like(self.order)
                label_is_right[self.order] = rank_is_right
                for _ in range(N_STEPS):
                    error = label_is_right[y] - ((x * w[node]).sum(1) + log_odds[node]).sigmoid()
                    slope = (-ridge * w).index_add_(0, node, x * error.unsqueeze(1))
                    w += torch.cholesky_solve(slope.unsqueeze(2), bound).squeeze(2)
                delta = (sums * w[label_node]).sum(1) + sums[:, -1] * log_odds[label_node]
            w[:, -1] += log_odds
            self.weight[n_nodes:2 * n_nodes] = w.float()
        self.arrange(self.order)

    def _log_odds(self, level: int) -> Tensor:
        """b_0 of the nodes of a level, (2^level,) float64; ±FORCED at a node with an empty half."""
        leaf_counts = self.counts.new_zeros(1 << self.depth)
        leaf_counts[self.leaf] = self.counts[self.order]
        left, right = leaf_counts.view(1 << level, 2, -1).sum(2).unbind(1)
        return (right.log() - left.log()).clamp(-FORCED, FORCED)

    def _logit(self, x: Tensor, node: Tensor) -> Tensor:
        """w·x + b of nodes (n, K) for x (n, F): (n, K)."""
        step = max(1, MAX_NUMBERS // (node.shape[1] * self.weight.shape[1]))
        parts = zip(x.split(step), node.split(step), strict=True)
        return torch.cat([torch.einsum("nkf,nf->nk", (w := self.weight[part])[..., :-1], of) + w[..., -1]
                          for of, part in parts])


def _moments(x: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Σ x xᵀ of each group, (n_groups, F, F), for rows x (N, F)."""
    out, step = x.new_zeros(n_groups, x.shape[1], x.shape[1]), max(1, MAX_NUMBERS // x.shape[1] ** 2)
    for rows, of in zip(x.split(step), group.split(step), strict=True):
        out.index_add_(0, of, rows.unsqueeze(2) * rows.unsqueeze(1))
    return out
