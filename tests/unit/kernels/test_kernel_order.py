"""Kernel order: core against reference, reference against autograd, and argument checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.cores import CORES, needs_core, using
from helpers.looped import looped
from helpers.order_cases import Case
from hypothesis import given, settings, strategies as st

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.kernels.core.tables import Table, UpdateResult
from embtrain.kernels.training import order as wrapper
from embtrain.losses import base as losses
from embtrain.models.hierarchies.order import Order, OrderConfig
from embtrain.train.optimizers import RowAdagrad


def assert_same(a: tuple[Table, UpdateResult], b: tuple[Table, UpdateResult], tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(a[0].x, b[0].x, rtol=tolerance, atol=tolerance)
    if a[0].acc is not None:
        np.testing.assert_allclose(a[0].acc, b[0].acc, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(a[1].scores, b[1].scores, rtol=tolerance, atol=tolerance)
    assert a[1].loss == pytest.approx(b[1].loss, rel=tolerance, abs=tolerance)


CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "sgd": {"adagrad": False}, "margin": {"loss": "margin"}, "abs": {"abs": True},
    "abs sgd": {"abs": True, "adagrad": False}, "one column": {"k": 1, "rows": 30}, "no column": {"k": 0},
    "no row": {"rows": 0}, "rows meet": {"n": 4, "rows": 20}, "rows meet, abs": {"n": 4, "rows": 20, "abs": True},
    "shared": {"share": 3, "rows": 8, "k": 7}, "weights": {"weight": "column"}, "weights of cells": {"weight": "cell"},
    "targets masked": {"mark_false_negatives": True, "n": 5, "rows": 20}, "observed": {"n_masked": 12, "rows": 9},
    "wide": {"dim": 130, "k": 70, "n": 300}, "narrow": {"dim": 1}, "a line": {"dim": 16}, "far": {"margin": 0.05},
    "near": {"margin": 20.0},
}


@needs_core
@looped("name", CASES)
def test_every_core_updates_like_the_reference(name: str) -> None:
    case = Case(3, **CASES[name])
    for core in CORES[1:]:
        assert_same(case.run(core), case.run("off"))


@needs_core
@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 40), st.integers(0, 12), st.integers(0, 9),
       st.integers(1, 4), st.sampled_from(["order", "margin"]), st.booleans(), st.booleans(), st.booleans(),
       st.integers(0, 9))
def test_core_matches_the_reference_on_any_case(seed: int, n: int, dim: int, rows: int, k: int, share: int, loss: str,
                                                adagrad: bool, mark_false_negatives: bool, abs: bool,
                                                n_masked: int) -> None:
    # Only one unit: in a later one, rounding may move a value across the hinge.
    case = Case(seed, n, dim, min(rows, 1), k, share, loss, adagrad, "cell", mark_false_negatives, n_masked, abs,
                lr=0.05)
    for core in CORES[1:]:
        assert_same(case.run(core), case.run("off"), 1e-4)


@looped("abs", [False, True])
@looped("loss", ["order", "margin"])
@looped("adagrad", [False, True])
@looped("n", [40, 3])
def test_a_unit_equals_a_batch_of_one_row_in_autograd(abs: bool, loss: str, adagrad: bool, n: int) -> None:
    case = Case(1, n, 7, 1, 6, loss=loss, adagrad=adagrad, abs=abs, weight="cell", n_masked=2)
    config = OrderConfig(dim=7, orthant="abs" if abs else "clamp")
    model = Order(config, ProblemSpec(n, torch.ones(n).double(), context_sizes=(n, 2)))
    model.x.data.copy_(torch.from_numpy(case.x))
    optimizer = RowAdagrad([model.x], case.lr) if adagrad else torch.optim.SGD([model.x], case.lr)
    if isinstance(optimizer, RowAdagrad):
        optimizer.accumulator(model.x).copy_(torch.from_numpy(case.acc))
    kind = losses.find(loss)
    cost = kind(kind.Config(name=loss, margin=case.rule.margin), model.problem)
    inputs_, target, slot = (torch.from_numpy(x) for x in case.rows)
    query = Query(model.rows(inputs_), torch.stack([inputs_, slot], 1), target, slot)
    expected, ids = torch.from_numpy(case.negatives.false_negatives), torch.from_numpy(case.negatives.ids)
    drawn = Negatives(ids, weight=torch.from_numpy(case.negatives.weight), false_negatives=expected)
    scored = LossInput(model.score(query, target[:, None])[:, 0], model.score(query, ids), drawn, query,
                    weight=drawn.weight)
    value = cost(scored).per_example.sum()
    value.backward()
    optimizer.step()
    model.after_update(None)
    table, output = case.run("off")
    np.testing.assert_allclose(table.x, model.x.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert output.loss == pytest.approx(float(value.detach()), rel=1e-5, abs=1e-6)
    assert output.scores is not None
    np.testing.assert_allclose(output.scores, scored.neg.detach().numpy(), rtol=1e-5, atol=1e-6)


@needs_core
def test_optional_outputs_change_nothing_and_padding_stays_zero() -> None:
    case = Case(2, dim=50, rows=30)
    kept, _ = case.run(CORES[-1])
    with using(CORES[-1]):
        table = case.table()
        output = wrapper.update(table, case.rows, case.negatives, case.rule, case.lr)
    assert output.scores is None and np.array_equal(table.x, kept.x)  # the early exit skips only inactive negatives
    full = np.lib.stride_tricks.as_strided(table.x, (len(table.x), 64))
    assert (full[:, 50:] == 0).all() and (table.x >= 0).all()


@looped("place", ["concept", "target", "negative", "masked"])
@looped("abs", [False, True])
@looped("loss", ["order", "margin"])
def test_a_coordinate_that_is_nan_reaches_the_loss_and_stays(loss: str, abs: bool, place: str) -> None:
    """The projection must not make it finite, or training would not notice that it diverged."""
    case = Case(3, n=60, rows=3, loss=loss, abs=abs, distinct=True)
    row = {"concept": case.rows.concept[0], "target": case.rows.target[0]}.get(place, case.negatives.ids[0, 2])
    case.x[row, 3] = np.nan
    if place == "masked":
        case.negatives = case.negatives._replace(false_negatives=np.array([[0], [2]]))
    with np.errstate(invalid="ignore"):
        for core in CORES:
            table, output = case.run(core)
            assert np.isnan(output.loss) == (place != "masked") and np.isnan(table.x[row, 3]), core


@needs_core
@pytest.mark.parametrize("threads", [2, 5])
def test_threads_on_disjoint_rows_equal_one_thread(threads: int) -> None:
    case = Case(5, n=400, rows=40, k=4, distinct=True)
    assert_same(case.run(CORES[-1], threads), case.run(CORES[-1]), 1e-7)


@looped("core", CORES)
@looped("spoil", ["concept", "target", "slot", "ids", "row", "column", "twice"])
def test_out_of_range_ids_are_rejected_before_any_write(core: str, spoil: str) -> None:
    case = Case(4, n_masked=9)
    expected = case.negatives.false_negatives
    assert expected is not None
    if spoil == "row":
        expected[0, -1] = 6
    elif spoil == "column":
        expected[1, 0] = -1
    elif spoil == "twice":
        expected[:, 1] = expected[:, 0]
    else:
        ids = case.negatives.ids if spoil == "ids" else getattr(case.rows, spoil)
        ids.flat[-1] = {"concept": 40, "target": -1, "slot": 2, "ids": 40}[spoil]
    table = case.table()
    with using(core), pytest.raises(IndexError, match="false_negatives" if spoil in ("row", "column", "twice")
                                    else spoil):
        wrapper.update(table, case.rows, case.negatives, case.rule, 0.1)
    assert np.array_equal(table.x, case.x)


def test_mismatched_layouts_and_types_are_rejected() -> None:
    case = Case(4, weight="cell")
    x, rows, negatives, rule = case.table().x, case.rows, case.negatives, case.rule
    for table, unit_rows, drawn, how in [
            (Table(case.x), rows, negatives, rule), (Table(x.astype(np.float64)), rows, negatives, rule),
            (Table(x, np.zeros(3, np.float32)), rows, negatives, rule),
            (Table(x), rows._replace(slot=rows.slot[1:]), negatives, rule),
            (Table(x), rows, negatives._replace(share=2), rule),
            (Table(x), rows, negatives._replace(ids=negatives.ids[0]), rule),
            (Table(x), rows, negatives._replace(weight=np.ones(3, np.float32)), rule),
            (Table(x), rows, negatives._replace(false_negatives=np.zeros((3, 1), np.int64)), rule),
            (Table(x), rows, negatives, rule._replace(loss="nce"))]:
        with pytest.raises(ValueError, match=r"expected|do not fit|unknown loss|must "):
            wrapper.update(table, unit_rows, drawn, how, 0.1)
