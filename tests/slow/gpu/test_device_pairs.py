"""The Triton kernel of order embeddings against the NumPy reference, in Triton's interpreter or on a CUDA device.

On a device, rows that share concepts are updated at the same time. Cases with several rows then have distinct concepts.
Under row-Adagrad the reference sums the gradients of a concept that occurs twice in a row, and the kernel does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.order_cases import Case
from helpers.triton_kernels import IS_INTERPRETED, Pairs
from hypothesis import given, settings, strategies as st

from embtrain.kernels.device.pairs import update as device
from embtrain.kernels.training.order import OrderLossSpec

pytestmark = pytest.mark.slow

#: Rows recur from row to row in the interpreter, and inside rows by SGD.
CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "margin": {"loss": "margin"}, "abs": {"abs": True}, "one column": {"k": 1, "rows": 30},
    "rows meet": {"n": 4, "rows": 20}, "rows meet, abs": {"n": 4, "rows": 20, "abs": True},
    "shared": {"share": 3, "rows": 8, "k": 7}, "weights": {"weight": "column"}, "weights of cells": {"weight": "cell"},
    "targets masked": {"mark_false_negatives": True, "n": 5, "rows": 20}, "observed": {"n_masked": 12, "rows": 9},
    "narrow": {"dim": 1}, "a line": {"dim": 16}, "far": {"margin": 0.05}, "near": {"margin": 20.0},
    "wide": {"dim": 130, "k": 70, "n": 300, "lr": 0.01},
}


def assert_agree(case: Case, rows_at_once: int = device.ROWS_AT_ONCE) -> None:
    """Same table, accumulators, loss and scores; the padding between rows is untouched."""
    table, output = case.run("off")
    run = Pairs(case, rows_at_once)
    np.testing.assert_allclose(run.table.x.cpu().numpy(), table.x, rtol=3e-5, atol=3e-5)
    assert (run.table.x._base[:, case.dim:] == 0).all() and (case.rule.abs or (run.table.x >= 0).all())
    if table.acc is not None:
        np.testing.assert_allclose(run.table.acc.cpu().numpy(), table.acc, rtol=5e-5, atol=1e-5)
    assert float(run.result.loss.sum(dtype=torch.float64)) == pytest.approx(output.loss, rel=3e-5, abs=3e-5)
    np.testing.assert_allclose(run.result.scores.cpu().numpy(), output.scores, rtol=3e-5, atol=3e-5)


@pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: rows with common concepts are updated at once on a device")
@pytest.mark.parametrize("name", CASES)
def test_rows_that_recur_by_sgd(name: str) -> None:
    assert_agree(Case(3, adagrad=False, **({"lr": 0.05} | CASES[name])))


@pytest.mark.parametrize("loss", ["order", "margin"])
@pytest.mark.parametrize("abs", [False, True])
@pytest.mark.parametrize("adagrad", [False, True])
@pytest.mark.parametrize("weight", ["none", "cell"])
@pytest.mark.parametrize("rows_at_once", [1, 3, 1 << 20])
def test_distinct_rows(loss: str, abs: bool, adagrad: bool, weight: str, rows_at_once: int) -> None:
    assert_agree(Case(4, 60, 20, loss=loss, abs=abs, adagrad=adagrad, weight=weight, n_masked=4, distinct=True),
                 rows_at_once)


def test_negatives_that_exceed_the_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "MAX_READ", 64)
    for loss in ("order", "margin"):
        assert_agree(Case(4, 200, 20, 6, 13, loss=loss, adagrad=True, weight="cell", distinct=True))


@pytest.mark.parametrize("place", ["concept", "target", "negative", "masked"])
@pytest.mark.parametrize("abs", [False, True])
@pytest.mark.parametrize("loss", ["order", "margin"])
def test_a_coordinate_that_is_nan_reaches_the_loss(loss: str, abs: bool, place: str) -> None:
    """Training stops when the loss is not finite. A negative that does not count cannot stop it."""
    case = Case(3, n=60, rows=3, loss=loss, abs=abs, distinct=True)
    row = {"concept": case.rows.concept[0], "target": case.rows.target[0]}.get(place, case.negatives.ids[0, 2])
    case.x[row, 3] = np.nan
    if place == "masked":
        case.negatives = case.negatives._replace(false_negatives=np.array([[0], [2]]))
    assert bool(Pairs(case).result.loss.isnan().any()) == (place != "masked")


@pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: rows with common concepts are updated at once on a device")
@settings(max_examples=40)
@given(case=st.builds(
    Case, seed=st.integers(0, 10**6), n=st.integers(2, 30), dim=st.integers(1, 40), rows=st.integers(0, 9),
    k=st.integers(1, 9), share=st.integers(1, 4), loss=st.sampled_from(["order", "margin"]), adagrad=st.just(False),
    mark_false_negatives=st.booleans(), abs=st.booleans(), n_masked=st.integers(0, 9), lr=st.just(0.01)))
def test_any_case_by_sgd(case: Case) -> None:
    assert_agree(case)


@pytest.mark.parametrize("spoil", ["ids", "share", "slot", "acc", "weight", "loss"])
def test_mismatched_arguments_are_rejected(spoil: str) -> None:
    case = Case(4)
    if spoil == "acc":
        case.acc = np.zeros(3, np.float32)
    elif spoil == "slot":
        case.rows = case.rows._replace(slot=case.rows.slot[1:])
    elif spoil == "loss":
        case.rule = OrderLossSpec("hinge", 1.0)  # type: ignore[arg-type]
    else:
        change = {"ids": np.zeros((5, 5), np.int64), "share": 2, "weight": np.ones(4, np.float32)}[spoil]
        case.negatives = case.negatives._replace(**{spoil: change})
    with pytest.raises(ValueError, match=r"^(negatives|loss|slot|x\.acc|weight): "):
        Pairs(case)
