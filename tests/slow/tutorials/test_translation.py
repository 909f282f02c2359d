"""The blocks of the tutorial on translation print the output on the page; it trains three translators."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.docs.test_tutorials import LONG, PAGES, check_page

pytestmark = pytest.mark.slow


def test_the_page_exists() -> None:
    assert LONG in [f"{page.parent.stem}/{page.stem}" for page in PAGES]


def test_the_output_of_the_page_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(LONG, tmp_path, monkeypatch)
