"""The Triton kernel of triples against the NumPy reference, in Triton's interpreter or on a CUDA device.

On a device, units that share rows run at the same time. Cases with several units then have distinct rows. In a unit
only relations and known entities recur: the reference evaluates the gradients of repeated targets and negatives at
their current values, the kernel at those before the unit, which `test_gradients...` holds to finite differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.triple_cases import RULES, Case
from helpers.triton_kernels import IS_INTERPRETED, Triples
from hypothesis import given, settings, strategies as st

from embtrain.kernels.device.triples import update as device
from embtrain.kernels.reference.training import triples as reference
from embtrain.kernels.training.triples import TripleLossSpec, TripleQueries

pytestmark = pytest.mark.slow

SCORES = ["l1", "l2", "dot"]


def assert_agree(case: Case, queries_at_once: int = device.QUERIES_AT_ONCE) -> None:
    """Same tables, accumulators, loss, scores and ∂L/∂c; the padding between rows is untouched."""
    keep = case.negatives.share <= 1
    e, r, loss, scores, c_grad = case.expected()
    run = Triples(case, keep, queries_at_once)
    size = max(1.0, float(np.abs(e.x).max()), float(np.abs(r.x).max()))
    for actual, second in ((run.e, e), (run.r, r)):
        np.testing.assert_allclose(actual.x.cpu().numpy(), second.x, rtol=2e-5, atol=2e-5 * size)
        if second.acc is not None:
            np.testing.assert_allclose(actual.acc.cpu().numpy(), second.acc, rtol=5e-5, atol=1e-6)
        base = actual.x._base
        assert base is not None and (base[:, actual.x.shape[1]:] == 0).all()
    np.testing.assert_allclose(float(run.result.loss.sum(dtype=torch.float64)), loss, rtol=2e-5, atol=2e-5)
    assert (run.result.scores is None) != keep and (run.result.c_grad is None) == (c_grad is None)
    if keep:
        np.testing.assert_allclose(run.result.scores.cpu().numpy(), scores, rtol=2e-5, atol=2e-5 * size)
    if c_grad is not None:
        np.testing.assert_allclose(run.result.c_grad.cpu().numpy(), c_grad, rtol=1e-4, atol=2e-5)


def case_of(share: int, score: str, loss: str, n: int = 8, **more: Any) -> Case:
    return Case(5, 200, 9, more.pop("dim", 20), n, share, more.pop("k", 5), score, loss, distinct=True, **more)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", RULES)
@pytest.mark.parametrize("share", [0, 3])
@pytest.mark.parametrize(("mask", "weight", "log_q", "adagrad"), [
    ("none", "none", "static", True), ("target", "column", "cell", True), ("observed", "cell", "static", False)])
def test_every_combination(score: str, loss: str, share: int, mask: str, weight: str, log_q: str, adagrad: bool
                           ) -> None:
    """Eight distinct queries; three with one draw, so that the last unit is shorter."""
    case = case_of(share, score, loss, adagrad=adagrad, weight=weight, log_q=log_q, c=True,
                   row_weights=weight == "cell", mask_target=mask == "target",
                   n_masked=12 if mask == "observed" else 0, lr=1e-4 if mask == "target" else 0.1)
    if mask == "target":                       # small steps, because these rows occur as target and as negative
        case.queries.target[::3] = case.negatives.ids[:3, 1] if share else case.negatives.ids[::3, 1]
    assert_agree(case)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("share", [0, 1, 8])
def test_both_forms_of_sampled_softmax(score: str, share: int) -> None:
    for ranking in (False, True):
        for log_q in ("static", "cell"):
            assert_agree(case_of(share, score, "sampled_softmax", ranking=ranking, log_q=log_q))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", ["sampled_softmax", "self_adversarial"])
@pytest.mark.parametrize("adagrad", [False, True])
def test_draws_that_exceed_the_registers(score: str, loss: str, adagrad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tiles of two queries, whose losses are evaluated one at a time, and two rows are updated at a time."""
    monkeypatch.setattr(device, "MAX_TILE", 64)
    monkeypatch.setattr(device, "MAX_EVALUATED", 8)
    monkeypatch.setattr(device, "UPDATED_PER_WARP", 64)
    for n, share in ((8, 8), (11, 7)):
        assert_agree(Case(6, 200, 12, 20, n, share, 5, score, loss, adagrad, distinct=True, weight="column"))


@pytest.mark.parametrize("share", [0, 1, 3])
@pytest.mark.parametrize("queries_at_once", [1, 4, 7])
def test_few_programs_update_all_units(share: int, queries_at_once: int) -> None:
    assert_agree(case_of(share, "l2", "logistic"), queries_at_once)


@pytest.mark.parametrize("share", [0, 3])
@pytest.mark.parametrize("constraint", ["sphere", "ball"])
def test_entities_are_projected(share: int, constraint: str) -> None:
    """They are on the sphere, or anywhere in the ball, before."""
    case = case_of(share, "l2", "margin", constraint=constraint, lr=0.3)
    length = np.linalg.norm(case.x["e"], axis=1, keepdims=True)
    case.x["e"] = (case.x["e"] / (length if constraint == "sphere" else np.maximum(1.2 * length, 1))).astype(np.float32)
    assert_agree(case)
    lengths = Triples(case).e.x.norm(dim=1).cpu()
    assert lengths.max() <= 1 + 1e-6 and (constraint == "ball" or lengths.min() >= 1 - 1e-6)


def recurring(seed: int, n: int, share: int, k: int, score: str, loss: str, **more: Any) -> Case:
    """Rows recur from unit to unit, and relations inside units."""
    unit = max(1, share)
    n_e = 2 * unit + k + 3
    case = Case(seed, n_e, 3, n=n, share=share, k=k, score=score, loss=loss, **more)
    draw = np.random.default_rng(seed)
    for number, first in enumerate(range(0, n, unit)):
        rows, places = slice(first, first + unit), draw.permutation(n_e)
        size = len(case.queries.target[rows])
        case.queries.target[rows], case.queries.entity[rows] = places[:size], places[size:2 * size]
        case.negatives.ids[number] = places[2 * size:2 * size + k]
    return case


@pytest.mark.skipif(not IS_INTERPRETED, reason="gpu: units with common rows run at the same time on a device")
@settings(max_examples=60)
@given(case=st.builds(
    recurring, seed=st.integers(0, 2**32), n=st.integers(1, 9), share=st.sampled_from([0, 0, 1, 2, 3, 5, 50]),
    k=st.sampled_from([1, 2, 5, 8, 19]), score=st.sampled_from(SCORES), loss=st.sampled_from(RULES),
    dim=st.sampled_from([1, 3, 4, 7, 8, 13, 16, 20, 31, 36, 100]), adagrad=st.booleans(),
    weight=st.sampled_from(["none", "column", "cell"]), log_q=st.sampled_from(["static", "cell"]), c=st.booleans(),
    mask_target=st.booleans(), n_masked=st.sampled_from([0, 0, 5, 60]), ranking=st.booleans(),
    row_weights=st.booleans(), lr=st.just(1e-2)))
def test_rows_that_recur(case: Case) -> None:
    """Dimensions and numbers of negatives that are no powers of two, and rows that recur from unit to unit."""
    assert_agree(case)


@pytest.mark.parametrize("share", [0, 3])
@pytest.mark.parametrize("scale", [0.0, 1e-15, 8.0, 300.0])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", ["nce", "sampled_softmax", "self_adversarial"])
@pytest.mark.filterwarnings("ignore:(overflow|invalid|divide):RuntimeWarning")      # NumPy, in the interpreter
def test_extreme_scores(loss: str, score: str, scale: float, share: int) -> None:
    assert_agree(case_of(share, score, loss, weight="cell", scale=scale, lr=0.01))


@pytest.mark.parametrize("share", [0, 3])
@pytest.mark.parametrize("loss", RULES)
def test_every_negative_masked(loss: str, share: int) -> None:
    case = case_of(share, "l1", loss, k=3)
    row, column = np.divmod(np.arange(24), 3)
    case.negatives = case.negatives._replace(false_negatives=np.stack([row, column]).astype(np.int64))
    assert_agree(case)
    if loss in ("margin", "sampled_softmax"):
        run = Triples(case)
        assert float(run.result.loss.abs().sum()) == 0
        assert (run.e.x.cpu().numpy() == case.x["e"]).all() and (run.r.x.cpu().numpy() == case.x["r"]).all()


@pytest.mark.parametrize("share", [0, 2])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", RULES)
@pytest.mark.filterwarnings("ignore:(overflow|invalid):RuntimeWarning")
def test_a_probe_with_an_infinite_row_changes_nothing(loss: str, score: str, share: int) -> None:
    case = case_of(share, score, loss, k=4, n=4, weight="column")
    weight = np.array([1, 0.5, 0, 2], np.float32)
    case.negatives = case.negatives._replace(weight=weight)
    without = case.negatives._replace(ids=np.ascontiguousarray(case.negatives.ids[:, [0, 1, 3]]),
                                      weight=weight[[0, 1, 3]])
    probes = torch.from_numpy(case.negatives.ids[:, 2])
    case.x["e"][probes] = np.inf
    run = Triples(case)
    assert torch.isfinite(run.r.x).all() and torch.isfinite(run.result.loss).all()
    assert torch.isinf(run.e.x.cpu()[probes]).all() and int(torch.isinf(run.e.x).any(1).sum()) == len(probes)
    case.negatives = without
    other = Triples(case)
    for x, y in ((run.e.x, other.e.x), (run.r.x, other.r.x), (run.result.loss, other.result.loss)):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0, 3])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", RULES)
def test_gradients_equal_finite_differences_of_the_loss(loss: str, score: str, share: int) -> None:
    """(x before − x after) / lr of one unit with repeated rows, against central differences of the reference's loss in
    float64, for every number. The weights of the self-adversarial loss have no gradient: its temperature is 0.
    """
    case = Case(7, 6, 2, 3, 3 if share else 1, share, 4, score, loss, mask_target=True, weight="cell", log_q="cell",
                lr=1e-2, row_weights=True, ranking=True)
    case.rule = case.rule._replace(temperature=0.0)
    run = Triples(case)
    for name, moved in (("e", run.e.x), ("r", run.r.x)):
        actual = (case.x[name].astype(np.float64) - moved.cpu().numpy()) / case.lr
        expected = np.zeros_like(actual)
        for place in np.ndindex(actual.shape):
            sides = []
            for step in (1e-5, -1e-5):
                tables = dict(zip("er", case.tables(np.float64), strict=True))
                tables[name].x[place] += step
                sides.append(reference.update(tables["e"], tables["r"], case.queries, case.negatives, case.rule,
                                              0.0)[0])
            expected[place] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(actual, expected, atol=3e-4)


def test_no_queries() -> None:
    case = case_of(0, "l1", "nce", c=True)
    case.queries = TripleQueries(*(x[:0] for x in case.queries[:4]))
    case.negatives = case.negatives._replace(ids=case.negatives.ids[:0])
    run = Triples(case, keep_scores=True)
    assert (run.e.x.cpu().numpy() == case.x["e"]).all() and (run.r.x.cpu().numpy() == case.x["r"]).all()
    assert run.result.loss.shape == (0,) and run.result.scores.shape == (0, 5) and not run.result.c_grad.any()


@pytest.mark.parametrize("change", [
    {"ids": np.zeros((3, 5), np.int64)}, {"ids": np.zeros((8, 5), np.int32)}, {"ids": np.zeros((8, 0), np.int64)},
    {"share": -1}, {"share": 2}, {"log_q_table": np.zeros(29, np.float32)}, {"log_q_table": None},
    {"weight": np.ones(4, np.float32)}, {"total_weight": 0.0}, {"log_q": np.zeros((4, 4), np.float32)},
], ids="-".join)
def test_mismatched_negatives_are_rejected(change: dict[str, Any]) -> None:
    case = case_of(0, "l1", "nce")
    case.negatives = case.negatives._replace(**change)
    with pytest.raises(ValueError, match=r"^\w+: "):
        Triples(case)


def test_mismatched_queries_tables_and_losses_are_rejected() -> None:
    case = case_of(0, "l1", "logistic")
    for field, value in (("slot", np.zeros(7, np.int64)), ("relation", np.zeros(8, np.int32)),
                         ("weight", np.ones(7, np.float32))):
        broken = case_of(0, "l1", "logistic")
        broken.queries = case.queries._replace(**{field: value})
        with pytest.raises(ValueError, match=r"weight: |slot: |relation: "):
            Triples(broken)
    for rule in (TripleLossSpec("cosine", "logistic"), TripleLossSpec("l1", "softmax"),  # type: ignore[arg-type]
                 TripleLossSpec("l1", "margin", c=np.array(0, np.float32))):
        broken = case_of(0, "l1", "logistic")
        broken.rule = rule
        with pytest.raises(ValueError, match="loss: "):
            Triples(broken)
    with pytest.raises(ValueError, match="share 4"):
        Triples(case_of(4, "l1", "logistic"), keep_scores=True)
    broken = case_of(0, "l1", "logistic")
    broken.acc["e"] = np.zeros(200, np.float32)
    with pytest.raises(ValueError, match="differ in optimizer"):
        Triples(broken)
    broken = case_of(0, "l1", "logistic")
    broken.x["r"] = broken.x["r"][:, :7]
    with pytest.raises(ValueError, match="r: "):
        Triples(broken)
