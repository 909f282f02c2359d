"""A metric that cannot exist is refused before the first run of a comparison, if settings and data show it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from helpers.in_process import Here, in_process, small_text

from embtrain import experiment
from embtrain.common.errors import ResourceError, UsageError
from embtrain.experiment.comparison import compare
from embtrain.experiment.comparison.checks import metrics
from embtrain.experiment.comparison.checks.metrics import known_metrics
from embtrain.experiment.comparison.compare import Grid
from embtrain.experiment.tasks import base as tasks

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=4", "train.epochs=1", "train.chunk=512",
        "train.lr=0.1", "evaluate.heldout_pairs=100", "evaluate.resamples=0", "evaluate.neighbours=[bal]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("metrics"))


@pytest.fixture(autouse=True)
def cells_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    in_process(monkeypatch, place)
    return Here


def grid(place: Path, *sets: str, **options: Any) -> Grid:
    return compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 1, "corpus": str(place / "text"),
                              "benchmarks": [], "sets": [*KEYS, *sets], **options})


@pytest.mark.parametrize(("options", "message"), [
    ({"metric": "test/nonsense"}, "test/nonsense: a run of sgns does not have this score; there are: "
                                  "valid/log_likelihood, valid/mrr, valid/hits@1, valid/hits@10, valid/hits@100, "),
    ({"metric": "valid/hits@2"}, "valid/hits@2: a run of sgns does not have this score; there are: "),
    ({"metric": "test/spearman", "benchmarks": ["wordsim353"]}, "test/spearman: a run of sgns does not have this "
                                                                "score; there are: wordsim353/spearman, valid/log_"),
    ({"metric": "wordsim353/accuracy", "benchmarks": ["simlex999", "wordsim353"]},
     "wordsim353/accuracy: a run of sgns does not have this score; there are: simlex999/spearman, wordsim353/spearman, "
     "valid/log_likelihood, test/log_likelihood; name one of them with --metric"),
])
def test_a_metric_of_no_run_is_refused_before_the_first_one(place: Path, tmp_path: Path, options: dict[str, Any],
                                                            message: str) -> None:
    with pytest.raises(UsageError) as error:
        compare.compare(grid(place, **options), tmp_path / "out", 1, 1)
    assert str(error.value).startswith(f"--metric: {message}") and str(error.value).count("\n") == 0
    assert Here.log == [] and str(error.value).endswith("; name one of them with --metric")


@pytest.mark.parametrize("metric", [None, "test/mrr", "valid/log_likelihood"])
def test_a_part_of_the_corpus_without_data_has_no_metric(tmp_path: Path, place: Path, metric: str | None) -> None:
    """The settings hold some out, but a corpus of one document has none to spare."""
    text = (place / "text" / "00.txt").read_text()
    (tmp_path / "one.txt").write_text(text.split("\n")[0] * 30)
    options = {"corpus": str(tmp_path / "one.txt"), "metric": metric}
    with pytest.raises(UsageError) as error:
        compare.compare(grid(place, **options), tmp_path / "out", 1, 1)
    metric = metric or "test/log_likelihood"
    part = metric.partition("/")[0]
    assert str(error.value) == f"--metric: {metric}: this corpus has no {part} data; give more data" and Here.log == []


def test_a_search_needs_the_metric_of_its_trials(tmp_path: Path, place: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "one.txt").write_text((place / "text" / "00.txt").read_text().split("\n")[0] * 30)
    searched = grid(place, corpus=str(tmp_path / "one.txt"), search=["negatives.k=2:9"], trials=2,
                    metric="wordsim353/spearman", benchmarks=["wordsim353"])
    with pytest.raises(UsageError, match=r"^--metric: valid/log_likelihood: this corpus has no valid data; give more "
                                         r"data, or name another metric: wordsim353/spearman$"):
        compare.compare(searched, tmp_path / "out", 1, 1)
    assert Here.log == []


def test_a_benchmark_that_is_not_on_this_machine_is_refused_before_the_first_run(
        place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    with pytest.raises(ResourceError, match="rareword"):
        compare.compare(grid(place, benchmarks=["rareword"]), tmp_path / "out", 1, 1)
    assert Here.log == []


def test_the_metrics_of_an_untrained_run_are_those_of_a_trained_one(place: Path, tmp_path: Path) -> None:
    names = ["wordsim353", "google-analogies"]
    done = compare.compare(grid(place, benchmarks=names, metric="test/mrr"), tmp_path, 1, 1)
    trained = {f"{row.benchmark}/{row.metric}" for cell in done.record.cells for row in cell.scores}
    settings = experiment.Run(tmp_path / "cells" / "sgns-seed1").settings
    known = known_metrics(settings, tasks.read(settings), ["test/mrr"], tmp_path)
    assert set(known.names) == {name for name in trained if not name.startswith(("training/", "neighbours"))}
    assert known.complete == {"valid", "test", *names}
    assert all(map(known.may_have, trained))


@pytest.mark.parametrize("metric", ["test/mrr/head", "training/seconds", "test/learned_log_z", "test/log_sum_mean",
                                    "wordsim353/spearman/composed", "nmt-multi30k-de-en/bleu"])
def test_a_metric_that_depends_on_the_run_is_not_refused(place: Path, tmp_path: Path, metric: str) -> None:
    settings = compare.plan(grid(place, benchmarks=["wordsim353"]), tmp_path)[1][0].settings
    assert known_metrics(settings, tasks.read(settings), [metric], tmp_path).may_have(metric)


def test_nothing_is_refused_if_not_all_measures_are_known(place: Path, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """A translator translates only at its end, and a run may not fit into the memory of this machine."""
    settings = compare.plan(grid(place), tmp_path)[1][0].settings
    task = tasks.read(settings)
    assert not known_metrics(settings, task, ["test/nonsense"], tmp_path).may_have("test/nonsense")
    with monkeypatch.context() as patch:
        patch.setattr(task, "validate", lambda run: type(task).validate(task, run)[1:])
        assert known_metrics(settings, task, ["test/nonsense"], tmp_path).may_have("test/nonsense")
    monkeypatch.setattr(metrics.parts.machine, "free", lambda: 1)
    assert known_metrics(settings, task, ["test/nonsense"], tmp_path).may_have("test/nonsense")


@pytest.mark.parametrize(("strategy", "model", "text", "measures"), [
    ("bernoulli", "transe", "".join(f"a{i % 7}\tr{i % 2}\tb{i % 11}\n" for i in range(300)), ["mrr", "mr", "amri"]),
    ("nce", "lm", "a b c d e f g h\n" * 6000, ["log_likelihood", "mrr", "perplexity"]),
])
def test_measures_of_other_tasks_are_known(tmp_path: Path, strategy: str, model: str, text: str, measures: list[str]
                                           ) -> None:
    (tmp_path / "data.tsv").write_text(text)
    settings = experiment.resolve(strategy, model, str(tmp_path / "data.tsv"), sets=["model.dim=4"])
    known = known_metrics(settings, tasks.read(settings), ["test/nonsense"], tmp_path)
    for part in ("valid", "test"):
        assert all(f"{part}/{measure}" in known.names for measure in measures)
        assert not known.may_have(f"{part}/nonsense") and known.may_have(f"{part}/mrr/head")
    assert dataclasses.is_dataclass(known)
