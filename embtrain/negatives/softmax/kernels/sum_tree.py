"""A sum tree over the candidates: draws in proportion to an inner product of features, in O(log V).

The candidates are in a fixed order, `leaf` of them form a block, blocks are the lowest nodes, and `fan` nodes share a
parent. Node N stores S_N = Σ_{i∈N} π_i φ(c_i), P_N = Σ_{i∈N} π_i and |N|. At each node the walk selects a child N in
proportion to

    m_N(h) = max( φ(h)·S_N, ε(h) P_N ),   0 if |N| = 0;      q(block) = Π over its path of m_N / Σ_{siblings} m

(Rawat et al. 2019, eq. 14, for fan = 2 and leaf = 1.) Random features make some φ(h)·S negative, so ε is needed. The
same m define the draw and its probability, which is exact for any sums, stale or not. To exclude target t, its
π_t φ(h)·φ(c_t), π_t and 1 are subtracted from the nodes above it, for that row alone.

On the CPU the compiled core walks (kernels/sampling/tree_walk.py), with φ(h) in float32; otherwise PyTorch does.

Sums are never incremented. A changed block is summed again, then every node above it from its children, each in float64
and then stored as row_store.py does. A partial update thus gives the same result as a rebuild, and rounding errors do
not accumulate. A tree that keeps the features π φ(c) of each candidate, stored likewise, sums a block from them, so
that only changed candidates are encoded again; without them one changed candidate in each block costs as much as all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embtrain.common import machine
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import ResourceError
from embtrain.kernels.arguments.trees import SumLevels
from embtrain.kernels.core.loader import core
from embtrain.kernels.sampling import tree_sums as kernel_sums, tree_walk as kernel
from embtrain.negatives.sampling.inverse_cdf import draw_seed, sample_proportional
from embtrain.negatives.sampling.row_store import RowStore, StoredDtype, n_bytes, stored_tensors

MAX_NUMBERS = 4_000_000        # numbers gathered or multiplied at once
MAX_CACHED_NUMBERS = 1 << 18   # numbers gathered and summed at once, few enough to stay in the cache
GIB = 1 << 30


@dataclass(frozen=True)
class TreeQuery:
    """Encoded distinct queries."""

    phi: Tensor      # (Q, W) float64  φ(h)
    floor: Tensor    # (Q,) float64    ε(h)


@dataclass(frozen=True)
class ExcludedTargets:
    """Targets that N draws must not return."""

    position: Tensor  # (N,)  place in the order
    mass: Tensor      # (N,) float64  π_t φ(h)·φ(c_t)
    prior: Tensor     # (N,) float64  π_t


class SumTree:
    """Sums of features at every node.

    prior: π in the tree's order, (V,) float64. width: W, numbers of φ. fan, leaf: children per node, candidates per
    block. memory: maximum size in GiB. kind: data type of the sums. keep_features: keep those of each candidate too.
    Raises ResourceError if the sums and features need more memory.
    """

    def __init__(self, prior: Tensor, width: int, fan: int, leaf: int, memory: float, device: str,
                 kind: StoredDtype = "float32", keep_features: bool = False):
        self.n, self.width, self.fan, self.leaf = len(prior), width, fan, leaf
        self.blocks = math.ceil(self.n / leaf)
        levels = [self.blocks]
        while levels[0] > fan:
            levels.insert(0, math.ceil(levels[0] / fan))
        parents = [1, *levels[:-1]]
        # Each parent has `fan` places; a place after the last node has |N| = 0.
        self.nodes = [parent * fan for parent in parents]                            # places of each level, root first
        keep_features = keep_features and leaf > 1           # a block of one candidate is its features
        rows = sum(self.nodes) + keep_features * self.nodes[-1] * leaf
        required, free = n_bytes(rows, width, kind), machine.free()
        limit, limit_text = min((memory * GIB, f"than {memory:g} GiB"), (free, f"than is free ({free / GIB:.2f} GiB)"))
        if required > limit:
            raise ResourceError(
                f"{key('max_gib')}: the sums of {self.n:,} candidates take {rows:,} nodes x {width:,} "
                f"numbers x {'4 bytes' if kind == 'float32' else '1 byte'} = {required / GIB:.2f} GiB, more "
                f"{limit_text}; raise {key('leaf_size')} (now {leaf}), {key('branching')} (now {fan}) or "
                f"{key('max_gib')}, or "
                f"lower {key('features')}" + (f", or set {key('sum_dtype')}: int8" if kind == "float32" else "")
                + (f", or set {key('keep_features')}: false" if keep_features else ""))
        self.sums = [RowStore(n, width, kind, device) for n in self.nodes]  # S; root first, as in all lists
        self.features = RowStore(self.nodes[-1] * leaf, width, kind, device) if keep_features else None  # π φ(c)
        priors = torch.zeros(self.nodes[-1] * leaf, dtype=torch.float64, device="cpu")
        priors[:self.n] = prior.cpu()
        p, n = priors.view(-1, leaf).sum(1), _lengths(self.n, leaf, self.nodes[-1])
        self.prior, self.count = [p.to(device)], [n.to(device)]                      # P float64, |N| int64
        for n_nodes in reversed(self.nodes[:-1]):
            p, n = (_padded(x.view(-1, fan).sum(1), n_nodes) for x in (p, n))
            self.prior.insert(0, p.to(device))
            self.count.insert(0, n.to(device))
        self.levels: kernel.TreeLevels | None = None                                     # for the core
        self._block_levels: SumLevels | None = None                                      # blocks and features
        if torch.device(device).type == "cpu":
            level_priors, level_counts = ([x.numpy() for x in arrays] for arrays in (self.prior, self.count))
            stored, scales = _arrays(self.sums)
            self.levels = kernel.TreeLevels(stored, level_priors, level_counts, fan, leaf, scales)
            if self.features is not None:
                stored, scales = _arrays([self.sums[-1], self.features])
                self._block_levels = SumLevels(stored, leaf, scales)

    # -- sums -----------------------------------------------------------------------------------------------------

    def update(self, places: Tensor, sums: Callable[[Tensor], Tensor]) -> None:
        """Sum the blocks of candidates again, and every node above them. places (n,): theirs, increasing.

        sums: function that computes the sums (m, W) of blocks (m,), or with keep_features those of places (m,), π φ(c).
        """
        blocks = places // self.leaf                         # with repetitions
        if self.features is None:
            blocks = torch.unique_consecutive(blocks)
            for part in blocks.split(max(1, MAX_NUMBERS // (self.leaf * self.width))):
                self.sums[-1].write(part, sums(part))
        else:
            for part in places.split(max(1, MAX_CACHED_NUMBERS // self.width)):
                self.features.write(part, sums(part))
            _sum_above([self.sums[-1], self.features], self.leaf, self._block_levels, places)
        _sum_above(self.sums, self.fan, self.levels, blocks)

    def stored_tensors(self) -> list[Tensor]:
        """The tensors of the sums and features, for a checkpoint."""
        return stored_tensors(*self.sums, self.features)

    # -- drawing --------------------------------------------------------------------------------------------------

    def walk(self, query: TreeQuery, query_id: Tensor, requested: Tensor, excluded: ExcludedTargets | None,
             random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """A block for each of N requests of the queries (N,), and its log q: (N,) int64, (N,) float64.

        requested (N,): a block to look up, or -1 to draw one. random: None if nothing is drawn.
        """
        if self.levels is not None and core() is not None:
            seed = 0 if random is None else draw_seed(random)
            return self._walk_with_core(self.levels, query, query_id, requested, excluded, seed)
        node, log_q = torch.zeros_like(query_id), query.floor.new_zeros(len(query_id))
        for level in range(len(self.sums)):
            mass = self.masses(level, query, query_id, node, excluded)                # (N, fan)
            slot = requested // self.fan ** (len(self.sums) - 1 - level) % self.fan
            if random is not None:
                slot = torch.where(requested < 0, choose_column(mass, random)[0], slot)
            node, log_q = node * self.fan + slot, log_q + log_share(mass, slot)
        return node, log_q

    def _walk_with_core(self, levels: kernel.TreeLevels, query: TreeQuery, query_id: Tensor, requested: Tensor,
                        excluded: ExcludedTargets | None, seed: int) -> tuple[Tensor, Tensor]:
        """`walk` with the compiled core."""
        excluded_arrays = () if excluded is None else (excluded.position, excluded.mass, excluded.prior)
        batch = kernel.WalkRequest(query.phi.float().contiguous().numpy(), query.floor.contiguous().numpy(),
                            *(x.contiguous().numpy() for x in (query_id, *excluded_arrays)))
        result = kernel.walk(levels, batch, requested.contiguous().numpy(), seed, threads=torch.get_num_threads())
        return torch.from_numpy(result[0]), torch.from_numpy(result[1])

    def masses(
        self, level: int, query: TreeQuery, query_id: Tensor, parent: Tensor, excluded: ExcludedTargets | None
    ) -> Tensor:
        """Weights m of the children of nodes (N,): (N, fan) float64.

        All probabilities of the PyTorch version are computed from them.
        """
        raw = self._dot_products(level, query.phi, query_id, parent)
        prior, count = (x[level].view(-1, self.fan)[parent] for x in (self.prior, self.count))
        if excluded is not None:
            ancestor = excluded.position // (self.leaf * self.fan ** (len(self.sums) - 1 - level))
            is_child = ancestor // self.fan == parent
            slot = (ancestor % self.fan).unsqueeze(1)
            def subtract(x: Tensor, by: Tensor) -> Tensor:
                return x.scatter_add(1, slot, torch.where(is_child, -by, torch.zeros_like(by)).unsqueeze(1))
            raw, prior = subtract(raw, excluded.mass), subtract(prior, excluded.prior).clamp_(min=0)
            count = subtract(count, torch.ones_like(slot[:, 0]))
        return torch.maximum(raw, query.floor[query_id].unsqueeze(1) * prior).masked_fill_(count <= 0, 0.0)

    def _dot_products(self, level: int, phi: Tensor, query_id: Tensor, parent: Tensor) -> Tensor:
        """φ(h)·S of the children of nodes (N,), once for each distinct pair of query and node: (N, fan) float64."""
        parents, sums = self.nodes[level] // self.fan, self.sums[level]
        phi = sums.round_query(phi)
        if len(phi) * self.nodes[level] <= min(4 * len(parent) * self.fan, 4 * MAX_NUMBERS):
            # About as many weights are requested as exist: one GEMM is cheaper than gathering the sums.
            step = max(1, MAX_NUMBERS // self.width)
            all_products = torch.cat([phi @ sums.read(slice(a, a + step)).T for a in range(0, len(sums), step)], 1)
            return all_products.view(len(phi), parents, self.fan)[query_id, parent]
        unique_pairs, pair_index = torch.unique(query_id * parents + parent, return_inverse=True)
        out = []
        for part in unique_pairs.split(max(1, MAX_NUMBERS // (self.fan * self.width))):
            children, query = _children(sums, self.fan, part % parents), phi[part // parents].unsqueeze(2)
            out.append(torch.bmm(children, query).squeeze(2))
        return torch.cat(out)[pair_index]

    def floored_fraction(self, query: TreeQuery, use_floor: bool = False) -> float:
        """Share of the lowest nodes whose φ(h)·S is negative, or below its floor if use_floor is set.

        Estimated on at most 64 queries and 4,096 nodes.
        """
        is_real = self.count[-1].nonzero().squeeze(1)
        nodes = is_real[:: math.ceil(len(is_real) / 4096)]
        threshold = query.floor[:64].unsqueeze(1) * self.prior[-1][nodes] if use_floor else 0.0
        phi = self.sums[-1].round_query(query.phi[:64])
        return float((phi @ self.sums[-1].read(nodes).T < threshold).double().mean())


def _arrays(stores: Sequence[RowStore]) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """The stored rows, and their scales if they are int8."""
    return [s.stored.numpy() for s in stores], [s.scale.numpy() for s in stores if s.scale is not None] or None


def _sum_above(levels: Sequence[RowStore], fan: int, arrays: SumLevels | None, changed: Tensor) -> None:
    """Sum every node above changed rows (n,), ascending, of the last level. arrays: the levels, for the core."""
    if arrays is not None and core() is not None:
        kernel_sums.update(arrays, changed.contiguous().numpy(), torch.get_num_threads())
        return
    for below, above in zip(levels[:0:-1], levels[-2::-1], strict=True):
        changed = torch.unique_consecutive(changed // fan)
        for part in changed.split(max(1, MAX_CACHED_NUMBERS // (fan * below.stored.shape[1]))):
            above.write(part, _children(below, fan, part).sum(1))


def _children(level: RowStore, fan: int, parents: Tensor) -> Tensor:
    """S of the children, in their level, of nodes (N,): (N, fan, W) float64."""
    child = parents.unsqueeze(1) * fan + torch.arange(fan, device=parents.device)
    return level.read(child.flatten()).view(*child.shape, -1)


def choose_column(mass: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw a column of each row of weights (N, F) float64, in proportion to them; returns it and its log share."""
    toss = torch.rand(len(mass), 1, generator=random, device=mass.device, dtype=torch.float64)
    slot = sample_proportional(mass, toss).squeeze(1)
    return slot, log_share(mass, slot)


def log_share(mass: Tensor, slot: Tensor) -> Tensor:
    """log of the share of columns (N,) in the weights (N, F): (N,)."""
    return mass.gather(1, slot.unsqueeze(1)).squeeze(1).log() - mass.sum(1).log()


def _padded(x: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, length - len(x)))


def _lengths(n: int, leaf: int, places: int) -> Tensor:
    """Number of the n candidates in each block of `leaf`, (places,)."""
    return (n - leaf * torch.arange(places, device="cpu")).clamp(0, leaf)
