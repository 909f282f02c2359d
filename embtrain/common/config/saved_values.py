"""Checks that config.yaml can hold the settings of a class of the user, whose fields may have any type."""

from __future__ import annotations

import inspect
import re
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from embtrain.common.config.foreign_classes import is_ours
from embtrain.common.errors import UsageError

_PLAIN = (type(None), bool, int, float, str, PurePath, BaseModel)


def require_savable(owner: str, config: BaseModel) -> None:
    """Raise UsageError if settings of a class of the user cannot be saved, or would be refused or changed when read.

    A path and a section whose type is not annotated are read as text and dict. owner: begins the error.
    """
    kind = type(config)
    if is_ours(kind):
        return
    require_writable(owner, config)
    try:
        again = kind.model_validate(config.model_dump(mode="json", by_alias=True, warnings=False))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        names = {info.alias or name: name for name, info in kind.model_fields.items()}
        if not problem["loc"] or problem["loc"][0] not in names:
            return                                         # an error of several fields: reading config.yaml reports it
        message = re.sub("^Value error, ", "", problem["msg"]).replace("Input should", "should")
        raise _unsavable(owner, config, names[problem["loc"][0]], f"{message}; set another value") from error
    for field in kind.model_fields:
        if not _is_kept(getattr(config, field), getattr(again, field)):
            raise _unsavable(owner, config, field)


def require_writable(owner: str, config: BaseModel) -> None:
    """Raise UsageError if a value of these settings has no form in YAML."""
    for field in type(config).model_fields:
        try:
            config.model_dump(mode="json", include={field}, warnings=False)
        except (ValueError, TypeError, RecursionError) as error:
            raise _unsavable(owner, config, field) from error


def _is_kept(value: Any, again: Any) -> bool:
    """Whether a value and the one that is read for it have the same type, also inside lists, tuples and dicts."""
    if isinstance(value, dict) and isinstance(again, dict):
        return all(map(_is_kept, value.values(), again.values()))
    if isinstance(value, list | tuple) and isinstance(again, list | tuple):
        return all(map(_is_kept, value, again))
    return type(value) is type(again) or isinstance(value, _PLAIN)


def _unsavable(owner: str, config: BaseModel, field: str, problem: str = "cannot be saved in config.yaml; use numbers, "
               "texts, booleans, lists or dicts") -> UsageError:
    kind = next(base for base in type(config).__mro__ if field in inspect.get_annotations(base))
    shown = " ".join(repr(getattr(config, field)).replace(f"{kind.__module__}.", "").split())
    return UsageError(f"{_line_of(kind, field)}: {owner}: Config: {field} = {shown}: {problem}")


def _line_of(kind: type[BaseModel], field: str) -> str:
    """FILE:LINE of a field; the module of a class that is not in a file."""
    try:
        lines, start = inspect.getsourcelines(kind)
        line = next((i for i, text in enumerate(lines, start) if re.match(rf"\s*{field}\s*:", text)), start)
        return f"{inspect.getfile(kind)}:{line}"
    except (OSError, TypeError):
        return kind.__module__
