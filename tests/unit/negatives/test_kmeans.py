"""k-means: labels against all distances, inertia against scikit-learn, equal and distant rows, threads."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from embtrain.cli.bench.harness.planted import grouped_vectors
from embtrain.negatives.sampling import kmeans as module
from embtrain.negatives.sampling.kmeans import group_means, kmeans, nearest


def inertia(x: Tensor, label: Tensor, k: int) -> float:
    return float((x - group_means(x, label, k)[label]).square().sum() / len(x))


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_the_nearest_mean_is_that_of_all_distances(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Small integers: distances are exact, and the first of equal ones counts."""
    monkeypatch.setattr(module, "BLOCK_SCORES", block)
    draw = torch.Generator().manual_seed(1)
    x, means = (torch.randint(-2, 3, (n, 3), generator=draw).float() for n in (57, 20))
    distance = (x[:, None] - means).square().sum(2)
    assert nearest(x, means).tolist() == distance.argmin(1).tolist()
    assert (distance == distance.amin(1, keepdim=True)).sum(1).max() > 1


@pytest.mark.parametrize("sample", [400, 1 << 16])
def test_inertia_is_that_of_mini_batches(monkeypatch: pytest.MonkeyPatch, sample: int) -> None:
    """Within 1 % over seeds, with means of all rows; within 10 % with those of a tenth of them."""
    monkeypatch.setattr(module, "MIN_SAMPLE", sample)
    monkeypatch.setattr(module, "ROWS_PER_MEAN", 10)
    x = grouped_vectors(4000, 16, 0.7, torch.Generator().manual_seed(2))
    for k in (40, 63):
        ours, theirs = 0.0, 0.0
        for seed in range(3):
            library = MiniBatchKMeans(k, n_init=1, max_iter=20, batch_size=4096, random_state=seed)
            theirs += inertia(x, torch.from_numpy(library.fit_predict(x.numpy())).long(), k)
            ours += inertia(x, kmeans(x, k, seed), k)
        assert ours < (1.01 if sample > 4000 else 1.1) * theirs


def test_a_start_is_improved() -> None:
    x = grouped_vectors(3000, 16, 0.7, torch.Generator().manual_seed(3))
    start = x[:30].clone()
    before = nearest(x, start)
    after = kmeans(x, 30, 1, start)
    assert inertia(x, after, 30) < inertia(x, before, 30)
    assert torch.equal(after, kmeans(x, 30, 2, start))      # the sample is the whole, in another order


def test_given_means_take_few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a table that has moved little; labels of all rows are one more pass."""
    x, passes = torch.randn(3000, 8, generator=torch.Generator().manual_seed(5)), list[int]()
    monkeypatch.setattr(module, "nearest", lambda points, *rest: passes.append(len(points)) or
                        nearest(points, *rest))
    kmeans(x, 30, 1, x[:30].clone())
    assert len(passes) == module.WARM_ITERATIONS + 1
    passes.clear()
    kmeans(x, 30, 1)
    assert len(passes) > 10


def test_means_without_rows_move_to_rows() -> None:
    """All start at one place, so that one mean would take all rows."""
    x = torch.randn(500, 4, generator=torch.Generator().manual_seed(4)) + 100
    assert len(kmeans(x, 20, 1, torch.zeros(20, 4)).unique()) == 20


def test_equal_rows_have_one_label() -> None:
    assert kmeans(torch.zeros(30, 3), 5, 1).unique().tolist() == [0]
    rows = torch.eye(3).repeat(20, 1)
    assert torch.equal(kmeans(rows, 10, 1).reshape(20, 3), kmeans(rows, 10, 1)[:3].expand(20, 3))


def test_threads_do_not_change_the_labels() -> None:
    x, threads = torch.randn(5000, 32, generator=torch.Generator().manual_seed(5)), torch.get_num_threads()
    alone = kmeans(x, 64, 1)
    torch.set_num_threads(2)
    try:
        assert torch.equal(kmeans(x, 64, 1), alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="k-means: the points must be finite"):
        kmeans(torch.tensor([[1.0], [bad]]), 2, 1)


@pytest.mark.parametrize(("n", "k"), [(5, 0), (5, 6), (0, 1)])
def test_there_are_at_most_as_many_means_as_rows(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"k-means: 1 to {n} means expected, got {k}"):
        kmeans(torch.ones(n, 3), k, 1)
    assert kmeans(torch.ones(5, 3), 5, 1).unique().tolist() == [0]
