"""Kernel hyperbolic: reference against autograd and differences, core against reference, and argument checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.cores import CORES, needs_core, using
from helpers.looped import looped

from embtrain.common.types import ProblemSpec
from embtrain.kernels.arguments.pairs import HyperbolicSpace
from embtrain.kernels.core.tables import NegativeBatch, Table, UpdateResult
from embtrain.kernels.reference.training import hyperbolic as reference
from embtrain.kernels.training import hyperbolic as wrapper
from embtrain.kernels.training.hyperbolic import HyperbolicLossSpec, PairRows
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.cone import Cone, ConeConfig
from embtrain.models.hierarchies.poincare import Poincare, PoincareConfig
from embtrain.models.hierarchies.shadow_cone import ShadowCone, ShadowConeConfig

SPACES = ("poincare", "cone", "umbral", "penumbral")


def model(space: str, n: int = 40, dim: int = 5) -> HierarchyModel:
    problem = ProblemSpec(n, torch.ones(n).double(), dim=dim, context_sizes=(n, 2))
    if space == "poincare":
        return Poincare(PoincareConfig(dim=dim), problem)
    if space == "cone":
        return Cone(ConeConfig(dim=dim), problem)
    return ShadowCone(ShadowConeConfig(dim=dim, light=space, radius=0.4, height=9.0), problem)  # type: ignore[arg-type]


def points(space: str, n: int, dim: int, draw: np.random.Generator) -> np.ndarray:
    """Points all over the space, so that every branch of a score occurs."""
    x = draw.standard_normal((n, dim))
    if space in ("poincare", "cone"):
        return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True) * draw.uniform(0.2, 0.95, (n, 1)))
    return np.clip(x * np.where(np.arange(dim) == dim - 1, 0.7, 0.4), -2, 2)


class Case:
    """A table, rows and negatives; `run` updates a copy of the table."""

    def __init__(self, space: str, seed: int = 3, n: int = 40, dim: int = 5, rows: int = 12, k: int = 6, share: int = 1,
                 loss: str = "hinged_softmax", adagrad: bool = False, weight: str = "none", mask_target: bool = False,
                 n_masked: int = 0, margin: float = 0.3, lr: float = 0.01, log_q: str = "table"):
        draw = np.random.default_rng(seed)
        self.space, self.lr, self.x = model(space, n, dim).space(), lr, points(space, n, dim, draw)
        self.acc = draw.random(n) if adagrad else None
        g = -(-rows // share)
        self.rows = PairRows(draw.integers(0, n, rows), draw.integers(0, n, rows), draw.integers(0, 2, rows))
        shape = {"none": None, "column": (k,), "cell": (g, k)}[weight]
        weights = None if shape is None else (draw.integers(0, 3, shape) * draw.random(shape)).astype(np.float32)
        masked = None
        if n_masked:
            masked = np.ascontiguousarray(np.unique(np.stack(
                [draw.integers(0, rows, n_masked), draw.integers(0, k, n_masked)], 1), axis=0).T)
        q = {"table": {"log_q_table": np.log(draw.random(n)).astype(np.float32)},
             "cells": {"log_q": np.log(draw.random((g, k))).astype(np.float32)}}[log_q]
        self.negatives = NegativeBatch(draw.integers(0, n, (g, k)), share, weight=weights, mask_target=mask_target,
                                       false_negatives=masked, total_weight=float(max(k, 1)), **q)
        self.loss_spec = HyperbolicLossSpec(loss, margin)  # type: ignore[arg-type]

    def run(self, core: str, threads: int = 1, keep: bool = True) -> tuple[Table, UpdateResult]:
        with using(core):
            table = Table(self.x.copy(), None if self.acc is None else self.acc.copy())
            return table, wrapper.update(table, self.rows, self.negatives, self.space, self.loss_spec, self.lr, threads,
                                         keep)


def assert_same(a: tuple[Table, UpdateResult], b: tuple[Table, UpdateResult]) -> None:
    np.testing.assert_allclose(a[0].x, b[0].x, rtol=1e-9, atol=1e-11)
    if a[0].acc is not None:
        np.testing.assert_allclose(a[0].acc, b[0].acc, rtol=1e-9)
    np.testing.assert_allclose(a[1].scores, b[1].scores, rtol=1e-6, atol=1e-7)
    assert a[1].loss == pytest.approx(b[1].loss, rel=1e-9)


CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "row-adagrad": {"adagrad": True}, "order": {"loss": "order"}, "softmax": {"loss": "sampled_softmax"},
    "softmax, log q of cells": {"loss": "sampled_softmax", "log_q": "cells", "share": 3, "k": 7},
    "no negative": {"k": 0}, "no row": {"rows": 0}, "rows meet": {"n": 4, "rows": 30}, "two columns": {"dim": 2},
    "rows meet, order": {"n": 4, "rows": 30, "loss": "order", "adagrad": True}, "shared": {"share": 3, "rows": 8},
    "weights": {"weight": "column"}, "weights of cells": {"weight": "cell", "loss": "order"},
    "targets masked": {"mask_target": True, "n": 5}, "observed": {"n_masked": 12, "loss": "sampled_softmax"},
    "wide": {"dim": 33, "k": 70, "n": 300}, "into the bounds": {"lr": 20.0},
}


@pytest.mark.parametrize("space", SPACES)
def test_slopes_of_the_reference_equal_those_of_autograd(space: str) -> None:
    built, draw = model(space), np.random.default_rng(1)
    where = built.space()
    u, v = (torch.from_numpy(points(space, 300, 5, draw)).requires_grad_() for _ in range(2))
    s = built.pair_score(u, v)
    s.sum().backward()
    assert u.grad is not None and v.grad is not None
    for i in range(300):
        result = reference.pair_score(where, u[i].detach().numpy(), v[i].detach().numpy())
        assert result[0] == pytest.approx(float(s[i].detach()), rel=1e-10, abs=1e-12)
        np.testing.assert_allclose(result[1], u.grad[i], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(result[2], v.grad[i], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("space", SPACES)
def test_slopes_equal_central_differences(space: str) -> None:
    where, draw, step = model(space).space(), np.random.default_rng(2), 1e-6
    u, v = points(space, 50, 5, draw), points(space, 50, 5, draw)
    for a, b in zip(u, v, strict=True):
        _, of_u, of_v = reference.pair_score(where, a, b)
        differences = [[(reference.pair_score(where, *plus)[0] - reference.pair_score(where, *minus)[0]) / (2 * step)
                        for plus, minus in (((a + e, b), (a - e, b)), ((a, b + e), (a, b - e)))]
                       for e in step * np.eye(5)]
        np.testing.assert_allclose(np.stack([of_u, of_v], 1), differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_metric_and_bounds_are_those_of_the_model(space: str) -> None:
    built = model(space)
    x = points(space, 40, 5, np.random.default_rng(3))
    leaf = torch.from_numpy(x).requires_grad_()
    built.x = torch.nn.Parameter(leaf.detach().clone())
    built.rows(torch.arange(40)).sum().backward()
    assert built.x.grad is not None
    metric = np.stack([reference.inverse_metric(built.space(), row) for row in x])
    np.testing.assert_allclose(metric, built.x.grad.to_dense(), rtol=1e-12)
    far = torch.from_numpy(np.concatenate([x * scale for scale in (1e-3, 1.0, 1e3)]))
    built.x = torch.nn.Parameter(far.clone())
    built.keep_bounds()
    np.testing.assert_allclose(np.stack([reference.bounded(built.space(), row) for row in far.numpy()]),
                               built.x.detach(), rtol=1e-12)


@needs_core
@looped("space", SPACES)
@looped("name", CASES)
def test_every_core_updates_like_the_reference(name: str, space: str) -> None:
    case = Case(space, **CASES[name])
    for core in CORES[1:]:
        assert_same(case.run(core), case.run("off"))


@needs_core
def test_repeated_runs_have_the_same_bits_and_scores_change_nothing() -> None:
    case = Case("umbral", rows=200)
    first, again, alone = case.run(CORES[-1]), case.run(CORES[-1]), case.run(CORES[-1], keep=False)
    assert np.array_equal(first[0].x, again[0].x) and first[1].loss == again[1].loss
    assert alone[1].scores is None and np.array_equal(first[0].x, alone[0].x)


@needs_core
@pytest.mark.parametrize("threads", [2, 5])
def test_threads_on_disjoint_rows_equal_one_thread(threads: int) -> None:
    case = Case("poincare", n=400, rows=40, k=4, loss="sampled_softmax", n_masked=9)
    places = np.random.default_rng(0).permutation(400)[:240].reshape(40, 6)
    rows = PairRows(places[:, 0].copy(), places[:, 1].copy(), case.rows.slot)
    case.rows, case.negatives = rows, case.negatives._replace(ids=np.ascontiguousarray(places[:, 2:]))
    assert_same(case.run(CORES[-1], threads), case.run(CORES[-1]))


@looped("core", CORES)
@looped("spoil", ["concept", "target", "slot", "ids", "row", "column", "twice"])
def test_out_of_range_ids_are_rejected_before_any_write(core: str, spoil: str) -> None:
    case = Case("cone", rows=6, n_masked=9)
    masked = case.negatives.false_negatives
    assert masked is not None
    if spoil == "row":
        masked[0, -1] = 6
    elif spoil == "column":
        masked[1, 0] = -1
    elif spoil == "twice":
        masked[:, 1] = masked[:, 0]
    else:
        ids = case.negatives.ids if spoil == "ids" else getattr(case.rows, spoil)
        ids.flat[-1] = {"concept": 40, "target": -1, "slot": 2, "ids": 40}[spoil]
    table = Table(case.x.copy())
    with using(core), pytest.raises(IndexError, match="false_negatives" if spoil in ("row", "column", "twice")
                                    else spoil):
        wrapper.update(table, case.rows, case.negatives, case.space, case.loss_spec, 0.1)
    assert np.array_equal(table.x, case.x)


@looped("core", CORES)
@looped("space", SPACES)
def test_a_row_that_is_not_finite_stays_so(core: str, space: str) -> None:
    """The bounds must not make it finite, or training would not notice that it diverged."""
    case = Case(space)
    case.x[5, 0], case.rows.concept[0] = np.nan, 5
    with np.errstate(invalid="ignore"):
        assert np.isnan(case.run(core)[0].x[5]).any()


@looped("place", ["concept", "target", "negative", "masked"])
@looped("loss", ["hinged_softmax", "order", "sampled_softmax"])
@looped("space", SPACES)
def test_a_score_that_is_nan_reaches_the_loss(space: str, loss: str, place: str) -> None:
    """Training stops when the loss is not finite. A negative that does not count cannot stop it."""
    case = Case(space, rows=1, loss=loss)
    case.rows.concept[0], case.rows.target[0], case.negatives.ids[0] = 0, 1, range(2, 8)
    case.x[{"concept": 0, "target": 1}.get(place, 4)] = np.nan
    if place == "masked":
        case.negatives = case.negatives._replace(false_negatives=np.array([[0], [2]]))
    with np.errstate(invalid="ignore"):
        for core in CORES:
            assert np.isnan(case.run(core)[1].loss) == (place != "masked"), core


def test_mismatched_layouts_and_types_are_rejected() -> None:
    case = Case("umbral")
    x, rows, negatives, loss = case.x, case.rows, case.negatives, case.loss_spec
    softmax = HyperbolicLossSpec("sampled_softmax")
    wrong: list[tuple[Table, PairRows, NegativeBatch, HyperbolicSpace, HyperbolicLossSpec]] = [
        (Table(x.astype(np.float32)), rows, negatives, case.space, loss),
        (Table(x[:, :4]), rows, negatives, case.space, loss),
        (Table(x[:, :1].copy()), rows, negatives, case.space, loss),
        (Table(x, np.zeros(3)), rows, negatives, case.space, loss),
        (Table(x), rows._replace(slot=rows.slot[1:]), negatives, case.space, loss),
        (Table(x), rows, negatives._replace(share=0), case.space, loss),
        (Table(x), rows, negatives, case.space._replace(score="flat"), loss),  # type: ignore[arg-type]
        (Table(x), rows, negatives, case.space, loss._replace(loss="nce")),  # type: ignore[arg-type]
        (Table(x), rows, negatives, case.space, softmax._replace(ranking=True)),
        (Table(x), rows, negatives._replace(log_q_table=None), case.space, softmax)]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"expected|must |unknown|log q"):
            wrapper.update(*arguments, 0.1)
