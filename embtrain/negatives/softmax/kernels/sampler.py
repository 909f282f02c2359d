"""Draws candidates through a tree of features. The base class of `KernelSource`.

On the CPU the compiled core draws a batch in one call (kernels/sampling/tree_draw.py), and computes Fourier features of
the queries too; those of other maps come from PyTorch. With `within_leaf: kernel` and blocks of several candidates, and
elsewhere, a walk selects the blocks (sum_tree.py), and the candidates inside them are drawn afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Query
from embtrain.kernels.core.library import BufferView, core
from embtrain.kernels.sampling import tree_draw as kernel
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import CounterRng, draw_seed
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import CellCore, CellIndex, DrawBuffers, as_flat
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.sum_tree import (
    MAX_NUMBERS,
    ExcludedTargets,
    SumTree,
    TreeQuery,
    choose_column,
    log_share,
)

CANDIDATES_PER_GROUP = 64   # candidates gathered together, if blocks are smaller
MIN_QUERIES_PER_GROUP = 4   # queries per group above which one GEMM per group is cheaper


@dataclass(frozen=True)
class ScaledView:
    """The current model, and the scales x = s h, y = s c; o = logit · x·y."""

    view: ModelView
    scale: float

    @property
    def logit(self) -> float:
        return self.view.tau / self.scale ** 2


@dataclass(frozen=True)
class KernelQueries:
    """Distinct queries: h (Q, d), o = h·c; x (Q, d) float64; for the tree φ(h), and ε(h) = floor · K at o = 0."""

    h: Tensor
    x: Tensor
    tree: TreeQuery


class TreeSampling(NegativeSource):
    """Draws and probabilities through a tree. `KernelSource` sets the attributes declared here."""

    exact: bool                            # draws inside a block are by e^o
    excludes_target: bool                  # the target is not drawn
    floor: float                           # ε(h) relative to K at o = 0
    feature_map: FeatureMap
    tree: SumTree
    cell_index: CellIndex                  # of the blocks
    copy: RowStore | None = None           # (V, D)        int8 copy of c by place, with within_leaf: quantized
    order: Tensor                          # (V,)          candidate at each place
    place: Tensor                          # (V,)          place of each candidate
    prior: Tensor                          # (V,) float64  π by place
    buffers: DrawBuffers
    counter_rng: CounterRng                # random numbers of the core
    scaled_view: ScaledView | None = None
    _core_blocks: tuple[CellCore | None, kernel.TreeBlocks, float] | None = None  # and L; None: to be rebuilt

    @property
    def _required_view(self) -> ScaledView:
        if self.scaled_view is None:
            raise UsageError(f"negatives.source: {self.name} has not seen the model yet, so it has no probabilities")
        return self.scaled_view

    # -- with the compiled core, in one call ----------------------------------------------------------------------

    def _core(self, unique: Query) -> kernel.TreeBlocks | None:
        """The tree and the model for the core; None if it cannot do all of the work."""
        levels, cell_core = self.tree.levels, None
        if levels is None or unique.vector.dtype != torch.float32:
            return None
        if self.tree.leaf > 1:
            cell_core = self.cell_index.cell_core(self._required_view.view) if self.exact else None
        if core() is None if self.tree.leaf == 1 else cell_core is None:
            return None
        if self._core_blocks is None or self._core_blocks[0] is not cell_core:
            w, largest = self.feature_map.fourier() or (None, 0.0)
            self._core_blocks = cell_core, kernel.TreeBlocks(
                levels, None if cell_core is None else cell_core.members, self.order.numpy(), self.place.numpy(),
                self.prior.numpy(), None if w is None else w.numpy(), core()), largest
        return self._core_blocks[1]

    def _draw_with_core(self, blocks: kernel.TreeBlocks, unique: Query, encoded: KernelQueries | None,
                        query_id: Tensor | None, row_query: Tensor | None, target: Tensor, k: int,
                        touched: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `_draw_with_torch`. encoded: needed if the core cannot compute φ(h).

        Otherwise query_id and row_query may be None: each row has its own query.
        """
        assert self._core_blocks is not None
        scaled, extra = self._required_view, tuple[BufferView, ...]()
        if blocks.w is None:
            assert encoded is not None and query_id is not None
            extra = as_flat(encoded.tree.phi.float()), as_flat(encoded.tree.floor)
            if self.excludes_target:
                extra += (as_flat(self._excluded_targets(encoded, query_id, target, 1).mass),)
        batch = kernel.TreeDrawRequest(
            as_flat(unique.vector), None if query_id is None else as_flat(query_id),
            None if row_query is None else as_flat(row_query), as_flat(target),
            scaled.view.tau if scaled.view.geometry == "cosine" else 0.0, scaled.scale / scaled.view.tau, self.floor,
            self._core_blocks[2], *extra)
        n = batch.draws
        (ids, log_q, log_q_target), outputs = self.buffers.take(n, k, 0 if self.excludes_target else len(target))
        marks = None if touched is None else as_flat(touched)
        kernel.draw_into(outputs, blocks, batch, self.excludes_target, self.counter_rng.seeds, marks,
                         self.counter_rng.reserve(n, k), torch.get_num_threads())
        return ids, log_q, log_q_target

    # -- step by step, with PyTorch -------------------------------------------------------------------------------

    def _draw_with_torch(self, encoded: KernelQueries, query_id: Tensor, row_query: Tensor, target: Tensor, k: int,
                         touched: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Draw k ids for the queries (G,). Returns ids and log q, (G, k) each, and log q of the targets (B,).

        The last is empty if targets are excluded. touched (blocks,) bool: set for the blocks of all candidates
        returned.
        """
        n, request_query, excluded = len(query_id) * k, query_id.repeat_interleave(k), None
        requested = torch.full_like(request_query, -1)
        if self.excludes_target:
            excluded = self._excluded_targets(encoded, query_id, target, k)
        else:                                                # log q of the targets in the same walk
            request_query, requested = torch.cat([request_query, row_query]), torch.cat([requested, self.place[target]])
        place, log_q = self._find_places(encoded, request_query, requested, excluded, self.random)
        if touched is not None:
            touched[place // self.tree.leaf] = True
            touched[self.place[target] // self.tree.leaf] = True
        return self.order[place[:n]].view(-1, k), log_q[:n].view(-1, k), log_q[n:]

    def _find_places(self, encoded: KernelQueries, query_id: Tensor, requested: Tensor,
                     excluded: ExcludedTargets | None, random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places (N,) for the queries (N,), and their log q in float32.

        requested (N,): a place to look up, or -1 to draw one.
        """
        n, step = len(query_id), max(1, MAX_NUMBERS // max(self.tree.fan, self.tree.leaf))
        if n > step:
            parts = [self._find_places(encoded, query_id[a:a + step], requested[a:a + step],
                                       excluded and ExcludedTargets(*(x[a:a + step] for x in (
                                           excluded.position, excluded.mass, excluded.prior))), random)
                     for a in range(0, n, step)]
            return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        if self.tree.leaf == 1:
            place, log_q = self.tree.walk(encoded.tree, query_id, requested, excluded, random)
            return place, log_q.float()
        requested_block = torch.div(requested, self.tree.leaf, rounding_mode="floor")                    # -1 stays -1
        block, log_q = self.tree.walk(encoded.tree, query_id, requested_block, excluded, random)
        place, log_share_within = self._draw_within(encoded, query_id, block, requested, excluded, random)
        return place, (log_q + log_share_within).float()

    def _draw_within(self, encoded: KernelQueries, query_id: Tensor, block: Tensor, requested: Tensor,
                     excluded: ExcludedTargets | None, random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places in blocks (N,), drawn where `requested` is -1, and their log share of the block."""
        core = self.cell_index.cell_core(self._required_view.view) if self.exact else None
        if core is not None:
            excluded_places = None if excluded is None else excluded.position
            seed = 0 if random is None else draw_seed(random)
            return core.sample(encoded.h, query_id, block, requested, excluded_places, seed)[:2]
        x = encoded.x
        if self.copy is not None:
            x = self.copy.round_query(encoded.h) * (self._required_view.scale / self._required_view.view.tau)
        mass = self._block_masses(x, encoded.tree, query_id, block, excluded)
        slot = requested % self.tree.leaf
        if random is not None:
            slot = torch.where(requested < 0, choose_column(mass, random)[0], slot)
        return block * self.tree.leaf + slot, log_share(mass, slot)

    def _block_masses(
        self, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor, excluded: ExcludedTargets | None
    ) -> Tensor:
        """Weights of the candidates in blocks (N,): (N, leaf) float64.

        Computed once for each distinct pair of query and block.
        """
        tree, exact = self.tree, self.exact
        unique_pairs, pair_index = torch.unique(block * len(x) + query_id, return_inverse=True)      # sorted by block
        pair_block, pair_query = torch.div(unique_pairs, len(x), rounding_mode="floor"), unique_pairs % len(x)
        group, group_sizes = torch.unique_consecutive(pair_block // self._blocks_per_group, return_counts=True)
        if MIN_QUERIES_PER_GROUP * len(group) <= len(unique_pairs):
            mass = torch.cat([self._group_masses(x, query, a, w, group_id) for a, w, group_id in zip(
                pair_query.split(group_sizes.tolist()), pair_block.split(group_sizes.tolist()), group.tolist(),
                strict=True)])
        else:
            mass = self._pair_masses(x, query, pair_query, pair_block)
        mass = mass[pair_index]
        if excluded is not None:
            slot = (excluded.position % tree.leaf).unsqueeze(1)
            is_in_block = (excluded.position // tree.leaf == block).unsqueeze(1)
            is_excluded = torch.zeros_like(mass, dtype=torch.bool).scatter_(1, slot, is_in_block)
            mass.masked_fill_(is_excluded, -torch.inf if exact else 0.0)
        return (mass - mass.amax(1, keepdim=True)).exp() if exact else mass

    def _pair_masses(self, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor) -> Tensor:
        """Weights, or o if `exact`, of the candidates of blocks (P,) for queries (P,): (P, leaf)."""
        step, out = max(1, MAX_NUMBERS // (self.tree.leaf * self._row_width(x))), []
        for query_part, block_part in zip(query_id.split(step), block.split(step), strict=True):
            place, prior = self._block_places(block_part)                                     # (P, leaf) each
            y = self._block_vectors(place.flatten()).view(*place.shape, -1)                   # (P, leaf, d)
            if self.exact:
                mass = self._required_view.logit * torch.bmm(y, x[query_part].unsqueeze(2)).squeeze(2)
            else:
                mass = self.feature_map.kernel(x[query_part], query.phi[query_part], y)
                mass = torch.maximum(mass, query.floor[query_part].unsqueeze(1)) * prior
            out.append(mass.masked_fill_(prior == 0, -torch.inf if self.exact else 0.0))
        return torch.cat(out)

    def _group_masses(self, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor, group: int) -> Tensor:
        """As `_pair_masses`, for blocks (P,) of one group.

        Their candidates are gathered once and scored by matrix products.
        """
        blocks, out = torch.arange(self._blocks_per_group, device=x.device) + group * self._blocks_per_group, []
        place, prior = self._block_places(blocks)
        y = self._block_vectors(place.flatten())                                        # (stretch * leaf, d)
        step = max(1, MAX_NUMBERS // max(len(y), self._row_width(x)))
        for query_part, block_part in zip(query_id.split(step), block.split(step), strict=True):
            if self.exact:
                mass = self._required_view.logit * (x[query_part] @ y.T)
            else:
                mass = self.feature_map.all_products(x, query.phi, query_part, y)
                mass = torch.maximum(mass, query.floor[query_part].unsqueeze(1)) * prior.flatten()
            mass.masked_fill_(prior.flatten() == 0, -torch.inf if self.exact else 0.0)
            rows = torch.arange(len(query_part), device=x.device)
            out.append(mass.view(-1, *prior.shape)[rows, block_part - blocks[0]])
        return torch.cat(out)

    @property
    def _blocks_per_group(self) -> int:
        """Number of blocks in a group."""
        return max(1, CANDIDATES_PER_GROUP // self.tree.leaf)

    def _row_width(self, x: Tensor) -> int:
        """Numbers per vector that a weight is computed from."""
        return x.shape[1] if self.exact else self.feature_map.row_width

    def _excluded_targets(self, encoded: KernelQueries, query_id: Tensor, target: Tensor, k: int) -> ExcludedTargets:
        """Place, weight and prior of the target of each row (B,), repeated for k draws."""
        place, mass = self.place[target], []
        prior = self.prior[place]
        for part in torch.arange(len(place), device=place.device).split(max(1, MAX_NUMBERS // self.tree.width)):
            if self.tree.leaf == 1:
                phi = self.tree.sums[-1].read(place[part])                        # as stored in the tree
                mass.append((phi * encoded.tree.phi[query_id[part]]).sum(1))
            else:
                y, part_query = self._class_vectors(target[part], torch.float64).unsqueeze(1), query_id[part]
                k_target = self.feature_map.kernel(encoded.x[part_query], encoded.tree.phi[part_query], y)[:, 0]
                mass.append(k_target * prior[part])
        return ExcludedTargets(*(v.repeat_interleave(k) for v in (place, torch.cat(mass), prior)))

    # -- vectors and features -------------------------------------------------------------------------------------

    def _block_places(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Places of blocks (n,) and their π, (n, leaf) each.

        After the last candidate its place is repeated, with π = 0.
        """
        place = blocks.unsqueeze(1) * self.tree.leaf + torch.arange(self.tree.leaf, device=blocks.device)
        is_candidate = place < self.tree.n
        place = place.clamp(max=self.tree.n - 1)
        return place, self.prior[place].masked_fill(~is_candidate, 0.0)

    def _block_vectors(self, place: Tensor) -> Tensor:
        """y of places (n,) for draws inside a block, from the copy if there is one: (n, d) float64."""
        if self.copy is None:
            return self._class_vectors(self.order[place], torch.float64)
        return self.copy.read(place) * self._required_view.scale

    def _class_vectors(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """y of candidates (n,): (n, d)."""
        return inner_product.candidate_rows(self._required_view.view, ids).to(dtype) * self._required_view.scale

    def _encode(self, unique: Query) -> KernelQueries:
        """Encode the distinct queries."""
        scaled = self._required_view
        h = inner_product.query_vectors(unique, scaled.view)
        x = h.double() * (scaled.scale / scaled.view.tau)
        floor = self.floor * self.feature_map.log_neutral(x).clamp_(min=-600, max=600).exp_()
        return KernelQueries(h, x, TreeQuery(self.feature_map.encode_queries(x), floor))
