"""The progress counters of a training run, as a checkpoint stores them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_STORED_AS = {"evaluations_since_best": "waited"}  # fields whose name in a checkpoint is an older one


@dataclass
class Position:
    """How far a run has come. Everything else that a checkpoint holds belongs to its owner."""

    epoch: int = 0
    block: int = 0
    step: int = 0                 # blocks in all
    examples: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best: float = -math.inf       # of `better`, in the evaluations so far
    best_step: int = 0            # when that was
    evaluations_since_best: int = 0               # evaluations since the best
    evaluated: int = 0            # the step of the last evaluation
    reached: dict[str, float] = field(default_factory=dict)  # steps and seconds to train.target
    log_offset: int = 0
    first_loss: float | None = None  # mean over the first block

    def state_dict(self) -> dict[str, Any]:
        return {_STORED_AS.get(name, name): value for name, value in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Position:
        names = {stored: name for name, stored in _STORED_AS.items()}
        return cls(**{names.get(name, name): value for name, value in state.items()})
