"""Records of traits: what a source or a loss declares about itself, once, on its class or its instance.

A record is a frozen dataclass whose fields are made by `trait`. The reference pages are generated from these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from embtrain.common.errors import UsageError


def trait(default: Any, group: str, about: str) -> Any:
    """Field of a record: its default, its group, and its meaning for the reference pages."""
    return field(default=default, metadata={"group": group, "about": about})


def refuse_attributes(place: str, attributes: Mapping[str, Any], record: Any) -> None:
    """Raise UsageError if an attribute of a class or an instance has the name and type of a trait of its record.

    Such an attribute would have no effect, because traits are read from the record.
    """
    for found in fields(record):
        value = attributes.get(found.name)
        if isinstance(value, type(found.default)):
            raise UsageError(f"{place}: {found.name} = {value!r} is not read; set it in the record, "
                             f"traits = {type(record).__name__}({found.name}={value!r})")
