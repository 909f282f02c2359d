"""Build the compiled core: embtrain/kernels/source/**/*.cpp -> embtrain/kernels/_core_LEVEL.so, one per level.

    python build_core.py              in a checkout, in place
    python build_core.py --sanitize   one more, _core_san.so, with address and undefined-behaviour sanitizers

The build of the package runs it as well (hatchling's custom hook). Without a compiler nothing is built, one line
reports it, and the package installs without the core. If the compiler fails, the build fails: pip hides the output of a
hook, so a successful installation would silently lack the core.

EMBTRAIN_CORE  off: build nothing · require: fail without a compiler · auto (the default): as above
CXX            the compiler and its first arguments, "ccache g++"; otherwise c++, g++ or clang++, the first found
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
except ImportError:  # run by hand in a checkout
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
COMPILERS = ("c++", "g++", "clang++")

COMPILE = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-Wall", "-Wextra"]
# x86-64-v2 to -v4 as single flags, for compilers without these names. One library per level: in one library the linker
# would merge templates of different levels.
V2 = ["-mssse3", "-msse4.2", "-mpopcnt", "-mcx16"]
V3 = [*V2, "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe", "-mf16c", "-mprfchw"]
V4 = [*V3, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl", "-mavx512vnni",
      "-mprefer-vector-width=512"]
OF_LEVEL = {"v2": V2, "v3": V3, "v4": V4, "generic": []}
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
BASELINE = ("core/cpu_level.cpp",)  # reports the level of the processor, so it must run on all
# Additional flags of one source. Ranks compare scores computed in vectors with one computed alone.
OF_SOURCE = {"scoring/ranking.cpp": ["-ffp-contract=off"]}

# The core must not need the compiler's C++ library at run time. Apple's has a fixed place in the system.
STATIC = [] if sys.platform == "darwin" else ["-static-libstdc++", "-static-libgcc"]


class BuildError(Exception):
    """The core cannot be built, and the build must fail."""


class Absent(Exception):
    """A requirement of the build is missing."""


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
    """Build the libraries and return their paths; if none, a line on stderr gives the reason."""
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
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".building-")  # on the same disk, for os.replace
    except (Absent, OSError) as error:  # OSError: the folder cannot be written to
        if choice == "require":
            raise BuildError(f"{error}; EMBTRAIN_CORE=require needs the core, auto installs without it") from None
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
    """Load embtrain/kernels/core/build_info.py by its path: embtrain imports packages that a build may not have."""
    spec = importlib.util.spec_from_file_location("_embtrain_built", folder / "core" / "build_info.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiler(environ: Mapping[str, str], possible: bool) -> list[str]:
    """Return the compiler command and its first arguments."""
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
    """Return the highest level that this processor supports."""
    path = place / "level.so"
    run([*command, *COMPILE, "-DEMBTRAIN_SOURCE=0", "-I.", "-shared", *BASELINE, "-o", str(path)], folder / "source")
    able = ctypes.CDLL(str(path)).embtrain_level()
    return str([level for level in built.LEVELS if built.MIN_CPU_LEVEL.get(level, 0) <= able][-1])


def library(command: list[str], built: Any, folder: Path, level: str, place: Path, pool: ThreadPoolExecutor) -> Path:
    """Compile every source and link the objects to one library."""
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
    """Remove libraries built from other sources: every start would reject them, and no compiler can rebuild them."""
    stamp = built.source_hash(folder / "source").encode()
    for level in built.LEVELS:
        path: Path = built.core_file(level, folder)
        try:
            if path.exists() and stamp not in path.read_bytes():
                path.unlink()
        except OSError as error:
            print(f"build_core.py: {path} is of other sources and stays: {error}", file=sys.stderr)


class CoreHook(BuildHookInterface):  # type: ignore[misc, valid-type]
    """Tag a wheel with a core py3-none-PLATFORM: it depends on the platform and supports every Python."""

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
