"""Signs that a run has diverged although every number stayed finite.

    likelihood   the mean held-out log p is below −(2 log V + SLACK): a uniform guess among V candidates gets −log V,
                 and a model that is only wrong stays within that distance below it. Scores of a loss that estimates no
                 probability have any scale: for it the bound is UNSCALED times as low, and the mean rank of held-out
                 targets must also be above WORST_RANK of V. Where log q of a target is −∞ and its bare scores are
                 finite, the source is the reason, not the training
    loss         the mean training loss of the last logged blocks is above that of the first block by more than RISE of
                 its size; negatives that follow the model grow harder, so with them by more than HARDER

If the scores of a task include no log-likelihood, it is computed on CHECKED_EXAMPLES held-out examples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embtrain.common.types import Score
from embtrain.evaluate import heldout
from embtrain.experiment.run import scoring
from embtrain.experiment.run.components import Components
from embtrain.train.checks.divergence_remedies import lower_rate_hint
from embtrain.train.loop import Position
from embtrain.train.state.metrics_log import read

SLACK = 10.0   # nats
# Of 40 entities, where the bound is -1,740, margin losses with a rate of 1000 had a log p of -4,900 to -6e10 and a mean
# rank of .2 to .6 of V. Sound runs had -3 to -140, but a ComplEx of 1,000 dimensions -2,400 with a rank of .04 of V.
UNSCALED = 100.0
WORST_RANK = 0.1
RISE = 0.2
HARDER = 2.0
LAST_BLOCKS = 5       # logged blocks

_log = logging.getLogger("embtrain")


def rows(parts: Components, folder: Path, scores: Sequence[Score], position: Position) -> list[Score]:
    """One row `training/warning` for each sign; each is also logged as a warning."""
    signs = [text for text in (_likelihood(parts, scores), _loss(parts, folder, position)) if text]
    for text in signs:
        _log.warning("warning: %s: %s", folder, text)
    return [Score("training", "warning", None, n=position.examples, note=text) for text in signs]


def _likelihood(parts: Components, scores: Sequence[Score]) -> str:
    value, even = _log_p(parts, scores), -math.log(parts.problem.n_candidates)
    has_scale = scoring.estimates_probabilities(parts)
    if value is None or value >= (1.0 if has_scale else UNSCALED) * (2 * even - SLACK):
        return ""
    checked = None if has_scale or not math.isfinite(value) else _checked(parts)
    if checked is not None and float(checked.rank.mean()) <= WORST_RANK * checked.V:
        return ""
    if not math.isfinite(value) and (reason := _undrawn(parts)):
        return reason
    level = f"is {value:.4g}, far below" if math.isfinite(value) else "is not finite, but should be near"
    return (f"the held-out log-likelihood {level} the {even:.4g} of a uniform guess: the training has diverged, and "
            f"its scores mean little; {lower_rate_hint(parts.train)}")


def _undrawn(parts: Components) -> str:
    """The reason for a log p that is not finite, if the source is the reason, not the scores; else ''."""
    for part in ("test", "valid"):
        batch = parts.task.heldout(part)
        if len(batch) and (targets := scoring.undrawn_targets(parts, batch)):
            query = scoring.encode_heldout(parts, batch)
            if np.isfinite(heldout.ranks(scoring.logits(parts, corrected=False), query).log_p).all():
                return (f"the held-out log-likelihood is not finite: {part}: {targets}, and log q is added to the "
                        f"scores of {parts.loss.name}; choose negatives that draw every candidate, e.g. "
                        "negatives.source: uniform")
    return ""


def _log_p(parts: Components, scores: Sequence[Score]) -> float | None:
    """Mean log p of held-out examples, NaN taken as −∞; None if nothing is held out."""
    stated = [row for row in scores if row.metric == "log_likelihood" and row.benchmark in ("valid", "test") and row.n]
    if stated:
        return min(-math.inf if row.value is None else row.value for row in stated)
    checked = _checked(parts)
    value = math.nan if checked is None else float(checked.log_p.mean())
    return None if checked is None else -math.inf if math.isnan(value) else value


def _checked(parts: Components) -> heldout.PairRanks | None:
    """The likelihoods and ranks of CHECKED_EXAMPLES held-out examples; None if nothing is held out."""
    for part in ("test", "valid"):
        batch = parts.task.heldout(part)
        if len(batch):
            query = scoring.encode_heldout(parts, batch.rows(slice(0, scoring.CHECKED_EXAMPLES)))
            return heldout.ranks(scoring.logits(parts, corrected=True), query)
    return None


def _loss(parts: Components, folder: Path, position: Position) -> str:
    first_loss, lines = position.first_loss, read(folder / "metrics.jsonl")
    last = [line["loss"] for line in lines if isinstance(line.get("loss"), float)][-LAST_BLOCKS:]
    if first_loss is None or not last:
        return ""
    end = sum(last) / len(last)
    follows = parts.source.traits.uses_model or parts.source.traits.learns
    if end <= first_loss + (HARDER if follows else RISE) * max(abs(first_loss), 0.1):
        return ""
    return (f"the training loss ends at {end:.4g}, above the {first_loss:.4g} of the first block: the training has "
            f"diverged; {lower_rate_hint(parts.train)}")
