"""How candidates are drawn through a tree of features: the part of `kernel_source.py` that works.

On the CPU the compiled core does a batch in one call (kernels/sampling/tree_draw.py), Fourier features of the questions
included; those of other maps come from torch. Where q inside a block of several is in proportion to π K, and elsewhere,
a walk gives the blocks (tree.py), and what is inside them is drawn then.
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
from embtrain.negatives.sampling.inverse_cdf import Numbers, stream
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import Inside, Members, Room, flat
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.sum_tree import CELLS, Asked, ExcludedTargets, Tree, choose, log_share

STRETCH = 64   # candidates whose rows are looked up at once, where blocks are smaller
TOGETHER = 4   # questions to a stretch from which on it is cheaper to take each stretch for all of its questions


@dataclass(frozen=True)
class ScaledView:
    """The model as it is now, and the scales x = s h, y = s c; o = logit · x·y."""

    view: ModelView
    scale: float

    @property
    def logit(self) -> float:
        return self.view.tau / self.scale ** 2


@dataclass(frozen=True)
class Questions:
    """Distinct questions: h (Q, d), o = h·c; x (Q, d) float64; for the tree φ(h), and ε(h) = floor · K at o = 0."""

    h: Tensor
    x: Tensor
    tree: Asked


class TreeSampling(NegativeSource):
    """`KernelSource` gives what is declared here."""

    exact: bool                # inside a block, draws are by e^o
    excludes: bool             # draws are of the candidates other than the target
    floor: float               # ε(h) in parts of K at o = 0
    map: FeatureMap
    tree: Tree
    members: Members           # of the blocks
    copy: RowStore | None = None   # (V, D) by place, what `inside: copied` draws by
    order: Tensor              # (V,)           the candidate of each place
    place: Tensor              # (V,)           the place of each candidate
    prior: Tensor              # (V,) float64   π by place
    room: Room
    numbers: Numbers           # of the core's draws in one call
    seen: ScaledView | None = None
    _blocks: tuple[Inside | None, kernel.TreeBlocks, float] | None = None  # and L; None: to be looked at anew

    @property
    def _see(self) -> ScaledView:
        if self.seen is None:
            raise UsageError(f"negatives.source: {self.name} has not seen the model yet, so it has no probabilities")
        return self.seen

    # -- by the compiled core, in one call ------------------------------------------------------------------------

    def _core(self, asked: Query) -> kernel.TreeBlocks | None:
        """The tree and the model as the core reads them; None where it cannot do all of the work."""
        levels, inside = self.tree.levels, None
        if levels is None or asked.vector.dtype != torch.float32:
            return None
        if self.tree.leaf > 1:
            inside = self.members.within(self._see.view) if self.exact else None
        if core() is None if self.tree.leaf == 1 else inside is None:
            return None
        if self._blocks is None or self._blocks[0] is not inside:
            w, largest = self.map.fourier() or (None, 0.0)
            self._blocks = inside, kernel.TreeBlocks(
                levels, None if inside is None else inside.members, self.order.numpy(), self.place.numpy(),
                self.prior.numpy(), None if w is None else w.numpy(), core()), largest
        return self._blocks[1]

    def _draw_by(self, of: kernel.TreeBlocks, asked: Query, known: Questions | None, question: Tensor | None,
                 row: Tensor | None, target: Tensor, k: int, touched: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """As `_draw`. known: where the core cannot make φ(h); else no question and row: each has its own."""
        assert self._blocks is not None
        see, given = self._see, tuple[BufferView, ...]()
        if of.w is None:
            assert known is not None and question is not None
            given = flat(known.tree.phi.float()), flat(known.tree.least)
            if self.excludes:
                given += (flat(self._without(known, question, target, 1).mass),)
        asks = kernel.TreeDrawRequest(
            flat(asked.vector), None if question is None else flat(question), None if row is None else flat(row),
            flat(target),
            see.view.tau if see.view.geometry == "cosine" else 0.0, see.scale / see.view.tau, self.floor,
            self._blocks[2], *given)
        n = asks.draws
        (ids, log_q, log_q_target), room = self.room.take(n, k, 0 if self.excludes else len(target))
        marks = None if touched is None else flat(touched)
        kernel.draw_into(room, of, asks, self.excludes, self.numbers.seeds, marks, self.numbers.draws(n, k),
                         torch.get_num_threads())
        return ids, log_q, log_q_target

    # -- step by step ---------------------------------------------------------------------------------------------

    def _draw(self, known: Questions, question: Tensor, row: Tensor, target: Tensor, k: int, touched: Tensor | None
              ) -> tuple[Tensor, Tensor, Tensor]:
        """k ids for draws of questions (G,) and their log q, (G, k) each; log q of the targets (B,) of rows, unless
        they are excluded. touched (blocks,): marks."""
        n, asks, without = len(question) * k, question.repeat_interleave(k), None
        wanted = torch.full_like(asks, -1)
        if self.excludes:
            without = self._without(known, question, target, k)
        else:                                                # what the rows' own targets have is asked for beside them
            asks, wanted = torch.cat([asks, row]), torch.cat([wanted, self.place[target]])
        place, log_q = self._places(known, asks, wanted, without, self.random)
        if touched is not None:
            touched[place // self.tree.leaf] = True
            touched[self.place[target] // self.tree.leaf] = True
        return self.order[place[:n]].view(-1, k), log_q[:n].view(-1, k), log_q[n:]

    def _places(self, known: Questions, question: Tensor, wanted: Tensor, without: ExcludedTargets | None,
                random: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Places (N,) for requests of questions (N,), and log q in float32: those wanted, or drawn where that is -1."""
        n, step = len(question), max(1, CELLS // max(self.tree.fan, self.tree.leaf))
        if n > step:
            parts = [self._places(known, question[a:a + step], wanted[a:a + step],
                                  without and ExcludedTargets(*(x[a:a + step] for x in (without.position, without.mass,
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

    def _within(
        self,
        known: Questions,
        question: Tensor,
        block: Tensor,
        wanted: Tensor,
        without: ExcludedTargets | None,
        random: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Places in blocks (N,), drawn where `wanted` is -1, and the log of their shares there."""
        core = self.members.within(self._see.view) if self.exact else None
        if core is not None:
            gone, seed = None if without is None else without.position, 0 if random is None else stream(random)
            return core.places(known.h, question, block, wanted, gone, seed)[:2]
        x = known.x
        if self.copy is not None:
            x = self.copy.of_query(known.h) * (self._see.scale / self._see.view.tau)
        mass = self._inside(x, known.tree, question, block, without)
        slot = wanted % self.tree.leaf
        if random is not None:
            slot = torch.where(wanted < 0, choose(mass, random)[0], slot)
        return block * self.tree.leaf + slot, log_share(mass, slot)

    def _inside(
        self, x: Tensor, known: Asked, question: Tensor, block: Tensor, without: ExcludedTargets | None
    ) -> Tensor:
        """Masses of the candidates of blocks (N,), once for each distinct question and block: (N, leaf) float64."""
        tree, exact = self.tree, self.exact
        pair, of = torch.unique(block * len(x) + question, return_inverse=True)      # block by block
        where, asks = torch.div(pair, len(x), rounding_mode="floor"), pair % len(x)
        stretch, asked = torch.unique_consecutive(where // self._stretch, return_counts=True)
        if TOGETHER * len(stretch) <= len(pair):
            mass = torch.cat([self._of_stretch(x, known, a, w, at) for a, w, at in zip(
                asks.split(asked.tolist()), where.split(asked.tolist()), stretch.tolist(), strict=True)])
        else:
            mass = self._of_pairs(x, known, asks, where)
        mass = mass[of]
        if without is not None:
            slot = (without.position % tree.leaf).unsqueeze(1)
            here = (without.position // tree.leaf == block).unsqueeze(1)
            gone = torch.zeros_like(mass, dtype=torch.bool).scatter_(1, slot, here)
            mass.masked_fill_(gone, -torch.inf if exact else 0.0)
        return (mass - mass.amax(1, keepdim=True)).exp() if exact else mass

    def _of_pairs(self, x: Tensor, known: Asked, question: Tensor, block: Tensor) -> Tensor:
        """Masses, or o if `exact`, of the candidates of blocks (P,) for questions (P,): (P, leaf)."""
        step, out = max(1, CELLS // (self.tree.leaf * self._reads(x))), []
        for a, w in zip(question.split(step), block.split(step), strict=True):
            place, prior = self._of_blocks(w)                                     # (P, leaf) each
            y = self._block_vectors(place.flatten()).view(*place.shape, -1)             # (P, leaf, d)
            if self.exact:
                mass = self._see.logit * torch.bmm(y, x[a].unsqueeze(2)).squeeze(2)
            else:
                mass = torch.maximum(self.map.kernel(x[a], known.phi[a], y), known.least[a].unsqueeze(1)) * prior
            out.append(mass.masked_fill_(prior == 0, -torch.inf if self.exact else 0.0))
        return torch.cat(out)

    def _of_stretch(self, x: Tensor, known: Asked, question: Tensor, block: Tensor, stretch: int) -> Tensor:
        """The same for blocks (P,) of one stretch, whose candidates are looked up once and answer by products."""
        blocks, out = torch.arange(self._stretch, device=x.device) + stretch * self._stretch, []
        place, prior = self._of_blocks(blocks)
        y = self._block_vectors(place.flatten())                                        # (stretch * leaf, d)
        step = max(1, CELLS // max(len(y), self._reads(x)))
        for a, w in zip(question.split(step), block.split(step), strict=True):
            if self.exact:
                mass = self._see.logit * (x[a] @ y.T)
            else:
                mass = torch.maximum(self.map.every(x, known.phi, a, y), known.least[a].unsqueeze(1)) * prior.flatten()
            mass.masked_fill_(prior.flatten() == 0, -torch.inf if self.exact else 0.0)
            out.append(mass.view(-1, *prior.shape)[torch.arange(len(a), device=x.device), w - blocks[0]])
        return torch.cat(out)

    @property
    def _stretch(self) -> int:
        """Blocks of a stretch."""
        return max(1, STRETCH // self.tree.leaf)

    def _reads(self, x: Tensor) -> int:
        """Numbers of a vector that a mass is made of."""
        return x.shape[1] if self.exact else self.map.reads

    def _without(self, known: Questions, question: Tensor, target: Tensor, k: int) -> ExcludedTargets:
        """What k draws of each row (B,) must not hit."""
        place, mass = self.place[target], []
        prior = self.prior[place]
        for some in torch.arange(len(place), device=place.device).split(max(1, CELLS // self.tree.width)):
            if self.tree.leaf == 1:
                phi = self.tree.sums[-1].read(place[some])                        # as it stands there
                mass.append((phi * known.tree.phi[question[some]]).sum(1))
            else:
                y, asks = self._classes(target[some], torch.float64).unsqueeze(1), question[some]
                mass.append(self.map.kernel(known.x[asks], known.tree.phi[asks], y)[:, 0] * prior[some])
        return ExcludedTargets(*(v.repeat_interleave(k) for v in (place, torch.cat(mass), prior)))

    # -- vectors and features -------------------------------------------------------------------------------------

    def _of_blocks(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """The places of blocks (n,) and their π, (n, leaf) each; beyond the last candidate that one's, and π = 0."""
        place = blocks.unsqueeze(1) * self.tree.leaf + torch.arange(self.tree.leaf, device=blocks.device)
        known = place < self.tree.n
        place = place.clamp(max=self.tree.n - 1)
        return place, self.prior[place].masked_fill(~known, 0.0)

    def _block_vectors(self, place: Tensor) -> Tensor:
        """y of places (n,) as draws inside a block have it: (n, d) float64."""
        if self.copy is None:
            return self._classes(self.order[place], torch.float64)
        return self.copy.read(place) * self._see.scale

    def _classes(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """y of candidates (n,): (n, d)."""
        return inner_product.some(self._see.view, ids).to(dtype) * self._see.scale

    def _asked(self, asked: Query) -> Questions:
        see = self._see
        h = inner_product.questions(asked, see.view)
        x = h.double() * (see.scale / see.view.tau)
        least = self.floor * self.map.log_neutral(x).clamp_(min=-600, max=600).exp_()
        return Questions(h, x, Asked(self.map.of_query(x), least))
