"""Quality at equal CPU time: what is tried, what is chosen, and on which pairs the difference is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Timed
from embtrain.cli.bench.text import budget
from embtrain.common.errors import DataError
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.train.checks.divergence_remedies import DivergedError

GENSIM_SECONDS, PAIR_SECONDS, BLOCK_SECONDS = 100.0, 7.0, 4.0     # of all epochs; of one epoch


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, int, int, tuple[str, ...]]]:
    """Training whose ρ depends on the rate; returns program, rate, epochs, seed and benchmarks of each run."""
    runs: list[tuple[str, float, int, int, tuple[str, ...]]] = []

    def gensim(file: Path, min_count: int, threads: int, dim: int, epochs: int, seed: int, benchmarks: Sequence[str],
               rate: float) -> Timed:
        runs.append(("gensim", rate, epochs, seed, tuple(benchmarks)))
        return Timed(1.0, GENSIM_SECONDS, {name: 0.4 - abs(rate - 0.075) + 0.001 * seed for name in benchmarks})

    def ours(file: Path, strategy: str, min_count: int, threads: int, sets: Mapping[str, Any], seed: int,
             benchmarks: Sequence[str]) -> Timed:
        is_block = sets.get("train.shuffle") is False
        rate, epochs = sets["train.lr"], sets["train.epochs"]
        runs.append(("block" if is_block else "pair", rate, epochs, seed, tuple(benchmarks)))
        if is_block and rate == 0.1:
            raise DivergedError("train.lr: the loss is inf")
        of_half = {"odd": 0.5 - rate, "even": 0.45 + 0.01 * (seed % 2)}
        found = {name: of_half[name.split(".")[1]] + 0.1 * is_block for name in benchmarks}
        return Timed(1.0, epochs * (BLOCK_SECONDS if is_block else PAIR_SECONDS), found)

    text = SimpleNamespace(corpus=SimpleNamespace(ids=range(9), vocabulary=Vocabulary(list("abcde"), np.ones(5), 5)))
    monkeypatch.setattr(words, "prefix", lambda corpus, tokens: Path("text"))
    monkeypatch.setattr(words, "read", lambda file, min_count: text)
    monkeypatch.setattr(words, "quality", lambda vectors, names: dict.fromkeys(names, 0.5))
    monkeypatch.setattr(words, "gensim", gensim)
    monkeypatch.setattr(words, "ours", ours)
    return runs


def test_settings_are_chosen_on_odd_pairs_and_judged_on_even_ones(
        trained: list[tuple[str, float, int, int, tuple[str, ...]]]) -> None:
    summary = budget.bench(3, [1], ["equal"], None)
    odd, even = (tuple(f"{name}.{half}" for name in budget.BENCHMARKS) for half in ("odd", "even"))
    tried = [run for run in trained if run[4] == odd]
    assert [run[:4] for run in trained if run[4] == even] == [
        run for seed in (1, 2, 3) for run in (("gensim", 0.075, 3, seed), ("block", 0.025, 25, seed))]
    assert {run[3] for run in tried} == {0}
    assert summary["difference"]["equal-t1"]["mean"] == pytest.approx((0.56 + 0.55 + 0.56) / 3 - 0.402, abs=1e-4)
    assert summary["spearman"] == {"gensim-t1": [0.401, 0.402, 0.403], "equal-t1": [0.56, 0.55, 0.56]}


@pytest.mark.parametrize(("case", "epochs"), [("equal", {"pair": 14, "block": 25}), ("tenth", {"pair": 1, "block": 2})])
def test_trials_are_as_many_as_those_of_gensim_and_take_no_more_time(
        trained: list[tuple[str, float, int, int, tuple[str, ...]]], case: str, epochs: dict[str, int]) -> None:
    trials = budget.bench(1, [1], [case], None)["about"]["trials"]
    assert len(trials[f"{case}-t1"]) == len(trials["gensim-t1"]) == len(budget.GENSIM_RATES)
    assert trials[f"{case}-t1"][f"BLOCK64-order, rate 0.1, epochs {epochs['block']}"] is None                 # diverged
    assert {name: n for name, _, n, seed, names in trained if seed == 0 and names and name != "gensim"} == epochs


def test_vectors_that_no_benchmark_can_judge_are_refused() -> None:
    with pytest.raises(DataError, match="bench budget: no vectors of rate 1 can be judged by wordsim353"):
        budget.best({"rate 1": lambda seed, benchmarks: Timed(1.0, 1.0, {})}, ["wordsim353"])
