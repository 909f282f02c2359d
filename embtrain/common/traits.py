"""Traits: facts that a source or a loss declares about itself, like `learns` or `density`, in one record.

A source is a negative sampler. A record of traits is a frozen dataclass whose fields are made by `trait`; a class sets
an instance of it as its attribute `traits`, for example `traits = Traits(learns=True)`, and an object may replace it in
its constructor. Other parts of the package read traits instead of the names of classes. The reference pages are
generated from the fields of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from embtrain.common.errors import UsageError


def trait(default: Any, group: str, about: str) -> Any:
    """Return a field of a record: its default, and for the reference pages its heading (`group`) and its meaning."""
    return field(default=default, metadata={"group": group, "about": about})


def refuse_misplaced_traits(owner: str, attributes: Mapping[str, Any], record: Any) -> None:
    """Raise UsageError if a class or an object sets a trait as an attribute (`learns = True`) instead of in `traits`.

    The attribute would have no effect, because traits are read from the record. An attribute of another type, like a
    method of that name, is a different thing and allowed. owner: the name of the class or object in the message.
    attributes: its `vars`. record: its instance of the dataclass of traits; no default of a trait is None.
    """
    for found in fields(record):
        value = attributes.get(found.name)
        if isinstance(value, type(found.default)):
            raise UsageError(f"{owner}: {found.name} = {value!r} is not read; set it in the record, "
                             f"traits = {type(record).__name__}({found.name}={value!r})")
