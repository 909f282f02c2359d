"""Curves of a run: keys of metrics.jsonl grouped into figures, and their names."""

from __future__ import annotations

from dataclasses import dataclass

from embtrain.common.types import ORIGINS
from embtrain.report.format import ROW_ORIGINS
from embtrain.report.load.run import Curve

COMPONENT = {"noise": "noise samples", "generator": "adversarial samples", "probe": "greedy probe",
             "synthetic": "synthetic samples"}
TITLE = {
    "loss": "Training loss",
    "source/entropy": "Entropy of the generator, nats",
    "source/hinge": "Entropy below its floor, nats",
    "source/reward": "Reward of adversarial samples",
    "source/advantage": "Advantage: reward less baseline",
    "source/advantage_sd": "Spread (sd) of the advantage",
    "source/false_negatives": "Share of false negatives",
    "source/clipped": "Share of importance weights clipped",
    "hardness/loss": "Hardness: mean loss",
    "hardness/rank": "Hardness: mean rank",
    "hardness/cosine": "Hardness: mean cosine to the target",
    "hardness/cosine_sd": "Spread (sd) of the cosine to the target, λ₃",
    "hardness/lambda4": "Mean cosine to the error of the prediction, λ₄",
    "hardness/lambda4_sd": "Spread (sd) of λ₄",
    "hardness/rest": "Mean length of the remainder, ‖y‖",
    "source/reversed": "Share of predictions beyond 135°",
    "masked": "Share of negatives masked",
    "lr": "Learning rate",
}
METRIC = {"spearman": "Spearman's\N{NO-BREAK SPACE}ρ", "mrr": "mean reciprocal rank", "mr": "mean rank",
          "spearman/composed": "Spearman's\N{NO-BREAK SPACE}ρ, missing words composed from n-grams",
          "amri": "adjusted mean rank index",
          "log_likelihood": "log-likelihood", "ap": "average precision", "f1": "F1", "log_z": "log Z",
          "log_z_mean": "mean log Z",
          "log_z_abs": "mean |log Z|", "log_z_sd": "spread of log Z", "learned_log_z": "learned log Z",
          "log_sum_mean": "mean log of the summed e^s",
          "bleu": "BLEU", "bleu_cased": "BLEU, with case", "chrf": "chrF",
          "similarity_right": "cosine to the nearest if correct", "similarity_wrong": "cosine to the nearest if wrong",
          "similarity_target": "cosine to the target if missed", "sd": "spread (sd)"}
PART = {"heldout": "held-out", "valid": "validation", "source": "", "hardness": ""}
SOURCE = ("source", "hardness", "masked")  # first parts of the keys that describe the drawn columns
# Held-out measures that get large panels.
MAIN = ("bleu", "perplexity", "log_likelihood", "mrr", "hits@10", "accuracy", "accuracy@1")


@dataclass(frozen=True)
class CurveGroup:
    """Curves that share a panel: one measure, once for each component that drew the columns."""

    key: str                            # key of the measure, without the component
    title: str
    curves: tuple[tuple[str, Curve], ...]  # (label, curve)


@dataclass(frozen=True)
class Sections:
    """The curves of a run by section of its page."""
    loss: CurveGroup | None
    heldout: list[CurveGroup]      # MAIN ones
    components: CurveGroup | None  # the model's loss on noise samples and on adversarial samples
    source: list[CurveGroup]
    other: list[CurveGroup]


def grouped(curves: dict[str, Curve]) -> Sections:
    groups: dict[str, list[tuple[str, str]]] = {}
    for key in sorted(curves):
        base, component = _split_component(key)
        groups.setdefault(base, []).append((component, key))
    group_by_base = {base: CurveGroup(base, title(base), tuple((COMPONENT.get(c, title(base)), curves[key])
                                                               for c, key in sorted(keys, key=_order)))
                     for base, keys in groups.items()}
    loss, components = group_by_base.pop("loss", None), group_by_base.pop("loss/", None)
    first_part = {key: key.split("/")[0] for key in group_by_base}
    heldout = [key for key in sorted(group_by_base, key=_main_first) if first_part[key] in ("heldout", "valid")
               and key.split("/")[-1] in MAIN]
    source = [key for key in sorted(group_by_base, key=_known_first) if first_part[key] in SOURCE]
    other = [key for key in sorted(group_by_base) if key not in heldout and key not in source]
    return Sections(loss, [group_by_base[k] for k in heldout], components, [group_by_base[k] for k in source],
                    [group_by_base[k] for k in other])


def _split_component(key: str) -> tuple[str, str]:
    """'source/loss_noise' -> ('source/loss', 'noise'); 'loss/noise' -> ('loss/', 'noise'), apart from 'loss' itself."""
    for origin in ORIGINS:
        for joint in ("/", "_"):
            if key.endswith(joint + origin):
                base = key[: -len(joint + origin)]
                return ("loss/" if base == "loss" else base), origin
            if (joint + origin + "/") in key or (joint + origin + "_") in key:
                before, _, after = key.partition(joint + origin)
                return before + "/" + after[1:], origin
    return key, ""


def title(key: str) -> str:
    """A readable name for any key."""
    name = TITLE.get(key) or TITLE.get(key.replace("source/", "hardness/", 1))
    if name:
        return name
    base, _, end = key.rpartition("/")
    if base and end in ROW_ORIGINS:
        return f"{title(base)}, {ROW_ORIGINS[end]}"
    words = " ".join(w for part in key.split("/") if (w := PART.get(part, metric(part))))
    return words[:1].upper() + words[1:] if words else key


def metric(name: str) -> str:
    base, _, end = name.rpartition("/")
    if base and end in ROW_ORIGINS:
        return ", ".join([metric(base.partition("/")[0]), *filter(None, [base.partition("/")[2]]), ROW_ORIGINS[end]])
    measured, at, k = name.partition("@")
    return METRIC.get(measured, measured.replace("_", " ")) + at + k


def _order(entry: tuple[str, str]) -> int:
    return ORIGINS.index(entry[0]) if entry[0] in ORIGINS else -1


def _main_first(key: str) -> tuple[int, str]:
    return MAIN.index(key.split("/")[-1]) if key.split("/")[-1] in MAIN else len(MAIN), key


def _known_first(key: str) -> tuple[int, str]:
    known = list(TITLE)
    return (known.index(key) if key in known else len(known), key)
