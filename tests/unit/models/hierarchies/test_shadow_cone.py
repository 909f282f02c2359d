"""Shadow cones: signed distances against a search over the edge, in the plane; angles; shadows of light rays."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.common.types import ProblemSpec
from embtrain.data.hierarchy.examples import PairBatch
from embtrain.models.hierarchies.shadow_cone import ShadowCone, ShadowConeConfig, distance, signed_distance

DOUBLE = torch.float64
H, R = 5.0, 0.4


def config(light: str) -> ShadowConeConfig:
    return ShadowConeConfig(dim=2, light=light, radius=R, height=H)  # type: ignore[arg-type]


def points(n: int, seed: int) -> torch.Tensor:
    """Points (y, log h) of the half-plane, h < H."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, generator=draw, dtype=DOUBLE) * torch.tensor([2.0, 1.0], dtype=DOUBLE)


def scores(light: str, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The score in training."""
    return -signed_distance(u, v, config(light))


def evaluated(light: str, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ShadowCone.entailment_score(u, v, config(light))


def plane_distance(y1: torch.Tensor, h1: torch.Tensor, y2: torch.Tensor, h2: torch.Tensor) -> torch.Tensor:
    return torch.acosh(1 + ((y1 - y2) ** 2 + (h1 - h2) ** 2) / (2 * h1 * h2))


def edge(light: str, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense points (y, h) of the right edge of the cone of v (2,): straight, or a ray of light that touches H."""
    top = float(v[1].exp())
    h = top * torch.logspace(0, -6, 200_001, dtype=DOUBLE)
    width = math.sinh(R) * (top - h) if light == "umbral" else (H**2 - h**2).sqrt() - math.sqrt(H**2 - top**2)
    return v[0] + width, h


@pytest.mark.parametrize("light", ["umbral", "penumbral"])
def test_score_is_the_signed_distance_to_the_edge_by_search(light: str) -> None:
    u, v = points(12, 1), points(12, 2)
    for a, b, s in zip(u, v, scores(light, u, v), strict=True):
        y, h = edge(light, b)
        right = b[0] + (a[0] - b[0]).abs()  # the cone is symmetric
        nearest = float(plane_distance(right, a[1].exp(), y, h).min())
        i = int((h - a[1].exp()).abs().argmin())
        is_inside = bool(a[1] <= b[1]) and float(right) <= float(y[i])
        assert float(s) == pytest.approx(nearest if is_inside else -nearest, abs=1e-4), (a, b)


@pytest.mark.parametrize("light", ["umbral", "penumbral"])
def test_membership_equals_the_inequality_of_positions_and_heights(light: str) -> None:
    u, v = points(500, 3), points(500, 4)
    a, h_u, h_v = (u[:, 0] - v[:, 0]).abs(), u[:, 1].exp(), v[:, 1].exp()
    u, v, a, h_u, h_v = (x[(h_u < H) & (h_v < H)] for x in (u, v, a, h_u, h_v))
    inside = (a <= math.sinh(R) * (h_v - h_u)) if light == "umbral" else (
        (h_u <= h_v) & (a <= (H**2 - h_u**2).sqrt() - (H**2 - h_v**2).sqrt()))
    for score in (scores, evaluated):
        assert torch.equal(score(light, u, v) >= 0, inside) and inside.sum() > 20


def test_evaluated_score_of_umbral_cones_is_an_angle_of_the_plane() -> None:
    u, v = points(50, 11), points(50, 12)
    h_u, h_v = u[:, 1].exp(), v[:, 1].exp()
    angle = [math.atan2(abs(float(a)), float(b)) for a, b in zip(u[:, 0] - v[:, 0], h_v - h_u, strict=True)]
    expected = torch.tensor([math.atan(math.sinh(R)) - x for x in angle], dtype=DOUBLE)
    torch.testing.assert_close(evaluated("umbral", u, v), expected)


def test_evaluated_score_of_penumbral_cones_is_an_angle_of_geodesics() -> None:
    """The geodesic from v to u is a circle with its centre on the boundary; its tangent is orthogonal to the radius."""
    u, v = points(50, 13), points(50, 14)
    for a, b, s in zip(u, v, evaluated("penumbral", u, v), strict=True):
        (y_u, h_u), (y_v, h_v) = ((float(p[0]), math.exp(float(p[1]))) for p in (a, b))
        if h_v >= H or y_u == y_v:
            continue
        centre = (y_u**2 + h_u**2 - y_v**2 - h_v**2) / (2 * (y_u - y_v))
        tangent = (h_v, centre - y_v) if y_u > y_v else (-h_v, y_v - centre)     # towards u
        down = math.acos(-tangent[1] / math.hypot(*tangent))
        assert float(s) == pytest.approx(math.asin(h_v / H) - down, abs=1e-9)


@pytest.mark.parametrize("light", ["umbral", "penumbral"])
def test_evaluated_score_keeps_its_digits_where_heights_are_close(light: str) -> None:
    u, v = (points(50, seed) * torch.tensor([1e-4, 1e-3], dtype=DOUBLE) for seed in (15, 16))
    exact, rounded = evaluated(light, u, v), evaluated(light, u.float(), v.float())
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, atol=1e-4, rtol=0)


def test_every_threshold_of_the_umbral_angle_is_transitive() -> None:
    x = points(100, 17)
    score = evaluated("umbral", x[:, None], x[None])
    for threshold in (-0.5, -0.2, 0.1):
        holds = score >= threshold
        by_two_steps = (holds.float() @ holds.float()) > 0
        assert by_two_steps.sum() > 100 and not (by_two_steps & (score < threshold - 1e-9)).any()


def test_umbral_shadow_contains_the_ball_exactly_if_its_points_are_shadowed() -> None:
    """The ball of radius r at (y, h) is the Euclidean disc at height h cosh r of radius h sinh r."""
    u, v = points(200, 5), points(200, 6)
    turn = torch.linspace(0, 2 * math.pi, 721, dtype=DOUBLE)
    h_u, h_v = u[:, 1].exp(), v[:, 1].exp()
    y = u[:, :1] + (h_u * math.sinh(R))[:, None] * turn.cos()
    in_strip = ((y - v[:, :1]).abs() <= (h_v * math.sinh(R))[:, None] + 1e-9).all(1)
    assert torch.equal(scores("umbral", u, v) >= -1e-9, in_strip)


@pytest.mark.parametrize("light", ["umbral", "penumbral"])
def test_score_does_not_change_under_isometries(light: str) -> None:
    u, v = points(50, 7), points(50, 8)
    moved = torch.tensor([3.0, 0.0], dtype=DOUBLE)
    torch.testing.assert_close(scores(light, u + moved, v + moved), scores(light, u, v))
    torch.testing.assert_close(evaluated(light, u + moved, v + moved), evaluated(light, u, v))
    if light == "umbral":  # the source at infinity stays where it is if the plane is scaled by e
        scaled = [torch.stack([x[:, 0] * math.e, x[:, 1] + 1], 1) for x in (u, v)]
        torch.testing.assert_close(scores(light, *scaled), scores(light, u, v))
        torch.testing.assert_close(evaluated(light, *scaled), evaluated(light, u, v))


def test_distance_equals_the_arcosh_of_the_half_space() -> None:
    u, v = points(50, 9), points(50, 10)
    torch.testing.assert_close(distance((u[:, 0] - v[:, 0]).abs(), u[:, 1], v[:, 1]),
                               plane_distance(u[:, 0], u[:, 1].exp(), v[:, 0], v[:, 1].exp()))


def test_points_stay_below_the_source_of_light() -> None:
    model = ShadowCone(config("penumbral"), ProblemSpec(3, torch.ones(3), context_sizes=(3, 2), dim=2, seed=1))
    with torch.no_grad():
        model.x[:, 1] = torch.tensor([99.0, -99.0, 0.5])
    model.after_update(PairBatch(torch.tensor([0]), torch.tensor([0]), torch.tensor([1])))
    assert model.x[:, 1].tolist() == [math.log(H), -40.0, 0.5]
