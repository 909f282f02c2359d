"""PREC@k, nDCG@k and PSP@k: against scikit-learn and loops over every order of ties, and their intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import ndcg_score
from torch import Tensor

from embtrain.common.types import Query
from embtrain.evaluate import label_precision
from embtrain.evaluate.config import LabelsEvaluate

V = 9


def measured(y: np.ndarray, z: np.ndarray) -> tuple[Callable[[Query], Tensor], Query]:
    """Evaluate the (document, label) pairs of y (n, V), shuffled, with scores z (n, V) of documents."""
    document, label = (torch.from_numpy(x) for x in np.nonzero(y))
    mixed = torch.randperm(len(label), generator=torch.Generator().manual_seed(0))
    document, label = document[mixed], label[mixed]
    group = torch.unique(document, return_inverse=True)[1]
    query = Query(document[:, None].double(), document, label, torch.zeros_like(label), group)
    return lambda query_rows: torch.from_numpy(z)[query_rows.context], query


def world(seed: int, grain: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return truth, scores (few distinct ones with `grain`, so many are equal) and propensities."""
    draw = np.random.default_rng(seed)
    y = draw.random((25, V)) < 0.3
    y[np.arange(25), draw.integers(0, V, 25)] = True
    z = draw.normal(size=(25, V)) if grain is None else draw.integers(0, grain, (25, V)).astype(float)
    return y, z, draw.uniform(0.1, 1, V)


def by_orders(y: np.ndarray, z: np.ndarray, p: np.ndarray, k: int) -> tuple[float, float, float, float]:
    """Mean over every order of equal scores of precision, nDCG, and the sums above and below of PSP; one document."""
    ranked = [list(group) for _, group in itertools.groupby(sorted(range(V), key=lambda i: -z[i]), key=lambda i: z[i])]
    result = []
    for order in itertools.product(*(itertools.permutations(group) for group in ranked)):
        top = [i for group in order for i in group][:k]
        dcg = sum(y[i] / math.log2(2 + place) for place, i in enumerate(top))
        result.append((sum(y[i] for i in top) / k, dcg, sum(y[i] / p[i] for i in top)))
    hits, dcg, above = np.mean(result, axis=0)
    best = sum(1 / math.log2(2 + place) for place in range(min(k, int(y.sum()))))
    return hits, dcg / best, above, sum(sorted((1 / p[i] for i in range(V) if y[i]), reverse=True)[:k])


@pytest.mark.parametrize("cells", [1, 40, 1 << 22])
@pytest.mark.parametrize("grain", [None, 5])
def test_it_equals_scikit_learn_and_plain_loops(grain: int | None, cells: int) -> None:
    y, z, p = world(3, grain)
    result = label_precision.top_labels(*measured(y, z), p, cells)
    for k in label_precision.KS:
        theirs = [ndcg_score(y[i:i + 1], z[i:i + 1], k=k) for i in range(len(y))]
        assert result.values[f"ndcg@{k}"] == pytest.approx(theirs)
        if grain is None:
            top = np.argsort(-z, axis=1)[:, :k]
            assert result.values[f"precision@{k}"] == pytest.approx(np.take_along_axis(y, top, 1).mean(1))


def test_ties_share_their_ranks() -> None:
    y, z, p = world(4, 4)
    result = label_precision.top_labels(*measured(y[:8], z[:8]), p)
    for k in label_precision.KS:
        plain = np.array([by_orders(y[i], z[i], p, k) for i in range(8)])
        for name, column in (("precision", 0), ("ndcg", 1), ("psp", 2)):
            assert result.values[f"{name}@{k}"] == pytest.approx(plain[:, column])
        assert result.best[f"psp@{k}"] == pytest.approx(plain[:, 3])
        assert result.items()[f"psp@{k}"].mean() == pytest.approx(plain[:, 2].sum() / plain[:, 3].sum())


def test_equal_and_nan_scores_gain_nothing() -> None:
    y, _, p = world(5)
    for score in (0.0, -np.inf, np.inf):
        equal_scores = label_precision.top_labels(*measured(y, np.full((25, V), score)), p)
        assert equal_scores.values["precision@3"] == pytest.approx(y.mean(1))
    nothing = label_precision.top_labels(*measured(y, np.full((25, V), np.nan)), p)
    assert all(x.sum() == 0 for x in nothing.values.values())
    one = np.where(y, 1.0, 0.0)
    one[y] = np.nan  # only the positives are NaN
    assert label_precision.top_labels(*measured(y, one), p).values["precision@5"].sum() == 0


def test_the_best_order_scores_one() -> None:
    y, _, p = world(6)
    result = label_precision.top_labels(*measured(y, y / p), p).items()
    assert [result[f"psp@{k}"].mean() for k in label_precision.KS] == pytest.approx([1, 1, 1])
    assert all((result[f"ndcg@{k}"] == pytest.approx(np.ones(25))) for k in label_precision.KS)


def test_propensities_are_the_formula() -> None:
    counts = np.array([0.0, 1, 10, 1000])
    result = label_precision.propensity(counts, 5000, 0.55, 1.5)
    c = (math.log(5000) - 1) * 2.5**0.55
    assert result.tolist() == pytest.approx([1 / (1 + c * math.exp(-0.55 * math.log(n + 1.5))) for n in counts])
    assert (np.diff(result) > 0).all() and label_precision.propensity(counts, 2, 0.55, 1.5).tolist() == [1, 1, 1, 1]


def test_rows_have_intervals_over_documents() -> None:
    y, z, p = world(7)
    result = label_precision.top_labels(*measured(y, z), p)
    rows = {row.metric: row for row in label_precision.scores(result, LabelsEvaluate(resamples=300), "about")}
    assert list(rows) == [*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP]
    for name, row in rows.items():
        assert row.n == 25 and row.value == pytest.approx(result.items()[name].mean())
        assert row.low is not None and row.high is not None and row.low <= row.value <= row.high
    assert "A = 0.55" in rows["psp@1"].note and "A =" not in rows["ndcg@1"].note
    # The interval of a ratio includes that a document with rare labels changes both of its sums.
    row, draw = rows["psp@1"], np.random.default_rng(0).integers(0, 25, (4000, 25))
    ratio = result.values["psp@1"][draw].sum(1) / result.best["psp@1"][draw].sum(1)
    half = stats.t.ppf(0.975, 24) * ratio.std()
    assert (row.low, row.high) == pytest.approx((row.value - half, row.value + half), abs=0.03)
    assert all(row.low is None for row in label_precision.scores(result, LabelsEvaluate(resamples=0), ""))
    empty = label_precision.scores(label_precision.top_labels(*measured(y[:0], z[:0]), p), LabelsEvaluate(), "")
    assert all(row.value is None and "no held-out" in row.note for row in empty)
