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
from embtrain.negatives.questions import Members, prior_masses, refuse_settings
from embtrain.negatives.search import stream
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


@dataclass(frozen=True)
class _Questions:
    """Distinct questions: h (Q, d), o = h·c; x (Q, d) float64; for the tree φ(h), and ε(h) = floor · K at o = 0."""

    h: Tensor
    x: Tensor
    tree: Asked


class KernelSource(NegativeSource):
    geometry = product.GEOMETRIES
    looks: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    shares: ClassVar[tuple[str, ...]] = ("row", "window")
    config: KernelConfig

    def __init__(self, config: KernelConfig, world: World):
        super().__init__(config, world)
        refuse_settings(self.name, config, config.exclude_target, world)
        if world.dim < 1:
            raise UsageError(f"negatives.source: {self.name} makes features of the candidates' vectors, and this "
                             "model has none")
        self.density = "conditional" if config.exclude_target else "exact"
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
        start = torch.arange(self.tree.blocks + 1, device=world.device) * config.leaf
        self.members = Members(self.order, start.clamp(max=world.n_candidates))
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
        known = self._asked(asked)
        self._judge(known.tree)
        n, asks, without = len(question) * k, question.repeat_interleave(k), None
        wanted = torch.full_like(asks, -1)
        if self.config.exclude_target:
            without = self._without(known, question, target, k)
        else:                                                # what the rows' own targets have is asked for beside them
            own = question if group is None else query.questions()[1]
            asks, wanted = torch.cat([asks, own]), torch.cat([wanted, self.place[query.target]])
        place, log_q = self._places(known, asks, wanted, without, self.random)
        if self.config.update:
            for touched in (place, self.place[query.target]) if without is not None else (place,):
                self.touched[touched // self.tree.leaf] = True
        weight, mass = self.weight_and_mass(k)
        return Negatives(self.order[place[:n]].view(-1, k), group=group, log_q=log_q[:n].view(-1, k), weight=weight,
                         log_q_target=None if self.config.exclude_target else log_q[n:], mass=mass)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """-inf for an excluded target."""
        asked, question = query.questions()
        known, k = self._asked(asked), ids.shape[1]
        place = self.place[ids.expand(len(query), -1)].flatten()
        without = self._without(known, question, query.target, k) if self.config.exclude_target else None
        log_q = self._places(known, question.repeat_interleave(k), place, without, None)[1]
        if without is not None:
            log_q = log_q.masked_fill(place == without.position, -torch.inf)
        return log_q.view(-1, k)

    def _places(self, known: _Questions, question: Tensor, wanted: Tensor, without: Without | None,
                random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places (N,) for requests of questions (N,), and log q in float32: those wanted, or drawn where that is -1."""
        n, step = len(question), max(1, CELLS // max(self.tree.fan, self.tree.leaf))
        if n > step:
            parts = [self._places(known, question[a:a + step], wanted[a:a + step],
                                  without and Without(*(x[a:a + step] for x in (without.position, without.mass,
                                                                                without.prior))), random)
                     for a in range(0, n, step)]
            return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        if self.tree.leaf == 1:
            place, log_q = self.tree.walk(known.tree, question, wanted, without, random)
            return place, log_q.float()
        above = torch.div(wanted, self.tree.leaf, rounding_mode="floor")                    # -1 stays
        block, log_q = self.tree.walk(known.tree, question, above, without, random)
        place, more = self._within(known, question, block, wanted, without, random)
        return place, (log_q + more).float()

    def _within(self, known: _Questions, question: Tensor, block: Tensor, wanted: Tensor, without: Without | None,
                random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places in blocks (N,), drawn where `wanted` is -1, and the log of their shares there."""
        core = self.members.within(self._see.view) if self.config.inside == "exact" else None
        if core is not None:
            gone, seed = None if without is None else without.position, 0 if random is None else stream(random)
            return core.places(known.h, question, block, wanted, gone, seed)[:2]
        mass = self._inside(known.x, known.tree, question, block, without)
        slot = wanted % self.tree.leaf
        if random is not None:
            slot = torch.where(wanted < 0, choose(mass, random)[0], slot)
        return block * self.tree.leaf + slot, log_share(mass, slot)

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

    def _without(self, known: _Questions, question: Tensor, target: Tensor, k: int) -> Without:
        """What k draws of each row (B,) must not hit."""
        place, mass = self.place[target], []
        prior = self.prior[place]
        for some in torch.arange(len(place), device=place.device).split(max(1, CELLS // self.tree.width)):
            if self.tree.leaf == 1:
                phi = self.tree.sums[-1][place[some]].double()                    # as it stands in the sums
            else:
                phi = self.map.of_class(self._classes(target[some], torch.float64)) * prior[some].unsqueeze(1)
            mass.append((phi * known.tree.phi[question[some]]).sum(1))
        return Without(*(v.repeat_interleave(k) for v in (place, torch.cat(mass), prior)))

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

    def _asked(self, asked: Query) -> _Questions:
        see = self._see
        h = product.questions(asked, see.view)
        x = h.double() * (see.scale / see.view.tau)
        least = self.config.floor * self.map.log_neutral(x).clamp_(min=-600).exp_()
        return _Questions(h, x, Asked(self.map.of_query(x), least))

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
        self.built, self.since_update, self.since_rebuild = (state[key] for key in (
            "built", "since_update", "since_rebuild"))
