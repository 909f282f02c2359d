"""Checks of single values: numbers and integers of Python or NumPy, paths."""

from __future__ import annotations

import math
import os
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.common.config.shown import printable
from embtrain.gensim.errors import ArgumentError, ArgumentTypeError

NUMBERS = int, float, np.integer, np.floating, np.bool_


def check_number(name: str, value: object) -> None:
    """Raise ArgumentTypeError for a value that is not a number of Python or NumPy.

    ArgumentError for one that is larger than float64 holds.
    """
    if not isinstance(value, NUMBERS):
        raise ArgumentTypeError(wrong_type(name, value, "a number"))
    try:
        float(value)
    except OverflowError as error:
        raise ArgumentError(f"{name}={hex(int(value)):.20}...: should be a number that float64 holds") from error


def as_whole(name: str, value: Any, kind: type[np.signedinteger], minimum: int | None = None) -> int:
    """Return a number as an integer. ArgumentTypeError for another value than a number.

    ArgumentError unless it is whole, holds in `kind` and is `minimum` or more.
    """
    check_number(name, value)
    least, most = int(np.iinfo(kind).min) if minimum is None else minimum, int(np.iinfo(kind).max)
    whole = int(value) if math.isfinite(float(value)) else None  # comparing it with bounds would round these to float32
    if whole is None or whole != value or not least <= whole <= most:
        raise ArgumentError(f"{name}={value!r:.60}: should be a whole number from {least:,} to {most:,}")
    return whole


def progress_interval(progress_per: Any) -> Any:
    """Return a number of sentences between two messages as a number of Python: NumPy's int8 cannot divide 128.

    ArgumentTypeError for a value that is not a number, ArgumentError for 0, which gensim's code divides by.
    """
    if not isinstance(progress_per, NUMBERS):
        raise ArgumentTypeError(wrong_type("progress_per", progress_per, "a number"))
    if not progress_per:
        raise ArgumentError(f"progress_per={progress_per!r}: should be a number other than 0")
    return progress_per.item() if isinstance(progress_per, np.generic) else progress_per


def check_integer(name: str, value: object) -> None:
    """Raise ArgumentTypeError for a value that is not an integer of Python or NumPy; gensim converts none."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(wrong_type(name, value, "an integer"))


def checked_path(name: str, value: Any) -> Path:
    """Return a path. ArgumentTypeError for a value that is not a path as text, ArgumentError for a NUL or no text."""
    try:
        text = os.fspath(value)
    except TypeError:  # not a path, or an object whose __fspath__ returns neither text nor bytes
        text = None
    if not isinstance(text, str):
        raise ArgumentTypeError(wrong_type(name, value, "a path"))
    if not text or "\0" in text:
        raise ArgumentError(f"{name}={text!r:.60}: should be a path " + ("without NUL" if text else "of a file"))
    return Path(text)


def checked_output(name: str, value: Any) -> Path:
    """Return the path of a file to write. Raises the errors of checked_path, and ArgumentError for a folder."""
    if os.path.isdir(path := checked_path(name, value)):
        raise ArgumentError(f"{name}={str(path)!r:.60}: is a folder; give the path of a file")
    return path


def wrong_type(name: str, value: object, expected: str) -> str:
    """Return the error of a value of a type that cannot work. expected: a noun phrase."""
    return f"{name}={printable(repr(value)):.60}: should be {expected}, got a {type(value).__name__}"
