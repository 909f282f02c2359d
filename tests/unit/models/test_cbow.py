"""CBOW: pooled contexts and their gradients, the optimum of the loss, refused settings, predictions, and whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.bits import same
from helpers.in_process import WORDS

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.text.windows import ContextBatch
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.subword_table import FILE, SubwordTable, ngram_rows
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.continuation import continue_run
from embtrain.experiment.prediction.predict import predict_queries, predict_words
from embtrain.experiment.run import stored
from embtrain.losses import base as losses
from embtrain.models.words.cbow import Cbow, CbowConfig
from embtrain.negatives import base as sources
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step
from embtrain.train.state import checkpoint

NAMES = ["cat", "cats", "catalogue", "aaaaaa", "a", "dog"]
CONTEXTS = [[3, 1, 3], [0], [5, 2, 4, 0]]


def model(subword: dict[str, Any] | None = None, dim: int = 4, **keys: Any) -> Cbow:
    n = len(NAMES)
    problem = ProblemSpec(n, torch.ones(n, dtype=torch.float64), n, dim=dim, words=NAMES, ngram_rows=ngram_rows, seed=3)
    return Cbow(CbowConfig(dim=dim, subword=subword, **keys), problem)


def batch(contexts: list[list[int]] = CONTEXTS) -> ContextBatch:
    n = len(contexts)
    return ContextBatch(torch.arange(n), torch.zeros(n, dtype=torch.int64),
                        torch.tensor([0, *map(len, contexts)]).cumsum(0),
                        torch.tensor([i for one in contexts for i in one]))


def rows_of(built: Cbow, context: list[int]) -> list[int]:
    if built.pool is None:
        return context
    start = built.pool.start
    return [int(row) for word in context for row in built.pool.row[start[word]:start[word + 1]]]


SUBWORDS = [None, {"buckets": 9}, {"buckets": "exact"}]


@pytest.mark.parametrize("subword", SUBWORDS)
def test_the_query_is_one_mean_of_all_rows(subword: dict[str, Any] | None) -> None:
    built = model(subword)
    query = built.encode(batch())
    expected = torch.stack([built.u[rows_of(built, context)].mean(0) for context in CONTEXTS])
    torch.testing.assert_close(query.vector, expected)
    assert query.context.tolist() == [1, 0, 2] and query.target.tolist() == [0, 1, 2] and query.query_id is None
    part = built.encode(batch().rows(slice(1, 3)))
    torch.testing.assert_close(part.vector, expected[1:])
    kernel = built.kernel_rows(batch().start, batch().context)
    assert kernel.mean and [kernel.row[a:b].tolist() for a, b in zip(kernel.start, kernel.start[1:], strict=False)] == [
        rows_of(built, context) for context in CONTEXTS]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("subword", SUBWORDS[:2])
def test_gradients_match_finite_differences(subword: dict[str, Any] | None, sparse: bool) -> None:
    """Of the mean a row receives the undivided gradient: n times the derivative for a context of n rows."""
    built = model(subword).double()
    built.sparse = sparse
    torch.nn.init.normal_(built.v, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([[0, 2, 4]])

    def value() -> torch.Tensor:
        return built.score(built.encode(batch(CONTEXTS[:1])), ids).square().sum()

    value().backward()
    assert built.u.grad is not None and built.u.grad.is_sparse == sparse
    gradient, step, n = built.u.grad.to_dense(), 1e-6, len(rows_of(built, CONTEXTS[0]))
    for row in range(len(built.u)):
        for d in range(4):
            with torch.no_grad():
                built.u[row, d] += step
                above = value()
                built.u[row, d] -= 2 * step
                below = value()
                built.u[row, d] += step
            assert float(gradient[row, d]) == pytest.approx(n * float((above - below) / (2 * step)), abs=1e-7)


def test_frozen_words_receive_no_gradient() -> None:
    built = model(freeze="known")
    assert built.frozen is not None
    built.frozen[3] = True
    built.score(built.encode(batch()), torch.arange(6).unsqueeze(0)).sum().backward()
    assert built.u.grad is not None and not built.u.grad.to_dense().any()                          # v starts at 0
    torch.nn.init.normal_(built.v, generator=torch.Generator().manual_seed(1))
    built.score(built.encode(batch()), torch.arange(6).unsqueeze(0)).sum().backward()
    assert (built.u.grad.to_dense().abs().sum(1) > 0).tolist() == [True, True, True, False, True, True]


def test_softmax_learns_the_probability_of_the_centre() -> None:
    """At the optimum the softmax of the scores is P(b|context), which the undivided gradient does not move."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])                                # contexts {3}, {4, 5}
    contexts, targets = [[3], [4, 5]], []
    for context, row in enumerate(p):
        targets += [(context, b) for b in range(3) for _ in range(round(10 * float(row[b])))]
    examples = batch([contexts[context] for context, _ in targets])
    examples = ContextBatch(torch.tensor([b for _, b in targets]), examples.slot, examples.start, examples.context)
    built = model(dim=6)
    problem, every = built.problem, sources.find("every")
    noise = every(every.Config(source="every", filter="none"), problem)
    cost = losses.find("softmax")(losses.find("softmax").Config(), problem)
    built.sparse = False
    step = Step(built, noise, cost, [torch.optim.Adam(built.parameters(), lr=0.05)], TrainConfig(batch=64))
    for _ in range(400):
        step(examples)
    scores = built.score(built.encode(batch(contexts)), torch.arange(6).unsqueeze(0)).detach()
    torch.testing.assert_close(scores[:, :3].softmax(1), p, atol=5e-3, rtol=0)


@pytest.mark.parametrize(("sets", "message"), [
    (["model.subword={pooling: sum}"], "model: subword.pooling: sum: cbow takes one mean over the rows"),
    (["model.subword={}", "model.freeze=known"], "freeze: known: other words train the n-grams"),
])
def test_a_mistake_is_one_line(sets: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as found:
        experiment.resolve(model="cbow", sets=sets)
    assert len(str(found.value).splitlines()) == 1


# -- runs -------------------------------------------------------------------------------------------------------------

long = pytest.mark.long


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tiny_runs.write(tmp_path)


def fit(place: Path, out: str, *sets: str, engine: str = "fused") -> experiment.Run:
    return experiment.fit(tiny_runs.config(place, "cbow", engine, *sets), place / out)


@long
def test_run_with_subwords_keeps_what_unknown_words_need(place: Path) -> None:
    run = fit(place, "run", "model.subword={buckets: 50}", "train.lr=0.05")
    vectors, subwords = run.word_vectors, SubwordTable.load(run.folder / FILE)
    np.testing.assert_array_equal(subwords.compose(vectors.words), vectors.table)
    assert np.abs(subwords.compose([vectors.words[0] + vectors.words[1]])).max() > 1e-3


@pytest.mark.slow
def test_it_resumes_with_the_same_bits(place: Path) -> None:
    straight, run = (fit(place, name, "train.keep=99") for name in ("straight", "cut"))
    last = checkpoint.load(straight.folder / "checkpoints")
    for path in sorted((run.folder / "checkpoints").iterdir())[4:]:
        path.unlink()
    experiment.resume(run.folder)
    assert same(checkpoint.load(run.folder / "checkpoints")["model"], last["model"])


@long
def test_a_context_predicts_its_word(place: Path) -> None:
    run = fit(place, "run")
    words = run.word_vectors.words
    by_line, by_words, other = predict_queries(run.folder, [[" ".join(words[:3])], words[:3], words[:1]], top=2)
    assert by_line == by_words != other and by_line.query == " ".join(words[:3]) and len(by_line.answers) == 2
    parts = stored.open_run(run.folder)
    scores = parts.model.table().detach() @ torch.from_numpy(run.word_vectors.table[:3].mean(0))
    assert by_line.answers[0].name == words[int(scores.argmax())]
    assert by_line.answers[0].score == pytest.approx(float(scores.max()), abs=1e-5)
    with pytest.raises(UsageError, match="there is no word 'xyzzy'"):
        predict_words(run.folder, [words[0], "xyzzy"])


@long
def test_words_start_from_given_vectors_and_frozen_ones_stay(place: Path) -> None:
    table = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
    vector_files.write(place / "given.vec", Vectors(WORDS[:5], table), "word2vec")
    run = fit(place, "run", f"train.start={place / 'given.vec'}", "model.freeze=known", "train.lr=0.05",
              engine="autograd")
    found = run.word_vectors
    np.testing.assert_allclose(found.table[found.find(WORDS[:5])], table, atol=1e-6)


@long
@pytest.mark.slow
def test_a_run_continues_on_another_text(place: Path) -> None:
    first = fit(place, "first")
    (place / "more").write_text("zebra " + " ".join(WORDS) + "\n")
    second = continue_run(first.folder, place / "more", out=place / "second", threads=1,
                          sets=["train.lr=1e-9", "train.min_lr=0"])
    before, after = first.word_vectors, second.word_vectors
    assert "zebra" in after.words and len(after) == len(before) + 1
    np.testing.assert_allclose(after.table[after.find(before.words)], before.table, atol=1e-5)
