"""What --search says: keys of strategies, and where each is looked for."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from embtrain.common.config import from_set, read_yaml
from embtrain.common.errors import UsageError
from embtrain.experiment.run.settings import Settings

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


def ranges(texts: Sequence[str], sets: Sequence[str], settings: Settings) -> list[Range]:
    """KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B, ...]; UsageError for what is none, or must be alike for all.
    `settings`: of one of the strategies, whose keys say which of them take whole numbers."""
    every = [_as_taken(_range(text), text, settings) for text in texts]
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

    def read(text: str) -> Any:
        try:
            return from_set(f"x={text}").tree["x"]
        except UsageError as error:
            raise wrong from error

    if value.startswith("["):
        tree = read(value)
        if len(tree) < 2 or any(isinstance(one, list | dict) for one in tree):
            raise wrong
        return Range(key, among=tuple(tree))
    parts = value.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise wrong
    low, high = map(read, parts[:2])
    log = len(parts) == 3
    if any(isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) for x in (low, high)) \
            or not low < high or (log and low <= 0):
        raise wrong
    return Range(key, low, high, log)


def _as_taken(one: Range, text: str, settings: Settings) -> Range:
    """With the numbers that the key takes: whole ones of a count, also where 1:1e2 was said, and any of a share, also
    where 0:1 was. A key that is not there is told where its ends are tried."""
    section, _, name = one.key.partition(".")
    field = type(getattr(settings, section)).model_fields.get(name) if section in (*SECTIONS, "train") else None
    if field is None or one.among:
        return one
    takes = get_args(field.annotation) or (field.annotation,)
    if float in takes:
        return replace(one, low=float(one.low), high=float(one.high))
    if int in takes and not (float(one.low).is_integer() and float(one.high).is_integer()):
        raise UsageError(f"--search {text}: {one.key} takes whole numbers; give it two")
    return replace(one, low=int(one.low), high=int(one.high)) if int in takes else one
