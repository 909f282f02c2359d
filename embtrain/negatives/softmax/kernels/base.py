"""Base of the kernel sources: q(c|h) ∝ π_c K(h, c) with K(h, c) = φ(h)·φ(c), drawn through a tree.

A subclass defines φ. Scores are inner products, o = h·c, or τ times those of unit vectors (cosine); other geometries
have no inner product to approximate. The tree stores sums of φ(c) as of its last update. These sums, however stale,
define both the draw and the reported q. Inside a block of several candidates, `within_leaf: exact` draws in proportion
to e^o and `within_leaf: kernel` to π K, both with the current vectors. `within_leaf: quantized` draws by e^o of an int8
copy, made with the block's sum and as old: a quarter of the bytes, and no norms to compute if scores are cosines. Sums
are stored as float32 or int8 (row_store.py).

A draw marks the candidates that it returns, and the targets. Their blocks are summed again every `update_every` draws,
and all blocks at the start of an epoch and every `rebuild_every` draws. With exclude_target, q is over the other
candidates (Rawat et al. 2019, section 1.1: s_i ∈ N_t): the target then has no q, and the density is conditional.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import CounterRng
from embtrain.negatives.sampling.row_store import RowStore, StoredDtype, stored_tensors
from embtrain.negatives.sampling.within_cell import check_settings, prior_weights
from embtrain.negatives.softmax.kernels.blocks import CandidateBlocks, ScaledView
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.sampler import TreeRules, TreeSampler
from embtrain.negatives.softmax.kernels.sum_tree import SumTree, TreeQuery

MAX_FLOORED_FRACTION = 0.4      # share of negative weights above which the kernel is mostly noise (pure noise: .5)
N_SAMPLED_VECTORS = 4096        # vectors that a feature map is fitted to
_log = logging.getLogger("embtrain.negatives")  # one logger of all sources, for filters


class KernelConfig(NegativesConfig):
    """Settings common to the kernel sources."""

    exclude_target: bool = Field(
        False, description="draw among the candidates other than the target, whose q is then undefined")
    branching: int = Field(2, ge=2, le=64, description="children per tree node; 2 in the paper")
    leaf_size: int = Field(1, ge=1, le=65_536, description="candidates per leaf; 1 in the paper")
    within_leaf: Literal["exact", "quantized", "kernel"] = Field(
        "exact", description=(
            "distribution within a leaf of several candidates: by the softmax e^o, by that of its int8 "
            "copy, made with its sum, or by the kernel K"))
    leaf_order: Literal["id", "frequency"] = Field("id", description="order of the candidates in the tree")
    prior_exponent: float = Field(
        0.0, ge=0, le=2, description=(
            "exponent of the prior π = count^prior_exponent, which multiplies the kernel; 0: none"))
    floor: float = Field(0.1, gt=0, le=1, description="ε, minimum mass of a candidate, in units of K at o = 0")
    sum_dtype: StoredDtype = Field(
        "float32", description="dtype of the node sums; int8: one scale per node, a quarter of the memory")
    keep_features: bool = Field(False, description=(
        "keep the features of each candidate, so that an update computes those of the candidates drawn since, and not "
        "of all in their leaves; takes the memory of a tree with one candidate per leaf"))
    update_every: int = Field(1, ge=0, description="draws between two updates of the candidates drawn since; 0: none")
    rebuild_every: int = Field(
        0, ge=0, description="draws between two rebuilds of the tree; 0: at the start of an epoch")
    max_gib: float = Field(4.0, gt=0, le=4096, description="maximum memory of the tree, in GiB")


class KernelSource(NegativeSource):
    """Source that draws by a kernel, through a tree; decides when to update the tree.

    A subclass implements `make_feature_map`. Raises UsageError if the model has no vectors, or if features are not
    finite.
    """

    traits = Traits(geometry=inner_product.GEOMETRIES, uses_model=True, supports_total_weight=True,
                    sharing_modes=("row", "window"))
    config: KernelConfig
    scaled_view: ScaledView | None            # None before the first view

    def __init__(self, config: KernelConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        check_settings(self.name, config, config.exclude_target, problem)
        if problem.dim < 1:
            raise UsageError(f"{key('source')}: {self.name} computes features of the candidates' vectors, but this "
                             "model has none; choose another source")
        self.traits = replace(self.traits, density="conditional" if config.exclude_target else "exact",
                              iid=config.total_weight in (None, config.k),                # else weights are not 1
                              uses_counts=config.prior_exponent > 0 or config.leaf_order == "frequency")
        order = torch.arange(problem.n_candidates, device="cpu")
        if config.leaf_order == "frequency":
            order = torch.argsort(problem.counts.cpu(), descending=True, stable=True)
        prior = prior_weights(problem.counts.double().cpu(), config.prior_exponent)[order]
        seed_sequence = np.random.SeedSequence([problem.seed, *b"features"])  # another stream than that of the draws
        self.feature_map = self.make_feature_map(torch.Generator().manual_seed(int(seed_sequence.generate_state(1)[0])))
        self.tree = SumTree(prior, self.feature_map.width, config.branching, config.leaf_size, config.max_gib,
                            problem.device, config.sum_dtype, config.keep_features)
        has_copy = config.within_leaf == "quantized" and config.leaf_size > 1
        self.copy = RowStore(problem.n_candidates, problem.dim, "int8", problem.device) if has_copy else None
        self.blocks = CandidateBlocks(order.to(problem.device), prior.to(problem.device), config.leaf_size, self.copy)
        self.touched = torch.zeros(problem.n_candidates, dtype=torch.bool, device=problem.device)  # by place
        self.is_built, self.since_update, self.since_rebuild = False, 0, 0
        self.counter_rng, self.scaled_view = CounterRng(self.random), None
        rules = TreeRules(config.within_leaf != "kernel", config.exclude_target, config.floor, config.share_draws_by)
        self.sampler = TreeSampler(self.tree, self.blocks, self.feature_map, rules, self.counter_rng)
        self.floored_fraction = 0.0                                                 # as of the last check
        self._is_noise_checked = self._has_warned = False

    def make_feature_map(self, random: torch.Generator) -> FeatureMap:
        """The feature map φ, with its random directions drawn from `random`."""
        raise AbstractMethod(self, "make_feature_map")

    # -- drawing --------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        if query.is_training:
            self._update_if_due(view)
        else:
            self.prepare_log_prob(view)
        ids, log_q, draw_id, log_q_target = self.sampler.draw(
            query, k, self._required_view, self.touched if self.config.update_every and query.is_training else None,
            None if self._is_noise_checked else self._warn_if_noisy)
        weight, total = self.weight_and_total(k)
        return Negatives(ids, draw_id=draw_id, log_q=log_q, weight=weight, total_weight=total,
                         log_q_target=None if self.config.exclude_target else log_q_target)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q of ids (1, K) or (B, K): (B, K); -inf for an excluded target."""
        return self.sampler.log_prob(query, ids, self._required_view)

    # -- updates from the model -----------------------------------------------------------------------------------

    def prepare_log_prob(self, view: ModelView) -> None:
        self._set_view(view)
        if not self.is_built:
            self._rebuild()

    def on_epoch_start(self, view: ModelView) -> None:
        self._set_view(view)
        self._rebuild()

    @property
    def _required_view(self) -> ScaledView:
        if self.scaled_view is None:
            raise UsageError(f"{key('source')}: {self.name} has not been fitted to the model yet, so it has no "
                             "probabilities")
        return self.scaled_view

    def _set_view(self, view: ModelView) -> None:
        """Store the view and the scale of its vectors."""
        scale = self.feature_map.scale(view.tau)
        if self.scaled_view is None or self.scaled_view.view is not view or self.scaled_view.scale != scale:
            self.scaled_view = ScaledView(view, scale)

    def _update_if_due(self, view: ModelView) -> None:
        """Take the view, and rebuild or update the tree if it is due."""
        self._set_view(view)
        config = self.config
        if not self.is_built or 0 < config.rebuild_every <= self.since_rebuild:
            self._rebuild()
        elif 0 < config.update_every <= self.since_update:
            self.tree.update(self._take_touched(), self._sums)
            self.since_update = 0
        self.since_update, self.since_rebuild = self.since_update + 1, self.since_rebuild + 1

    def _take_touched(self) -> Tensor:
        """Return the places of touched candidates, increasing, and forget them."""
        if self.touched.device.type == "cpu":                # NumPy is several times faster
            places = torch.from_numpy(np.flatnonzero(self.touched.numpy()))
        else:
            places = self.touched.nonzero().squeeze(1)
        self.touched[places] = False
        return places

    def _rebuild(self) -> None:
        """Fit the feature map, and sum all blocks again."""
        scaled = self._required_view
        table = scaled.view.table()
        norms = torch.linalg.vector_norm(table, dim=1)
        if not_finite := (~torch.isfinite(norms)).nonzero().flatten().tolist():
            raise UsageError(f"{key('source')}: {self.name}: the vector of candidate {not_finite[0]} is not finite, "
                             f"{len(not_finite):,} of {len(table):,} in total; the training has diverged: lower "
                             "train.lr")
        largest = 1.0 if scaled.view.geometry == "cosine" else float(norms.max()) ** 2
        sample = torch.arange(0, len(table), -(-len(table) // N_SAMPLED_VECTORS), device=table.device)
        self.feature_map.fit(scaled.class_vectors(sample, torch.float64), scaled.scale ** 2 * largest)
        self.tree.update(torch.arange(self.tree.n, device=table.device), self._sums)
        self.touched.zero_()
        self.is_built, self.since_update, self.since_rebuild = True, 0, 0
        self._is_noise_checked = False
        self.sampler.update_features()

    def _sums(self, index: Tensor) -> Tensor:
        """Sums Σ π φ(c) of blocks (n,), or of places (n,) if the tree keeps features: (n, W). Also writes the copy."""
        scaled = self._required_view
        if self.tree.features is None:
            place, prior = self.blocks.places(index)                                 # (n, leaf) each
        else:
            place, prior = index.unsqueeze(1), self.blocks.prior[index].unsqueeze(1)
        places = place.flatten()
        c = inner_product.candidate_rows(scaled.view, self.blocks.order[places])
        if self.copy is not None:
            self.copy.write(places, c)
        y = (c.float() * scaled.scale).view(*place.shape, -1)
        sums = self.feature_map.sums(y, prior.to(y.dtype))
        # both are NaN if one number is
        if sums.numel() and not all(map(math.isfinite, torch.stack(sums.aminmax()).tolist())):
            raise UsageError(f"{key('source')}: {self.name}: the features of a candidate are not finite: its vector "
                             "is not, or is too long for this kernel; lower train.lr, or set train.clip")
        return sums

    def _warn_if_noisy(self, query: TreeQuery) -> None:
        """Log a warning, once, if the weights are mostly noise from random features."""
        positive = self.feature_map.positive
        self._is_noise_checked, self.floored_fraction = True, self.tree.floored_fraction(query, positive)
        if self.floored_fraction >= MAX_FLOORED_FRACTION and not self._has_warned:
            self._has_warned = True
            masses, draws = ("below their floor", "uniform draws") if positive else ("negative", "noise")
            _log.warning("%s: %s: %.0f %% of the nodes' masses are %s with %s, and are raised to their floor, so the "
                         "draws are close to %s; lower %s, or raise %s or %s", key("source"), self.name,
                         100 * self.floored_fraction, masses, self.feature_map.description, draws, key("nu"),
                         key("features"), key("leaf_size"))

    def on_moved(self, ids: Tensor) -> None:
        """Sum the blocks of these candidates again at the next update."""
        if self.config.update_every:
            self.touched[self.blocks.place[ids]] = True

    def reseed(self, seed: int) -> None:
        super().reseed(seed)
        self.counter_rng.restart()

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "counts": self.blocks.sha256(), "sums": self.tree.stored_tensors(),
                "copy": stored_tensors(self.copy), "map": self.feature_map.state(), "touched": self.touched,
                "built": self.is_built, "since_update": self.since_update, "since_rebuild": self.since_rebuild,
                "numbers": self.counter_rng.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.counter_rng.load(state["numbers"])
        self.feature_map.load({name: saved.to(self.problem.device) for name, saved in state["map"].items()})
        if state.get("counts", self.blocks.sha256()) != self.blocks.sha256():
            self.is_built = False                             # the sums are of other blocks: made again when needed
            return
        for tensor, saved in zip(self.tree.stored_tensors(), state["sums"], strict=True):
            tensor.copy_(saved)
        for tensor, saved in zip(stored_tensors(self.copy), state["copy"] or (), strict=True):  # null if old
            tensor.copy_(saved)
        self.sampler.update_features()
        touched = state["touched"]
        if len(touched) != len(self.touched):                # by block, in an older checkpoint
            touched = touched.repeat_interleave(self.tree.leaf)[:self.tree.n]
        self.touched.copy_(touched)
        self.is_built, self.since_update, self.since_rebuild = (state[key] for key in (
            "built", "since_update", "since_rebuild"))
