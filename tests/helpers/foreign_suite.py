"""Runs chosen tests of another package's test file, with its import changed, in a process of its own."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


def gensim_source(name: str) -> str:
    """Return the text of a test file of gensim."""
    origin = importlib.util.find_spec("gensim.test").submodule_search_locations[0]  # type: ignore[union-attr, index]
    return Path(origin, name).read_text(encoding="utf-8")


def list_tests(source: str) -> list[str]:
    """Return the tests of a source: CLASS::NAME, or NAME outside a class."""
    tops = ast.parse(source).body
    return [f"{node.name}::{inner.name}" if node is not inner else inner.name for node in tops
            for inner in (node.body if isinstance(node, ast.ClassDef) else [node])
            if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_")]


def outcomes(source: str, chosen: set[str], folder: Path) -> dict[str, str]:
    """Run the chosen tests of a source, of which all begin. Returns passed, failure, error or skipped by id."""
    if importlib.util.find_spec("testfixtures") is None:
        pytest.skip("doors: testfixtures is not installed; run make test-slow AREA=doors")
    path, report = folder / "test_foreign.py", folder / "report.xml"
    path.write_text(source, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c",
                           os.devnull, f"--rootdir={folder}", f"--junitxml={report}",
                           *(f"{path}::{test}" for test in sorted(chosen))], cwd=folder,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_added_paths()])},
                          capture_output=True, text=True, check=False)
    assert report.is_file(), done.stdout + done.stderr
    found = dict[str, str]()
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")
        of_class, name = case.attrib["classname"].rpartition("test_foreign")[2], case.attrib["name"].partition("[")[0]
        test = f"{of_class.lstrip('.')}::{name}" if of_class else name
        if found.get(test, "passed") == "passed":           # a parametrized test passes if all its cases do
            found[test] = outcome
    return found


def _added_paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]
