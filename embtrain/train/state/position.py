"""Progress counters of a training run, as stored in its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STORED_AS = {"evaluations_since_best": "waited"}  # fields that checkpoints store under an older name


@dataclass
class Position:
    """The position of a run: counters, times, the best evaluation so far."""

    epoch: int = 0
    block: int = 0
    step: int = 0                 # blocks trained so far, over all epochs
    examples: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best: float = -math.inf       # best value of the watched metric so far
    best_step: int = 0            # its step
    evaluations_since_best: int = 0
    evaluated: int = 0            # step of the last evaluation
    reached: str | None = None    # the train.track_until that an evaluation has passed
    log_offset: int = 0
    first_loss: float | None = None  # mean loss of the first block

    def state_dict(self) -> dict[str, Any]:
        """The counters under their stored names."""
        return {_STORED_AS.get(name, name): value for name, value in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Position:
        """Restore the counters from `state_dict`; TypeError for unknown names."""
        names = {stored: name for name, stored in _STORED_AS.items()}
        return cls(**{names.get(name, name): value for name, value in state.items()})
