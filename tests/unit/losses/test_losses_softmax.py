"""The exact softmax: it checks that its negatives are all candidates; the effect of masks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.worlds import DOUBLE, every_column, every_draw, every_once, loss_world, make_loss, with_probe

from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives
from embtrain.losses.base import find, names

WORLD = loss_world()
TABLE = torch.randn(WORLD.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
EXACT = -TABLE.log_softmax(1)


def example(exam):
    return make_loss("softmax", WORLD.known)(exam.scored(TABLE)).per_example


@pytest.mark.parametrize("masked", [False, True])
def test_loss_is_minus_log_softmax_with_masked_target_or_not(masked):
    exam = every_once(WORLD, masked)
    torch.testing.assert_close(example(exam), EXACT[exam.context, exam.target])
    torch.testing.assert_close(example(with_probe(exam, 2)), EXACT[exam.context, exam.target])


def test_other_masked_positives_are_left_out():
    exam = every_once(WORLD, masked=True)
    positive = torch.cat(
        [exam.drawn.false_negatives, torch.tensor([[0, 7], [3, 4]])], 1
    )  # example 0 has target 0; 7 has target 2
    out = example(replace(exam, drawn=replace(exam.drawn, false_negatives=positive)))
    expected = EXACT[exam.context, exam.target].clone()
    for row, gone in ((0, 3), (7, 4)):
        context, target = int(exam.context[row]), int(exam.target[row])
        kept = [b for b in range(WORLD.v) if b != gone]
        expected[row] = TABLE[context, kept].logsumexp(0) - TABLE[context, target]
    torch.testing.assert_close(out, expected)


def test_rows_of_one_query_are_scored_once():
    exam = every_column(WORLD, 1.0, "rows", masked=True)
    exam = replace(exam, drawn=replace(exam.drawn, weight=None))
    scored = exam.scored(TABLE.clone().requires_grad_())
    cost = make_loss("softmax", WORLD.known)(scored)
    assert scored.neg.shape == cost.per_negative.shape == (3, 5)
    torch.testing.assert_close(cost.per_example.detach(), EXACT[exam.context, exam.target])


@pytest.mark.parametrize("what", ["too few", "one twice", "weighted", "vectors", "one draw of two"])
def test_negatives_that_are_not_every_candidate_are_rejected(what):
    exam = every_once(WORLD, masked=False)
    whole = exam.drawn.ids
    if what == "too few":
        exam = every_draw(WORLD, 2, masked=False)
    elif what == "one twice":
        exam = replace(exam, drawn=replace(exam.drawn, ids=torch.tensor([[0, 1, 2, 3, 3]])))
    elif what == "weighted":
        exam = every_column(WORLD, 5.0, "private")
    elif what == "vectors":
        exam = replace(exam, drawn=Negatives(vectors=torch.zeros(len(exam.target), WORLD.v, 2)))
    else:
        other = torch.cat([whole, torch.tensor([[0, 0, 1, 2, 3]])])
        exam = replace(exam, drawn=replace(exam.drawn, ids=other, draw_id=exam.context.clamp(max=1)))
    with pytest.raises(UsageError, match=r"needs all 5 candidates.*negatives\.source: every"):
        example(exam)


def test_without_negatives_the_sum_is_the_models_own():
    exam = every_once(WORLD, masked=False)
    empty = torch.zeros(1, 0, dtype=torch.int64)
    scored = replace(exam, drawn=Negatives(empty), ids=empty.expand(len(exam.target), -1)).scored(TABLE)
    loss = make_loss("softmax", WORLD.known)
    torch.testing.assert_close(loss(scored).per_example, EXACT[exam.context, exam.target])
    with pytest.raises(UsageError, match="every"):
        loss(replace(scored, whole_table=None))


def test_softmax_sums_over_every_candidate_and_others_over_the_draw():
    others = {"softmax": "every", "cosine": "target", "power_spherical": "target", "vmf": "target"}
    assert {n: find(n).traits.candidate_scope for n in names()} == {n: others.get(n, "drawn") for n in names()}


def test_candidates_may_be_in_any_order():
    exam = every_once(WORLD, masked=True)
    order = torch.tensor([[3, 1, 4, 0, 2]])
    shuffled = replace(exam, ids=order.expand(len(exam.target), -1), drawn=replace(
        exam.drawn, ids=order, false_negatives=torch.stack((order == exam.target[:, None]).nonzero(as_tuple=True))))
    torch.testing.assert_close(example(shuffled), EXACT[exam.context, exam.target])
