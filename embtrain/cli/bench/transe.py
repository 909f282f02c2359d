"""TransE: seconds for a million positives, by the fused engine and by PyKEEN, at equal dimension, negatives and loss.

Both train with self-adversarial weights, so that every negative counts, on triples with one open side each. Ours
updates with row-Adagrad, one query or one shared draw at a time. PyKEEN draws private negatives; the faster of two
settings is reported: batches of 256 with Adam, and of 1024 with Adagrad.

k1-l1           1 negative, L1
k64-l1          64 private negatives, L1
k64-l2-shared   64 negatives shared by 64 queries, L2

Without PyKEEN there is no ratio.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embtrain import experiment
from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.common.config import as_sets
from embtrain.common.errors import ResourceError
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task
from embtrain.train.loop import Trainer

CORPUS, DIM, MARGIN = "fb15k-237", 100, 9.0
SETTINGS: dict[str, Any] = {
    "model.dim": DIM, "model.span": 0.1, "loss.margin": MARGIN, "negatives.filter": "none", "triples.slot": "random",
    "train.epochs": 1, "train.lr": 0.05, "train.optimizer": "row-adagrad", "train.engine": "fused",
    "train.log_every": 1_000_000, "train.checkpoint_every": 1e9}


class TransECase(NamedTuple):
    norm: str
    k: int
    share: str
    most: int  # positives that PyKEEN is timed on


CASES = {"k1-l1": TransECase("l1", 1, "row", 16_384), "k64-l1": TransECase("l1", 64, "row", 8_192),
         "k64-l2-shared": TransECase("l2", 64, "block", 8_192)}
RIVALS = (("Adam", 256), ("Adagrad", 1024))


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example k64."""
    names = {f"{name}-t{n}": (case, n) for n in threads for name, case in CASES.items()}
    chosen = choose(list(names), only)
    task = tasks.read(settings(CASES["k1-l1"], corpus or CORPUS, 1))
    has_pykeen, groups = importlib.util.find_spec("pykeen") is not None, []
    for name in chosen:
        case, n = names[name]
        rivals = {"pykeen": partial(pykeen, task, case, n)} if has_pykeen else {}
        groups.append(Group(n, {name: partial(ours, task, settings(case, corpus or CORPUS, n))}, rivals))
    return run(
        "transe",
        "s a million positives",
        groups,
        rounds,
        {
            "corpus": corpus or CORPUS,
            "positives": len(epoch_triples(task)[0]),
            "entities": task.problem_spec("cpu").n_candidates,
            "settings": SETTINGS,
        },
    )


def settings(case: TransECase, corpus: str, threads: int) -> experiment.Settings:
    keys = {**SETTINGS, "model.norm": case.norm, "negatives.k": case.k, "negatives.share_draws_by": case.share}
    return experiment.resolve("self-adversarial", model="transe", corpus=corpus, seed=1, threads=threads,
                              sets=as_sets(keys))


def ours(task: Task, config: experiment.Settings) -> Timed:
    components.use_threads(config.train.threads)
    parts = components.build(config, task)
    with tempfile.TemporaryDirectory() as folder:
        fit = Trainer(parts.model, parts.source, parts.loss, task.examples, parts.train, Path(folder), dict,
                      parts.known_positives)
        fit.run()
    return _a_million(fit.position.seconds, fit.position.cpu_seconds, fit.position.examples)


def pykeen(task: Task, case: TransECase, threads: int) -> Timed:
    """The faster of the two settings, on the first triples of an epoch."""
    components.use_threads(threads)
    positives = tuple(x[:case.most] for x in epoch_triples(task))
    return min((_pykeen(task, case, positives, *how) for how in RIVALS), key=lambda found: found.cpu_seconds)


def _pykeen(task: Task, case: TransECase, positives: tuple[Tensor, ...], optimizer: str, batch: int) -> Timed:
    triples = importlib.import_module("pykeen.triples")
    models, losses = importlib.import_module("pykeen.models"), importlib.import_module("pykeen.losses")
    training = importlib.import_module("pykeen.training")
    problem = task.problem_spec("cpu")
    assert problem.context_sizes is not None
    factory = triples.CoreTriplesFactory(torch.stack(positives, 1), num_entities=problem.n_candidates,
                                         num_relations=problem.context_sizes[1] // 2)
    model = models.TransE(triples_factory=factory, embedding_dim=DIM, scoring_fct_norm=int(case.norm[1]),
                          loss=losses.NSSALoss(margin=MARGIN, adversarial_temperature=1.0), random_seed=1)
    steps = [0]

    class StepCounter(getattr(torch.optim, optimizer)):  # type: ignore[misc]  # PyKEEN creates its own instance
        def step(self, closure: Any = None) -> Any:
            steps[0] += 1
            return super().step(closure)

    update = StepCounter(model.parameters(), lr=0.01)
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
    return _a_million(seconds, cpu, len(positives[0]))


def epoch_triples(task: Task) -> tuple[Tensor, ...]:
    """Head, relation and tail (n,) of the triples of an epoch, in its order."""
    n = task.examples.n_blocks(0, 1)
    batch: Any = next(iter(task.examples.blocks(0, max(1, n))))
    head_open = batch.slot.numpy() == 1
    known, target = batch.entity.numpy(), batch.target.numpy()
    return tuple(torch.from_numpy(x) for x in (np.where(head_open, target, known), batch.relation.numpy(),
                                               np.where(head_open, known, target)))


def _a_million(seconds: float, cpu_seconds: float, positives: int) -> Timed:
    return Timed(seconds * 1e6 / positives, cpu_seconds * 1e6 / positives,
                 {"positives_per_cpu_second": positives / cpu_seconds})
