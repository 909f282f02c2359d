"""Tables of the traits of all sources, or of all losses, for their reference pages (components.py).

The traits are those under the default settings; the names, groups and meanings are those of the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from itertools import groupby
from typing import Any

from raw import table


def section(parts: Mapping[str, Any]) -> str:
    """Return the section: for each group of traits their meanings, and their values in each component.

    parts: components by name, built with their defaults.
    """
    record = type(next(iter(parts.values())).traits)
    out = [f"## Traits\n\nA component declares its traits in one record, `{record.__module__}.{record.__name__}`. "
           "Settings may change them; these are the values under the defaults. An empty cell means no.\n"]
    for group, found in groupby(fields(record), lambda field: str(field.metadata["group"])):
        traits = list(found)
        out += [f"### {group.capitalize()}\n", table(["trait", "default", "meaning"], [
                    [f"`{trait.name}`", _value(trait, trait.default) or "no", trait.metadata["about"]]
                    for trait in traits]),
                table(["name", *(f"`{trait.name}`" for trait in traits)], [
                    [f"`{name}`", *(_value(trait, getattr(part.traits, trait.name)) for trait in traits)]
                    for name, part in parts.items()])]
    return "\n".join(out)


def _value(trait: Field[Any], value: Any) -> str:
    """Return a value as text: yes or nothing, a list, or the value itself."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, frozenset | tuple):
        return ", ".join(sorted(value) if isinstance(value, frozenset) else value) or (
            "all" if trait.name == "geometry" else "none")
    return str(value)
