"""JSON schema of the settings: every shipped file is valid under it, a misspelled key or a wrong value is not."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.looped import looped

from embtrain import cli
from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.experiment.catalogue import schema as schemas
from embtrain.experiment.catalogue.listing import GROUPS
from embtrain.experiment.run.settings import settings_class
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives

SCHEMA = schemas.settings_schema()
FILES = [shipped.folder("configs") / "default.yaml", *(shipped.path("configs", name, kind)
         for kind in ("models", "strategies") for name in shipped.names("configs", kind))]
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
         "null": type(None)}
LIMITS = {"minimum": lambda x, m: x >= m, "maximum": lambda x, m: x <= m, "exclusiveMinimum": lambda x, m: x > m,
          "exclusiveMaximum": lambda x, m: x < m, "minLength": lambda x, m: len(x) >= m,
          "maxLength": lambda x, m: len(x) <= m, "minItems": lambda x, m: len(x) >= m,
          "maxItems": lambda x, m: len(x) <= m, "multipleOf": lambda x, m: x % m == 0}
WORDS = {"$defs", "$ref", "title", "description", "default", "anyOf", "enum", "const", "type", "properties",
         "additionalProperties", "items", *LIMITS}


def valid(value: Any, schema: Any = SCHEMA) -> bool:
    """Validate by the words of JSON schema that ours contains, and by the package jsonschema too if it is installed."""
    if schema is SCHEMA and importlib.util.find_spec("jsonschema"):
        import jsonschema

        result = jsonschema.Draft202012Validator(SCHEMA).is_valid(value)
        assert result == _valid(value, SCHEMA)
        return result
    return _valid(value, schema)


def _valid(value: Any, schema: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= WORDS, set(schema) - WORDS
    if "$ref" in schema and not _valid(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]):
        return False
    if "anyOf" in schema and not any(_valid(value, part) for part in schema["anyOf"]):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if "type" in schema and not (isinstance(value, TYPES[schema["type"]])
                                 and (schema["type"] == "boolean" or not isinstance(value, bool))):
        return False
    if any(word in schema and not isinstance(value, dict | None) and not fits(value, schema[word])
           for word, fits in LIMITS.items()):
        return False
    if isinstance(value, dict):
        properties, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        return all(_valid(inner, properties.get(key, other)) for key, inner in value.items())
    return not isinstance(value, list) or all(_valid(item, schema.get("items", True)) for item in value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_shipped_file_is_valid_and_not_with_a_misspelled_key(path: Path) -> None:
    tree = read_yaml(path).tree
    assert valid(tree)
    assert not valid({**tree, "trian": {}})
    for section, keys in tree.items():
        if isinstance(keys, dict):
            assert not valid({**tree, section: {**keys, "epohcs": 1}}), section


@looped("tree, is_valid", [
    ({}, True), ({"train": None}, True), ({"train": {"epochs": 5}}, True), ({"train": {"epochs": 0}}, False),
    ({"train": {"epochs": "many"}}, False), ({"negatives": {"entropy": 0.5}}, True),
    ({"negatives": {"source": "ace", "entropy": 0.5}}, True),
    ({"negatives": {"source": "unigram", "entropy": 1}}, False),
    ({"negatives": {"source": "nosuch"}}, False), ({"loss": {"name": "nce", "partition": "fixed"}}, True),
    ({"loss": {"name": "logistic", "partition": "fixed"}}, False), ({"text": {"window": 3}}, True),
    ({"model": {"name": "transe", "norm": "l1"}}, True), ({"model": {"name": "skipgram", "norm": "l1"}}, False),
    ({"negatives": {"source": "mixture", "inner": {"source": "cluster", "k": 3}}}, True),
    ({"negatives": {"source": "mixture", "inner": {"source": "cluster", "kk": 3}}}, False),
    ({"group": "static"}, True), ({"group": "nosuch"}, False), ({"evaluate": {"benchmarks": ["men"]}}, True)])
def test_sections_have_the_keys_of_the_component_they_name(tree: dict[str, Any], is_valid: bool) -> None:
    assert valid(tree) is is_valid


def test_every_component_and_every_key_is_in_the_schema() -> None:
    for section, kind, key in (("model", models, "name"), ("negatives", negatives, "source"), ("loss", losses, "name")):
        assert [name for name in kind.names() if not valid({section: {key: name}})] == []
    assert SCHEMA["properties"]["group"]["enum"] == list(GROUPS)
    for model in models.names():
        typed = settings_class(model, "unigram", "logistic")().model_dump(mode="json")
        assert valid(typed), model


def test_the_command_prints_or_writes_the_schema(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                 tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "config", "schema"])
    assert cli.run() == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
    monkeypatch.setattr(sys, "argv", ["embtrain", "config", "schema", "--out", str(tmp_path / "s.json")])
    assert (cli.run(), capsys.readouterr().out) == (0, f"{tmp_path / 's.json'}\n")
    assert json.loads((tmp_path / "s.json").read_text()) == SCHEMA


OWN = """
from embtrain.negatives.static.uniform import Uniform
class Own(Uniform):
    name = "{name}"
    class C(Uniform.Config):
        {key}: int = 0
    Config = C
"""


def test_classes_of_settings_with_one_name_are_different_definitions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                                     ) -> None:
    """The name of the first class was looked up for both: KeyError."""
    files = {name: tmp_path / f"{name}.py" for name in ("first", "second")}
    for name, file in files.items():
        file.write_text(OWN.format(name=f"own_{name}", key=name))
    monkeypatch.setenv("EMBTRAIN_PLUGINS", os.pathsep.join(map(str, files.values())))
    schema = schemas.settings_schema()
    own = [keys for part in schema["$defs"]["negatives"]["anyOf"] if "$ref" in part
           and {"first", "second"} & {*(keys := schema["$defs"][part["$ref"].removeprefix("#/$defs/")]["properties"])}]
    assert [keys["source"]["enum"] for keys in own] == [["own_first"], ["own_second"]]
    assert len({*schema["$defs"]}) == len({*SCHEMA["$defs"]}) + 2


def test_a_key_whose_value_json_has_no_form_for_may_have_any(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A function as a setting ended in PydanticInvalidForJsonSchema."""
    (tmp_path / "own.py").write_text("from collections.abc import Callable\n" + OWN.format(name="own", key="k").replace(
        "k: int = 0", "function: Callable = len"))
    monkeypatch.setenv("EMBTRAIN_PLUGINS", str(tmp_path / "own.py"))
    schema = json.dumps(schemas.settings_schema())
    assert '"function": {"title": "Function"}' in schema
