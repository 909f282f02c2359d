"""Number formats with as many decimals as the spread between seeds allows: two digits of the sd."""

from __future__ import annotations

import math
import re

from embtrain.evaluate.statistics.difference import Difference
from embtrain.report.charts import curves
from embtrain.report.format import number
from embtrain.report.load.comparison import BARE_SUFFIX, Results

MAX_DECIMALS = 6           # decimals
SCORED_PART = {"test": "test", "valid": "validation", "heldout": "held-out"}
NAMED = {"training/cpu_seconds": "CPU seconds of training", "training/seconds": "seconds of training"}


class Decimals:
    def __init__(self, results: Results):
        spread: dict[str, list[float]] = {}
        for mean in results.summary:
            if mean.sd is not None and mean.sd > 0:
                spread.setdefault(mean.metric, []).append(mean.sd)
        self._by_metric = {metric: _decimals(min(sds)) for metric, sds in spread.items()}

    def format(self, metric: str, value: float | None, extra: int = 0) -> str:
        """Format a value of a metric, with `extra` more decimals than its spread between seeds allows."""
        if value is None or not math.isfinite(value):
            return "–"
        decimals = self._by_metric.get(metric)
        if decimals is None or abs(value) >= 1e9:
            return _minus(number(value))
        return _minus(f"{value:,.{min(MAX_DECIMALS, decimals + extra)}f}")

    def format_interval(self, metric: str, low: float | None, high: float | None) -> str:
        return "–" if low is None or high is None else f"[{self.format(metric, low)}, {self.format(metric, high)}]"

    def format_difference(self, d: Difference, value: float | None) -> str:
        """Signed, with the decimals that suit the spread of the differences."""
        if value is None:
            return "–"
        if value == 0:
            return "0"
        spread = d.sd if d.sd else abs(value)
        if abs(value) >= 1e9 or spread <= 0:
            return _minus(f"{value:+.3g}")
        if d.kind == "items":  # the sd of items far exceeds that of their mean, so use the interval
            spread = (d.high - d.low) / 4 if d.low is not None and d.high is not None and d.high > d.low else spread
        return _minus(f"{value:+,.{_decimals(spread)}f}")


def _decimals(spread: float) -> int:
    return max(0, min(MAX_DECIMALS, 1 - math.floor(math.log10(spread))))


def _minus(figures: str) -> str:
    return figures.replace("-", "−") if figures != "-" else "–"


def true_minus(sentence: str) -> str:
    """Use a minus sign before numbers; hyphens in names are kept."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "−", sentence)


def p_value(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def heading(key: str) -> str:
    """The metric label as a heading; names of benchmarks are not capitalized."""
    words = metric_label(key)
    return words[:1].upper() + words[1:] if key in NAMED or key.partition("/")[0] in SCORED_PART else words


def metric_label(key: str) -> str:
    """test/log_likelihood -> test log-likelihood; names of benchmarks are kept."""
    if key in NAMED:
        return NAMED[key]
    base = key.removesuffix(BARE_SUFFIX)
    part, slash, rest = base.partition("/")
    words = f"{SCORED_PART.get(part, part)} {curves.metric(rest)}" if slash else curves.metric(base)
    return words.replace("/", " ") + (", bare scores" if base != key else "")
