"""Knowledge graphs from files to runs: resumed, evaluated, reported and compared, with a toy model."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.graphs import Toy, a_folder, write_triples
from helpers.runs import assert_same_run, interrupted, no_page

from embtrain import experiment
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.evaluate import link_prediction
from embtrain.evaluate.heldout import LOWER_BETTER
from embtrain.experiment import Run
from embtrain.experiment.comparison import compare, grid, join
from embtrain.experiment.diagnosis.diagnose import diagnose
from embtrain.experiment.run import components, scoring, settings as of_settings, stored
from embtrain.experiment.run.results import answers
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.triples import TriplesTask
from embtrain.models import base as models
from embtrain.report.comparison import page as comparison
from embtrain.report.load import comparison as results

pytestmark = pytest.mark.long

# Base of `settings`, below the changes of a test.
CONFIG = """corpus: {corpus}
strategy: uniform
model: {{name: toy, dim: 5}}
negatives: {{source: uniform, k: 3, filter: observed}}
loss: {{name: margin}}
train: {{epochs: 2, chunk: 40, batch: 10, lr: 0.05, optimizer: row-adagrad, threads: 1, log_every: 1}}
evaluate: {{resamples: 40}}
"""


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    find = models.find
    monkeypatch.setattr(models, "find", lambda name: Toy if name == "toy" else find(name))
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return a_folder(tmp_path / "kg")


def settings(graph: Path, changes: str = "") -> Settings:
    (graph.parent / "config.yaml").write_text(CONFIG.format(corpus=graph) + changes)
    return of_settings.from_run(graph.parent)


def values(run: Run) -> dict[str, float | None]:
    return {f"{row.benchmark}/{row.metric}": row.value for row in run.scores if row.benchmark != "training"}


def test_a_run_writes_the_documented_files(graph: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(graph), tmp_path / "run")
    result = values(run)
    assert {f"{part}/{metric}" for part in ("valid", "test") for metric in (
        "mrr", "mr", "amri", "hits@1", "hits@3", "hits@10", "mrr/optimistic", "hits@1/pessimistic", "mrr/head",
        "mr/tail", "amri/head")} <= set(result)
    assert all(0 < result[f"{part}/mrr"] <= 1 for part in ("valid", "test"))
    entities, relations = (Vocabulary.read(run.folder / f"{n}.txt") for n in ("entities", "relations"))
    assert len(entities) == 12 and sum(entities.counts) == 200 and len(relations) == 3 and sum(relations.counts) == 100
    table = run.word_vectors
    assert table.words == entities.words and table.table.shape == (12, 5)
    of_relations = files_of_vectors.read(run.folder / "relations.safetensors")
    assert of_relations.words == relations.words and of_relations.table.shape == (3, 5)
    items = scoring.read_items(run.folder / "items.safetensors")
    assert set(items) == {f"{part}/{column}" for part in ("valid", "test") for column in ("rank", "cluster")}
    assert items["test/cluster"].tolist() == [i for i in range(10) for _ in (0, 1)]
    assert np.mean(1 / items["test/rank"]) == pytest.approx(result["test/mrr"])
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    curves = [line["valid/mrr"] for line in lines if "valid/mrr" in line]
    assert len(curves) == 2 and curves[-1] == pytest.approx(result["valid/mrr"])
    assert lines[0]["masked"] > 0                                      # filter: observed contains the triples
    identity = json.loads((run.folder / "identity.json").read_text())
    assert identity["task"] == "triples" and identity["corpus"]["counts"]["train"] == 100
    page = (run.folder / "report.html").read_text()
    assert 'id="neighbours"' not in page and "Map of the entities" in page and "mean reciprocal rank" in page
    experiment.export(run.folder, "word2vec", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text().startswith("12 5\n")
    (near,) = experiment.neighbours(run.folder, [entities.words[0]], 11).values()
    assert "e1" in {entities.words[0], *dict(near)}


@pytest.mark.usefixtures("no_drawing")
def test_validation_does_not_use_test_triples(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    rank = link_prediction.ranks
    monkeypatch.setattr(link_prediction, "ranks", lambda model, batch, known, *a: calls.append((len(batch), len(known)))
                        or rank(model, batch, known, *a))
    experiment.fit(settings(graph, "triples: {slot: random}\n"), tmp_path / "run")
    assert calls == [(20, 220), (20, 220), (20, 220), (20, 240)]         # twice in training; evaluated: valid, test


@pytest.mark.usefixtures("no_drawing")
def test_a_diagnosis_counts_occurrences_of_entities(graph: Path, tmp_path: Path) -> None:
    """With an open slot per triple, an entity is a target half as often as it occurs."""
    run = experiment.fit(settings(graph, "triples: {slot: random}\n"), tmp_path / "run")
    table = diagnose(run.folder, [], [5]).table
    entities = Vocabulary.read(run.folder / "entities.txt")
    assert table is not None and [hub.count for hub in table.hubs] == [
        entities.counts[entities.index[hub.name]] for hub in table.hubs]


@pytest.mark.usefixtures("no_drawing")
def test_answers_do_not_depend_on_the_candidates_scored_at_once(graph: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may read the vectors of its candidates again for each query, so that all at once take V x D numbers."""
    run = experiment.fit(settings(graph), tmp_path / "run")
    parts = stored.open_run(run.folder)
    batch, score = parts.task.heldout("test"), parts.model.score
    whole, widths = answers.examples(parts, batch), set[int]()
    assert whole["scores"] == "score"
    monkeypatch.setattr(answers, "MAX_CANDIDATES", 7)
    monkeypatch.setattr(parts.model, "score", lambda query, ids: widths.add(ids.shape[1]) or score(query, ids))
    assert answers.examples(parts, batch) == whole and max(widths) == 7


@pytest.mark.usefixtures("no_drawing")
def test_the_memory_of_the_likelihood_check_is_estimated(graph: Path, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    parts = stored.open_run(experiment.fit(settings(graph), tmp_path / "run").folder)
    sizes: list[tuple[int, int]] = []
    monkeypatch.setattr(scoring, "CHECKED_EXAMPLES", 7)
    monkeypatch.setattr(scoring, "evaluation_bytes", lambda _, sample, n: sizes.append((len(sample), n)) or 1 << 40)
    assert parts.task.evaluation_bytes(parts) >= 1 << 40 and sizes == [(7, 7)]


@pytest.mark.usefixtures("no_drawing")
def test_the_filter_over_all_triples_is_optional_and_reported(graph: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(graph), tmp_path / "run")
    default, known = (experiment.evaluate(run.folder, sets=[f"evaluate.valid_filter={way}"]) for way in ("own", "all"))
    by_filter = [{(row.benchmark, row.metric): row for row in rows} for rows in (default, known)]
    assert values(run)["valid/mr"] == by_filter[0]["valid", "mr"].value > by_filter[1]["valid", "mr"].value
    assert by_filter[0]["test", "mr"].value == by_filter[1]["test", "mr"].value
    assert "filtered by train and valid" in by_filter[0]["valid", "mrr"].note
    assert "filtered by train, valid and test" in by_filter[1]["valid", "mrr"].note


@pytest.mark.usefixtures("no_drawing")
def test_training_evaluates_a_sample_of_the_validation_triples(graph: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[int]] = []
    rank = link_prediction.ranks
    monkeypatch.setattr(link_prediction, "ranks", lambda model, batch, known, *a: calls.append(batch.target.tolist())
                        or rank(model, batch, known, *a))
    config = settings(graph)
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"valid_triples": 4})})
    experiment.fit(config, tmp_path / "run")
    assert [len(x) for x in calls] == [8, 8, 20, 20] and calls[0] == calls[1]
    whole = [calls[2][i:i + 2] for i in range(0, 20, 2)]
    assert all(calls[0][i:i + 2] in whole for i in range(0, 8, 2))


@pytest.mark.parametrize("extra", ["", "triples: {slot: bernoulli, reciprocal: true}\n"])
@pytest.mark.usefixtures("no_drawing")
def test_a_resumed_run_is_bitwise_equal(graph: Path, tmp_path: Path, extra: str) -> None:
    config = settings(graph, extra)
    whole = experiment.fit(config, tmp_path / "whole")
    again = interrupted(config, tmp_path / "cut", 4)
    assert values(again) == values(whole)
    assert_same_run(whole.folder, again.folder, ("entities.txt", "relations.txt"))


@pytest.mark.usefixtures("no_drawing")
def test_a_run_resumes_only_on_its_graph(graph: Path, tmp_path: Path) -> None:
    config = settings(graph)
    run = experiment.fit(config, tmp_path / "run")
    task = tasks.read(config)
    task.check_ids(run.folder)
    for name in ("entities.txt", "relations.txt"):
        lines = (run.folder / name).read_text().splitlines()
        (run.folder / name).write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
        with pytest.raises(DataError, match=f"{name}: differs from what the corpus gives"):
            task.check_ids(run.folder)
        (run.folder / name).write_text("\n".join(lines) + "\n")
    write_triples(graph / "test.txt", np.array([[0, 0, 0]]))
    with pytest.raises(DataError, match="its sha256 differs"):
        run.resume()


def test_the_problem_passed_to_sources_and_models(graph: Path) -> None:
    for reciprocal, n_relations in ((False, 3), (True, 6)):
        task = tasks.read(settings(graph, f"triples: {{reciprocal: {str(reciprocal).lower()}}}\n"))
        assert isinstance(task, TriplesTask)
        problem = task.problem_spec("cpu")
        assert (problem.n_candidates, problem.n_contexts, problem.context_sizes) == (12, None, (12, 2 * n_relations))
        assert float(problem.counts.sum()) == task.triples.examples_per_epoch == 200
        assert len(task.known_positives(1 << 20)) == 200 and len(task.heldout("valid")) == 20  # type: ignore[arg-type]
        assert (task.stopping_metric, task.metric) == ("valid/mrr", "test/mrr")
        with pytest.raises(ResourceError, match=r"takes 1,600 bytes, but 1,599 are available"):
            task.known_positives(1599)


def test_a_plan_contains_the_counts_of_triples(graph: Path) -> None:
    text = str(experiment.plan(settings(graph)))
    assert ("corpus: 100 training triples, 12 entities, 3 relations, 200 examples per epoch; 10 and 10 triples held out"
            in text and "slot: both" in text)


@pytest.mark.usefixtures("no_drawing")
def test_two_runs_are_compared_on_the_same_triples(graph: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "write", lambda folder: [])
    config, folders = settings(graph), []
    for k, seed in product((3, 1), (1, 2)):
        experiment.fit(config.model_copy(update={
            "train": config.train.model_copy(update={"seed": seed, "epochs": 1}),
            "negatives": config.negatives.model_copy(update={"k": k})}), tmp_path / f"{k}-{seed}")
        folders.append(tmp_path / f"{k}-{seed}")
    join.write(folders, tmp_path / "joined")
    result = json.loads((tmp_path / "joined" / "results.json").read_text())
    assert result["plan"]["metric"] == "test/mrr"
    by_kind = {(d["kind"], d["metric"]): d for d in result["differences"]}
    assert by_kind["items", "test/mrr"]["n"] == 20                            # ranks, resampled triple by triple
    assert {("seeds", "test/mrr"), ("seeds", "test/mr"), ("seeds", "test/hits@10")} <= set(by_kind)
    assert "neighbours" not in [section.key for section in comparison.document(results.read(tmp_path / "joined")
                                                                               ).sections]
    assert "mr" in LOWER_BETTER                                          # keys that results.py uses for verdicts


def test_inconsistent_parts_are_refused(graph: Path) -> None:
    with pytest.raises(DataError, match="is neither a file or folder nor a recipe"):
        tasks.read(settings(graph.parent / "nowhere"))
    with pytest.raises(UsageError, match=r"triples.slots: unknown key \(did you mean 'slot'"):
        settings(graph, "triples: {slots: both}\n")
    with pytest.raises(UsageError, match="brown: its recipe's reader is tagged"):
        config = settings(graph)
        monkey = pytest.MonkeyPatch()
        monkey.setattr("embtrain.data.catalogue.fetch.corpus_paths", lambda recipe: [graph])
        try:
            tasks.read(config.model_copy(update={"corpus": "brown"}))
        finally:
            monkey.undo()


@pytest.mark.usefixtures("no_drawing")
def test_a_graph_without_held_out_triples(graph: Path, tmp_path: Path) -> None:
    for part in PARTS[1:]:
        (graph / f"{part}.txt").unlink()
    run = experiment.fit(settings(graph, "triples: {valid: 0, test: 0}\n"), tmp_path / "run")
    assert values(run)["test/mrr"] is None and scoring.read_items(run.folder / "items.safetensors") == {}
    missing_split_reason = settings(graph, "triples: {valid: 0, test: 0}\n")
    assert components.build(missing_split_reason, tasks.read(settings(graph))).problem.dim == 5
    assert torch.get_num_threads() == 1


def test_strategies_may_differ_only_in_the_open_side(graph: Path, tmp_path: Path) -> None:
    def refused(sets: list[str]) -> bool:
        runs = {"a": {"strategy": "uniform", "model": "transe"},
                "b": {"strategy": "bernoulli", "model": "transe", "loss": "logistic", "sets": sets}}
        grid_read = grid.read_grid({"corpus": str(graph), "seeds": [1, 2], "runs": runs, "baseline": "a"})
        try:
            compare.plan(grid_read, tmp_path / "out")
        except UsageError as error:
            assert "so the runs cannot be paired" in str(error)
            return True
        return False

    assert not refused([]) and refused(["triples.unseen=drop"])


@pytest.mark.usefixtures("no_drawing")
def test_patience_needs_validation_triples(graph: Path, tmp_path: Path) -> None:
    patient = settings(graph, "triples: {valid: 0, test: 0}\n")
    patient = patient.model_copy(update={"train": patient.train.model_copy(update={"patience": 1})})
    # they have files
    assert TriplesTask.missing_split_reason(patient, "valid") == TriplesTask.missing_split_reason(patient, "test") == ""
    experiment.fit(patient, tmp_path / "run")
    (graph / "valid.txt").unlink()
    assert TriplesTask.missing_split_reason(settings(graph), "valid") == ""  # a share is held out
    with pytest.raises(UsageError, match=r"train.patience: nothing is held out; set triples.valid above 0") as caught:
        experiment.fit(patient, tmp_path / "other")
    assert "\n" not in str(caught.value) and TriplesTask.missing_split_reason(patient, "test") == ""


@pytest.mark.usefixtures("no_drawing")
def test_inverse_relations_have_separate_vectors_and_names(graph: Path, tmp_path: Path) -> None:
    run = experiment.fit(settings(graph, "triples: {reciprocal: true}\n"), tmp_path / "run")
    names = Vocabulary.read(run.folder / "relations.txt").words
    result = files_of_vectors.read(run.folder / "relations.safetensors")
    assert result.words == names + [f"inverse of {name}" for name in names] and result.table.shape == (6, 5)
    path = graph / "train.txt"
    path.write_text(path.read_text().replace("r1", f"inverse of {names[0]}"))
    tasks.read(settings(graph))
    with pytest.raises(DataError, match="rename it"):
        tasks.read(settings(graph, "triples: {reciprocal: true}\n"))
