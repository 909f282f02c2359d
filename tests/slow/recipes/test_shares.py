"""Drawn training pairs of WordNet's splits agree with the published files in number and distribution."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.hierarchy import closure
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.files import RawHierarchy, find_split_files, read_split
from embtrain.data.hierarchy.shares import draw_training_pairs

pytestmark = pytest.mark.slow
MIN_PAIRS = 20  # pairs of a cell of a table; cells with fewer are pooled


def read(name: str) -> RawHierarchy:
    place = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    where = [Path(place) / (file.mirror or "") for file in load_recipe("corpora", name).files]
    if not place or not all(path.is_file() for path in where):
        pytest.skip("data: EMBTRAIN_DATA_MIRROR lacks this hierarchy")
    return read_split(find_split_files(where))


def p_value(first: np.ndarray, second: np.ndarray, unsampled: float) -> float:
    """Return the p value of two samples without replacement of equal size having the same distribution.

    first, second: values (k,) int. unsampled: share of the population outside of a sample; it scales the variance of a
    count, hence chi squared.
    """
    n = max(first.max(), second.max()) + 1
    table = np.stack([np.bincount(first, minlength=n), np.bincount(second, minlength=n)])
    large = table.sum(0) >= MIN_PAIRS
    table = np.concatenate([table[:, large], table[:, ~large].sum(1, keepdims=True)], 1)
    table = table[:, table.sum(0) > 0]
    chi = stats.chi2_contingency(table, correction=False).statistic
    return float(stats.chi2.sf(chi / unsampled, table.shape[1] - 1))


@pytest.mark.parametrize(("name", "percents"), [("wordnet-nouns", (10, 25)), ("wordnet-mammals", (10, 25, 50, 90))])
def test_drawn_pairs_have_the_number_and_distribution_of_published_ones(name: str, percents: tuple[int, ...]) -> None:
    """By ancestors of the hyponym, by ancestors of the hypernym, and by hypernym. Another rule, which draws a hyponym
    and then one of its pairs, is rejected where a sample is at most a third of the pairs and large."""
    raw = read(name)
    assert raw.published is not None and sorted(raw.published.train) == [0, *percents]
    n, direct = len(raw.concepts), raw.published.train[0]
    closed = closure.closure(direct, n, raw.concepts, name)
    held = np.concatenate(list(raw.published.held.values()))
    n_ancestors = np.bincount(closed[:, 0], minlength=n)
    for percent in percents:
        drawn = draw_training_pairs(direct, closed, held, n, percent, 0, name)
        published = raw.published.train[percent]
        assert len(drawn) == len(published)
        first, second = (pairs[~PairSet(direct, n).contains(pairs)] for pairs in (published, drawn))
        unsampled = 1 - len(first) / (len(closed) - len(direct) - len(held))
        for values in (lambda x: n_ancestors[x[:, 0]], lambda x: n_ancestors[x[:, 1]], lambda x: x[:, 1]):
            assert p_value(values(first), values(second), unsampled) > 1e-3
        if len(first) > 10_000 and unsampled > 2 / 3:
            free = closed[~PairSet(np.concatenate([direct, held]), n).contains(closed)]
            weight = 1 / np.bincount(free[:, 0], minlength=n)[free[:, 0]]
            other = free[np.random.default_rng(0).choice(len(free), len(first), False, weight / weight.sum())]
            assert p_value(n_ancestors[first[:, 0]], n_ancestors[other[:, 0]], 1) < 1e-6


def test_half_of_the_nouns_is_drawn_with_the_held_out_pairs_of_the_other_shares() -> None:
    raw = read("wordnet-nouns")
    assert raw.published is not None and 50 not in raw.published.train
    closed = closure.closure(raw.pairs, len(raw.concepts), raw.concepts, "nouns")
    held = np.concatenate(list(raw.published.held.values()))
    train = draw_training_pairs(raw.pairs, closed, held, len(raw.concepts), 50, 0, "nouns")
    assert len(closed) == 661_127 and len(train) == 84_363 + (661_127 - 84_363) // 2
    assert not PairSet(held, len(raw.concepts)).contains(train).any()
