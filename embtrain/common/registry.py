"""Finds components by walking their package: adding a file is enough, nothing is registered by hand.

Other distributions add components through the entry-point groups embtrain.models, embtrain.negatives and
embtrain.losses.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from functools import cache
from typing import Any

from embtrain.common.errors import UsageError, did_you_mean


@cache
def classes(package: str, base: type) -> dict[str, type[Any]]:
    """Return {name: class} for every subclass of `base` in the package that defines its own `name`.

    Raises UsageError if the entry point of another distribution cannot be loaded.
    """
    components: dict[str, type[Any]] = {}
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, base) and isinstance(name := vars(value).get("name"), str):
                components[name] = value
    for entry in importlib.metadata.entry_points(group=package):
        components.setdefault(entry.name, _load_class(entry, base))
    return dict(sorted(components.items()))


def _load_class(entry: importlib.metadata.EntryPoint, base: type) -> type[Any]:
    """Load the class of another distribution's entry point. Raises UsageError if it is not a subclass of `base`."""
    try:
        value = entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{entry.group}: {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    if not (isinstance(value, type) and issubclass(value, base)):
        raise UsageError(f"{entry.group}: {entry.name!r} ({entry.value}) is no sub-class of {base.__name__}")
    return value


def find(package: str, base: type, name: str, key: str) -> type[Any]:
    """Return the class of that name. Raises UsageError with the key, the nearest name and all known names."""
    known = classes(package, base)
    if name not in known:
        raise UsageError(f"{key}: there is no {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")
    return known[name]
