"""The compiled engine and autograd on UMLS, under TransE with self-adversarial negatives.

Both have the same gradients (test_fused_triples.py); they differ in the number of examples per update. Under
row-Adagrad an update moves a row by about lr / √t for any number of examples, so fewer updates train
less. With small batches the engines agree within the noise of seeds; with batches of 4,096 autograd falls behind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import embtrain

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)
SETS = {"model.dim": 32, "negatives.k": 16, "train.epochs": 100, "train.evaluate_every": 100_000,
        "evaluate.resamples": 0}


def mrr(folder: Path, seed: int, norm: str, engine: str, batch: int) -> float:
    out = folder / f"{norm}-{engine}-{batch}-{seed}"
    embtrain.fit("self-adversarial", model="transe", corpus="umls", threads=1, out=out, sets={
        **SETS, "model.norm": norm, "train.seed": seed, "train.engine": engine, "train.batch": batch})
    rows = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    return next(row["value"] for row in rows if (row["benchmark"], row["metric"]) == ("test", "mrr"))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_small_batches_agree_and_large_ones_train_less(tmp_path: Path, norm: str) -> None:
    if not os.environ.get("EMBTRAIN_DATA_MIRROR"):
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    fused, small, large = (np.array([mrr(tmp_path, seed, norm, engine, batch) for seed in SEEDS])
                           for engine, batch in (("fused", 64), ("autograd", 64), ("autograd", 4096)))
    assert abs(fused.mean() - small.mean()) < .015, (fused, small)
    assert large.max() < fused.min() - .01, (fused, large)
