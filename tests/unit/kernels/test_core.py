"""Finding, verifying and loading the compiled core, and the messages if it is rejected."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers.cores import CORES, NATIVE, needs_core, using

from embtrain.common.config.setting_keys import nested
from embtrain.common.errors import ResourceError, UsageError
from embtrain.kernels.core import binding, build_info, loader as core

ROOT = Path(__file__).resolve().parents[3]
OFF = os.environ.get("EMBTRAIN_CORE") == "off"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate package with one source and no core; the setting is the default."""
    for name in ("EMBTRAIN_CORE", "EMBTRAIN_CORE_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(core, "FOLDER", tmp_path)
    monkeypatch.setattr(core, "SOURCE", tmp_path / "source")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.cpp").write_text("// a\n")
    return tmp_path


class Library:
    """A stand-in for a loaded core; `source` is what it was built from, `runs` the level of the processor."""

    def __init__(self, path: str, source: str, runs: int):
        self._name, self.embtrain_level = path, lambda: runs
        if source:
            self.embtrain_source = partial(source.encode)  # restype can be set on it


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, *levels: str, runs: int = 3, source: str | None = None) -> None:
    """Create cores of these levels in the folder."""
    for level in levels:
        build_info.core_file(level, folder).touch()
    stored_hash = build_info.source_hash(folder / "source") if source is None else source
    monkeypatch.setattr(core.ctypes, "CDLL", lambda path: Library(path, stored_hash, runs))
    monkeypatch.setattr(core, "LEVELS", ("v2", "v3", "v4"))


# --- the core of this checkout ----------------------------------------------------------------------------------------

def test_a_core_exists_if_there_is_a_compiler() -> None:
    """Otherwise every kernel test would compare the reference with itself, and pass."""
    if OFF:
        assert core.core() is None
    elif build_info.IS_SUPPORTED_PLATFORM and any(map(shutil.which, ("c++", "g++", "clang++"))):
        assert core.core() is not None, "python build_core.py"


@needs_core
def test_every_level_was_built_from_the_current_sources() -> None:
    for level in NATIVE:
        with using(level):
            library = core.core()
        assert library is not None and library.embtrain_source().decode() == build_info.source_hash()
        assert Path(library._name) == build_info.core_file(level)


@needs_core
def test_the_level_matches_the_processor() -> None:
    info = Path("/proc/cpuinfo")
    with using(NATIVE[0]):
        library = core.core()
    assert library is not None
    if platform.machine() != "x86_64" or not info.exists():
        assert library.embtrain_level() in range(5)
        return
    flags = set(re.search(r"^flags\s*:(.*)$", info.read_text(), re.MULTILINE)[1].split())  # type: ignore[index]
    v2 = {"cx16", "popcnt", "ssse3", "sse4_2"} <= flags
    v3 = v2 and {"avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "f16c"} <= flags
    v4 = v3 and {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl", "_vbmi2", "_vnni")} <= flags
    assert library.embtrain_level() == (4 if v4 else 3 if v3 else 2 if v2 else 1)


def test_status_codes_match_the_header() -> None:
    header = (build_info.SOURCE / "core" / "core.h").read_text(encoding="utf-8")
    numbers = {name: int(value) for name, value in re.findall(r"^constexpr int (\w+) = (-?\d+);", header, re.MULTILINE)}
    assert numbers == {name: getattr(core, name) for name in ("OK", "OUT_OF_RANGE", "NO_MEMORY", "NOT_FINITE")}


def test_finding_the_core_imports_nothing_heavy() -> None:
    code = "import sys, embtrain.kernels.core.loader; print(*({'numpy', 'torch', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# --- choice of a core -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("existing", "runs", "setting", "taken"), [
    (["v2", "v3"], 3, "", "v3"), (["v2", "v3"], 2, "", "v2"), (["v2", "v3"], 1, "", None), (["v2"], 3, "", "v2"),
    (["v3"], 2, "", None), (["v2", "v3"], 3, "v2", "v2"), (["v2", "san"], 3, "", "v2"),
    (["v2", "san"], 3, "san", "san"), ([], 3, "", None), (["v2", "v3", "v4"], 4, "", "v4"),
    (["v2", "v3", "v4"], 3, "", "v3"), (["v2", "v3", "v4"], 4, "v3", "v3"),
])
def test_the_highest_supported_level_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch, existing: list[str],
                                               runs: int, setting: str, taken: str | None) -> None:
    put(folder, monkeypatch, *existing, runs=runs)
    monkeypatch.setenv("EMBTRAIN_CORE_LEVEL", setting)
    library = core.core()
    assert (library and library._name) == (taken and str(folder / f"_core_{taken}.so"))
    description = core.describe()
    if taken in ("v2", "v3", "v4"):
        assert description == f"x86-64-{taken}, {folder}/_core_{taken}.so"
    elif taken is None:
        assert description.startswith("none") and ("older than x86-64-v2" in description) == bool(existing)


def test_off_loads_no_core_and_require_needs_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CORE", "require")
    with pytest.raises(ResourceError, match=r"EMBTRAIN_CORE=require.*python build_core\.py"):
        core.core()
    assert core.describe().startswith("rejected: EMBTRAIN_CORE=require")
    core.best.cache_clear()
    put(folder, monkeypatch, "v2")
    assert core.core() is not None
    monkeypatch.setenv("EMBTRAIN_CORE", "off")
    assert core.core() is None and core.describe().startswith("none: EMBTRAIN_CORE=off")


def test_a_requested_level_that_is_missing_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, monkeypatch, "v2")
    for level, says in (("v3", "EMBTRAIN_CORE_LEVEL=v3: "), ("san", "--sanitize")):
        monkeypatch.setenv("EMBTRAIN_CORE_LEVEL", level)
        with pytest.raises(ResourceError, match=says):
            core.core()


@pytest.mark.parametrize(("name", "value"), [("EMBTRAIN_CORE", "on"), ("EMBTRAIN_CORE_LEVEL", "v9"),
                                             ("EMBTRAIN_CORE_LEVEL", "../v2")])
def test_unknown_settings_are_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name}={value}: one of "):
        core.core()


# --- rejected cores ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("choice", ["auto", "require"])
@pytest.mark.parametrize("source", ["0" * 32, ""])
def test_a_stale_core_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch, choice: str, source: str) -> None:
    put(folder, monkeypatch, "v2", "v3", source=source)
    monkeypatch.setenv("EMBTRAIN_CORE", choice)
    with pytest.raises(ResourceError, match=r"other sources than .*python build_core\.py.*EMBTRAIN_CORE=off"):
        core.core()
    assert core.describe().startswith("rejected: ")
    monkeypatch.setenv("EMBTRAIN_CORE", "off")
    assert core.core() is None


@needs_core
def test_the_real_core_is_rejected_with_other_sources(tmp_path: Path) -> None:
    for path in build_info.sources():
        copy = tmp_path / path.relative_to(build_info.SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    assert core.load(build_info.core_file(NATIVE[0]), tmp_path) is not None
    core.load.cache_clear()
    with (tmp_path / "core" / "cpu_level.cpp").open("a") as file:
        file.write("\n")
    with pytest.raises(ResourceError, match="other sources"):
        core.load(build_info.core_file(NATIVE[0]), tmp_path)


def test_the_hash_depends_on_every_file(folder: Path) -> None:
    source = folder / "source"
    hashes = [build_info.source_hash(source)]
    (source / "notes.txt").write_text("no source")
    assert build_info.source_hash(source) == hashes[0]
    for change in (lambda: (source / "a.cpp").write_text("// b\n"), lambda: (source / "a.cpp").rename(source / "b.cpp"),
                   lambda: (source / "a.h").write_text(""), (source / "a.h").unlink):
        change()
        hashes.append(build_info.source_hash(source))
    assert len(set(hashes)) == 4 and hashes[4] == hashes[2]


def test_an_invalid_library_is_rejected(folder: Path) -> None:
    for level in build_info.LEVELS:
        build_info.core_file(level, folder).write_text("no library")
    with pytest.raises(ResourceError, match=r"cannot be loaded .*EMBTRAIN_CORE=off"):
        core.core()


def test_every_listed_core_can_be_used() -> None:
    for name in CORES:
        with using(name):
            assert (core.core() is None) == (name == "off")


def test_an_error_names_the_source_inside_another_on_every_thread() -> None:
    for failing in range(2):
        with nested("inner"), pytest.raises(UsageError, match=r"^negatives\.inner\.source: vectors are not finite"):
            binding.parallel_map(lambda i, _, at=failing: binding.raise_for_status("", core.NOT_FINITE * (i == at)),
                                 [(0, 1), (1, 2)])
