"""Checks of numbers that a user passes to a function of Python. Each raises UsageError with one line."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

from embtrain.common.errors import UsageError

MAX_INTEGER = 2**63 - 1  # of int64


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
