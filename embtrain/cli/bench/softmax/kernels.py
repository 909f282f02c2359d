"""Feature maps for the kernel e^{τ h·c}: mean squared error on unit vectors of USPS, and the cost of φ.

Rawat et al. 2019, Table 1, which gives neither τ nor whether e^τ counts. Both are swept: Gaussian values,
e^{τ h·c - τ} = e^{-τ‖h-c‖²/2}, and the kernel itself, whose error is e^{2τ} times as large. `quality` contains the
former as `gauss τ=…` and the latter as `exp τ=…`, in millionths; `about` contains the paper's values.

quadratic    α (h·c)² + β, α and β by least squares over the pairs     maclaurin    random Maclaurin features
rff          random Fourier features, ν = τ, D frequencies            positive     hyperbolic positive features
orthogonal   rff with orthogonal directions. The number after a name is D; an error is the mean over draws of W.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.labels import examples as labelled
from embtrain.data.labels.sparse import LabelsConfig
from embtrain.negatives.softmax.kernels.exponential import ExponentialConfig
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.maclaurin import MaclaurinMap
from embtrain.negatives.softmax.kernels.positive_features import PositiveConfig, PositiveMap
from embtrain.negatives.softmax.kernels.rff import FourierMap, RffConfig

CORPUS = "usps"
TAUS = (0.5, 1.0, 2.0, 4.0, 8.0)
PAIRS, FEW, NUMBERS = 2000, 200, 1 << 25   # pairs of (h, c); of many features; numbers of φ in all draws of W
LARGE = 256 ** 2
PAPER = {"quadratic": 2800, "rff-100": 2600, "rff-1000": 270, f"rff-{LARGE}": 5.5,
         f"maclaurin-{LARGE}": 88_000}     # their Table 1, in millionths


def _rff(directions: str, n: int, tau: float, dim: int, random: torch.Generator) -> FeatureMap:
    return FourierMap(RffConfig(features=n, nu=tau, directions=directions), dim, random, "cpu")


def _maclaurin(n: int, tau: float, dim: int, random: torch.Generator) -> FeatureMap:
    return MaclaurinMap(ExponentialConfig(features=n, nu=tau), dim, random, "cpu")


def _positive(n: int, tau: float, dim: int, random: torch.Generator) -> FeatureMap:
    return PositiveMap(PositiveConfig(features=n, nu=tau), dim, random, "cpu")


Make = Callable[[int, float, int, torch.Generator], FeatureMap]
MAPS: dict[str, tuple[Make, int]] = {
    **{f"rff-{n}": (partial(_rff, "plain"), n) for n in (100, 1000, LARGE)},
    "orthogonal-1000": (partial(_rff, "orthogonal"), 1000), "positive-1000": (_positive, 1000),
    "maclaurin-1000": (_maclaurin, 1000), f"maclaurin-{LARGE}": (_maclaurin, LARGE)}
GAUSS = ("rff", "orthogonal")      # maps of e^{-‖x-y‖²/2}; the others are of e^{x·y}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example rff-100."""
    cases = [f"{name}-t{t}" for t in threads for name in ("quadratic", *MAPS)]
    chosen = choose(cases, only)
    h, c = pairs()
    groups = []
    for t in threads:
        ways: dict[str, Callable[[], Timed]] = {"quadratic": partial(_quadratic, h, c, t), **{
            name: partial(_features, name, h, c, t) for name in MAPS}}
        groups.append(Group(t, {f"{name}-t{t}": way for name, way in ways.items() if f"{name}-t{t}" in chosen}))
    return run("kernels", "s for φ of both vectors of every pair, all τ and all draws of W", groups, rounds, {
        "corpus": CORPUS, "pairs": PAIRS, "pairs of many features": FEW, "tau": TAUS, "paper": PAPER})


def pairs() -> tuple[Tensor, Tensor]:
    """h and c, two different digits of each pair as unit vectors: (PAIRS, d) float32 each."""
    recipe = load_recipe("corpora", CORPUS)
    assert recipe.reader is not None
    found = labelled.load(fetch.corpus_paths(recipe), recipe.reader, LabelsConfig(), None, CORPUS)[0]
    draw = np.random.default_rng(1)
    chosen = np.stack([draw.choice(len(found.features), 2, replace=False) for _ in range(PAIRS)]).T.ravel()
    rows = found.features.rows(chosen)
    x = np.zeros((len(chosen), found.n_features), np.float32)
    assert rows.value is not None
    x[np.repeat(np.arange(len(chosen)), rows.size()), rows.index] = rows.value
    both = normalize(torch.from_numpy(x), dim=1)
    return both[:PAIRS], both[PAIRS:]


def errors(wrong: dict[float, float]) -> dict[str, float]:
    """Mean squared errors of Gaussian values by τ, in both conventions and in millionths."""
    return {f"{kind} τ={tau:g}": 1e6 * value * (math.exp(2 * tau) if kind == "exp" else 1)
            for kind in ("gauss", "exp") for tau, value in wrong.items()}


def _gauss(h: Tensor, c: Tensor, tau: float) -> Tensor:
    return (tau * ((h * c).sum(1).double() - 1)).exp()


def _quadratic(h: Tensor, c: Tensor, threads: int) -> Timed:
    torch.set_num_threads(threads)

    def fit() -> dict[float, float]:
        square = (h * c).sum(1).double().square()
        a, found = torch.stack([square, torch.ones_like(square)], 1), {}
        for tau in TAUS:
            y = _gauss(h, c, tau).unsqueeze(1)
            found[tau] = float((a @ torch.linalg.lstsq(a, y).solution - y).square().mean())
        return found

    seconds, cpu, wrong = timed(fit)
    return Timed(seconds, cpu, errors(wrong))


def _features(name: str, h: Tensor, c: Tensor, threads: int) -> Timed:
    torch.set_num_threads(threads)
    make, n = MAPS[name]
    n_pairs = FEW if n == LARGE else PAIRS
    draws = max(1, min(20, NUMBERS // (n * n_pairs)))
    h, c, random = h[:n_pairs], c[:n_pairs], torch.Generator().manual_seed(1)

    def all_draws() -> dict[float, float]:
        found = {}
        for tau in TAUS:
            kernel, shift = _gauss(h, c, tau), 0.0 if name.startswith(GAUSS) else tau
            wrong = [float((_product(make(n, tau, h.shape[1], random), h, c, tau) * math.exp(-shift) - kernel)
                           .square().mean()) for _ in range(draws)]
            found[tau] = sum(wrong) / draws
        return found

    seconds, cpu, wrong = timed(all_draws)
    return Timed(seconds, cpu, errors(wrong))


def _product(phi: FeatureMap, h: Tensor, c: Tensor, tau: float) -> Tensor:
    """φ(h)·φ(c) of each pair, (n,) float64."""
    if isinstance(phi, PositiveMap):                  # its two sides are scaled separately
        x, y = (v.double() * math.sqrt(tau) for v in (h, c))
        return (phi.log_features(x).exp() * phi.log_features(y).exp()).sum(1)
    x, y = h * math.sqrt(tau), c * math.sqrt(tau)
    step = max(1, (1 << 24) // phi.width)
    return torch.cat([(phi.encode_queries(x[i:i + step])
                       * phi.encode_queries(y[i:i + step])).sum(1, dtype=torch.float64)
                      for i in range(0, len(x), step)])
