"""Parse --search: keys of strategies and their ranges."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from embtrain.common.config import from_set, read_yaml
from embtrain.common.errors import UsageError
from embtrain.experiment.run.settings import Settings

SECTIONS = ("negatives", "loss")
# others would break pairs
TRAIN = ("lr", "min_lr", "loss_lr", "warmup", "burn_in", "optimizer", "batch", "reduction", "clip")


@dataclass(frozen=True)
class Range:
    """The search range of a key: between two numbers, or a list of values."""

    key: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    among: tuple[Any, ...] = ()

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def ends(self) -> list[Any]:
        return list(self.among) or [self.low, self.high]


def expand_files(texts: Sequence[str]) -> list[tuple[str, str | None]]:
    """Expand YAML files among the --search options into KEY=RANGE texts: `train.lr: 0.01:0.5:log`.

    Each text has FILE:LINE:COLUMN: KEY of its range for errors, or None if it was an option.
    """
    expanded: list[tuple[str, str | None]] = []
    for text in texts:
        if text.endswith((".yaml", ".yml")):
            layer = read_yaml(Path(text))
            if not layer.tree:
                raise UsageError(f"--search: {text}: contains no keys; give lines KEY: LOW:HIGH, like "
                                 "train.lr: 0.01:0.5:log")
            for key, value in layer.tree.items():
                mark = layer.marks.get((key,))
                expanded.append((f"{key}={json.dumps(value) if isinstance(value, list) else value}",
                                 f"{layer.name}{':{}:{}'.format(*mark) if mark else ''}: {key}"))
        else:
            expanded.append((text, None))
    return expanded


def _place(text: str, flag: str) -> str:
    """Name of a range in errors. flag: the option or the place in a file that set the range."""
    if flag.startswith("--"):
        return f"--search {text}"
    return f"{flag}: {text.partition('=')[2] if _is_line(text, flag) else text}"


def _key_place(text: str, flag: str) -> str:
    """Name of the key of a range in errors. flag: as for `_place`."""
    key = text.partition("=")[0].strip()
    return f"--search {key}" if flag.startswith("--") else flag if _is_line(text, flag) else f"{flag}: {key}"


def _is_line(text: str, flag: str) -> bool:
    """Whether a range is a line KEY: RANGE of a file of ranges, whose place ends with the key."""
    return not flag.startswith("--") and flag.endswith(f": {text.partition('=')[0]}")


def places(texts: Sequence[str], flag_of: Callable[[str, str], str]) -> list[str]:
    """Names of the ranges in errors. flag_of: that of the grid."""
    return [_place(text, flag_of("search", text)) for text in texts]


@contextlib.contextmanager
def errors_without_key(places_by_setting: Mapping[str, str]) -> Iterator[None]:
    """Remove the key from errors of settings KEY=VALUE, if the range is in a file and its place precedes the key."""
    try:
        yield
    except UsageError as error:
        prefixes = {f"{place}: {text.partition('=')[0]}: ": f"{place}: " for text, place in places_by_setting.items()
                    if not place.startswith("--")}
        lines = [next((name + line.removeprefix(prefix) for prefix, name in prefixes.items()
                       if line.startswith(prefix)), line) for line in error.args]
        raise UsageError(*lines) from error


def parse_ranges(texts: Sequence[str], sets: Sequence[str], settings: Settings,
                 flag_of: Callable[[str, str], str] = lambda *_: "--search") -> list[Range]:
    """Parse KEY=LOW:HIGH, KEY=LOW:HIGH:log and KEY=[A, B, ...].

    settings: those of one strategy, whose fields say which keys are integers. flag_of: that of the grid. UsageError for
    invalid ranges and for keys that must be equal for all strategies.
    """
    flags = [flag_of("search", text) for text in texts]
    parsed = [_convert(_parse_range(text, flag), _place(text, flag), settings)
              for text, flag in zip(texts, flags, strict=True)]
    for i, item in enumerate(parsed):
        place = _key_place(texts[i], flags[i])
        section, _, name = item.key.partition(".")
        if not name or (section not in SECTIONS and not (section == "train" and name in TRAIN)):
            raise UsageError(f"{place}: strategies must not differ in this key; search those of "
                             f"{', '.join(SECTIONS)} or train.{', train.'.join(TRAIN)}")
        if item.key in [other.key for other in parsed[:i]]:
            raise UsageError(f"{place}: occurs twice; remove one")
        if any(text.partition("=")[0].strip() == item.key for text in sets):
            raise UsageError(f"{place}: --set gives it a value; remove one of the two")
    return parsed


def _parse_range(text: str, flag: str) -> Range:
    key, equals, value = (part.strip() for part in text.partition("="))
    place, sign = _place(text, flag), ": " if _is_line(text, flag) else "="
    wrong = UsageError(f"{place}: should be KEY{sign}LOW:HIGH, KEY{sign}LOW:HIGH:log or KEY{sign}[A, B], like "
                       f"train.lr{sign}0.01:0.5:log")
    if not equals or not key:
        raise wrong

    def read(text: str) -> Any:
        try:
            return from_set(f"x={text}").tree["x"]
        except UsageError as error:
            raise wrong from error

    if value.startswith("["):
        tree = read(value)
        if any(isinstance(value_of_list, list | dict) for value_of_list in tree):
            raise wrong
        if len(tree) < 2:
            raise UsageError(f"{place}: has fewer than two values; give two or more, or set the key with --set")
        values = [(isinstance(value_of_list, bool), value_of_list) for value_of_list in tree]    # true equals 1
        if repeated := [pair for i, pair in enumerate(values) if pair in values[:i]]:
            raise UsageError(f"{place}: {repeated[0][1]!r} occurs twice; give each value once")
        return Range(key, among=tuple(tree))
    parts = value.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise wrong
    low, high = map(read, parts[:2])
    log = len(parts) == 3
    if any(isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) for x in (low, high)):
        raise wrong
    if not low < high:
        raise UsageError(f"{place}: {low} is not below {high}; give the lower bound first")
    if log and low <= 0:
        raise UsageError(f"{place}: {low} has no logarithm; give bounds above 0, or remove :log")
    return Range(key, low, high, log)


def _convert(parsed: Range, place: str, settings: Settings) -> Range:
    """Convert the bounds to the key's type: integers for counts (even for 1:1e2), floats for fractions (even 0:1).

    Unknown keys pass; they are reported when the bounds are tried.
    """
    section, _, name = parsed.key.partition(".")
    field = type(getattr(settings, section)).model_fields.get(name) if section in (*SECTIONS, "train") else None
    if field is None or parsed.among:
        return parsed
    types = get_args(field.annotation) or (field.annotation,)
    if float in types:
        return replace(parsed, low=float(parsed.low), high=float(parsed.high))
    if int in types and not (float(parsed.low).is_integer() and float(parsed.high).is_integer()):
        raise UsageError(f"{place}: {parsed.key} takes whole numbers; give two whole numbers")
    return replace(parsed, low=int(parsed.low), high=int(parsed.high)) if int in types else parsed
