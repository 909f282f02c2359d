"""Signs that a run has diverged although every number stayed finite.

    likelihood   the mean held-out log p is below −(2 log V + SLACK): even guessing among V candidates gets −log V, and
                 a model that is only wrong, or was trained for ranks alone, stays within the same distance below that
    loss         the mean training loss of the last logged blocks is above that of the first block by more than RISE of
                 its size; negatives that follow the model grow harder, so with them by more than HARDER

Tasks without a log-likelihood among their scores are asked for FEW held-out examples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

from embtrain.common.types import Score
from embtrain.evaluate import heldout
from embtrain.experiment.run import scoring
from embtrain.experiment.run.components import Parts
from embtrain.train.checks.divergence_remedies import lower_rate_hint
from embtrain.train.state.metrics_log import read
from embtrain.train.state.position import Position

SLACK = 10.0   # nats
RISE = 0.2
HARDER = 2.0
FEW = 256      # held-out examples
LAST = 5       # logged blocks

_log = logging.getLogger("embtrain")


def rows(made: Parts, folder: Path, scores: Sequence[Score], position: Position) -> list[Score]:
    """A row `training/warning` for each sign; each is a warning on the terminal too."""
    found = [text for text in (_likelihood(made, scores), _loss(made, folder, position)) if text]
    for text in found:
        _log.warning("warning: %s: %s", folder, text)
    return [Score("training", "warning", None, n=position.examples, note=text) for text in found]


def _likelihood(made: Parts, scores: Sequence[Score]) -> str:
    value, even = _log_p(made, scores), -math.log(made.world.n_candidates)
    if value is None or value >= 2 * even - SLACK:
        return ""
    known = f"is {value:.4g}, far below" if math.isfinite(value) else "is not finite, instead of near"
    return (f"the held-out log-likelihood {known} the {even:.4g} of guessing evenly: the training has diverged, and "
            f"its scores mean little; {lower_rate_hint(made.train)}")


def _log_p(made: Parts, scores: Sequence[Score]) -> float | None:
    """The mean log p of held-out examples, NaN taken for −∞; None where nothing is held out."""
    stated = [row for row in scores if row.metric == "log_likelihood" and row.benchmark in ("valid", "test") and row.n]
    if stated:
        return min(-math.inf if row.value is None else row.value for row in stated)
    for part in ("test", "valid"):
        batch = made.task.heldout(part)
        if len(batch):
            query = scoring.ask(made, batch.rows(slice(0, FEW)))
            value = float(heldout.ranks(scoring.logits(made, corrected=True), query).log_p.mean())
            return -math.inf if math.isnan(value) else value
    return None


def _loss(made: Parts, folder: Path, position: Position) -> str:
    first, lines = position.first_loss, read(folder / "metrics.jsonl")
    last = [line["loss"] for line in lines if isinstance(line.get("loss"), float)][-LAST:]
    if first is None or not last:
        return ""
    end = sum(last) / len(last)
    follows = made.source.uses_model or made.source.learns
    if end <= first + (HARDER if follows else RISE) * max(abs(first), 0.1):
        return ""
    return (f"the training loss ends at {end:.4g}, above the {first:.4g} of the first block: the training has "
            f"diverged; {lower_rate_hint(made.train)}")
