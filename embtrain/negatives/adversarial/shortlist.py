"""Shortlist: the S most frequent candidates alone, the others in T groups of about equal noise probability.

    g(y|x) = g(c|x) π(y|c),    c = class of y,    π(y|c) = p(y) / Σ_{b in c} p(b)   (1 for a candidate alone)
    H(g) = H(classes) + Σ_c g(c|x) η_c,           η_c = entropy of π within c

The probabilities of all candidates sum to one for any S and T. The price is that the members of a group have fixed
proportions, those of the noise. S = V: every candidate is alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.negatives.sampling.alias import build_alias_table


class Shortlist:
    """Classes of candidates, and tables to draw within them.

    log_p (V,): the noise, finite for at least one candidate. shortlist: S; None: V. groups: T. counts (V,): order of
    candidates with equal noise, for instance uniform noise; None: the lower id first. klass (V,): the classes of a
    shortlist of the same S and T, made from other noise; None: those of this noise.
    """

    def __init__(self, log_p: Tensor, shortlist: int | None, groups: int, counts: Tensor | None = None,
                 klass: Tensor | None = None):
        v, device = len(log_p), log_p.device
        log_p = log_p.detach().double().cpu()
        has_mass = torch.isfinite(log_p)  # an id without noise gets the smallest nonzero noise
        log_p = torch.log_softmax(torch.where(has_mass, log_p, log_p[has_mass].min()), 0)
        n_single = v if shortlist is None else min(shortlist, v)
        klass = _classes(log_p, n_single, groups, counts) if klass is None else klass.cpu()
        self.n_classes = int(klass.max()) + 1 if v else 0                                  # C
        self.n_single = n_single
        self.sizes = n_single, groups if n_single < v else 0                               # S, T
        mass = torch.zeros(self.n_classes, dtype=torch.float64, device="cpu").index_add_(0, klass, log_p.exp())
        within = log_p - mass.log()[klass]                                         # log π
        within[klass < n_single] = 0.0
        members = torch.argsort(klass, stable=True)
        class_start = torch.searchsorted(klass[members], torch.arange(self.n_classes + 1, device="cpu"))
        accept, alias = np.ones(v), members.numpy().copy()
        for a, b in zip(class_start[n_single:-1].tolist(), class_start[n_single + 1:].tolist(), strict=True):
            share = within[members[a:b]].exp()
            accept[a:b], alias_rank = build_alias_table((share / share.sum()).numpy())
            alias[a:b] = members[a:b].numpy()[alias_rank]
        best = torch.zeros(self.n_classes, dtype=torch.float64, device="cpu")
        best = best.scatter_reduce(0, klass, within, "amax", include_self=False)
        by_mass = torch.argsort(within, stable=True)
        likeliest = torch.empty(self.n_classes, dtype=torch.int64, device="cpu")
        likeliest[klass[by_mass]] = by_mass
        eta = torch.zeros_like(best).index_add_(0, klass, -within.exp() * within)
        self.klass = klass.to(device)                      # (V,) int64
        self.log_within = within.float().to(device)        # (V,)  log π
        self.members = members.to(device)                  # (V,) int64  ids sorted by class
        self.class_start = class_start.to(device)          # (C+1,)  first member of each class
        self.accept = torch.from_numpy(accept).to(device)  # (V,) float64  alias tables of π, by member
        self.alias = torch.from_numpy(alias).to(device)    # (V,) int64  aliases (ids), by member
        self.log_mass = mass.log().float().to(device)      # (C,)  log probability under the noise
        self.log_best = best.float().to(device)            # (C,)  log of the largest π
        self.likeliest = likeliest.to(device)              # (C,) int64  candidate with the largest π
        self.eta = eta.float().to(device)                  # (C,)  η

    def sample_member(self, klass: Tensor, u: Tensor) -> Tensor:
        """Id drawn from each class (n,) by the number v in [0, 1), (n,)."""
        begin, n = self.class_start[klass], self.class_start[klass + 1] - self.class_start[klass]
        column = torch.minimum((u * n).long(), n - 1)
        position = begin + column
        return torch.where(u * n - column < self.accept[position], self.members[position], self.alias[position])

    def class_rows(self, earlier: Shortlist, row: Tensor) -> Tensor:
        """The class in an earlier shortlist over fewer candidates of each class here, (C,) int64; -1 for none.

        row (V,): earlier id of each candidate, -1 for a new one. A candidate that is alone here has the class in which
        it was alone there. Groups correspond by their rank, if both have equally many.
        """
        device = self.klass.device
        classes = torch.full((self.n_classes,), -1, dtype=torch.int64, device=device)
        single = (self.klass < self.n_single) & (row.to(device) >= 0)
        there = earlier.klass.to(device)[row.to(device)[single]]
        classes[self.klass[single]] = torch.where(there < earlier.n_single, there, -1)
        n_groups = self.n_classes - self.n_single
        if n_groups == earlier.n_classes - earlier.n_single:
            classes[self.n_single:] = torch.arange(n_groups, device=device) + earlier.n_single
        return classes


def _classes(log_p: Tensor, n_single: int, groups: int, counts: Tensor | None) -> Tensor:
    """Class of each candidate, (V,) int64: its rank if it is one of the `n_single` first, else that of its group."""
    klass = torch.arange(len(log_p), device="cpu")
    if n_single == len(log_p):
        return klass
    order = klass if counts is None else torch.argsort(counts.cpu(), descending=True, stable=True)
    order = order[torch.argsort(log_p[order], descending=True, stable=True)]
    cumulative = log_p[order[n_single:]].exp().cumsum(0)
    group = (cumulative / cumulative[-1] * groups).ceil().long().clamp(1, groups) - 1
    classes = torch.empty_like(order)
    classes[order[:n_single]] = klass[:n_single]
    classes[order[n_single:]] = n_single + torch.unique_consecutive(group, return_inverse=True)[1]
    return classes
