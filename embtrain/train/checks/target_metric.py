"""Parses train.track_until: a metric and a threshold, for example 'valid/log_likelihood>-7'.

A report compares the steps and seconds up to the first evaluation at which the metric has passed the threshold.
Training goes on to its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from embtrain.common.errors import UsageError


def parse_threshold(text: str) -> tuple[str, Callable[[float], bool]]:
    """Parse 'valid/mrr>.1' into the key of the metric and a function of its value that returns whether it is passed.

    The comparison is strict: a value equal to the threshold has not passed it. The threshold may be inf or -inf, but
    not NaN: 'valid/mrr>inf' is never passed. Raises UsageError if the text is not a key, > or <, and a number.
    """
    for sign in (">", "<"):
        metric, separator, number = text.partition(sign)
        if separator:
            try:
                threshold = float(number)
            except ValueError:
                break
            if math.isnan(threshold):
                break
            return metric.strip(), _above(threshold) if sign == ">" else _below(threshold)
    raise UsageError(f"train.track_until: {text!r} is not a comparison; write e.g. 'valid/log_likelihood>-7'")


def first_passing(target: str, lines: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first line of metrics.jsonl whose metric has passed the threshold; None if none has."""
    key, passes = parse_threshold(target)
    return next((line for line in lines if isinstance(value := line.get(key), int | float) and passes(value)), None)


def _above(threshold: float) -> Callable[[float], bool]:
    return lambda value: value > threshold


def _below(threshold: float) -> Callable[[float], bool]:
    return lambda value: value < threshold
