"""Starts of models of hierarchies on WordNet's nouns: a burn-in of order embeddings, cones from Poincaré embeddings."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from embtrain import experiment
from embtrain.common.files import read_json
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.experiment.run import stored
from embtrain.models.hierarchies.base import HierarchyModel

pytestmark = pytest.mark.slow
SETS = ["pairs.protocol=given", "model.dim=10", "negatives.filter=observed", "train.engine=fused", "train.threads=1",
        "train.evaluate_every=1000000", "evaluate.resamples=0"]


def fit(folder: Path, model: str, corpus: str, *sets: str) -> experiment.Run:
    place, recipe = os.environ.get("EMBTRAIN_DATA_MIRROR", ""), load_recipe("corpora", corpus)
    if not place or not all((Path(place) / (file.mirror or "")).is_file() for file in recipe.files):
        pytest.skip("data: EMBTRAIN_DATA_MIRROR lacks this hierarchy")
    return experiment.fit(experiment.resolve(None, model=model, corpus=corpus, sets=[*SETS, *sets]), folder)


@pytest.mark.parametrize("burn_in", [0, 1])
def test_a_burn_in_keeps_frequent_hypernyms_off_the_origin(tmp_path: Path, burn_in: int) -> None:
    """At the origin a concept is above all others, and negative pairs do not move it."""
    run = fit(tmp_path / "run", "order", "wordnet-nouns", "pairs.percent=25", "pairs.slot=both", "loss.margin=0.1",
              "train.lr=0.6", "train.min_lr=0.58", "train.epochs=3", "train.seed=2", f"train.burn_in={burn_in}")
    parts = stored.open_run(run.folder)
    assert isinstance(parts.model, HierarchyModel)
    frequent = parts.problem.counts.argsort(descending=True)[:50]
    at_origin = int((parts.model.x[frequent] == 0).all(1).sum())
    assert at_origin == 0 if burn_in else at_origin >= 3


def test_cones_need_the_start_from_poincare_embeddings(tmp_path: Path) -> None:
    """Both runs train the same settings; one starts from Poincaré embeddings times .7."""
    sets = ["model.dim=5", "pairs.percent=10", "pairs.slot=hyponym"]
    start = fit(tmp_path / "start", "poincare", "wordnet-mammals", *sets, "train.epochs=60", "train.burn_in=6")
    sets += ["train.epochs=100", "train.lr=0.001", "loss.margin=0.1"]
    alone = fit(tmp_path / "alone", "cone", "wordnet-mammals", *sets)
    after = fit(tmp_path / "after", "cone", "wordnet-mammals", *sets, f"train.start={start.folder}",
                "model.start_scale=0.7")
    f1 = [next(score["value"] for score in read_json(run.folder / "scores.json")
               if (score["benchmark"], score["metric"]) == ("valid", "f1@10")) for run in (alone, after)]
    assert np.diff(f1) > 0.2
