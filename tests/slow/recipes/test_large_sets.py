"""The large shipped data sets agree with their recipes; tests/unit/data reads a smaller one of each kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.data.test_hierarchy import check_hierarchy
from unit.data.test_recipes import LARGE, PARALLEL, check_parallel_text

pytestmark = pytest.mark.slow


def test_the_large_corpora_are_shipped() -> None:
    assert set(LARGE) < set(PARALLEL)


@pytest.mark.parametrize("name", LARGE)
def test_parallel_text_agrees_with_its_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path(os.environ.get("EMBTRAIN_DATA_MIRROR") or "missing").is_dir():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path))
    check_parallel_text(name)


def test_a_hierarchy_with_a_line_for_each_path_has_its_counts() -> None:
    check_hierarchy("wordnet-nouns", "legacy", 82_115, 831_115, 0.18175)
