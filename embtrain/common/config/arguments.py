"""Arguments of the Python interface: checks of numbers, each UsageError with one line, and their names in errors."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from embtrain.common.config.layers import as_sets
from embtrain.common.config.shown import printable
from embtrain.common.errors import EmbtrainError, UsageError

MAX_INTEGER = 2**63 - 1  # of int64
# A flag in a message; commands with theirs are left, because the user types them in a shell.
FLAG = re.compile(r"\bembtrain [a-z][^;`]*|(?<![^\s(])--(?P<name>[a-z][a-z-]*)(?P<space> (?=\S+[=:]))?")
ARGUMENTS = {"set": "sets", "losses": "loss"}  # flags whose argument has another name than the flag


@contextlib.contextmanager
def named_arguments() -> Iterator[None]:
    """Let errors of the block that begin with a flag of the command begin with the argument of the Python function.

    `--cpu-seconds: ` becomes `cpu_seconds: `, and `--set train.lr=0: ` becomes `sets: train.lr=0: `. The code below
    serves both, and names the flag.
    """
    try:
        yield
    except EmbtrainError as error:
        error.args = tuple(FLAG.sub(_argument, line) if line.startswith("--") else line for line in error.args)
        raise


def _argument(flag: re.Match[str]) -> str:
    if (name := flag["name"]) is None:
        return flag[0]
    return ARGUMENTS.get(name, name.replace("-", "_")) + (": " if flag["space"] and flag.start() == 0 else
                                                          flag["space"] or "")


@contextlib.contextmanager
def renamed_flags(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors of the block that begin with one of the flags begin with its name instead, as `argument_sets` has."""
    try:
        yield
    except EmbtrainError as error:
        error.args = tuple(next((name + line[len(flag):] for flag, name in names.items()
                                 if line.startswith(f"{flag}: ")), line) for line in error.args)
        raise


def argument_sets(keys: Mapping[str, str], values: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """KEY=VALUE texts of arguments that are short for `sets`, and their names in errors: `--set KEY=VALUE` -> name.

    keys: by argument. values: by argument, of those to set. UsageError for a value without a form in YAML.
    """
    texts, names = list[str](), dict[str, str]()
    for name, value in values.items():
        try:
            (text,) = as_sets({keys[name]: value})
        except UsageError as error:
            raise UsageError(f"{name}: {error.args[0]}") from error
        texts.append(text)
        names[f"--set {printable(text)}"] = f"{name}={printable(text.partition('=')[2])}"
    return texts, names


def whole_number(name: str, value: Any, low: int | None = 0, high: int = MAX_INTEGER) -> int:
    """Return an integer of Python, NumPy or a tensor as int, if it is in low..high. low: None: no limit."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (low is not None and number < low):
        limit = "" if low is None else f" of at least {low}"
        raise UsageError(f"{name}: {value!r}: should be a whole number{limit}")
    if number > high:
        raise UsageError(f"{name}: {value!r}: should be at most {high}")
    return number


def number_of_at_least(name: str, value: Any, low: float) -> float:
    """Return a number as float, if it is at least `low`. NaN and truth values are refused."""
    if isinstance(value, bool) or not (isinstance(value, Real) and float(value) >= low):
        raise UsageError(f"{name}: {value!r}: should be a number of at least {low}")
    return float(value)
