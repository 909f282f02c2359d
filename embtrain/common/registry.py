"""Finds components by walking their package: adding a file is enough, nothing is registered by hand.

Other distributions add components through the entry-point groups embtrain.models, embtrain.negatives and
embtrain.losses; the user adds Python files by the environment variable EMBTRAIN_PLUGINS. Settings cannot: they may come
from others, and a Python file is run when it is imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import pkgutil
import re
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from embtrain.common import errors
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError, did_you_mean, place

EXTENDED = ("embtrain.models", "embtrain.negatives", "embtrain.losses")  # groups of entry points
PLUGINS = "EMBTRAIN_PLUGINS"  # environment variable: Python files of the user, separated as in PATH
PLUGIN_MODULE = "embtrain_plugin_"  # name under which they are imported, followed by hash of path and file name
guards: dict[str, Callable[[type[Any]], type[Any]]] = {}  # by group: adds checks to a class, or refuses it
_log = logging.getLogger("embtrain")


def classes(package: str, base: type) -> dict[str, type[Any]]:
    """Return {name: class} for every subclass of `base` in the package that defines its own `name`.

    Those of entry points and of the files in EMBTRAIN_PLUGINS are included. A module or entry point that cannot be
    loaded is left out with a warning and recorded in `broken`. DataError for a file of EMBTRAIN_PLUGINS.
    """
    return cached_classes(package, base, plugin_files())


@cache
def cached_classes(package: str, base: type, files: tuple[Path, ...]) -> dict[str, type[Any]]:
    """The result of `classes` with these files of the user."""
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
    for path in files:
        plugin = import_plugin(path)
        for name, value in _all_named(plugin, base):
            if value.__module__ != plugin.__name__:                    # imported there, defined elsewhere
                continue
            if (other := components.setdefault(name, value)) is not value:
                raise DataError(f"{PLUGINS}: {path}: {name!r} is also the name of another component, "
                                f"{_with_file(other)}; rename yours, {value.__qualname__}")
    return dict(sorted(components.items()))


def _with_file(component: type) -> str:
    file = getattr(sys.modules.get(component.__module__), "__file__", None)
    return f"{component.__qualname__} in {file or component.__module__}"


def plugin_files() -> tuple[Path, ...]:
    """Return the files of EMBTRAIN_PLUGINS, each once. DataError for one that is not a Python file."""
    paths = tuple(Path(text).absolute() for text in os.environ.get(PLUGINS, "").split(os.pathsep) if text)
    for path in paths:
        if path.suffix != ".py" or not path.is_file():
            problem = "is not a Python file" if os.path.lexists(path) else "does not exist"
            raise DataError(f"{PLUGINS}: {path}: {problem}; give the files of your components, separated by "
                            f"{os.pathsep!r}, or unset the variable")
    files = {path.resolve(): path for path in paths}
    named = {path.name: path for path in files.values()}
    if other := next((path for path in files.values() if named[path.name] is not path), None):
        raise DataError(f"{PLUGINS}: {other} and {named[other.name]}: have one name, by which runs record versions; "
                        "rename one of them")
    return tuple(files.values())


def plugins_of(component: type) -> set[Path]:
    """Return the files of EMBTRAIN_PLUGINS that define a class or one of its bases."""
    modules = [sys.modules.get(base.__module__) for base in component.__mro__]
    files = {Path(file).resolve() for module in modules if (file := getattr(module, "__file__", None))}
    return {path for path in plugin_files() if path.resolve() in files}   # also one that another file has imported


@cache  # the groups of components share its classes
def import_plugin(path: Path) -> ModuleType:
    """Import a file of the user."""
    return import_file(path, plugin_module(path))


def plugin_module(path: Path) -> str:
    """The module name of a file of the user, by which pickles find its classes: it is equal in all processes."""
    return f"{PLUGIN_MODULE}{zlib.crc32(os.fsencode(path)):08x}_{path.stem.replace('.', '_')}"


def import_file(path: Path, name: str) -> ModuleType:
    """Import a file as module `name`; its folder stays on the path, as for a script.

    DataError names the line of an error, or a module of the folder whose name is that of a module imported before;
    WrongClass the line of a class with wrong traits.
    """
    _check_imports(path, set())
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DataError(f"{path}: cannot be imported; give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module                       # dataclasses of the file look their module up
    sys.path.insert(0, folder := str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, PermissionError) and error.filename == str(path.absolute()):
            raise ResourceError(f"{path}: no permission to read it") from error
        where = place(error, name)
        sys.modules.pop(name, None)
        where = str(path) if where == name else where
        raise errors.class_error(error)(f"{where}: {errors.described_error(error)}; correct it there") from error
    finally:
        sys.path.remove(folder)                      # to the end: other imports must not find its modules first
        if folder not in sys.path:
            sys.path.append(folder)
    return module


def _check_imports(path: Path, checked: set[Path]) -> None:
    """DataError if a file imports a module of its folder, but Python has imported another file under that name.

    Python would use the other file without a warning. The modules of the folder are checked in the same way.
    """
    checked.add(path)
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):               # the import reports it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        else:
            continue
        for module in modules:
            name, folder = module.partition(".")[0], path.parent.resolve()
            near = next(filter(Path.is_file, (folder / name / "__init__.py", folder / f"{name}.py")), None)
            if near is None or name == "embtrain":
                continue
            loaded = getattr(sys.modules.get(name), "__file__", None)
            is_other = loaded is not None and Path(loaded).resolve() != near.resolve()
            if is_other or name in sys.builtin_module_names:
                other = f"{loaded}, imported before," if is_other else "a module of Python"
                raise DataError(f"{path}:{node.lineno}: {name}: would be {other} instead of {near}; rename one of them")
            if near not in checked and near.name != "__init__.py":
                _check_imports(near, checked)


def _named(module: ModuleType, base: type) -> dict[str, type[Any]]:
    """Return {name: class} for the subclasses of `base` in a module that define their own `name`."""
    return dict(_all_named(module, base))


def _all_named(module: ModuleType, base: type) -> Iterator[tuple[str, type[Any]]]:
    """Yield name and class of those subclasses, also of several with one name."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, base) and isinstance(name := vars(value).get("name"), str):
            yield name, value


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
    except Exception as error:  # noqa: BLE001  a module may raise anything while it is imported
        problem = f"{place(error, entry.module)}: {errors.described_error(error)}"
    else:
        if not (problem := _refusal(entry, value, base)):
            return cast(type[Any], value)
    _skip(entry.group, entry.name, problem)
    return None


def _refusal(entry: importlib.metadata.EntryPoint, value: Any, base: type) -> str:
    """What is wrong with the class of an entry point, or ""."""
    if not isinstance(value, type) or not issubclass(value, base):
        return f"{entry.value}: is not a subclass of {base.__name__}"
    try:
        if entry.group in guards:
            guards[entry.group](_with_defaults(value, base))
    except Exception as error:  # noqa: BLE001  of a descriptor, a metaclass or a default of the class
        return str(error) if isinstance(error, EmbtrainError) else f"{entry.value}: {type(error).__name__}: {error}"
    return ""


def _skip(package: str, name: str, problem: str) -> None:
    broken(package)[name] = problem
    _log.warning("%s: %s: cannot be loaded: %s", package, name, problem)


def place_in_plugin(error: BaseException) -> str | None:
    """FILE:LINE of the innermost call in the user's files, in those next to them, or in an entry point; else None."""
    folders = {os.path.realpath(os.path.dirname(module.__file__)) for name, module in list(sys.modules.items())
               if name.startswith(PLUGIN_MODULE) and module.__file__}
    extensions = {entry.module.partition(".")[0] for group in EXTENDED
                  for entry in importlib.metadata.entry_points(group=group)} - {"embtrain"}
    names = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name, folder = frame.f_globals.get("__name__", ""), os.path.dirname(frame.f_code.co_filename)
        known = folder and os.path.realpath(folder) in folders    # generated code has none, as that of a dataclass
        if known or name.partition(".")[0] in extensions:
            names.append(name)
    return place(error, names[-1]) if names else None


def find(package: str, base: type, name: str, key: str, hint: Callable[[str], str] = lambda name: "") -> type[Any]:
    """Return the class of that name. Raises UsageError with the key, the nearest name and all known names.

    hint: of an unknown name, for the error in place of the nearest name; empty: none.
    The classes of other names are not imported: a run uses one of each kind, and each file takes time to import.
    """
    folders = tuple(importlib.import_module(package).__path__)
    if not plugin_files() and (read := _read_class(package, base, name, folders)) is not None:
        return read
    known = classes(package, base)
    if name not in known and name in broken(package):
        raise UsageError(f"{key}: {name!r} cannot be loaded: {broken(package)[name]}; correct it there")
    if name not in known:
        near, own = hint(name) or did_you_mean(name, known), ""
        if package in EXTENDED and not (own := file_hint(name)) and not near:
            own = f"; for one of your own set {PLUGINS} to its file"
        raise UsageError(f"{key}: there is no {name!r}{near}; there are: {', '.join(known)}{own}")
    component = known[name]
    is_own = package in EXTENDED and component.__module__.partition(".")[0] != "embtrain"
    return _with_defaults(component, base) if is_own else component


def _with_defaults(component: type[Any], base: type) -> type[Any]:
    from embtrain.common.traits import require_defaults  # imported late: `--help` needs no pydantic
    return require_defaults(component, base)


def file_hint(name: str) -> str:
    """The end of the error for an unknown name that a file NAME.py of the current folder defines; '' if none does."""
    try:
        text = (file := Path(f"{name}.py")).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
    is_defined = re.search(rf"""\bname\b.*= *["']{re.escape(name)}["']""", text)
    is_plugin = file.resolve() in [path.resolve() for path in plugin_files()]
    return f"; {file} is in this folder: set {PLUGINS}={file}, or install its package" \
        if is_defined and not is_plugin else ""
