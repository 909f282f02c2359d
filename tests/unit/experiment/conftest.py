"""Runs of these tests write reports with empty charts."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _empty_charts(empty_charts_of_module: None) -> None:
    """Apply to every test of the folder."""
