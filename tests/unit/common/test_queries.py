"""Queries whose vectors are stored once for each id are those whose vectors are stored for each row."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from embtrain.common.types import Query

IDS = torch.tensor([2, 0, 0, 3, 1, 3])
DISTINCT = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


def queries() -> tuple[Query, Query]:
    """The same six rows with four distinct queries: by row, and by id."""
    rest = 10 + IDS, torch.arange(6), torch.zeros(6, dtype=torch.int64), IDS, torch.tensor([0, 0, 1, 1, 1, 2])
    return Query(DISTINCT[IDS], *rest), Query(DISTINCT, *rest, by_id=True)


def assert_same(a: Query, b: Query) -> None:
    torch.testing.assert_close(a.vector, b.vector, rtol=0, atol=0)
    for name in [f.name for f in fields(Query) if f.name not in ("vectors", "by_id")]:
        x, y = getattr(a, name), getattr(b, name)
        assert torch.equal(x, y) if isinstance(x, Tensor) else x == y, name


@pytest.mark.parametrize("index", [slice(0, 6), slice(1, 4), slice(3, 3), torch.tensor([5, 0, 5]),
                                   torch.tensor([True, False, True, True, False, False])])
def test_rows_by_id_are_the_rows(index: slice | Tensor) -> None:
    plain, by_id = queries()
    part = by_id.rows(index)
    assert_same(plain.rows(index), part)
    assert part.query_id is not None and len(part.vectors) == len(part.query_id.unique())
    assert_same(plain.rows(index).rows(slice(0, 2)), part.rows(slice(0, 2)))


def test_unique_returns_the_stored_vectors_without_a_copy() -> None:
    plain, by_id = queries()
    (expected, ids), (found, found_ids) = plain.unique(), by_id.unique()
    assert_same(expected, found)
    assert torch.equal(ids, found_ids) and torch.equal(found.vector, DISTINCT)
    assert found.vectors.data_ptr() == DISTINCT.data_ptr()
    assert_same(found, found.unique()[0])


def test_other_vectors_replace_those_by_id() -> None:
    plain, by_id = queries()
    vector = torch.ones(6, 2)
    assert_same(plain.with_vector(vector), by_id.with_vector(vector))
    assert torch.equal(by_id.with_vector(vector).vector, vector)


def test_detached_queries_have_no_gradient() -> None:
    for query in queries():
        leaf = query.vectors.clone().requires_grad_()
        part = Query(leaf, *(getattr(query, f.name) for f in fields(Query)[1:]))
        assert part.vector.requires_grad and not part.detach().vector.requires_grad
        assert_same(part.detach(), query)
