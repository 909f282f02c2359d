"""The language model: its scores by both paths, its gradients, and the state passed from block to block."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers.bits import same
from helpers.looped import looped
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.data.text.streams import LanguageBatch
from embtrain.models.lm import Lm, LmConfig
from embtrain.train.optimizers import RowAdagrad

V, D, S = 7, 4, 2


def model(**settings: Any) -> Lm:
    problem = ProblemSpec(V, torch.ones(V, dtype=torch.float64), V, dim=D, seed=3)
    return Lm(LmConfig(**{"dim": D, "dropout": 0.0, "tau": 5.0, **settings}), problem)


def block(words: list[int], begins: bool, streams: int = S) -> LanguageBatch:
    word = torch.tensor(words)
    first = torch.zeros(len(words), dtype=torch.bool)
    first[:streams] = begins
    return LanguageBatch((word + 1) % V, torch.zeros_like(word), word, first, streams)


WORDS = [1, 2, 0, 6, 3, 3, 5, 1, 4, 2, 2, 6]
KINDS = [{"similarity": s, "tied": t, "hidden": h, "layers": n}
         for s, t, h, n in (("dot", True, None, 1), ("cosine", False, 3, 2), ("cosine", True, 6, 1),
                            ("dot", False, 4, 2))]


# --- the formula ----------------------------------------------------------------------------------------------------

def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def times(matrix: Tensor, x: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix.tolist()]


def states_by_hand(lm: Lm, words: list[int]) -> list[list[float]]:
    """Return h after each word of one stream: LSTM gates i, f, g, o written out."""
    H = lm.config.hidden or D
    h, c, out = [[0.0] * H for _ in lm.lstm], [[0.0] * H for _ in lm.lstm], []
    for word in words:
        x = lm.u[word].tolist()
        for n, cell in enumerate(lm.lstm):
            gates = [sum(parts) for parts in zip(times(cell.weight_ih_l0, x), times(cell.weight_hh_l0, h[n]),
                                                 cell.bias_ih_l0.tolist(), cell.bias_hh_l0.tolist(), strict=True)]
            for j in range(H):
                i, f, g, o = (gates[k * H + j] for k in range(4))
                c[n][j] = sigmoid(f) * c[n][j] + sigmoid(i) * math.tanh(g)
                h[n][j] = sigmoid(o) * math.tanh(c[n][j])
            x = h[n]
        out.append(list(x) if lm.w is None else times(lm.w, x))
    return out


def score_by_hand(lm: Lm, h: list[float], candidate: list[float]) -> float:
    dot = sum(a * b for a, b in zip(h, candidate, strict=True))
    return dot if lm.config.similarity == "dot" else 5.0 * dot / math.hypot(*h) / math.hypot(*candidate)


@pytest.mark.parametrize("kind", KINDS)
def test_score_matches_its_formula_by_every_path(kind: dict[str, Any]) -> None:
    lm = model(**kind).double()
    query = lm.encode(block(WORDS, True))
    by_stream = [states_by_hand(lm, WORDS[s::S]) for s in range(S)]
    table = lm.table().tolist()
    expected_scores = torch.tensor([[score_by_hand(lm, by_stream[i % S][i // S], c) for c in table]
                                    for i in range(len(WORDS))])
    assert query.vector.shape == (len(WORDS), D) and (lm.geometry, lm.tau) == (
        kind["similarity"], 5.0 if kind["similarity"] == "cosine" else 1.0)
    everyone = torch.arange(V).unsqueeze(0)
    for ids in (everyone, everyone.flip(1), everyone.expand(len(WORDS), -1), everyone[:, 2:5]):
        expected = expected_scores.gather(1, ids.expand(len(WORDS), -1))
        torch.testing.assert_close(lm.score(query, ids), expected, rtol=1e-5, atol=1e-6, check_dtype=False)
        vectors = lm.table()[ids.expand(len(WORDS), -1)]
        torch.testing.assert_close(lm.score(query, vectors), expected, rtol=1e-5, atol=1e-6, check_dtype=False)


@looped("kind", KINDS)
@looped("sparse", [True, False])
def test_gradients_equal_finite_differences(kind: dict[str, Any], sparse: bool) -> None:
    lm = model(**kind).double()
    lm.sparse = sparse
    weight = torch.randn(len(WORDS), V + 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    some = torch.tensor([[0, 5, 2]]).expand(len(WORDS), -1)

    def value() -> Tensor:
        query = lm.encode(block(WORDS, True))
        scores = torch.cat([lm.score(query, torch.arange(V).unsqueeze(0)), lm.score(query, some)], 1)
        return (weight * scores).sum()

    value().backward()
    for name, p in lm.named_parameters():
        grad = p.grad.to_dense().view(-1)  # type: ignore[union-attr]
        flat = p.data.view(-1)
        for at in range(0, len(flat), max(1, len(flat) // 5)):
            was, result = float(flat[at]), []
            for step in (1e-5, -1e-5):
                flat[at] = was + step
                with torch.no_grad():
                    result.append(float(value()))
            flat[at] = was
            assert float(grad[at]) == pytest.approx((result[0] - result[1]) / 2e-5, rel=1e-5, abs=1e-6), (name, at)


def test_initial_weights_follow_from_the_seed() -> None:
    before = torch.get_rng_state()
    one = model(layers=2, hidden=3, tied=False)
    assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(torch.Generator().manual_seed(99).get_state())
    try:
        assert same(dict(one.named_parameters()), dict(model(layers=2, hidden=3, tied=False).named_parameters()))
    finally:
        torch.set_rng_state(before)
    assert all(bool(p.abs().sum() > 0) and bool(p.isfinite().all()) for p in one.parameters())
    assert len(list(model(tied=True).parameters())) + 1 == len(list(model(tied=False).parameters()))


# --- from block to block --------------------------------------------------------------------------------------------

def test_blocks_in_turn_equal_one_long_block() -> None:
    whole, cut = model(layers=2), model(layers=2)
    long = whole.encode(block(WORDS, True)).vector
    pieces = []
    for i in range(0, len(WORDS), 4):
        batch = block(WORDS[i:i + 4], i == 0)
        pieces.append(cut.encode(batch).vector)
        assert same(cut.encode(batch).vector, pieces[-1])       # two calls, equal results
        cut.after_update(batch)
        assert cut.state is not None and not cut.state.requires_grad
    torch.testing.assert_close(torch.cat(pieces), long)


def test_epoch_starts_at_zero() -> None:
    lm = model()
    first = block(WORDS, True)
    fresh = lm.encode(first).vector
    lm.after_update(first)
    assert same(lm.encode(first).vector, fresh) and not same(lm.encode(block(WORDS, False)).vector, fresh)


def test_held_out_text_leaves_the_state_unchanged() -> None:
    lm = model(dropout=0.5)
    batch = block(WORDS, True)
    lm.encode(batch)
    lm.eval()
    alone = lm.encode(block(WORDS[:5], True, streams=1)).vector
    lm.train()
    lm.after_update(batch)                                             # of what was encoded in training
    kept = lm.get_extra_state()
    lm.eval()
    assert same(lm.encode(block(WORDS[:5], True, streams=1)).vector, alone)
    assert same(lm.get_extra_state(), kept)
    with pytest.raises(AssertionError, match="encoded last"):
        lm.after_update(block(WORDS, True))


def test_dropout_is_drawn_at_each_update_and_never_for_held_out_text() -> None:
    lm = model(dropout=0.5, dim=400, similarity="dot")
    batch = block(WORDS, True)
    first = lm.encode(batch).vector
    assert same(lm.encode(batch).vector, first)
    assert 0.4 < float((first == 0).float().mean()) < 0.6
    lm.after_update(batch)
    assert not same(lm.encode(batch).vector, first)
    lm.eval()
    still = lm.encode(batch).vector
    assert bool((still != 0).all()) and same(lm.encode(batch).vector, still)
    mean = torch.stack([lm._dropout(torch.ones(4000), torch.Generator().manual_seed(i)) for i in range(2)])
    assert bool((mean == 1).all())
    lm.train()
    assert float(lm._dropout(torch.ones(40_000), torch.Generator().manual_seed(0)).mean()) == pytest.approx(1, abs=0.03)


def test_state_is_saved_in_a_checkpoint() -> None:
    lm, other = model(dropout=0.3), model(dropout=0.3)
    for begins in (True, False):
        batch = block(WORDS, begins)
        lm.encode(batch)
        lm.after_update(batch)
    other.load_state_dict(lm.state_dict())
    batch = block(WORDS, False)
    assert same(other.encode(batch).vector, lm.encode(batch).vector)
    with pytest.raises(UsageError, match=r"language\.streams: 3, but this run was trained on 2 streams"):
        other.encode(block(WORDS, False, streams=3))


def test_long_text_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model(layers=2).eval()
    whole = lm.encode(block(WORDS, True, streams=1)).vector
    monkeypatch.setattr("embtrain.models.lm.MAX_WORDS_READ", 5)
    torch.testing.assert_close(lm.encode(block(WORDS, True, streams=1)).vector, whole)


def test_query_contains_the_previous_word() -> None:
    query: Query = model().encode(block(WORDS, True))
    assert query.context.tolist() == WORDS and query.target.tolist() == [(w + 1) % V for w in WORDS]
    assert query.query_id is None and query.window is None


def test_tables_have_one_rate_per_row_and_biases_one_per_number() -> None:
    p, b = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(3))
    lm = RowAdagrad([p, b], lr=0.5)
    p.grad, b.grad = torch.tensor([[3.0, 1.0], [0.0, 0.0]]), torch.tensor([2.0, -4.0, 0.0])
    lm.step()
    assert b.tolist() == pytest.approx([-0.5, 0.5, 0.0]) and p[0].tolist() == pytest.approx(
        [-1.5 / 5 ** 0.5, -0.5 / 5 ** 0.5])
