"""Convert records to decoded JSON and back, with a check of every value.

A record is a frozen dataclass or a NamedTuple. Its annotations are the schema: str, int (a count), float (finite),
bool, Literal, `X | None`, list[X], dict[str, X], Any, or another record. A field without a default is required.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]

MAX_VALUE = 1e30                      # larger values cannot be drawn and are read as None
OMIT_IF_NONE = {"omit": "if none"}    # metadata of a field whose key is absent, not null, if it is None


def type_words(value: Any) -> str:
    """The type of a value in the words of a file format."""
    if value is None:
        return "nothing"
    for type_, word in ((bool, "true or false"), ((int, float), "a number"), (str, "text"), (list, "a list"),
                        (dict, "a mapping")):
        if isinstance(value, type_):
            return word
    return "something else"


# --- checks: each returns the value, or raises ValueError with the place of the error --------------------------------

def mapping(value: Any, where: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: a mapping is expected, not {type_words(value)}".removeprefix(": "))
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text")
    return value


def count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{where} must be a count")
    return value


def finite_or_none(value: Any, where: str) -> float | None:
    """A finite number or null. Values above MAX_VALUE, like the perplexity of a diverged model, become None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise ValueError(f"{where} must be a finite number or null")
    return float(value) if abs(value) <= MAX_VALUE else None


def _number(value: Any, where: str) -> float:
    number = finite_or_none(value, where)
    if number is None:
        raise ValueError(f"{where} must be a finite number")
    return number


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{where} must be true or false")
    return value


# --- records ---------------------------------------------------------------------------------------------------------

def decode(record: type[T], value: Any, where: str = "") -> T:
    """Build a record from decoded JSON. ValueError, with the key, for an unknown, missing or wrong one."""
    tree, decoders = mapping(value, where), _decoders(cast(Any, record))
    prefix = f"{where}: " if where else ""
    if unknown := sorted(set(tree) - set(decoders)):
        raise ValueError(f"{prefix}unknown key {unknown[0]!r}; the keys are {', '.join(decoders)}")
    values = {}
    for key, (decoder, required) in decoders.items():
        if key in tree:
            values[key] = decoder(tree[key], f"{prefix}{key}")
        elif required:
            raise ValueError(f"{prefix}key {key!r} is missing")
    return record(**values)


def encode(value: Any) -> Any:
    """The decoded JSON of a record; `decode` reverses it for values up to MAX_VALUE."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(x) for f in dataclasses.fields(value)
                if not ((x := getattr(value, f.name)) is None and f.metadata == OMIT_IF_NONE)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return encode(value._asdict())
    if isinstance(value, Mapping):
        return {key: encode(x) for key, x in value.items()}
    return [encode(x) for x in value] if isinstance(value, list | tuple) else value


@functools.cache
def _decoders(record: Any) -> dict[str, tuple[Decoder, bool]]:
    """The fields of a record: a decoder each, and whether the key is required."""
    hints = typing.get_type_hints(record)
    if dataclasses.is_dataclass(record):
        required = {f.name: f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
                    for f in dataclasses.fields(record)}
    else:
        defaults: Mapping[str, Any] = getattr(record, "_field_defaults")  # noqa: B009  a NamedTuple has it
        required = {name: name not in defaults for name in hints}
    return {name: (_decoder(hints[name]), needed) for name, needed in required.items()}


def _decoder(hint: Any) -> Decoder:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value, where: value
    if origin in (typing.Union, types.UnionType):
        (inner_hint,) = (argument for argument in arguments if argument is not types.NoneType)
        if inner_hint is float:
            return finite_or_none
        inner = _decoder(inner_hint)
        return lambda value, where: None if value is None else inner(value, where)
    if origin is Literal:
        return functools.partial(_choice, arguments)
    if origin is list:
        return functools.partial(_rows, _decoder(arguments[0]))
    if origin is dict:
        return functools.partial(_entries, _decoder(arguments[1]))
    checks: dict[Any, Decoder] = {str: text, int: count, float: _number, bool: _boolean}
    return checks[hint] if hint in checks else functools.partial(decode, hint)


def _choice(choices: tuple[str, ...], value: Any, where: str) -> Any:
    if value not in choices:
        raise ValueError(f"{where} must be one of {', '.join(choices)}")
    return value


def _rows(inner: Decoder, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: a list is expected, not {type_words(value)}")
    return [inner(row, f"{where}: row {i}") for i, row in enumerate(value, 1)]


def _entries(inner: Decoder, value: Any, where: str) -> dict[str, Any]:
    return {key: inner(x, f"{where}: {key}") for key, x in mapping(value, where).items()}
