"""What --search says: keys of strategies, and where each is looked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embtrain.config import from_set, read_yaml
from embtrain.errors import UsageError

SECTIONS = ("negatives", "loss")
TRAIN = ("lr", "min_lr", "loss_lr", "warmup", "optimizer", "batch", "reduction", "clip")  # the rest would break pairs


@dataclass(frozen=True)
class Range:
    """Where a key is looked for: between two numbers, or among some values."""

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    among: tuple[Any, ...] = ()

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def ends(self) -> list[Any]:
        return list(self.among) or [self.low, self.high]


def given(texts: Sequence[str]) -> list[str]:
    """What --search says; of a YAML file, its keys with their ranges: `train.lr: 0.01:0.5:log`."""
    out: list[str] = []
    for text in texts:
        if text.endswith((".yaml", ".yml")):
            for key, value in read_yaml(Path(text)).tree.items():
                out.append(f"{key}={json.dumps(value) if isinstance(value, list) else value}")
        else:
            out.append(text)
    return out


def ranges(texts: Sequence[str], sets: Sequence[str]) -> list[Range]:
    """KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B, ...]; UsageError for what is none, or must be alike for all."""
    every = [_range(text) for text in texts]
    for i, one in enumerate(every):
        section, _, name = one.key.partition(".")
        if not name or (section not in SECTIONS and not (section == "train" and name in TRAIN)):
            raise UsageError(f"--search {one.key}: is no key that strategies may differ in; those of "
                             f"{', '.join(SECTIONS)} are, and train.{', train.'.join(TRAIN)}")
        if one.key in [other.key for other in every[:i]]:
            raise UsageError(f"--search {one.key}: is there twice")
        if any(text.partition("=")[0].strip() == one.key for text in sets):
            raise UsageError(f"--search {one.key}: --set gives it a value; leave one of the two out")
    return every


def _range(text: str) -> Range:
    key, equals, value = (part.strip() for part in text.partition("="))
    wrong = UsageError(f"--search {text}: should be KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B], such as "
                       "train.lr=0.01:0.5:log")
    if not equals or not key:
        raise wrong
    if value.startswith("["):
        tree: Any = from_set(f"x={value}").tree["x"]
        if len(tree) < 2 or any(isinstance(one, list | dict) for one in tree):
            raise wrong
        return Range(key, among=tuple(tree))
    parts = value.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise wrong
    low, high = (from_set(f"x={part}").tree["x"] for part in parts[:2])
    log = len(parts) == 3
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in (low, high)) or not low < high \
            or (log and low <= 0):
        raise wrong
    return Range(key, low, high, log)
