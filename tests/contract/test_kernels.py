"""What every kernel owes: a door, a twin in NumPy, tests, and functions that cross from C++ in the agreed way."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from cores import NATIVE, using

from embtrain.kernels.core.build_info import SOURCE, sources
from embtrain.kernels.core.library import core

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "embtrain" / "kernels"
EXPORT = re.compile(r'extern "C"\s+EMBTRAIN_API\s+([\w ]+?[\s*]+)(\w+)\s*\(')
OF_LEVEL = {"embtrain_source", "embtrain_level"}  # asked by core.py
NO_DOORS = {"__init__", "built", "columns", "core", "draws"}
# The test of each door that hands it ids out of range, on every core. `alias` takes none, its table has what it draws;
# `along` takes rows side by side, `bessel` numbers.
REFUSES = {"ace": "test_what_does_not_fit_is_refused",
           "bounds": "test_ids_beyond_the_table_are_refused_before_anything_is_written",
           "cells": "test_bad_arrays_and_numbers_are_refused",
           "gathered": "test_what_does_not_belong_together_is_refused",
           "order": "test_ids_out_of_range_are_refused_before_anything_is_written",
           "ranking": "test_bad_arguments_are_refused", "reinforce": "test_what_does_not_fit_is_refused",
           "rounded": "test_what_does_not_fit_is_refused_before_anything_is_written",
           "text": "test_types_that_are_none_are_refused",
           "tree": "test_bad_arrays_and_numbers_are_refused", "tree_draw": "test_bad_arrays_and_numbers_are_refused",
           "tree_sums": "test_what_does_not_fit_is_refused_before_anything_is_written",
           "triples": "test_ids_out_of_range_change_nothing",
           "update": "test_out_of_range_is_told_before_anything_is_written",
           "windows": "test_ids_beyond_the_vocabulary_are_refused"}


def asks_for_the_core(path: Path) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "embtrain.kernels.core.library"
               and "core" in [name.name for name in node.names] for node in ast.walk(ast.parse(path.read_text())))


DOORS = sorted(path.stem for path in KERNELS.glob("*.py") if path.stem not in NO_DOORS)
EXPORTS = {name: (result.strip(), path.name) for path in sources() if path.suffix == ".cpp"
           for result, name in EXPORT.findall(path.read_text(encoding="utf-8"))}


def test_doors_are_found() -> None:
    assert {"alias", "update", "windows"} <= set(DOORS)
    assert {"embtrain_alias_draw", "embtrain_update"} | OF_LEVEL <= set(EXPORTS)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_asks_for_the_core_and_has_a_twin_and_tests_of_both(door: str) -> None:
    path, twin = KERNELS / f"{door}.py", KERNELS / "reference" / f"{door}.py"
    tests = ROOT / "tests" / "unit" / f"test_kernel_{door}.py"
    assert asks_for_the_core(path), f"{path}: every kernel has a core; without one it belongs to its caller"
    assert twin.exists() and not asks_for_the_core(twin)
    assert "kernels.reference" in path.read_text() and tests.exists(), "held to its twin by tests"
    text = tests.read_text()
    assert f"kernels.{door}" in text or re.search(rf"from embtrain\.kernels import .*\b{door}\b", text)


@pytest.mark.parametrize("door", [door for door in DOORS if door not in ("alias", "along", "bessel")])
def test_a_door_is_tried_with_ids_out_of_range(door: str) -> None:
    assert door in REFUSES, f"which test of {door} hands it ids out of range?"
    tree = ast.parse((ROOT / "tests" / "unit" / f"test_kernel_{door}.py").read_text())
    (test,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == REFUSES[door])
    raised = [ast.unparse(call.args[0]) for call in ast.walk(test) if isinstance(call, ast.Call)
              and ast.unparse(call.func) == "pytest.raises"]
    assert any("IndexError" in kind or "ValueError" in kind for kind in raised)


def test_a_twin_has_a_door() -> None:
    assert {path.stem for path in (KERNELS / "reference").glob("*.py")} - {"__init__"} == set(DOORS)


def test_a_function_of_the_core_returns_an_int_and_is_called_by_one_door() -> None:
    assert {name: result for name, (result, _) in EXPORTS.items()
            if name not in OF_LEVEL and (result != "int" or not name.startswith("embtrain_"))} == {}
    texts = {door: (KERNELS / f"{door}.py").read_text() for door in DOORS}
    callers = {name: [door for door, text in texts.items() if re.search(rf"\b{name}\b", text)]
               for name in EXPORTS if name not in OF_LEVEL}
    assert {name: doors for name, doors in callers.items() if len(doors) != 1} == {}
    called = {name for text in texts.values() for name in re.findall(r"\.(embtrain_\w+)", text)}
    assert called <= set(EXPORTS)


def test_sources_name_no_function_twice_and_include_the_header() -> None:
    found = [name for path in sources() for _, name in EXPORT.findall(path.read_text(encoding="utf-8"))]
    assert len(found) == len(set(found))
    for name in {file for _, file in EXPORTS.values()}:
        seen, text = {name}, (SOURCE / name).read_text(encoding="utf-8")
        while more := set(re.findall(r'#include "(\w+\.h)"', text)) - seen:
            seen |= more
            text = "\n".join((SOURCE / header).read_text(encoding="utf-8") for header in more)
        assert "core.h" in seen, name


@pytest.mark.parametrize("level", NATIVE or [None])
def test_every_function_is_in_every_core(level: str | None) -> None:
    with using(level or "off"):
        library = core()
    assert library is None if level is None else [name for name in EXPORTS if not hasattr(library, name)] == []
