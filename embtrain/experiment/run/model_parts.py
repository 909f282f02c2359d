"""The parts of a run that tasks, scoring and memory checks receive. Below tasks, which components.py adds."""

from __future__ import annotations

from dataclasses import dataclass

from embtrain.common.types import ProblemSpec
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.false_negatives import KnownPositives


@dataclass(frozen=True)
class ModelParts:
    """Model, source, loss and training settings of one run."""

    problem: ProblemSpec
    model: Model
    source: NegativeSource
    loss: Loss
    known_positives: KnownPositives | None
    train: TrainConfig    # with engine and block chosen
    fused_blockers: list[str]       # why `auto` did not choose the fused engine
