"""Declarations of components: traits of a source or a loss, like `learns` or `density`, and the class of settings.

A source is a negative sampler. A record of traits is a frozen dataclass whose fields are made by `trait`; a class sets
an instance of it as its attribute `traits`, for example `traits = Traits(learns=True)`, and an object may replace it in
its constructor. Other parts of the package read traits instead of the names of classes. The reference pages are
generated from the fields of the record. `Config` is the class of the settings.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import sys
from collections.abc import Hashable
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar, cast, get_type_hints

import numpy as np
from pydantic import Field, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError, create_model

from embtrain.common.config import Section
from embtrain.common.config.shown import dotted, printable
from embtrain.common.config.tree import OF_FOLDER
from embtrain.common.errors import UnknownTrait, UsageError, did_you_mean

S = TypeVar("S", bound=Section)


def trait(default: Any, group: str, about: str) -> Any:
    """Return a field of a record: its default, and for the reference pages its heading (`group`) and its meaning."""
    return field(default=default, metadata={"group": group, "about": about})


class TraitRecord:
    """Base of the records of traits, which are dataclasses."""

    def __new__(cls, *_: Any, **values: Any) -> Self:
        """Return a record without values. Raises UnknownTrait with the nearest name."""
        arguments = [*inspect.signature(cls.__init__).parameters.values()][1:]  # a class of the user may have its own
        known = [found.name for found in arguments]
        unknown = next((name for name in values if name not in known), None)
        if unknown is not None and not any(found.kind is found.VAR_KEYWORD for found in arguments):
            raise UnknownTrait(f"{cls.__name__}: no trait {unknown!r}{did_you_mean(unknown, known)}; there are: "
                               f"{', '.join(known)}")
        return super().__new__(cls)


def refuse_misplaced_traits(owner: str, component: Any) -> None:
    """Raise UsageError if a class or an object sets a trait as an attribute (`learns = True`) instead of in `traits`.

    The attribute would have no effect, because traits are read from the record. An attribute of another type, like a
    method of that name, is a different thing and allowed. A value in the record that its annotation does not allow is
    refused too: it would switch checks off. So is a record of another kind of component. A list, tuple or set of valid
    values is accepted where another of these types is annotated, and a scalar of NumPy as the number, boolean or text
    that it contains. Further fields, of a record of the user, are not checked: only the user reads them.
    owner: the name of the class or object in the message. No default of a trait is None.
    """
    attributes, record = vars(component), component.traits
    found_class = component if isinstance(component, type) else type(component)
    kind: Any = type(next(vars(base)["traits"] for base in reversed(found_class.__mro__) if "traits" in vars(base)))
    if not isinstance(record, kind):
        found_kind = f"the class {record.__name__}" if isinstance(record, type) else type(record).__name__
        raise UsageError(f"{owner}: traits: is {found_kind}; set a record, traits = {kind.__name__}(...)")
    for found in fields(kind):
        value = attributes.get(found.name)
        if isinstance(value, type(found.default)):
            raise UsageError(f"{owner}: {found.name} = {value!r} is not read; set it in the record, "
                             f"traits = {type(record).__name__}({found.name}={value!r})")
    defaults = {found.name: found.default for found in fields(kind)}
    for name, adapter in _value_types(kind).items():
        value = getattr(record, name)
        try:
            adapter.validate_python(_plain(value, defaults[name]), strict=True)
        except ValidationError as error:
            expected = error.errors(include_url=False)[0]["msg"].replace("Input should", "should")
            raise UsageError(f"{owner}: traits.{name}: {_shown(value, found_class.__module__)}: {expected}") from error


def _shown(value: Any, module: str) -> str:
    """A value in an error, without the name of the module, which a file of the user has only inside the package."""
    return value.__qualname__ if isinstance(value, type) else repr(value).replace(f"{module}.", "")


def _plain(value: Any, default: Any) -> Any:
    """A collection in the type of the default, and a scalar of NumPy in the type of Python: readers accept both."""
    if isinstance(value, np.generic):
        return value.item()
    is_collection = isinstance(default, tuple | frozenset) and isinstance(value, list | tuple | set | frozenset)
    if is_collection and all(isinstance(item, Hashable) for item in value):
        return type(default)(value)
    return value


@cache
def _value_types(record: type) -> dict[str, TypeAdapter[Any]]:
    """The type of each trait of a record."""
    return {name: TypeAdapter(annotation) for name, annotation in get_type_hints(record, include_extras=True).items()}


def require_defaults(component: type[Any], base: type[Any]) -> type[Any]:
    """Return a component of the kind of `base`. UsageError if its Config is not one with a valid default for each key.

    Settings are built from defaults, because the layers of a configuration need not name each key. The error names the
    file, the class and the key.
    """
    config = component.Config
    is_section = isinstance(config, type) and issubclass(config, base.Config)
    owner = config if is_section else component
    where = f"{getattr(sys.modules.get(owner.__module__), '__file__', owner.__module__)}: {owner.__qualname__}"
    if not is_section:
        raise UsageError(f"{where}: Config = {_shown(config, owner.__module__)}: is not a subclass of "
                         f"{base.Config.__name__}; derive it from that class")
    if required := [name for name, info in config.model_fields.items() if info.is_required()]:
        raise UsageError(f"{where}.{required[0]}: has no default; give it one")
    try:
        default_settings(config)
    except ValidationError as error:
        problem = next(found for found in error.errors(include_url=False) if found["type"] not in OF_FOLDER)
        words = re.sub("^Value error, ", "", problem["msg"]).replace("Input should", "should")
        raise UsageError(f"{where}.{dotted(problem['loc'])}: {printable(repr(problem['input']))}: {words}; set another "
                         "default" if problem["loc"] else f"{where}: {words}; change the defaults") from error
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        for name, info in config.model_fields.items():
            if not _can_be_validated(info.annotation):
                annotation = _shown(info.annotation, owner.__module__)
                raise UsageError(f"{where}.{name}: {annotation}: pydantic cannot validate this type; use another, for "
                                 "example float") from error
        raise UsageError(f"{where}: {str(error).splitlines()[0]}") from error
    except Exception as error:                               # of a copy of a default, which may be any object
        for name, info in config.model_fields.items():
            if not _can_be_copied(info.default):
                raise UsageError(f"{where}.{name}: {_shown(info.default, owner.__module__)}: cannot be copied for each "
                                 "object; use another default, for example a dict") from error
        raise
    return component


def default_settings(config: type[S], **values: Any) -> S:
    """The defaults of a class of settings with some valid values. A default may be a path that exists in one folder.

    That path is checked where it is used: with the layers of a configuration, which may replace it.
    """
    try:
        return config(**values)
    except ValidationError as error:
        problems = error.errors()
        if not all(found["type"] in OF_FOLDER and found["loc"][0] not in values for found in problems):
            raise
        paths = {found["loc"][0]: Path(found["input"]) for found in problems if len(found["loc"]) == 1}
        names = {info.alias or name: name for name, info in config.model_fields.items()}
        unchecked: dict[str, Any] = {}
        for key in {str(found["loc"][0]) for found in problems}:
            info = config.model_fields[names[key]]
            default = paths.get(key, info.get_default(call_default_factory=True))
            unchecked[names[key]] = (Any, Field(default, alias=info.alias, validate_default=False))
        checked = create_model(config.__name__, __base__=config, **unchecked)(**values)
        return cast(S, config.model_construct(**{key: getattr(checked, name) for key, name in names.items()}))


def _can_be_copied(default: object) -> bool:
    with contextlib.suppress(Exception):
        copy.deepcopy(default)
        return True
    return False


def _can_be_validated(annotation: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(None)        # reports a name that is not defined, too
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return False
    except ValidationError:
        pass
    return True
