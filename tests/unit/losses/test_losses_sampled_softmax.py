"""Sampled softmax: what each form declares, and what the correction leaves unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.worlds import DOUBLE, every_draw, loss_world, make_loss

from embtrain.common.errors import UsageError

WORLD = loss_world()
TABLE = torch.randn(WORLD.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))


def test_forms_declare_what_they_need():
    sampled, ranking = (make_loss("sampled_softmax", WORLD.known, form=f).traits for f in ("sampled", "ranking"))
    assert (sampled.needs_q, sampled.needs_iid, sampled.accidental_hits) == ("drawn", False, "masked")
    assert (ranking.needs_q, ranking.needs_iid, ranking.accidental_hits) == ("target", True, "kept")


@pytest.mark.parametrize("form", ["sampled", "ranking"])
def test_constant_added_to_a_context_changes_nothing(form):
    exam, loss = every_draw(WORLD, 2, masked=form == "sampled"), make_loss("sampled_softmax", WORLD.known, form=form)
    shift = torch.tensor([[3.0], [-40.0], [700.0]], dtype=DOUBLE)
    torch.testing.assert_close(loss(exam.scored(TABLE + shift)).per_example, loss(exam.scored(TABLE)).per_example)


def test_total_weight_matters_to_one_form_only():
    exam, changed = every_draw(WORLD, 2, masked=False), []
    for form in ("sampled", "ranking"):
        scored, loss = exam.scored(TABLE), make_loss("sampled_softmax", WORLD.known, form=form)
        double = replace(scored, drawn=replace(scored.drawn, total_weight=2 * scored.drawn.total_weight))
        changed.append(not torch.equal(loss(double).per_example, loss(scored).per_example))
    assert changed == [True, False]


def test_ranking_rejects_a_source_without_the_target_density():
    scored = every_draw(WORLD, 2, masked=False).scored(TABLE)
    scored = replace(scored, drawn=replace(scored.drawn, log_q_target=None))
    make_loss("sampled_softmax", WORLD.known)(scored)
    with pytest.raises(UsageError, match="target"):
        make_loss("sampled_softmax", WORLD.known, form="ranking")(scored)


def test_sampled_loss_is_below_the_softmax_on_average():
    """E log Z' < log Z (Jensen): it is not a perplexity."""
    exam = every_draw(WORLD, 2, masked=True)
    sampled = (exam.chance * make_loss("sampled_softmax", WORLD.known)(exam.scored(TABLE)).per_example).sum()
    exact = -(WORLD.p_context[:, None] * WORLD.p * TABLE.log_softmax(1)).sum()
    assert sampled < exact - 0.01
