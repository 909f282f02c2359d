"""The Triton kernel of skip-gram against the NumPy reference, in Triton's interpreter or on a CUDA device.

On a device, units that share rows run at the same time. Cases with several units then have distinct rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.triton_kernels import IS_INTERPRETED, Case, device, negatives, run, tensor
from hypothesis import given, settings, strategies as st

from embtrain.kernels.core.tables import LOSSES
from embtrain.kernels.reference.training import skipgram as reference
from embtrain.kernels.training.skipgram import SkipGramLossSpec, Windows

pytestmark = pytest.mark.slow

SIZES = [3, 1, 5, 2, 2, 4]


def assert_agree(case: Case, windows_at_once: int = device.WINDOWS_AT_ONCE) -> None:
    """Same tables, accumulators, loss, scores and ∂L/∂c; the padding between rows is untouched."""
    keep = case.negatives.share <= 1
    u, v, loss, scores, c_grad = case.expected()
    u_, v_, result = run(case, keep, windows_at_once)
    size = max(1.0, float(np.abs(u.x).max()), float(np.abs(v.x).max()))
    for actual, second in ((u_, u), (v_, v)):
        np.testing.assert_allclose(actual.x.cpu().numpy(), second.x, rtol=2e-5, atol=2e-5 * size)
        if second.acc is not None:
            np.testing.assert_allclose(actual.acc.cpu().numpy(), second.acc, rtol=5e-5, atol=1e-6)
        base = actual.x._base
        assert base is None or (base[:, actual.x.shape[1]:] == 7.0).all()
    np.testing.assert_allclose(float(result.loss.sum(dtype=torch.float64)), loss, rtol=2e-5, atol=1e-5)
    assert (result.scores is None) != keep and (result.c_grad is None) == (c_grad is None)
    if keep:
        np.testing.assert_allclose(result.scores.cpu().numpy(), scores, rtol=2e-5, atol=2e-5 * size)
    if c_grad is not None:
        np.testing.assert_allclose(result.c_grad.cpu().numpy(), c_grad, rtol=1e-4, atol=2e-5)


def case_of(share: int, loss: str, adagrad: bool = False, **more: Any) -> Case:
    """Several units whose rows recur, if units run in order and the kernel sums what the reference sums; else distinct.
    """
    distinct = adagrad or not IS_INTERPRETED
    return Case(5, 20, 200 if distinct else 23, 20, SIZES, share, 5, loss, adagrad, distinct=distinct, **more)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("share", [0, 1, 4])
@pytest.mark.parametrize("adagrad", [False, True])
@pytest.mark.parametrize("mask", ["none", "target", "observed"])
@pytest.mark.parametrize("weight", ["none", "column", "cell"])
@pytest.mark.parametrize("log_q", ["static", "cell"])
def test_every_combination(loss: str, share: int, adagrad: bool, mask: str, weight: str, log_q: str) -> None:
    assert_agree(case_of(share, loss, adagrad, weight=weight, log_q=log_q, c="each" if adagrad else "one",
                         mask_target=mask == "target", n_masked=12 if mask == "observed" else 0))


@pytest.mark.filterwarnings("ignore:All-NaN|invalid value:RuntimeWarning")   # of the interpreter
@pytest.mark.parametrize("place", ["centre", "target", "negative", "masked"])
@pytest.mark.parametrize("share", [0, 1, 4])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_score_that_is_nan_reaches_the_loss(loss: str, share: int, place: str) -> None:
    """Training stops when the loss is not finite. A negative that does not count cannot stop it."""
    case = case_of(share, loss, adagrad=True)
    table, row = {"centre": (case.u_x, case.windows.centre[0]), "target": (case.v_x, case.windows.target[0])}.get(
        place, (case.v_x, case.negatives.ids[0, 2]))
    table[row] = np.nan
    if place == "masked":
        n = {0: 1, 1: SIZES[0], 4: sum(SIZES[:4])}[share]            # pairs with the first draw
        case.negatives = case.negatives._replace(false_negatives=np.array([range(n), [2] * n]))
    assert bool(run(case)[2].loss.sum().isnan()) == (place != "masked")


@pytest.mark.parametrize("share", [0, 1, 4])
@pytest.mark.parametrize("windows_at_once", [1, 2, 3, 5, 7])
def test_few_programs_update_all_units_in_order(share: int, windows_at_once: int) -> None:
    assert_agree(case_of(share, "logistic"), windows_at_once)


@pytest.mark.parametrize("share", [0, 1, 4])
def test_both_forms_of_sampled_softmax(share: int) -> None:
    for ranking in (False, True):
        for log_q in ("static", "cell"):
            assert_agree(case_of(share, "sampled_softmax", ranking=ranking, log_q=log_q, mask_target=True))


@pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: units with common rows run at the same time on a device")
@settings(max_examples=60)
@given(case=st.builds(
    Case, seed=st.integers(0, 2**32), n_u=st.integers(1, 9), n_v=st.integers(2, 40),
    dim=st.sampled_from([1, 3, 4, 7, 8, 13, 16, 20, 31, 36, 100]),
    sizes=st.lists(st.integers(1, 11), min_size=1, max_size=6), share=st.sampled_from([0, 0, 1, 1, 2, 3, 5, 50]),
    k=st.sampled_from([1, 2, 5, 8, 16, 19]), loss=st.sampled_from(sorted(LOSSES)),
    weight=st.sampled_from(["none", "column", "cell"]), log_q=st.sampled_from(["static", "cell"]),
    c=st.sampled_from(["none", "one", "each"]), mask_target=st.booleans(), n_masked=st.sampled_from([0, 0, 5, 60]),
    pad=st.sampled_from([0, 1, 12]), ranking=st.booleans()))
def test_rows_that_recur(case: Case) -> None:
    """Dimensions and numbers of negatives that are no powers of two, and rows that recur inside units and across."""
    assert_agree(case)


@pytest.mark.parametrize("share", [0, 1, 2])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_repeated_rows_in_one_unit(loss: str, share: int) -> None:
    """One unit, on every device: scores are those before its update, and gradients of a row are summed."""
    assert_agree(Case(4, 2, 3, 13, [9] if share < 2 else [5, 4], share, 7, loss, c="each"))


@pytest.mark.parametrize("share", [0, 1, 3])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 8.0, 300.0])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")      # NumPy, in the interpreter
def test_extreme_scores(loss: str, scale: float, share: int) -> None:
    assert_agree(Case(11, 5, 30 if IS_INTERPRETED else 36, 24, [2, 3, 1], share, 5, loss, weight="cell", scale=scale,
                      mask_target=True, lr=0.01, distinct=not IS_INTERPRETED))


@pytest.mark.parametrize("share", [0, 1, 2])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_negative_masked(loss: str, share: int) -> None:
    case = Case(4, 9, 60, 10, [2, 1, 2], share, 3, loss, distinct=not IS_INTERPRETED)
    pair, column = np.divmod(np.arange(15), 3)
    case.negatives = case.negatives._replace(false_negatives=np.stack([pair, column]).astype(np.int64))
    assert_agree(case)
    if loss in ("margin", "sampled_softmax"):
        u, v, result = run(case)
        assert float(result.loss.abs().sum()) == 0
        assert (u.x.cpu().numpy() == case.u_x).all() and (v.x.cpu().numpy() == case.v_x).all()


@pytest.mark.parametrize("share", [0, 1, 2])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.filterwarnings("ignore:(overflow|invalid):RuntimeWarning")
def test_a_probe_with_an_infinite_row_changes_nothing(loss: str, share: int) -> None:
    case = Case(2, 9, 90, 12, [2, 3, 1, 2], share, 4, loss, weight="column", distinct=True)
    weight = np.array([1, 0.5, 0, 2], np.float32)
    case.negatives = case.negatives._replace(weight=weight)
    without = case.negatives._replace(ids=np.ascontiguousarray(case.negatives.ids[:, [0, 1, 3]]),
                                      weight=weight[[0, 1, 3]])
    probes = case.negatives.ids[:, 2]
    case.v_x[probes] = np.inf
    u, v, result = run(case)
    assert torch.isfinite(u.x).all() and torch.isfinite(result.loss).all()
    assert torch.isinf(v.x[torch.from_numpy(probes)]).all() and int(torch.isinf(v.x).any(1).sum()) == len(probes)
    case.negatives = without
    u_, _, result_ = run(case)
    torch.testing.assert_close(u.x, u_.x, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.loss, result_.loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0, 1, 2])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_gradients_equal_finite_differences_of_the_loss(loss: str, share: int) -> None:
    """(x before − x after) / lr against central differences of the reference's loss in float64, for every number."""
    case = Case(7, 3, 6, 3, [4] if share < 2 else [3, 1], share, 4, loss, c="one", mask_target=True, weight="cell",
                log_q="cell", lr=1e-2)
    u, v, result = run(case)
    for name, x, moved in (("u_x", case.u_x, u.x), ("v_x", case.v_x, v.x)):
        actual = (x.astype(np.float64) - moved.cpu().numpy()) / case.lr
        expected = np.zeros_like(actual)
        for place in np.ndindex(x.shape):
            sides = []
            for step in (1e-5, -1e-5):
                tables = dict(zip(("u_x", "v_x"), case.tables(np.float64), strict=True))
                tables[name].x[place] += step
                sides.append(reference.update(tables["u_x"], tables["v_x"], case.windows, case.negatives, case.rule,
                                              0.0)[0])
            expected[place] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(actual, expected, atol=2e-4)
    assert case.rule.c is None or result.c_grad is not None


def test_no_windows() -> None:
    case = Case(1, 3, 9, 8, [2], 0, 5, "nce", c="each")
    case.windows = Windows(*(x[:n] for x, n in zip(case.windows, (0, 1, 0), strict=True)))
    case.negatives = case.negatives._replace(ids=case.negatives.ids[:0])
    u, v, result = run(case, keep_scores=True)
    assert (u.x.cpu().numpy() == case.u_x).all() and (v.x.cpu().numpy() == case.v_x).all()
    assert result.loss.shape == (0,) and result.scores.shape == (0, 5) and not result.c_grad.any()


@pytest.mark.parametrize("change", [
    {"ids": np.zeros((3, 5), np.int64)}, {"ids": np.zeros((4, 5), np.int32)}, {"ids": np.zeros((4, 0), np.int64)},
    {"share": -1}, {"share": 2}, {"log_q_table": np.zeros(29, np.float32)}, {"log_q_table": None},
    {"weight": np.ones(4, np.float32)}, {"weight": np.ones((2, 5), np.float32)}, {"total_weight": 0.0},
    {"total_weight": float("nan")}, {"log_q": np.zeros((4, 4), np.float32)},
], ids="-".join)
def test_mismatched_negatives_are_rejected(change: dict[str, Any]) -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], 1, 5, "nce")
    case.negatives = case.negatives._replace(**change)
    with pytest.raises(ValueError, match=r"^\w+: "):
        run(case)


def test_mismatched_tables_and_losses_are_rejected() -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], 1, 5, "logistic")
    x, y, windows = tensor(case.u_x), tensor(case.v_x), device.WindowTensors(*map(tensor, case.windows))
    u, v = device.TableTensors(x), device.TableTensors(y)
    for bad in (device.TableTensors(x[:, :7]), device.TableTensors(x.double()), device.TableTensors(x.T.contiguous().T),
                device.TableTensors(x, torch.zeros(9, device=x.device)), device.TableTensors(x.to("meta"))):
        with pytest.raises(ValueError):
            device.update(bad, v, windows, negatives(case), case.rule, 0.1)
    c = torch.zeros((), device=x.device)
    for rule, keep, share in ((SkipGramLossSpec("margin"), False, 1), (case.rule, False, 1), (case.rule, True, 2)):
        case.negatives = case.negatives._replace(share=share, ids=case.negatives.ids[:4 // share])
        with pytest.raises(ValueError, match="log Z" if share == 1 else "share 2"):
            device.update(u, v, windows, negatives(case), rule, 0.1, c if share == 1 else None, keep)
    with pytest.raises(ValueError, match="unknown loss"):
        device.update(u, v, windows, negatives(case), SkipGramLossSpec("softmax"), 0.1)  # type: ignore[arg-type]
    np.testing.assert_array_equal(x.cpu().numpy(), case.u_x)
