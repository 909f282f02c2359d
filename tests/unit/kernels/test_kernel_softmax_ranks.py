"""Wrapper of softmax ranks: cores and reference against float64 and loops, at every width."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using

from embtrain.kernels.reference.scoring import softmax_ranks as reference
from embtrain.kernels.scoring import softmax_ranks as kernel

WIDTHS = (1, 3, 15, 16, 17, 63, 64, 65, 1024, 1031, 5000)  # around each loop stride


def rows(v: int, n: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (n, v) with ties, of sizes from 1 to 100,000, and 0 to 3 targets for each row."""
    draw = np.random.default_rng(v)
    scores = ((draw.normal(size=(n, v)) * 8).round() / 8 * 10.0 ** np.arange(-1, n - 1)[:, None]).astype(np.float32)
    n_targets = draw.integers(0, 4, n)
    n_targets[:2] = 0, 3
    return scores, np.concatenate([[0], n_targets.cumsum()]), draw.integers(0, v, n_targets.sum())


@pytest.mark.parametrize("name", CORES)
def test_counts_and_sums_equal_loops(name: str) -> None:
    for v in WIDTHS:
        scores, first, target = rows(v)
        with using(name):
            found = kernel.measure(scores, first, target)
        assert np.array_equal(found.top, scores.max(1))
        z = scores - scores.max(1, keepdims=True)                             # rounded to float32
        expected = np.log(np.exp(z.astype(np.float64)).sum(1))
        assert np.abs(found.log_sum - expected).max() < 3e-7
        for a, i in enumerate(np.repeat(np.arange(len(scores)), np.diff(first))):
            score = z[i, target[a]]
            assert found.score[a] == score and found.better[a] == sum(x > score for x in z[i].tolist())
            assert found.equal[a] == sum(x == score for x in z[i].tolist())


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("v", [5, 100])
def test_nan_and_infinity_are_as_in_the_reference(name: str, v: int) -> None:
    scores, first, target = np.zeros((7, v), np.float32), 2 * np.arange(8), np.tile([0, v - 1], 7)
    scores[0, 0], scores[1, v - 1], scores[2, 0], scores[3, 1], scores[4] = np.nan, np.nan, np.inf, -np.inf, -np.inf
    scores[5], scores[6, 2:4] = 90, (100, np.nan)                             # NaN: the maximum is not subtracted
    expected = kernel.SoftmaxRanks(*reference.measure(scores, first, target))
    with using(name):
        found = kernel.measure(scores, first, target)
    for key in ("top", "score", "better", "equal"):
        assert np.array_equal(getattr(found, key), getattr(expected, key), equal_nan=key == "score"), key
    assert np.allclose(found.log_sum, expected.log_sum, atol=3e-7, equal_nan=True)
    assert np.isnan(found.log_sum[[0, 1, 6]]).all() and found.log_sum[2] == np.inf and found.log_sum[4] == -np.inf
    assert found.log_sum[3] == pytest.approx(np.log(v - 1), abs=3e-7) and found.top[5] == 90


@pytest.mark.parametrize("name", NATIVE)
def test_results_do_not_depend_on_threads(name: str) -> None:
    scores, first, target = rows(1 << 17)
    with using(name):
        single, many = (kernel.measure(scores, first, target, threads) for threads in (1, 3))
    assert all(np.array_equal(x, y) for x, y in zip(single, many, strict=True))


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "measure", lambda *a: pytest.fail("the reference counted"))
    with using(NATIVE[-1]):
        kernel.measure(*rows(5))


@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected(name: str) -> None:
    scores, first, target = rows(6)
    with using(name):
        for bad in (-1, 6):
            with pytest.raises(IndexError, match="softmax_ranks: target"):
                kernel.measure(scores, first, np.where(np.arange(len(target)) == 1, bad, target))
        for bad_scores in (scores.astype(np.float64), scores[:, ::2]):
            with pytest.raises(TypeError, match="softmax_ranks: scores"):
                kernel.measure(bad_scores, first, target)
        for bad_scores in (scores[0], scores[:, :0]):
            with pytest.raises(ValueError, match="softmax_ranks: scores"):
                kernel.measure(bad_scores, first, target)
        for bad_first in (first[:-1], first + 1, first[::-1].copy()):
            with pytest.raises(ValueError, match="softmax_ranks: first"):
                kernel.measure(scores, bad_first, target)
        assert len(kernel.measure(scores[:0], first[:1], target[:0]).top) == 0
