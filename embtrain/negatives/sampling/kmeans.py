"""k-means for sources that group candidates: Lloyd's iterations on a sample of the rows, then labels of all; means.

    label_i = argmin_c ‖x_i − μ_c‖² = argmax_c x_i·μ_c − ½ ‖μ_c‖²        μ_c = mean of the sampled rows of label c

The first means are rows far from each other, by greedy k-means++ [arthur2007], and a mean without rows becomes a random
row. A sample of the rows is enough, as in faiss [johnson2017]. Decision 033 compares both with this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from embtrain.common.progress import Progress

ITERATIONS = (4, 100)   # the least and the most; fewer if no label changes
WARM_ITERATIONS = 2     # from given means, of a table that has moved little since (decision 033)
MAX_SCORES = 1 << 28    # in all iterations, unless the least number takes more
ROWS_PER_MEAN = 32      # sampled rows for each of the k means
FIRST_ROWS = 1 << 13    # rows from which the first means are chosen; at least 3 for each mean
MIN_SAMPLE = 1 << 16    # rows of a sample, if there are as many
BLOCK_SCORES = 1 << 20  # at once: they stay in the cache


def kmeans(points: Tensor, k: int, seed: int, start: Tensor | None = None) -> Tensor:
    """Label 0..k-1 of each of points (n, D), 1 <= k <= n: (n,) int64. `start` (k, D): initial means.

    Fewer than k labels occur if rows are equal. The result does not depend on the number of threads. Raises
    ValueError for another k and for coordinates that are not finite.
    """
    x = points.detach().float().cpu()
    if not 1 <= k <= len(x):
        raise ValueError(f"k-means: 1 to {len(x)} means expected, got {k}")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("k-means: the points must be finite")
    random = torch.Generator().manual_seed(seed)
    size = min(len(x), max(ROWS_PER_MEAN * k, MIN_SAMPLE))
    sample = x[torch.randperm(len(x), generator=random, device="cpu")[:size]]
    # Several threads would split sums differently, and rounding can decide which mean is nearest.
    with threadpool_limits(1):
        means = (_first_means(sample[:max(FIRST_ROWS, 3 * k)], k, random) if start is None
                 else start.detach().float().cpu())
        before, n_iterations = None, WARM_ITERATIONS
        if start is None:
            n_iterations = max(ITERATIONS[0], min(ITERATIONS[1], MAX_SCORES // (size * k)))
        with Progress("k-means", n_iterations * size + len(x), "rows") as progress:
            for _ in range(n_iterations):
                label = nearest(sample, means, progress.add)
                if before is not None and torch.equal(label, before):
                    break
                before = label
                means = group_means(sample, label, k)
                empty = torch.bincount(label, minlength=k) == 0
                means[empty] = sample[torch.randint(size, (int(empty.sum()),), generator=random, device="cpu")]
            return nearest(x, means, progress.add).to(points.device)


def nearest(x: Tensor, means: Tensor, count: Callable[[int], object] = lambda n: None) -> Tensor:
    """The nearest of means (k, D) to each of x (n, D), float32 both: (n,) int64; the first of equally near ones.

    count: receives the number of rows after each block.
    """
    table, half_square = means.numpy(), means.square().sum(1).mul_(0.5).numpy()
    label = np.empty(len(x), dtype=np.int64)
    rows = max(1, BLOCK_SCORES // len(table))
    scores = np.empty((min(rows, len(x)), len(table)), dtype=np.float32)
    for start in range(0, len(x), rows):
        block = x[start:start + rows].numpy()
        into = scores[:len(block)]
        np.matmul(block, table.T, out=into)
        into -= half_square
        into.argmax(1, out=label[start:start + rows])     # NumPy's: PyTorch takes longer for it than for the product
        count(len(block))
    return torch.from_numpy(label)


def _first_means(x: Tensor, k: int, random: torch.Generator) -> Tensor:
    """Choose k rows of x (n, D) as first means, (k, D): each time the best of a few random rows.

    A row is drawn in proportion to its squared distance from the nearest mean so far. The best one leaves the smallest
    sum of these distances.
    """
    square, row = x.square().sum(1), int(torch.randint(len(x), (1,), generator=random, device="cpu"))
    chosen, trials = [row], 2 + int(math.log(k))
    distance = (square + square[row] - 2 * (x @ x[row])).clamp_(min=0)
    with Progress("k-means, first means", k - 1, "means") as progress:
        for toss in torch.rand(k - 1, trials, generator=random, dtype=torch.float64, device="cpu"):
            ends = distance.cumsum(0, dtype=torch.float64)
            tried = torch.searchsorted(ends, toss * ends[-1], right=True).clamp_(max=len(x) - 1)
            to_tried = torch.addmm(square, x[tried], x.T, alpha=-2).add_(square[tried].unsqueeze(1))     # (trials, n)
            torch.minimum(to_tried.clamp_(min=0), distance, out=to_tried)
            best = int(to_tried.sum(1).argmin())
            distance = to_tried[best].clone()
            chosen.append(int(tried[best]))
            progress.add()
    return x[chosen]


def group_means(x: Tensor, label: Tensor, k: int) -> Tensor:
    """Mean of x (n, D) by label 0..k-1, (k, D); 0 for a label without rows."""
    n = torch.bincount(label, minlength=k).clamp(min=1).unsqueeze(1)
    return x.new_zeros(k, x.shape[1]).index_add_(0, label, x) / n
