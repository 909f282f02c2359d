"""Valid combinations of sources, losses and models, for `embtrain list --combinations` (listing.py).

Pairs are checked by train/checks/compatibility.py on a problem that is never trained: with the defaults of every source
and loss, and with the mask that suits the loss. A model is checked with every geometry that its keys can give it.
"""

from __future__ import annotations

import inspect
import sys
from typing import get_args

import numpy as np
import torch

from embtrain.common.candidate_lists import CandidateLists, FixedLists
from embtrain.common.traits import default_settings
from embtrain.common.types import ProblemSpec
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.models import base as models
from embtrain.models.base import Model, ModelConfig
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.compatibility import incompatibilities

V = 1024                            # candidates: enough for all defaults
MASKS = ("target", "none")
KEYS = ("similarity", "norm")       # keys of a model that set the geometry of its scores
COMPONENTS = {"models": models, "sources": negatives, "losses": losses}
Refused = dict[str, dict[str, str]]  # component -> other component that does not fit -> reason; only those with one


class AnyModel(Model):
    """A model with any geometry and either kind of table."""

    name = "any"

    def __init__(self, geometry: str, fixed: bool, problem: ProblemSpec):
        super().__init__(ModelConfig(name="any"), problem)
        self.geometry, self.has_frozen_table = geometry, fixed  # type: ignore[assignment]


def component_classes(kind: str) -> dict[str, type]:
    """Every component of a kind (models, sources or losses), by name. Imports them all."""
    return {name: COMPONENTS[kind].find(name) for name in COMPONENTS[kind].names()}


def by_loss() -> Refused:
    """For each source, the losses it does not fit by default."""
    problem = _problem()
    built = losses_by_name()
    return _non_empty({name: {loss_name: _refused(name, loss, problem) for loss_name, loss in built.items()}
                       for name in negatives.names()})


def by_model() -> Refused:
    """For each source and loss, the models it does not fit."""
    parts: list[NegativeSource | Loss] = [*sources().values(), *losses_by_name().values()]
    return _non_empty({part.name: {name: _unfit(part, models.find(name)) for name in models.names()}
                       for part in parts})


def _non_empty(refused: Refused) -> Refused:
    reasons_by_name = {name: {other: why for other, why in reasons.items() if why} for name, reasons in refused.items()}
    return {name: reasons for name, reasons in reasons_by_name.items() if reasons}


def sources() -> dict[str, NegativeSource]:
    """Every source with its defaults, by name."""
    return {name: (source := negatives.find(name))(default_settings(source.Config, source=name), _problem())
            for name in negatives.names()}


def losses_by_name() -> dict[str, Loss]:
    """Every loss with its defaults, by name."""
    return {name: (loss := losses.find(name))(default_settings(loss.Config, name=name), _problem())
            for name in losses.names()}


def about(owner: type) -> str:
    """The first line of a component's module docstring."""
    return (inspect.getdoc(sys.modules[owner.__module__]) or "").split("\n")[0].rstrip(":")


def _problem() -> ProblemSpec:
    counts = torch.full((V,), 9.0, dtype=torch.float64)
    ids = np.arange(V)
    lists = CandidateLists.from_entries((0,), ids[:, None], ids, np.ones(V))
    return ProblemSpec(V, counts, V, raw_counts=counts, dim=4, seed=0, lists=FixedLists(lists))


def _refused(name: str, loss: Loss, problem: ProblemSpec) -> str:
    """The reason why no mask makes this source fit a loss, without names; empty if one does."""
    source_class = negatives.find(name)
    reasons: list[str] = []
    for mask in MASKS:
        source = source_class(default_settings(source_class.Config, source=name, filter=mask), problem)
        geometries_of_both = [set(part.traits.geometry) for part in (source, loss) if part.traits.geometry]
        geometry = sorted(set.intersection(*geometries_of_both)) if geometries_of_both else ["dot"]
        reasons = incompatibilities(source, loss, AnyModel(geometry[-1] if geometry else "l1", True, problem))
        if not reasons:
            return ""
    return _nameless(reasons[0], source, loss)


def _nameless(reason: str, source: NegativeSource, loss: Loss) -> str:
    for named, plain in ((f"negatives.source: {source.name}", "the source"), (f"loss.name: {loss.name}", "the loss"),
                         ("model.name: any", "the model")):
        reason = reason.replace(named, plain, 1)
    return reason


def _unfit(part: NegativeSource | Loss, model: type[Model]) -> str:
    if part.traits.geometry and geometries(model).isdisjoint(part.traits.geometry):
        return "needs another geometry of the scores"
    if part.traits.needs_frozen_table and not hasattr(default_settings(model.Config), "output_table"):
        return "needs a frozen table of targets: model.output_table.frozen"
    return ""


def geometries(model: type[Model]) -> set[str]:
    """The geometries that a model's scores can have."""
    fields = model.Config.model_fields
    named_geometries = [set(map(str, get_args(fields[key].annotation))) for key in KEYS if key in fields]
    return set.union(*named_geometries) if named_geometries else {str(model.geometry)}
