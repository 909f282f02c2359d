"""Kernel roofline: the timed operations, core against reference."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cores import CORES, using
from hypothesis import given, strategies as st

from embtrain.kernels import roofline as kernel
from embtrain.kernels.core.tables import zeros


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 80), st.integers(0, 10**6))
def test_each_id_adds_one_to_its_row(n: int, dim: int, draws: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(n, size=draws)
    for level in CORES:
        table = zeros(n, dim)
        with using(level):
            kernel.rows(table, ids)
        assert (table == np.bincount(ids, minlength=n)[:, None]).all()


@given(st.integers(0, 200), st.integers(0, 3), st.integers(0, 3))
def test_multiply_adds_are_computed(n: int, a: int, b: int) -> None:
    n = n if a < 2 else n % 12                       # integers that float32 represents exactly

    def computed(x: int) -> int:
        for _ in range(n):
            x = a * x + b
        return x
    for level in CORES:
        with using(level):
            vectors, floats, total = kernel.multiply_adds(n, a, b)
        assert floats >= vectors >= (1 if level == "off" else 8)      # as many as the processor overlaps
        assert total == floats // vectors * sum(map(computed, range(vectors)))


@pytest.mark.parametrize("level", CORES)
def test_out_of_range_ids_are_rejected_before_any_write(level: str) -> None:
    table = zeros(5, 3)
    with using(level):
        for invalid in (5, -1):
            with pytest.raises(IndexError):
                kernel.rows(table, np.array([0, invalid]))
        with pytest.raises(TypeError):
            kernel.rows(table.astype(np.float64), np.zeros(1, np.int64))
        with pytest.raises(TypeError):
            kernel.rows(table, np.zeros(1, np.int32))
    assert (table == 0).all()
