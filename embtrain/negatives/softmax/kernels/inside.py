"""Draws of candidates inside blocks: by score, with the compiled core or PyTorch, or by the kernel, with PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embtrain.negatives.sampling.inverse_cdf import draw_seed
from embtrain.negatives.softmax.kernels.blocks import CandidateBlocks, ScaledView
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.sum_tree import (
    MAX_NUMBERS,
    ExcludedTargets,
    TreeQuery,
    choose_column,
    log_share,
)

CANDIDATES_PER_GROUP = 64   # candidates gathered together, if blocks are smaller
MIN_QUERIES_PER_GROUP = 4   # queries per group above which one GEMM per group is cheaper


@dataclass(frozen=True)
class KernelQueries:
    """Distinct queries: h (Q, d), o = h·c; x (Q, d) float64; for the tree φ(h), and ε(h) = floor · K at o = 0."""

    h: Tensor
    x: Tensor
    tree: TreeQuery


class BlockSampler:
    """Draws inside blocks, by e^o if `exact`, else by the kernel."""

    def __init__(self, blocks: CandidateBlocks, feature_map: FeatureMap, exact: bool):
        self.blocks, self.feature_map, self.exact = blocks, feature_map, exact
        self.blocks_per_group = max(1, CANDIDATES_PER_GROUP // blocks.leaf)

    def find_places(self, scaled: ScaledView, encoded: KernelQueries, query_id: Tensor, block: Tensor,
                    requested: Tensor, excluded: ExcludedTargets | None, random: torch.Generator | None
                    ) -> tuple[Tensor, Tensor]:
        """Places in blocks (N,), drawn where `requested` is -1, and their log share of the block."""
        core = self.blocks.core(scaled.view) if self.exact else None
        if core is not None:
            excluded_places = None if excluded is None else excluded.position
            seed = 0 if random is None else draw_seed(random)
            return core.sample(encoded.h, query_id, block, requested, excluded_places, seed)[:2]
        x, leaf = encoded.x, self.blocks.leaf
        if self.blocks.copy is not None:
            x = self.blocks.copy.round_query(encoded.h) * (scaled.scale / scaled.view.tau)
        mass = self.masses(scaled, x, encoded.tree, query_id, block, excluded)
        slot = requested % leaf
        if random is not None:
            slot = torch.where(requested < 0, choose_column(mass, random)[0], slot)
        return block * leaf + slot, log_share(mass, slot)

    def masses(self, scaled: ScaledView, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor,
               excluded: ExcludedTargets | None) -> Tensor:
        """Weights of the candidates in blocks (N,): (N, leaf) float64.

        Computed once for each distinct pair of query and block.
        """
        leaf, exact = self.blocks.leaf, self.exact
        unique_pairs, pair_index = torch.unique(block * len(x) + query_id, return_inverse=True)      # sorted by block
        pair_block, pair_query = torch.div(unique_pairs, len(x), rounding_mode="floor"), unique_pairs % len(x)
        group, group_sizes = torch.unique_consecutive(pair_block // self.blocks_per_group, return_counts=True)
        if MIN_QUERIES_PER_GROUP * len(group) <= len(unique_pairs):
            mass = torch.cat([self._group_masses(scaled, x, query, a, w, group_id) for a, w, group_id in zip(
                pair_query.split(group_sizes.tolist()), pair_block.split(group_sizes.tolist()), group.tolist(),
                strict=True)])
        else:
            mass = self._pair_masses(scaled, x, query, pair_query, pair_block)
        mass = mass[pair_index]
        if excluded is not None:
            slot = (excluded.position % leaf).unsqueeze(1)
            is_in_block = (excluded.position // leaf == block).unsqueeze(1)
            is_excluded = torch.zeros_like(mass, dtype=torch.bool).scatter_(1, slot, is_in_block)
            mass.masked_fill_(is_excluded, -torch.inf if exact else 0.0)
        return (mass - mass.amax(1, keepdim=True)).exp() if exact else mass

    def _pair_masses(self, scaled: ScaledView, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor) -> Tensor:
        """Weights, or o if `exact`, of the candidates of blocks (P,) for queries (P,): (P, leaf)."""
        step, out = max(1, MAX_NUMBERS // (self.blocks.leaf * self._row_width(x))), []
        for query_part, block_part in zip(query_id.split(step), block.split(step), strict=True):
            place, prior = self.blocks.places(block_part)                                     # (P, leaf) each
            y = self.blocks.vectors(place.flatten(), scaled).view(*place.shape, -1)           # (P, leaf, d)
            if self.exact:
                mass = scaled.logit * torch.bmm(y, x[query_part].unsqueeze(2)).squeeze(2)
            else:
                mass = self.feature_map.kernel(x[query_part], query.phi[query_part], y)
                mass = torch.maximum(mass, query.floor[query_part].unsqueeze(1)) * prior
            out.append(mass.masked_fill_(prior == 0, -torch.inf if self.exact else 0.0))
        return torch.cat(out)

    def _group_masses(self, scaled: ScaledView, x: Tensor, query: TreeQuery, query_id: Tensor, block: Tensor,
                      group: int) -> Tensor:
        """As `_pair_masses`, for blocks (P,) of one group.

        Their candidates are gathered once and scored by matrix products.
        """
        blocks, out = torch.arange(self.blocks_per_group, device=x.device) + group * self.blocks_per_group, []
        place, prior = self.blocks.places(blocks)
        y = self.blocks.vectors(place.flatten(), scaled)                                # (blocks_per_group * leaf, d)
        step = max(1, MAX_NUMBERS // max(len(y), self._row_width(x)))
        for query_part, block_part in zip(query_id.split(step), block.split(step), strict=True):
            if self.exact:
                mass = scaled.logit * (x[query_part] @ y.T)
            else:
                mass = self.feature_map.all_products(x, query.phi, query_part, y)
                mass = torch.maximum(mass, query.floor[query_part].unsqueeze(1)) * prior.flatten()
            mass.masked_fill_(prior.flatten() == 0, -torch.inf if self.exact else 0.0)
            rows = torch.arange(len(query_part), device=x.device)
            out.append(mass.view(-1, *prior.shape)[rows, block_part - blocks[0]])
        return torch.cat(out)

    def _row_width(self, x: Tensor) -> int:
        """Numbers per vector that a weight is computed from."""
        return x.shape[1] if self.exact else self.feature_map.row_width
