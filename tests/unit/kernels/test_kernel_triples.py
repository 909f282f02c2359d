"""Kernel triples: core against reference, reference against autograd of the torch models and losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from helpers.triple_cases import RULES, Case
from hypothesis import given, settings, strategies as st
from torch import Tensor

from embtrain.common.types import Batch, ModelView, Negatives, ProblemSpec, Query
from embtrain.kernels.core.tables import NegativeBatch, Table, zeros
from embtrain.kernels.reference.training import triples as reference
from embtrain.kernels.training import triples as wrapper
from embtrain.kernels.training.triples import TripleLossSpec, TripleQueries
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.false_negatives import mark_false_negatives
from embtrain.train.optimizers import RowAdagrad, make_optimizers


@dataclass(frozen=True)
class Triples(Batch):
    entity: Tensor
    relation: Tensor


def assert_agree(case: Case, core: str, **how: Any) -> None:
    e, r, loss, scores, c_grad = case.expected()
    e_, r_, output = case.run(core, keep_scores=True, **how)
    for actual, second in ((e_, e), (r_, r)):
        np.testing.assert_allclose(actual.x, second.x, rtol=1e-4, atol=1e-4)
        if second.acc is not None:
            np.testing.assert_allclose(actual.acc, second.acc, rtol=1e-3, atol=1e-4)
        assert (actual.x.base[:, actual.x.shape[1]:] == 0).all()           # the padding is read as zeros
    np.testing.assert_allclose(output.loss, loss, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(output.scores, scores, rtol=1e-4, atol=1e-4)
    assert (output.c_grad is None) == (c_grad is None)
    if c_grad is not None:
        np.testing.assert_allclose(output.c_grad, c_grad, rtol=1e-3, atol=1e-4)


# l1 has kinks: a row updated twice may cross one in float32. Small steps prevent that.
cases = st.builds(
    Case, seed=st.integers(0, 2**32), n_e=st.integers(2, 60), n_r=st.integers(1, 5),
    dim=st.sampled_from([1, 3, 4, 8, 13, 16, 20, 36, 100]), n=st.integers(1, 12),
    share=st.sampled_from([0, 0, 1, 2, 3, 5, 50]), k=st.sampled_from([0, 1, 2, 5, 8, 19]),
    score=st.sampled_from(["l1", "l2", "dot"]), loss=st.sampled_from(RULES), adagrad=st.booleans(),
    weight=st.sampled_from(["none", "column", "cell"]), log_q=st.sampled_from(["static", "cell"]),
    c=st.booleans(), mask_target=st.booleans(), n_masked=st.sampled_from([0, 0, 5, 60]), ranking=st.booleans(),
    constraint=st.sampled_from(["free", "sphere", "ball"]), lr=st.just(1e-3), row_weights=st.booleans())


@looped("place", ["entity", "target", "negative", "masked"])
@looped("share", [0, 2])
@looped("loss", RULES)
def test_a_score_that_is_nan_reaches_the_loss(loss: str, share: int, place: str) -> None:
    """Training stops when the loss is not finite. A negative that does not count cannot stop it."""
    for score in ("l1", "l2", "dot"):
        case = Case(3, 60, 9, 16, 4, share, 5, score, loss, distinct=True)
        row = {"entity": case.queries.entity[0], "target": case.queries.target[0]}.get(place, case.negatives.ids[0, 2])
        case.x["e"][row] = np.nan
        if place == "masked":
            n = max(1, share)
            case.negatives = case.negatives._replace(false_negatives=np.array([range(n), [2] * n]))
        with np.errstate(invalid="ignore"):
            for core in CORES:
                assert np.isnan(case.run(core)[2].loss) == (place != "masked"), (score, core)


@needs_core
@settings(max_examples=300, deadline=None)
@given(case=cases)
def test_core_matches_the_reference(case: Case) -> None:
    for core in NATIVE:
        assert_agree(case, core)


@looped("core", CORES)
@looped("share", [0, 4])
@looped("score", ["l1", "l2", "dot"])
@looped("loss", RULES)
def test_large_steps_match_if_rows_are_distinct(core: str, share: int, score: str, loss: str) -> None:
    case = Case(3, 90, 8, 21, 8, share, 5, score, loss, adagrad=True, distinct=True, weight="column", n_masked=6,
                lr=0.3, row_weights=True)
    assert_agree(case, core)


class Fixed(NegativeSource):
    """Source that returns a fixed draw."""

    name = "fixed-for-a-test"
    traits = Traits(supports_total_weight=True)

    def __init__(self, drawn: Negatives, mask: str, problem: ProblemSpec):
        super().__init__(NegativesConfig(source="fixed-for-a-test", k=drawn.k, filter=mask), problem)
        self.drawn = drawn

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        return self.drawn


@pytest.mark.parametrize("core", CORES)
def test_the_loss_of_scores_far_apart_is_their_difference(core: str) -> None:
    """Sampled softmax; the exponentials of the scores are floats, their quotient is not beyond a difference of 88."""
    for s in (1, 40, 44, 50, 59, 61, 1e4):
        entities, relations = zeros(3, 16), zeros(1, 16)
        entities[:, 0], relations[0, 0] = (1, -s, s), 1
        zero, one = np.array([0]), np.array([1])
        log_q = np.zeros((1, 1), np.float32)
        drawn = NegativeBatch(np.array([[2]]), 0, log_q=log_q, log_q_target=log_q[0])
        with using(core):
            output = wrapper.update(Table(entities), Table(relations), TripleQueries(zero, zero, zero, one), drawn,
                                    TripleLossSpec("dot", "sampled_softmax"), 0.0)
        assert output.loss == pytest.approx(np.logaddexp(0, 2.0 * s), rel=1e-5)


@looped("optimizer", ["sgd", "row-adagrad"])
@looped("share", [0, 4])
@looped("model, keys, score", [
    ("transe", {"norm": "l1"}, "l1"), ("transe", {"norm": "l2"}, "l2"), ("distmult", {}, "dot"),
    ("transe", {"norm": "l2", "entities": "sphere"}, "l2")])
@looped("loss", RULES)
def test_reference_equals_the_torch_step_on_a_batch(optimizer, share, model, keys, score, loss) -> None:
    """One unit without repeated rows, in float64: the same updates as autograd."""
    n, n_e, n_r = (1 if share == 0 else 4), 40, 5
    case = Case(5, n_e, n_r, 6, n, share, 5, score, loss, distinct=True, weight="column", log_q="cell", n_masked=2,
                constraint=keys.get("entities", "free"), row_weights=True)
    problem = ProblemSpec(n_e, torch.ones(n_e, dtype=torch.float64), context_sizes=(n_e, 2 * n_r), dim=6)
    model_class = models.find(model)
    net = model_class(model_class.Config(name=model, dim=6, **keys), problem).double()
    keys_of_loss = {"margin": {"margin": 1.5}, "self_adversarial": {"margin": 1.5, "temperature": 0.7},
                    "gbce": {"t": 0.84}}.get(loss, {})                         # β = 0.3 for M = 6.5 of 40 candidates
    lossy = losses.find(loss)
    cost = lossy(lossy.Config(name=loss, **keys_of_loss), problem).double()
    config = TrainConfig(optimizer=optimizer, lr=case.lr, batch=8)
    opt = make_optimizers(net, cost, config)
    negatives, queries = case.negatives, case.queries
    drawn = Negatives(
        torch.from_numpy(negatives.ids),
        draw_id=torch.zeros(n, dtype=torch.int64) if share else None,
        log_q=torch.from_numpy(negatives.log_q).double(),
        weight=torch.from_numpy(negatives.weight)[None].double(),
        log_q_target=torch.from_numpy(negatives.log_q_target).double(),
        total_weight=torch.tensor([[negatives.total_weight]], dtype=torch.float64),
        false_negatives=torch.from_numpy(negatives.false_negatives),
    )
    batch = Triples(*(torch.from_numpy(x) for x in (queries.target, queries.slot, queries.entity, queries.relation)),
                    weight=torch.from_numpy(queries.weight))
    net.after_update(batch)                             # project onto the sphere in float64, if there is one
    accs = [opt[0].accumulator(p).numpy().copy() if isinstance(opt[0], RowAdagrad) else None
            for p in (net.e, net.r)]
    e, r = (Table(p.detach().numpy().copy(), acc) for p, acc in zip((net.e, net.r), accs, strict=True))
    output, _, _ = reference.update(e, r, queries, negatives, case.rule, case.lr)
    loss_of_step = Step(net, Fixed(drawn, "none", problem), cost, opt, config)(batch)
    np.testing.assert_allclose(e.x, net.e.detach().numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(r.x, net.r.detach().numpy(), rtol=1e-9, atol=1e-9)
    assert output / n == pytest.approx(float(loss_of_step.loss), rel=1e-6)


def test_masked_targets_match_mark_false_negatives() -> None:
    """mask_target in the core equals the mask `target` of mark_false_negatives."""
    case = Case(11, 6, 2, 5, 9, 0, 7, "l1", "logistic", mask_target=True)
    queries, ids = case.queries, torch.from_numpy(case.negatives.ids)
    nothing = torch.zeros(9, dtype=torch.int64)
    false_negatives = mark_false_negatives(
        Negatives(ids), Query(nothing[:, None].float(), nothing, torch.from_numpy(queries.target), nothing),
        "target", None
    ).false_negatives
    e, r, loss, *_ = case.expected()
    case.negatives = case.negatives._replace(mask_target=False, false_negatives=false_negatives.contiguous().numpy())
    e_, r_, loss_, *_ = case.expected()
    assert loss == loss_ and (e.x == e_.x).all() and (r.x == r_.x).all() and false_negatives.shape[1] > 0


@needs_core
@pytest.mark.parametrize("share", [0, 16])
def test_threads_are_exact_if_rows_are_disjoint(share: int) -> None:
    case = Case(2, 900, 64, 24, 64, share, 5, "l2", "logistic", distinct=True)
    single, two = (case.run(NATIVE[-1], threads=threads) for threads in (1, 3))
    np.testing.assert_allclose(single[0].x, two[0].x, rtol=0, atol=0)
    assert single[2].loss == pytest.approx(two[2].loss)


@needs_core
def test_one_thread_is_bitwise_reproducible() -> None:
    case = Case(2, 50, 4, 24, 64, 0, 5, "l1", "self_adversarial", adagrad=True)
    single, two = case.run(NATIVE[-1]), case.run(NATIVE[-1])
    assert single[0].x.tobytes() == two[0].x.tobytes() and single[1].x.tobytes() == two[1].x.tobytes()


@looped("core", CORES)
@looped("field, value, says", [
    ("entity", 6, "entity: ids from"), ("relation", 2, "relation: ids from"), ("slot", 2, "slot: ids from"),
    ("target", -1, "target: ids from")])
def test_out_of_range_ids_change_nothing(core: str, field: str, value: int, says: str) -> None:
    case = Case(11, 6, 2, 5, 9, 0, 7, "l1", "logistic")
    getattr(case.queries, field)[4] = value
    e, r = case.tables(np.float32)
    before = e.x.copy()
    with using(core), pytest.raises(IndexError, match=says):
        wrapper.update(e, r, case.queries, case.negatives, case.rule, 0.1)
    assert (e.x == before).all()


@pytest.mark.parametrize("core", CORES)
def test_out_of_range_negatives_and_false_negatives_are_rejected(core: str) -> None:
    for invalid in ("ids", "false_negatives"):
        case = Case(11, 6, 2, 5, 9, 0, 7, "l1", "logistic", n_masked=4)
        if invalid == "ids":
            case.negatives.ids[3, 3] = 6
        else:
            case.negatives.false_negatives[1, 0] = 7
        with pytest.raises(IndexError, match=f"{invalid}:"):
            case.run(core)


def test_shapes_and_layouts_are_checked() -> None:
    case = Case(11, 6, 2, 5, 9, 0, 7, "l1", "nce")
    e, r = case.tables(np.float32)
    bare = Table(case.x["e"])
    for arguments, says in (
            ((bare, r, case.queries, case.negatives, case.rule), "e: rows of a writeable float32 table"),
            ((e, r, case.queries, case.negatives._replace(share=2), case.rule),
             "negatives: 9 draws do not fit 9 units"),
            ((e, r, case.queries._replace(slot=case.queries.slot[1:]), case.negatives, case.rule), "slot must have"),
            ((e, r, case.queries._replace(weight=np.ones(8, np.float32)), case.negatives, case.rule),
             "weight must have"),
            ((e, r, case.queries, case.negatives, case.rule._replace(score="cosine")), "loss: 'cosine'"),
            ((e, r, case.queries, case.negatives._replace(log_q_table=None), case.rule), "nce subtracts log q"),
            ((e, r, case.queries, case.negatives._replace(total_weight=0.0), case.rule),
             "total_weight must be positive")):
        with pytest.raises(ValueError, match=says):
            wrapper.update(*arguments, 0.1)


@needs_core
@pytest.mark.parametrize("norm", [1.0, 10.0])
@pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-4])
def test_a_shared_negative_near_the_query_keeps_its_distance(norm: float, apart: float) -> None:
    """|q|² + |c|² - 2 q·c cancels there; coordinate differences do not."""
    draw = np.random.default_rng(0)
    e = zeros(4, 100)
    e[:] = draw.normal(size=(4, 100))
    e *= norm / np.linalg.norm(e, axis=1, keepdims=True)
    e[2] = e[0] + apart * np.eye(100)[7]                             # the negative: close to e_0 + 0
    nothing = np.zeros(2, np.int64)
    for core in NATIVE:
        with using(core):
            output = wrapper.update(Table(e), Table(zeros(1, 100)),
                                    TripleQueries(nothing, nothing, nothing, nothing + 1),
                               NegativeBatch(np.full((1, 1), 2, np.int64), 2), TripleLossSpec("l2", "margin", 5.0), 0.0,
                               keep_scores=True)
        assert output.scores is not None
        assert -float(output.scores[0, 0]) == pytest.approx(np.linalg.norm(e[2] - e[0]), rel=1e-3)
