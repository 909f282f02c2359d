"""The tutorials and the walks are true: their blocks are run in order, and print what the pages say, but for numbers;
a command fails where the page says so, and nowhere else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from in_process import Here

from embtrain import registry
from embtrain.experiment import cells
from embtrain.experiment.tasks import base as tasks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.stem != "index"]
WALKS = [page for page in sorted((DOCS / "walks").glob("*.md")) if page.stem != "index"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses and named tuples look for it
    spec.loader.exec_module(module)
    return module


play = script("play")


def test_there_is_one_for_each_task() -> None:
    """And the page that names them names no other."""
    assert {page.stem for page in PAGES} >= {"words", "language", "labels", "graphs", "hierarchies", "translation"}
    index = (DOCS / "tutorials/index.md").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\{doc\}`([^`]+)`", index) if "/" not in name}
    assert named == {page.stem for page in PAGES}
    models = re.findall(r"(?<!\})`(\w+)`", "".join(line for line in index.splitlines() if line.startswith("|")))
    assert {tasks.of_model(name).name for name in models} >= {"windows", "language", "labels", "triples", "pairs",
                                                            "translation"}


def test_there_is_a_walk_for_each_of_five_people() -> None:
    assert {page.stem for page in WALKS} == {"gensim", "pykeen", "linguist", "translator", "sampler"}
    index = (DOCS / "walks/index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\{doc\}`([^`/]+)`", index)) == {page.stem for page in WALKS}
    walked = "".join(page.read_text(encoding="utf-8") for page in WALKS)
    for met in ("ends in 2", "ends in 3", "Ctrl-C: ends in 130", "windows-1252", "utf-16", "pip install -e ."):
        assert met in walked


@pytest.fixture
def as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page installs is gone after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    modules = set(sys.modules)
    yield
    registry.classes.cache_clear()
    for name in set(sys.modules) - modules:
        if "site-packages" not in str(getattr(sys.modules[name], "__file__", "site-packages")) and "." not in name:
            sys.modules.pop(name)


@pytest.mark.tutorial
@pytest.mark.parametrize("page", [f"{page.parent.stem}/{page.stem}" for page in [*PAGES, *WALKS]])
def test_what_a_page_says_is_printed(page: str, as_found: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    # The cells of a comparison, in this process; others keep the module as it is.
    monkeypatch.setattr(cells, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Here}))
    monkeypatch.setattr(Here, "log", [])
    blocks = play.blocks((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    assert sum(block.kind == "sh" and bool(block.told) for block in blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        assert play.shape(play.play(block, names)) == play.shape(block.told), block.code


@pytest.mark.parametrize(("told", "printed", "alike"), [
    ("valid  mrr  0.12 [0.1, 0.2]  5,000\n", "valid mrr  .5  [-0.1, 1.2]  20\n", False),
    ("valid  mrr  0.12 [0.1, 0.2]  5,000\n", "valid   mrr  0.5  [-0.1, 1.2]  20", True),
    ("valid  mrr  0.12\nrun: runs/a\n", "valid  mrr  0.12\nrun: runs/b\n", False),
    ("king: queen 0.9, throne 0.8\n", "king: prince 0.7, crown 0.6\n", True),
    ("king: queen 0.9, throne 0.8\n", "queen: prince 0.7, crown 0.6\n", False),
    ("king: queen 0.9, throne 0.8\n", "king: prince 0.7\n", False),
    ("sgns 1.5\n\nIt cannot be told.\n", "sgns 2.5\n\nIt can.\n", True),
    ("a  training/cpu_seconds  0.1  [0.1, 0.2]  2\n", "a  training/cpu_seconds  0.2  2\n", True),
    ("a  test/accuracy  0.1  [0.1, 0.2]  2\n", "a  test/accuracy  0.2  2\n", False),
    ("dog is a ?\n  1  pet     -0.5  in training\n  2  cat  0.1\n", "dog is a ?\n  1  cat  1.5\n  2  a b   2.5\n",
     True),
    ("dog is a ?\n  1  pet     -0.5  in training\n", "cat is a ?\n  1  pet     -0.5  in training\n", False),
    ("dog is a ?\n  1  pet     -0.5  in training\n", "dog is a ?\n", False),
])
def test_numbers_may_differ_and_nothing_else(told: str, printed: str, alike: bool) -> None:
    assert (play.shape(told) == play.shape(printed)) is alike


def test_a_command_that_fails_is_seen_and_one_that_should_fail_and_does_not() -> None:
    def run(line: str) -> str:
        return play.play(play.Block("sh", f"{line}\n", "", 0, 0), {})
    with pytest.raises(RuntimeError, match="exit code 2"):
        run("embtrain fit --negatives nothing")
    told = run("embtrain fit --negatives nothing   # ends in 2")
    assert told.startswith("embtrain: error: --negatives: strategy: no negatives")
    with pytest.raises(RuntimeError, match="exit code 0"):
        run("embtrain --version   # ends in 2")
    with pytest.raises(AssertionError):
        run("rm -r /")
