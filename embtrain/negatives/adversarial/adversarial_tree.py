"""Adversarial tree: noise from a tree of logistic regressions, fitted to the positives (Bamler and Mandt 2020).

    q(y|h) = Π_ν σ(±(w_ν·x + b_ν)),   x = whitened principal components of h / ‖h‖               (label_tree.py)

It imitates P(y|h), so its negatives are hard like an adversary's, but it is not trained against the model. It is fitted
to `pairs` examples, by default once. h is the model's query vector, fixed as in the paper if it is given
(`train.start`). With vectors that are trained from a random start, fit the tree again (`fits`): fit f = 0, 1, ... is
made after 2^f · `pairs` examples. Before the first fit q is the unigram. Features are of directions,
because lengths grow in training and would make an old tree ever more certain.

A draw and log q cost O(F log V) for F features. q is exact at each draw: `nce` and `sampled_softmax` correct for it.
With `logistic` the optimal score is log P − log(k q), and prediction adds log q, as in the paper. Where the tree makes
q tiny, candidates are hardly ever pushed down; a `mixture` with unigram noise bounds q.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.types import GENERATOR, ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.adversarial.label_tree import LabelTree
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling import inner_product


class AdversarialTreeConfig(NegativesConfig):
    """Settings of `adversarial_tree`."""

    features: int = Field(16, ge=1, le=256, description="F, principal components of the query; at most its dimension")
    pairs: int = Field(50_000, ge=2, le=10_000_000, description="examples that the tree is fitted to")
    fits: int | None = Field(1, ge=0, description="number of fits, after 1, 2, 4, ... times `pairs`; null: no limit")
    ridge: float = Field(0.1, gt=0, le=1e6, description="λ, ridge penalty of a node's regression")


class AdversarialTree(NegativeSource):
    """Draws from a tree that is fitted to the positives."""

    name = "adversarial_tree"
    Config = AdversarialTreeConfig
    traits = Traits(uses_model=True, uses_counts=True, fits_to_queries=True, supports_total_weight=True,
                    components=("generator",), sharing_modes=("row", "window"))
    config: AdversarialTreeConfig

    def __init__(self, config: AdversarialTreeConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.traits = replace(self.traits, iid=config.total_weight in (None, config.k))     # else weights differ from 1
        d = problem.dim
        n_features = min(config.features, max(1, d))
        self.tree = LabelTree(problem.counts.to(problem.device), n_features)
        self.mean = torch.zeros(d, dtype=torch.float32, device=problem.device)                   # (D,)
        self.basis = self.mean.new_zeros(d, n_features)                                          # (D, F)
        self.n_seen = self.n_fits = 0                                                             # examples; fits
        self.sample: tuple[Tensor, Tensor] = (self.mean.new_zeros(0, d), self.tree.order[:0])     # (N, D), (N,)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        if query.is_training and len(self.sample[1]) >= self.config.pairs:
            self._fit()
        unique, draw_query, _, draw_id = inner_product.queries_per_draw(query, self.config.share_draws_by)
        x = self._features(unique)
        ids, log_q = self.tree.draw(x[draw_query], k, self.random)
        log_q_target = self.tree.log_q(x[query.unique()[1]], query.target.unsqueeze(1))[:, 0]
        if query.is_training:
            self._record(query)
        weight, total = self.weight_and_total(k)
        return Negatives(ids, draw_id=draw_id, log_q=log_q, weight=weight, log_q_target=log_q_target,
                         total_weight=total, origin=torch.full((1, 1), GENERATOR, dtype=torch.int8, device=ids.device))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.tree.log_q(self._features(query), ids.expand(len(query), -1))

    def _features(self, query: Query) -> Tensor:
        """Features of the queries, (B, F)."""
        return (_directions(query) - self.mean) @ self.basis

    def _record(self, query: Query) -> None:
        """Collect the examples that precede the next fit."""
        due = self.config.pairs << self.n_fits
        if (self.config.fits is None or self.n_fits < self.config.fits) and self.n_seen >= due - self.config.pairs:
            h, y = self.sample
            self.sample = torch.cat([h, _directions(query)]), torch.cat([y, query.target])
        self.n_seen += len(query)

    def _fit(self) -> None:
        """Fit the features and the tree to the sample."""
        h, y = self.sample
        self.mean = h.mean(0)
        variance, axes = torch.linalg.eigh((h - self.mean).double().T.cov(correction=0).reshape(h.shape[1], -1))
        n = self.basis.shape[1]
        variance, axes = variance[-n:], axes[:, -n:]
        scale = torch.where(variance > 1e-12 * variance[-1], variance, torch.inf).rsqrt()
        self.basis = (axes * scale).float()
        self.tree.fit((h - self.mean) @ self.basis, y, self.config.ridge)
        self.sample, self.n_fits = (h[:0], y[:0]), self.n_fits + 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "order": self.tree.order, "weight": self.tree.weight, "mean": self.mean,
                "basis": self.basis, "vectors": self.sample[0], "targets": self.sample[1], "seen": self.n_seen,
                "fits": self.n_fits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        order, weight, self.mean, self.basis, h, y = (state[key].to(self.mean.device) for key in (
            "order", "weight", "mean", "basis", "vectors", "targets"))
        self.tree.arrange(order)
        self.tree.weight, self.sample = weight, (h, y)
        self.n_seen, self.n_fits = state["seen"], state["fits"]

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        """Keep the tree and the examples of the next fit, if the candidates are the same; their counts may differ."""
        lost = super().grow_from(earlier, row)
        assert isinstance(earlier, AdversarialTree)
        if not torch.equal(row.cpu(), torch.arange(earlier.problem.n_candidates, device="cpu")):
            return lost
        weight = earlier.tree.weight if earlier.n_fits else self.tree.weight                 # else the new unigram
        self.load_state_dict({**earlier.state_dict(), "random": self.random.get_state(), "weight": weight})
        return ""


def _directions(query: Query) -> Tensor:
    """Query vectors of length 1, (B, D) float32."""
    return normalize(inner_product.require_finite(query.vector, "queries").float(), dim=1)
