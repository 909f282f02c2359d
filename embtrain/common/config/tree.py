"""One typed configuration tree from layers of YAML. Errors name file:line:column and the nearest key.

    tree = default.yaml <- model <- strategy <- the user's file <- --set   (later layers win per key; lists as a whole)

A layer is a tree with the position of every key. `build` validates the merged tree against a pydantic class assembled
by the caller, and reports all problems at once.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import typing
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from embtrain.common.config import renamed_keys
from embtrain.common.config.layers import Dumper, Layer
from embtrain.common.config.merging import Merged, Place, merge
from embtrain.common.config.shown import KeyPath, describe_value, dotted, printable
from embtrain.common.errors import UsageError, did_you_mean

#: Limits of the absolute value of a nonzero setting: float32 can represent their squares.
SMALLEST, LARGEST = 1e-18, 1e18
#: Errors of paths that depend on the current folder.
OF_FOLDER = ("path_not_file", "path_not_directory", "path_exists")


class FilePath(str):
    """Absolute path in the settings, of type AbsolutePath: of all other values, an export keeps the text."""

    __slots__ = ()


def absolute_path(path: str) -> FilePath:
    """Make a path absolute, so that a run can be resumed from any folder."""
    return FilePath(os.path.abspath(path))


def map_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a container of settings with every item and every key changed; another value as it is."""
    if isinstance(value, dict):
        return {change(key): change(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(*map(change, value)) if hasattr(value, "_fields") else type(value)(map(change, value))
    return value


def plain_paths(value: Any) -> Any:
    """A setting with every FilePath in it as a str, which YAML and other programs can represent."""
    return str(value) if isinstance(value, FilePath) else map_items(value, plain_paths)


AbsolutePath = Annotated[str, AfterValidator(absolute_path), PlainSerializer(plain_paths, return_type=str)]


class Section(BaseModel):
    """Base of every section of the configuration tree: frozen, unknown keys refused, defaults validated as values.

    Infinities, `true` for 1 and fractions below SMALLEST or above LARGEST are refused. `any_size` lists the fields
    without these limits.
    """

    any_size: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name is not None:
            kinds = set(_annotation_parts(cls.model_fields[info.field_name].annotation))
            if kinds & {int, float} and bool not in kinds:
                raise ValueError("should be a number")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _fits_float32(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name not in cls.any_size:
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, float) and number != 0 and not SMALLEST <= abs(number) <= LARGEST:
                    raise ValueError(f"should be 0, or between {SMALLEST:g} and {LARGEST:g} in size, so that float32 "
                                     "holds its square")
        return value


M = TypeVar("M", bound=BaseModel)


def build(model_class: type[M], layers: Sequence[Layer], section: str = "", merged: Merged | None = None) -> M:
    """Merge and validate the layers. Raises UsageError with one line per problem, in the order of the layers.

    All renamed keys of a layer are one problem. section: dotted path of the layers in the settings, if not the root;
    lines show it in keys of a layer without a name. merged: the result of `merge` on the layers, if it is known.
    """
    tree, places = merged or merge(layers)
    try:
        return model_class.model_validate(tree)
    except ValidationError as error:
        lines: dict[KeyPath, tuple[Place, str]] = {}
        renamed: dict[int, list[tuple[Place, str]]] = {}  # by layer: place, and "old key: renamed to new key"
        for problem in error.errors(include_url=False):
            path, kind = problem["loc"], problem["type"]
            path = path if kind == "missing" else _known_part(path, tree, kind)
            place = next((places[path[:n]] for n in range(len(path), 0, -1) if path[:n] in places),
                         Place(-1, layers[0].name if layers else "configuration", 0, 0))
            key = ".".join(filter(None, (section, dotted(path))))
            shown = dotted(path) if place.name else key
            if kind == "extra_forbidden" and (new := renamed_keys.new_name(key)):
                renamed.setdefault(place.layer, []).append((place, f"{shown}: renamed to {new}"))
                continue
            message = _message(problem, path, model_class)
            if kind == "literal_error" and (value := renamed_keys.new_value(key, problem["input"])):
                message += f" (renamed to {value!r})"
            # A union reports one error per member: the first is enough.
            lines.setdefault(path, (place, _located(place, f"{shown}: {message}".rstrip())))
        found = [*lines.values(), *((entries[0][0], _located(entries[0][0], "; ".join(text for _, text in entries)))
                                    for entries in renamed.values())]
        ordered = sorted(found, key=lambda line: (line[0].layer, line[0].line, line[0].column))
        raise UsageError(*(text.replace(": : ", ": ") for _, text in ordered)) from error


def _located(place: Place, text: str) -> str:
    """Put the place, if it has a name, before a problem."""
    return f"{place}: {text}" if place.name else text


def saved_tree(instance: BaseModel, fields: Set[str] | None = None) -> dict[str, Any]:
    """The tree of an instance, or of some fields, that its class reads: without computed fields, which are no keys."""
    return instance.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False,
                               include=None if fields is None else set(fields))


def dump(instance: BaseModel, only_changed_against: BaseModel | None = None) -> str:
    """Return YAML that `read_yaml` and `build` turn back into `instance`, or only the keys that differ."""
    tree = saved_tree(instance)
    if only_changed_against is not None:
        tree = _difference(tree, saved_tree(only_changed_against))
    return as_text(tree)


def as_text(tree: dict[str, Any]) -> str:
    """Return the YAML of a tree, as in config.yaml."""
    return yaml.dump(tree, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1000)


def flatten_values(instance: BaseModel) -> dict[str, Any]:
    """Return {dotted key: value}, with numbers, text, lists and None as JSON has them."""
    values: dict[str, Any] = {}

    def collect(tree: dict[str, Any], before: str) -> None:
        for key, value in tree.items():
            if isinstance(value, dict) and value:
                collect(value, f"{before}{key}.")
            else:
                values[before + key] = value

    collect(saved_tree(instance), "")
    return values


def flatten(instance: BaseModel) -> dict[str, str]:
    """Return {dotted key: value} for other programs: text unchanged, all other values as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in flatten_values(instance).items()}


def _difference(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    changed = {}
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            if inner := _difference(value, old[key]):
                changed[key] = inner
        elif key not in old or old[key] != value:
            changed[key] = value
    return changed


def _message(error: Any, path: KeyPath, model_class: type[BaseModel]) -> str:
    """Return the problem and the expected value in words."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "needs a value"
    if kind == "extra_forbidden":
        return f"unknown key{_near_key(str(path[-1]), path[:-1], model_class)}"
    suffix = f", got {describe_value(value)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"should be a section of keys{suffix}"
    if kind == "string_type":
        return f"should be text (in quotes where it looks like something else){suffix}"
    if kind == "value_error":
        return printable(str(error["ctx"]["error"])) + ("" if isinstance(value, dict) else suffix)
    words = re.sub(r"^Input should", "should", error["msg"]).split(", unable to")[0]
    if kind in ("literal_error", "enum") and isinstance(value, str):
        suffix += did_you_mean(value, re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return words + suffix


def _near_key(key: str, section: KeyPath, model_class: type[BaseModel]) -> str:
    """Return `(did you mean 'k'? keys here: ...)`: the key by its name in other tools, or the nearest, here first."""
    leaves = dict(_leaves(model_class, ()))
    section_keys = [path[-1] for path in leaves if path[:-1] == section]
    *there, last = renamed_keys.OF_OTHER_TOOLS.get(key, "").split(".")
    near = [last if tuple(there) == section else ".".join([*there, last])] if (*there, last) in leaves else []
    near = near or difflib.get_close_matches(key, section_keys, n=1)
    if not near:
        names = {path[-1]: ".".join(path) for path in reversed(leaves) if not leaves[path]}
        near = [names[name] for name in difflib.get_close_matches(key, names, n=1, cutoff=0.75)]
    hints = [f"did you mean {near[0]!r}?"] if near else []
    if section_keys:
        hints.append(f"keys here: {', '.join(section_keys)}")
    return f" ({' '.join(hints)})" if hints else ""


def _leaves(model_class: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the path of each key of a class, and whether it is a section."""
    for name, info in model_class.model_fields.items():
        key_path = (*path, info.alias or name)
        sections = [x for x in _annotation_parts(info.annotation) if isinstance(x, type) and issubclass(x, BaseModel)]
        yield key_path, bool(sections)
        for section in sections:
            yield from _leaves(section, key_path)


def _annotation_parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and, for a union or list, its members."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _annotation_parts(part)


def _known_part(path: KeyPath, tree: Any, kind: str) -> KeyPath:
    """Return the part of an error's path that exists in the tree (pydantic appends the names of union members).

    The keys of a default are added to it: the tree lacks them. kind: type of the error.
    """
    for n, key in enumerate(path):
        inside = key in tree if isinstance(tree, dict) else isinstance(tree, list) and key in range(len(tree))
        if not inside:
            is_default = kind in OF_FOLDER and isinstance(tree, dict)
            return (*path[:n], *(part for part in path[n:] if is_default and str(part).isidentifier()))
        tree = tree[key]
    return path


