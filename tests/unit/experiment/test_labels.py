"""Label prediction with every source: the model's formula, examples, runs and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.runs import stop_at

import embtrain
from embtrain import experiment
from embtrain.common import machine, shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, Stopped, UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.labels import examples as labelled, synthetic
from embtrain.data.labels.sparse import Csr, Documents, LabelsConfig
from embtrain.data.labels.synthetic import PlantedConfig
from embtrain.experiment import resolve
from embtrain.experiment.comparison import compare, join
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.run import components, scoring
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.labels import LabelsTask
from embtrain.models.xc import XC, XCConfig
from embtrain.report.load.run import read as read_run
from embtrain.report.render import html
from embtrain.report.run import page as run_page
from embtrain.train.engines.autograd import Step
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long

V, FEATURES, MADE = 40, 60, PlantedConfig(labels=40, features=60, documents=300, test=60, clusters=4, pool=10,
                                          prototype=4, noise=2, seed=3)
SETS: dict[str, Any] = {"model.dim": 12, "train.epochs": 2, "train.chunk": 32, "train.batch": 512,
                        "evaluate.resamples": 40, "labels.valid": 0.1}
EPOCHS, LEARNT = 3, 0.16  # .07 by chance; .10 by always predicting the most frequent label


def write(folder: Path, documents: Documents, first: int, last: int, name: str) -> None:
    """Write a file in the format of the Extreme Classification Repository."""
    assert documents.features.value is not None
    lines = [f"{last - first} {documents.n_features} {documents.n_labels}"]
    for r in range(first, last):
        x = slice(documents.features.start[r], documents.features.start[r + 1])
        y = documents.labels.index[documents.labels.start[r]:documents.labels.start[r + 1]]
        words = [f"{f}:{v:.9g}" for f, v in zip(documents.features.index[x], documents.features.value[x], strict=True)]
        lines.append(" ".join([",".join(map(str, y)), *words]))
    (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, documents = tmp_path_factory.mktemp("planted"), synthetic.generate(MADE)
    write(folder, documents, 0, 300, "mine_train.txt")
    write(folder, documents, 300, 360, "mine_test.txt")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a private cache, and draw no reports, which would take most of the time."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-labels"))
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)


def settings(corpus: Path, strategy: str, *more: str) -> Settings:
    return resolve(strategy, "xc", str(corpus), sets=[*(f"{key}={json.dumps(value)}" for key, value in SETS.items()),
                                                      *more], threads=1)


def fit(corpus: Path, strategy: str, out: Path, **more: Any) -> experiment.Run:
    sets = {**SETS, **{key.replace("__", "."): value for key, value in more.items()}}
    return embtrain.fit(strategy, model="xc", corpus=corpus, sets=sets, threads=1, out=out)


def value(run: experiment.Run, key: str) -> float:
    (result,) = [row.value for row in run.scores if f"{row.benchmark}/{row.metric}" == key]
    assert result is not None
    return result


# --- the model -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_scores_are_the_formula(similarity: str) -> None:
    documents = synthetic.generate(MADE)
    model = XC(XCConfig.model_validate({"dim": 6, "similarity": similarity, "tau": 3.0}),
               ProblemSpec(V, torch.ones(V), n_contexts=360, n_features=FEATURES, dim=6, seed=1))
    model.c.data = torch.randn(V, 6, generator=torch.Generator().manual_seed(2))
    batch = labelled.make_batch(documents, np.array([5, 200, 9]))
    query = model.encode(batch)
    everyone = model.score(query, torch.arange(V).unsqueeze(0))
    assert documents.features.value is not None
    for row, document in enumerate(batch.document.tolist()):
        h = torch.zeros(6)
        for entry in range(documents.features.start[document], documents.features.start[document + 1]):
            h += float(documents.features.value[entry]) * model.w[int(documents.features.index[entry])].detach()
        plain = torch.stack([h @ c for c in model.c.detach()])
        if similarity == "cosine":
            plain = 3.0 * plain / h.norm() / model.c.detach().norm(dim=1)
        assert everyone[row].tolist() == pytest.approx(plain.tolist(), rel=1e-4, abs=1e-5)
    ids = torch.tensor([[3, 0, 39]]).expand(len(query), -1)
    for candidates in (ids, ids[:1], model.c[ids]):
        assert torch.allclose(model.score(query, candidates), everyone[:, [3, 0, 39]], atol=1e-5)
    assert (model.geometry, model.tau) == (similarity, 3.0 if similarity == "cosine" else 1.0)


def test_a_document_without_features_scores_all_labels_equally() -> None:
    documents = synthetic.generate(MADE)
    empty = Documents(Csr(np.zeros(361, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)),
                      documents.labels, FEATURES, V, documents.test)
    model = XC(XCConfig(dim=4), ProblemSpec(V, torch.ones(V), n_features=FEATURES, seed=1))
    scores = model.score(model.encode(labelled.make_batch(empty, np.array([0]))), torch.arange(V).unsqueeze(0))
    assert (scores == 0).all()
    scores.sum().backward()
    assert model.c.grad is not None and torch.isfinite(model.c.grad.to_dense()).all()


def test_a_corpus_without_features_is_refused() -> None:
    with pytest.raises(UsageError, match="xc needs documents with features"):
        XC(XCConfig(), ProblemSpec(V, torch.ones(V)))


# --- examples ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("one", [False, True])
def test_examples_are_reproducible_from_epoch_and_block(one: bool) -> None:
    result, ids = synthetic.generate(MADE), np.arange(10, 110)
    def made(epoch: int, start: int = 0, seed: int = 5) -> list[tuple[list[int], list[int]]]:
        return [(b.document.tolist(), b.target.tolist()) for b in
                labelled.LabelExamples(result, ids, one, seed).blocks(epoch, 16, start)]
    whole = made(0)
    assert len(whole) == 7 == labelled.LabelExamples(result, ids, one, 5).n_blocks(0, 16)
    assert made(0, 4) == whole[4:] and made(1) != whole and made(0, seed=6) != whole
    pairs = sorted(pair for d, t in whole for pair in zip(d, t, strict=True))
    every = [(d, int(t)) for d in ids.tolist() for t in result.labels.rows(np.array([d])).index]
    if not one:
        assert pairs == sorted(every)
    else:
        assert [d for d, _ in pairs] == ids.tolist() and set(pairs) <= set(every)


def test_with_one_each_label_of_a_document_is_drawn_equally_often() -> None:
    documents = synthetic.generate(MADE)
    many = np.flatnonzero(documents.labels.size() == 4)[:5]
    drawn = np.zeros(V)
    for epoch in range(400):
        (batch,) = labelled.LabelExamples(documents, many, True, 1).blocks(epoch, 8)
        drawn += np.bincount(batch.target.numpy(), minlength=V)
    expected = np.bincount(documents.labels.rows(many).index, minlength=V) * 100.0
    chi = ((drawn - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
    assert drawn[expected == 0].sum() == 0 and chi < 45   # 15 degrees of freedom: p < .0001 beyond it


def test_known_positives_are_all_labels_of_training_documents(corpus: Path) -> None:
    task = LabelsTask.read(settings(corpus, "softmax"))
    known, docs = task.known_positives(1 << 30), task.documents
    every = torch.arange(V).expand(len(docs.labels), -1)
    expected = known.contains(torch.arange(len(docs.labels)), every)
    for d in range(len(docs.labels)):
        own_labels = docs.labels.rows(np.array([d])).index.tolist() if d in task.parts.train else []
        assert expected[d].nonzero()[:, 0].tolist() == own_labels
    with pytest.raises(ResourceError, match=r"negatives\.filter: target"):
        task.known_positives(100)


def test_held_out_documents_depend_on_the_corpus_only(corpus: Path) -> None:
    a, b = (LabelsTask.read(settings(corpus, "softmax", f"train.seed={seed}")) for seed in (1, 2))
    assert torch.equal(a.heldout("valid").target, b.heldout("valid").target)
    assert not set(a.parts.train) & (set(a.parts.valid) | set(a.parts.test)) and len(a.parts.test) == 60
    few = LabelsTask.read(settings(corpus, "softmax", "evaluate.heldout_documents=10"))
    assert len(few.heldout("test").document.unique()) == 10
    assert a.counts.sum() == len(labelled.make_batch(a.documents, a.parts.train))
    assert float(
        LabelsTask.read(settings(corpus, "softmax", "labels.reduction=one")).problem_spec("cpu").counts.sum()
    ) == pytest.approx(len(a.parts.train))


def test_too_few_documents_to_hold_some_out_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine.txt").write_text("2 2 2\n0 0:1\n1 1:1\n")
    LabelsTask.read(settings(tmp_path / "mine.txt", "softmax", "labels.test=0"))
    assert [record.getMessage() for record in caplog.records] == [
        "mine.txt: the valid split contains no document with a label, so it is not evaluated"]


# --- every source of negatives -------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def read(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> LabelsTask:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-labels"))
        return LabelsTask.read(settings(corpus, "softmax"))


DOT = ("sgns", "nce", "softmax", "exp", "rff-leaf", "cluster")


def build_for(corpus: Path, read: LabelsTask, strategy: str, *more: str) -> components.Components:
    """Return model, source and loss; an adversary gets as many groups as the labels allow."""
    few = ["negatives.min_perplexity=5", "negatives.shortlist=16", "negatives.groups=4"] if strategy in FEW else []
    few = few[:1] if strategy == "ace-full" else few
    return components.build(settings(corpus, strategy, "train.lr=0.5", *few, *more), read)


#: Strategies without settings for another kind of data. Documents have no names, so that no file can list candidates.
STRATEGIES = [name for name in shipped.names("configs", "strategies")
              if set(read_yaml(shipped.path("configs", name, "strategies")).tree) <= {"negatives", "loss", "train"}
              and name != "candidates"]
FEW = {name for name in STRATEGIES if resolve(name).negatives.source == "ace"}


def one_of_each() -> list[str]:
    """Return one strategy per pair of source and loss; other differences do not concern labels."""
    per_pair = {}
    for name in STRATEGIES:
        resolved = resolve(name)
        per_pair.setdefault((resolved.negatives.source, resolved.loss.name), name)
    return list(per_pair.values())


def test_every_strategy_is_allowed(corpus: Path, read: LabelsTask) -> None:
    for name in STRATEGIES:
        assert build_for(corpus, read, name).model.name == "xc"


@pytest.mark.parametrize(("strategy", "similarity"), [*((name, "cosine") for name in one_of_each()),
                                                      *((name, "dot") for name in DOT)])
def test_every_strategy_learns(strategy: str, similarity: str, corpus: Path, read: LabelsTask) -> None:
    built = build_for(corpus, read, strategy, f"model.similarity={similarity}")
    optimizers = make_optimizers(built.model, built.loss, built.train)
    step = Step(built.model, built.source, built.loss, optimizers, built.train, built.known_positives)
    for epoch in range(EPOCHS):
        built.source.on_epoch_start(step.view)
        for block in read.examples.blocks(epoch, 64):
            assert torch.isfinite(step(block).loss)
    rows = scoring.labels(built, read.heldout("test"), "test", np.ones(V), read.evaluate.model_copy(
        update={"resamples": 0}))
    result = {row.metric: row.value or 0.0 for row in rows}
    assert result["precision@1"] > LEARNT, result["precision@1"]


@pytest.mark.parametrize(("strategy", "more", "message"), [
    ("softmax", ["negatives.filter=observed"], "loss.name: softmax is not a probability if candidates are masked"),
    ("nce", ["negatives.filter=observed"], ""), ("semi-hard", [], ""),
    ("exp", ["train.engine=fused"], "model.name: xc: the kernels support only skipgram"),
])
def test_refusals_have_a_message(strategy: str, more: list[str], message: str, corpus: Path, read: LabelsTask) -> None:
    if not message:
        assert build_for(corpus, read, strategy, *more).source.name
        return
    with pytest.raises(UsageError, match=message):
        build_for(corpus, read, strategy, *more)


# --- runs ----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-labels"))
        return fit(corpus, "cluster", tmp_path_factory.mktemp("runs") / "run")


def test_a_run_writes_its_files(run: experiment.Run, tmp_path: Path) -> None:
    assert {f"test/{name}@{k}" for name in ("precision", "ndcg", "psp") for k in (1, 3, 5)} <= {
        f"{row.benchmark}/{row.metric}" for row in run.scores}
    names = [line.split("\t")[0] for line in (run.folder / "labels.txt").read_text().splitlines()]
    assert names == [str(i) for i in range(V)] == run.word_vectors.words and run.word_vectors.dim == 12
    items = scoring.read_items(run.folder / "items.safetensors")
    assert len(items["test/precision@1"]) == 60 and len(items["test/log_p"]) == len(items["test/cluster"]) > 60
    assert items["test/psp@5"].mean() == pytest.approx(value(run, "test/psp@5"))
    page = html.render(run_page.document(read_run(run.folder)))
    assert "Neighbours" not in page and "precision" in page
    experiment.export(run.folder, "word2vec", tmp_path / "vectors.txt")
    assert (tmp_path / "vectors.txt").read_text().startswith(f"{V} 12\n")
    identity = json.loads((run.folder / "identity.json").read_text())
    assert identity["task"] == "labels" and identity["corpus"]["counts"]["train"] == 270


@pytest.mark.parametrize("strategy", ["sgns", "nce"])
def test_labels_that_training_lacks_have_a_likelihood(strategy: str, tmp_path: Path) -> None:
    """The run reported that it had diverged, or ranked these labels first."""
    lines = {"train": [i % 6 for i in range(60)], "test": [i % 8 for i in range(32)]}
    for part, labels in lines.items():
        rows = "".join(f"{label} {label}:1.0\n" for label in labels)
        (tmp_path / f"mine_{part}.txt").write_text(f"{len(labels)} 12 12\n{rows}")
    run = fit(tmp_path, strategy, tmp_path / "run", train__epochs=60, train__patience=20, train__lr=0.1)
    assert math.isfinite(value(run, "test/log_likelihood")) and value(run, "test/precision@1") >= 0.75
    assert [row for row in run.scores if row.metric == "warning"] == []


@pytest.mark.parametrize(("strategy", "reduction"), [("cluster", "one"), ("sampled-softmax", "all")])
def test_a_stopped_run_resumes_bit_for_bit(strategy: str, reduction: str, corpus: Path, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"labels__reduction": reduction, "negatives__filter": "observed"}
    whole = fit(corpus, strategy, tmp_path / "whole", **more)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(13, patch)                                   # in the second of two epochs of nine blocks
        fit(corpus, strategy, tmp_path / "part", **more)
    again = experiment.resume(tmp_path / "part")
    assert whole.word_vectors.table.tobytes() == again.word_vectors.table.tobytes()
    assert {r for r in whole.scores if r.benchmark == "test"} == {r for r in again.scores if r.benchmark == "test"}


def test_another_corpus_is_refused_on_resume(corpus: Path, tmp_path: Path) -> None:
    corpus_file = tmp_path / "mine"
    corpus_file.mkdir()
    for file in corpus.iterdir():
        (corpus_file / file.name).write_bytes(file.read_bytes())
    done = fit(corpus_file, "uniform", tmp_path / "run", train__epochs=1)
    (done.folder / "labels.txt").write_text("a\t1\nb\t1\n")
    with pytest.raises(DataError, match=r"labels\.txt"):
        done.resume()
    (corpus_file / "mine_test.txt").write_text("1 60 40\n3 1:1\n")
    with pytest.raises(DataError, match="sha256"):
        done.resume()


def test_strategies_are_compared_document_by_document(run: experiment.Run, corpus: Path, tmp_path: Path) -> None:
    other = fit(corpus, "sampled-softmax", tmp_path / "other")
    join.join([run.folder, other.folder], tmp_path / "both")
    result = json.loads((tmp_path / "both" / "results.json").read_text())
    assert result["plan"]["metric"] == "test/precision@1"
    over = {d["metric"]: d["n"] for d in result["differences"] if d["kind"] == "items"}
    assert over["test/psp@3"] == over["test/precision@1"] == 60 and "test/log_likelihood" in over


def test_a_comparison_has_no_benchmarks(corpus: Path, tmp_path: Path) -> None:
    requested = Grid(strategies=["softmax", "exp"], models=["xc"], corpus=str(corpus), seeds=[1])
    grid, cells = compare.plan(requested, tmp_path)
    assert grid.benchmarks == [] and not any(hasattr(cell.settings.evaluate, "benchmarks") for cell in cells)
    with pytest.raises(UsageError, match="--benchmarks: xc learns from labels, which has no benchmarks; remove"):
        compare.plan(requested.model_copy(update={"benchmarks": ["wordsim353"]}), tmp_path)


def test_a_diagnosis_and_a_dry_run(run: experiment.Run, corpus: Path) -> None:
    from embtrain.experiment.diagnosis.diagnose import diagnose

    result = diagnose(run.folder, ["exp", "cluster"], [4], max_queries=8, draws=50, threads=1)
    assert [line.strategy for line in result.lines] == ["exp", "cluster"] and result.part == "test"
    plan = str(experiment.plan(settings(corpus, "rff-leaf")))
    assert "270 training documents of 60 features, 40 labels" in plan and "engine: autograd" in plan


# --- refusals ------------------------------------------------------------------------------------------------------

def test_text_and_label_corpora_are_not_interchangeable(corpus: Path) -> None:
    with pytest.raises(UsageError, match=r"reader is wiki, and model.name: xc learns from documents with labels"):
        tasks.read(resolve("softmax", "xc", "gensim-wiki"))
    with pytest.raises(EmbtrainError) as caught:
        tasks.read(resolve("softmax", "skipgram", "planted-13k"))
    assert "\n" not in str(caught.value)


def test_tables_that_do_not_fit_are_refused_before_allocation(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("4 3000000 3000000\n" + "1 1:1\n" * 4)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(
            ResourceError, match=r"take about 1\.5 GiB of tables and names at model\.dim: 12, and 1\.0 are free"):
        patch.setattr(machine, "free", lambda: 1 << 30)
        tasks.read(settings(tmp_path / "x.txt", "softmax"))
    (tmp_path / "y.txt").write_text("2 5 5\n 1:1\n 2:1\n")
    with pytest.raises(DataError, match="no training document has a label"):
        tasks.read(settings(tmp_path / "y.txt", "softmax"))


def test_the_only_settings_section_is_labels() -> None:
    assert set(LabelsConfig.model_fields) == {"reader", "label_attributes", "split", "valid", "test", "split_seed",
                                              "files", "reduction", "unit"}
    with pytest.raises(UsageError, match=r"text\.window.*unknown key"):
        resolve("softmax", "xc", sets=["text.window=3"])
