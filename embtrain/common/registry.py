"""Finds components by walking their package: adding a file is enough, nothing is registered by hand.

Other distributions add components through the entry-point groups embtrain.models, embtrain.negatives and
embtrain.losses.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os.path
import pkgutil
import re
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from embtrain.common.errors import EmbtrainError, UsageError, did_you_mean

_log = logging.getLogger("embtrain")


@cache
def classes(package: str, base: type) -> dict[str, type[Any]]:
    """Return {name: class} for every subclass of `base` in the package that defines its own `name`.

    A module or entry point that cannot be loaded is left out with a warning and recorded in `broken`.
    """
    components: dict[str, type[Any]] = {}
    broken(package).clear()
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        try:
            imported = importlib.import_module(module.name)
        except SyntaxError as error:
            _skip(package, module.name, f"{place(error, module.name)}: SyntaxError: {error.msg}")
            continue
        components |= _named(imported, base)
    for entry in importlib.metadata.entry_points(group=package):
        if entry.name not in components and (value := _load_class(entry, base)) is not None:
            components[entry.name] = value
    return dict(sorted(components.items()))


def _named(module: ModuleType, base: type) -> dict[str, type[Any]]:
    """Return {name: class} for the subclasses of `base` in a module that define their own `name`."""
    return {name: value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)
            and isinstance(name := vars(value).get("name"), str)}


@cache
def _read_class(package: str, base: type, name: str, folders: tuple[str, ...]) -> type[Any] | None:
    """Return the class of a name by importing only the modules of the package whose text defines that name.

    folders: the package's `__path__`. None if there is none, or if it must be found by importing all modules.
    """
    definition = re.compile(rf'^ +name(?:: ClassVar\[str\])? = "{re.escape(name)}"$', re.MULTILINE)
    for module, text in _sources(package, folders):
        if definition.search(text):
            try:
                if (found := _named(importlib.import_module(module), base).get(name)) is not None:
                    return found
            except SyntaxError:                              # `classes` reports it
                return None
    return None


def _sources(package: str, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield name and text of the modules of a package and of its subpackages."""
    for folder in map(Path, folders):
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *inside)), path.read_text(encoding="utf-8", errors="replace")


@cache
def broken(package: str) -> dict[str, str]:
    """name -> file, line and error, for every module and entry point of the group that cannot be loaded."""
    return {}


def _load_class(entry: importlib.metadata.EntryPoint, base: type) -> type[Any] | None:
    """The class of an entry point of another distribution.

    None, with a warning and an item in `broken`, if it cannot be loaded: one plug-in must not stop the others.
    """
    try:
        value = entry.load()
        if isinstance(value, type) and issubclass(value, base):
            return value
        problem = f"{entry.value}: is not a subclass of {base.__name__}"
    except Exception as error:  # noqa: BLE001  a module may raise anything while it is imported
        kind = "" if isinstance(error, EmbtrainError) else f"{type(error).__name__}: "
        problem = f"{place(error, entry.module)}: {kind}{getattr(error, 'msg', None) or error}"
    _skip(entry.group, entry.name, problem)
    return None


def _skip(package: str, name: str, problem: str) -> None:
    broken(package)[name] = problem
    _log.warning("%s: %s: cannot be loaded: %s", package, name, problem)


def place(error: BaseException, module: str) -> str:
    """FILE:LINE of an error: that of a syntax error, else of the innermost call in the module's package."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    top = module.partition(".")[0]
    lines = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)
             if frame.f_globals.get("__name__", "").partition(".")[0] == top]
    if lines:
        return lines[-1]
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    return module if spec is None or spec.origin is None else spec.origin


def find(package: str, base: type, name: str, key: str, hint: Callable[[str], str] = lambda name: "") -> type[Any]:
    """Return the class of that name. Raises UsageError with the key, the nearest name and all known names.

    hint: of an unknown name, for the error in place of the nearest name; empty: none.
    The classes of other names are not imported: a run uses one of each kind, and each file takes time to import.
    """
    if (read := _read_class(package, base, name, tuple(importlib.import_module(package).__path__))) is not None:
        return read
    known = classes(package, base)
    if name not in known and name in broken(package):
        raise UsageError(f"{key}: {name!r} cannot be loaded: {broken(package)[name]}; correct it there")
    if name not in known:
        own = f"; {name}.py is in this folder, but not in an installed package: pip install -e ." \
            if os.path.isfile(f"{name}.py") else ""
        raise UsageError(f"{key}: there is no {name!r}{hint(name) or did_you_mean(name, known)}; there are: "
                         f"{', '.join(known)}{own}")
    return known[name]
