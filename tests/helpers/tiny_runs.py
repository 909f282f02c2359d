"""Runs of every task and engine on tiny data; a run takes about a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embtrain import experiment
from embtrain.experiment.run import components
from embtrain.experiment.run.components import Components
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.core.loader import core
from embtrain.train.loop import Trainer
from helpers.graphs import a_folder
from helpers.in_process import small_text

TRAIN = ["train.epochs=3", "train.threads=1", "train.log_every=2", "train.checkpoint_every=1e-9", "model.dim=6",
         "evaluate.resamples=0"]
OF_TEXT = ["text.min_count=1", "text.sample=0", "text.valid=0.1", "text.test=0.1", "train.chunk=256", "train.batch=64",
           "evaluate.benchmarks=[]", "evaluate.heldout_pairs=50", "evaluate.neighbours=[]"]
OF_GRAPHS = ["train.chunk=40", "train.batch=20"]
OF_LINES = ["language.min_count=1", "language.valid=0.1", "language.test=0.1", "train.chunk=200", "train.batch=200",
            "language.streams=10", "evaluate.words=100"]
OF_LANGUAGES = ["train.epochs=1", "model.hidden=8", "model.embed=6", "train.warmup=0", "evaluate.sentences=5"]

# Model, strategy, corpus and settings of each run: every task, and both engines if there are two.
RUNS: dict[str, tuple[str, str, str, list[str]]] = {
    "skipgram": ("skipgram", "sgns", "text", OF_TEXT),
    "skipgram cosine": ("skipgram", "sampled-softmax", "text", [*OF_TEXT, "model.similarity=cosine"]),
    "skipgram ace": ("skipgram", "ace", "text", [*OF_TEXT, "negatives.min_perplexity=5"]),
    "cbow": ("cbow", "sgns", "text", OF_TEXT),
    "transe": ("transe", "margin", "graph", OF_GRAPHS),
    "transe sphere": ("transe", "sgns", "graph", [*OF_GRAPHS, "model.entities=sphere", "model.norm=l2"]),
    "distmult": ("distmult", "sgns", "graph", OF_GRAPHS),
    "rotate": ("rotate", "sgns", "graph", OF_GRAPHS),
    "order": ("order", "order", "pairs.tsv", ["train.chunk=16", "train.batch=8", "evaluate.benchmarks=[]",
                                              "pairs.valid=3",
                                              "pairs.test=3"]),
    "lm": ("lm", "softmax", "text", OF_LINES),
    "xc": ("xc", "sgns", "labels.txt", ["train.chunk=16", "train.batch=8"]),
    "nmt": ("nmt", "cross-entropy", "grammar", OF_LANGUAGES),
    "nmt vmf": ("nmt", "vmf", "grammar", OF_LANGUAGES),
}
FUSED = ("skipgram", "cbow", "transe", "distmult", "order")
EVERY = [(name, engine) for name in RUNS for engine in ("autograd", "fused") if engine == "autograd" or name in FUSED]


def write(place: Path) -> Path:
    """Write the input of the runs into `place`."""
    small_text(place)
    a_folder(place / "graph")
    (place / "pairs.tsv").write_text("".join(f"c{i}\tc{i // 3}\n" for i in range(1, 60)))
    draw = np.random.default_rng(0)
    rows = [f"{draw.integers(7)} {draw.integers(12)}:1.0 {12 + draw.integers(12)}:0.5" for _ in range(60)]
    (place / "labels.txt").write_text("\n".join(["60 24 7", *rows]) + "\n")
    return place


def config(place: Path, name: str, engine: str, *sets: str) -> experiment.Settings:
    model, strategy, corpus, overrides = RUNS[name]
    if engine == "fused" and core() is None:
        pytest.skip("core: no compiled core is here")
    return experiment.resolve(strategy, model=model, corpus=corpus if corpus == "grammar" else str(place / corpus),
                              sets=[*TRAIN, *overrides, f"train.engine={engine}", *sets])


def made(settings: experiment.Settings) -> Components:
    return components.build_for_training(settings, tasks.read(settings))


def learning(parts: Components, folder: Path) -> Trainer:
    return Trainer(parts.model, parts.source, parts.loss, parts.task.examples, parts.train, folder, dict,
                   parts.known_positives)


def blocks(training: Trainer, n: int) -> None:
    training.source.on_epoch_start(training.step.view)
    for _, block in zip(range(n), training.read_blocks(0, training.block_size, 0, True), strict=False):
        training.log(training.run_step(block, keep_costs=True))
