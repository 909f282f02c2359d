"""Settings as YAML with the description of each key as a comment (`embtrain config show`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from embtrain.common.config.layers import Dumper
from embtrain.common.config.tree import saved_tree
from embtrain.common.errors import UsageError, did_you_mean

WIDTH = 110  # of a line with its comment; a longer comment is in lines above


class Described(NamedTuple):
    """One key of the settings."""

    key: str            # dotted
    value: Any          # as in JSON; None for a section
    description: str    # with the allowed values, if they are few
    is_section: bool = False


def describe(settings: BaseModel, below: str = "") -> list[Described]:
    """Return every key in the order of the file, or those of one section or key.

    below: dotted key. UsageError if there is none.
    """
    described = list(_walk(settings, ""))
    if not below:
        return described
    found = [row for row in described if row.key == below or row.key.startswith(f"{below}.")]
    if not found:
        keys = [row.key for row in described]
        raise UsageError(f"{below}: is not a key of these settings{did_you_mean(below, keys)}; the sections are "
                         f"{', '.join(row.key for row in described if row.is_section and '.' not in row.key)}")
    return found


def as_yaml(described: list[Described]) -> str:
    """Return YAML that `--config` reads, one comment for each key."""
    lines: list[str] = []
    written: list[str] = []                                # the sections that the last line is in
    for row in described:
        *sections, name = row.key.split(".")
        for depth, section in enumerate(sections):         # those that were not selected
            if written[:depth + 1] != sections[:depth + 1]:
                lines.append(f"{'  ' * depth}{section}:")
        written = [*sections, name] if row.is_section else sections
        indent = "  " * len(sections)
        text = f"{name}:" if row.is_section else yaml.dump(
            {name: row.value}, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=1_000_000).strip()
        line = textwrap.indent(text, indent)
        if row.description and "\n" not in line and len(line) + len(row.description) + 4 <= WIDTH:
            lines.append(f"{line}  # {row.description}")
        else:
            lines += [f"{indent}# {part}" for part in textwrap.wrap(row.description, WIDTH - len(indent) - 2)]
            lines.append(line)
    return "\n".join(lines)


def _walk(instance: BaseModel, before: str) -> Iterator[Described]:
    values = saved_tree(instance)
    for name, field in type(instance).model_fields.items():
        value, alias = getattr(instance, name), field.serialization_alias or field.alias or name
        if isinstance(value, BaseModel):
            yield Described(before + alias, None, _about(type(instance), name), True)
            yield from _walk(value, f"{before}{alias}.")
        elif alias in values:                              # not left out of config.yaml
            yield Described(before + alias, values[alias], _with_options(_about(type(instance), name), field))


def _about(config: type[BaseModel], name: str) -> str:
    """The description of a field: of a component's own name that of the class which it extends."""
    inherited = (base.model_fields[name].description for base in config.__mro__
                 if issubclass(base, BaseModel) and name in base.model_fields)
    return next(filter(None, inherited), "")


def _with_options(about: str, field: FieldInfo) -> str:
    """The description of a field with its allowed values."""
    annotation = field.annotation
    options = [value for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal
               for value in get_args(part)]
    missing = [str(value) for value in options if str(value) not in about]
    return f"{about} ({', '.join(map(str, options))})".strip() if len(options) > 1 and missing else about
