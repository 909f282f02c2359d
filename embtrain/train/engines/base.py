"""Base class of training engines. An engine trains on one block of examples at a time and says how blocks are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.types import Batch, ModelView, Negatives, Query
from embtrain.data.text.windows import WindowBatch
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.false_negatives import KnownPositives

PACKAGE = "embtrain.train.engines"


class Examples(Protocol):
    """The training data, as blocks of examples that (epoch, block) alone determine."""

    def n_blocks(self, epoch: int, block: int) -> int: ...
    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[Batch]: ...
    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]: ...


@dataclass(frozen=True)
class StepResult:
    """The result of one step. Tensors stay on the device until a log line is due."""

    loss: Tensor                # ()  mean loss of the block's examples
    query: Query | None         # detached; it and `drawn` may cover only the first n rows
    drawn: Negatives | None
    cost: Tensor | None         # (n, K) costs of the negatives of the first n rows, if kept
    source: dict[str, float]    # metrics returned by source.learn


class Engine:
    """Base of every engine. A subclass with a `name` of its own is a value of train.engine."""

    name: ClassVar[str]
    #: Default of train.chunk: centres or queries in a block.
    default_block_size: ClassVar[int] = 4096
    view: ModelView  # the view of the model that the source receives

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        self.model, self.source, self.loss, self.optimizers = model, source, loss, optimizers
        self.config, self.known_positives = config, known_positives

    def __call__(self, block: Any, keep_costs: bool = False) -> StepResult:
        """Train on one block. `keep_costs` also returns the costs of the negatives, for the log."""
        raise AbstractMethod(self, "__call__")

    def batches(self, examples: Examples, epoch: int, block: int, start: int = 0, shuffle: bool = True
                ) -> Iterator[Any]:
        """Read the blocks of an epoch from number `start` on, in the form that the engine trains on."""
        return examples.blocks(epoch, block, start, shuffle)

    def blocks_ahead(self) -> int:
        """Return how many blocks `batches` reads, at most, before they are trained on."""
        return 0

    def block_bytes(self, block: Any) -> tuple[int, int]:
        """Return the bytes that a block read ahead takes: on the host, and on a GPU."""
        return 0, 0

    @classmethod
    def for_task(cls, task: str, device: str) -> type[Engine]:
        """Return the class that trains the models of a task on a kind of device, cpu or cuda.

        This one, unless the engine has several.
        """
        return cls


def find(name: str) -> type[Engine]:
    """Return the engine of that name. UsageError with all names if there is none."""
    registry.classes(PACKAGE, Engine)  # imports all: `for_task` chooses among the subclasses that are imported
    return registry.find(PACKAGE, Engine, name, "train.engine")
