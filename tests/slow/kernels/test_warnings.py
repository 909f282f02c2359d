"""Compile every source at every level: `make fit` must not start with compiler warnings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embtrain.kernels.core import build_info

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_every_source_compiles_without_a_warning(tmp_path: Path) -> None:
    if shutil.which("c++") is None or not build_info.IS_SUPPORTED_PLATFORM:
        pytest.skip("core: no compiler here")
    shutil.copy(ROOT / "build_core.py", tmp_path)
    shutil.copytree(build_info.FOLDER, tmp_path / "embtrain" / "kernels", ignore=shutil.ignore_patterns("*.so"))
    done = subprocess.run([sys.executable, "build_core.py"], cwd=tmp_path, text=True, capture_output=True, check=False,
                          env={**os.environ, "CXX": "c++ -Werror", "EMBTRAIN_CORE": "require"})
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.split()) == len(build_info.LEVELS)
