"""Checks that a group of processes can train a run; errors name the key at fault."""

from __future__ import annotations

from embtrain.common.errors import UsageError
from embtrain.losses.base import Loss
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples


def check_settings(train: TrainConfig, size: int) -> None:
    """Raise UsageError for keys that have no meaning for several processes, before anything is read."""
    if train.device != "cpu":
        raise UsageError(f"train.device: {train.device}: {size} processes train one run on the CPU; set train.device: "
                         "cpu, or start one process")
    if train.engine == "autograd":
        raise UsageError(f"train.engine: autograd: {size} processes train one run with the compiled engine; set "
                         "train.engine: auto, or start one process")
    if train.cpu_seconds is not None:
        raise UsageError(f"train.cpu_seconds: {train.cpu_seconds:g}: {size} processes are limited by train.epochs; set "
                         "train.cpu_seconds: null, or start one process")


def check_parts(train: TrainConfig, fused_blockers: list[str], task: str, source: NegativeSource, loss: Loss,
                size: int) -> None:
    """Raise UsageError for an engine, source, loss or optimizer whose state is not put together."""
    reasons = list(fused_blockers)
    if task not in ("windows", "walks"):
        reasons.append("model.name: the examples of this model are not shared; use skipgram or node2vec")
    if train.optimizer != "sgd":
        reasons.append(f"train.optimizer: {train.optimizer}: its state is not shared; use sgd")
    if source.traits.learns or source.traits.fits_to_queries or hasattr(source, "touched"):
        reasons.append(f"negatives.source: {source.name}: what it learns or sums is not shared; choose another source")
    if list(loss.parameters()):
        reasons.append(f"loss.name: {loss.name}: its learned log Z is not shared; set loss.partition: fixed")
    if reasons:
        raise UsageError(*(f"{reason}; or start one process instead of {size}" for reason in reasons[:1]))


def check_blocks(examples: Examples, chunk: int, size: int) -> None:
    """Raise UsageError if there are fewer blocks than processes."""
    if (n := examples.n_blocks(0, chunk)) < size:
        raise UsageError(f"train.chunk: {chunk}: {size} processes cannot share an epoch of {n} blocks of {chunk} "
                         f"centres; set train.chunk: {max(1, n * chunk // (8 * size))}, or start fewer processes")
