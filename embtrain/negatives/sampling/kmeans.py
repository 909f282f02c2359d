"""k-means for sources that draw by groups of candidates: scikit-learn's mini-batch form, seeded, on one thread.

Sculley, Web-scale k-means clustering, WWW 2010.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

BATCH_ROWS = 4096  # of a mini-batch
MAX_PASSES = 20  # over the candidates at most; it stops sooner where nothing is gained


def kmeans(points: Tensor, k: int, seed: int, start: Tensor | None = None) -> Tensor:
    """A label 0..k-1 for each of points (n, D): (n,) int64. `start` (k, D): centroids to begin from."""
    # Imported where it is used: it takes a second, and every start of the command looks into this package.
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    x = points.detach().float().cpu().numpy()
    model = MiniBatchKMeans(
        k, init="k-means++" if start is None else start.detach().float().cpu().numpy(), n_init=1, max_iter=MAX_PASSES,
        batch_size=min(len(x), BATCH_ROWS), random_state=seed)
    # Threads would part sums otherwise, and a rounding decides who is nearest. An untrained table has equal rows, of
    # which fewer groups than k can be made: no news.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        label = model.fit_predict(x)
    return torch.from_numpy(label).long().to(points.device)
