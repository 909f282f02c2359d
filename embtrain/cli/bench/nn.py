"""Losses of embtrain.nn compared with cross-entropy: time of a step, and quality after equal training time.

A linear encoder of 32 features and an output table (V, 64) are trained on planted classes: the prior of a class is
∝ 1 / rank, and x ~ N(c_t, σ² I), so P(t|x) = softmax(x·c / σ² + log prior), which this model can represent. Examples
never repeat. `about.optimum` has the scores of P.

A round is one seed. Cross-entropy over all classes trains for 20, 30, 60 or 120 seconds with 10,000, 50,000, 200,000 or
a million classes, and at least 3 steps; everything else trains for the time that it took, at least one step, including
the time to build a source. Time is CPU time on one thread, wall time on several. Making examples and scoring are not
timed. A round of one V, batch and number of threads takes 6 times these seconds, the choice of the learning rates 18
times.

step      100 × the median time of a step: encode, loss, backward, update; by rounds and cases
quality   exact log-likelihood and recall@10 over all classes on held-out examples; `-same-steps`: of ours after as
          many steps as cross-entropy made

All use Adagrad with one learning rate for all parameters: the best of 0.05, 0.1 and 0.2 on other examples after
training with another seed. Tables have sparse gradients, except under cross-entropy, where each row has a gradient;
rows without a gradient do not move in either case.

cross-entropy   F.cross_entropy, in chunks of as many rows as are fastest here (`about.chunk_rows`), fused Adagrad
in-batch        F.cross_entropy over the targets of the batch, without q; `-plus-log-q`: scores + log prior, which its
                optimum needs
unigram         SampledSoftmax, 1024 negatives shared by the batch     corrected-in-batch  SampledSoftmax with in_batch
ranking         RankingNCE, the same                                   cluster             SampledSoftmax, 32 for a row

With --device cuda models and examples are on a GPU, matrix products use TF32, seconds are wall seconds, training is 60
times shorter, and Adagrad is not fused. The sources `cluster` and `unigram` are built on the CPU, which counts.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import embtrain.nn as ours
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, describe, digits, run, timed
from embtrain.cli.bench.harness.paired import difference
from embtrain.cli.bench.harness.planted import FEATURES, METRICS, SIGMA, Problem, Scores
from embtrain.common import machine, progress
from embtrain.common.errors import ResourceError

SIZES = {"V10k": 10_000, "V50k": 50_000, "V200k": 200_000, "V1M": 1_000_000}
BATCHES = {"B256": 256, "B4096": 4096}
SECONDS = {"V10k": 20.0, "V50k": 30.0, "V200k": 60.0, "V1M": 120.0}  # of cross-entropy, in a round
FASTER = 60.0  # a GPU
MIN_STEPS = 3
DIM = 64
RATES = (0.05, 0.1, 0.2)
CHUNKS = (64, 256, 1024, 4096)   # rows of logits
RIVALS = ("cross-entropy", "in-batch")

Backward = Callable[[Tensor, nn.Embedding, Tensor], None]  # of queries (B, DIM) and targets (B,)


class Trained(NamedTuple):
    """A model, and how long its training took."""

    encoder: nn.Linear
    table: nn.Embedding
    seconds: float               # of all steps
    steps: int
    wall: float                  # median of a step
    cpu: float
    same_steps: Scores | None    # after as many steps as cross-entropy made


@dataclass
class Contest:
    """Methods that train on one problem with equal time, seed by seed."""

    problem: Problem
    batch: int
    threads: int
    seconds: float
    backwards: dict[str, Callable[[], Backward]]
    wait: Callable[[], object] = lambda: None                         # for the device
    rates: dict[str, float] = field(default_factory=dict)             # by method
    limits: dict[int, Trained] = field(default_factory=dict)          # cross-entropy, by seed
    seeds: dict[str, itertools.count[int]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def work(self, method: str) -> Timed:
        """Train with the next seed, and score on the test."""
        torch.set_num_threads(self.threads)
        if method not in self.rates:
            progress.print_line(f"bench: choosing the learning rate of {method}: {len(RATES)} trainings of "
                                f"{self.seconds:g} s each, or a little more")
            self.rates[method] = max(RATES, key=partial(self._valid_log_likelihood, method))
        seed = next(self.seeds.setdefault(method, itertools.count(1)))
        trained = self.train(method, seed, self.rates[method])
        query, target = trained.encoder(self.problem.test[0]), self.problem.test[1]
        quality = {"steps": float(trained.steps),
                   **self.problem.scores(query, trained.table.weight, target).named()}
        if trained.same_steps is not None:
            quality |= trained.same_steps.named("-same-steps")
        if method == "in-batch":
            corrected = self.problem.scores(query, trained.table.weight, target, self.problem.log_prior)
            quality |= corrected.named("-plus-log-q")
        self.rows.setdefault(method, []).append(quality)
        return Timed(100 * trained.wall, 100 * trained.cpu, quality)

    def _valid_log_likelihood(self, method: str, rate: float) -> float:
        trained, (x, target) = self.train(method, 0, rate), self.problem.valid
        return self.problem.scores(trained.encoder(x), trained.table.weight, target).log_likelihood

    def train(self, method: str, seed: int, rate: float) -> Trained:
        """Train for the time of cross-entropy with this seed. Cross-entropy itself sets that time."""
        torch.sparse.check_sparse_tensor_invariants.disable()  # explicit, or torch warns about its own sparse tensors
        is_limit = method == RIVALS[0]
        limit = None if is_limit else self.limits[seed]
        random = torch.Generator().manual_seed(seed)
        encoder, table = nn.Linear(FEATURES, DIM), nn.Embedding(self.problem.n, DIM, sparse=not is_limit,
                                                                _weight=torch.empty(self.problem.n, DIM))
        for p in (encoder.weight, encoder.bias, table.weight):
            nn.init.normal_(p, std=DIM ** -0.5, generator=random)
        device = self.problem.device
        encoder, table, is_cpu = encoder.to(device), table.to(device), device == "cpu"
        optimizers = [torch.optim.Adagrad(encoder.parameters(), rate, fused=is_cpu),
                      torch.optim.Adagrad(table.parameters(), rate, fused=is_cpu and is_limit)]
        backward, same_steps = self.backwards[method](), None

        def step() -> None:
            for optimizer in optimizers:
                optimizer.zero_grad()
            backward(encoder(x), table, target)
            for optimizer in optimizers:
                optimizer.step()

        walls, cpus = list[float](), list[float]()
        spent = cpus if self.threads == 1 and is_cpu else walls   # a thread that waits uses no CPU time
        total = 0.0
        while total < self.seconds or len(spent) < MIN_STEPS if limit is None else \
                not spent or total + spent[-1] <= limit.seconds:
            x, target = self.problem.examples(self.batch, random)
            wall, cpu, _ = timed(step, self.wait)
            walls.append(wall)
            cpus.append(cpu)
            total += spent[-1]
            if limit is not None and len(spent) == limit.steps:
                x, target = self.problem.test
                same_steps = self.problem.scores(encoder(x), table.weight, target)
        trained = Trained(encoder, table, total, len(spent), statistics.median(walls), statistics.median(cpus),
                          same_steps)
        if is_limit:
            self.limits[seed] = trained._replace(encoder=nn.Linear(1, 1), table=nn.Embedding(1, 1))
        return trained


# -- methods ----------------------------------------------------------------------------------------------------------

def cross_entropy(rows: int) -> Backward:
    """Cross-entropy over all classes, in chunks of rows of logits."""
    def backward(h: Tensor, table: nn.Embedding, target: Tensor) -> None:
        if rows >= len(h):
            functional.cross_entropy(h @ table.weight.T, target).backward()
            return
        leaf = h.detach().requires_grad_()
        for part, t in zip(leaf.split(rows), target.split(rows), strict=True):
            loss = functional.cross_entropy(part @ table.weight.T, t, reduction="sum") / len(h)
            loss.backward()
        h.backward(leaf.grad)
    return backward


def in_batch() -> Backward:
    """Cross-entropy over the targets of the batch."""
    def backward(h: Tensor, table: nn.Embedding, target: Tensor) -> None:
        loss = functional.cross_entropy(h @ table(target).T, torch.arange(len(h), device=h.device))
        loss.backward()
    return backward


def sampled(kind: type[ours.SampledLoss], source: str, k: int, counts: Tensor) -> Backward:
    """A loss of embtrain.nn with k negatives."""
    loss = kind(source, num_classes=len(counts), num_sampled=k, counts=counts)

    def backward(h: Tensor, table: nn.Embedding, target: Tensor) -> None:
        loss(h, table, target).backward()
    return backward


def methods(problem: Problem, batch: int, chunk: int) -> dict[str, Callable[[], Backward]]:
    """A function for each method that creates it."""
    sampled_softmax = partial(sampled, ours.SampledSoftmax, counts=problem.counts)
    return {
        RIVALS[0]: partial(cross_entropy, chunk), RIVALS[1]: in_batch,
        "unigram": partial(sampled_softmax, "unigram", 1024),
        "ranking": partial(sampled, ours.RankingNCE, "unigram", 1024, problem.counts),
        "corrected-in-batch": partial(sampled_softmax, "in_batch", batch - 1),
        "cluster": partial(sampled_softmax, "cluster", 32),
    }


OURS = ("unigram", "ranking", "corrected-in-batch", "cluster")


def free_memory(device: str) -> int:
    """Free bytes of a device."""
    return machine.free() if device == "cpu" else torch.cuda.mem_get_info(device)[0]


def fastest_chunk(n: int, batch: int, threads: int, device: str = "cpu", wait: Callable[[], object] = lambda: None
                  ) -> int:
    """Rows of logits (rows, n) with the least time per example, among those that fit into memory."""
    torch.set_num_threads(threads)
    table, random = nn.Embedding(n, DIM, _weight=torch.zeros(n, DIM)).to(device), torch.Generator().manual_seed(0)
    seconds = {}
    for rows in sorted({min(rows, batch) for rows in CHUNKS}):
        if logits_bytes(n, rows) > free_memory(device):
            break
        h = torch.randn(rows, DIM, generator=random).to(device).requires_grad_()
        target = torch.zeros(rows, dtype=torch.int64, device=device)
        backward = partial(cross_entropy(rows), h, table, target)
        seconds[rows] = min(timed(backward, wait)[0] for _ in range(2)) / rows
    return min(seconds, key=seconds.__getitem__)


def logits_bytes(n: int, rows: int) -> int:
    """Memory of logits, their softmax and their gradient, and of the tables of a training with all its gradients."""
    return 4 * n * (3 * rows + 3 * DIM)


# -- the bench --------------------------------------------------------------------------------------------------------

def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, device: str = "cpu") -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example V50k-B256."""
    known = {f"{size}-{batch}-{method}-t{t}": (size, batch, method, t)
             for size in SIZES for batch in BATCHES for t in threads for method in OURS}
    chosen = {name: known[name] for name in choose(known, only)}
    for size, batch in {(size, batch): None for size, batch, *_ in chosen.values()}:
        need, free = logits_bytes(SIZES[size], min(CHUNKS[0], BATCHES[batch])), free_memory(device)
        if need > free:
            raise ResourceError(f"{size}-{batch}: cross-entropy takes {need / 2**20:,.0f} MiB of memory, and "
                                f"{free / 2**20:,.0f} MiB are free; name smaller cases with --only")
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if device == "cpu" else "high")
    try:
        return _run(rounds, chosen, device)
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)


def _run(rounds: int, chosen: dict[str, tuple[str, str, str, int]], device: str) -> dict[str, Any]:
    problems = {size: Problem(SIZES[size], device) for size in dict.fromkeys(size for size, *_ in chosen.values())}
    wait, faster = (lambda: None, 1.0) if device == "cpu" else (torch.cuda.synchronize, FASTER)
    contests: dict[str, Contest] = {}
    chunks, groups = {}, []
    for size, batch, t in dict.fromkeys((size, batch, t) for size, batch, _, t in chosen.values()):
        group, b = f"{size}-{batch}-t{t}", BATCHES[batch]
        chunks[group] = fastest_chunk(SIZES[size], b, t, device, wait)
        contest = Contest(problems[size], b, t, SECONDS[size] / faster, methods(problems[size], b, chunks[group]), wait)
        mine: dict[str, Work] = {name: partial(contest.work, method) for name, (*of, method, threads) in chosen.items()
                                 if (*of, threads) == (size, batch, t)}
        groups.append(Group(t, mine, {rival: partial(contest.work, rival) for rival in RIVALS}))
        contests |= dict.fromkeys(mine, contest)
    about = {"classes": SIZES, "dim": DIM, "features": FEATURES, "sigma": SIGMA, "device": describe(device),
             "seconds": {size: SECONDS[size] / faster for size in problems}, "chunk_rows": chunks,
             "optimum": {size: {metric: digits(value) for metric, value in problem.optimum.named().items()}
                         for size, problem in problems.items()}}
    summary = run("nn", "s of 100 steps", groups, rounds, about)
    summary["about"]["rates"] = {name: {method: contests[name].rates[method] for method in (*RIVALS, of[2])}
                                 for name, of in chosen.items()}
    summary["difference"] = {name: _differences(contests[name], of[2]) for name, of in chosen.items()}
    return summary


def _differences(contest: Contest, method: str) -> dict[str, dict[str, Any]]:
    """Ours − cross-entropy over seeds, of each metric after equal time and, where ours has them, equal steps."""
    found = {}
    for metric, suffix in itertools.product(METRICS, ("", "-same-steps")):
        mine = [row[metric + suffix] for row in contest.rows[method] if metric + suffix in row]
        theirs = [row[metric] for row in contest.rows[RIVALS[0]]]
        if len(mine) == len(theirs):
            found[metric + suffix] = difference(mine, theirs, metric)
    return found
