"""PREC@k, nDCG@k and PSP@k: beside scikit-learn, beside plain loops over every order of equals, and their intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score
from torch import Tensor

from embtrain.common.types import Query
from embtrain.evaluate import label_precision
from embtrain.evaluate.config import LabelsEvaluate

V = 9


def asked(y: np.ndarray, z: np.ndarray) -> tuple[Callable[[Query], Tensor], Query]:
    """The (document, label) pairs of y (n, V), in a mixed order, and scores z (n, V) of documents."""
    document, label = (torch.from_numpy(x) for x in np.nonzero(y))
    mixed = torch.randperm(len(label), generator=torch.Generator().manual_seed(0))
    document, label = document[mixed], label[mixed]
    group = torch.unique(document, return_inverse=True)[1]
    query = Query(document[:, None].double(), document, label, torch.zeros_like(label), group)
    return lambda of: torch.from_numpy(z)[of.context], query


def world(seed: int, grain: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth, scores (with `grain` few distinct ones, so that many are equal) and propensities."""
    draw = np.random.default_rng(seed)
    y = draw.random((25, V)) < 0.3
    y[np.arange(25), draw.integers(0, V, 25)] = True
    z = draw.normal(size=(25, V)) if grain is None else draw.integers(0, grain, (25, V)).astype(float)
    return y, z, draw.uniform(0.1, 1, V)


def by_orders(y: np.ndarray, z: np.ndarray, p: np.ndarray, k: int) -> tuple[float, float, float, float]:
    """Mean over every order of equal scores of precision, nDCG, and the sums above and below of PSP; one document."""
    ranked = [list(group) for _, group in itertools.groupby(sorted(range(V), key=lambda i: -z[i]), key=lambda i: z[i])]
    found = []
    for order in itertools.product(*(itertools.permutations(group) for group in ranked)):
        top = [i for group in order for i in group][:k]
        dcg = sum(y[i] / math.log2(2 + place) for place, i in enumerate(top))
        found.append((sum(y[i] for i in top) / k, dcg, sum(y[i] / p[i] for i in top)))
    hits, dcg, above = np.mean(found, axis=0)
    best = sum(1 / math.log2(2 + place) for place in range(min(k, int(y.sum()))))
    return hits, dcg / best, above, sum(sorted((1 / p[i] for i in range(V) if y[i]), reverse=True)[:k])


@pytest.mark.parametrize("cells", [1, 40, 1 << 22])
@pytest.mark.parametrize("grain", [None, 5])
def test_scikit_learn_and_plain_loops_find_the_same(grain: int | None, cells: int) -> None:
    y, z, p = world(3, grain)
    found = label_precision.top_labels(*asked(y, z), p, cells)
    for k in label_precision.KS:
        theirs = [ndcg_score(y[i:i + 1], z[i:i + 1], k=k) for i in range(len(y))]
        assert found.values[f"ndcg@{k}"] == pytest.approx(theirs)
        if grain is None:
            top = np.argsort(-z, axis=1)[:, :k]
            assert found.values[f"precision@{k}"] == pytest.approx(np.take_along_axis(y, top, 1).mean(1))


def test_equals_share_their_places() -> None:
    y, z, p = world(4, 4)
    found = label_precision.top_labels(*asked(y[:8], z[:8]), p)
    for k in label_precision.KS:
        plain = np.array([by_orders(y[i], z[i], p, k) for i in range(8)])
        for name, column in (("precision", 0), ("ndcg", 1), ("psp", 2)):
            assert found.values[f"{name}@{k}"] == pytest.approx(plain[:, column])
        assert found.best[f"psp@{k}"] == pytest.approx(plain[:, 3])
        assert found.items()[f"psp@{k}"].mean() == pytest.approx(plain[:, 2].sum() / plain[:, 3].sum())


def test_scores_that_are_all_alike_or_no_numbers_gain_nothing() -> None:
    y, _, p = world(5)
    alike = label_precision.top_labels(*asked(y, np.zeros((25, V))), p)
    assert alike.values["precision@3"] == pytest.approx(y.mean(1))
    nothing = label_precision.top_labels(*asked(y, np.full((25, V), np.nan)), p)
    assert all(x.sum() == 0 for x in nothing.values.values())
    one = np.where(y, 1.0, 0.0)
    one[y] = np.nan  # only the right ones are no numbers
    assert label_precision.top_labels(*asked(y, one), p).values["precision@5"].sum() == 0


def test_the_best_order_scores_one() -> None:
    y, _, p = world(6)
    found = label_precision.top_labels(*asked(y, y / p), p).items()
    assert [found[f"psp@{k}"].mean() for k in label_precision.KS] == pytest.approx([1, 1, 1])
    assert all((found[f"ndcg@{k}"] == pytest.approx(np.ones(25))) for k in label_precision.KS)


def test_propensities_are_the_formula() -> None:
    counts = np.array([0.0, 1, 10, 1000])
    found = label_precision.propensity(counts, 5000, 0.55, 1.5)
    c = (math.log(5000) - 1) * 2.5**0.55
    assert found.tolist() == pytest.approx([1 / (1 + c * math.exp(-0.55 * math.log(n + 1.5))) for n in counts])
    assert (np.diff(found) > 0).all() and label_precision.propensity(counts, 2, 0.55, 1.5).tolist() == [1, 1, 1, 1]


def test_rows_have_intervals_over_documents() -> None:
    y, z, p = world(7)
    found = label_precision.top_labels(*asked(y, z), p)
    rows = {row.metric: row for row in label_precision.scores(found, LabelsEvaluate(resamples=300), "about")}
    assert list(rows) == [*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP]
    for name, row in rows.items():
        assert row.n == 25 and row.value == pytest.approx(found.items()[name].mean())
        assert row.low is not None and row.high is not None and row.low <= row.value <= row.high
    assert "A = 0.55" in rows["psp@1"].note and "A =" not in rows["ndcg@1"].note
    # An interval of a ratio sees that a document of dear labels moves both of its sums.
    draw = np.random.default_rng(0).integers(0, 25, (4000, 25))
    ratio = found.values["psp@1"][draw].sum(1) / found.best["psp@1"][draw].sum(1)
    assert (rows["psp@1"].low, rows["psp@1"].high) == pytest.approx(np.quantile(ratio, [0.025, 0.975]), abs=0.03)
    assert all(row.low is None for row in label_precision.scores(found, LabelsEvaluate(resamples=0), ""))
    nobody = label_precision.scores(label_precision.top_labels(*asked(y[:0], z[:0]), p), LabelsEvaluate(), "")
    assert all(row.value is None and "no held-out" in row.note for row in nobody)
