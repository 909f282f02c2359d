"""The same training on a CUDA device. Skipped, visibly, on machines without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.graphs import a_folder

from embtrain.common.types import ProblemSpec
from embtrain.experiment import fit, resolve, resume
from embtrain.losses import base as losses
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as sources
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step

pytestmark = pytest.mark.gpu

WORDS = "the cat sat on the mat and the dog ran to the red house by the sea while a bird sang in the old tree".split()


def text(folder: Path, copies: int = 1) -> Path:
    """A file of 40,000 words, `copies` times as many different ones; pieces of 10,000 words are held out."""
    draw = torch.Generator().manual_seed(0)
    words = [word + "x" * copy for copy in range(copies) for word in WORDS]
    lines = [" ".join(words[i] for i in torch.randint(len(words), (20,), generator=draw).tolist())
             for _ in range(2000)]
    path = folder / "text.txt"
    path.write_text("\n".join(lines))
    return path


SETS = ["text.min_count=1", "text.sample=0", "model.dim=16", "train.epochs=2", "train.chunk=512", "train.batch=64",
        "evaluate.benchmarks=[]", "evaluate.neighbours=[cat]"]


@pytest.mark.parametrize("strategy", ["sgns", "nce-learned-z", "softmax", "cross-entropy", "sampled-softmax", "margin",
                                      "ace", "ace-with-filter", "ace-both-columns", "candidates"])
def test_run_on_gpu_is_finite_and_resumes(strategy: str, tmp_path: Path) -> None:
    modes = ["negatives.min_perplexity=5"] if "ace" in strategy else []
    if strategy == "candidates":
        (tmp_path / "lists.tsv").write_text("".join(f"{word}\t{other}\n" for word in WORDS for other in WORDS[:6]))
        modes = [f"negatives.file={tmp_path / 'lists.tsv'}", "negatives.share_draws_by=batch"]
    run = fit(resolve(strategy, corpus=str(text(tmp_path)), sets=[*SETS, *modes], device="cuda"), tmp_path / "run")
    scores = {(row.benchmark, row.metric): row.value for row in run.scores}
    assert scores["test", "log_likelihood"] is not None and scores["test", "log_likelihood"] < 0
    again = resume(tmp_path / "run")
    assert (again.word_vectors.table == run.word_vectors.table).all()


@pytest.mark.parametrize("loss", ["logistic", "nce", "sampled_softmax"])
def test_update_on_gpu_equals_update_on_cpu(loss: str) -> None:
    """The same ids on both devices: the update differs by rounding only."""
    from embtrain.data.text.windows import SkipGramBatch

    draw = torch.Generator().manual_seed(1)
    target, centre = torch.randint(40, (2, 64), generator=draw)
    batch = SkipGramBatch(target, torch.zeros_like(target), centre.sort().values, torch.arange(64))
    counts = torch.rand(40, generator=draw, dtype=torch.float64) + 0.5
    tables = []
    drawn = None
    for device in ("cpu", "cuda"):
        problem = ProblemSpec(40, counts, 40, counts, dim=8, seed=3, device=device)
        model = SkipGram(SkipGramConfig(dim=8), problem)
        with torch.no_grad():
            model.v.copy_(torch.linspace(-1, 1, 320).view(40, 8))
        source, cost = sources.find("unigram"), losses.find(loss)
        sampler = source(source.Config(filter="target" if loss != "nce" else "none"), problem)
        step = Step(model, sampler, cost(cost.Config(name=loss), problem),
                    [torch.optim.SGD(model.parameters(), lr=0.1)], TrainConfig())
        here = batch.to(device)
        if drawn is None:
            drawn = sampler.draw(model.encode(here).detach(), 5, step.view)
        moved = type(drawn)(*(x.to(device) if isinstance(x, torch.Tensor) else x for x in vars(drawn).values()))
        step.update(here, model.encode(here), moved, keep=0)
        tables.append(torch.cat([model.u, model.v]).detach().cpu())
    torch.testing.assert_close(tables[0], tables[1], rtol=1e-4, atol=1e-6)


def drawn_masses(device: str) -> torch.Tensor:
    source = sources.find("unigram")
    counts = torch.tensor([8.0, 0.0, 4.0, 1.0, 3.0], dtype=torch.float64)
    sampler = source(source.Config(exponent=1.0), ProblemSpec(5, counts, 5, counts, dim=4, seed=3, device=device))
    ids = sampler.draw_ids(40_000, 5)                                            # type: ignore[attr-defined]
    return torch.bincount(ids.flatten().cpu(), minlength=5) / 200_000


def test_draws_on_gpu_follow_q() -> None:
    masses = drawn_masses("cuda")
    assert masses[1] == 0
    torch.testing.assert_close(masses.double(), torch.tensor([8.0, 0, 4, 1, 3], dtype=torch.float64) / 16, rtol=0,
                               atol=0.006)
    assert torch.equal(masses, drawn_masses("cuda"))


@pytest.mark.parametrize("strategy", ["sgns", "nce", "nce-learned-z", "sampled-softmax", "margin", "ace"])
@pytest.mark.parametrize("share", ["row", "window", "block"])
def test_kernels_on_gpu_learn_as_on_cpu(strategy: str, share: str, tmp_path: Path) -> None:
    """The same run by Triton and by the compiled core: equal up to the order in which windows are updated.

    On the 21 words of `text`, windows updated at the same time have all rows in common, and margin was .051 lower.
    """
    pytest.importorskip("triton", reason="peers: triton is not installed; pip install 'embtrain[gpu]'")
    values = []
    for device in ("cpu", "cuda"):
        sets = [*SETS, "train.engine=fused", f"negatives.share_draws_by={share}", "negatives.share_size=4",
                *(["negatives.min_perplexity=5"] if strategy == "ace" else [])]
        run = fit(resolve(strategy, corpus=str(text(tmp_path, 10)), sets=sets, device=device), tmp_path / device)
        values.append({(row.benchmark, row.metric): row.value for row in run.scores}["test", "log_likelihood"])
    assert values[1] == pytest.approx(values[0], abs=0.05)


def graph(folder: Path) -> Path:
    """Triples of six relations, each a step on a grid of 16 × 16 entities; 200 of them are held out."""
    steps = [(1, 0), (0, 1), (1, 1), (2, -1), (3, 2), (0, 4)]
    triples = [(f"e{x}-{y}", f"r{r}", f"e{x + a}-{y + b}") for x in range(16) for y in range(16)
               for r, (a, b) in enumerate(steps) if x + a < 16 and 0 <= y + b < 16]
    order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(0)).tolist()
    for name, places in (("train", order[:-200]), ("valid", order[-200:-100]), ("test", order[-100:])):
        (folder / f"{name}.txt").write_text("".join("\t".join(triples[i]) + "\n" for i in places))
    return folder


@pytest.mark.parametrize("share", ["row", "block"])
@pytest.mark.parametrize(("model", "strategy", "sets"), [
    ("transe", "self-adversarial", ["model.norm=l1", "train.lr=0.1"]),
    ("transe", "uniform", ["model.norm=l2", "loss.name=sampled_softmax", "train.lr=0.3"]),
    ("transe", "margin", ["model.norm=l2", "train.optimizer=sgd", "train.lr=0.02", "model.entities=ball"]),
    ("distmult", "uniform", ["loss.name=sampled_softmax", "train.lr=0.2"])])
def test_triples_on_gpu_learn_as_on_cpu(model: str, strategy: str, sets: list[str], share: str, tmp_path: Path) -> None:
    """The same run by Triton and by the compiled core: equal up to the order in which queries are updated."""
    pytest.importorskip("triton", reason="peers: triton is not installed; pip install 'embtrain[gpu]'")
    values = []
    for device in ("cpu", "cuda"):
        run = fit(resolve(strategy, model=model, corpus=str(graph(tmp_path)), device=device, threads=1, sets=[
            "model.dim=32", "negatives.k=16", "negatives.filter=target", f"negatives.share_draws_by={share}",
            "negatives.share_size=8", "train.engine=fused", "train.epochs=100", "train.chunk=1000",
            "train.evaluate_every=1000000", "evaluate.resamples=0", *sets]), tmp_path / device)
        values.append({(row.benchmark, row.metric): row.value for row in run.scores}["test", "mrr"])
    assert values[1] == pytest.approx(values[0], rel=0.35)               # seeds of one device differ by up to .25


def test_order_embeddings_on_gpu_learn_as_on_cpu(tmp_path: Path) -> None:
    """A binary tree of 1,023 concepts, by Triton and by the compiled core."""
    pytest.importorskip("triton", reason="peers: triton is not installed; pip install 'embtrain[gpu]'")
    (tmp_path / "tree.tsv").write_text("".join(f"c{i}\tc{(i - 1) // 2}\n" for i in range(1, 1023)))
    values = []
    for device in ("cpu", "cuda"):
        run = fit(resolve("order", model="order", corpus=str(tmp_path / "tree.tsv"), device=device, threads=1, sets=[
            "model.dim=20", "negatives.filter=target", "train.engine=fused", "train.epochs=20", "train.chunk=1000",
            "train.evaluate_every=1000000", "evaluate.resamples=0", "pairs.valid=300", "pairs.test=300"]),
            tmp_path / device)
        values.append({(row.benchmark, row.metric): row.value for row in run.scores}["test", "accuracy"])
    assert values[1] == pytest.approx(values[0], abs=0.05)


#: Strategy, loss and settings of models of triples; RotatE and TransE with l1 score shared candidates in Triton.
TRIPLES = [("complex", "cross-entropy", ["triples.reciprocal=true", "model.penalty=0.01", "train.optimizer=adagrad"]),
           ("distmult", "kvsall", []),
           ("rotate", "self-adversarial", ["negatives.share_draws_by=block", "negatives.share_size=16"]),
           ("rotate", "self-adversarial", ["negatives.k=4"]),
           ("transe", "self-adversarial", ["negatives.share_draws_by=block", "negatives.share_size=16"])]


@pytest.mark.parametrize(("model", "strategy", "sets"), TRIPLES)
def test_triples_train_on_gpu_as_on_cpu(model: str, strategy: str, sets: list[str], tmp_path: Path) -> None:
    """Without draws the tables and the ranks are equal up to rounding; the devices draw other negatives."""
    a_folder(tmp_path / "graph")
    tables, scores = [], []
    for device in ("cpu", "cuda"):
        run = fit(resolve(strategy, model=model, corpus=str(tmp_path / "graph"), device=device, sets=[
            "model.dim=16", "train.epochs=2", "train.chunk=64", "train.batch=16", "train.engine=autograd",
            "evaluate.resamples=0", *sets]), tmp_path / device)
        tables.append(torch.from_numpy(run.word_vectors.table.copy()))
        scores.append({(row.benchmark, row.metric): row.value for row in run.scores}["test", "mrr"])
    assert torch.isfinite(tables[1]).all() and 0 < scores[1] <= 1
    if strategy in ("cross-entropy", "kvsall"):
        torch.testing.assert_close(tables[0], tables[1], rtol=1e-3, atol=1e-4)
        assert scores[1] == pytest.approx(scores[0], abs=1e-6)
