"""k-means of the vectors of bench samplers: ours, scikit-learn's mini-batches and faiss, at equal numbers of means.

10k, 100k, 500k   4 √n means, as the source `cluster` chooses for n vectors

scikit-learn runs up to 20 passes in mini-batches of 4,096 rows and stops without improvement. faiss, if installed, runs
the least number of our iterations on a sample as large as ours. The quality is the inertia, which is the mean squared
distance of a vector from the mean of its group, and the largest group: a draw scores all members of a group.
All use one thread, because labels must not depend on the number of threads. Before the first round each program runs
once on a few vectors, so that no round includes the import of a rival.
"""

from __future__ import annotations

import importlib.metadata
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, find_rival, run, timed
from embtrain.cli.bench.softmax import samplers
from embtrain.negatives.sampling import kmeans as ours
from embtrain.negatives.sampling.kmeans import group_means, kmeans

Way = Callable[[Tensor, int, int], Tensor]  # vectors (n, D), number of means, seed -> label (n,)
BATCH_ROWS, PASSES = 4096, 20  # of scikit-learn
WARM_UP = 256, 8               # vectors and means of the call before the first round


def bench(rounds: int, only: Sequence[str] | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example 100k. Each round has its own seed."""
    known = {f"{size}-t1": n for size, n in samplers.SIZES.items()}
    chosen = choose(known, only)
    has_faiss, version = find_rival("faiss", "faiss-cpu")
    ways: dict[str, Way] = {"scikit-learn": by_scikit_learn, **({"faiss": by_faiss} if has_faiss else {})}
    rows, means = WARM_UP
    few = torch.randn(rows, samplers.DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")
    for way in (*ways.values(), kmeans):
        way(few, means, 0)
    groups = []
    for name in chosen:
        x = samplers.Planted(known[name]).c
        k = min(len(x), 4 * round(math.sqrt(len(x))))
        rivals: dict[str, Work] = {rival: _with_seeds(way, x, k) for rival, way in ways.items()}
        groups.append(Group(1, {name: _with_seeds(kmeans, x, k)}, rivals))
    return run("kmeans", "s", groups, rounds, {
        "dim": samplers.DIM, "scikit-learn": importlib.metadata.version("scikit-learn"), "faiss": version})


def _with_seeds(way: Way, x: Tensor, k: int) -> Work:
    """Work that labels x by one program, with the seeds 1, 2, …"""
    seeds = iter(range(1, 1 << 30))

    def work() -> Timed:
        seconds, cpu, label = timed(partial(way, x.contiguous(), k, next(seeds)))
        inertia = (x - group_means(x, label, k)[label]).double().square().sum(1).mean()
        return Timed(seconds, cpu, {"inertia": float(inertia), "largest": float(torch.bincount(label).max())})

    return work


def by_scikit_learn(x: Tensor, k: int, seed: int) -> Tensor:
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(k, n_init=1, max_iter=PASSES, batch_size=min(len(x), BATCH_ROWS), random_state=seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(model.fit_predict(x.numpy())).long()


def by_faiss(x: Tensor, k: int, seed: int) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(1)
    model = faiss.Kmeans(x.shape[1], k, niter=ours.ITERATIONS[0], seed=seed, min_points_per_centroid=1,
                         max_points_per_centroid=max(ours.ROWS_PER_MEAN, ours.MIN_SAMPLE // k))
    model.train(x.numpy())
    return torch.from_numpy(model.index.search(x.numpy(), 1)[1][:, 0])
