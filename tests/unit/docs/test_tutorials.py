"""Tutorials, walkthroughs and pages of modules: their blocks run in order and print the output on the pages.

Numbers agree with the page within 5 %, within .02, or within half the width of their printed interval (`differing` in
docs/scripts/play.py); seconds are not compared. The numbers of the pages are those of the compiled core: without a core
the text is compared and the numbers are not. A command fails only where the page states it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.docs_scripts import DOCS, script
from helpers.in_process import Here, replace_processes
from helpers.looped import looped

from embtrain.common import registry
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.core.loader import core

pytestmark = pytest.mark.long

PAGES = [page for page in sorted((DOCS / "guide" / "tutorials").glob("*.md")) if page.stem != "index"]
WALKS = [page for page in sorted((DOCS / "guide" / "walkthroughs").glob("*.md")) if page.stem != "index"]
MODULES = [page for page in sorted((DOCS / "guide" / "modules").glob("*.md")) if page.stem != "classifier"]


play = script("play")


def test_there_is_one_for_each_task() -> None:
    """The index page names exactly these."""
    assert {page.stem for page in PAGES} >= {"words", "language", "labels", "graphs", "hierarchies", "translation"}
    index = (DOCS / "guide" / "tutorials" / "index.md").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\{doc\}`([^`]+)`", index) if "/" not in name}
    assert named == {page.stem for page in PAGES}
    models = re.findall(r"(?<!\})`(\w+)`", "".join(line for line in index.splitlines() if line.startswith("|")))
    assert {tasks.find_for_model(name).name for name in models} >= {"windows", "language", "labels", "triples", "pairs",
                                                            "translation"}


def test_there_is_a_walkthrough_for_each_of_six_users() -> None:
    assert {page.stem for page in WALKS} == {"gensim", "pykeen", "linguist", "labels", "translator",
                                               "sampler"}
    index = (DOCS / "guide" / "walkthroughs" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\{doc\}`([^`/]+)`", index)) == {page.stem for page in WALKS}
    walked = "".join(page.read_text(encoding="utf-8") for page in WALKS)
    for met in ("ends in 2", "ends in 3", "Ctrl-C: ends in 130", "windows-1252", "utf-16", "pip install -e ."):
        assert met in walked


def test_the_pages_of_modules_are_named() -> None:
    index = (DOCS / "guide" / "modules" / "index.md").read_text(encoding="utf-8")
    pages = {page.stem for page in (DOCS / "guide" / "modules").glob("*.md")} - {"index"}
    assert {name for name in re.findall(r"\{doc\}`([^`]+)`", index) if "/" not in name} == pages == {
        "classifier", "recommendation", "two-towers"}


@pytest.fixture
def clean_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove what a page installed after its test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    modules = set(sys.modules)
    yield
    registry.cached_classes.cache_clear()
    for name in set(sys.modules) - modules:
        if "site-packages" not in str(getattr(sys.modules[name], "__file__", "site-packages")) and "." not in name:
            sys.modules.pop(name)


LONG = "tutorials/translation"  # tests/slow/tutorials runs it; the walkthrough of a translator trains one here
TRAINS = ("modules/recommendation", "modules/two-towers", "walkthroughs/labels", "walkthroughs/pykeen",
          "walkthroughs/sampler", "walkthroughs/translator")  # for five seconds or more, in make test-slow


@pytest.mark.tutorial
@pytest.mark.parametrize("page", [
    pytest.param(name, marks=pytest.mark.slow) if page in PAGES or name in TRAINS else name
    for page in [*PAGES, *WALKS, *MODULES] if (name := f"{page.parent.stem}/{page.stem}") != LONG])
def test_the_output_of_a_page_is_printed(page: str, clean_modules: None, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(page, tmp_path, monkeypatch)


def check_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    # Cells of a comparison run in this process; other commands keep the module unchanged.
    replace_processes(monkeypatch, Here)
    monkeypatch.setattr(Here, "log", [])
    blocks = play.blocks((DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8"))
    kind = "python" if page.startswith("modules/") else "sh"
    assert sum(block.kind == kind and bool(block.expected) for block in blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        printed = play.play(block, names)
        assert play.shape(printed) == play.shape(block.expected), block.code
        assert core() is None or play.differing(block.expected, printed) == [], block.code


def test_the_classifier_runs_with_fewer_labels() -> None:
    """tests/slow/doors runs the page as it is, which takes a minute, and compares its numbers."""
    (block,) = play.blocks((DOCS / "guide" / "modules" / "classifier.md").read_text(encoding="utf-8"))
    for on_page, smaller in (("100_000", "2_000"), ("800, 2_000", "20, 500")):
        assert on_page in block.code
        block = block._replace(code=block.code.replace(on_page, smaller, 1))
    assert play.shape(play.play(block, {})) == play.shape(block.expected)


@looped("page_text, printed, is_equal", [
    ("valid  mrr  0.12 [0.1, 0.2]  5,000\n", "valid mrr  .5  [-0.1, 1.2]  20\n", False),
    ("valid  mrr  0.12 [0.1, 0.2]  5,000\n", "valid   mrr  0.5  [-0.1, 1.2]  20", True),
    ("valid  mrr  0.12\nrun: runs/a\n", "valid  mrr  0.12\nrun: runs/b\n", False),
    ("king: queen 0.9, throne 0.8\n", "king: prince 0.7, crown 0.6\n", True),
    ("king: queen 0.9, throne 0.8\n", "queen: prince 0.7, crown 0.6\n", False),
    ("king: queen 0.9, throne 0.8\n", "king: prince 0.7\n", False),
    ("sgns 1.5\n\nA run of sgns takes 1 CPU seconds.\n", "sgns 2.5\n\nA run of sgns takes 2 CPU seconds each.\n", True),
    ("sgns 1.5\n\nuniform beats sgns.\n", "sgns 1.5\n\nuniform is worse than sgns.\n", False),
    ("a  training/cpu_seconds  0.1  [0.1, 0.2]  2\n", "a  training/cpu_seconds  0.2  2\n", True),
    ("a  test/accuracy  0.1  [0.1, 0.2]  2\n", "a  test/accuracy  0.2  2\n", False),
    ("gradient  bias  ms\nexp  0.1  0.2\n", "gradient  bias  ms\nexp  0.1  1e-05\n", True),
    ("gradient  bias  ms\nexp  0.1  0.2\n", "gradient  bias  ms\nexp  –  0.2\n", False),
    ("bounds\nexp  −1.71e−09\n", "bounds\nexp  0.3\n", True),
    ("dog is a ?\n  1  pet     -0.5  in training\n  2  cat  0.1\n", "dog is a ?\n  1  cat  1.5\n  2  a b   2.5\n",
     True),
    ("dog is a ?\n  1  pet     -0.5  in training\n", "cat is a ?\n  1  pet     -0.5  in training\n", False),
    ("dog is a ?\n  1  pet     -0.5  in training\n", "dog is a ?\n", False),
])
def test_output_text_is_compared_without_its_numbers(page_text: str, printed: str, is_equal: bool) -> None:
    assert (play.shape(page_text) == play.shape(printed)) is is_equal


@looped("page_text, printed, faults", [
    ("valid  mr  10.00  5,000\n", "valid  mr  10.40  5,000\n", []),
    ("valid  mr  10.00  5,000\n", "valid  mr  10.70  5,000\n", ["10 on the page, 10.7 printed"]),
    ("valid  mr  10.00  5,000\n", "valid  mr  10.00  6,000\n", ["5000 on the page, 6000 printed"]),
    ("valid  mr  10.00  [8.00, 12.00]  9\n", "valid  mr  11.90  [9.00, 13.80]  9\n", []),
    ("valid  mr  10.00  [8.00, 12.00]  9\n", "valid  mr  12.10  [8.00, 12.00]  9\n", ["10 on the page, 12.1 printed"]),
    ("king: queen 0.91, throne 0.8\n", "king: crown 0.92, queen 0.8\n", []),
    ("king: queen 0.91, throne 0.8\n", "king: crown 0.92, queen 0.2\n", ["0.8 on the page, 0.2 printed"]),
    ("training  seconds  0.9  1,967  1 CPU-s, 9 blocks\n", "training  seconds  9.9  1,967  7 CPU-s, 9 blocks\n", []),
    ("training  seconds  0.9  20\n    1 CPU-s, 100 blocks\n", "training  seconds  9.9  20\n    7 CPU-s, 120 blocks\n",
     ["100 on the page, 120 printed"]),
    ("a  training/cpu_seconds  0.1  [-0.1, 0.2]  2\n", "a  training/cpu_seconds  3.2  2\n", []),
    ("On m, over 2 seeds, uniform (+0.1) beats sgns.\n", "On m, over 2 seeds, uniform (-0.1) beats sgns.\n",
     ["0.1 on the page, -0.1 printed"]),
    ("t\n\ngradient  bias  chance  ms\nrecent m=20  0  0.05  0.2\n",
     "t\n\ngradient  bias  chance  ms\nrecent m=20  0.176  0.05  9\n",
     ["0 on the page, 0.176 printed"]),
    ("x\n\nmilliseconds of n   31  125\nrecent   0.2   0.9\n", "x\n\nmilliseconds of n   31  125\nrecent   7   8\n",
     []),
    ("loss  PREC@1  ms\nfull softmax  0.5  51\n", "loss  PREC@1  ms\nfull softmax  0.4  9\n",
     ["0.5 on the page, 0.4 printed"]),
    ("exp  7.77e−15  1\n", "exp  2e−14  1\n", []),
    ("table of 500 rows\n", "table of 600 rows\n", ["500 on the page, 600 printed"]),
])
def test_a_number_absent_from_the_page_is_found(page_text: str, printed: str, faults: list[str]) -> None:
    assert play.shape(page_text) == play.shape(printed) and play.differing(page_text, printed) == faults


def test_an_unexpected_failure_and_an_unexpected_success_are_detected() -> None:
    def run(line: str) -> str:
        return play.play(play.Block("sh", f"{line}\n", "", 0, 0), {})
    with pytest.raises(RuntimeError, match="exit code 2"):
        run("embtrain fit --negatives nothing")
    page_text = run("embtrain fit --negatives nothing   # ends in 2")
    assert page_text.startswith("embtrain: error: --negatives: strategy: no strategy named")
    with pytest.raises(RuntimeError, match="exit code 0"):
        run("embtrain --version   # ends in 2")
    with pytest.raises(AssertionError):
        run("rm -r /")
