"""JSON schema of configuration files, with which editors complete and check YAML (`embtrain config schema`).

A file may contain any part of the settings. The sections model, negatives, loss and evaluate have variants, one for
each component. If the file names the component, its keys are those of that component, else those of one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind, models_json_schema

from embtrain.experiment.catalogue.combinations import component_classes
from embtrain.experiment.catalogue.listing import GROUPS
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.train.config import TrainConfig

# Section -> kind of its components, and the key that names one.
NAMED = {"model": ("models", "name"), "negatives": ("sources", "source"), "loss": ("losses", "name")}
DEFS = "#/$defs/"
NESTED = ("inner", "plain", "fallback")  # keys of a source that contain the settings of another one


class _AnyValue(GenerateJsonSchema):
    """A schema that allows any value for a type that JSON has no form for, for example a function."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


def settings_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file or strategy, with the components of other distributions."""
    names_by_class = {section: _names_by_class(component_classes(kind)) for section, (kind, _) in NAMED.items()}
    all_tasks = [tasks.find_by_name(name) for name in tasks.names()]
    variants: dict[str, list[type[BaseModel]]] = {
        **{section: list(classes) for section, classes in names_by_class.items()},
        "evaluate": [task.Evaluate for task in all_tasks],
        **{task.section: list[type[BaseModel]]([task.Config]) for task in all_tasks}}
    classes: dict[type[BaseModel], None] = dict.fromkeys([
        Settings, TrainConfig, *(config for configs in variants.values() for config in configs)])
    found, schema = models_json_schema([(config, "validation") for config in classes], ref_template=f"{DEFS}{{model}}",
                                       schema_generator=_AnyValue)
    reference = {config: str(found[config, "validation"]["$ref"]) for config in classes}
    definitions = {name: _partial(definition) for name, definition in schema["$defs"].items()}
    for section, (kind, key) in NAMED.items():
        for config, names in names_by_class[section].items():
            properties = definitions[reference[config].removeprefix(DEFS)]["properties"]
            properties[key] = {"enum": names, "description": f"one of the {kind} that `embtrain list` prints"}
            properties |= {name: {"$ref": f"{DEFS}negatives"} for name in NESTED if name in properties
                           and properties[name].get("type") == "object"}
    variants["train"] = [TrainConfig]
    sections = {section: {"anyOf": [*({"$ref": reference[config]} for config in dict.fromkeys(configs)),
                                    {"type": "null"}]}       # a section whose keys are all commented out
                for section, configs in variants.items()}
    root = definitions.pop(reference[Settings].removeprefix(DEFS))
    return {"title": "embtrain: a configuration file or a strategy", "type": "object",
            "additionalProperties": False, "$defs": definitions | {"negatives": sections.pop("negatives")},
            "properties": root["properties"] | sections | {
                "negatives": {"$ref": f"{DEFS}negatives"},
                "group": {"enum": list(GROUPS), "description": "section of a strategy in `embtrain list`"}}}


def _names_by_class(components: Mapping[str, Any]) -> dict[type[BaseModel], list[str]]:
    """Return the components of each class of keys."""
    names: dict[type[BaseModel], list[str]] = {}
    for name, component in components.items():
        names.setdefault(component.Config, []).append(name)
    return names


def _partial(definition: dict[str, Any]) -> dict[str, Any]:
    """The schema of a section of which a file may contain some keys."""
    optional: Iterable[tuple[str, Any]] = ((key, value) for key, value in definition.items() if key != "required")
    return dict(optional) | {"properties": {name: _without_section_default(value)
                                            for name, value in definition.get("properties", {}).items()}}


def _without_section_default(key: dict[str, Any]) -> dict[str, Any]:
    """Drop the default of a section: it is that of one component, and the keys have their own."""
    return {name: value for name, value in key.items() if not (name == "default" and isinstance(value, dict))}
