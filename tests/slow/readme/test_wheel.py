"""The wheel, built from the tracked files, in an empty environment without a compiler: it installs, and it trains."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAX_BYTES = 5 * 2**20
pytestmark = pytest.mark.slow


def test_the_wheel_trains_in_an_empty_environment(tmp_path: Path) -> None:
    tree, cache, place = tmp_path / "tree", tmp_path / "cache", tmp_path / "place"
    place.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, tracked)):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(build, cwd=tree, env={**os.environ, "EMBTRAIN_CORE": "require"}, check=True)
    wheel, = (tree / "dist").glob("*.whl")
    assert wheel.stat().st_size <= MAX_BYTES
    with zipfile.ZipFile(wheel) as file:
        assert sum(name.endswith(".so") for name in file.namelist()) >= 1

    venv.create(tmp_path / "venv", with_pip=True)
    program = tmp_path / "venv" / "bin"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("EMBTRAIN_", "PYTHON", "VIRTUAL"))}
    env |= {"CXX": "false", "CC": "false", "EMBTRAIN_CORE": "require", "EMBTRAIN_CACHE": str(cache),
            "EMBTRAIN_OFFLINE": "1"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    run(program / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    where = run(program / "python", "-c", "import embtrain; print(embtrain.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    run(program / "embtrain", "doctor")
    printed = run(program / "embtrain", "fit", "--negatives", "ace", "--epochs", "1", "--threads", "1", "--quiet",
                  "--out", "runs/ace")
    assert "wordsim353" in printed and (place / "runs" / "ace" / "vectors.safetensors").exists()
    neighbours = run(program / "embtrain", "neighbours", "runs/ace", "king", "--count", "5")
    assert neighbours.startswith("king: ") and neighbours.count(",") == 4
