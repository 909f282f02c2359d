"""A hundred archives of strangers who mean harm, and pickles in the place of every file that a command reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers.hostile_archives import taken_apart
from helpers.hostile_files import KINDS
from helpers.pickles import sung
from helpers.promises import tell

pytestmark = pytest.mark.slow

SLOW = ("run-files", "joined", "checkpoint", "resumed", "exported", "order-run")  # they train


def test_a_hundred_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = Counter(taken_apart(tmp_path / str(i), i) for i in range(100))
    tell("archives", f"100 archives: {ends['refused']} refused, {ends['taken']} taken; 0 bytes outside, all within the "
         "caps.", capsys)
    assert ends["refused"] >= 60


def test_pickles_in_the_place_of_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = sum(sung(kind, tmp_path, 1 if kind.name in SLOW else 3) for kind in KINDS)
    tell("pickles", f"{n:,} pickles in the place of the files of {len(KINDS)} kinds: 0 were run.", capsys)
    assert n >= 5 * len(KINDS)
