"""Ten of the hostile archives of tests/slow/trust: no byte outside, no more than allowed inside, no crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.hostile_archives import taken_apart

from embtrain.data.storage import archives

pytestmark = pytest.mark.long

HARMLESS = {6}  # three hundred empty files


@pytest.mark.parametrize("i", range(10))
def test_ten_archives(tmp_path: Path, i: int) -> None:
    assert taken_apart(tmp_path / "here", i) == ("taken" if i in HARMLESS else "refused")


def test_extraction_that_checks_no_name_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_checked_name", lambda archive, name: Path(name.replace("\0", "").lstrip("/")))
    harmed = 0
    for i in range(1, 30, 2):
        try:
            taken_apart(tmp_path / "deep" / "enough" / str(i), i)
        except (AssertionError, ValueError):
            harmed += 1
    assert harmed
