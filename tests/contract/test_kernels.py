"""The contract of kernels: a wrapper, a NumPy reference, tests, and C++ functions with one calling convention."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from helpers.cores import NATIVE, using
from helpers.looped import looped

from embtrain.kernels.core.build_info import SOURCE, sources
from embtrain.kernels.core.loader import core

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "embtrain" / "kernels"
EXPORT = re.compile(r'extern "C"\s+EMBTRAIN_API\s+([\w ]+?[\s*]+)(\w+)\s*\(')
OF_LEVEL = {"embtrain_source", "embtrain_level", "embtrain_prefetches_near"}  # called by core/loader.py
NO_WRAPPERS = {"__init__", "rows"}
FAMILIES = ("sampling", "scoring", "text", "training")
WITHOUT_IDS = ("alias", "row_products", "table_products", "bessel")
# The test of each other wrapper that passes out-of-range ids to every core.
OUT_OF_RANGE_TESTS = {"adasum": "test_invalid_arguments_are_rejected_before_any_write",
                      "generator": "test_mismatched_arguments_are_rejected",
                      "roofline": "test_out_of_range_ids_are_rejected_before_any_write",
                      "cells": "test_invalid_arguments_are_rejected",
                      "gathered_dot": "test_mismatched_arguments_are_rejected",
                      "hyperbolic": "test_out_of_range_ids_are_rejected_before_any_write",
                      "order": "test_out_of_range_ids_are_rejected_before_any_write",
                      "ranking": "test_invalid_arguments_are_rejected",
                      "softmax_ranks": "test_invalid_arguments_are_rejected",
                      "reinforce": "test_mismatched_arguments_are_rejected",
                      "int8_rows": "test_mismatched_arguments_are_rejected_before_any_write",
                      "scan": "test_invalid_types_are_rejected",
                      "tree_walk": "test_invalid_arguments_are_rejected",
                      "tree_draw": "test_invalid_arguments_are_rejected",
                      "tree_sums": "test_mismatched_arguments_are_rejected_before_any_write",
                      "triples": "test_out_of_range_ids_change_nothing",
                      "skipgram": "test_out_of_range_ids_are_rejected_before_any_write",
                      "windows": "test_ids_beyond_the_vocabulary_are_rejected"}


def uses_the_core(path: Path) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "embtrain.kernels.core.loader"
               and "core" in [name.name for name in node.names] for node in ast.walk(ast.parse(path.read_text())))


def wrappers(folder: Path) -> dict[str, Path]:
    """{name: path below the folder} of the kernels in the families and of `roofline`."""
    paths = [folder / "roofline.py", *(path for family in FAMILIES for path in (folder / family).glob("*.py"))]
    return {path.stem: path.relative_to(folder) for path in sorted(paths) if path.stem not in NO_WRAPPERS}


WRAPPERS = wrappers(KERNELS)
EXPORTS = {name: (result.strip(), path.relative_to(SOURCE).as_posix()) for path in sources() if path.suffix == ".cpp"
           for result, name in EXPORT.findall(path.read_text(encoding="utf-8"))}


def test_wrappers_are_found() -> None:
    assert {"alias", "skipgram", "windows"} <= set(WRAPPERS)
    assert {"embtrain_alias_draw", "embtrain_skipgram_update"} | OF_LEVEL <= set(EXPORTS)


@looped("wrapper", WRAPPERS)
def test_a_wrapper_uses_the_core_and_has_a_reference_and_tests_of_both(wrapper: str) -> None:
    path, reference = KERNELS / WRAPPERS[wrapper], KERNELS / "reference" / WRAPPERS[wrapper]
    tests = ROOT / "tests" / "unit" / "kernels" / f"test_kernel_{wrapper}.py"
    assert uses_the_core(path), f"{path}: every kernel has a core; without one it belongs to its caller"
    assert reference.exists() and not uses_the_core(reference)
    assert "kernels.reference" in path.read_text() and tests.exists(), "tests compare the core with the reference"
    module = ".".join(["embtrain.kernels", *WRAPPERS[wrapper].parent.parts])
    text = tests.read_text()
    assert f"{module}.{wrapper}" in text or re.search(rf"from {re.escape(module)} import .*\b{wrapper}\b", text)


@looped("wrapper", [name for name in WRAPPERS if name not in WITHOUT_IDS])
def test_a_wrapper_is_tested_with_ids_out_of_range(wrapper: str) -> None:
    assert wrapper in OUT_OF_RANGE_TESTS, f"which test of {wrapper} passes ids out of range?"
    tree = ast.parse((ROOT / "tests" / "unit" / "kernels" / f"test_kernel_{wrapper}.py").read_text())
    name = OUT_OF_RANGE_TESTS[wrapper]
    (test,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    raised = [ast.unparse(call.args[0]) for call in ast.walk(test) if isinstance(call, ast.Call)
              and ast.unparse(call.func) == "pytest.raises"]
    assert any("IndexError" in kind or "ValueError" in kind for kind in raised)


def test_a_reference_has_a_wrapper() -> None:
    assert wrappers(KERNELS / "reference") == WRAPPERS


def test_a_function_of_the_core_returns_an_int_and_is_called_by_one_wrapper() -> None:
    assert {name: result for name, (result, _) in EXPORTS.items()
            if name not in OF_LEVEL and (result != "int" or not name.startswith("embtrain_"))} == {}
    texts = {wrapper: (KERNELS / path).read_text() for wrapper, path in WRAPPERS.items()}
    callers = {name: [wrapper for wrapper, text in texts.items() if re.search(rf"\b{name}\b", text)]
               for name in EXPORTS if name not in OF_LEVEL}
    assert {name: actual for name, actual in callers.items() if len(actual) != 1} == {}
    called = {name for text in texts.values() for name in re.findall(r"\.(embtrain_\w+)", text)}
    assert called <= set(EXPORTS)


def test_sources_define_each_function_once_and_include_the_header() -> None:
    actual = [name for path in sources() for _, name in EXPORT.findall(path.read_text(encoding="utf-8"))]
    assert len(actual) == len(set(actual))
    for name in {file for _, file in EXPORTS.values()}:
        observed, text = {name}, (SOURCE / name).read_text(encoding="utf-8")
        while more := set(re.findall(r'#include "([\w/]+\.h)"', text)) - observed:
            observed |= more
            text = "\n".join((SOURCE / header).read_text(encoding="utf-8") for header in more)
        assert "core/core.h" in observed, name


@pytest.mark.parametrize("level", NATIVE or [None])
def test_every_core_exports_every_function(level: str | None) -> None:
    with using(level or "off"):
        library = core()
    assert library is None if level is None else [name for name in EXPORTS if not hasattr(library, name)] == []
