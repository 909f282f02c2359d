"""The settings of a run: those that differ from the defaults, and all of them on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from embtrain.common import shipped
from embtrain.common.config import Layer, merge, read_yaml, saved_tree
from embtrain.common.errors import EmbtrainError, UsageError
from embtrain.common.traits import default_settings
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.load.run import RunRecord, flatten
from embtrain.report.render.document import Block, Code, Collapsible, Paragraph, ReportTable
from embtrain.report.run.summary import get, named

DEPTH = 6   # levels of config.yaml that get rows; deeper values are shown as JSON


def blocks(run: RunRecord) -> list[Block]:
    """The settings that differ, and config.yaml. Empty without a configuration."""
    if run.config is None or run.config_text is None:
        return []
    every = Collapsible("All keys, as in config.yaml", [Code(run.config_text.expandtabs(2).rstrip("\n"))])
    defaults, names = _defaults(run)
    before, after = flatten(defaults, DEPTH), flatten(run.config, DEPTH)
    rows = [[key.replace(" · ", "."), value, before.get(key, "–")] for key, value in after.items()
            if value != before.get(key)]
    if not rows:
        return [Paragraph(f"All keys have the values of {names}."), every]
    return [Paragraph(f"Keys that differ from {names}.", "note"),
            ReportTable([("key", ""), ("this run", "text"), ("default", "text")], rows), every]


def _defaults(run: RunRecord) -> tuple[dict[str, Any], str]:
    """Merge the defaults with those of the run's model, strategy, source and loss, as far as they are known."""
    default = read_yaml(shipped.folder("configs") / "default.yaml")
    layers, names = [_component_defaults(run.config), default], ["the defaults"]
    model, strategy = get(run.config, "model", "name"), named(run, "strategy")
    with contextlib.suppress(EmbtrainError):                 # of a package that is not installed
        if isinstance(model, str):
            layers.append(models.default_settings(model))
            names.append(f"model {model}")
    if isinstance(strategy, str) and strategy in shipped.names("configs", "strategies"):
        layers += [read_yaml(shipped.path("configs", strategy, "strategies")), Layer("name", {"strategy": strategy})]
        names.append(f"strategy {strategy}")
    tree, _ = merge(layers)
    tree.pop("group", None)   # of a strategy: its section in `embtrain list`
    return tree, " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)


def _component_defaults(config: object) -> Layer:
    """The keys of the model, the source and the loss that no YAML file of the package lists."""
    tree: dict[str, Any] = {}
    find: Callable[[str], Any]
    for section, key, find in (("model", "name", models.find), ("negatives", "source", negatives.find),
                               ("loss", "name", losses.find)):
        name = get(config, section, key)
        with contextlib.suppress(UsageError):                # of a package that is not installed
            if isinstance(name, str):
                tree[section] = _as_saved(default_settings(find(name).Config))
    return Layer("components", tree)


def _as_saved(config: BaseModel) -> dict[str, Any]:
    """Settings as in config.yaml; those without a form in it as text, because the run then has another value."""
    tree: dict[str, Any] = {}
    for field in type(config).model_fields:
        try:
            tree |= saved_tree(config, {field})
        except (ValueError, TypeError, RecursionError):
            tree[field] = repr(getattr(config, field))
    return tree
