"""Models of the user: their settings, the engines that train them, and errors in their files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.experiment.catalogue import components
from embtrain.experiment.run.settings import from_run, from_tree
from embtrain.models import base as models
from embtrain.negatives import base as sources
from embtrain.report.load import run as run_record
from embtrain.report.run import settings_section
from embtrain.train.engines import choose

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from helpers import tiny_runs

MODELS = '''"""Models of the user."""

from pydantic import Field

from embtrain.models.base import Model, ModelConfig
from embtrain.models.hierarchies.order import Order
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig


class Capped(SkipGram):
    name = "capped"


class ByRadiusConfig(SkipGramConfig):
    radius: float = Field(1.0, gt=0, description="largest length")


class ByRadius(Capped):
    name = "by_radius"
    Config = ByRadiusConfig


class OwnConfig(ModelConfig):
    tau: float = Field(2.0, gt=0, description="inverse temperature")


class FewKeys(SkipGram):
    name = "few_keys"
    Config = OwnConfig


class OwnOrder(Order):
    name = "own_order"


class OtherData(SkipGram):
    name = "other_data"
    task = "labels"


class Own(Model):
    name = "own"
    Config = OwnConfig


class SmallConfig(SkipGramConfig):
    dim: int = Field(17, ge=1, description="dimensions")
    similarity: str = Field("cosine", description="of two vectors")


class Small(SkipGram):
    name = "small"
    Config = SmallConfig


class Alone(Model):
    name = "alone"
    Config = SmallConfig
'''
PlugIn = Callable[[str], Path]


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlugIn:
    """Writes a file and names it in EMBTRAIN_PLUGINS."""
    def write(text: str) -> Path:
        path = tmp_path / "own_models.py"
        path.write_text(text)
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return write


def test_a_model_has_the_settings_of_its_nearest_base_class_with_a_file(plug_in: PlugIn, tmp_path: Path) -> None:
    plug_in(MODELS)
    (config := tmp_path / "cap.yaml").write_text("model: {name: capped}\n")
    base = experiment.resolve(model="skipgram")
    for settings in (experiment.resolve(model="capped"), experiment.resolve(sets=["model.name=capped"]),
                     experiment.resolve(config=config)):
        assert settings.model.name == "capped"
        assert {**settings.model_dump(), "model": None} == {**base.model_dump(), "model": None}
        assert {**settings.model.model_dump(), "name": "skipgram"} == base.model.model_dump()
        assert from_tree(settings.model_dump(mode="json")).model == settings.model
    own = experiment.resolve(model="by_radius", sets=["model.radius=3", "model.similarity=cosine"])
    assert own.model.model_dump()["radius"] == 3 and own.model.model_dump()["similarity"] == "cosine"
    order, own_order = experiment.resolve(model="order"), experiment.resolve(model="own_order")
    assert own_order.strategy == order.strategy == "order" and own_order.train == order.train


def test_a_model_has_the_defaults_of_its_class_where_no_file_has_them(plug_in: PlugIn) -> None:
    plug_in(MODELS)
    for name in ("few_keys", "own"):
        own = experiment.resolve(model=name).model.model_dump()
        assert own == {"name": name, "dim": 100, "tau": 2.0}
    for name in ("small", "alone"):             # also of a key that default.yaml has
        own = experiment.resolve(model=name).model.model_dump()
        assert (own["dim"], own["similarity"]) == (17, "cosine")
    other = experiment.resolve("softmax", "other_data", sets=["train.lr=1"])
    assert other.train.lr == 1 and other.model.model_dump()["similarity"] == "dot"


@pytest.mark.long
def test_a_run_of_an_own_model_is_trained_read_and_reported(plug_in: PlugIn, tmp_path: Path) -> None:
    plug_in(MODELS)
    assert "capped" in components.about_components("models")
    tiny_runs.write(tmp_path)
    sets = [*tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.epochs=1"]
    settings = experiment.resolve(model="by_radius", corpus=str(tmp_path / "text"), sets=sets)
    run = experiment.fit(settings, tmp_path / "run")
    assert from_run(run.folder).model.name == "by_radius"
    assert json.loads((run.folder / "identity.json").read_text())["plugins"].keys() == {"own_models.py"}
    experiment.resume(run.folder)
    shown = str(settings_section.blocks(run_record.read(run.folder)))
    assert "the defaults, model by_radius and strategy sgns" in shown
    assert "model.dim" in shown and "model.radius" not in shown and "model.name" not in shown


def test_an_unknown_model_lists_those_of_the_user(plug_in: PlugIn) -> None:
    with pytest.raises(UsageError, match=r"no model named 'cappd'; there are: box, cbow, complex"):
        experiment.resolve(model="cappd")
    plug_in(MODELS.partition("class ByRadiusConfig")[0])
    with pytest.raises(UsageError, match=r"^--model: model\.name: no model named 'cappd' \(did you mean 'capped'\?\); "
                                         r"there are: box, capped, cbow"):
        experiment.resolve(model="cappd")


def test_a_model_that_cannot_be_loaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.registry, "broken", lambda package: {"gone": "gone.py:1: SyntaxError: invalid"})
    with pytest.raises(UsageError, match=r"^--model: model\.name: 'gone' cannot be loaded: gone\.py:1: SyntaxError"):
        experiment.resolve(model="gone")


@pytest.mark.parametrize("has_kernels", [True, False])
def test_a_model_of_the_user_is_not_trained_by_kernels(plug_in: PlugIn, monkeypatch: pytest.MonkeyPatch,
                                                       has_kernels: bool) -> None:
    """They replace `encode`, `score` and `after_update`, which it may override."""
    plug_in(MODELS)
    monkeypatch.setattr(choose, "has_kernels", lambda train: has_kernels)
    reason = r"model\.name: (capped|own_order): is not a model of embtrain, and .* may override$"
    for name, device in (("capped", "cpu"), ("own_order", "cpu"), ("capped", "cuda")):
        settings = experiment.resolve(model=name, device=device)
        parts = settings.model, sources.find(settings.negatives.source), settings.negatives, settings.loss
        train, reasons = choose.choose(*parts, settings.train)
        assert train.engine == "autograd" and len(reasons) == 1 and re.match(reason, reasons[0])
        with pytest.raises(UsageError, match=rf"^train\.engine: fused: {reason}") as wrong:
            choose.choose(*parts, settings.train.model_copy(update={"engine": "fused"}))
        assert wrong.value.code == 2 and len(wrong.value.args) == 1
        tables = settings.train.model_copy(update={"tables": "mapped"})
        if device == "cpu":
            with pytest.raises(UsageError, match=r"^train\.tables: mapped: model\.name: "):
                choose.require_tables_in_files(*parts, tables)
