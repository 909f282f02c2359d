"""Draws candidates through a tree of features.

On the CPU the compiled core draws a batch in one call (kernels/sampling/tree_draw.py), and computes Fourier features of
the queries too; those of other maps come from PyTorch. With `within_leaf: kernel` and blocks of several candidates, and
elsewhere, a walk selects the blocks (sum_tree.py), and the candidates inside them are drawn afterwards (inside.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.kernels.core.binding import BufferView
from embtrain.kernels.core.loader import core
from embtrain.kernels.sampling import tree_draw as kernel
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import CounterRng
from embtrain.negatives.sampling.within_cell import CellCore, DrawBuffers, as_flat
from embtrain.negatives.softmax.kernels.blocks import CandidateBlocks, ScaledView
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.inside import BlockSampler, KernelQueries
from embtrain.negatives.softmax.kernels.sum_tree import MAX_NUMBERS, ExcludedTargets, SumTree, TreeQuery

CheckQueries = Callable[[TreeQuery], None]


@dataclass(frozen=True)
class TreeRules:
    """Rules of a draw: distribution inside a block, exclusions, sharing."""

    exact: bool            # inside a block by e^o, else by the kernel
    excludes_target: bool
    floor: float           # ε(h) relative to K at o = 0
    share: str             # "row" or "window": rows that share a draw


class TreeSampler:
    """Draws and probabilities through a tree, with the compiled core or with PyTorch."""

    def __init__(self, tree: SumTree, blocks: CandidateBlocks, feature_map: FeatureMap, rules: TreeRules,
                 rng: CounterRng):
        self.tree, self.blocks, self.feature_map, self.rules, self.rng = tree, blocks, feature_map, rules, rng
        self.inside, self._buffers = BlockSampler(blocks, feature_map, rules.exact), DrawBuffers()
        self._core_tree: tuple[CellCore | None, kernel.TreeBlocks, float] | None = None   # and L; None: to be rebuilt

    def draw(self, query: Query, k: int, scaled: ScaledView, touched: Tensor | None, check: CheckQueries | None
             ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Draw k candidates for each draw.

        Returns ids (G, k), their log q (G, k), the draw of each row (B,) (None: one per row), and log q of the targets
        (B,), which is empty if they are excluded. touched (V,) bool: set for the places of all candidates returned, and
        of the targets. check: receives the encoded queries.
        """
        unique, query_id, row_query, draw_id = query, None, None, None
        if query.query_id is not None or self.rules.share == "window":
            unique, query_id, _, draw_id = inner_product.queries_per_draw(query, self.rules.share)
            row_query = query_id if draw_id is None else query.unique()[1]
        core_tree = self._find_core(unique, scaled)
        encoded = None
        if core_tree is None or core_tree.w is None or check is not None:
            encoded = self.encode(unique, scaled)
            if check is not None:
                check(encoded.tree)
            if query_id is None:
                query_id = row_query = query.unique()[1]
        if core_tree is not None:
            ids, log_q, log_q_target = self._draw_with_core(core_tree, scaled, unique, encoded, query_id, row_query,
                                                            query.target, k, touched)
        else:
            assert encoded is not None and query_id is not None and row_query is not None
            ids, log_q, log_q_target = self._draw_with_torch(scaled, encoded, query_id, row_query, query.target, k,
                                                             touched)
        return ids, log_q, draw_id, log_q_target

    def log_prob(self, query: Query, ids: Tensor, scaled: ScaledView) -> Tensor:
        """log q of ids (1, K) or (B, K): (B, K); -inf for an excluded target."""
        unique, query_id = query.unique()
        encoded, k = self.encode(unique, scaled), ids.shape[1]
        place = self.blocks.place[ids.expand(len(query), -1)].flatten()
        excluded = None
        if self.rules.excludes_target:
            excluded = self._excluded_targets(scaled, encoded, query_id, query.target, k)
        log_q = self._find_places(scaled, encoded, query_id.repeat_interleave(k), place, excluded, None)[1]
        if excluded is not None:
            log_q = log_q.masked_fill(place == excluded.position, -torch.inf)
        return log_q.view(-1, k)

    def encode(self, unique: Query, scaled: ScaledView) -> KernelQueries:
        """Encode the distinct queries."""
        h = inner_product.query_vectors(unique, scaled.view)
        x = h.double() * (scaled.scale / scaled.view.tau)
        floor = self.rules.floor * self.feature_map.log_neutral(x).clamp_(min=-600, max=600).exp_()
        return KernelQueries(h, x, TreeQuery(self.feature_map.encode_queries(x), floor))

    # -- with the compiled core, in one call ----------------------------------------------------------------------

    def _find_core(self, unique: Query, scaled: ScaledView) -> kernel.TreeBlocks | None:
        """The tree and the model for the core; None if it cannot do all of the work."""
        levels, cell_core = self.tree.levels, None
        if levels is None or unique.vector.dtype != torch.float32:
            return None
        if self.tree.leaf > 1:
            cell_core = self.blocks.core(scaled.view) if self.rules.exact else None
        if core() is None if self.tree.leaf == 1 else cell_core is None:
            return None
        if self._core_tree is None or self._core_tree[0] is not cell_core:
            w, largest = self.feature_map.fourier() or (None, 0.0)
            self._core_tree = cell_core, kernel.TreeBlocks(
                levels, None if cell_core is None else cell_core.members, self.blocks.order.numpy(),
                self.blocks.place.numpy(), self.blocks.prior.numpy(), None if w is None else w.numpy(),
                core()), largest
        return self._core_tree[1]

    def update_features(self) -> None:
        """Read the feature map again, after its directions or offsets have changed."""
        self._core_tree = None

    def _draw_with_core(self, core_tree: kernel.TreeBlocks, scaled: ScaledView, unique: Query,
                        encoded: KernelQueries | None, query_id: Tensor | None, row_query: Tensor | None,
                        target: Tensor, k: int, touched: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `_draw_with_torch`. encoded: needed if the core cannot compute φ(h).

        Otherwise query_id and row_query may be None: each row has its own query.
        """
        assert self._core_tree is not None
        extra, excludes_target = tuple[BufferView, ...](), self.rules.excludes_target
        if core_tree.w is None:
            assert encoded is not None and query_id is not None
            extra = as_flat(encoded.tree.phi.float()), as_flat(encoded.tree.floor)
            if excludes_target:
                extra += (as_flat(self._excluded_targets(scaled, encoded, query_id, target, 1).mass),)
        batch = kernel.TreeDrawRequest(
            as_flat(unique.vector), None if query_id is None else as_flat(query_id),
            None if row_query is None else as_flat(row_query), as_flat(target),
            scaled.view.tau if scaled.view.geometry == "cosine" else 0.0, scaled.scale / scaled.view.tau,
            self.rules.floor, self._core_tree[2], *extra)
        n = batch.draws
        (ids, log_q, log_q_target), outputs = self._buffers.take(n, k, 0 if excludes_target else len(target))
        marks = None if touched is None else as_flat(touched)
        kernel.draw_into(outputs, core_tree, batch, excludes_target, self.rng.seeds, marks, self.rng.reserve(n, k),
                         torch.get_num_threads())
        return ids, log_q, log_q_target

    # -- step by step, with PyTorch -------------------------------------------------------------------------------

    def _draw_with_torch(self, scaled: ScaledView, encoded: KernelQueries, query_id: Tensor, row_query: Tensor,
                         target: Tensor, k: int, touched: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Draw k ids for the queries (G,). Returns ids and log q, (G, k) each, and log q of the targets (B,).

        The last is empty if targets are excluded.
        """
        n, request_query, excluded, place_of = len(query_id) * k, query_id.repeat_interleave(k), None, self.blocks.place
        requested = torch.full_like(request_query, -1)
        if self.rules.excludes_target:
            excluded = self._excluded_targets(scaled, encoded, query_id, target, k)
        else:                                                # log q of the targets in the same walk
            request_query, requested = torch.cat([request_query, row_query]), torch.cat([requested, place_of[target]])
        place, log_q = self._find_places(scaled, encoded, request_query, requested, excluded, self.rng.random)
        if touched is not None:
            touched[place] = True
            touched[place_of[target]] = True
        return self.blocks.order[place[:n]].view(-1, k), log_q[:n].view(-1, k), log_q[n:]

    def _find_places(self, scaled: ScaledView, encoded: KernelQueries, query_id: Tensor, requested: Tensor,
                     excluded: ExcludedTargets | None, random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places (N,) for the queries (N,), and their log q in float32.

        requested (N,): a place to look up, or -1 to draw one.
        """
        n, step, tree = len(query_id), max(1, MAX_NUMBERS // max(self.tree.fan, self.tree.leaf)), self.tree
        if n > step:
            parts = [self._find_places(scaled, encoded, query_id[a:a + step], requested[a:a + step],
                                       excluded and ExcludedTargets(*(x[a:a + step] for x in (
                                           excluded.position, excluded.mass, excluded.prior))), random)
                     for a in range(0, n, step)]
            return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        if tree.leaf == 1:
            place, log_q = tree.walk(encoded.tree, query_id, requested, excluded, random)
            return place, log_q.float()
        requested_block = torch.div(requested, tree.leaf, rounding_mode="floor")                         # -1 stays -1
        block, log_q = tree.walk(encoded.tree, query_id, requested_block, excluded, random)
        place, log_share_within = self.inside.find_places(scaled, encoded, query_id, block, requested, excluded, random)
        return place, (log_q + log_share_within).float()

    def _excluded_targets(self, scaled: ScaledView, encoded: KernelQueries, query_id: Tensor, target: Tensor, k: int
                          ) -> ExcludedTargets:
        """Place, weight and prior of the target of each row (B,), repeated for k draws."""
        place, mass = self.blocks.place[target], []
        prior = self.blocks.prior[place]
        for part in torch.arange(len(place), device=place.device).split(max(1, MAX_NUMBERS // self.tree.width)):
            if self.tree.leaf == 1:
                phi = self.tree.sums[-1].read(place[part])                        # as stored in the tree
                mass.append((phi * encoded.tree.phi[query_id[part]]).sum(1))
            else:
                y, part_query = scaled.class_vectors(target[part], torch.float64).unsqueeze(1), query_id[part]
                k_target = self.feature_map.kernel(encoded.x[part_query], encoded.tree.phi[part_query], y)[:, 0]
                mass.append(k_target * prior[part])
        return ExcludedTargets(*(v.repeat_interleave(k) for v in (place, torch.cat(mass), prior)))
