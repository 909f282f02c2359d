"""Layers of a configuration: YAML with the line and column of every key, read within limits.

Plain values follow YAML 1.2: only `true` and `false` are booleans (so `on:` is a key and `no` a word), and 1e-5 is a
number, which YAML 1.1 reads as text.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from embtrain.common.config.shown import KeyPath, describe_value, dotted, printable
from embtrain.common.errors import ResourceError, UsageError

MAX_BYTES = 200_000  # of a file; the longest one in the package has a hundredth of this
MAX_VALUES = 2_000   # of a file; each use of an alias counts
MAX_DEPTH = 40
_MAX_CACHED = 10_000  # characters of a text whose nodes are cached; twice the longest file of the package
MAX_PROBLEMS = 50    # reported for one file
MAX_INTEGER = 2**63  # array indices, seeds and counts are int64


@dataclass(frozen=True)
class Layer:
    """A configuration tree with the position of each key.

    `name` is shown in errors: a file, `--seed`, `--set text.window=0`.
    """

    name: str
    tree: dict[str, Any]
    marks: dict[KeyPath, tuple[int, int]] = field(default_factory=dict)  # path -> (line, column), both from 1


_INTEGER = re.compile(r"[-+]?[0-9]+$|0o[0-7]+$|0x[0-9a-fA-F]+$")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
_TAG = "tag:yaml.org,2002:"
_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
for _tag, _pattern, _first in (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", _INTEGER, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    for _letter in _first:
        _RESOLVERS.setdefault(_letter, []).append((_TAG + _tag, _pattern))


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain values of YAML 1.2 and limits on nesting and nodes. Only its nodes are used."""

    yaml_implicit_resolvers = _RESOLVERS
    depth = 0
    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth, self.nodes = self.depth + 1, self.nodes + 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep",
                                       problem_mark=self.peek_event().start_mark)
        if self.nodes > 2 * MAX_VALUES + 1:                   # keys, values and aliases
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_VALUES:,} values",
                                       problem_mark=self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class Dumper(yaml.SafeDumper):
    """Writes YAML: quotes text that _Loader would read as another type or would fold, and keeps lists on one line."""

    yaml_implicit_resolvers = _RESOLVERS


Dumper.add_representer(list, lambda dumper, value: dumper.represent_sequence(_TAG + "seq", value, flow_style=True))
Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(_TAG + "str", text, '"' * ("\x85" in text)))


def read_yaml(path: str | os.PathLike[str], name: str | None = None) -> Layer:
    """Read one YAML file. Errors show `name` (default: the path, relative to the working folder if it is below it).

    Raises UsageError, with one line per problem, if it is missing or not a mapping; ResourceError without permission.
    """
    name = _shown(Path(path)) if name is None else name
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except PermissionError as error:
        raise ResourceError(f"{name}: no permission to read it") from error
    except OSError as error:
        kind = ResourceError if isinstance(error, BlockingIOError) else UsageError
        raise kind(f"{name}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"{name}: is not a path: {error}") from error
    return parse(content, name)


def parse(content: bytes, name: str) -> Layer:
    """Return the layer of the content of a YAML file of that name. Raises UsageError as `read_yaml` does."""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{name}: is longer than {MAX_BYTES:,} bytes; give a smaller configuration file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}:{line}: is not UTF-8; save the file as UTF-8") from error
    tree, marks = _Values(name).convert(compose(text, name))
    if not isinstance(tree, dict | None):
        raise UsageError(f"{name}:1: should be keys and values, e.g. `train:`, got {describe_value(tree)}")
    return Layer(name, tree or {}, marks)  # None: nothing, comments, or a bare `---`


def as_sets(keys: Mapping[str, Any]) -> list[str]:
    """Return keys and values in the format of `--set`. UsageError for a value that YAML has no form for."""
    texts = []
    for key, value in keys.items():
        try:
            texts.append(f"{key}={value if isinstance(value, str) else json.dumps(value, default=_plain)}")
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{printable(str(key))}: {printable(repr(value))}: should be a number, a word, a path, or "
                             f"a list of these, {error}") from error
    return texts


def _plain(value: Any) -> Any:
    """Convert a numpy number, as grids of searches contain, to a Python number, and a path or a run to text."""
    import numpy as np  # imported late, to keep the start of the command fast
    if isinstance(value, np.generic) and not isinstance(number := value.item(), np.generic):
        return number  # of longdouble, `item` is a longdouble
    if isinstance(value, os.PathLike) and isinstance(path := os.fspath(value), str):
        return path
    raise TypeError(f"got a {type(value).__name__}")


def from_set(text: str) -> Layer:
    """Read the layer of one `--set a.b=c`. c is parsed as YAML (a number, a word, a list in [])."""
    name = f"--set {printable(text)}"
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(f"{name}: should be KEY.KEY=VALUE, e.g. text.window=5")
    if len(keys) > MAX_DEPTH or len(value) > MAX_BYTES:
        raise UsageError(f"{name}: is too long")
    tree: Any = _Values(name, place=False).convert(compose(value, name, place=False))[0]
    for key in reversed(keys):
        tree = {key: tree}
    return Layer(name, tree)


def _parse(text: str, loader: Any) -> Any:
    return yaml.compose(io.StringIO(text), Loader=loader)


# A comparison resolves the settings of each cell from the same files, and PyYAML takes milliseconds for each of them.
# Only nodes are cached: `_Values` converts them to a new tree for each caller.
_parse_short = lru_cache(maxsize=128)(_parse)


def compose(text: str, name: str, place: bool = True, loader: Any = _Loader) -> Any:
    """Parse YAML to its root node; None if the text is empty. Raises UsageError with the line if it is not YAML."""
    try:
        is_cached = loader is _Loader and len(text) <= _MAX_CACHED  # other loaders are for nodes that are changed
        return _parse_short(text, loader) if is_cached else _parse(text, loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark and place else name
        problem = printable(error.problem or error.context or "is not YAML")
        if error.context and problem.startswith("but "):
            problem = f"{printable(error.context)}, {problem}"
        if "'\\t'" in problem:
            before = text[:mark.index].rpartition("\n")[2].rstrip() if mark else ""
            problem = f"contains a tab after {before[-1]!r}; write a space there" if before else \
                "contains a tab in the indentation; indent with spaces"
        raise UsageError(f"{location}: {problem}") from error
    except yaml.reader.ReaderError as error:
        # `position` counts characters, because the text was decoded above.
        location = f"{name}:{text[: error.position].count(chr(10)) + 1}" if place else name
        raise UsageError(f"{location}: contains a character that YAML does not allow; remove it") from error
    except (yaml.YAMLError, ValueError, OverflowError, IndexError, RecursionError) as error:
        # PyYAML's scanner lets chr() and int() fail on absurd escapes and version numbers.
        raise UsageError(f"{name}: is not YAML: {printable(str(error))}") from error


class _Values:
    """Converts nodes to Python values, and collects the position of each value and all problems."""

    def __init__(self, name: str, place: bool = True):
        self.name, self.place = name, place
        self.marks: dict[KeyPath, tuple[int, int]] = {}
        self.problems: list[str] = []
        self.count = 0

    def convert(self, root: Any) -> tuple[Any, dict[KeyPath, tuple[int, int]]]:
        value = None if root is None else self._value(root, ())
        if self.problems:
            raise UsageError(*self.problems)
        return value, self.marks

    def _add_problem(self, node: Any, message: str) -> None:
        mark = node.start_mark
        location = f"{self.name}:{mark.line + 1}:{mark.column + 1}" if self.place else self.name
        self.problems.append(f"{location}: {message}")
        if len(self.problems) >= MAX_PROBLEMS:
            raise UsageError(*self.problems, f"{self.name}: contains more errors; correct these first")

    def _value(self, node: Any, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:  # aliases can multiply, or contain themselves
            self._add_problem(node, f"more than {MAX_VALUES:,} values, or nested more than {MAX_DEPTH} deep")
            raise UsageError(*self.problems)
        kind = {yaml.MappingNode: "map", yaml.SequenceNode: "seq"}.get(type(node))
        if kind is None:
            return self._scalar(node)
        if node.tag != _TAG + kind:
            self._add_problem(node, f"the tag {printable(node.tag)} is not supported; remove it")
        elif kind == "seq":
            for i, item in enumerate(node.value):
                self.marks[*path, i] = (item.start_mark.line + 1, item.start_mark.column + 1)
            return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
        else:
            return self._mapping(node, path)
        return None

    def _mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else {}
            if not isinstance(key, str):
                self._add_problem(key_node, f"a key should be a word, got {describe_value(key)}")
            elif key in tree:
                first = self.marks[*path, key][0]
                self._add_problem(key_node, f"{dotted((*path, key))}: is set twice, first in line {first}; remove one")
            else:
                self.marks[*path, key] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                tree[key] = self._value(value_node, (*path, key))
        return tree

    def _paired(self, node: Any, text: str) -> str:
        """Join surrogate pairs, which JSON uses for characters above U+FFFF. An unpaired surrogate is a problem."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._add_problem(node, "contains a lone surrogate; write the whole character")
            return ""

    def _scalar(self, node: Any) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "str":
            return text if text.isascii() else self._paired(node, text)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "int" and _INTEGER.match(text) and len(text) <= 80:
            number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if abs(number) < MAX_INTEGER:
                return number
            self._add_problem(node, f"the number {describe_value(number)} is too large")
        elif kind in ("int", "float") and _FLOAT.match(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        else:
            self._add_problem(node, f"the tag {printable(node.tag)} is not supported; remove it")
        return None


def _shown(path: Path) -> str:
    with contextlib.suppress(ValueError, OSError):
        path = Path(os.path.abspath(path)).relative_to(Path.cwd())
    return printable(str(path))
