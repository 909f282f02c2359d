"""Error message of a run that diverged: the setting to blame and a remedy that the engine supports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from embtrain.common.errors import UsageError
from embtrain.train.config import TrainConfig

MAX_POWER, MIN_POWER = 3.0, 9.0  # powers of ten, up and down, beyond which a setting is extreme
RATES = ("lr", "loss_lr")


class DivergedError(UsageError):
    """The loss or a parameter is not finite."""


def lower_rate_hint(train: TrainConfig) -> str:
    """The remedy as text, with keys that `train.engine` reads."""
    if train.engine == "fused":  # its updates have no batch, and no gradient to clip
        return "lower train.lr, or set train.engine: autograd and a train.clip"
    return "lower train.lr, set a smaller train.batch or a train.clip"


def most_extreme(sections: dict[str, BaseModel]) -> tuple[str, float] | None:
    """Key and value of the most extreme number of the sections; None if no number is extreme."""
    candidates = [(excess, (key, value)) for name, section in sections.items()
                  for key, value in _floats(section.model_dump(), f"{name}.") if (excess := _powers_outside(value)) > 0]
    return max(candidates)[1] if candidates else None


def not_finite_error(problem: str, step: int, checkpoints: Path, train: TrainConfig, sections: dict[str, BaseModel]
               ) -> DivergedError:
    """The error of a run that stops because a number is not finite.

    `sections`: config sections whose numbers an update reads, in addition to the rates of `train`.
    """
    rates = train.model_copy(update={name: None for name in type(train).model_fields if name not in RATES})
    extreme = most_extreme({**sections, "train": rates})
    last_state = f"the last finite state is in {checkpoints}; " if checkpoints.is_dir() else ""  # a dry run: none
    if extreme is None:
        return DivergedError(f"train.lr: {problem} at block {step:,}; {last_state}{lower_rate_hint(train)}")
    key, value = extreme
    other_run = "" if key.startswith("train.") else " and train again"      # the checkpoint fits no other value
    return DivergedError(f"{key}: {value:g}: {problem} at block {step:,}; {last_state}"
                         f"{'lower' if abs(value) > 1 else 'raise'} it{other_run}")


def _floats(section: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Key and value of each nonzero float of a nested section."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _floats(value, f"{prefix}{name}.")
        elif isinstance(value, float) and value:
            yield prefix + name, value


def _powers_outside(value: float) -> float:
    """Powers of ten by which a number is outside the usual range; at most 0 inside it."""
    power = math.log10(abs(value))
    return max(power - MAX_POWER, -power - MIN_POWER)
