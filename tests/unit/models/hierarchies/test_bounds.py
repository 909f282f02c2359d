"""Bounds of a table: the rows that an update changed, sparse and dense."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from embtrain.models.hierarchies.bounds import MAX_NORM, keep_columns, keep_norms

DOUBLE = torch.float64


def gradient(ids: list[int], table: torch.Tensor, sparse: bool) -> torch.Tensor | None:
    leaf = table.clone().requires_grad_()
    nn.functional.embedding(torch.tensor(ids), leaf, sparse=sparse).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_outside_the_bounds_move_along_their_radius(sparse: bool) -> None:
    table = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.3, 0.4], [0.0, 0.0], [9.0, 0.0]], dtype=DOUBLE)
    keep_norms(table, gradient([0, 1, 2, 3, 0], table, sparse), 0.1, 0.9)  # not the last row
    expected = [[0.54, 0.72], [0.06, 0.08], [0.3, 0.4], [0.1, 0.0], [9.0, 0.0] if sparse else [0.9, 0.0]]
    torch.testing.assert_close(table, torch.tensor(expected, dtype=DOUBLE))


def test_a_table_within_the_bounds_keeps_its_bits_and_zero_is_allowed_without_a_lower_bound() -> None:
    draw = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    table = torch.cat([nn.functional.normalize(draw, dim=1) * MAX_NORM, torch.zeros(1, 3, dtype=DOUBLE)])
    before = table.clone()
    keep_norms(table, None, 0.0, MAX_NORM + 1e-15)
    assert torch.equal(table, before) and not math.isnan(float(table.sum()))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("columns", "low", "high", "expected"), [
    (slice(1, None), -1.0, 2.0, [[9.0, 2.0, -1.0], [9.0, 2.0, 0.5]]),
    (slice(None), 0.0, None, [[9.0, 9.0, 0.0], [9.0, 3.0, 0.5]]),
])
def test_columns_of_the_changed_rows_are_clamped(sparse: bool, columns: slice, low: float, high: float | None,
                                                 expected: list[list[float]]) -> None:
    table = torch.tensor([[9.0, 9.0, -9.0], [9.0, 3.0, 0.5], [-9.0, -9.0, -9.0]])
    untouched = table[2].clone()
    keep_columns(table, gradient([1, 0, 1], table, sparse), columns, low, high)  # not the last row
    assert table[:2].tolist() == expected
    assert torch.equal(table[2], untouched) == sparse
