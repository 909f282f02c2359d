"""Candidates by class: the S most frequent alone, the others in T groups of about equal noise mass.

    g(y|x) = g(c|x) π(y|c),    c = class of y,    π(y|c) = p(y) / Σ_{b in c} p(b)   (1 for a candidate alone)
    H(g) = H(classes) + Σ_c g(c|x) η_c,           η_c = entropy of π within c

All candidates have a probability and it sums to one, whatever S and T; what is lost is that the members of a group keep
the proportions of the noise. S = V: every candidate alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.negatives.sampling.alias import columns


class Shortlist:
    def __init__(self, log_p: Tensor, shortlist: int | None, groups: int, counts: Tensor | None = None):
        """`log_p` (V,): the noise, finite for at least one candidate. counts (V,): who comes first where the noise has
        equals, as even noise has; None: the lower id."""
        v, device = len(log_p), log_p.device
        log_p = log_p.detach().double().cpu()
        possible = torch.isfinite(log_p)  # an id without noise mass counts as the rarest that has some
        log_p = torch.log_softmax(torch.where(possible, log_p, log_p[possible].min()), 0)
        alone = v if shortlist is None else min(shortlist, v)
        order = torch.arange(v) if counts is None else torch.argsort(counts.cpu(), descending=True, stable=True)
        order = order[torch.argsort(log_p[order], descending=True, stable=True)]
        klass = torch.arange(v)
        if alone < v:
            upto = log_p[order[alone:]].exp().cumsum(0)
            group = (upto / upto[-1] * groups).ceil().long().clamp(1, groups) - 1
            klass[order[:alone]] = torch.arange(alone)
            klass[order[alone:]] = alone + torch.unique_consecutive(group, return_inverse=True)[1]
        self.n = int(klass.max()) + 1 if v else 0                                  # C
        self.n_alone = alone
        mass = torch.zeros(self.n, dtype=torch.float64).index_add_(0, klass, log_p.exp())
        within = log_p - mass.log()[klass]                                         # log π
        within[klass < alone] = 0.0
        member = torch.argsort(klass, stable=True)
        first = torch.searchsorted(klass[member], torch.arange(self.n + 1))
        keep, instead = np.ones(v), member.numpy().copy()
        for a, b in zip(first[alone:-1].tolist(), first[alone + 1:].tolist(), strict=True):
            share = within[member[a:b]].exp()
            keep[a:b], other = columns((share / share.sum()).numpy())
            instead[a:b] = member[a:b].numpy()[other]
        best = torch.zeros(self.n, dtype=torch.float64).scatter_reduce(0, klass, within, "amax", include_self=False)
        by_mass = torch.argsort(within, stable=True)
        chief = torch.empty(self.n, dtype=torch.int64)
        chief[klass[by_mass]] = by_mass
        eta = torch.zeros(self.n, dtype=torch.float64).index_add_(0, klass, -within.exp() * within)
        self.klass = klass.to(device)                                              # (V,) int64
        self.log_within = within.float().to(device)                                # (V,)  log π
        self.member = member.to(device)                                            # (V,) int64  ids by class
        self.first = first.to(device)                                              # (C+1,) where each begins there
        self.keep = torch.from_numpy(keep).to(device)                              # (V,) float64  alias tables of π
        self.instead = torch.from_numpy(instead).to(device)                        # (V,) int64  there, id for id
        self.start = mass.log().float().to(device)                                 # (C,)  log mass under the noise
        self.log_best = best.float().to(device)                                    # (C,)  log of the greatest π
        self.chief = chief.to(device)                                              # (C,) int64  whose it is
        self.eta = eta.float().to(device)                                          # (C,)  η

    def member_at(self, klass: Tensor, v: Tensor) -> Tensor:
        """The id at the point v in [0, 1) of each class (n,)."""
        begin, n = self.first[klass], self.first[klass + 1] - self.first[klass]
        column = torch.minimum((v * n).long(), n - 1)
        at = begin + column
        return torch.where(v * n - column < self.keep[at], self.member[at], self.instead[at])
