"""Combinations of source, loss and model that are invalid, each with a one-line reason, before training starts."""

from __future__ import annotations

from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource

RANKING_TASKS = ("triples", "pairs", "translation")  # tasks that rank candidates by the raw score


def incompatibilities(source: NegativeSource, loss: Loss, model: Model) -> list[str]:
    """Reasons why this combination is invalid, one line each; empty if it is valid."""
    reasons = []
    mask, source_label, loss_label = source.config.filter, f"negatives.source: {source.name}", f"loss.name: {loss.name}"
    if source.components and loss.candidate_scope == "target":
        reasons.append(
            f"{loss_label} looks at the right answer alone, and {source_label} draws others; set negatives.source: none"
        )
    elif not source.components and loss.candidate_scope == "drawn":
        reasons.append(f"{source_label} draws nothing, and {loss_label} needs negatives; use negatives.source: unigram")
    elif loss.needs_q != "no" and source.density == "none":
        reasons.append(
            f"{source_label} states no probabilities, and {loss_label} corrects for them; use loss.name: logistic"
        )
    elif loss.needs_q == "target" and source.density == "conditional":
        remedy = "exclude_target: false" if getattr(source.config, "exclude_target", False) else "replacement: true"
        reasons.append(f"{source_label} as set has no probability for the target, and {loss_label} needs one; "
                       f"use negatives.{remedy}, or loss.name: logistic")
    if loss.needs_iid and source.components and not source.iid:
        reasons.append(
            f"{loss_label} in this form needs columns drawn independently from one q with weight 1, and {source_label} "
            "as set draws otherwise; use loss.form: sampled with negatives.filter: target"
        )
    if loss.accidental_hits == "forgiven" and mask == "none":
        reasons.append(f"{loss_label} in this form needs the target's own hits forgiven; set negatives.filter: target")
    if loss.accidental_hits == "kept" and mask != "none":
        reasons.append(f"{loss_label} in this form needs the target's own hits kept; set negatives.filter: none")
    if loss.candidate_scope == "every" and source.components and not source.exhaustive:
        reasons.append(f"{loss_label} needs every candidate as a column, and {source_label} draws some; "
                       "set negatives.source: every")
    if loss.candidate_scope == "every" and loss.estimates_log_prob and mask == "observed":
        reasons.append(f"{loss_label} over forgiven answers is no probability; set negatives.filter: none")
    if not loss.monotone and model.task in RANKING_TASKS:
        reasons.append(f"loss.absolute: answers of model.name: {model.name} are ranked by their scores, not by the "
                       "sizes of these; set it to false")
    for part, label in ((source, source_label), (loss, loss_label)):
        if part.geometry and model.geometry not in part.geometry:
            reasons.append(f"{label} needs scores that are one of {', '.join(sorted(part.geometry))}, "
                           f"and model.name: {model.name} scores by {model.geometry}")
        if part.needs_frozen_table and not model.has_frozen_table:
            reasons.append(f"{label} needs a table of targets that is given and stays as it is, and model.name: "
                           f"{model.name} {_table_remedy(model)}")
    return reasons


def _table_remedy(model: Model) -> str:
    """Why the model's table is not fixed, and how to fix it; the end of a sentence."""
    if not hasattr(model.config, "output_table"):
        return "learns its own; use another model, such as skipgram"
    return ("as set learns it; set model.output_table.frozen: true and model.output_table.kind: sphere, or pretrained "
            "with a file")
