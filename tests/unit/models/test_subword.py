"""Subwords: pooled vectors and their gradients, tables, given vectors, refused settings, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.bits import same
from helpers.in_process import WORDS

from embtrain import experiment
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.text.windows import SkipGramBatch
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.subword_table import FILE, SubwordTable, make_ngrams, ngram_rows
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.run import memory, stored
from embtrain.models.base import pad_rows
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.train.state import checkpoint

NAMES = ["cat", "cats", "catalogue", "aaaaaa", "a", "dog"]
POOLINGS = ["mean", "sum"]


def problem(words: list[str] | None = NAMES, dim: int = 4) -> ProblemSpec:
    n = len(NAMES)
    return ProblemSpec(n, torch.ones(n, dtype=torch.float64), n, dim=dim, words=words, ngram_rows=ngram_rows, seed=3)


def model(dim: int = 4, **subword: Any) -> SkipGram:
    return SkipGram(SkipGramConfig(dim=dim, subword={"buckets": 9, **subword}), problem(dim=dim))


def batch(centre: list[int]) -> SkipGramBatch:
    n = len(centre)
    return SkipGramBatch(torch.arange(n) % 6, torch.zeros(n, dtype=torch.int64), torch.tensor(centre), torch.arange(n))


def rows_of(built: SkipGram, word: int) -> torch.Tensor:
    assert built.pool is not None
    return built.pool.row[built.pool.start[word]:built.pool.start[word + 1]]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("buckets", [9, "exact"])
def test_vectors_are_pooled_from_the_word_and_its_ngrams(buckets: int | str, pooling: str) -> None:
    built = model(buckets=buckets, pooling=pooling)
    ngrams = make_ngrams(3, 6, buckets, NAMES)
    start, row = ngrams.rows(NAMES)
    assert built.u.shape == (6 + ngrams.n_rows, 4) and built.v.shape == (6, 4) and not built.v.any()
    assert 0.2 < built.u.abs().max() <= 1 / 4
    expected = []
    for i in range(6):
        rows = built.u[[i, *(6 + row[start[i]:start[i + 1]])]].detach()
        assert rows_of(built, i).tolist() == [i, *(6 + row[start[i]:start[i + 1]])]
        expected.append(rows.mean(0) if pooling == "mean" else rows.sum(0))
    torch.testing.assert_close(built.vectors(), torch.stack(expected))
    torch.testing.assert_close(built.encode(batch([3, 0, 3, 5])).vector.detach(), torch.stack(expected)[[3, 0, 3, 5]])
    assert built.vectors("sum").shape == (6, 4) and not built.vectors().requires_grad
    u = built.u.detach().numpy()
    table = SubwordTable(ngrams, u[6:], NAMES, u[:6], pooling)  # type: ignore[arg-type]
    np.testing.assert_allclose(table.compose(NAMES), built.vectors(), atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_match_finite_differences(pooling: str, sparse: bool) -> None:
    """Of the mean a row receives the undivided gradient: n times the derivative for a word with n rows."""
    built = model(pooling=pooling).double()
    built.sparse = sparse
    torch.nn.init.normal_(built.v, generator=torch.Generator().manual_seed(1))
    centre = [3]                                                   # aaaaaa: n-grams that occur twice, and collisions
    ids = torch.tensor([[0, 2, 4]])

    def value() -> torch.Tensor:
        return built.score(built.encode(batch(centre)), ids).square().sum()

    value().backward()
    assert built.u.grad is not None and built.u.grad.is_sparse == sparse
    gradient, step = built.u.grad.to_dense(), 1e-6
    n = len(rows_of(built, 3)) if pooling == "mean" else 1
    assert len(rows_of(built, 3).unique()) < len(rows_of(built, 3))
    for row in range(len(built.u)):
        for d in range(4):
            with torch.no_grad():
                built.u[row, d] += step
                above = value()
                built.u[row, d] -= 2 * step
                below = value()
                built.u[row, d] += step
            assert float(gradient[row, d]) == pytest.approx(n * float((above - below) / (2 * step)), abs=1e-7)


def test_rows_of_ngrams_are_not_padded() -> None:
    """So that a table of 2 million rows is not copied when the compiled engine starts."""
    built = model(dim=10)
    before = built.u.data_ptr(), built.u.detach().clone()
    pad_rows(built)
    assert built.u.data_ptr() == before[0] and torch.equal(built.u, before[1]) and built.u.stride() == (10, 1)
    assert built.v.stride() == (16, 1)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_given_vectors_are_pooled_vectors(pooling: str) -> None:
    """n-grams take the mean of their equal shares, so that another word starts near words that it resembles."""
    built = model(buckets="exact", pooling=pooling)
    pool = built.pool
    assert pool is not None
    given = 100 * torch.eye(4)[:3]                                              # much above the initial rows
    words = torch.tensor([0, 2, 5])                                               # cat, catalogue, dog
    before = built.u.detach().clone()
    pool.fit_ngrams(built.u, words, given)
    rows = {name: {int(r) for r in rows_of(built, i)} for i, name in enumerate(NAMES)}
    sizes = [len(rows_of(built, i)) if pooling == "sum" else 1 for i in (0, 2)]
    shared = sorted(rows["cat"] & rows["catalogue"])
    assert shared and torch.allclose(built.u[shared], (given[0] / sizes[0] + given[1] / sizes[1]) / 2)
    untouched = sorted(rows["aaaaaa"] | rows["a"] | {0, 1, 2, 5})
    assert torch.equal(built.u[untouched], before[untouched])
    pool.set_vectors(built.u, words, given)
    torch.testing.assert_close(built.vectors()[words], given, rtol=1e-4, atol=1e-5)
    cosine = torch.nn.functional.cosine_similarity(built.vectors()[1:2], given)     # cats
    assert cosine[:2].min() > 0.1 > cosine[2] and torch.equal(built.u[1], before[1])        # it has no n-gram of dog


@pytest.mark.parametrize(("sets", "message"), [
    (["model.subword.min_n=7"], "model.subword: min_n: 7: is above max_n: 6"),
    (["model.subword.buckets=0"], "model.subword: buckets: 0: give exact, or 1 to"),
    (["model.subword.buckets=many"], "model.subword.buckets: "),
    (["model.subword={}", "model.freeze=known"], "freeze: known: other words train the n-grams"),
    (["model.name=node2vec", "model.subword={}"], "model.subword: names of nodes are not words with n-grams; set null"),
])
def test_a_mistake_is_one_line(sets: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as found:
        experiment.resolve(sets=sets, model="node2vec" if "node2vec" in sets[0] else None)
    assert len(str(found.value).splitlines()) == 1


def test_candidates_without_words_are_refused() -> None:
    with pytest.raises(UsageError, match=r"model\.subword: needs words"):
        SkipGram(SkipGramConfig(subword={}), problem(words=None))


def test_tables_that_do_not_fit_are_refused_before_they_are_allocated() -> None:
    settings = experiment.resolve(sets=["model.subword.buckets=2000000000"])
    with pytest.raises(ResourceError, match=r"model\.subword\.buckets: a table of 2,000,000,006 by 100 numbers takes"):
        memory.require_tables(settings, 6)


# -- runs -------------------------------------------------------------------------------------------------------------

long = pytest.mark.long
SUBWORD = "model.subword={buckets: 50}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tiny_runs.write(tmp_path)


def fit(place: Path, out: str, *sets: str, engine: str = "fused") -> experiment.Run:
    return experiment.fit(tiny_runs.config(place, "skipgram", engine, *sets), place / out)


@long
@pytest.mark.parametrize("engine", [pytest.param("autograd", marks=pytest.mark.slow), "fused"])
def test_run_keeps_what_unknown_words_need(place: Path, engine: str) -> None:
    for buckets in ("50", "exact"):
        run = fit(place, buckets, f"model.subword.buckets={buckets}", "train.lr=0.05", engine=engine)
        vectors, subwords = run.word_vectors, SubwordTable.load(run.folder / FILE)
        np.testing.assert_array_equal(subwords.compose(vectors.words), vectors.table)
        assert np.abs(subwords.compose([vectors.words[0] + vectors.words[1]])).max() > 1e-3
        parts = stored.open_run(run.folder)
        assert parts.model.u.shape == (len(vectors) + subwords.ngrams.n_rows, 6)  # type: ignore[union-attr]
        np.testing.assert_allclose(parts.model.vectors(), vectors.table, atol=1e-6)


@long
@pytest.mark.slow
@pytest.mark.parametrize("sets", [[], ["train.optimizer=row-adagrad", "negatives.share_draws_by=block",
                                                    "negatives.share_size=4"]])
def test_it_resumes_with_the_same_bits(place: Path, sets: list[str]) -> None:
    straight = fit(place, "straight", SUBWORD, "train.keep=99", *sets)
    last = checkpoint.load(straight.folder / "checkpoints")
    run = fit(place, "cut", SUBWORD, "train.keep=99", *sets)
    for path in sorted((run.folder / "checkpoints").iterdir())[4:]:
        path.unlink()
    experiment.resume(run.folder)
    assert same(checkpoint.load(run.folder / "checkpoints")["model"], last["model"])
    assert (run.folder / FILE).read_bytes() == (straight.folder / FILE).read_bytes()


@long
@pytest.mark.parametrize(("pooling", "new_rows"), [
    pytest.param(pooling, new_rows, marks=pytest.mark.slow) for pooling in ("mean", "sum")
    for new_rows in ("mean", "random")])
def test_words_start_from_their_vectors(place: Path, pooling: str, new_rows: str) -> None:
    table = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
    vector_files.write(place / "given.vec", Vectors(WORDS[:5], table), "word2vec")
    run = fit(place, "run", f"model.subword={{buckets: 50, pooling: {pooling}}}", f"train.start={place / 'given.vec'}",
              f"train.start_new_rows={new_rows}", "train.lr=1e-9")
    found = run.word_vectors
    np.testing.assert_allclose(found.table[found.find(WORDS[:5])], table, atol=1e-4)
    if new_rows == "mean":
        others = np.setdiff1d(np.arange(len(found)), found.find(WORDS[:5]))
        np.testing.assert_allclose(found.table[others], np.tile(table.mean(0), (len(others), 1)), atol=1e-4)
    again = fit(place, "again", SUBWORD, f"train.start={run.folder}", "train.lr=1e-9")
    np.testing.assert_allclose(again.word_vectors.table, found.table, atol=1e-4)
    frozen = fit(place, "frozen", SUBWORD, f"train.start={run.folder}", "model.freeze=all", "train.lr=0.05",
                 engine="autograd")
    np.testing.assert_allclose(frozen.word_vectors.table, found.table, atol=1e-4)


def test_plain_model_is_unchanged() -> None:
    """No subwords: one row per word, drawn as before."""
    plain = SkipGram(SkipGramConfig(dim=4), replace(problem(), ngram_rows=None))
    random = torch.Generator().manual_seed(3)
    assert torch.equal(plain.u, (torch.rand(6, 4, generator=random) * 2 - 1) * (0.5 / 4)) and plain.pool is None
