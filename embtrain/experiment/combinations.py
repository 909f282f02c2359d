"""Which source fits which loss, and which model fits both: the matrix that `embtrain list` prints.

A cell asks train/refuse.py itself, over a world that is never trained on: with every source and loss as they are unless
set otherwise, and with the mask that suits the loss. A model stands for every geometry that a key of its can give it.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Sequence
from typing import get_args

import torch

from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.models import base as models
from embtrain.models.base import Model, ModelConfig
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativeSource
from embtrain.report.tables import WIDTH
from embtrain.train.refuse import refusals
from embtrain.types import World

V = 1024                            # candidates: as many as the hungriest default wants
MASKS = ("target", "none")
KEYS = ("similarity", "norm")       # of a model: how its scores depend on its vectors
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Fitting(Model):
    """A model whose geometry and table are whatever is asked for."""

    name = "any"

    def __init__(self, geometry: str, fixed: bool, world: World):
        super().__init__(ModelConfig(name="any"), world)
        self.geometry, self.fixed = geometry, fixed  # type: ignore[assignment]


def matrix() -> str:
    """Sources × losses with a number for each refusal and what it means, then sources and losses × models."""
    world = _world()
    of_loss = {name: losses.find(name)(losses.find(name).Config(name=name), world) for name in losses.names()}
    why: dict[str, int] = {}
    rows = []
    for name in negatives.names():
        cells = []
        for loss in of_loss.values():
            reason = _refused(name, loss, world)
            cells.append("." if not reason else str(why.setdefault(reason, len(why) + 1)))
        rows.append((name, cells))
    lines = ["sources × losses, as they are unless set otherwise; . fits, a number is refused:",
             *_grid(rows, list(of_loss))]
    lines += [piece for reason, number in why.items() for piece in _wrapped(f"{number}  {reason}", "     ")]
    return "\n".join([*lines, "", *_by_model(of_loss, world)])


def about(owner: type) -> str:
    """The first line of the docstring of a component's module: what it is."""
    return (inspect.getdoc(sys.modules[owner.__module__]) or "").split("\n")[0].rstrip(":")


def _world() -> World:
    counts = torch.full((V,), 9.0, dtype=torch.float64)
    return World(V, counts, V, raw_counts=counts, dim=4, seed=0)


def _refused(name: str, loss: Loss, world: World) -> str:
    """Why no mask makes this source fit a loss, with no name in it; '' where one does."""
    found = negatives.find(name)
    reasons: list[str] = []
    for mask in MASKS:
        source = found(found.Config(source=name, mask=mask), world)
        both = [set(part.geometry) for part in (source, loss) if part.geometry]
        geometry = sorted(set.intersection(*both)) if both else ["dot"]
        reasons = refusals(source, loss, Fitting(geometry[-1] if geometry else "l1", True, world))
        if not reasons:
            return ""
    return _nameless(reasons[0], source, loss)


def _nameless(reason: str, source: NegativeSource, loss: Loss) -> str:
    for told, plain in ((f"negatives.source: {source.name}", "the source"), (f"loss.name: {loss.name}", "the loss"),
                        ("model.name: any", "the model")):
        reason = reason.replace(told, plain, 1)
    return reason


def _by_model(of_loss: dict[str, Loss], world: World) -> list[str]:
    """Who does not fit every model: a row each."""
    names = models.names()
    parts: list[NegativeSource | Loss] = [negatives.find(name)(negatives.find(name).Config(source=name), world)
                                          for name in negatives.names()]
    rows = []
    for part in [*parts, *of_loss.values()]:
        fits = ["." if not part.geometry or part.geometry & geometries(models.find(name)) else "1" for name in names]
        if part.needs_fixed:
            fits = [fit if fit == "1" or hasattr(models.find(name).Config(), "targets") else "2"
                    for fit, name in zip(fits, names, strict=True)]
        if set(fits) != {"."}:
            rows.append((part.name, fits))
    return ["sources and losses × models; who is not here fits all of them:", *_grid(rows, names),
            "  1  needs another geometry of the scores",
            "  2  needs a table of targets that is given: model.targets.frozen"]


def geometries(model: type[Model]) -> set[str]:
    """What a model's scores may be."""
    fields = model.Config.model_fields
    named = [set(map(str, get_args(fields[key].annotation))) for key in KEYS if key in fields]
    return set.union(*named) if named else {str(model.geometry)}


def _grid(rows: Sequence[tuple[str, Sequence[str]]], names: Sequence[str]) -> list[str]:
    wide = max(len(name) for name, _ in rows)
    legend = ", ".join(f"{letter}\u00a0{name}" for letter, name in zip(LETTERS, names, strict=False))
    head = " ".join([" " * (wide + 2), *(f"{letter:>2}" for letter in LETTERS[:len(names)])])
    return [*(line.replace("\u00a0", " ") for line in _wrapped(legend, "  ")), head,
            *(" ".join([f"  {name:<{wide}}", *(f"{cell:>2}" for cell in cells)]) for name, cells in rows)]


def _wrapped(text: str, inner: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=inner, break_on_hyphens=False)
