"""Base of the kernel-based sources: q(c|h) ∝ π_c K(h, c) with K(h, c) = φ(h)·φ(c), drawn through a tree.

A sub-class gives φ. Scores are inner products, o = h·c, or τ times those of unit vectors (cosine); no other geometry
has an inner product to approximate. The tree keeps sums of φ(c) as of the last update, and those, however stale, are
the masses that draw and that are reported. Inside a block of several candidates, `inside: exact` draws in proportion
to e^o, `inside: kernel` to π K, both of the vectors as they are now.

A draw marks the candidates that it hands out, and the targets; their blocks are summed anew every `update` draws, and
all blocks when an epoch begins and every `rebuild` draws. With exclude_target, q is over the other candidates (Rawat
et al. 2019, section 1.1: s_i ∈ N_t): the target then has no q, and the density is conditional.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.negatives import product
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.feature_map import FeatureMap
from embtrain.negatives.tree import CELLS, Asked, Tree, Without, choose, log_share
from embtrain.types import Negatives, Query, View, World

NOISY = 0.4      # share of negative masses above which a kernel is little but noise (pure noise: .5)
SAMPLE = 4096    # vectors from which a feature map takes its offsets
_log = logging.getLogger(__name__)


class KernelConfig(NegativesConfig):
    exclude_target: bool = Field(False, description="draw among the candidates other than the target; it has no q then")
    fan: int = Field(2, ge=2, le=64, description="children of a node of the tree; the paper's has 2")
    leaf: int = Field(1, ge=1, le=65_536, description="candidates of a block, the lowest node; the paper's have 1")
    inside: Literal["exact", "kernel"] = Field("exact", description="how a block of several draws: by e^o, or by K")
    order: Literal["id", "frequency"] = Field("id", description="how candidates stand in the tree")
    prior: float = Field(0.0, ge=0, le=2, description="π = count^prior, which multiplies the kernel; 0: none")
    floor: float = Field(0.1, gt=0, le=1, description="ε, the least mass of a candidate, in parts of K at o = 0")
    update: int = Field(1, ge=0, description="draws between two updates of the candidates drawn since; 0: none")
    rebuild: int = Field(0, ge=0, description="draws between two rebuilds of the tree; 0: when an epoch begins")
    memory: float = Field(4.0, gt=0, le=4096, description="GiB that the tree may take")


@dataclass(frozen=True)
class _Seen:
    """The model as it is now, and the scales x = s h, y = s c; o = logit · x·y."""

    view: View
    scale: float

    @property
    def logit(self) -> float:
        return self.view.tau / self.scale ** 2


class KernelSource(NegativeSource):
    geometry = product.GEOMETRIES
    looks: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    config: KernelConfig

    def __init__(self, config: KernelConfig, world: World):
        super().__init__(config, world)
        refuse_settings(self.name, config, config.exclude_target, world)
        if world.dim < 1:
            raise UsageError(f"negatives.source: {self.name} makes features of the candidates' vectors, and this "
                             "model has none")
        if config.exclude_target:
            self.density = "conditional"
        self.iid = config.mass in (None, config.k)                                # else columns do not weigh 1
        order = torch.arange(world.n_candidates)
        if config.order == "frequency":
            order = torch.argsort(world.counts.cpu(), descending=True, stable=True)
        prior = prior_masses(world.counts.double().cpu(), config.prior)[order]
        stream = np.random.SeedSequence([world.seed, *b"features"])               # apart from that of the draws
        self.map = self.prepare(torch.Generator().manual_seed(int(stream.generate_state(1)[0])))
        self.tree = Tree(prior, self.map.width, config.fan, config.leaf, config.memory, world.device)
        self.order = order.to(world.device)                                       # (V,) the candidate of each place
        self.place = torch.argsort(self.order)                                    # (V,) the place of each candidate
        self.prior = prior.to(world.device)                                       # (V,) π by place, float64
        self.touched = torch.zeros(self.tree.blocks, dtype=torch.bool, device=world.device)
        self.built, self.since_update, self.since_rebuild = False, 0, 0
        self.negative_share = 0.0                                                 # of the masses, when last looked at
        self._seen: _Seen | None = None
        self._judged = self._warned = False

    def prepare(self, random: torch.Generator) -> FeatureMap:
        """φ, its random directions drawn."""
        raise TypeError(f"{type(self).__name__} does not implement prepare")

    # -- drawing --------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: View) -> Negatives:
        self._keep_up(view)
        asked, question, target, group = product.asked_by_draw(query, self.config.share)
        x, known = self._asked(asked)
        self._judge(known)
        ids, log_q = [], []
        for rows in torch.arange(len(question), device=question.device).split(self._rows_at_once(k)):
            asks, without = self._repeat(known, question[rows], target[rows], k)
            block, log_p = self.tree.draw(known, asks, without, self.random)
            place = block * self.tree.leaf
            if self.tree.leaf > 1:
                slot, more = choose(self._inside(x, known, asks, block, without), self.random)
                place, log_p = place + slot, log_p + more
            ids.append(self.order[place].view(-1, k))
            log_q.append(log_p.float().view(-1, k))
        drawn = torch.cat(ids)
        for touched in (drawn, query.target):
            self.touched[self.place[touched].flatten() // self.tree.leaf] = True
        of_target = None
        if not self.config.exclude_target:
            of_target = self._log_prob(query, query.target.unsqueeze(1), x, known)[:, 0]
        weight, mass = self.weight_and_mass(k)
        return Negatives(drawn, group=group, log_q=torch.cat(log_q), weight=weight, log_q_target=of_target, mass=mass)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """-inf for an excluded target."""
        return self._log_prob(query, ids.expand(len(query), -1), *self._asked(query.questions()[0]))

    def _log_prob(self, query: Query, ids: Tensor, x: Tensor, known: Asked) -> Tensor:
        question, k, out = query.questions()[1], ids.shape[1], []
        for rows in torch.arange(len(question), device=question.device).split(self._rows_at_once(k)):
            place = self.place[ids[rows]].flatten()
            block, slot = place // self.tree.leaf, place % self.tree.leaf
            asks, without = self._repeat(known, question[rows], query.target[rows], k)
            log_p = self.tree.log_prob(known, asks, block, without)
            if self.tree.leaf > 1:
                log_p = log_p + log_share(self._inside(x, known, asks, block, without), slot)
            if without is not None:
                log_p = log_p.masked_fill(place == without.position, -torch.inf)
            out.append(log_p.float().view(-1, k))
        return torch.cat(out)

    def _inside(self, x: Tensor, known: Asked, question: Tensor, block: Tensor, without: Without | None) -> Tensor:
        """Masses of the candidates of blocks (N,), once for each distinct question and block: (N, leaf) float64."""
        tree, exact = self.tree, self.config.inside == "exact"
        pair, of = torch.unique(question * tree.blocks + block, return_inverse=True)
        step = max(1, CELLS // (tree.leaf * max(x.shape[1], 1 if exact else tree.width)))
        out = []
        for a, w in zip((pair // tree.blocks).split(step), (pair % tree.blocks).split(step), strict=True):
            ids, prior = self._of_blocks(w)                                       # (P, leaf) each
            y = self._classes(ids.flatten(), torch.float64).view(*ids.shape, -1)  # (P, leaf, d)
            if exact:
                mass = self._see.logit * torch.bmm(y, x[a].unsqueeze(2)).squeeze(2)
            else:
                mass = torch.maximum(self.map.kernel(x[a], known.phi[a], y), known.least[a].unsqueeze(1)) * prior
            out.append(mass.masked_fill_(prior == 0, -torch.inf if exact else 0.0))
        mass = torch.cat(out)[of]
        if without is not None:
            slot = (without.position % tree.leaf).unsqueeze(1)
            here = (without.position // tree.leaf == block).unsqueeze(1)
            gone = torch.zeros_like(mass, dtype=torch.bool).scatter_(1, slot, here)
            mass.masked_fill_(gone, -torch.inf if exact else 0.0)
        return (mass - mass.amax(1, keepdim=True)).exp() if exact else mass

    def _repeat(self, known: Asked, question: Tensor, target: Tensor, k: int) -> tuple[Tensor, Without | None]:
        """The question of each of k draws of each row (B,), and what those must not hit."""
        if not self.config.exclude_target:
            return question.repeat_interleave(k), None
        place = self.place[target]
        prior = self.prior[place]
        if self.tree.leaf == 1:
            phi = self.tree.sums[-1][place].double()                              # as it stands in the sums
        else:
            phi = self.map.of_class(self._classes(target, torch.float64)) * prior.unsqueeze(1)
        mass = (phi * known.phi[question]).sum(1)
        return question.repeat_interleave(k), Without(*(v.repeat_interleave(k) for v in (place, mass, prior)))

    def _rows_at_once(self, k: int) -> int:
        return max(1, CELLS // max(k * self.tree.fan, k * self.tree.leaf, self.tree.width))

    # -- keeping up with the model --------------------------------------------------------------------------------

    def meet(self, view: View) -> None:
        self._seen = _Seen(view, self.map.scale(view.tau))
        if not self.built:
            self._rebuild()

    def refresh(self, view: View) -> None:
        self._seen = _Seen(view, self.map.scale(view.tau))
        self._rebuild()

    @property
    def _see(self) -> _Seen:
        if self._seen is None:
            raise UsageError(f"negatives.source: {self.name} has not seen the model yet, so it has no probabilities")
        return self._seen

    def _keep_up(self, view: View) -> None:
        self._seen, config = _Seen(view, self.map.scale(view.tau)), self.config
        if not self.built or 0 < config.rebuild <= self.since_rebuild:
            self._rebuild()
        elif 0 < config.update <= self.since_update:
            self.tree.update(self.touched.nonzero().squeeze(1), self._sums)
            self.touched.zero_()
            self.since_update = 0
        self.since_update, self.since_rebuild = self.since_update + 1, self.since_rebuild + 1

    def _rebuild(self) -> None:
        table = self._see.view.table()
        norms = torch.linalg.vector_norm(table, dim=1)
        if bad := (~torch.isfinite(norms)).nonzero().flatten().tolist():
            raise UsageError(f"negatives.source: {self.name}: the vector of candidate {bad[0]} is not finite, nor are "
                             f"{len(bad):,} of {len(table):,} in all; the training has diverged: lower train.lr")
        largest = 1.0 if self._see.view.geometry == "cosine" else float(norms.max()) ** 2
        some = torch.arange(0, len(table), -(-len(table) // SAMPLE), device=table.device)
        self.map.fit(self._classes(some, torch.float64), self._see.scale ** 2 * largest)
        self.tree.update(torch.arange(self.tree.blocks, device=table.device), self._sums)
        self.touched.zero_()
        self.built, self.since_update, self.since_rebuild, self._judged = True, 0, 0, False

    def _sums(self, blocks: Tensor) -> Tensor:
        """Σ π φ(c) of blocks (n,): (n, W)."""
        ids, prior = self._of_blocks(blocks)                                      # (n, leaf) each
        phi = self.map.of_class(self._classes(ids.flatten(), torch.float32)).view(*ids.shape, -1)
        sums = torch.bmm(prior.to(phi.dtype).unsqueeze(1), phi).squeeze(1)
        if not torch.isfinite(sums).all():
            raise UsageError(f"negatives.source: {self.name}: the features of a candidate are not finite: its vector "
                             "is not, or is too long for this kernel; lower train.lr, or set train.clip")
        return sums

    def _of_blocks(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """The candidates of blocks (n,) and their π, (n, leaf) each; π = 0 beyond the last candidate."""
        place = blocks.unsqueeze(1) * self.tree.leaf + torch.arange(self.tree.leaf, device=blocks.device)
        known = place < self.tree.n
        place = place.clamp(max=self.tree.n - 1)
        return self.order[place], self.prior[place].masked_fill(~known, 0.0)

    def _classes(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """y of candidates (n,): (n, d)."""
        return product.some(self._see.view, ids).to(dtype) * self._see.scale

    def _asked(self, asked: Query) -> tuple[Tensor, Asked]:
        """x (Q, d) float64 of distinct questions, φ(h), and ε(h) = floor · K at o = 0."""
        see = self._see
        x = product.questions(asked, see.view).double() * (see.scale / see.view.tau)
        return x, Asked(self.map.of_query(x), self.config.floor * self.map.log_neutral(x).clamp(min=-600).exp())

    def _judge(self, known: Asked) -> None:
        """Say so, once, where random features leave little but noise."""
        if self._judged:
            return
        self._judged, self.negative_share = True, self.tree.negative(known)
        if self.negative_share >= NOISY and not self._warned:
            self._warned = True
            _log.warning("negatives.source: %s: %.0f %% of the nodes' masses are negative with %s, and are drawn at "
                         "their floor instead, which is little but noise; lower negatives.nu, or raise "
                         "negatives.features or negatives.leaf", self.name, 100 * self.negative_share, self.map.about)

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "sums": self.tree.sums, "map": self.map.state(), "touched": self.touched,
                "built": self.built, "since_update": self.since_update, "since_rebuild": self.since_rebuild}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for mine, saved in zip(self.tree.sums, state["sums"], strict=True):
            mine.copy_(saved)
        self.map.load({name: saved.to(self.world.device) for name, saved in state["map"].items()})
        self.touched.copy_(state["touched"])
        self.built, self.since_update = state["built"], state["since_update"]
        self.since_rebuild = state["since_rebuild"]


def prior_masses(counts: Tensor, exponent: float) -> Tensor:
    """count^exponent with mean 1, (V,) float64; a candidate that was never counted counts as the rarest that was."""
    least = counts[counts > 0].min() if (counts > 0).any() else counts.new_ones(())
    masses = torch.where(counts > 0, counts, least).pow(exponent)
    return masses / masses.mean()


def refuse_settings(name: str, config: NegativesConfig, exclude_target: bool, world: World) -> None:
    """What a source cannot do whose q depends on the question."""
    if not config.replacement:
        raise UsageError(f"negatives.replacement: {name} draws with replacement; false is not possible")
    if config.share not in ("row", "window"):
        raise UsageError(f"negatives.share: {name} draws for each question, so use row or window; "
                         f"{config.share!r} is not possible")
    if config.share == "window" and exclude_target:
        raise UsageError("negatives.exclude_target: the rows of a window have targets of their own; set "
                         "negatives.share: row")
    if world.n_candidates < 2:
        raise UsageError(f"negatives.source: {name} needs two candidates or more, and there is {world.n_candidates}")
