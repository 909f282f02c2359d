"""train.target: a measure and the value at which a run has come far enough, such as 'valid/log_likelihood>-7'."""

from __future__ import annotations

import math
from collections.abc import Callable

from embtrain.common.errors import UsageError


def target(text: str) -> tuple[str, Callable[[float], bool]]:
    """'valid/mrr>.1' -> the key, and whether a value passes."""
    for sign in (">", "<"):
        key, found, bound = text.partition(sign)
        if found:
            try:
                limit = float(bound)
            except ValueError:
                break
            if math.isnan(limit):
                break
            return key.strip(), limit.__lt__ if sign == ">" else limit.__gt__
    raise UsageError(f"train.target: {text!r} is no comparison; write one such as 'valid/log_likelihood>-7'")
