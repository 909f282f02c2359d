"""The compiled core: found, checked and loaded.

EMBTRAIN_CORE        auto: used where it is there · require: an error where it is not · off: the NumPy twins alone
EMBTRAIN_CORE_LEVEL  v2 · v3 · v4 · generic: that one instead of the best that the processor can run; san: the one with
                     sanitizers. For tests.

A core that was built from other sources than those beside it is refused, whatever the setting: it would compute
something else than the code that one reads.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embtrain.common.errors import ResourceError, UsageError
from embtrain.kernels.core.build_info import FOLDER, LEVELS, NEEDED, SANITIZED, SOURCE, core_file, source_hash

if TYPE_CHECKING:
    import numpy as np

    Shape = tuple[int, ...]

# What an exported function answers; embtrain/kernels/source/core/core.h has the same numbers.
OK, OUT_OF_RANGE, NO_MEMORY, NOT_FINITE = 0, -1, -2, -3
_Nothing = ctypes.c_char * 0

CHOICES = ("auto", "require", "off")
ANEW = "python build_core.py (in a checkout) or a new install builds it anew; EMBTRAIN_CORE=off does without"
HOW = "install embtrain with a C++ compiler (c++, g++ or clang++) on the PATH, or in a checkout: python build_core.py"


def core() -> ctypes.CDLL | None:
    """The core, or None where there is none or it is switched off. Doors ask at every call; it is loaded once."""
    return _asked_for(os.environ.get("EMBTRAIN_CORE") or "auto", os.environ.get("EMBTRAIN_CORE_LEVEL") or "", FOLDER,
                      SOURCE)


@cache
def _asked_for(choice: str, wanted: str, folder: Path, source: Path) -> ctypes.CDLL | None:
    if choice not in CHOICES:
        raise UsageError(f"EMBTRAIN_CORE={choice}: one of {', '.join(CHOICES)} is possible")
    if choice == "off":
        return None
    if wanted not in ("", *LEVELS, SANITIZED):
        raise UsageError(f"EMBTRAIN_CORE_LEVEL={wanted}: one of {', '.join((*LEVELS, SANITIZED))} is possible here")
    level = best(folder, source, wanted)
    if level is not None:
        return load(core_file(level, folder), source)
    if choice == "require" or wanted:
        asks = f"EMBTRAIN_CORE_LEVEL={wanted}" if wanted else "EMBTRAIN_CORE=require"
        how = "python build_core.py --sanitize" if wanted == SANITIZED else HOW
        raise ResourceError(f"{asks}: {folder} holds no such core that runs here: {how}")
    return None


@cache
def best(folder: Path, source: Path, wanted: str = "") -> str | None:
    """The highest level that is built in the folder and that this processor can run; `wanted` alone if given."""
    if wanted == SANITIZED:
        return wanted if core_file(wanted, folder).exists() else None
    there = [level for level in LEVELS if core_file(level, folder).exists()]
    if not there:
        return None
    able = load(core_file(there[0], folder), source).embtrain_level()
    fit = [level for level in there if NEEDED.get(level, 0) <= able and wanted in ("", level)]
    return fit[-1] if fit else None


class Flat:
    """A contiguous array of somebody else's: where it begins, of what, how many. A tensor tells this sooner than it
    makes an array of itself, which is seen where a draw takes microseconds."""

    __slots__ = ("at", "dtype", "owner", "shape")

    def __init__(self, at: int, dtype: type, shape: Shape, owner: object):
        self.at, self.dtype, self.shape, self.owner = at, dtype, shape, owner

    def __len__(self) -> int:
        return self.shape[0]

    def array(self) -> np.ndarray:
        """To be used no longer than this itself."""
        import numpy as np  # not before somebody asks: commands start without it
        room = (ctypes.c_char * (math.prod(self.shape) * np.dtype(self.dtype).itemsize)).from_address(self.at)
        return np.frombuffer(memoryview(room), np.dtype(self.dtype)).reshape(self.shape)


def as_array(x: np.ndarray | Flat | None) -> Any:
    return x.array() if isinstance(x, Flat) else x


def checked(name: str, array: np.ndarray | Flat, dtype: type, shape: Shape) -> None:
    """TypeError or ValueError where the core could not read the array as what it is taken for."""
    fits = array.dtype is dtype if isinstance(array, Flat) else array.dtype == dtype and array.flags.c_contiguous
    if not fits:
        raise TypeError(f"{name} must be a contiguous array of {dtype.__name__}, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")


def address(array: np.ndarray | Flat | None) -> int | None:
    """Where a contiguous array begins; None for none. The way through array.ctypes takes four times as long."""
    if array is None:
        return None
    if isinstance(array, Flat):
        return array.at
    return ctypes.addressof(_Nothing.from_buffer(array.data)) if array.flags.writeable else int(array.ctypes.data)


def succeed(name: str, answer: int) -> None:
    """What a function of the core answered, as an error where it is none of success."""
    if answer == NOT_FINITE:
        raise UsageError("negatives.source: vectors are not finite, so nothing can be drawn by them; the training has "
                         "diverged: lower train.lr, or set train.clip")
    if answer != OK:
        raise MemoryError(f"{name}: no memory") if answer == NO_MEMORY else out_of_range(name)


def out_of_range(name: str) -> ValueError:
    return ValueError(f"{name}: a number is out of its range")


def within(name: str, x: np.ndarray | None, low: int, high: int) -> None:
    """For twins; the core looks by itself."""
    if x is not None and x.size and not (low <= x.min() and x.max() < high):
        raise out_of_range(name)


def in_parts(part: Callable[[int, int], None], n: int, parts: int) -> None:
    """part(begin, end) over 0..n in as many threads as there are parts."""
    if parts <= 1:
        part(0, n)
        return
    cuts = [n * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(part, cuts[:-1], cuts[1:]))


def levels() -> list[str]:
    """Every level that is there and runs here; tests go through them."""
    return [level for level in LEVELS if best(FOLDER, SOURCE, level)]


@cache
def load(file: Path, source: Path) -> ctypes.CDLL:
    """The library of that file; ResourceError where it was built from other sources than those in the folder."""
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:  # of another machine, or damaged
        raise ResourceError(f"{file} cannot be loaded ({error}): {ANEW}") from None
    tell = getattr(library, "embtrain_source", None)
    if tell is not None:
        tell.restype = ctypes.c_char_p
    if tell is None or tell().decode() != source_hash(source):
        raise ResourceError(f"{file} was built from other sources than those in {source}: {ANEW}")
    return library


def level() -> str:
    """What the core in use was built for, such as x86-64-v3; none where there is no core."""
    library = core()
    if library is None:
        return "none"
    built_for = Path(library._name).stem.removeprefix("_core_")
    return f"x86-64-{built_for}" if built_for in NEEDED else built_for


def describe() -> str:
    """One line: which core is in use and where it lies, or how to get one."""
    try:
        library = core()
    except (ResourceError, UsageError) as error:
        return f"refused: {error}"
    if library is not None:
        return f"{level()}, {library._name}"
    if os.environ.get("EMBTRAIN_CORE") == "off":
        return "none: EMBTRAIN_CORE=off; NumPy and torch do the work"
    if any(core_file(level, FOLDER).exists() for level in LEVELS):
        return "none: this processor is older than x86-64-v2; NumPy and torch do the work"
    return f"none, NumPy and torch do the work; {HOW}"
