"""Settings of classes of the user: config.yaml must hold them before a run is trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import tiny_runs

from embtrain import experiment
from embtrain.common import registry
from embtrain.common.errors import UsageError
from embtrain.experiment.run.settings import from_run
from embtrain.nn import SampledLoss

SOURCE = """
import datetime, enum, pathlib
from typing import Any, Literal
import numpy as np
from pydantic import BaseModel, model_validator
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.static.uniform import Uniform
class Color(enum.Enum):
    RED = 1
class Section(BaseModel):
    z: int = 3
class OwnConfig(NegativesConfig):
    limit: int = 3
    extra: {annotation} = {value}
class Own(Uniform):
    name = "own"
    Config = OwnConfig
"""
LINE = 14
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a source with a setting of this type and default."""
    def plug_in(annotation: str, value: str) -> Path:
        (path := tmp_path / "own.py").write_text(SOURCE.format(annotation=annotation, value=value))
        registry.import_plugin.cache_clear()
        registry.cached_classes.cache_clear()
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return plug_in


@pytest.mark.parametrize(("annotation", "value", "shown"), [
    ("Any", "len", "<built-in function len>"), ("Any", "b'a'", "b'a'"), ("bytes", r"b'\xff'", r"b'\\xff'"),
    ("Any", "1j", "1j"), ("Any", "{1, 2}", "{1, 2}"), ("Any", "object()", "<object object at .*>"),
    ("Any", "datetime.date(2020, 1, 1)", r"datetime\.date\(2020, 1, 1\)"), ("Any", "Color.RED", "<Color.RED: 1>"),
    ("Any", "np.ones(2)", r"array\(\[1., 1.\]\)"), ("list", "[{'a': b'a'}]", r"\[{'a': b'a'}\]"),
    ("Any", "(1, Color)", r"\(1, <enum 'Color'>\)")])
def test_a_setting_that_cannot_be_saved_is_refused(write: Write, annotation: str, value: str, shown: str) -> None:
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{LINE}: negatives\.source: own: Config: extra = "
                                         rf"{shown}: cannot be saved in config\.yaml; use numbers, texts, booleans, "
                                         r"lists or dicts$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


def test_a_setting_of_a_model_that_cannot_be_saved_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "own.py").write_text(
        "from typing import Any\nfrom embtrain.models.words.skipgram import SkipGram\nclass C(SkipGram.Config):\n"
        "    extra: Any = len\nclass Own(SkipGram):\n    name = 'own'\n    Config = C\n")
    monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
    with pytest.raises(UsageError, match=rf"model\.name: {re.escape(str(path))}:4: own: Config: extra = <built-in"):
        experiment.resolve("sgns", sets=["model.name=own"])


@pytest.mark.parametrize(("annotation", "value", "shown"), [
    ("float", "float('inf')", "inf: should be a finite number"), ("float", "1e30", r"1e\+30: should be 0, or between")])
def test_a_setting_that_would_be_refused_when_it_is_read_is_refused(write: Write, annotation: str, value: str,
                                                                    shown: str) -> None:
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{LINE}: negatives\.source: own: Config: extra = "
                                         rf"{shown}.*; set another value$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])
    assert experiment.resolve("sgns", sets=["negatives.source=own", "negatives.extra=3"])


@pytest.mark.parametrize(("annotation", "value"), [
    ("tuple[int, ...]", "(1, 2)"), ("Any", "(1, 2)"), ("pathlib.Path", "pathlib.Path('a')"), ("set[int]", "{1, 2}"),
    ("Any", "pathlib.Path('a')"), ("Literal['a']", "'a'"), ("Section", "Section()"), ("Any", "Section()"),
    ("Any", "float('nan')"), ("Color", "Color.RED"), ("datetime.date", "datetime.date(2020, 1, 1)"),
    ("complex", "1j"), ("Any", "{1: None}"), ("float", "np.float64(0.5)"), ("bool", "True")])
def test_a_setting_that_can_be_saved_is_not_refused(write: Write, annotation: str, value: str) -> None:
    write(annotation, value)
    assert experiment.resolve("sgns", sets=["negatives.source=own"])


def test_a_run_with_settings_of_many_types_is_reported_and_resumed(write: Write, tmp_path: Path) -> None:
    write("tuple[Color, datetime.date, pathlib.Path]", "(Color.RED, datetime.date(2020, 1, 1), pathlib.Path('a'))")
    tiny_runs.write(tmp_path)
    settings = experiment.resolve("sgns", corpus=str(tmp_path / "text"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.epochs=1", "negatives.source=own"])
    run = experiment.fit(settings, tmp_path / "run")
    assert from_run(run.folder).negatives == settings.negatives
    assert "negatives.extra" not in (run.folder / "report.html").read_text()       # it has its default
    experiment.resume(run.folder)


def test_a_default_that_cannot_be_saved_is_replaced(write: Write, tmp_path: Path) -> None:
    write("Any", "len")
    tiny_runs.write(tmp_path)
    settings = experiment.resolve("sgns", corpus=str(tmp_path / "text"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.epochs=1", "negatives.source=own", "negatives.extra=7"])
    run = experiment.fit(settings, tmp_path / "run")
    assert "negatives.extra" in (run.folder / "report.html").read_text()


def test_a_module_of_pytorch_has_settings_that_no_file_holds(write: Write) -> None:
    write("Any", "len")
    assert SampledLoss("own", num_classes=5)._spec.config.extra is len             # type: ignore[attr-defined]
