"""k-means for sources that group candidates: scikit-learn's mini-batch version, seeded, on one thread; means of groups.

Sculley, Web-scale k-means clustering, WWW 2010.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

BATCH_ROWS = 4096  # rows of a mini-batch
MAX_PASSES = 20    # maximum number of passes over the candidates; stops early without improvement


def kmeans(points: Tensor, k: int, seed: int, start: Tensor | None = None) -> Tensor:
    """Label 0..k-1 of each of points (n, D): (n,) int64. `start` (k, D): initial centroids."""
    # Imported here: it takes a second, and every start of the command imports this package.
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    x = points.detach().float().cpu().numpy()
    model = MiniBatchKMeans(
        k, init="k-means++" if start is None else start.detach().float().cpu().numpy(), n_init=1, max_iter=MAX_PASSES,
        batch_size=min(len(x), BATCH_ROWS), random_state=seed)
    # Several threads would split sums differently, and rounding can decide which centroid is nearest. An untrained
    # table has equal rows, so there may be fewer groups than k: the warning about it is suppressed.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        label = model.fit_predict(x)
    return torch.from_numpy(label).long().to(points.device)


def group_means(x: Tensor, label: Tensor, k: int) -> Tensor:
    """Mean of x (n, D) by label 0..k-1, (k, D); 0 for a label without rows."""
    n = torch.bincount(label, minlength=k).clamp(min=1).unsqueeze(1)
    return x.new_zeros(k, x.shape[1]).index_add_(0, label, x) / n
