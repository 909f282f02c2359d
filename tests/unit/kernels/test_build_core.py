"""The build of the core with a working, missing or failing compiler, and the wheel that results."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from embtrain.kernels.core import build_info
from embtrain.kernels.core.loader import best, load

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
LEVELS = [*build_info.LEVELS]
needs_compiler = pytest.mark.skipif(not (COMPILER and build_info.IS_SUPPORTED_PLATFORM),
                                    reason="core: no compiler here")
LIBRARIES = {f"embtrain/kernels/_core_{level}.so" for level in LEVELS}


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_core", ROOT / "build_core.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_core = script()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with a minimal core; a build in the real checkout would disturb parallel tests."""
    root = tmp_path / "tree"
    kernels = root / "embtrain" / "kernels"
    (kernels / "source").mkdir(parents=True)
    for name in ("build_core.py", "pyproject.toml", "README.md", "LICENSE", ".gitignore", "embtrain/__init__.py",
                 "embtrain/kernels/__init__.py", "embtrain/kernels/core/build_info.py",
                 "embtrain/kernels/source/core/core.h",
                 "embtrain/kernels/source/core/cpu_level.cpp", "embtrain/kernels/source/sampling/alias.cpp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for kind in ("configs", "corpora", "evals"):
        (root / kind).mkdir()
        (root / kind / "a.yaml").write_text("name: a\n")
    return root


def environ(path: Path | str | None = None, **more: str) -> dict[str, str]:
    """The environment without the settings of embtrain; `path` replaces PATH."""
    kept = {name: value for name, value in os.environ.items() if name != "CXX" and not name.startswith("EMBTRAIN")}
    return {**kept, **({} if path is None else {"PATH": str(path)}), **more}


def python(tree: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=env, capture_output=True, text=True, check=False)


def cores(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*.so")}


def fake_compiler(tree: Path) -> Path:
    """A folder that contains only a failing c++."""
    folder = tree / "bin"
    folder.mkdir()
    (folder / "c++").write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    (folder / "c++").chmod(0o755)
    return folder


# --- the build --------------------------------------------------------------------------------------------------------

@needs_compiler
def test_a_core_for_every_level_stores_its_source_hash(tree: Path) -> None:
    done = python(tree, "build_core.py", env=environ())
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, LIBRARIES, "")
    kernels = tree / "embtrain" / "kernels"
    assert cores(tree) == LIBRARIES and not list(kernels.glob(".building*"))
    for level in LEVELS:
        library = load(build_info.core_file(level, kernels), kernels / "source")
        assert hasattr(library, "embtrain_alias_draw") and library.embtrain_level() in range(5)


@needs_compiler
def test_square_roots_of_avx512_compile_without_a_warning(tmp_path: Path) -> None:
    """tests/slow/kernels/test_warnings.py compiles every source at every level."""
    if "v4" in LEVELS:
        build_core.run([COMPILER, *build_core.COMPILE, *build_core.V4, *build_core.OF_SOURCE["scoring/ranking.cpp"],
                        "-Werror", "-I.", "-c", "scoring/ranking.cpp", "-o", str(tmp_path / "ranking.o")],
                       build_info.SOURCE)


@needs_compiler
def test_nothing_but_the_marked_functions_is_exported(tree: Path) -> None:
    if shutil.which("nm") is None:
        return
    (tree / "embtrain" / "kernels" / "source" / "more.cpp").write_text("int unmarked() { return 0; }\n")
    build_core.build(tree, environ())
    assert cores(tree) == LIBRARIES
    for file in cores(tree):
        symbols = subprocess.run(["nm", "-D", "--defined-only", file], cwd=tree, capture_output=True, text=True,
                                 check=True)
        assert {line.split()[-1] for line in symbols.stdout.splitlines()} == {
            "embtrain_source", "embtrain_level", "embtrain_prefetches_near", "embtrain_alias_draw"}


@needs_compiler
def test_the_file_that_detects_the_level_runs_on_every_processor(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    run = build_core.run
    monkeypatch.setattr(build_core, "run", lambda command, where: (commands.append(command), run(command, where)))
    build_core.build(tree, environ())
    levels = [command for command in commands if "core/cpu_level.cpp" in command]
    others = [command for command in commands if "sampling/alias.cpp" in command]
    assert len(levels) == len(others) == len(LEVELS)
    assert not any(word.startswith("-m") for command in levels for word in command)
    assert LEVELS == ["generic"] or sorted("-mavx2" in command for command in others) == [False, True, True]


ARENA = """
#include "sampling/masses.h"
int main() {
    Arena arena;
    char* arrays[100];
    for (char*& array : arrays) {
        array = arena.allocate<char>(1000);
        if (array == nullptr || arena.failed()) return 1;
        std::fill_n(array, 1000, char(&array - arrays));
    }
    for (char*& array : arrays)
        if (std::count(array, array + 1000, char(&array - arrays)) != 1000) return 2;
    if (reinterpret_cast<size_t>(arena.allocate<int64_t>(0)) % alignof(std::max_align_t)) return 3;
    return arena.allocate<double>(int64_t(1) << 59) == nullptr && arena.failed() ? 0 : 4;
}
"""


@needs_compiler
def test_scratch_arrays_of_a_draw_are_unlimited(tmp_path: Path) -> None:
    (tmp_path / "arena.cpp").write_text(ARENA)
    build_core.run([COMPILER, *build_core.COMPILE, "-Wno-unused-function", "-Wno-unused-const-variable", "-I.",
                    str(tmp_path / "arena.cpp"), "-o", str(tmp_path / "arena")], build_info.SOURCE)
    assert subprocess.run([tmp_path / "arena"], check=False).returncode == 0


def test_a_missing_compiler_gives_one_line(tree: Path) -> None:
    done = python(tree, "build_core.py", env=environ(tree))
    assert done.returncode == 0 and done.stdout == "" and cores(tree) == set()
    assert len(done.stderr.splitlines()) == 1 and "no C++ compiler (c++, g++, clang++) on the PATH" in done.stderr


def test_a_compiler_can_be_required(tree: Path) -> None:
    done = python(tree, "build_core.py", env=environ(tree, EMBTRAIN_CORE="require"))
    assert done.returncode == 1 and "EMBTRAIN_CORE=require" in done.stderr and "Traceback" not in done.stderr


def test_off_builds_nothing_and_keeps_existing_cores(tree: Path) -> None:
    existing = build_info.core_file(LEVELS[0], tree / "embtrain" / "kernels")
    existing.write_text("a core")
    done = python(tree, "build_core.py", env=environ(EMBTRAIN_CORE="off", CXX="/nope"))
    assert (done.returncode, done.stdout) == (0, "") and existing.read_text() == "a core"


def test_unknown_values_are_rejected(tree: Path) -> None:
    done = python(tree, "build_core.py", env=environ(EMBTRAIN_CORE="yes"))
    assert done.returncode == 1 and "EMBTRAIN_CORE=yes: one of auto, require, off" in done.stderr
    assert python(tree, "build_core.py", "--fast", env=environ()).returncode == 2


@pytest.mark.parametrize("choice", ["auto", "require"])
def test_a_failing_compiler_fails_the_build_with_its_message(tree: Path, choice: str) -> None:
    done = python(tree, "build_core.py", env=environ(fake_compiler(tree), EMBTRAIN_CORE=choice))
    assert done.returncode == 1 and "out of order" in done.stderr and "Traceback" not in done.stderr
    assert not list((tree / "embtrain" / "kernels").glob(".building*"))


@needs_compiler
def test_a_syntax_error_fails_the_build_and_keeps_the_old_core(tree: Path) -> None:
    build_core.build(tree, environ())
    kernels = tree / "embtrain" / "kernels"
    before = {path: path.read_bytes() for path in kernels.glob("*.so")}
    with (kernels / "source" / "sampling" / "alias.cpp").open("a") as file:
        file.write("no C++\n")
    done = python(tree, "build_core.py", env=environ())
    assert done.returncode == 1 and "alias.cpp" in done.stderr and "error" in done.stderr
    assert {path: path.read_bytes() for path in kernels.glob("*.so")} == before != {}


@pytest.mark.parametrize(("named", "says"), [
    ("/nope", "CXX=/nope: there is no program /nope"), ("nope -O2", "there is no program nope"),
    ('g++ "', "No closing quotation"),
])
def test_a_named_compiler_must_exist(tree: Path, named: str, says: str) -> None:
    done = python(tree, "build_core.py", env=environ(CXX=named))
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr


def test_a_named_compiler_can_have_arguments() -> None:
    folder = os.environ["PATH"]
    assert build_core.compiler({"PATH": folder, "CXX": " env -i 'a b' "}, True) == ["env", "-i", "a b"]
    assert COMPILER is None or build_core.compiler({"PATH": folder, "CXX": ""}, True) == [COMPILER]


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x7fELF no program")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(build_core.BuildError, match="broken cannot be run"):
        build_core.run([str(tmp_path / "broken")], tmp_path)


def test_no_compiler_keeps_a_current_core_and_removes_a_stale_one(tree: Path) -> None:
    kernels = tree / "embtrain" / "kernels"
    file = build_info.core_file(LEVELS[0], kernels)
    file.write_bytes(b"ELF " + build_info.source_hash(kernels / "source").encode())
    assert build_core.build(tree, environ(tree)) == [] and file.exists()
    file.write_bytes(b"ELF " + b"0" * 32)
    assert build_core.build(tree, environ(tree)) == [] and not file.exists()


@needs_compiler
def test_a_read_only_folder_is_reported(tree: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(build_core.tempfile, "TemporaryDirectory", refuse)
    assert build_core.build(tree, environ()) == [] and "Read-only file system" in capsys.readouterr().err
    with pytest.raises(build_core.BuildError, match="Read-only file system"):
        build_core.build(tree, environ(EMBTRAIN_CORE="require"))


# --- sanitizers -------------------------------------------------------------------------------------------------------

PLANTED = """
#include "core/core.h"
extern "C" EMBTRAIN_API int embtrain_planted(int64_t* x, int32_t n) { x[1] = 1; return n + 1; }
"""


@needs_compiler
def test_the_sanitizers_check_the_level_of_this_machine(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_core.build(tree, environ())
    kernels, commands = tree / "embtrain" / "kernels", []
    run = build_core.run
    monkeypatch.setattr(build_core, "run", lambda command, where: (commands.append(command), run(command, where)))
    build_core.build(tree, environ(), sanitize=True)
    (separate,) = [command for command in commands if "sampling/alias.cpp" in command]
    assert [word for word in separate if word.startswith("-m")] == build_core.OF_LEVEL[best(kernels,
                                                                                            kernels / "source")]


@needs_compiler
@pytest.mark.parametrize(("x", "n", "says"), [("2", "1", ""), ("1", "1", "heap-buffer-overflow"),
                                              ("2", "2**31-1", "signed integer overflow")])
def test_the_sanitized_core_finds_a_planted_error(tree: Path, x: str, n: str, says: str) -> None:
    asan = subprocess.run([str(COMPILER), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(asan.stdout.strip()).is_absolute():
        return  # this compiler has no sanitizers as libraries of their own
    (tree / "embtrain" / "kernels" / "source" / "planted.cpp").write_text(PLANTED)
    assert python(tree, "build_core.py", "--sanitize", env=environ()).returncode == 0
    assert cores(tree) == {"embtrain/kernels/_core_san.so"}
    code = ("import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; "
            "core = ctypes.CDLL('embtrain/kernels/_core_san.so'); "
            f"core.embtrain_planted(ctypes.c_void_p(libc.malloc(8 * {x})), ctypes.c_int32({n}))")
    done = python(tree, "-c", code, env=environ(LD_PRELOAD=asan.stdout.strip(), ASAN_OPTIONS="detect_leaks=0"))
    assert (done.returncode == 0) == (says == "") and says in done.stderr, done.stderr


# --- the wheel and the source archive ---------------------------------------------------------------------------------

def archive(tree: Path, kind: str, env: dict[str, str]) -> tuple[Path, subprocess.CompletedProcess[str]]:
    shutil.rmtree(tree / "dist", ignore_errors=True)
    code = f"import hatchling.build as b; b.build_{kind}('dist')"
    (tree / "dist").mkdir()
    done = python(tree, "-c", code, env=env)
    return next((tree / "dist").iterdir(), Path()), done


def inside(wheel: Path) -> tuple[set[str], str]:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        return names, file.read(next(name for name in file.namelist() if name.endswith("/WHEEL"))).decode()


@needs_compiler
def test_a_wheel_with_a_core_is_for_this_platform_and_every_python(tree: Path) -> None:
    (tree / "embtrain" / "kernels" / "_core_san.so").write_text("left over")
    wheel, done = archive(tree, "wheel", environ())
    assert done.returncode == 0, done.stderr
    names, metadata = inside(wheel)
    platform = wheel.stem.rpartition("-")[2]
    assert wheel.stem.endswith(f"-py3-none-{platform}") and platform != "any" and "manylinux" not in platform
    assert f"Tag: py3-none-{platform}" in metadata and "Root-Is-Purelib: false" in metadata
    assert {name for name in names if name.endswith(".so")} == LIBRARIES
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tree / "site")  # our own
    kernels = tree / "site" / "embtrain" / "kernels"
    load(build_info.core_file(LEVELS[0], kernels), kernels / "source")


@needs_compiler
def test_an_editable_install_has_its_core_in_the_checkout(tree: Path) -> None:
    wheel, done = archive(tree, "editable", environ())
    assert done.returncode == 0 and cores(tree) == LIBRARIES, done.stderr
    assert not any(name.endswith(".so") for name in inside(wheel)[0])


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_wheel_without_a_core_is_for_every_platform(tree: Path, kind: str) -> None:
    for env in (environ(tree), environ(EMBTRAIN_CORE="off")):
        build_info.core_file(LEVELS[0], tree / "embtrain" / "kernels").write_text("of another build")
        wheel, done = archive(tree, kind, env)
        assert done.returncode == 0 and "no compiled core" in done.stderr
        names, metadata = inside(wheel)
        assert wheel.stem.endswith("-py3-none-any") and "Root-Is-Purelib: true" in metadata
        assert not any(name.endswith(".so") for name in names)


def test_a_wheel_is_not_built_if_the_compiler_fails(tree: Path) -> None:
    folder = fake_compiler(tree)
    for env, says in ((environ(folder), "out of order"), (environ(CXX="/nope"), "there is no program /nope"),
                      (environ(tree, EMBTRAIN_CORE="require"), "no C++ compiler")):
        wheel, done = archive(tree, "wheel", env)
        assert done.returncode != 0 and wheel == Path()
        assert says in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_the_source_archive_contains_sources_without_a_core_and_builds(tree: Path) -> None:
    build_info.core_file(LEVELS[0], tree / "embtrain" / "kernels").write_text("of another build")
    sdist, done = archive(tree, "sdist", environ(tree))
    assert done.returncode == 0, done.stderr
    with tarfile.open(sdist) as file:
        names = {name.split("/", 1)[1] for name in file.getnames()}
        file.extractall(tree / "unpacked", filter="data")
    assert {"build_core.py", "embtrain/kernels/core/build_info.py"} <= names
    assert not any(name.endswith(".so") for name in names)
    sources = ("core/core.h", "core/cpu_level.cpp", "sampling/alias.cpp")
    assert {f"embtrain/kernels/source/{name}" for name in sources} <= names
    wheel, done = archive(next((tree / "unpacked").iterdir()), "wheel", environ())
    assert done.returncode == 0, done.stderr
    assert {name for name in inside(wheel)[0] if name.endswith(".so")} == (LIBRARIES if COMPILER else set())


# --- the Makefile -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("path", "settings", "expected"), [
    (None, {}, "require" if shutil.which("c++") else "auto"), ("bare", {}, "auto"),
    (None, {"EMBTRAIN_CORE": "off"}, "off")])
def test_make_test_requires_the_core_if_there_is_a_compiler(
        tree: Path, path: str | None, settings: dict[str, str], expected: str) -> None:
    make, shell = shutil.which("make"), shutil.which("sh")
    if make is None or shell is None:
        return
    shutil.copy(ROOT / "Makefile", tree)
    (tree / "bare").mkdir()
    (tree / "bare" / "sh").symlink_to(shell)
    with (tree / "Makefile").open("a") as file:
        file.write("\ntest-slow:\n\t@echo core=$$EMBTRAIN_CORE\n.venv/.ready-peers .venv/.core supported-python: ;\n")
    done = subprocess.run([make, "-s", "test-slow"], cwd=tree, capture_output=True, text=True, check=False,
                          env=environ(tree / path if path else None, **settings))
    assert f"core={expected}\n" in done.stdout, done.stderr


@needs_compiler
def test_make_rebuilds_after_an_edit(tree: Path) -> None:
    make = shutil.which("make")
    if make is None:
        return
    shutil.copy(ROOT / "Makefile", tree)

    def run(**more: str) -> str:
        done = subprocess.run([make, ".venv/.core", f"PYTHON={sys.executable}"], cwd=tree, env=environ(**more),
                              capture_output=True, text=True, check=True)
        return done.stdout

    assert "_core_" not in run(EMBTRAIN_CORE="off")
    assert "_core_" in run() and "_core_" not in run()
    source = "embtrain/kernels/source"
    for name in (f"{source}/core/core.h", f"{source}/sampling/alias.cpp", "build_core.py", "pyproject.toml"):
        later = (tree / ".venv" / ".core").stat().st_mtime + 2
        os.utime(tree / name, (later, later))
        assert "_core_" in run(), name
        os.utime(tree / ".venv" / ".core", (later + 1, later + 1))
