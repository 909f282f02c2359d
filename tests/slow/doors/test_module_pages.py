"""The page of the classifier prints its output with all 100,000 labels; times are not compared."""

from __future__ import annotations

import pytest
from helpers.docs_scripts import DOCS, script

from embtrain.kernels.core.loader import core

play = script("play")
pytestmark = pytest.mark.slow


def test_the_classifier_prints_the_numbers_of_its_page() -> None:
    assert core() is not None, "the page's numbers are those of the compiled core"
    (block,) = play.blocks((DOCS / "guide" / "modules" / "classifier.md").read_text(encoding="utf-8"))
    printed = play.play(block, {})
    assert play.shape(printed) == play.shape(block.expected)
    assert play.differing(block.expected, printed) == []
