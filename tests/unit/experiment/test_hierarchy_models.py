"""Models of hierarchies with every kind of negatives: updates, repeated with the same bits; a run with its scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_runs

import embtrain
from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.common.files import read_json
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.models import base as models
from embtrain.models.hierarchies.cone import min_norm

pytestmark = pytest.mark.long

MODELS = ("order", "cone", "shadow_cone", "poincare", "box")
PAIRS = ["train.batch=16", "train.chunk=32", "train.engine=autograd", "pairs.valid=3", "pairs.test=3",
         "evaluate.benchmarks=[]"]
SOURCES = ("uniform", "degree", "dns", "self-adversarial", "nscaching", "ace-order", "adversarial-tree", "kbgan",
           "in-batch", "warp", "memory")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("hierarchies"))


@pytest.mark.parametrize("strategy", SOURCES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_with_every_kind_of_negatives_with_the_same_bits(name: str, strategy: str, place: Path,
                                                                        tmp_path: Path) -> None:
    tables = []
    for attempt in (1, 2):
        parts = tiny_runs.made(experiment.resolve(strategy, model=name, corpus=str(place / "pairs.tsv"),
                                                  sets=[*tiny_runs.TRAIN, *PAIRS]))
        before = parts.model.table().detach().clone()
        tiny_runs.blocks(tiny_runs.learning(parts, tmp_path / str(attempt)), 2)
        tables.append(parts.model.table().detach())
        assert tables[-1].isfinite().all() and not torch.equal(tables[-1], before)
    assert torch.equal(*tables)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_scores_pairs_by_its_model_and_its_settings(name: str, place: Path, tmp_path: Path) -> None:
    """The scorer of a run uses its keys: the aperture of cones, the radius of shadows, β of boxes."""
    keys = {"cone": {"model.aperture": 0.3}, "shadow_cone": {"model.radius": 0.7}, "box": {"model.beta": 0.4},
            "poincare": {"model.alpha": 3.0}, "order": {}}[name]
    run = embtrain.fit(model=name, corpus=place / "pairs.tsv", threads=1, out=tmp_path / name, sets={
        **keys, "train.epochs": 2, "model.dim": 6, "pairs.valid": 3, "pairs.test": 3, "evaluate.resamples": 0,
        "evaluate.benchmarks": []})
    assert {score.metric for score in run.scores} >= {"accuracy", "f1", "ap", "f1@10"}
    table = run.word_vectors
    u, v = (torch.from_numpy(table.table[[table.index[word]]]).double() for word in ("c9", "c3"))
    model, config = models.find(name), run.settings.model
    expected = float(model.entailment_score(u, v, config))
    assert run.scorer([("c9", "c3", "")])[0] == pytest.approx(expected, rel=1e-3)  # rounded so that scores tie
    without_pos = run.scorer([("c9", "c3"), ("c9", "none"), ("c9", "c3", "")])
    assert without_pos.shape == (3,) and without_pos[0] == without_pos[2] and np.isnan(without_pos[1])
    for wrong in ("ab", ("c9",), ("c9", "c3", "", "")):
        with pytest.raises(UsageError, match=r"^pairs: .*: is not a pair of words; give \(u, v\) or"):
            run.scorer([wrong])  # type: ignore[list-item]
    if keys:
        assert Scorer(table, model)([("c9", "c3", "")])[0] != pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("name", ["poincare", "shadow_cone"])
def test_lists_have_the_scores_of_complete_pairs(name: str, place: Path, tmp_path: Path) -> None:
    """Training scores of these models differ from those that the threshold of a pair and evaluation use."""
    run = embtrain.fit(model=name, corpus=place / "pairs.tsv", threads=1, out=tmp_path / name, sets={
        "train.epochs": 2, "model.dim": 6, "pairs.valid": 3, "pairs.test": 3, "evaluate.resamples": 0,
        "evaluate.benchmarks": []})

    def scores(query: str, names: list[str]) -> list[float]:
        (tmp_path / "pairs.tsv").write_text("".join(query.replace("_", name) + "\n" for name in names))
        return [pair.facts["score"] for pair in run.predict(file=tmp_path / "pairs.tsv")]

    for query in ("c3\t_", "_\tc3"):
        [listed] = run.predict(*query.split(), top=100)
        listed_scores = [answer.score for answer in listed.answers]
        assert len(listed_scores) > 5 and listed_scores == sorted(listed_scores, reverse=True)
        assert listed_scores == pytest.approx(scores(query, [answer.name for answer in listed.answers]))
    examples = read_json(run.folder / "answers.json")
    assert examples["scores"] == "score" and len(examples["queries"]) > 2
    for example in examples["queries"]:
        query = example["query"].replace(" is a ", "\t").replace("?", "_")
        assert [score for _, score, _ in example["answers"]] == pytest.approx(
            scores(query, [name for name, _, _ in example["answers"]]))


def test_cones_start_from_a_run_of_poincare_embeddings_within_their_bounds(place: Path, tmp_path: Path) -> None:
    keys = {"model.dim": 6, "pairs.valid": 3, "pairs.test": 3, "evaluate.resamples": 0, "evaluate.benchmarks": [],
            "train.epochs": 1}
    first = embtrain.fit(model="poincare", corpus=place / "pairs.tsv", threads=1, out=tmp_path / "poincare", sets={
        **keys, "train.lr": 1.0, "train.min_lr": 1.0})
    cones = embtrain.fit(model="cone", corpus=place / "pairs.tsv", threads=1, out=tmp_path / "cone", sets={
        **keys, "train.lr": 1e-12, "train.start": str(first.folder)})
    given, table = (torch.from_numpy(run.word_vectors.table).double() for run in (first, cones))
    norm, bound = given.norm(dim=1, keepdim=True), min_norm(0.1)
    assert (norm < bound).any() and (norm > bound + 0.01).any()
    torch.testing.assert_close(table, given / norm * norm.clamp(min=bound), atol=1e-6, rtol=0)
    assert read_json(cones.folder / "start.json")["exact"] == len(table)
    with pytest.raises(UsageError, match=r"train\.start_new_rows: subword: concepts have no n-grams"):
        embtrain.fit(model="cone", corpus=place / "pairs.tsv", out=tmp_path / "none", sets={
            **keys, "train.start": str(first.folder), "train.start_new_rows": "subword"})
