"""Delivery: areas of slow tests, allowed skips, and the contents of the wheel and the source archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import embtrain
from embtrain.kernels.core.build_info import sources

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "embtrain"


# --- areas of slow tests ----------------------------------------------------------------------------------

def test_every_slow_test_is_in_an_area() -> None:
    """Without one, only a run of all areas would find that it fails."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    listed = [ROOT / path for line in lines if line.startswith("SLOW_") for path in line.partition(":=")[2].split()]
    assert listed and all(path.exists() for path in listed)
    slow = [path for folder in ("unit", "contract") for path in (ROOT / "tests" / folder).rglob("test_*.py")
            if "mark.slow" in path.read_text(encoding="utf-8") and path != Path(__file__)]
    assert [path for path in slow if not {path, *path.parents} & set(listed)] == []


# --- skips -----------------------------------------------------------------------------------------------

SKIPPING = """
import pytest
def test_runs(): pass
def test_device(): pytest.skip("gpu: none")
def test_data(): pytest.skip("data: no file")
"""


LAZY = "def test_lazy(): pytest.skip('not today')"
ABSENT = "pytest.importorskip('missing_module')"


@pytest.mark.parametrize(("workers", "more", "data", "code", "message"), [
    ("0", "", False, 0, "skipped: 1 data, 1 gpu"),
    ("0", LAZY, True, 1, "does not allow it: test_more.py::test_lazy | not today\n"
                         "does not allow it: test_it.py::test_data | data: no file"),
    ("2", LAZY, False, 1, "does not allow it: test_more.py::test_lazy | not today"),
    ("2", ABSENT, False, 1, "does not allow it: test_more.py | could not import"),
])
def test_a_skip_must_be_on_the_list(tmp_path: Path, workers: str, more: str, data: bool, code: int,
                                    message: str) -> None:
    for name in ("conftest.py", "skips.txt"):
        shutil.copy(ROOT / "tests" / name, tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPPING)
    (tmp_path / "test_more.py").write_text(f"import pytest\n{more}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    names = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "EMBTRAIN"))}
    if data:
        names["EMBTRAIN_DATA_MIRROR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"],
                          cwd=tmp_path, env=names, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert all(line in done.stdout for line in message.split("\n")), done.stdout + done.stderr


# --- archives -----------------------------------------------------------------------------------------------

def recipes() -> set[str]:
    """Return corpora/x.yaml and other recipes of the checkout."""
    return {path.relative_to(ROOT).as_posix() for kind in ("corpora", "evals", "configs")
            for path in (ROOT / kind).rglob("*.yaml")}


def test_wheel_and_source_archive_contain_the_recipes_and_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(tmp_path)]
    env = {**os.environ, "EMBTRAIN_CORE": "off"}  # files of a core: tests/unit/kernels/test_build_core.py
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [*PACKAGE.rglob("*.py"), *sources()]
    code = {path.relative_to(ROOT).as_posix() for path in files} | {"embtrain/py.typed"}
    assert {name.split("/")[0] for name in recipes()} == {"corpora", "evals", "configs"}

    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == code | {f"embtrain/{name}" for name in recipes()}

    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert code | recipes() | {"LICENSE", "pyproject.toml", "Makefile", "build_core.py", "tests/conftest.py"} <= names

    # The source archive is sufficient to build the same wheel.
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    done = subprocess.run(again, cwd=source, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "again").glob("*.whl")
    assert set(zipfile.ZipFile(path).namelist()) == set(wheel.namelist())
    assert path.name.split("-")[1] == embtrain.__version__

    # Installed without the checkout, the package finds the recipes inside itself.
    for name in wheel.namelist():
        wheel.extract(name, tmp_path / "site")
    ask = "import embtrain.common.shipped as s; print(*(s.folder(k) for k in s.KINDS), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "site" / "embtrain" / k) for k in ("corpora", "evals", "configs")]
