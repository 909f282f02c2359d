"""Difference of two strategies: effect size, verdict, and the number of seeds or items needed.

    effect        g = J(n−1) d̄/s,  J(m) = Γ(m/2) / (√(m/2) Γ((m−1)/2)), for n paired differences of mean d̄ and standard
                  deviation s  (Hedges 1981); none at n = 2, where J = 0
    least effect  δ_n: the smallest |d̄|/s that is detected, with the right sign, with power 1−β = .8:
                  P(T > t_{n−1, 1−α/2}) = 1−β for T noncentral t, n−1 degrees of freedom, noncentrality δ_n √n
    family        in a family of m comparisons α is α/m, Holm's first step; the power is then a lower bound
    detectable    s δ_n;   needed = the smallest n with δ_n ≤ |d̄|/s
    clusters      a permutation of the signs of C clusters of items has p in steps of 2^{1−C}: its level is the largest
                  step below α, and n is C. At level 0 there is no lower bound of the power.
                  `needed` is in items, for clusters of the same size. δ_n is that of t: at the smallest C the power is
                  .7, not .8
    least C       the smallest C at which a difference can be separated: its level is above 0 at α/(m−r), the step of
                  Holm that it reaches after the r others of its family that are separated

s is an estimate, and a rough one over 3 seeds; so is everything derived from it. Two seeds leave s one degree of
freedom: their interval is printed, but the verdict is that they are too few, whatever p is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from embtrain.common.json_records import OMIT_IF_NONE

A_BEATS_B, B_BEATS_A, NOT_SEPARABLE = "A beats B", "B beats A", "not separable"
ONE_SEED, NO_SEED = "one seed: no interval", "no seed in common"
TOO_FEW_ITEMS = "too few items, or all equal"
TOO_FEW_SEEDS = "two seeds are too few to separate"
MIN_SEEDS = 3  # with fewer, no verdict separates two strategies
POWER = 0.8
MAX_NEEDED = {"seeds": 1000, "items": 1_000_000}  # larger values of `needed` are not reported, unless there are more


@dataclass(frozen=True)
class Difference:
    """Difference of A and B. Fields are None if undefined; `verdict` and `note` then give the reason."""

    a: str
    b: str
    metric: str
    mean: float | None           # A − B, in the metric's own direction
    low: float | None            # interval for this difference alone
    high: float | None
    p: float | None              # two-sided, for this difference alone
    p_holm: float | None         # adjusted for its family of comparisons
    effect: float | None         # Hedges' g of the paired differences
    n: int                       # pairs used
    verdict: str
    detectable: float | None     # smallest mean difference that n would separate with power .8
    needed: int | None           # n that would separate the observed one with power .8; None: more than `max_needed`
    kind: Literal["seeds", "items"]
    sd: float | None = None      # of the paired differences
    level: float = 0.95
    higher_better: bool = True
    note: str = ""
    # of the items, if their signs are permuted: the number of clusters, and the smallest that can separate A and B
    clusters: int | None = field(default=None, metadata=OMIT_IF_NONE)
    min_clusters: int | None = field(default=None, metadata=OMIT_IF_NONE)

    @property
    def max_needed(self) -> int:
        return max(MAX_NEEDED[self.kind], self.n)

    @property
    def shortage(self) -> str:
        """The reason why no difference of these items can be separated; '' if one can."""
        if self.clusters is None or self.min_clusters is None or self.clusters >= self.min_clusters:
            return ""
        noun = "cluster" if self.clusters < self.n else "item"
        number = f"1 {noun} is" if self.clusters == 1 else f"{self.clusters} {noun}s are"
        return f"{number} too few for the test, which takes {self.min_clusters} or more"

    def sentence(self) -> str:
        """The verdict in words, with its numbers."""
        pair, count_noun = f"{self.a} against {self.b} on {self.metric}", self.kind if self.n != 1 else self.kind[:-1]
        if self.mean is None or self.p is None:
            return f"{pair}: {self.verdict}" + ("." if self.mean is None else f"; the difference is {self.mean:+.3g}.")
        first, second, mean, low, high = self.a, self.b, self.mean, self.low, self.high
        if self.verdict == B_BEATS_A:  # as the winner minus the loser
            first, second, mean = second, first, -mean
            low, high = (None, None) if low is None or high is None else (-high, -low)
        facts = "" if low is None else f"{100 * self.level:g} % interval {low:+.3g} to {high:+.3g}, "
        facts += f"{self.n} {count_noun}, p = {self.p:.2g}"
        facts += "" if self.p_holm is None else f", {self.p_holm:.2g} after Holm"
        if self.verdict == TOO_FEW_SEEDS:
            return f"{pair}: {self.verdict}: {mean:+.3g} ({facts})."
        if self.verdict != NOT_SEPARABLE:
            return f"{first} beats {second} on {self.metric}: {mean:+.3g} ({facts})."
        text = f"{first} and {second} are not separable on {self.metric}: {mean:+.3g} ({facts})."
        if self.shortage:
            text += f" {self.shortage}."
        elif self.detectable is not None:
            text += f" {self.n} {count_noun} would have separated {self.detectable:.3g} with {100 * POWER:.0f} % power"
            needed_text = f"more than {self.max_needed}" if self.needed is None else str(self.needed)
            text += f"; the difference seen would take {needed_text}."
        return text


# --- power ---------------------------------------------------------------------------------------------------------

@lru_cache(maxsize=8192)
def least_effect(n: int, alpha: float, power: float = POWER) -> float:
    """δ_n: the smallest |mean|/sd that n paired differences separate, at level alpha, with this power; ∞ at alpha 0."""
    if alpha == 0:
        return math.inf
    from scipy import optimize, stats  # decision 130: every run imports this module

    if n > MAX_NEEDED["seeds"]:  # the normal approximation, accurate to three digits here
        return float(stats.norm.isf(alpha / 2) + stats.norm.ppf(power)) / math.sqrt(n)
    critical = float(stats.t.isf(alpha / 2, n - 1))
    def power_excess(noncentrality: float) -> float:
        return float(stats.nct.sf(critical, n - 1, noncentrality)) - power
    upper = critical + 1
    while power_excess(upper) < 0:
        upper *= 2
    return float(optimize.brentq(power_excess, 0, upper)) / math.sqrt(n)


def sign_level(alpha: float, n: int) -> float:
    """The largest p below alpha of a permutation of n signs, a multiple of 2^(1−n); 0 if there is none."""
    patterns = 2.0 ** min(n - 1, 30)  # from there on, the steps are too small to matter
    return (math.ceil(alpha * patterns) - 1) / patterns


def _min_signs(alpha: float) -> int:
    """The smallest n with a sign_level above 0: that of the sign test."""
    return 2 + math.floor(-math.log2(alpha))


def _needed(mean: float, sd: float, alpha: float, limit: int, signs: bool) -> int | None:
    """The smallest n that separates `mean` with power POWER; None above `limit`. signs: by permutation of n signs."""
    if sd == 0:
        return None if mean == 0 else _min_signs(alpha)
    n = MIN_SEEDS + bisect_left(
        range(MIN_SEEDS, limit + 1), True,
        key=lambda n: least_effect(n, sign_level(alpha, n) if signs else alpha) <= abs(mean) / sd)
    return n if n <= limit else None


def hedges_g(mean: float, sd: float, n: int) -> float | None:
    """Hedges' g; None for fewer than three differences or without spread."""
    if n < 3 or sd == 0:
        return 0.0 if mean == 0 and n > 1 else None
    from scipy import special  # decision 130: every run imports this module

    m = n - 1
    return mean / sd * math.exp(special.gammaln(m / 2) - special.gammaln((m - 1) / 2)) / math.sqrt(m / 2)


def with_verdict(d: Difference, family: Sequence[float] = (), p_holm: float | None = None) -> Difference:
    """The difference with verdict and power; unchanged if it was not tested.

    family: the adjusted p of each of its differences, including p_holm of this one; by default it has only this one.
    Below MIN_SEEDS seeds the verdict is TOO_FEW_SEEDS and no difference is detectable.
    """
    if d.p is None or d.mean is None:
        return d
    p = d.p if p_holm is None else p_holm
    family = family or [p]
    alpha, n_others = (1 - d.level) / len(family), sum(q < 1 - d.level for q in family) - (p < 1 - d.level)
    winner = A_BEATS_B if (d.mean > 0) == d.higher_better else B_BEATS_A
    too_few = d.kind == "seeds" and d.n < MIN_SEEDS
    separated = winner if p < 1 - d.level and d.mean != 0 else NOT_SEPARABLE
    signs, n = d.clusters is not None, d.clusters or d.n            # n: independent differences
    sd = None if d.sd is None else d.sd * math.sqrt(n / d.n)
    mean = d.mean
    d = replace(d, p_holm=p_holm, verdict=TOO_FEW_SEEDS if too_few else separated, detectable=None, needed=None,
                min_clusters=_min_signs((1 - d.level) / (len(family) - n_others)) if signs else None)
    if d.shortage or sd is None:
        return d
    effect = least_effect(n, sign_level(alpha, n) if signs else alpha)
    needed = _needed(mean, sd, alpha, d.max_needed * n // d.n, signs)
    return replace(d, detectable=sd * effect if sd and math.isfinite(effect) and not too_few else None,
                   needed=None if needed is None else math.ceil(needed * d.n / n))
