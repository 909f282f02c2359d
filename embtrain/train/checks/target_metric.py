"""Parses train.track_until: a metric and a threshold, for example 'valid/log_likelihood>-7'.

The training loop uses it to record the first evaluation at which the metric has passed the threshold, with the step and
seconds up to then; a report compares these times. Training goes on to its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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


def _above(threshold: float) -> Callable[[float], bool]:
    return lambda value: value > threshold


def _below(threshold: float) -> Callable[[float], bool]:
    return lambda value: value < threshold
