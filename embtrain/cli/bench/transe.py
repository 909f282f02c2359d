"""TransE: seconds per million positives, by the fused engine and by PyKEEN, at equal dimension, negatives and loss.

The fused engine is the compiled trainer of embtrain: C++ code that draws, scores and updates after each query, or after
each group of queries that share negatives. Both programs corrupt the head or the tail of each triple at random, and use
the self-adversarial loss [sun2019]. It has no hinge, so every negative has a gradient and costs time.

Seconds are those of some positives, divided by their number and multiplied by a million: ours from one epoch of the
corpus, PyKEEN's from the first 16,384 (1 negative) or 8,192 (64 negatives) triples of that epoch.

Differences that remain: optimizers and learning rates are each program's own, since only speed is compared. Ours is
row-wise Adagrad, one accumulator per row of a table, with rate 0.05, and one update per query or group. PyKEEN is run
with Adam in batches of 256 and with Adagrad in batches of 1024, both with rate 0.01, and the setting with fewer CPU
seconds is reported. It draws each triple's own negatives in all cases. PyKEEN is timed on its second epoch, after a
warm-up epoch; ours is timed on its first, without a warm-up, which can only make ours slower. Neither includes the
construction of model and optimizer.

k1-l1           1 negative per positive, L1 distance
k64-l1          64 negatives per positive, drawn for each positive, L1
k64-l2-shared   64 negatives shared by 64 queries, L2; PyKEEN as in k64, with L2

Case names end in the number of threads: k1-l1-t2. Without PyKEEN there is no ratio.

With --device cuda the cases are whole runs by the kernel of the GPU, against the compiled core on the threads of the
same machine: building the tables, training and ranking the test triples, but not reading the corpus and compiling the
kernel. Their settings are those of docs/results/graphs.md:

adversarial-l1-d256   self-adversarial loss, L1, 40 epochs: the best on validation
softmax-l2-d128       sampled softmax, L2, 30 epochs: the previous best
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from embtrain import experiment
from embtrain.cli.bench.harness.base import Group, Timed, choose, describe, find_rival, run, timed
from embtrain.common.config import as_sets
from embtrain.common.errors import ResourceError
from embtrain.data.triples.examples import HEAD, TripleBatch
from embtrain.evaluate import link_prediction
from embtrain.evaluate.link_prediction import Ranks
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task
from embtrain.experiment.tasks.triples import TriplesTask
from embtrain.train.loop import Trainer

CORPUS, DIM, MARGIN, TEMPERATURE = "fb15k-237", 100, 9.0, 1.0  # temperature: of the self-adversarial weights
SETTINGS: dict[str, Any] = {
    "model.dim": DIM, "model.span": 0.1, "loss.margin": MARGIN, "loss.temperature": TEMPERATURE,
    "negatives.filter": "none", "negatives.share_size": 64, "triples.slot": "random",
    "train.epochs": 1, "train.lr": 0.05, "train.optimizer": "row-adagrad", "train.engine": "fused",
    "train.log_every": 1_000_000, "train.checkpoint_every": 1e9}


class TransECase(NamedTuple):
    """Settings of a case."""

    norm: str                  # distance: l1 or l2
    k: int                     # negatives per draw
    share_draws_by: str        # row: a draw per query; block: one for `share_size` queries. Ours only
    max_pykeen_positives: int  # positives that PyKEEN is timed on


CASES = {"k1-l1": TransECase(norm="l1", k=1, share_draws_by="row", max_pykeen_positives=16_384),
         "k64-l1": TransECase(norm="l1", k=64, share_draws_by="row", max_pykeen_positives=8_192),
         "k64-l2-shared": TransECase(norm="l2", k=64, share_draws_by="block", max_pykeen_positives=8_192)}
TUNED = {"negatives.share_draws_by": "block", "negatives.k": 256, "negatives.filter": "target", "train.min_lr": 0.001,
         "train.engine": "fused", "train.evaluate_every": 1_000_000, "train.checkpoint_every": 1e9}
# strategy and settings of whole runs
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "adversarial-l1-d256": ("self-adversarial", {
        **TUNED, "model.norm": "l1", "model.dim": 256, "model.span": 0.04, "loss.margin": 9, "train.lr": 0.05,
        "train.epochs": 40}),
    "softmax-l2-d128": ("uniform", {
        **TUNED, "loss.name": "sampled_softmax", "model.norm": "l2", "model.dim": 128, "train.lr": 0.3,
        "train.epochs": 30})}
PYKEEN_SETTINGS = (("Adam", 256), ("Adagrad", 1024))  # optimizer, batch size; the faster one is reported
PYKEEN_LR = 0.01


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None, device: str = "cpu"
          ) -> dict[str, Any]:
    """Time every case at every number of threads, `rounds` times, and return the summary.

    only: names of cases, or beginnings of names up to a dash, for example k64-l1-t1 or k64; None: all. corpus: a
    corpus of triples; None: CORPUS.
    """
    if device != "cpu":
        return on_gpu(rounds, threads, only, corpus, device)
    names = {f"{name}-t{n}": (case, n) for n in threads for name, case in CASES.items()}
    chosen = choose(list(names), only)
    has_pykeen, version = find_rival("pykeen", "pykeen")
    task, groups = tasks.read(settings(CASES["k1-l1"], corpus or CORPUS, 1)), []
    for name in chosen:
        case, n = names[name]
        rivals = {"pykeen": partial(pykeen, task, case, n)} if has_pykeen else {}
        groups.append(Group(n, {name: partial(ours, task, settings(case, corpus or CORPUS, n))}, rivals))
    return run(
        "transe",
        "s per million positives",
        groups,
        rounds,
        {
            "corpus": corpus or CORPUS,
            "positives": len(epoch_triples(task)[0]),
            "entities": task.problem_spec("cpu").n_candidates,
            "settings": SETTINGS,
            "pykeen": version,
        },
    )


def settings(case: TransECase, corpus: str, threads: int) -> experiment.Settings:
    """Return the settings of our run of a case."""
    keys = {**SETTINGS, "model.norm": case.norm, "negatives.k": case.k, "negatives.share_draws_by": case.share_draws_by}
    return experiment.resolve("self-adversarial", model="transe", corpus=corpus, seed=1, threads=threads,
                              sets=as_sets(keys))


def on_gpu(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None, device: str
           ) -> dict[str, Any]:
    """Whole runs on a GPU, whose blocks the threads of the host read, and on these threads."""
    known = {f"{name}-t{n}": (name, n) for n in threads for name in RUNS}
    chosen = {name: known[name] for name in choose(known, only)}
    groups = []
    for case, (name, n) in chosen.items():
        strategy, sets = RUNS[name]
        work = partial(whole_run, strategy, sets, corpus or CORPUS, n)
        groups.append(Group(n, {case: partial(work, device)}, {"compiled core": partial(work, "cpu")}))
    return run("transe", "s a run", groups, rounds, {
        "corpus": corpus or CORPUS, "device": describe(device),
        "settings": {name: sets for name, (_, sets) in RUNS.items()},
        "measured": "tables, training and ranks of the test triples; reading the corpus and compiling not timed"})


def whole_run(strategy: str, sets: Mapping[str, Any], corpus: str, threads: int, device: str) -> Timed:
    """Train on a corpus and rank its test triples, with the first seed."""
    config = experiment.resolve(strategy, model="transe", corpus=corpus, seed=1, threads=threads, device=device,
                                sets=as_sets(sets))
    components.use_threads(threads)
    task = cast(TriplesTask, tasks.read(config))
    batch, known = cast(TripleBatch, task.heldout("test")), task.filter_for("test")

    def work() -> tuple[float, Ranks]:
        parts = components.build(config, task)
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(parts, Path(folder))
            trainer.run()
        return trainer.position.seconds, link_prediction.ranks(parts.model, batch, known, threads)

    if device == "cpu":
        seconds, cpu, (training, ranks) = timed(work)
    else:
        with tempfile.TemporaryDirectory() as folder:                       # compile the kernel
            first = _trainer(components.build(config, task), Path(folder))
            first.run_step(next(first.read_blocks(0, first.block_size, 0, True)))
        seconds, cpu, (training, ranks) = timed(work, torch.cuda.synchronize)
    scores = link_prediction.mean_scores("test", ranks, task.evaluate, "")
    quality = {score.metric: score.value for score in scores if score.value is not None}
    return Timed(seconds, cpu, quality | {"training_seconds": training})


def _trainer(parts: components.Components, folder: Path) -> Trainer:
    return Trainer(parts.model, parts.source, parts.loss, parts.task.examples, parts.train, folder, dict,
                   parts.known_positives)


def ours(task: Task, config: experiment.Settings) -> Timed:
    """Train one epoch with the fused engine; the trainer counts the seconds of its loop."""
    components.use_threads(config.train.threads)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(components.build(config, task), Path(folder))
        trainer.run()
    return _per_million(trainer.position.seconds, trainer.position.cpu_seconds, trainer.position.examples)


def pykeen(task: Task, case: TransECase, threads: int) -> Timed:
    """Return the PyKEEN setting with fewer CPU seconds, timed on the first triples of an epoch."""
    components.use_threads(threads)
    positives = tuple(x[:case.max_pykeen_positives] for x in epoch_triples(task))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyKEEN pins memory also without an accelerator, and PyTorch warns of it
        timings = [_pykeen(task, case, positives, optimizer, batch) for optimizer, batch in PYKEEN_SETTINGS]
    return min(timings, key=lambda timing: timing.cpu_seconds)


def _pykeen(task: Task, case: TransECase, positives: tuple[Tensor, ...], optimizer: str, batch: int) -> Timed:
    """Time the second epoch of PyKEEN on these positives (heads, relations, tails), after a warm-up epoch."""
    triples = importlib.import_module("pykeen.triples")
    models, losses = importlib.import_module("pykeen.models"), importlib.import_module("pykeen.losses")
    training = importlib.import_module("pykeen.training")
    problem = task.problem_spec("cpu")
    assert problem.context_sizes is not None
    n_relations = problem.context_sizes[1] // 2  # a context is an entity and one of 2R directed relations
    factory = triples.CoreTriplesFactory(torch.stack(positives, 1), num_entities=problem.n_candidates,
                                         num_relations=n_relations)
    model = models.TransE(triples_factory=factory, embedding_dim=DIM, scoring_fct_norm=int(case.norm[1]),
                          loss=losses.NSSALoss(margin=MARGIN, adversarial_temperature=TEMPERATURE), random_seed=1)
    steps = [0]

    class StepCounter(getattr(torch.optim, optimizer)):  # type: ignore[misc]  # PyKEEN creates its own instance
        def step(self, closure: Any = None) -> Any:
            steps[0] += 1
            return super().step(closure)

    update = StepCounter(model.parameters(), lr=PYKEEN_LR)
    loop = training.SLCWATrainingLoop(model=model, triples_factory=factory, optimizer=update, negative_sampler="basic",
                                      negative_sampler_kwargs={"num_negs_per_pos": case.k})
    train = partial(loop.train, triples_factory=factory, batch_size=batch, use_tqdm=False, use_tqdm_batch=False)
    train(num_epochs=1)
    before = steps[0]
    # PyKEEN counts epochs from the first call: num_epochs=1 again would take no step.
    seconds, cpu, _ = timed(lambda: train(num_epochs=2, continue_training=True))
    if steps[0] != 2 * before or before != -(-len(positives[0]) // batch):
        raise ResourceError(f"bench: this version of PyKEEN took {steps[0] - before} steps in its second epoch and "
                            f"{before} in its first, so it cannot be timed; install another version")
    return _per_million(seconds, cpu, len(positives[0]))


def epoch_triples(task: Task) -> tuple[Tensor, ...]:
    """Return head, relation and tail (n,) of the triples of our first epoch, in its order."""
    n = task.examples.n_blocks(0, 1)
    batch: Any = next(iter(task.examples.blocks(0, max(1, n))))
    is_head_open = batch.slot.numpy() == HEAD  # the target is the head, and the known entity the tail; else reversed
    known, target = batch.entity.numpy(), batch.target.numpy()
    return tuple(torch.from_numpy(x) for x in (np.where(is_head_open, target, known), batch.relation.numpy(),
                                               np.where(is_head_open, known, target)))


def _per_million(seconds: float, cpu_seconds: float, positives: int) -> Timed:
    """Convert the seconds of some positives to those of a million."""
    return Timed(seconds * 1e6 / positives, cpu_seconds * 1e6 / positives,
                 {"positives_per_cpu_second": positives / cpu_seconds})
