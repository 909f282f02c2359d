"""Checks that config.yaml can hold the settings of a class of the user, whose fields may have any type."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import GenericAlias
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from embtrain.common.config.foreign_classes import is_ours
from embtrain.common.config.layers import MAX_DEPTH, MAX_VALUES, Layer, parse
from embtrain.common.config.shown import printable
from embtrain.common.config.tree import as_text, saved_tree
from embtrain.common.errors import UsageError

_IDENTITY: Any = object.__eq__       # of a class whose objects are equal only to themselves
_UNSAVABLE = "cannot be saved in config.yaml; use numbers, texts, booleans, lists or dicts"


def require_savable(settings: BaseModel, names: Sequence[tuple[str, str]], build: Callable[[Layer], object]) -> None:
    """Raise UsageError if settings of classes of the user cannot be saved, or would be refused or changed when read.

    names: the section of each component and the key of its name. build: builds the settings from config.yaml.
    """
    own = [(section, key) for section, key in names if not is_ours(type(getattr(settings, section)))]
    for section, key in own:
        owner, config = f"{section}.{key}: {getattr(getattr(settings, section), key)}", getattr(settings, section)
        for field, problem in saved(config)[1].items():
            shown = f"{field} = {_shown(config, field)}: {problem}" if field else problem
            raise UsageError(f"{_line_of(type(config), field)}: {owner}: Config: {shown}")
    if not own:
        return
    text = str(tree := saved_tree(settings))
    try:
        # Each value was read from YAML, which takes ten times as long as `build`; together they may be too many.
        if len(text) > 2 * MAX_VALUES or text.count("[") + text.count("{") > MAX_DEPTH:
            build(parse(as_text(tree).encode(), "config.yaml"))
        else:
            build(Layer("config.yaml", tree))
    except UsageError as error:
        raise UsageError(f"the settings cannot be saved: {error}; set fewer or other values") from error


def saved(config: BaseModel) -> tuple[dict[str, Any], dict[str, str]]:
    """The part of settings that is read as it was, and what is wrong by field; under "" with all of them together."""
    kind, tree, problems = type(config), dict[str, Any](), dict[str, str]()
    keys = {field: info.serialization_alias or field for field, info in kind.model_fields.items()}
    for field in keys:
        tree |= _part(config, field, problems)
    again = _read(kind, tree, {key: field for field, key in keys.items()}, problems)
    for field, key in keys.items():
        if again is None or field in problems:
            continue
        is_same = _part(config, field, problems) == _part(again, field, problems)
        if not _is_kept(getattr(config, field), getattr(again, field), is_same):
            problems[field] = (f"is read from config.yaml as {_shown(again, field)}; {_remedy(config, again, field)}"
                               if key in tree else
                               "is left out of config.yaml; remove exclude from the field")
            tree.pop(key, None)
    return tree, {field: problems[field] for field in (*keys, "") if field in problems}


def _part(config: BaseModel, field: str, problems: dict[str, str]) -> dict[str, Any]:
    """The tree of one field as it is read; empty if it cannot be saved, which is added to the problems."""
    try:
        return parse(as_text(saved_tree(config, {field})).encode(), "").tree
    except UsageError as error:
        problems[field] = f"cannot be saved in config.yaml: {error.args[0].split(': ', 1)[1]}; set another value"
    except (ValueError, TypeError, RecursionError) as error:
        problems[field] = (f"cannot be saved in config.yaml: {printable(str(error))}; correct the serializer"
                           if str(error).startswith("Error calling function") else _UNSAVABLE)
    return {}


def _read(kind: type[BaseModel], tree: dict[str, Any], fields_of: dict[str, str],
          problems: dict[str, str]) -> BaseModel | None:
    """Read the tree without the keys that are refused, which it moves to the problems; None if all are together."""
    while True:
        try:
            return kind.model_validate(tree)
        except ValidationError as error:
            refused = {problem["loc"][0]: problem for problem in error.errors() if problem["loc"]}
            if not (known := refused.keys() & tree.keys() & fields_of.keys()):
                problems[""] = (f"config.yaml would be refused: {_message(error.errors()[0])}; correct the validators "
                                "of the class")
                return None
            for key in map(str, known):
                problems[fields_of[key]] = (
                    f"is saved as {key!r}, which is not the key that is read; use alias in place of "
                    "serialization_alias and validation_alias" if refused[key]["type"] == "extra_forbidden" else
                    f"is saved in a form that is refused: {_message(refused[key])}; change the type of the field or "
                    "its serializer, or remove strict")
                del tree[key]


def _is_kept(value: Any, again: Any, is_same: bool) -> bool:
    """Whether a value is read as it is. is_same: the answer for values that cannot be compared, as arrays."""
    if type(value) is not type(again):
        return False
    if isinstance(value, dict):
        return _is_kept([*value, *value.values()], [*again, *again.values()], is_same)
    if isinstance(value, list | tuple):
        return len(value) == len(again) and all(_is_kept(*pair, is_same) for pair in zip(value, again, strict=True))
    if isinstance(value, BaseModel) or hasattr(type(value), "__dataclass_fields__"):
        names = getattr(type(value), "model_fields", None) or getattr(type(value), "__dataclass_fields__", {})
        return _is_kept(_more_keys(value), _more_keys(again), is_same) and all(
            _is_kept(getattr(value, name), getattr(again, name), is_same) for name in names)
    with contextlib.suppress(Exception):                   # of a comparison, which may be the user's
        if type(value).__eq__ is not _IDENTITY and (value == value) is True:     # false for NaN
            return bool(value == again)
    return is_same


def _more_keys(section: Any) -> dict[str, Any]:
    """The keys of a section that have no field."""
    if (getattr(type(section), "__pydantic_config__", None) or {}).get("extra") == "allow":      # of a dataclass
        return {key: value for key, value in vars(section).items() if key not in type(section).__dataclass_fields__}
    return getattr(section, "__pydantic_extra__", None) or {}


def _message(problem: Any) -> str:
    return re.sub("^Value error, ", "", problem["msg"]).replace("Input should", "should")


def _shown(config: BaseModel, field: str) -> str:
    value = getattr(config, field)
    with contextlib.suppress(Exception):                   # of a class without a repr, as BaseModel itself
        more = "" if isinstance(value, BaseModel) or not (keys := _more_keys(value)) else f" with {keys!r}"
        return printable(" ".join(f"{value!r}{more}".replace(f"{type(config).__module__}.", "").split()))
    return type(value).__name__


def _remedy(config: BaseModel, again: BaseModel, field: str) -> str:
    """What to do for a field that is read as another value: a value that is kept, or a type that keeps this one."""
    value, name = getattr(config, field), ""
    annotation: Any = None
    if type(value) in (tuple, set, frozenset) and type(getattr(again, field)) is list:
        items = typing.get_args(type(config).model_fields[field].annotation)
        inside = (*items, ...) if isinstance(value, tuple) else items
        has_name = len(items) == 1 and "Annotated[" not in str(items)     # the text of a constraint is no annotation
        annotation = GenericAlias(type(value), inside) if has_name else type(value)
        name = str(annotation) if has_name else type(value).__name__
    elif isinstance(value, Path):
        annotation, name = Path, "pathlib.Path"
    set_value = f"set {_shown(again, field)}" if name and _is_kept_literal(again, field) else ""
    if name and _is_kept_as(annotation, value):
        name = name.replace("typing.", "").replace(f"{type(config).__module__}.", "")
        return f"{set_value and f'{set_value}, or '}annotate {name}"
    return f"{set_value or 'set a value that does not change'}, or change the type of the field"


def _is_kept_literal(config: BaseModel, field: str) -> bool:
    """Whether a field is read as it is, and is shown as a literal of Python."""
    with contextlib.suppress(Exception):                   # of a text that is no literal, or of the user's class
        value, again = getattr(config, field), type(config).model_validate(saved_tree(config, {field}))
        return _is_kept(value, getattr(again, field), False) and _is_kept(
            value, ast.literal_eval(_shown(config, field)), False)
    return False


def _is_kept_as(annotation: Any, value: Any) -> bool:
    """Whether a field of this type would be read as it is."""
    with contextlib.suppress(Exception):                   # of a type that refuses the value
        adapter = TypeAdapter(annotation)
        first = adapter.dump_python(value, mode="json", round_trip=True, warnings=False)
        again = adapter.validate_python(first)
        return _is_kept(value, again, first == adapter.dump_python(again, mode="json", round_trip=True, warnings=False))
    return False


def _line_of(kind: type[BaseModel], field: str) -> str:
    """FILE:LINE of a field of the user, or of the class; the module of a class that is not in a file."""
    kind = next((base for base in kind.__mro__ if field in inspect.get_annotations(base) and not is_ours(base)), kind)
    try:
        lines, start = inspect.getsourcelines(kind)
        line = next((i for i, text in enumerate(lines, start) if field and re.match(rf"\s*{field}\s*:", text)), start)
        return f"{inspect.getfile(kind)}:{line}"
    except (OSError, TypeError):
        return kind.__module__
