"""Reference pages made from the registry: every source, loss and model, and every key of the settings.

    python docs/scripts/components.py      writes docs/reference/registry, which git ignores; the build of the
                                           site does the same

A component has the first lines of its module's docstring, its own keys with defaults and descriptions, the strategies
that use it, and the papers that its module cites.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from citations import cited_authors, cited_keys, entries, linked
from raw import table
from trait_tables import section as traits_of

from embtrain.common import shipped
from embtrain.common.config import Section, read_yaml
from embtrain.experiment.catalogue import combinations
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives

FOLDER = Path(__file__).resolve().parents[1] / "reference" / "registry"
HEAD = ["key", "default", "values", "meaning"]


def pages() -> dict[str, str]:
    """Return the name of each page of docs/reference/registry and its text."""
    return {"sources.md": _components(
                "Sources", "A source draws the negatives (`negatives.source`). {doc}`../../choose/samplers` compares "
                "those that approximate the softmax; {doc}`../../choose/strategies` lists the strategies "
                "that use them.", negatives, "negatives", negatives.NegativesConfig,
                traits_of(combinations.sources())),
            "losses.md": _components(
                "Losses", "A loss turns the scores of the positive and of the negatives into one cost for each example "
                "(`loss.name` or `--loss`). {doc}`../../science/derivations` derives their optima.", losses, "loss",
                losses.LossConfig, traits_of(combinations.losses_by_name())),
            "models.md": _components(
                "Models", "A model encodes a batch into queries and scores candidates (`--model`). {doc}`../models` "
                "introduces each task.", models, "model", models.ModelConfig),
            "settings.md": _settings()}


def _components(title: str, about: str, kind: Any, section: str, base: type[Section], traits: str = "") -> str:
    shared = f"## Keys of all {title.lower()}\n\n" + _keys(base, section, set())
    found = [_component(kind.find(name), name, section, base) for name in kind.names()]
    return "\n".join([f"# {title}\n", f"{about}\n", shared, *([traits] if traits else []), *found])


def _component(cls: type[Any], name: str, section: str, base: type[Section]) -> str:
    module = inspect.getmodule(cls)
    text = inspect.cleandoc((module and module.__doc__) or cls.__doc__ or "")
    first, _, rest = text.partition("\n\n")
    equation = rest.partition("\n\n")[0]
    parts = [f"({section}-{name})=\n## `{name}`\n", linked(_prose(first)) + "\n"]
    if equation.startswith("    "):
        parts.append(f"```text\n{inspect.cleandoc(equation)}\n```\n")
    if used := _strategies(section, name):
        parts.append(f"Strategies: {', '.join(f'`{strategy}`' for strategy in used)}.\n")
    if keys := sorted((cited_keys(text) | cited_authors(text)) & set(entries())):
        parts.append(linked(f"Papers: {', '.join(f'[{key}]' for key in keys)}.\n"))
    parts.append(_keys(cls.Config, section, set(base.model_fields)) or "It has no keys of its own.\n")
    return "\n".join(parts)


def _strategies(section: str, name: str) -> list[str]:
    """Return the shipped strategies that name the component."""
    key = {"negatives": "source", "loss": "name"}.get(section)
    return [strategy for strategy, tree in _trees().items() if key and tree[section][key] == name]


@cache
def _trees() -> dict[str, dict[str, Any]]:
    """Return the settings of each shipped strategy."""
    return {name: read_yaml(shipped.path("configs", name, "strategies")).tree
            for name in shipped.names("configs", "strategies")}


def _settings() -> str:
    parts = ["# Keys of the settings\n", "Set a key with `--set KEY=VALUE`, or in a file of your own (`--config`). The "
             "keys of one source, loss or model are on {doc}`sources`, {doc}`losses` and {doc}`models`; "
             "{doc}`../settings` shows the files that set the defaults.\n", "## General keys\n",
             table(HEAD, [_row(name, field) for name, field in Settings.model_fields.items()
                          if not _is_section(field.annotation)])]
    for name, field in Settings.model_fields.items():
        if _is_section(field.annotation):
            parts.append(f"## `{name}`\n\n{_keys(typing.cast(Any, field.annotation), name, set())}")
    for task in map(tasks.find_by_name, tasks.names()):
        model_names = ", ".join(f"`{model}`" for model in models.names() if tasks.find_for_model(model) is task)
        parts.append(f"## `{task.section}`, for {model_names}\n\n{_keys(task.Config, task.section, set())}")
        evaluate = _keys(task.Evaluate, "evaluate", set(Settings.model_fields["evaluate"].annotation.model_fields))
        if evaluate:
            parts.append(f"Their evaluation also has:\n\n{evaluate}")
    return "\n".join(parts)


def _keys(section: type[Section], prefix: str, without: set[str]) -> str:
    """Return a table of the keys of a section, nested sections included; '' if there are none."""
    rows = []
    for name, field in section.model_fields.items():
        if name in without:
            continue
        if not _is_section(field.annotation):
            rows.append(_row(f"{prefix}.{name}", field))
        for part in filter(_is_section, (field.annotation, *typing.get_args(field.annotation))):  # also optional ones
            rows += [_row(f"{prefix}.{name}.{inner}", sub) for inner, sub in part.model_fields.items()]
    return table(HEAD, rows) if rows else ""


def _row(key: str, field: Any) -> list[str]:
    default = field.get_default(call_default_factory=True)
    shown = default if isinstance(default, str) else json.dumps(default, ensure_ascii=False, default=str)
    return [f"`{key}`", f"`{shown}`" if shown else "", _values(field.annotation), _prose(field.description or "")]


def _values(kind: Any) -> str:
    """Return the values that a type accepts, in words."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(kind))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_values(part) for part in typing.get_args(kind))
    if _is_section(kind):
        return "section"
    names = {int: "integer", float: "number", str: "text", bool: "`true`, `false`", type(None): "`null`"}
    return names.get(kind, "list" if typing.get_origin(kind) is list else "mapping" if typing.get_origin(kind) is dict
                     else "")


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _prose(text: str) -> str:
    """Return plain text on one line, with the signs escaped that Markdown would interpret."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if i % 2 else "".join(f"\\{c}" if c in "*<_" else c for c in part)
                    for i, part in enumerate(parts))


def write() -> None:
    """Write the pages; those that have not changed keep their time, so that Sphinx does not read them again."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
