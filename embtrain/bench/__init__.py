"""Benches: one file per question, each with `bench(rounds, threads, only, corpus) -> summary`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

from embtrain.errors import UsageError

PARTS = ("base", "words")  # what the benches are made of


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in PARTS)


def find(name: str) -> Callable[[int, Sequence[int], Sequence[str] | None, str | None], dict[str, Any]]:
    """The bench of a name; UsageError that lists the names where there is none."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        raise UsageError(f"bench: no {name!r}{f' (did you mean {near[0]!r}?)' if near else ''}; "
                         f"there are: {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}").bench
