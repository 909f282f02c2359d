"""Builds the compiled core: embtrain/kernels/source/**/*.cpp -> embtrain/kernels/_core_LEVEL.so, one for each level.

    python build_core.py              in a checkout, in place
    python build_core.py --sanitize   one more, _core_san.so, with address and undefined-behaviour sanitizers

The build of the package runs it as well (hatchling's custom hook). Without a compiler nothing is built, one line says
so, and the package installs all the same. A compiler that is there and fails fails the build: pip hides what a hook
prints, so an install that went on would lose the core unseen.

EMBTRAIN_CORE  off: nothing is built · require: no compiler is an error · auto (also where it is not set): as above
CXX            the compiler and its first arguments, "ccache g++"; else c++, g++ or clang++, whichever is found
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # in a checkout, by hand
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
COMPILERS = ("c++", "g++", "clang++")

COMPILE = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-Wall", "-Wextra"]
# x86-64-v2 to -v4 spelt out, for compilers that do not know the names. A library for each and not levels in one: there
# the linker would merge templates of one level into the other.
V2 = ["-mssse3", "-msse4.2", "-mpopcnt", "-mcx16"]
V3 = [*V2, "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe", "-mf16c", "-mprfchw"]
V4 = [*V3, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl", "-mavx512vnni",
      "-mprefer-vector-width=512"]
OF_LEVEL = {"v2": V2, "v3": V3, "v4": V4, "generic": []}
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
BASELINE = ("core/cpu_level.cpp",)  # asked which level the processor can run, so it must run on any
# What one source asks for besides. Ranks compare scores that were found in vectors with one that was found alone.
OF_SOURCE = {"scoring/ranking.cpp": ["-ffp-contract=off"]}

# Nothing of the compiler's C++ library is looked for where the core runs. Apple's has a fixed place in the system.
STATIC = [] if sys.platform == "darwin" else ["-static-libstdc++", "-static-libgcc"]


class BuildError(Exception):
    """The core cannot be built, and that must not go unseen."""


class Absent(Exception):
    """What a build needs is not there."""


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--sanitize"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        for path in build(ROOT, os.environ, sanitize=bool(arguments)):
            print(path.relative_to(ROOT))
    except BuildError as error:
        print(f"build_core.py: {error}", file=sys.stderr)
        return 1
    return 0


def build(root: Path, environ: Mapping[str, str], sanitize: bool = False) -> list[Path]:
    """The files that were built; empty where nothing was, and a line on stderr says why."""
    choice = environ.get("EMBTRAIN_CORE") or "auto"
    if choice not in ("auto", "require", "off"):
        raise BuildError(f"EMBTRAIN_CORE={choice}: one of auto, require, off is possible")
    if choice == "off":
        return without("EMBTRAIN_CORE=off")
    folder = root / "embtrain" / "kernels"
    built = names(folder)
    levels = [built.SANITIZED] if sanitize else list(built.LEVELS)
    try:
        command = compiler(environ, built.IS_SUPPORTED_PLATFORM)
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".building-")  # where os.replace can move files from
    except (Absent, OSError) as error:  # OSError: the folder cannot be written to
        if choice == "require":
            raise BuildError(f"{error}, and EMBTRAIN_CORE=require asks for the core") from None
        remove_stale(folder, built)
        return without(str(error))
    with scratch as place, ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = [library(command, built, folder, level, Path(place), pool) for level in levels]
        for path in paths:
            os.replace(path, folder / path.name)
    return [folder / path.name for path in paths]


def without(reason: str) -> list[Path]:
    print(f"build_core.py: no compiled core: {reason}. embtrain works without it, many times slower", file=sys.stderr)
    return []


def names(folder: Path) -> Any:
    """embtrain/kernels/core/build_info.py, loaded by its path: embtrain needs packages that a build may not have."""
    spec = importlib.util.spec_from_file_location("_embtrain_built", folder / "core" / "build_info.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiler(environ: Mapping[str, str], possible: bool) -> list[str]:
    """The command and its first arguments."""
    if not possible:
        raise Absent(f"it is written for 64-bit Linux and macOS, and this is {sys.platform}")
    path = environ.get("PATH", os.defpath)
    if named := environ.get("CXX", "").strip():
        try:
            command = shlex.split(named)
        except ValueError as error:
            raise BuildError(f"CXX={named}: {error}") from None
        if shutil.which(command[0], path=path) is None:
            raise BuildError(f"CXX={named}: there is no program {command[0]}; without CXX a compiler is looked for")
        return command
    for name in COMPILERS:
        if found := shutil.which(name, path=path):
            return [found]
    raise Absent(f"no C++ compiler ({', '.join(COMPILERS)}) on the PATH")


def best_here(command: list[str], built: Any, folder: Path, place: Path) -> str:
    """The highest level that this processor runs."""
    path = place / "level.so"
    run([*command, *COMPILE, "-DEMBTRAIN_SOURCE=0", "-I.", "-shared", *BASELINE, "-o", str(path)], folder / "source")
    able = ctypes.CDLL(str(path)).embtrain_level()
    return str([level for level in built.LEVELS if built.MIN_CPU_LEVEL.get(level, 0) <= able][-1])


def library(command: list[str], built: Any, folder: Path, level: str, place: Path, pool: ThreadPoolExecutor) -> Path:
    """Every source to an object, all objects to one library."""
    sanitize = level == built.SANITIZED
    flags = [*COMPILE, f"-DEMBTRAIN_SOURCE={built.source_hash(folder / 'source')}", *(SANITIZE if sanitize else [])]
    own = OF_LEVEL[best_here(command, built, folder, place) if sanitize else level]
    source = folder / "source"
    texts = [path.relative_to(source).as_posix() for path in built.sources(source) if path.suffix == ".cpp"]
    objects = [place / f"{path.replace('/', '-').removesuffix('.cpp')}-{level}.o" for path in texts]
    jobs = [pool.submit(run, [*command, *flags, *([] if path in BASELINE else own), *OF_SOURCE.get(path, []), "-I.",
                              "-c", path, "-o", str(at)], source)
            for path, at in zip(texts, objects, strict=True)]
    for job in jobs:
        job.result()
    into: Path = built.core_file(level, place)
    run([*command, "-shared", *(SANITIZE if sanitize else STATIC), *map(str, objects), "-o", str(into)], place)
    return into


def run(command: list[str], where: Path) -> None:
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        raise BuildError(f"the compiler failed: {shlex.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    if done.stderr:  # warnings
        print(done.stderr, file=sys.stderr, end="")


def remove_stale(folder: Path, built: Any) -> None:
    """A core of other sources than these would be refused at every start, and here nobody can build the right one."""
    stamp = built.source_hash(folder / "source").encode()
    for level in built.LEVELS:
        path: Path = built.core_file(level, folder)
        try:
            if path.exists() and stamp not in path.read_bytes():
                path.unlink()
        except OSError as error:
            print(f"build_core.py: {path} is of other sources and stays: {error}", file=sys.stderr)


class CoreHook(BuildHookInterface):  # type: ignore[misc, valid-type]
    """A wheel that holds a core is one for this platform, and serves every Python there: py3-none-PLATFORM."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            paths = build(Path(self.root), os.environ)
        except BuildError as error:
            self.app.abort(f"build_core.py: {error}")
        else:
            if paths:
                build_data["artifacts"] += [path.relative_to(self.root).as_posix() for path in paths]
                platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
                build_data["tag"], build_data["pure_python"] = f"py3-none-{platform}", False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
