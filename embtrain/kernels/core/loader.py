"""Finds, verifies and loads the compiled library.

  EMBTRAIN_CORE        auto: use it if it is built · require: fail without it · off: NumPy reference only
  EMBTRAIN_CORE_LEVEL  v2 · v3 · v4 · generic: this level instead of the best that the processor supports; san: the
                       build with sanitizers. For tests.

A library that was built from other sources than the current ones is always refused: its results would differ from the
code.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from embtrain.common.errors import ResourceError, UsageError
from embtrain.kernels.core.build_info import FOLDER, LEVELS, MIN_CPU_LEVEL, SANITIZED, SOURCE, core_file, source_hash

# Status codes of exported functions; embtrain/kernels/source/core/core.h has the same numbers.
OK, OUT_OF_RANGE, NO_MEMORY, NOT_FINITE = 0, -1, -2, -3

CHOICES = ("auto", "require", "off")
REBUILD_HINT = "rebuild it with python build_core.py (in a checkout) or a new install, or set EMBTRAIN_CORE=off"
INSTALL_HINT = ("install embtrain with a C++ compiler (c++, g++ or clang++) on the PATH, or in a checkout: "
                "python build_core.py")


def core() -> ctypes.CDLL | None:
    """The library, or None if it is not built or switched off. Wrappers call this every time; it is loaded once."""
    return _load_core(os.environ.get("EMBTRAIN_CORE") or "auto", os.environ.get("EMBTRAIN_CORE_LEVEL") or "", FOLDER,
                      SOURCE)


@cache
def _load_core(choice: str, requested: str, folder: Path, source: Path) -> ctypes.CDLL | None:
    if choice not in CHOICES:
        raise UsageError(f"EMBTRAIN_CORE={choice}: one of {', '.join(CHOICES)} is supported; set one of these")
    if choice == "off":
        return None
    if requested not in ("", *LEVELS, SANITIZED):
        raise UsageError(f"EMBTRAIN_CORE_LEVEL={requested}: one of {', '.join((*LEVELS, SANITIZED))} is supported; set "
                         "one of these")
    level = best(folder, source, requested)
    if level is not None:
        return load(core_file(level, folder), source)
    if choice == "require" or requested:
        setting = f"EMBTRAIN_CORE_LEVEL={requested}" if requested else "EMBTRAIN_CORE=require"
        hint = "python build_core.py --sanitize" if requested == SANITIZED else INSTALL_HINT
        raise ResourceError(f"{setting}: {folder} contains no library for this processor; {hint}")
    return None


@cache
def best(folder: Path, source: Path, requested: str = "") -> str | None:
    """The highest level that is built in the folder and supported by this processor, or `requested` alone if given."""
    if requested == SANITIZED:
        return requested if core_file(requested, folder).exists() else None
    built = [level for level in LEVELS if core_file(level, folder).exists()]
    if not built:
        return None
    cpu_level = load(core_file(built[0], folder), source).embtrain_level()
    usable = [level for level in built if MIN_CPU_LEVEL.get(level, 0) <= cpu_level and requested in ("", level)]
    return usable[-1] if usable else None


def levels() -> list[str]:
    """All levels that are built and run on this processor, for tests."""
    return [level for level in LEVELS if best(FOLDER, SOURCE, level)]


@cache
def load(file: Path, source: Path) -> ctypes.CDLL:
    """Load a library; ResourceError if it was built from other sources than those in the folder."""
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:  # built for another machine, or damaged
        raise ResourceError(f"{file} cannot be loaded ({error}); {REBUILD_HINT}") from None
    read_hash = getattr(library, "embtrain_source", None)
    if read_hash is not None:
        read_hash.restype = ctypes.c_char_p
    if read_hash is None or read_hash().decode() != source_hash(source):
        raise ResourceError(f"{file} was built from other sources than {source}; {REBUILD_HINT}")
    return library


@cache
def prefetches_near() -> bool:
    """Whether this processor is faster if rows are prefetched shortly before their use (see source/training/rows.h)."""
    library = core()
    return library is not None and bool(library.embtrain_prefetches_near())


def level() -> str:
    """The level of the library in use, e.g. x86-64-v3; none without a library."""
    library = core()
    if library is None:
        return "none"
    built_for = Path(library._name).stem.removeprefix("_core_")
    return f"x86-64-{built_for}" if built_for in MIN_CPU_LEVEL else built_for


def describe() -> str:
    """One line: the library in use and its path, or how to get one."""
    try:
        library = core()
    except (ResourceError, UsageError) as error:
        return f"rejected: {error}"
    if library is not None:
        return f"{level()}, {library._name}"
    if os.environ.get("EMBTRAIN_CORE") == "off":
        return "none: EMBTRAIN_CORE=off; NumPy and torch are used"
    if any(core_file(level, FOLDER).exists() for level in LEVELS):
        return "none: this processor is older than x86-64-v2; NumPy and torch are used"
    return f"none, NumPy and torch are used; {INSTALL_HINT}"
