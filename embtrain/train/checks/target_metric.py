"""train.track_until: a metric and the value that counts as reached, for example 'valid/log_likelihood>-7'."""

from __future__ import annotations

import math
from collections.abc import Callable

from embtrain.common.errors import UsageError


def parse_threshold(text: str) -> tuple[str, Callable[[float], bool]]:
    """Parse 'valid/mrr>.1' into the metric's key and a predicate of its value. UsageError if it is not a comparison."""
    for sign in (">", "<"):
        key, separator, number = text.partition(sign)
        if separator:
            try:
                limit = float(number)
            except ValueError:
                break
            if math.isnan(limit):
                break
            return key.strip(), limit.__lt__ if sign == ">" else limit.__gt__
    raise UsageError(f"train.track_until: {text!r} is not a comparison; write e.g. 'valid/log_likelihood>-7'")
