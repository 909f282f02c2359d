"""Checks that a group of processes can train a run; errors name the key at fault."""

from __future__ import annotations

from embtrain.common.errors import UsageError
from embtrain.common.terminal import format_count
from embtrain.losses.base import Loss
from embtrain.models.base import Model, ModelConfig
from embtrain.models.triples.distmult import DistMult
from embtrain.models.triples.transe import TransE
from embtrain.models.words.cbow import Cbow
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.xc import XC
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.choose import OPTIMIZERS
from embtrain.train.engines.compiled import draws_alone
from embtrain.train.group.processes import ProcessGroup


def check_settings(model: ModelConfig, train: TrainConfig, size: int) -> None:
    """Raise UsageError for keys that have no meaning for several processes, before anything is read."""
    if train.device != "cpu":
        raise UsageError(f"train.device: {train.device}: {size} processes train one run on the CPU; set train.device: "
                         "cpu, or start one process")
    if train.engine == "autograd" and not model.updates_rows:
        raise UsageError(f"train.engine: autograd: {size} processes train one run with the compiled engine; set "
                         "train.engine: auto, or start one process")
    if train.tables == "mapped":
        raise UsageError(f"train.tables: mapped: is for one process; set train.tables: sharded to cut the tables over "
                         f"{size} processes")
    if train.tables == "sharded" and train.parent is not None:
        raise UsageError(f"train.parent: {train.parent}: needs whole tables; set train.tables: memory, or start one "
                         "process")
    if train.cpu_seconds is not None:
        raise UsageError(f"train.cpu_seconds: {train.cpu_seconds:g}: {size} processes are limited by train.epochs; set "
                         "train.cpu_seconds: null, or start one process")


def check_parts(fused_blockers: list[str], model: Model, source: NegativeSource, train: TrainConfig,
                group: ProcessGroup) -> None:
    """Let the source learn with the group; UsageError for an engine, a model or a source that cannot be shared."""
    by_autograd = model.config.updates_rows
    reasons = []
    if not isinstance(model, SkipGram | TransE | DistMult | XC):    # then no other key can help
        reasons.append(f"model.name: {model.name}: the examples of this model are not shared; use skipgram, cbow, "
                       "node2vec, transe, distmult or xc")
    reasons += [] if by_autograd else fused_blockers
    if by_autograd and train.optimizer not in OPTIMIZERS:
        reasons.append(f"train.optimizer: {train.optimizer}: its state is not shared; set {' or '.join(OPTIMIZERS)}")
    if isinstance(model, TransE) and model.config.entities != "free":
        reasons.append(f"model.entities: {model.config.entities}: rows that were put together do not keep their "
                       "length; set free")
    if not source.learn_with(group):
        reasons.append(f"negatives.source: {source.name}: it learns in one process alone; choose another source")
    if reasons:
        raise UsageError(f"{reasons[0]}; or start one process instead of {group.size}")


def check_shards(model: Model, source: NegativeSource, loss: Loss) -> None:
    """Raise UsageError for components that cannot be trained with tables cut by rows."""
    reasons = []
    if isinstance(model, Cbow):
        reasons.append("model.name: cbow: the rows of a window's mean are not cut; use skipgram")
    if isinstance(model, SkipGram) and model.pool is not None:
        reasons.append("model.subword: rows of n-grams are not cut; set model.subword: null")
    if not draws_alone(source):
        reasons.append(f"negatives.source: {source.name}: the negatives must be drawn before the tables are read, as "
                       "those of uniform, log_uniform and unigram with replacement")
    if isinstance(model, SkipGram) and source.config.filter == "observed":
        reasons.append("negatives.filter: observed: the set of pairs is not cut; set target or none")
    if list(loss.parameters()):
        reasons.append("loss.partition: a learned log Z is not cut; set fixed")
    if reasons:
        raise UsageError(*(f"train.tables: sharded: {reason}" for reason in reasons))


def check_blocks(examples: Examples, chunk: int, size: int) -> None:
    """Raise UsageError if there are fewer blocks than processes."""
    if (n := examples.n_blocks(0, chunk)) < size:
        raise UsageError(f"train.chunk: {chunk}: {size} processes cannot share an epoch of {format_count(n, 'block')}; "
                         f"set train.chunk: {max(1, n * chunk // (8 * size))}, or start fewer processes")
