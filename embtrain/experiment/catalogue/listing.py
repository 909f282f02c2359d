"""`embtrain list`: available names and combinations, as data and as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.experiment.catalogue import combinations
from embtrain.experiment.catalogue.combinations import Refused
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.format import WIDTH

COMPONENTS = {"models": models, "sources": negatives, "losses": losses}
TITLES = {"models": "models (--model)", "sources": "sources (negatives.source)", "losses": "losses (--loss)"}
NAMED = {"corpora": "corpora (--corpus)", "benchmarks": "benchmarks (evaluate.benchmarks)",
         "papers": "papers (embtrain reproduce)"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def listing() -> dict[str, Any]:
    """Strategies with their source and loss; models, sources and losses, each with one line; names of corpora,
    benchmarks and papers. `refused`: combinations that do not fit, with the reason.
    """
    return {"strategies": [_strategy(name) for name in shipped.names("configs", "strategies")],
            **{kind: [{"name": name, "about": combinations.about(module.find(name))} for name in module.names()]
               for kind, module in COMPONENTS.items()},
            "refused": {"losses": combinations.by_loss(), "models": combinations.by_model()},
            "corpora": shipped.names("corpora"), "benchmarks": shipped.names("evals"),
            "papers": shipped.names("configs", "paper")}


def _strategy(name: str) -> dict[str, str]:
    path = shipped.path("configs", name, "strategies")
    tree = read_yaml(path).tree
    description = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    return {"name": name, "source": tree["negatives"]["source"], "loss": tree["loss"]["name"], "about": description}


def format_text(components: Mapping[str, Any]) -> str:
    """Format the listing in lines no wider than a terminal."""
    lines = ["strategies (--negatives)"]
    for entry in components["strategies"]:
        lines += _entry(entry["name"], f"{entry['source']} + {entry['loss']}: {entry['about']}")
    for kind, title in TITLES.items():
        lines += [title, *(line for entry in components[kind] for line in _entry(entry["name"], entry["about"]))]
    lines += ["sources × losses, default settings; . supported, numbers: reasons below",
              *_grid(components["refused"]["losses"], _names(components["sources"]), _names(components["losses"])), "",
              "sources and losses × models; those not listed support all models:",
              *_grid(components["refused"]["models"], list(components["refused"]["models"]),
                     _names(components["models"]))]
    for kind, title in NAMED.items():
        lines += [title, *textwrap.wrap(", ".join(components[kind]), WIDTH, initial_indent="  ", subsequent_indent="  ",
                                        break_on_hyphens=False)]
    return "\n".join([*lines, "next: embtrain fit --negatives NAME --dry-run"])


def _names(entries: Sequence[Mapping[str, str]]) -> list[str]:
    return [entry["name"] for entry in entries]


def _grid(refused: Refused, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """One row of cells per name, `.` or the number of a reason; then the reasons."""
    numbers: dict[str, int] = {}
    width, lines = max(map(len, rows), default=0), list[str]()
    for name in rows:
        reasons = [refused.get(name, {}).get(other, "") for other in columns]
        cells = [str(numbers.setdefault(reason, len(numbers) + 1)) if reason else "." for reason in reasons]
        lines.append(" ".join([f"  {name:<{width}}", *(f"{cell:>2}" for cell in cells)]))
    legend = ", ".join(f"{letter}\u00a0{name}" for letter, name in zip(LETTERS, columns, strict=False))
    head = " ".join([" " * (width + 2), *(f"{letter:>2}" for letter in LETTERS[:len(columns)])])
    return [*(line.replace("\u00a0", " ") for line in _wrapped(legend, "  ")), head, *lines,
            *(piece for reason, number in numbers.items() for piece in _wrapped(f"{number}  {reason}", "     "))]


def _wrapped(text: str, inner: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=inner, break_on_hyphens=False)


def _entry(name: str, description: str) -> list[str]:
    return textwrap.wrap(f"{name:<28}{description}", WIDTH, initial_indent="  ", subsequent_indent=" " * 30,
                         break_on_hyphens=False, drop_whitespace=True)
