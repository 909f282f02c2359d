"""Coverage-guided fuzzing of the text reader: fuzz_reader.py, for some seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.promises import tell
from helpers.reference_reader import sound

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
SECONDS = 40


def fuzzed(place: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    for name, data in sound():
        (place / name).write_bytes(data)
    paths = os.pathsep.join(map(str, (HERE.parents[2], HERE.parents[1])))
    environ = {**os.environ, "PYTHONPATH": paths, "EMBTRAIN_CORE": "require"}
    return subprocess.run([sys.executable, str(HERE / "fuzz_reader.py"), str(seconds), str(place)], cwd=place,
                          env=environ, capture_output=True, text=True, timeout=600, check=False)


def test_the_core_reads_as_its_reference_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("atheris", reason="peers: atheris is not installed; it is built for Linux and macOS")
    ended = fuzzed(tmp_path, SECONDS)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    runs = re.search(r"Done (\d+) runs", ended.stdout + ended.stderr)
    assert runs is not None and int(runs[1]) > 1000
    tell("coverage", f"{int(runs[1]):,} inputs chosen by coverage: the core and its reference agree.", capsys)
