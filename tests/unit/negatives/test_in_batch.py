"""In-batch negatives: which targets serve which rows, and both corrections against a count by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from helpers.in_process import small_text
from helpers.looped import looped
from helpers.source_worlds import TableView, V, source
from helpers.worlds import make_loss

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.experiment.run import components
from embtrain.experiment.run.settings import resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.train.engines.false_negatives import mark_false_negatives

COUNTS = torch.arange(1, V + 1).double()


def build_source(**settings: object):
    return source("in_batch", of=ProblemSpec(V, COUNTS, 6, COUNTS, dim=8, seed=1), **settings)


def batch(targets: list[int]) -> Query:
    target = torch.tensor(targets, dtype=torch.int64)
    return Query(torch.zeros(len(target), 8), torch.arange(len(target)), target, torch.zeros_like(target))


@looped("rows", [2, 3, 4, 5, 9, 30])
@looped("k", [1, 4, 29, 64])
def test_every_row_has_other_targets_and_its_own_is_masked(rows, k):
    query = batch([7 * i % V for i in range(rows)])
    drawn = build_source(k=k).draw(query, k, TableView())
    ids, size = drawn.per_row(drawn.ids, rows), min(k + 1, rows)
    assert ids.shape == (rows, size) and float(drawn.total_weight) == size - 1
    assert sorted(drawn.false_negatives[0].tolist()) == list(range(rows))            # one own target each
    for row, column in drawn.false_negatives.T.tolist():
        assert ids[row, column] == query.target[row]
    within = set(query.target.tolist())
    assert set(ids.flatten().tolist()) <= within
    if rows % size == 0:                                                     # split exactly: each target once a chunk
        assert Counter(drawn.ids.flatten().tolist()) == Counter(query.target.tolist())


@pytest.mark.parametrize("correction", ["unigram", "streaming", "none"])
@pytest.mark.parametrize("mask", ["none", "target"])
def test_single_row_changes_nothing_and_empty_batch_is_valid(correction, mask):
    """The last block of an epoch may have one pair, or none."""
    sampler, query = build_source(k=4, correction=correction), batch([7])
    drawn = mark_false_negatives(sampler.draw(query, 4, TableView()), query, mask, None)
    assert drawn.false_negatives.tolist() == [[0], [0]] and float(drawn.total_weight) == 1
    if correction != "none":
        pos = torch.zeros(1, requires_grad=True)
        loss = make_loss("sampled_softmax", sampler.problem, form="ranking")
        cost = loss(LossInput(pos, torch.ones(1, 1), drawn, query, log_q=drawn.log_q))
        cost.per_example.sum().backward()
        assert float(cost.per_example.detach()) == 0 and float(pos.grad) == 0
    none = sampler.draw(batch([]), 4, TableView())
    assert none.ids.shape[0] == 0 and none.false_negatives.shape == (2, 0)


@pytest.mark.parametrize("strategy", ["in-batch", "in-batch-streaming"])
@pytest.mark.parametrize("key", ["batch", "chunk"])
def test_batches_of_one_are_rejected(tmp_path, strategy, key):
    """They would contain no negatives."""
    place = small_text(tmp_path)
    result = resolve(strategy, corpus=str(place / "text"), sets=[f"train.{key}=1", "text.min_count=1"])
    with pytest.raises(UsageError, match=f"train.{key}: 1: in_batch uses the other targets in the batch") as caught:
        components.build(result, tasks.read(result))
    assert "\n" not in str(caught.value)


def test_chunks_are_drawn_again():
    sampler, query = build_source(k=4), batch(list(range(30)))
    groups = [sampler.draw(query, 4, TableView()).draw_id for _ in range(2)]
    neighbours = [float((g[1:] == g[:-1]).double().mean()) for g in groups]
    assert not torch.equal(*groups) and max(neighbours) < 0.5               # rows of one window are split


def test_masks_keep_own_target_and_mask_equal_targets():
    query = batch([3, 3, 5, 6])
    drawn = build_source(k=3).draw(query, 3, TableView())
    assert mark_false_negatives(drawn, query, "none", None).false_negatives.shape[1] == 4
    masked = mark_false_negatives(drawn, query, "target", None)
    assert masked.false_negatives.shape[1] == 6                                        # the two 3s mask each other
    assert set(map(tuple, drawn.false_negatives.T.tolist())) <= set(map(tuple, masked.false_negatives.T.tolist()))


def test_logq_is_the_share_of_counts():
    drawn = build_source().draw(batch([0, 9, 39, 9]), 4, TableView())
    torch.testing.assert_close(drawn.log_q.exp(), (drawn.ids + 1) / float(COUNTS.sum()))
    torch.testing.assert_close(drawn.log_q_target.exp(), torch.tensor([1, 10, 40, 10]) / float(COUNTS.sum()))


def loss_by_hand(form: str, s: torch.Tensor, target: list[int], row: int) -> float:
    """Return the loss of Rawat et al., eq. 5-6, or of Yi et al., eq. 5, of one row of a whole-batch draw: s (rows, V).
    """
    q = (COUNTS / COUNTS.sum()).tolist()
    others = [t for j, t in enumerate(target) if j != row]
    if form == "sampled":
        z = sum(math.exp(s[row, t]) / (len(others) * q[t]) for t in others if t != target[row])
        return math.log(math.exp(s[row, target[row]]) + z) - float(s[row, target[row]])
    own = math.exp(s[row, target[row]]) / q[target[row]]
    return -math.log(own / (own + sum(math.exp(s[row, t]) / q[t] for t in others)))


@pytest.mark.parametrize(("form", "mask"), [("sampled", "target"), ("ranking", "none")])
def test_corrected_loss_matches_the_papers(form, mask):
    target = [4, 7, 7, 11, 30]
    query, s = batch(target), torch.randn(5, V, generator=torch.Generator().manual_seed(0)).double()
    drawn = mark_false_negatives(build_source(k=8).draw(query, 8, TableView()), query, mask, None)
    ids = drawn.per_row(drawn.ids, 5)
    loss = make_loss("sampled_softmax", ProblemSpec(V, COUNTS, 6), form=form)
    scored = LossInput(s.gather(1, query.target[:, None])[:, 0], s.gather(1, ids), drawn, query, None,
                    drawn.per_row(drawn.log_q, 5), None)
    expected = torch.tensor([loss_by_hand(form, s, target, row) for row in range(5)]).double()
    torch.testing.assert_close(loss(scored).per_example, expected, atol=1e-5, rtol=0)


def test_corrected_negatives_estimate_the_sum_if_targets_follow_the_counts():
    """E Σ_j f(id_j) / (weight q_j) = Σ f, within its standard error; without the own target."""
    sampler, f = build_source(k=9), torch.rand(V, generator=torch.Generator().manual_seed(5)).double()
    draw, estimates = torch.Generator().manual_seed(7), []
    for _ in range(300):
        drawn = sampler.draw(batch(torch.multinomial(COUNTS, 60, True, generator=draw).tolist()), 9, TableView())
        terms = f[drawn.per_row(drawn.ids, 60)] / (9 * drawn.per_row(drawn.log_q, 60).double().exp())
        terms[drawn.false_negatives[0], drawn.false_negatives[1]] = 0
        estimates.append(terms.sum(1).mean())
    z = (torch.stack(estimates).mean() - f.sum()) / (torch.stack(estimates).std() / math.sqrt(300))
    assert abs(float(z)) < 4


def test_streaming_estimate_matches_the_algorithm_of_yi_et_al():
    sampler, draw = build_source(correction="streaming", rate=0.2), torch.Generator().manual_seed(3)
    seen, last, gap = Counter(), dict.fromkeys(range(V), 0), dict.fromkeys(range(V), 0.0)
    for step in range(1, 30):
        target = torch.randint(8, (6,), generator=draw).tolist()
        before = {y: 1 / gap[y] if seen[y] else 1 / step for y in range(V)}
        drawn = sampler.draw(batch(target), 5, TableView())
        total = sum(before.values())
        for y, log_q in zip(target, drawn.log_q_target.tolist(), strict=True):
            assert math.exp(log_q) == pytest.approx(before[y] / total, rel=1e-5)
        for y in set(target):
            seen[y] += 1
            alpha = max(0.2, 1 / seen[y])
            gap[y], last[y] = (1 - alpha) * gap[y] + alpha * (step - last[y]), step


def test_streaming_estimate_finds_the_frequencies_of_rare_targets():
    sampler, draw = build_source(correction="streaming"), torch.Generator().manual_seed(4)
    p = COUNTS / COUNTS.sum()
    for _ in range(3000):
        sampler.draw(batch(torch.multinomial(p, 2, True, generator=draw).tolist()), 1, TableView())
    q = sampler.log_prob(batch([0]), torch.arange(V).unsqueeze(0))[0].exp().double()
    assert float(q.sum()) == pytest.approx(1) and float((q - p).abs().sum()) < 0.25
    assert float((torch.full((V,), 1 / V) - p).abs().sum()) > 0.45


def test_resumed_stream_continues_bitwise():
    one, two = build_source(correction="streaming"), build_source(correction="streaming")
    for _ in range(5):
        one.draw(batch([1, 2, 3, 1]), 3, TableView())
    two.load_state_dict({key: x.clone() if isinstance(x, torch.Tensor) else x for key, x in one.state_dict().items()})
    for _ in range(4):
        a, b = (sampler.draw(batch([3, 4, 1, 9]), 3, TableView()) for sampler in (one, two))
        assert torch.equal(a.ids, b.ids) and torch.equal(a.log_q, b.log_q)


def test_uncorrected_negatives_report_no_q():
    drawn = build_source(correction="none").draw(batch([1, 2, 3]), 2, TableView())
    assert isinstance(drawn, Negatives) and drawn.log_q is None and drawn.log_q_target is None
