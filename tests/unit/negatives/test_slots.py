"""Rows of queries: contexts of one column or of several, in any order."""

from __future__ import annotations

import pytest
import torch

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.negatives.sampling.context_index import ContextIndex, context_sizes_of, group_starts


@pytest.mark.parametrize("sizes", [(30,), (5, 6), (3, 2, 5)])
def test_keys_are_distinct_and_return_their_context(sizes: tuple[int, ...]) -> None:
    slots = ContextIndex(sizes, "cpu")
    every = torch.cartesian_prod(*(torch.arange(n) for n in sizes))
    key = slots.key(every)
    assert sorted(key.tolist()) == list(range(slots.n_keys)) and torch.equal(slots.context(key), every)


@pytest.mark.parametrize("sizes", [(30,), (5, 6)])
def test_rows_are_found_in_any_order_of_insertion(sizes: tuple[int, ...]) -> None:
    slots = ContextIndex(sizes, "cpu")
    assert slots.find(torch.tensor([4, 29])).tolist() == [-1, -1]
    slots.add(torch.tensor([17, 3]), 0)
    slots.add(torch.tensor([29, 0, 8]), 2)
    assert slots.find(torch.tensor([3, 0, 17, 5, 29, 8])).tolist() == [1, 3, 0, -1, 2, 4]
    assert sorted(slots.stored_keys().tolist()) == [0, 3, 8, 17, 29]
    assert slots.missing(torch.tensor([5, 3, 1, 5, 0, 1])).tolist() == [1, 5]
    assert slots.missing(torch.tensor([3, 29])).tolist() == []
    assert slots.missing(torch.tensor([], dtype=torch.int64)).tolist() == []
    slots.clear()
    assert slots.missing(torch.tensor([3, 0, 3])).tolist() == [0, 3]
    assert slots.find(torch.tensor([3, 0])).tolist() == [-1, -1] and len(slots.stored_keys()) == 0


def test_first_row_of_each_draw() -> None:
    assert group_starts(torch.tensor([0, 0, 1, 2, 2, 2])).tolist() == [0, 2, 3]


def test_contexts_are_ids_of_one_column_of_several_or_none() -> None:
    counts = torch.ones(4)
    assert context_sizes_of(ProblemSpec(4, counts, n_contexts=9), "x") == (9,)
    assert context_sizes_of(ProblemSpec(4, counts, context_sizes=(4, 6)), "x") == (4, 6)
    with pytest.raises(UsageError, match=r"negatives\.source: x conditions on context ids"):
        context_sizes_of(ProblemSpec(4, counts), "x")
