"""`embtrain list`: available names and combinations, as data and as text for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.common.terminal import WIDTH
from embtrain.experiment.catalogue.components import KINDS, about_components

# `group` of a strategy's file -> title, in the order of the listing.
GROUPS = {
    "static": "fixed noise, the same for every query",
    "adversarial": "adversaries that are trained to draw hard negatives",
    "softmax": "the softmax, approximated by kernels, trees, clusters",
    "hard": "hard negatives; negatives from the batch or a file",
    "full": "every candidate, without sampling",
    "graph": "for triples of a graph (--model transe, ...)",
    "hierarchy": "for hierarchies (--model order)",
    "translator": "for outputs that are vectors (--model nmt, lm)",
    "ablation": "ablations of ACE: a part is left out or replaced",
}
ABLATION = "ablation"  # listed by name alone
TITLES = {"models": "models (--model)", "sources": "sources (negatives.source)", "losses": "losses (--loss)"}
NAMED = {"corpora": "corpora (--corpus)", "benchmarks": "benchmarks (evaluate.benchmarks)",
         "papers": "papers (embtrain reproduce)"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
INDENT = 30  # columns before a description
SENTENCE_END = re.compile(r"\.(?= [A-Z]|$)")


def listing(with_combinations: bool = False) -> dict[str, Any]:
    """Strategies with their group, source and loss; models, sources and losses, each with one line; names of corpora,
    benchmarks and papers. with_combinations adds `refused`: combinations that do not fit, with the reason.
    """
    available = {"strategies": sorted(map(_strategy, shipped.names("configs", "strategies")), key=_group_order),
                 **{kind: [{"name": name, "about": about} for name, about in about_components(kind).items()]
                    for kind in KINDS},
                 "corpora": shipped.names("corpora"), "benchmarks": shipped.names("evals"),
                 "papers": shipped.names("configs", "paper"), "tuned": shipped.tuned_names()}
    if with_combinations:
        # Lazy, because it imports PyTorch and builds every component: seconds that the names do not need.
        from embtrain.experiment.catalogue import combinations

        available["refused"] = {"losses": combinations.by_loss(), "models": combinations.by_model()}
    return available


def _strategy(name: str) -> dict[str, str]:
    path = shipped.path("configs", name, "strategies")
    tree = read_yaml(path).tree
    if (group := tree.get("group")) not in GROUPS:
        raise UsageError(f"{path}: group: should be one of {', '.join(GROUPS)}, got {group!r}")
    return {"name": name, "group": group, "source": tree["negatives"]["source"],
            "loss": tree["loss"]["name"], "about": _description(path)}


def _group_order(strategy: Mapping[str, str]) -> int:
    return list(GROUPS).index(strategy["group"])


def _description(path: Path) -> str:
    """The sentences that begin in the first line of a file, a comment, complete even if they end in a later line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    n_comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    comments = [line.removeprefix("#").strip() for line in lines[:n_comments]]
    text = " ".join(comments)
    end = next((match.end() for match in SENTENCE_END.finditer(text) if match.end() >= len(comments[0])), len(text))
    return text[:end]


def format_text(components: Mapping[str, Any], width: int = WIDTH) -> str:
    """Format the listing in lines of at most `width` columns."""
    lines = ["strategies (--negatives), with their source and loss"]
    for group, title in GROUPS.items():
        entries = [entry for entry in components["strategies"] if entry["group"] == group]
        lines += ["", f" {title}"]
        lines += _wrapped(", ".join(_names(entries)), width) if group == ABLATION else [
            line for entry in entries
            for line in _entry(entry["name"], f"{entry['about']} ({entry['source']} + {entry['loss']})", width)]
    for kind, title in TITLES.items():
        lines += ["", title, *(line for entry in components[kind]
                               for line in _entry(entry["name"], entry["about"], width))]
    if "refused" in components:
        lines += ["", "sources × losses, default settings; . supported, numbers: reasons below",
                  *_grid(components["refused"]["losses"], _names(components["sources"]), _names(components["losses"]),
                         width), "",
                  "sources and losses × models; those not listed support all models:",
                  *_grid(components["refused"]["models"], list(components["refused"]["models"]),
                         _names(components["models"]), width)]
    for kind, title in NAMED.items():
        lines += ["", title, *_wrapped(", ".join(components[kind]), width)]
    lines += ["", "tuned settings (--tuned), with their corpora",
              *(line for model, corpora in components["tuned"].items()
                for line in _entry(model, ", ".join(corpora), width))]
    return "\n".join([*lines, "", "combinations of these: embtrain list --combinations",
                      "keys of a strategy: embtrain config show --negatives NAME",
                      "next: embtrain fit --negatives NAME --dry-run"])


def _names(entries: Sequence[Mapping[str, str]]) -> list[str]:
    return [entry["name"] for entry in entries]


def _grid(refused: Mapping[str, Mapping[str, str]], rows: Sequence[str], columns: Sequence[str], width: int
          ) -> list[str]:
    """One row of cells per name, `.` or the number of a reason; then the reasons."""
    numbers: dict[str, int] = {}
    name_width, lines = max(map(len, rows), default=0), list[str]()
    for name in rows:
        reasons = [refused.get(name, {}).get(other, "") for other in columns]
        cells = [str(numbers.setdefault(reason, len(numbers) + 1)) if reason else "." for reason in reasons]
        lines.append(" ".join([f"  {name:<{name_width}}", *(f"{cell:>2}" for cell in cells)]))
    legend = ", ".join(f"{letter}\u00a0{name}" for letter, name in zip(LETTERS, columns, strict=False))
    head = " ".join([" " * (name_width + 2), *(f"{letter:>2}" for letter in LETTERS[:len(columns)])])
    return [*(line.replace("\u00a0", " ") for line in _wrapped(legend, width)), head, *lines,
            *(piece for reason, number in numbers.items() for piece in _wrapped(f"{number}  {reason}", width, "     "))]


def _wrapped(text: str, width: int, inner: str = "  ") -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent=inner, break_on_hyphens=False)


def _entry(name: str, description: str, width: int) -> list[str]:
    return textwrap.wrap(f"{name:<{INDENT - 2}}{description}", width, initial_indent="  ",
                         subsequent_indent=" " * INDENT, break_on_hyphens=False, drop_whitespace=True)
