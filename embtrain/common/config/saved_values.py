"""Checks that config.yaml can hold the settings of a class of the user, whose fields may have any type."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from embtrain.common.config.foreign_classes import is_ours
from embtrain.common.config.tree import saved_tree
from embtrain.common.errors import UsageError

_PLAIN = (type(None), bool, int, float, str, PurePath, list, tuple, dict)
_IDENTITY: Any = object.__eq__       # of a class whose objects are equal only to themselves
_ANY = TypeAdapter[Any](Any)
_UNSAVABLE = "cannot be saved in config.yaml; use numbers, texts, booleans, lists or dicts"


def require_savable(owner: str, config: BaseModel) -> None:
    """Raise UsageError if settings of a class of the user cannot be saved, or would be refused or changed when read.

    A path and a section whose type is not annotated are read as text and dict. owner: begins the error.
    """
    if is_ours(type(config)):
        return
    for field, problem in saved(config)[1].items():
        raise _error(owner, type(config), f"{field} = {_shown(config, field)}: {problem}", field)
    try:
        type(config).model_validate(saved_tree(config))
    except ValidationError as error:                       # of several fields
        raise _error(owner, type(config), f"config.yaml would be refused: {_message(error.errors()[0])}; correct the "
                     "validators of the class") from error


def saved(config: BaseModel) -> tuple[dict[str, Any], dict[str, str]]:
    """The part of settings that YAML states as it is or that is read as it was, and what is wrong with other fields.

    A value that a validator changes is in both.
    """
    kind, tree, problems = type(config), dict[str, Any](), dict[str, str]()
    keys = {field: info.serialization_alias or field for field, info in kind.model_fields.items()}
    for field in keys:
        try:
            tree |= saved_tree(config, {field})
        except (ValueError, TypeError, RecursionError):
            problems[field] = _UNSAVABLE
    again = _read(kind, tree, {key: field for field, key in keys.items()}, problems)
    for field in keys:
        if again is None or field in problems:
            continue
        value, new = getattr(config, field), getattr(again, field)
        if not _is_kept(value, new):
            problems[field] = (f"is read from config.yaml as {_shown(again, field)}; set a value that does not change, "
                               "or change the type of the field" if keys[field] in tree else
                               "is left out of config.yaml; remove exclude from the field")
            if not _is_kept(value, tree.get(keys[field])):
                tree.pop(keys[field], None)
    return tree, {field: problems[field] for field in keys if field in problems}


def _read(kind: type[BaseModel], tree: dict[str, Any], fields_of: dict[str, str],
          problems: dict[str, str]) -> BaseModel | None:
    """Read the tree without the keys that are refused, which it moves to the problems; None if all are together."""
    while True:
        try:
            return kind.model_validate(tree)
        except ValidationError as error:
            refused = {problem["loc"][0]: problem for problem in error.errors() if problem["loc"]}
            if not (known := refused.keys() & tree.keys() & fields_of.keys()):
                return None
            for key in map(str, known):
                problems[fields_of[key]] = (
                    f"is saved as {key!r}, which is not the key that is read; use alias in place of "
                    "serialization_alias and validation_alias" if refused[key]["type"] == "extra_forbidden" else
                    f"{_message(refused[key])}; set another value")
                del tree[key]


def _is_kept(value: Any, again: Any) -> bool:
    """Whether a value is read as it is. Without a type, a tuple is read as a list, a path as text, a section as a dict.

    A default in the form of YAML is kept if the value of the field's type has the same form.
    """
    same = type(value) is type(again)
    if isinstance(value, dict) and isinstance(again, dict):
        return _is_kept([*value, *value.values()], [*again, *again.values()])
    if isinstance(value, list | tuple) and isinstance(again, list | tuple):
        return len(value) == len(again) and all(map(_is_kept, value, again))
    if isinstance(value, BaseModel) and (same or isinstance(again, dict)):
        return _is_kept([*dict(value).values()], [*dict(again).values()])
    if same and is_dataclass(value) and not isinstance(value, type):
        return all(_is_kept(getattr(value, part.name), getattr(again, part.name)) for part in fields(value))
    if same and type(value).__eq__ is _IDENTITY:
        return True
    try:
        if value == again or (value != value and (again is None or again != again)):     # NaN is null in YAML
            return True
        return not same and isinstance(value, _PLAIN) and _in_yaml(value) == _in_yaml(again)
    except (ValueError, TypeError, RuntimeError):          # of a comparison of arrays
        return same


def _in_yaml(value: Any) -> str:
    """The text of a value, also of a key: True is `true` there."""
    return str(_ANY.dump_python(value, mode="json", fallback=repr)).lower()


def _message(problem: Any) -> str:
    return re.sub("^Value error, ", "", problem["msg"]).replace("Input should", "should")


def _shown(config: BaseModel, field: str) -> str:
    return " ".join(repr(getattr(config, field)).replace(f"{type(config).__module__}.", "").split())


def _error(owner: str, config: type[BaseModel], problem: str, field: str = "") -> UsageError:
    kind = next((base for base in config.__mro__ if field in inspect.get_annotations(base)), config)
    return UsageError(f"{_line_of(kind, field)}: {owner}: Config: {problem}")


def _line_of(kind: type[BaseModel], field: str) -> str:
    """FILE:LINE of a field, or of the class; the module of a class that is not in a file."""
    try:
        lines, start = inspect.getsourcelines(kind)
        line = next((i for i, text in enumerate(lines, start) if field and re.match(rf"\s*{field}\s*:", text)), start)
        return f"{inspect.getfile(kind)}:{line}"
    except (OSError, TypeError):
        return kind.__module__
