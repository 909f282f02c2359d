"""Feature maps against the kernels that they estimate."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from embtrain.common.errors import UsageError
from embtrain.negatives.softmax.kernels.exponential import ExponentialConfig
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.maclaurin import MaclaurinMap
from embtrain.negatives.softmax.kernels.positive_features import PositiveConfig, PositiveMap
from embtrain.negatives.softmax.kernels.quadratic import QuadraticConfig, QuadraticMap
from embtrain.negatives.softmax.kernels.random_directions import DirectionKind, RandomDirections, hadamard, orthogonal
from embtrain.negatives.softmax.kernels.rff import FourierMap, RffConfig

DOUBLE = torch.float64


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def units(n: int, d: int, seed: int, near: float = 0.0) -> torch.Tensor:
    """Return unit vectors; `near` pulls them to one side, as word vectors are."""
    x = torch.randn(n, d, generator=random(seed), dtype=DOUBLE)
    return normalize(normalize(x, dim=1) + near * normalize(torch.ones(d, dtype=DOUBLE), dim=0), dim=1)


def rff(d: int, features: int, kind: DirectionKind = "plain", seed: int = 0, nu: float = 1.0) -> FourierMap:
    return FourierMap(RffConfig(features=features, directions=kind, nu=nu), d, random(seed), "cpu")


def mse(features: FeatureMap, x: torch.Tensor, y: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the mean squared error of φ(x)·φ(y), pair by pair."""
    return float(((features.encode_queries(x) * features.encode_classes(y)).sum(1) - exact).square().mean())


# --- directions ----------------------------------------------------------------------------------------------------

def test_fast_transform_equals_matrix_product() -> None:
    h = torch.ones(1, 1, dtype=DOUBLE)
    for _ in range(5):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)]) / math.sqrt(2)
    x = torch.randn(7, 32, generator=random(), dtype=DOUBLE)
    torch.testing.assert_close(hadamard(x), x @ h.T)
    torch.testing.assert_close(hadamard(hadamard(x)), x)


def test_orthogonal_directions_are_perpendicular_with_normal_lengths() -> None:
    w = orthogonal(25, 10, random()).double()
    for block in (w[:10], w[10:20], w[20:]):
        gram = block @ block.T
        torch.testing.assert_close(gram - gram.diagonal().diag(), torch.zeros_like(gram), atol=1e-5, rtol=0)
    squares = orthogonal(4000, 10, random(1)).double().square().sum(1)      # χ² with 10 degrees of freedom
    assert float(squares.mean()) == pytest.approx(10, abs=0.3) and float(squares.var()) == pytest.approx(20, abs=2.5)
    torch.testing.assert_close(RandomDirections(25, 10, "orthogonal", random(), "cpu").w.double(), w)


@pytest.mark.parametrize("kind", ["plain", "orthogonal", "structured"])
@pytest.mark.parametrize("d", [5, 16])
def test_products_with_directions_have_normal_variance(kind: DirectionKind, d: int) -> None:
    features = RandomDirections(6000, d, kind, random(), "cpu")
    x = torch.randn(2, d, generator=random(1), dtype=DOUBLE)
    p = features.project(x)                                                  # (2, D)
    torch.testing.assert_close(p @ p.T / 6000, x @ x.T, rtol=0.1, atol=0.3)
    assert features.project(x.float()).dtype == torch.float32
    assert float(features.squared_norms().mean()) == pytest.approx(d if kind != "structured" else features.padded_dim,
                                                                   rel=0.05)


def test_structured_directions_equal_product_of_their_matrices() -> None:
    features = RandomDirections(20, 8, "structured", random(), "cpu")
    h = hadamard(torch.eye(8, dtype=DOUBLE))
    rows = []
    for block in range(3):
        w = torch.eye(8, dtype=DOUBLE)
        for signs in features.w.double()[:, block]:
            w = h @ signs.diag() @ w
        rows.append(w * math.sqrt(8))
    x = torch.randn(4, 8, generator=random(2), dtype=DOUBLE)
    torch.testing.assert_close(features.project(x), x @ torch.cat(rows)[:20].T)


# --- random Fourier features ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["plain", "orthogonal", "structured"])
def test_fourier_features_approach_gaussian_kernel_as_1_over_d(kind: DirectionKind) -> None:
    d, nu = 16, 4.0
    x, y = (units(400, d, seed) * math.sqrt(nu) for seed in (1, 2))
    exact = torch.exp(-(x - y).square().sum(1) / 2)
    errors = {}
    for features in (64, 1024):
        maps = [rff(d, features, kind, seed) for seed in range(6)]
        for feature_map in maps:
            feature_map.fit(y, nu)
        errors[features] = sum(mse(feature_map, x, y, exact) for feature_map in maps) / 6
    assert 8 < errors[64] / errors[1024] < 32                              # 16 = 1024 / 64
    assert errors[1024] < 1 / 1024                                         # (1 - K²)² / 2D a frequency
    other = torch.exp(-(x - y).square().sum(1) / (2 * nu ** 2))            # the kernel of the printed w ~ N(0, I/ν)
    assert mse(maps[0], x, y, other) > 30 * errors[1024]


def test_orthogonal_fourier_features_have_lower_error() -> None:
    x, y = units(400, 16, 1), units(400, 16, 2)
    exact = torch.exp(-(x - y).square().sum(1) / 2)
    error = {}
    for kind in ("plain", "orthogonal", "structured"):
        maps = [rff(16, 64, kind, seed) for seed in range(20)]
        for features in maps:
            features.fit(y, 1.0)
        error[kind] = sum(mse(features, x, y, exact) for features in maps) / 20
    assert error["orthogonal"] < 0.7 * error["plain"] and error["structured"] < 0.8 * error["plain"]


def test_vectors_of_any_length_are_weighted_into_exponential_kernel() -> None:
    """e^{‖y‖²/2} φ(x)·φ(y) is e^{x·y} up to a factor of x; the largest weight is 1."""
    x, y = units(1, 6, 1) * 0.7, units(20, 6, 2) * torch.linspace(0.1, 2.0, 20, dtype=DOUBLE).unsqueeze(1)
    features = rff(6, 100_000)
    features.fit(y, float(y.square().sum(1).max()))
    mass = features.encode_classes(y) @ features.encode_queries(x)[0]
    exact = torch.exp(y @ x[0])
    torch.testing.assert_close(mass / exact, (features.log_neutral(x).exp()).expand(20), rtol=0.15, atol=0)
    assert float(features.encode_classes(y).square().sum(1).max()) == pytest.approx(1, abs=1e-6)


def test_long_vectors_do_not_overflow() -> None:
    y = units(50, 6, 2) * torch.linspace(1, 300, 50, dtype=DOUBLE).unsqueeze(1)
    feature_map = rff(6, 32)
    feature_map.fit(y, 300.0 ** 2)
    assert torch.isfinite(feature_map.encode_classes(y.float())).all()
    for kind in ("plain", "hyperbolic", "bounded"):
        positive = PositiveMap(PositiveConfig(features=32, kind=kind), 6, random(), "cpu")
        positive.fit(y, 300.0 ** 2)
        for z in (y, 3 * y):                                               # and if training has made them longer since
            assert torch.isfinite(positive.encode_classes(z.float())).all()
            assert torch.isfinite(positive.encode_queries(z)).all() and (positive.encode_queries(z).amax(1) == 1).all()


# --- other maps ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("features", "tau", "z"), [("score", 3.0, 3.0), ("product", 3.0, 1.0)])
def test_quadratic_map_equals_its_kernel(features: str, tau: float, z: float) -> None:
    h, c = units(20, 7, 1), units(20, 7, 2)
    square = QuadraticMap(QuadraticConfig(alpha=100.0, argument=features), 7, "cpu")
    s = square.scale(tau)
    exact = 100 * (z * (h * c).sum(1)).square() + 1
    assert square.width == 7 * 8 // 2 + 1
    torch.testing.assert_close((square.encode_queries(s * h) * square.encode_classes(s * c)).sum(1), exact)
    torch.testing.assert_close(square.kernel(s * h, h, (s * c).unsqueeze(1))[:, 0], exact)


def test_maclaurin_features_are_unbiased() -> None:
    x, y = units(5, 4, 1), units(5, 4, 2)
    feature_map = MaclaurinMap(ExponentialConfig(features=300_000), 4, random(), "cpu")
    phi = feature_map.encode_queries(x) * feature_map.encode_classes(y) * 300_000      # (5, D), one estimate each
    error = (phi.mean(1) - torch.exp((x * y).sum(1))) / (phi.std(1) / math.sqrt(300_000))
    assert float(error.abs().max()) < 4
    assert sorted(feature_map.degree.tolist(), reverse=True) == feature_map.degree.tolist()
    assert float((feature_map.degree == 0).double().mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("directions", ["plain", "orthogonal"])
@pytest.mark.parametrize("kind", ["plain", "hyperbolic", "bounded"])
def test_positive_features_are_positive_and_unbiased(kind: str, directions: str) -> None:
    x, y = units(4, 5, 1) * 1.2, units(4, 5, 2) * 0.8
    n = 200_000
    feature_map = PositiveMap(PositiveConfig(features=n, kind=kind, directions=directions), 5, random(), "cpu")
    feature_map.fit(y, 0.64)
    feature_map.offset.zero_()
    class_, query = feature_map.encode_classes(y), feature_map.log_features(x).exp()
    assert (class_ > 0).all() and (feature_map.encode_queries(x) >= 0).all()
    torch.testing.assert_close((query * class_).sum(1), torch.exp((x * y).sum(1)), rtol=0.05, atol=0)
    assert (float(feature_map.a) < 0) == (kind == "bounded")


def variance(kind: str, directions: str) -> float:
    x, y = units(300, 8, 1, 0.5) * 1.5, units(300, 8, 2, 0.5) * 1.5
    exact, total = torch.exp((x * y).sum(1)), 0.0
    for seed in range(12):
        feature_map = PositiveMap(PositiveConfig(features=64, kind=kind, directions=directions), 8, random(seed), "cpu")
        feature_map.fit(y, 2.25)
        feature_map.offset.zero_()
        estimate = (feature_map.log_features(x).exp() * feature_map.encode_classes(y)).sum(1)
        total += float((estimate / exact - 1).square().mean())
    return total / 12


def test_each_kind_of_positive_features_has_lower_variance_than_plain() -> None:
    plain = variance("plain", "plain")
    assert variance("plain", "orthogonal") < plain
    assert variance("hyperbolic", "plain") < plain
    assert variance("bounded", "plain") < 0.6 * plain


def test_bound_of_bounded_features_holds() -> None:
    x = units(50, 5, 1) * 3
    feature_map = PositiveMap(PositiveConfig(features=20_000, kind="bounded", directions="plain"), 5, random(), "cpu")
    feature_map.fit(x, 9.0)
    a = float(feature_map.a)
    u = (1 - 4 * a) / (-2 * a) - 1
    assert float(feature_map.log_features(x).max()) <= 5 / 4 * math.log(1 - 4 * a) + u / 2 * 9 - math.log(20_000) / 2
    s = 2 * 9.0                                                            # A has the least variance: perturb it
    def log_variance(t: float) -> float:
        return 5 * math.log(1 - 4 * t) - 2.5 * math.log(1 - 8 * t) + 2 * (1 - 4 * t) * s / (1 - 8 * t)
    assert log_variance(a) < min(log_variance(a * 1.1), log_variance(a * 0.9), log_variance(-1e-9))


def test_errors_are_ordered_as_in_table_1_of_the_paper() -> None:
    """MSE of e^{ν h·c}, in units of e^ν: Maclaurin far above all; more Fourier features, less; Fourier features pass
    the best quadratic a h² + b. In four dimensions the cosines are broad, as they are between images."""
    d, nu, n = 4, 4.0, 600
    h, c = units(n, d, 1), units(n, d, 2)
    x, y, scale = h * math.sqrt(nu), c * math.sqrt(nu), math.exp(-nu)
    exact = torch.exp((x * y).sum(1)) * scale
    powers = torch.stack([(h * c).sum(1).square(), torch.ones(n, dtype=DOUBLE)], 1)
    best = powers @ torch.linalg.lstsq(powers, exact.unsqueeze(1)).solution
    quadratic = float((best[:, 0] - exact).square().mean())
    fourier = {}
    for features in (100, 1000, 5000):
        feature_map = rff(d, features)
        feature_map.fit(y, nu)
        fourier[features] = mse(feature_map, x, y, exact)
    feature_map = MaclaurinMap(ExponentialConfig(features=5000), d, random(), "cpu")
    products = (feature_map.encode_queries(x) * feature_map.encode_classes(y)).sum(1)
    maclaurin = float((products * scale - exact).square().mean())
    assert fourier[100] > 5 * fourier[1000] > 10 * fourier[5000]
    assert maclaurin > 5 * fourier[5000] and quadratic > 5 * fourier[1000]


def test_invalid_feature_settings_are_rejected() -> None:
    with pytest.raises(UsageError, match="nu and temperature"):
        FourierMap(RffConfig(nu=1.0, temperature=2.0), 4, random(), "cpu")
    with pytest.raises(UsageError, match="101 is odd"):
        PositiveMap(PositiveConfig(features=101), 4, random(), "cpu")


@pytest.mark.parametrize(("settings", "tau", "nu"), [({"nu": 2.5}, 9.0, 2.5), ({"temperature": 0.5}, 9.0, 4.0),
                                                     ({}, 9.0, 4.0), ({}, 1.0, 1.0)])
def test_nu_is_a_value_or_a_temperature_or_follows_tau(settings: dict, tau: float, nu: float) -> None:
    features = FourierMap(RffConfig(**settings), 4, random(), "cpu")
    assert features.scale(tau) ** 2 == pytest.approx(nu)


def test_squares_are_summed_and_multiplied_as_their_features() -> None:
    for alpha in (100.0, 0.5):
        features = QuadraticMap(QuadraticConfig(alpha=alpha), 6, "cpu")
        y, prior = units(4 * 5, 6, 1).view(4, 5, 6) * 1.7, torch.rand(4, 5, generator=random(), dtype=DOUBLE)
        x, query_rows = units(3, 6, 2), torch.tensor([0, 2])
        assert not features.encode_queries(x.clone().requires_grad_()).requires_grad  # a draw has no gradient
        torch.testing.assert_close(features.sums(y, prior), FeatureMap.sums(features, y, prior))
        pairs = [torch.outer(v, v)[features.i, features.j] * features.pair_scale * alpha ** 0.5 for v in x]
        torch.testing.assert_close(features.encode_queries(x),
                                   torch.nn.functional.pad(torch.stack(pairs), (0, 1), value=1.0))
        every = features.all_products(x, features.encode_queries(x), query_rows, y[0])
        torch.testing.assert_close(every,
                                   FeatureMap.all_products(features, x, features.encode_queries(x), query_rows, y[0]))
