"""Scores over seeds, and the difference of embtrain and a rival."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embtrain.cli.bench.harness.base import Timed, Work, digits
from embtrain.evaluate.statistics.difference import A_BEATS_B, B_BEATS_A
from embtrain.evaluate.statistics.significance import paired_t

VERDICTS = {A_BEATS_B: "better", B_BEATS_A: "worse"}  # the others are sentences already


def over_seeds(train: Callable[..., Timed], score: Callable[[Mapping[str, float]], float], values: list[float]) -> Work:
    """Work that calls `train` with seed 1, 2, … and appends the score of its quality to `values`."""
    def work() -> Timed:
        timing = train(seed=len(values) + 1)
        values.append(score(timing.quality))
        return timing
    return work


def difference(ours: Sequence[float], rival: Sequence[float], metric: str) -> dict[str, Any]:
    """Mean of ours − rival, paired by seed, with its t interval and a verdict."""
    found = paired_t(dict(enumerate(ours)), dict(enumerate(rival)), ("ours", "rival"), metric)
    return {"mean": _shown(found.mean), "low": _shown(found.low), "high": _shown(found.high),
            "verdict": VERDICTS.get(found.verdict, found.verdict)}


def _shown(x: float | None) -> float | None:
    return None if x is None else digits(x)
