"""PPMI-SVD against plain formulas, and the choice of its settings and of the epochs of skip-gram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from embtrain.cli.bench.harness import cooccurrences, words
from embtrain.cli.bench.harness.base import Timed
from embtrain.cli.bench.text import budget, ppmi, quality
from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.data.vectors.vectors import Vectors


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of 30 words in 80 lines."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    ids = np.random.default_rng(0).zipf(1.3, (80, 12)) % 30
    letters = "abcdefghijklmnopqrstuvwxyzäöüß"
    (tmp_path / "tiny.txt").write_text("".join(" ".join(letters[i] for i in line) + "\n" for line in ids))
    monkeypatch.setitem(words.OURS, "text.sample", 0.02)
    return tmp_path / "tiny.txt"


@pytest.mark.parametrize("chunk", [7, 1 << 18])
def test_counts_are_those_of_the_pairs_of_the_first_epoch(file: Path, monkeypatch: pytest.MonkeyPatch,
                                                          chunk: int) -> None:
    monkeypatch.setattr(cooccurrences, "CENTRES", chunk)
    text = words.read(file, 1, seed=3)
    n = len(text.corpus.vocabulary)
    expected = Counter[tuple[int, int]]()
    for batch in text.windows.blocks(0, 64):                       # shuffled and in other blocks
        expected.update(zip(batch.centre.tolist(), batch.target.tolist(), strict=True))
    counts = cooccurrences.count(text.windows, n)
    assert counts.shape == (n, n) and counts.sum() == sum(expected.values()) > 500
    assert Counter({(a, b): counts[a, b] for a, b in zip(*counts.nonzero(), strict=True)}) == expected
    assert (cooccurrences.count(words.read(file, 1, seed=4).windows, n) != counts).nnz > 0


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_the_matrix_is_the_formula_of_the_paper(shift: float) -> None:
    n = np.random.default_rng(1).poisson(1.5, (9, 9)).astype(np.int32)
    n[4], n[:, 4] = 0, 0                                           # a word without pairs
    context = n.sum(0) ** 0.75 / (n.sum(0) ** 0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(n / n.sum() / (n.sum(1, keepdims=True) / n.sum() * context))
    expected = np.where(n > 0, np.maximum(pmi - np.log(shift), 0), 0)
    counts = csr_matrix(n)
    matrix = cooccurrences.ppmi(counts, shift)
    assert (counts.toarray() == n).all()
    assert matrix.toarray() == pytest.approx(expected, abs=1e-5)
    assert matrix.dtype == np.float32 and matrix.nnz == (expected > 0).sum() < (n > 0).sum()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_vectors_have_the_products_of_the_exact_svd(monkeypatch: pytest.MonkeyPatch, exponent: float) -> None:
    m = np.random.default_rng(2).normal(size=(40, 40)) @ np.diag(0.6 ** np.arange(40))
    left, size, _ = np.linalg.svd(m)
    monkeypatch.setattr(cooccurrences, "ppmi", lambda counts, shift: counts)
    x = cooccurrences.factors(csr_matrix(m.astype(np.float32)), 1.0, 6, 0).vectors(exponent)
    expected = left[:, :6] * size[:6] ** exponent
    assert x.shape == (40, 6) and x @ x.T == pytest.approx(expected @ expected.T, abs=1e-3)


def test_a_matrix_without_cells_has_vectors_of_zeros_and_few_words_are_refused() -> None:
    counts = csr_matrix(np.ones((6, 6), np.int32))                 # independent words
    assert not cooccurrences.factors(counts, 1.5, 3, 0).vectors(0.5).any()
    with pytest.raises(DataError, match="bench ppmi: 6 words, and vectors of 6 numbers need more; give a longer text"):
        cooccurrences.factors(counts, 1.0, 6, 0)


def test_counts_that_do_not_fit_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MIN_COUNT", 1)
    monkeypatch.setattr(machine, "free", lambda: 1 << 20)
    with pytest.raises(ResourceError, match=r"^bench ppmi: counting up to \d+ cells needs about .* GiB.*--corpus"):
        ppmi.bench(1, [1], None, str(file))


def test_settings_are_chosen_on_odd_pairs_and_judged_on_even_ones_at_equal_time(
        file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MIN_COUNT", 1)
    monkeypatch.setattr(quality, "DIM", 4)
    monkeypatch.setattr(ppmi, "timed", lambda work: (1.0, 20.0, work()))
    trained, judged = list[tuple[Any, ...]](), list[tuple[str, ...]]()

    def ours(file: Path, strategy: str, min_count: int, threads: int, sets: Mapping[str, Any], seed: int,
             benchmarks: Sequence[str]) -> Timed:
        trained.append((sets["train.lr"], sets["train.epochs"], seed, tuple(benchmarks)))
        return Timed(1.0, 6.0 * sets["train.epochs"], dict.fromkeys(benchmarks, 0.3 + sets["train.lr"]))

    def score(vectors: Vectors, names: Sequence[str]) -> dict[str, float]:
        judged.append(tuple(names))
        return {name: 0.25 + 0.1 * len(judged) * (len(judged) < 5) for name in names}       # the fourth is the best

    monkeypatch.setattr(words, "ours", ours)
    monkeypatch.setattr(words, "quality", score)
    monkeypatch.setattr(words, "scored", lambda vocabulary, names, *_: list(names))
    summary = ppmi.bench(2, [1], ["PAIR"], str(file))
    odd, even = (tuple(f"{name}.{half}" for name in budget.BENCHMARKS) for half in ("odd", "even"))
    assert judged == [odd] * 6 + [even] * 2
    # 40 s of counting and SVD are six epochs of 6 s.
    assert trained == [(0.025, 1, 0, ()), *((rate, 6, 0, odd) for rate in budget.RATES),
                       (0.1, 6, 1, even), (0.1, 6, 2, even)]
    assert summary["about"]["trials"]["ppmi-svd-t1"]["shift 5, exponent 0"] == 0.65
    assert summary["difference"]["PAIR-t1"]["mean"] == pytest.approx(0.15)
    assert summary["spearman"] == {"ppmi-svd-t1": [0.25, 0.25], "PAIR-t1": [0.4, 0.4]}
    train = ppmi.best(file, 1, ["men"]).train
    assert train.args[2:] == (1.0, 0.0) and train(seed=1, benchmarks=()).cpu_seconds == 20  # type: ignore[attr-defined]


def test_cases_and_benchmarks_that_do_not_exist_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no case 'CENTRE'; there are: PAIR-t1, BLOCK64-order-t1"):
        ppmi.bench(1, [1], ["CENTRE"], str(file))
    monkeypatch.setattr(quality, "MIN_COUNT", 1)
    monkeypatch.setattr(quality, "DIM", 4)
    monkeypatch.setattr(budget, "BENCHMARKS", ("wordsim353",))
    monkeypatch.setattr(words, "quality", lambda vectors, names: {})
    with pytest.raises(DataError, match=r"^--corpus: .*: it covers fewer than two pairs of wordsim353 in one half"):
        ppmi.bench(1, [1], None, str(file))
    with pytest.raises(DataError, match="bench ppmi: no vectors can be judged by men; give a longer text"):
        ppmi.best(file, 1, ["men"])
