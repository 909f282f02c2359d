"""The bench nn: its examples, equal time, the gradient in chunks, and memory."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from embtrain.cli.bench import nn as bench_nn
from embtrain.cli.bench.harness.planted import FEATURES, SIGMA, Problem
from embtrain.common import machine
from embtrain.common.errors import ResourceError, UsageError

N = 200


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(N)


# -- the examples -----------------------------------------------------------------------------------------------------

def test_the_optimum_is_the_posterior_of_the_class(problem: Problem) -> None:
    """P(t|x) by Bayes' rule from the density of x, and no change of scale or prior scores better."""
    x, target = problem.test
    density = torch.cdist(x.double(), problem.vectors.double()).square() / (-2 * SIGMA ** 2)
    log_p = (density + problem.log_prior).log_softmax(1)
    assert problem.optimum.log_likelihood == pytest.approx(float(log_p.gather(1, target[:, None]).mean()), abs=1e-5)
    best = log_p.topk(10, 1).indices
    assert problem.optimum.recall == pytest.approx(float((best == target[:, None]).any(1).double().mean()), abs=1e-6)
    for scale, prior in ((0.8, 1.0), (1.25, 1.0), (1.0, 0.5), (1.0, 1.5)):
        other = problem.scores(scale * x / SIGMA ** 2, problem.vectors, target, prior * problem.log_prior)
        assert other.log_likelihood < problem.optimum.log_likelihood


def test_examples_have_the_prior_and_the_noise(problem: Problem) -> None:
    x, target = problem.examples(200_000, torch.Generator().manual_seed(5))
    prior = problem.counts / problem.counts.sum()
    seen = torch.bincount(target, minlength=N) / len(target)
    assert float((seen - prior).abs().sum()) < 0.03
    noise = (x - problem.vectors[target]) / SIGMA
    assert float(noise.mean(0).abs().max()) < 0.01 and float((noise.T.cov() - torch.eye(FEATURES)).abs().max()) < 0.02


def test_scores_in_chunks_are_those_at_once(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = problem.scores(problem.test[0], problem.vectors, problem.test[1])
    monkeypatch.setattr("embtrain.cli.bench.harness.planted.MAX_SCORES", 7 * N)
    assert problem.scores(problem.test[0], problem.vectors, problem.test[1]) == pytest.approx(whole)


# -- equal time -------------------------------------------------------------------------------------------------------

def contest(problem: Problem, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], threads: int = 1
            ) -> bench_nn.Contest:
    """A contest in which a step of a method takes these CPU seconds, and ten times as many wall seconds."""
    current = [""]

    def method(name: str) -> bench_nn.Backward:
        def backward(h: Tensor, table: nn.Embedding, target: Tensor) -> None:
            current[0] = name
            table(target).sum().backward()
        return backward

    def played(work: object, wait: object) -> tuple[float, float, None]:
        work()  # type: ignore[operator]
        return 10 * seconds[current[0]], seconds[current[0]], None

    monkeypatch.setattr(bench_nn, "timed", played)
    return bench_nn.Contest(problem, 4, threads, 10.0, {name: partial(method, name) for name in seconds})


@pytest.mark.parametrize(("slow", "steps"), [(3.0, 12), (0.5, 10), (20.0, 60)])
def test_methods_train_for_the_time_of_cross_entropy(problem: Problem, monkeypatch: pytest.MonkeyPatch, slow: float,
                                                     steps: int) -> None:
    """4 steps of 3 s, 20 of .5 s, or the least number of 20 s: ours takes 1 s a step and never more in total."""
    of = contest(problem, monkeypatch, {"cross-entropy": slow, "a": 1.0, "b": 0.7})
    limit = of.train("cross-entropy", 1, 0.1)
    assert (limit.steps, limit.same_steps) == (max(3, -(-10 // slow)), None)
    ours = of.train("a", 1, 0.1)
    assert (ours.steps, ours.seconds, ours.cpu, ours.wall) == (steps, steps, 1.0, 10.0)
    assert of.train("b", 1, 0.1).seconds <= limit.seconds
    assert (ours.same_steps is not None) == (limit.steps <= steps)


def test_several_threads_have_equal_wall_time(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    of = contest(problem, monkeypatch, {"cross-entropy": 1.0, "a": 0.1}, threads=2)
    assert of.train("cross-entropy", 1, 0.1).seconds == 30 and of.train("a", 1, 0.1).steps == 30


def test_seeds_are_paired_and_the_best_rate_is_chosen(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals of a seed see the same initial model and the same examples."""
    seen: dict[str, list[Tensor]] = {}
    of = contest(problem, monkeypatch, {"cross-entropy": 5.0, "a": 5.0})
    original = dict(of.backwards)

    def recorded(name: str) -> bench_nn.Backward:
        backward = original[name]()

        def step(h: Tensor, table: nn.Embedding, target: Tensor) -> None:
            seen.setdefault(name, []).append(target)
            backward(h, table, target)
        return step

    of.backwards = {name: partial(recorded, name) for name in original}
    monkeypatch.setattr(bench_nn, "RATES", (0.3, 0.1, 0.2))
    monkeypatch.setattr(of, "_valid_log_likelihood", lambda method, rate: -abs(rate - (0.1 if method == "a" else 0.3)))
    for _ in range(2):
        for name in of.backwards:
            of.work(name)
    assert of.rates == {"cross-entropy": 0.3, "a": 0.1}
    assert len(seen["a"]) == 6 and all(map(torch.equal, seen["cross-entropy"], seen["a"]))
    assert not torch.equal(seen["a"][0], seen["a"][3]), "another seed"


# -- cross-entropy ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("rows", [1, 3, 8, 20])
def test_the_gradient_in_chunks_is_that_of_the_batch(rows: int) -> None:
    random = torch.Generator().manual_seed(0)
    h, target = torch.randn(8, 5, generator=random, requires_grad=True), torch.randint(9, (8,), generator=random)
    table = nn.Embedding(9, 5, _weight=torch.randn(9, 5, generator=random))
    expected = torch.autograd.grad(nn.functional.cross_entropy(h @ table.weight.T, target), (h, table.weight))
    bench_nn.cross_entropy(rows)(h, table, target)
    assert h.grad is not None and table.weight.grad is not None
    torch.testing.assert_close((h.grad, table.weight.grad), expected)


def test_chunks_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_nn, "CHUNKS", (2, 4, 8))
    monkeypatch.setattr(machine, "free", lambda: bench_nn.logits_bytes(50, 2))
    assert bench_nn.fastest_chunk(50, 100, 1) == 2
    monkeypatch.setattr(machine, "free", lambda: bench_nn.logits_bytes(50, 8))
    assert bench_nn.fastest_chunk(50, 3, 1) in (2, 3)


def test_a_table_without_memory_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free", lambda: 100 << 20)
    with pytest.raises(ResourceError, match=r"V1M-B256: cross-entropy takes 1,465 MiB of memory, and 100 MiB are free; "
                                            r"name smaller cases with --only"):
        bench_nn.bench(1, [1], ["V10k", "V1M-B256"])
    with pytest.raises(UsageError, match="--only: there is no case 'V10'"):
        bench_nn.bench(1, [1], ["V10"])
