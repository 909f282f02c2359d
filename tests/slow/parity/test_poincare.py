"""Poincaré embeddings reconstruct the mammals at least as well as gensim's, from the same pairs.

Rate, burn-in, batch, dimensions and number of negatives are equal. The losses differ in one point: ours corrects a
negative for its probability, so it weighs V / k.

A pair (u, v) of train is reconstructed if v is nearer to u than all candidates that u is not paired with: mean rank and
mean average precision, as [nickel2017]. Both are computed here from the vectors, by the distance of the paper.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embtrain
from embtrain.cli.bench.hierarchies.hierarchy import reconstruction
from embtrain.experiment.tasks import base as tasks

pytestmark = pytest.mark.slow

DIM, EPOCHS, RATE, BURN_IN, BATCH, K = 5, 30, 0.1, 10, 10, 10
SEEDS = (1, 2)
PERCENT = 10  # share of the implied pairs next to the direct ones


def ours(seed: int, folder: Path) -> tuple[float, float]:
    run = embtrain.fit(model="poincare", corpus="wordnet-mammals", seed=seed, threads=1, out=folder / str(seed), sets={
        "pairs.protocol": "given", "pairs.percent": PERCENT, "pairs.slot": "hypernym", "model.dim": DIM,
        "train.epochs": EPOCHS, "train.lr": RATE, "train.min_lr": RATE, "train.batch": BATCH, "negatives.k": K,
        "train.warmup": 0, "train.burn_in": BURN_IN, "train.evaluate_every": 1_000_000, "evaluate.resamples": 0})
    return reconstruction(run.word_vectors.table.astype(np.float64), tasks.read(run.settings).train)  # type: ignore[attr-defined]


def gensims(seed: int, pairs: np.ndarray) -> tuple[float, float]:
    from gensim.models.poincare import PoincareModel

    model = PoincareModel([(str(u), str(v)) for u, v in pairs], size=DIM, alpha=RATE, negative=K, burn_in=BURN_IN,
                          burn_in_alpha=RATE / 10, seed=seed)
    model.train(epochs=EPOCHS, batch_size=BATCH)
    index = np.array([int(word) for word in model.kv.index_to_key])
    table = np.zeros((index.max() + 1, DIM))
    table[index] = model.kv.vectors
    present = np.unique(index)
    renumbered = np.full(len(table), -1)
    renumbered[present] = np.arange(len(present))
    return reconstruction(table[present], renumbered[pairs])


def test_mean_rank_and_precision_reach_gensims(tmp_path: Path) -> None:
    settings = embtrain.experiment.resolve("poincare", model="poincare", corpus="wordnet-mammals", sets=[
        "pairs.protocol=given", f"pairs.percent={PERCENT}"])
    pairs = tasks.read(settings).train  # type: ignore[attr-defined]
    mine, other = (np.mean([f(seed) for seed in SEEDS], axis=0) for f in (
        lambda seed: ours(seed, tmp_path), lambda seed: gensims(seed, pairs)))
    print(f"mean rank {mine[0]:.2f}, gensim {other[0]:.2f}; MAP {mine[1]:.3f}, gensim {other[1]:.3f}")
    assert mine[0] <= other[0] and mine[1] >= other[1]
