"""Synthetic documents: equal for equal settings, and with the planted structure."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from embtrain.common import shipped
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.labels import examples as labelled, synthetic
from embtrain.data.labels.sparse import LabelsConfig, split_documents
from embtrain.data.labels.synthetic import PlantedConfig

SMALL = PlantedConfig(labels=300, features=400, documents=3000, test=200, clusters=10, pool=20, prototype=6, shift=2)


def digest(config: PlantedConfig) -> str:
    result = hashlib.sha256()
    for name, x in sorted(synthetic.generate(config).arrays().items()):
        result.update(name.encode() + x.tobytes())
    return result.hexdigest()


def test_documents_follow_from_the_settings() -> None:
    assert digest(SMALL) == digest(SMALL) != digest(SMALL.model_copy(update={"seed": 2}))


def test_rows_are_valid() -> None:
    result = synthetic.generate(SMALL)
    assert len(result.labels) == 3200 and result.test.tolist() == list(range(3000, 3200))
    size = result.labels.size()
    assert size.min() == 1 and size.max() == 5
    assert result.features.index.max() < 400 and result.labels.index.max() < 300
    for row in (0, 7, 3199):
        features = result.features.index[result.features.start[row]:result.features.start[row + 1]]
        assert (np.diff(features) > 0).all()
    split = split_documents(result, LabelsConfig(valid=0.1))
    assert (len(split.train), len(split.valid), len(split.test)) == (2700, 300, 200)
    assert split.test.tolist() == result.test.tolist() and not set(split.train) & set(split.valid)


def test_many_labels_are_rare() -> None:
    result = synthetic.generate(SMALL)
    counts = np.bincount(result.labels.index, minlength=300)
    w = (np.arange(1, 301) + SMALL.shift) ** -SMALL.exponent
    assert counts[0] > 20 * np.median(counts[150:]) > 0
    # The first labels follow w exactly, the rest through their clusters: together they keep its slope.
    slope = np.polyfit(np.log(w), np.log(np.maximum(counts, 1)), 1)[0]
    assert 0.85 < slope < 1.15


def test_labels_of_a_document_occur_together_and_share_features() -> None:
    world = synthetic._PlantedModel(SMALL, np.random.default_rng(SMALL.seed))
    cluster = np.empty(300, int)
    ends = np.flatnonzero(np.diff(world.begin[world.order])) + 1
    cluster[world.order] = np.searchsorted(ends, np.arange(300), "right")
    result = synthetic.generate(SMALL)
    rows = [result.labels.index[result.labels.start[r]:result.labels.start[r + 1]] for r in range(3200)]
    two = [cluster[row] for row in rows if len(row) == 2]
    same = np.mean([a == b for a, b in two])
    assert same > 0.6                                  # .7 of the second labels, and some of the rest by chance
    own = [np.isin(result.features.index[result.features.start[r]:result.features.start[r + 1]],
                   world.prototype[rows[r]]).sum() for r in range(500)]
    assert np.mean(own) > 3  # most features of a document come from the prototypes of its labels


def test_world_without_noise_can_be_solved() -> None:
    """Every feature of a document comes from the prototypes of its labels."""
    config = SMALL.model_copy(update={"noise": 0, "documents": 100, "test": 5})
    result, world = synthetic.generate(config), synthetic._PlantedModel(config, np.random.default_rng(config.seed))
    for r in range(105):
        labels = result.labels.index[result.labels.start[r]:result.labels.start[r + 1]]
        features = result.features.index[result.features.start[r]:result.features.start[r + 1]]
        assert np.isin(features, world.prototype[labels]).all()


@pytest.mark.parametrize("keys", [{"labels": 1}, {"clusters": 400}, {"most": 0}, {"together": 2}, {"documents": 10**9}])
def test_impossible_settings_are_rejected(keys: dict) -> None:
    with pytest.raises(ValidationError):
        PlantedConfig.model_validate({**SMALL.model_dump(), **keys})


def test_shipped_recipes_agree_with_the_documents() -> None:
    names = [name for name in shipped.names("corpora") if load_recipe("corpora", name).planted is not None]
    assert {"planted-13k", "planted-205k", "planted-325k", "planted-500k"} <= set(names)
    for name in names:
        recipe = load_recipe("corpora", name)
        built = recipe.planted
        assert built is not None and (built.labels, built.features, built.documents + built.test) == (
            recipe.expected.labels, recipe.expected.features, recipe.expected.documents)
        assert "as a substitute" in recipe.description or "timings" in recipe.description


def test_cache_key_contains_the_settings(tmp_path: Path) -> None:
    first, one = labelled.load_synthetic(SMALL, tmp_path, "mine")
    again, two = labelled.load_synthetic(SMALL, tmp_path, "mine")
    assert one == two and np.array_equal(first.features.index, again.features.index)
    assert labelled.load_synthetic(SMALL.model_copy(update={"seed": 9}), tmp_path, "mine")[1]["sha256"] != one["sha256"]
