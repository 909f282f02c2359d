"""Combinations of source, loss and model that are invalid, each with a one-line reason, before training starts."""

from __future__ import annotations

from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource

RANKING_TASKS = ("triples", "pairs", "translation")  # tasks that rank candidates by the raw score


def incompatibilities(source: NegativeSource, loss: Loss, model: Model) -> list[str]:
    """Reasons why this combination is invalid, one line each; empty if it is valid."""
    reasons, offers, needs = list[str](), source.traits, loss.traits
    mask, source_label, loss_label = source.config.filter, f"negatives.source: {source.name}", f"loss.name: {loss.name}"
    if offers.components and needs.candidate_scope == "target":
        reasons.append(
            f"{loss_label} uses only the target, but {source_label} draws negatives; set negatives.source: none"
        )
    elif not offers.components and needs.candidate_scope == "drawn":
        reasons.append(f"{source_label} draws nothing, but {loss_label} needs negatives; use negatives.source: unigram")
    elif needs.needs_q != "no" and offers.density == "none":
        remedy = "negatives.mix above 0, or " if getattr(source.config, "mix", None) == 0 else ""
        reasons.append(f"{source_label} states no probabilities, but {loss_label} corrects for them; use {remedy}"
                       "loss.name: logistic")
    elif needs.needs_q == "target" and offers.density == "conditional":
        remedy = "exclude_target: false" if getattr(source.config, "exclude_target", False) else "replacement: true"
        reasons.append(f"{source_label} with these settings has no probability for the target, but {loss_label} needs "
                       f"one; use negatives.{remedy}, or loss.name: logistic")
    if needs.needs_iid and offers.components and not offers.iid:
        reasons.append(
            f"{loss_label} in this form needs negatives drawn independently from one q with weight 1, but "
            f"{source_label} does not draw like this; use loss.form: sampled with negatives.filter: target"
        )
    if needs.accidental_hits == "masked" and mask == "none":
        reasons.append(f"{loss_label} in this form needs accidental hits of the target masked; set negatives.filter: "
                       "target")
    if needs.accidental_hits == "kept" and mask != "none":
        reasons.append(f"{loss_label} in this form needs accidental hits of the target kept; set "
                       "negatives.filter: none")
    if needs.candidate_scope == "every" and offers.components and not offers.exhaustive:
        reasons.append(f"{loss_label} needs every candidate as a negative, but {source_label} draws some; set "
                       "negatives.source: every")
    if needs.candidate_scope == "every" and needs.estimates_log_prob and mask == "observed":
        reasons.append(f"{loss_label} is not a probability if candidates are masked; set negatives.filter: none")
    if not needs.monotone and model.task in RANKING_TASKS:
        reasons.append(f"loss.absolute: model.name: {model.name} ranks candidates by their scores, not by absolute "
                       "scores; set it to false")
    for part, label in ((source, source_label), (loss, loss_label)):
        if (geometry := part.traits.geometry) and model.geometry not in geometry:
            reasons.append(f"{label} needs scores that are one of {', '.join(sorted(geometry))}, but model.name: "
                           f"{model.name} scores by {model.geometry}")
        if part.traits.needs_frozen_table and not model.has_frozen_table:
            reasons.append(f"{label} needs a given, frozen table of targets, but model.name: {model.name} "
                           f"{_table_remedy(model)}")
    return reasons


def _table_remedy(model: Model) -> str:
    """The reason why the model's table is not fixed, and a remedy: the end of a sentence."""
    if not hasattr(model.config, "output_table"):
        return "learns its own; use another model, e.g. skipgram"
    return ("learns it with these settings; set model.output_table.frozen: true and model.output_table.kind: sphere, "
            "or pretrained with a file")
