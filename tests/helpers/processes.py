"""Command lines in separate processes, for tests that kill them, and a text for input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTED: list[subprocess.Popen[str]] = []
WORDS = ["bal", *(a + b + c + d + "l" for a in "bdfk" for b in "aeiou" for c in "lmnrst" for d in "aeiou")]


def write_text(place: Path) -> Path:
    """Write a folder `text` of twenty documents of 1,500 words, and return `place`."""
    draw = np.random.default_rng(0)
    (place / "text").mkdir()
    for d in range(20):
        ids = np.minimum(draw.geometric(0.01, (60, 25)), 400)
        (place / "text" / f"{d:02}.txt").write_text("\n".join(" ".join(WORDS[i] for i in line) for line in ids))
    return place


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """End the processes that a test of the importing module left running."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def embtrain(place: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    """Run `python -m embtrain` in `place`, torch on one thread, with a separate cache."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "EMBTRAIN_CACHE": str(place / "cache"), **env}
    STARTED.append(subprocess.Popen([sys.executable, "-m", "embtrain", *args], cwd=place, env=env, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return STARTED[-1]
