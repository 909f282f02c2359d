"""Components by name: only the module that defines a name is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embtrain.common import registry
from embtrain.common.errors import UsageError
from embtrain.experiment.tasks import base as tasks
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.engines.base import Engine

PACKAGE = "parts_of_a_test"
BASE = "class Base:\n    pass\n"
PART = f"from {PACKAGE}.base import Base\n\n\nclass Part(Base):\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a part of its own file, one whose name is computed, and one in a subpackage that mentions `a`."""
    folder = tmp_path / PACKAGE
    for path, text in {"__init__.py": "", "base.py": BASE, "a.py": f'{PART}    name = "a"\n',
                       "computed.py": f'{PART}    name = "b".lower()\n', "inner/__init__.py": "",
                       "inner/c.py": f'NAME = """\n    name = "a"\n"""\n{PART}    name: ClassVar[str] = "c"\n'.replace(
                           f"{PART}", f"from typing import ClassVar\n{PART}")}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _find(name: str) -> type:
    return registry.find(PACKAGE, importlib.import_module(f"{PACKAGE}.base").Base, name, "part")


def test_modules_of_other_names_are_not_imported(package: Path) -> None:
    assert _find("c").__module__ == f"{PACKAGE}.inner.c"
    assert not {f"{PACKAGE}.a", f"{PACKAGE}.computed"} & sys.modules.keys()


def test_a_name_in_a_text_is_not_a_definition(package: Path) -> None:
    (package / "a.py").rename(package / "z.py")              # read after inner/c.py
    assert _find("a").__module__ == f"{PACKAGE}.z"


def test_a_computed_name_is_found_by_importing_all(package: Path) -> None:
    assert _find("b").__module__ == f"{PACKAGE}.computed"


def test_an_error_names_all(package: Path) -> None:
    with pytest.raises(UsageError, match=r"^part: there is no 'd'.*; there are: a, b, c$"):
        _find("d")


def test_a_file_that_is_not_python_is_reported_only_if_it_is_used(package: Path, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    (package / "a.py").write_text(f'{PART}    name = "a"\n    x = (\n')
    assert _find("c") and not caplog.messages
    with pytest.raises(UsageError, match=r"^part: there is no 'a'.*; there are: b, c$"):
        _find("a")
    assert len(caplog.messages) == 1 and "a.py:" in caplog.messages[0]


@pytest.mark.parametrize(("name", "base"), [
    ("embtrain.models", Model), ("embtrain.negatives", NegativeSource), ("embtrain.losses", Loss),
    (tasks.PACKAGE, tasks.Task), ("embtrain.train.engines", Engine)])
def test_each_component_is_found_by_its_text(name: str, base: type) -> None:
    folders = tuple(importlib.import_module(name).__path__)
    known = registry.classes(name, base)
    assert known and {key: registry._read_class(name, base, key, folders) for key in known} == known
