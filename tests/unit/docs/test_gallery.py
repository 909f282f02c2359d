"""The gallery: each page fits one screen, draws its picture, prints its output, and ends with a result it has printed.

The pages run in make test-slow AREA=tutorials. Numbers agree as in test_tutorials.py.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from helpers.looped import looped
from unit.docs.test_tutorials import DOCS, play

from embtrain.kernels.core.loader import core

FOLDER = DOCS / "guide" / "gallery"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md")) if page.stem != "index"}


def unprinted(page: str) -> list[float]:
    """Return the numbers of the last paragraph of a page that are not in its output."""
    printed = {value for block in play.blocks(page) for value, _ in play.numbers(block.expected)}
    return [value for value, _ in play.numbers(page.rstrip().rpartition("\n\n")[2]) if value not in printed]


def test_the_index_names_each_page_once() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    named = re.findall(r"\{doc\}`([^`]+)`", index)
    assert sorted(name for name in named if "/" not in name) == sorted(PAGES)
    assert len(named) == len(set(named)) == 12
    assert {picture.stem for picture in (FOLDER / "pictures").iterdir()} == set(PAGES)


@looped("name", PAGES)
def test_a_page_is_one_screen_with_a_picture_and_ends_with_its_result(name: str) -> None:
    page = PAGES[name]
    (block,) = play.blocks(page)
    assert block.kind == "python" and block.expected and len(page.splitlines()) <= 70
    assert play.PICTURE.findall(page) == [f"{name}.svg"] and f'savefig("{name}.svg"' in block.code
    ElementTree.parse(FOLDER / "pictures" / f"{name}.svg")
    result = page.rstrip().rpartition("\n\n")[2]
    assert re.search(r"\d", result) and not result.startswith(("#", "|", "`", "!"))
    assert unprinted(page) == []


def test_a_result_that_is_not_printed_is_found() -> None:
    page = "```python\nx\n```\n\n```text\nshare 0.85 of 300\n```\n\nOf 300 words 0.85 are near.\n"
    assert unprinted(page) == [] and unprinted(page.replace("words 0.85", "words 0.9")) == [0.9]


@pytest.mark.slow
@pytest.mark.tutorial
@pytest.mark.parametrize("name", PAGES)
def test_the_output_of_a_page_is_printed_and_its_picture_drawn(name: str, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # restored after the test
    play.draw_plainly()
    (block,) = play.blocks(PAGES[name])
    printed = play.play(block, {})
    assert play.shape(printed) == play.shape(block.expected)
    assert core() is None or play.differing(block.expected, printed) == []
    assert ElementTree.parse(f"{name}.svg").getroot().tag.endswith("svg")
