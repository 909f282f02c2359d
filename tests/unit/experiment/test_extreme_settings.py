"""Numeric settings at the limits of float32: each trains, or one line names the key and the exit code is 2."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import tiny_runs
from helpers.looped import looped
from pydantic import BaseModel, ValidationError

from embtrain.common.config import Section
from embtrain.common.config.tree import LARGEST, SMALLEST, _annotation_parts
from embtrain.common.errors import EmbtrainError, UsageError
from embtrain.experiment.run import run, settings
from embtrain.experiment.tasks import base as tasks
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives

pytestmark = pytest.mark.long

# float32 cannot represent these or their squares.
BEYOND = [5e-324, 1e-300, 1e-46, 1e-38, 1e-19, 1e19, 1e38, 3.5e38, 1e39, 1e300, 1e308, math.inf, math.nan]
WHOLE = [0, 2**31 - 1, 2**31, 2**53, 2**63 - 1]


def sections() -> list[type[Section]]:
    """Return the sections of every model, source, loss and task."""
    sections_seen: dict[type[Section], None] = {settings.Settings: None}
    for package in (models, negatives, losses):
        sections_seen |= {package.find(name).Config: None for name in package.names()}
    for name in tasks.names():
        sections_seen |= {tasks.find_by_name(name).Config: None, tasks.find_by_name(name).Evaluate: None}
    for section in list(sections_seen):
        sections_seen |= dict.fromkeys(below(section))
    return list(sections_seen)


def below(section: type[BaseModel]) -> Iterator[type[Section]]:
    for info in section.model_fields.values():
        for part in _annotation_parts(info.annotation):
            if isinstance(part, type) and issubclass(part, Section):
                yield part
                yield from below(part)


def numbers(kind: type) -> list[tuple[type[Section], str]]:
    """Return the fields of all sections that accept a float, or an int but no float."""
    out = []
    for section in sections():
        for name, info in section.model_fields.items():
            parts = set(_annotation_parts(info.annotation))
            if kind in parts and (kind is float or float not in parts):
                out.append((section, info.alias or name))
    return out


def test_every_section_is_visited() -> None:
    walked = {(section.__name__, name) for section, name in numbers(float)}
    assert {("TrainConfig", "lr"), ("NegativesConfig", "total_weight"), ("AceConfig", "entropy"),
            ("OrderConfig", "start"), ("TextConfig", "sample"), ("NceConfig", "log_z_start")} <= walked
    assert len(walked) > 60
    assert ("TrainConfig", "batch") in {(section.__name__, name) for section, name in numbers(int)}


@looped("sign", [1, -1])
@looped("value", BEYOND)
def test_fractional_numbers_beyond_float32_are_refused(value: float, sign: int) -> None:
    for section, name in numbers(float):
        with pytest.raises(ValidationError) as error:
            section.model_validate({name: sign * value})
        assert any(one["loc"][:1] == (name,) for one in error.value.errors()), (section, name)


@looped("value", [0.0, SMALLEST, 1.0, LARGEST, *WHOLE])
def test_every_other_number_is_accepted_or_refused_by_name(value: float) -> None:
    for section, name in numbers(float) + numbers(int):
        try:
            section.model_validate({name: value})
        except ValidationError as error:
            assert all(one["loc"][:1] in {(name,), ()} for one in error.errors()), (section, name)


@pytest.mark.parametrize(("key", "value"), [
    ("negatives.total_weight", "1e-300"), ("negatives.total_weight", "1e38"), ("negatives.total_weight", "1e39"),
    ("negatives.total_weight", "1e308"),
    ("train.lr", "1e300"), ("train.loss_lr", "1e39"), ("loss.penalty", "1e-320"), ("evaluate.propensity_b", "1e-40")])
def test_a_refusal_is_one_line_with_the_key(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(UsageError) as error:
        settings.resolve("sgns", model="xc", sets=[f"{key}={value}"])
    assert str(error.value).count("\n") == 0 and key in str(error.value) and error.value.code == 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("extreme"))


@pytest.mark.parametrize(("name", "engine"), [("skipgram", "autograd"), ("skipgram", "fused"), ("xc", "autograd")])
@pytest.mark.parametrize(("key", "value"), [("negatives.total_weight", "1e-18"), ("negatives.total_weight", "1e18"),
                                            ("train.lr", "1e18"), ("train.lr", "1e-18")])
def test_accepted_values_train_or_are_refused_by_name(place: Path, tmp_path: Path, name: str, engine: str, key: str,
                                                      value: str) -> None:
    sets = [f"{key}={value}", "train.epochs=1", "train.checkpoint_every=60"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")                                   # no library prints its own error
        try:
            run.train_in_memory(tiny_runs.config(place, name, engine, *sets), tmp_path / "run")
        except EmbtrainError as error:
            assert value == "1e18" and str(error).count("\n") == 0 and str(error).startswith(f"{key}: "), error
