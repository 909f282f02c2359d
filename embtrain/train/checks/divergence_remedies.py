"""Remedies for a training that diverges, by what the engine that trains can honour."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from embtrain.common.errors import UsageError
from embtrain.train.config import TrainConfig

LARGE, SMALL = 3.0, 9.0  # powers of ten, up and down, from which on a setting is conspicuous
RATES = ("lr", "loss_lr")


def lower_rate(train: TrainConfig) -> str:
    """The remedy in words, with the keys that `train.engine` reads."""
    if train.engine == "fused":  # its updates have no batch, and no gradient that could be clipped
        return "lower train.lr, or set train.engine: step and a train.clip"
    return "lower train.lr, set a smaller train.batch or a train.clip"


def conspicuous(sections: dict[str, BaseModel]) -> tuple[str, float] | None:
    """Key and value of the most extreme number of some sections; None where no number is extreme."""
    found = [(far, (key, value)) for name, section in sections.items()
             for key, value in _floats(section.model_dump(), f"{name}.") if (far := _far(value)) > 0]
    return max(found)[1] if found else None


def not_finite(what: str, step: int, checkpoints: Path, train: TrainConfig, sections: dict[str, BaseModel]
               ) -> UsageError:
    """The error of a training that stops at a block because `what` is not finite. `sections`: those whose numbers an
    update reads, besides the rates of `train`."""
    rates = train.model_copy(update={name: None for name in type(train).model_fields if name not in RATES})
    blamed = conspicuous({**sections, "train": rates})
    kept = f"the last finite state is in {checkpoints}; " if checkpoints.is_dir() else ""    # a dry run has none
    if blamed is None:
        return UsageError(f"train.lr: {what} at block {step:,}; {kept}{lower_rate(train)}")
    key, value = blamed
    return UsageError(f"{key}: {value:g}: {what} at block {step:,}; {kept}{'lower' if abs(value) > 1 else 'raise'} it")


def _floats(tree: dict[str, Any], before: str) -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _floats(value, f"{before}{name}.")
        elif isinstance(value, float) and value:
            yield before + name, value


def _far(value: float) -> float:
    """How many powers of ten a number is beyond what is usual; at most 0 within."""
    power = math.log10(abs(value))
    return max(power - LARGE, -power - SMALL)
