"""Settings for other readers: every path is the name of its file, without the folders of this machine."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

import embtrain
from embtrain.common.config import FilePath, map_items
from embtrain.common.errors import UsageError
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.settings import Settings
from embtrain.negatives import base as negatives


def public_settings(run: Run) -> Settings:
    """The settings with the names of this machine's files, without their folders."""
    names = {key: Path(getattr(run.settings, key)).name for key in ("corpus", "strategy")}
    return cast(Settings, without_folders(run.settings)).model_copy(update=names)


def without_folders(value: Any, marks_paths: bool = True, number: int = 1) -> Any:
    """A copy of settings in which every path is the name of its file, from number 2 with `-number` before its suffix.

    marks_paths: whether the settings are of a component of embtrain, where each path is a FilePath. A component of
    another package may declare its paths as str: all texts of its settings that begin like an absolute path are paths.
    """
    if isinstance(value, BaseModel):
        ours = _is_ours(type(value))
        return value.model_copy(update={key: without_folders(getattr(value, key), ours, number)
                                        for key in type(value).model_fields})
    if _is_path(value, marks_paths):
        name = Path(value).name or str(value)
        stem, suffix = os.path.splitext(name)
        return type(value)(name if number == 1 else f"{stem}-{number}{suffix}")
    ours = marks_paths and not (isinstance(value, dict) and "source" in value and not _is_our_source(value["source"]))
    if isinstance(value, dict):
        keys = _distinct_names(value, ours, number)
        return {key: without_folders(item, ours, number) for key, item in zip(keys, value.values(), strict=True)}
    if isinstance(value, set | frozenset):
        return type(value)(_distinct_names(value, ours, number))
    return map_items(value, lambda item: without_folders(item, ours, number))


def _distinct_names(items: Collection[Any], marks_paths: bool, number: int) -> list[Any]:
    """Each key of a dict or item of a set without folders; files of the same name get numbers, from `number`."""
    names = [without_folders(item, marks_paths, number) for item in items]
    used = {str(name) for item, name in zip(items, names, strict=True) if name == item}      # without a path
    for i, item in enumerate(items):
        n = number
        while names[i] is not item and names[i] != item and str(names[i]) in used:     # NaN is itself, but not equal
            n += 1
            names[i] = without_folders(item, marks_paths, n)
        used.add(str(names[i]))
    return names


def _is_path(value: Any, marks_paths: bool) -> bool:
    return isinstance(value, FilePath) or (not marks_paths and isinstance(value, str | Path) and os.path.isabs(value))


def _is_our_source(name: str) -> bool:
    """Whether the source of nested settings is of embtrain; it may not be installed here."""
    try:
        return _is_ours(negatives.find(name).Config)
    except UsageError:
        return False


def _is_ours(config: type[BaseModel]) -> bool:
    return config.__module__.partition(".")[0] == embtrain.__name__
