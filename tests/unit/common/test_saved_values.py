"""Settings of classes of the user: config.yaml must hold them before a run is trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import tiny_runs

from embtrain import experiment
from embtrain.common import registry
from embtrain.common.config import dump, saved_tree, saved_values
from embtrain.common.config.described import describe
from embtrain.common.errors import UsageError
from embtrain.experiment.catalogue import combinations
from embtrain.experiment.run.settings import from_run, from_tree
from embtrain.negatives import base as negatives
from embtrain.nn import SampledLoss
from embtrain.testing import check_source
from embtrain.testing.case import SourceCase
from embtrain.testing.own_files import check_file

SOURCE = """
import datetime, enum, os, pathlib, types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
import numpy as np
from pydantic import AfterValidator, BaseModel, Field, FilePath, Json, PlainSerializer, PlainValidator, PositiveInt
from pydantic import SecretStr
from pydantic import computed_field, field_serializer, model_serializer, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.static.uniform import Uniform
class Color(enum.Enum):
    RED = 1
class Section(BaseModel):
    z: int = 3
    day: Any = None
class Loose(BaseModel):
    z: int = 3
    model_config = {{"extra": "allow"}}
@dataclass
class Numbers:
    x: Any = 0.0
@pydantic_dataclass(config={{"extra": "allow"}})
class Open:
    x: int = 0
Array = Annotated[np.ndarray, PlainValidator(np.asarray), PlainSerializer(np.ndarray.tolist)]
Twice = Annotated[np.ndarray, PlainValidator(lambda x: 2 * np.asarray(x)), PlainSerializer(np.ndarray.tolist)]
class Unequal:
    def __eq__(self, other):
        raise KeyError("x")
Odd = Annotated[Unequal, PlainValidator(lambda x: Unequal()), PlainSerializer(lambda x: 1)]
Lower = Annotated[str, AfterValidator(str.lower)]
class OwnConfig(NegativesConfig):
    limit: int = 3
    extra: {annotation} = {value}
    {more}
class Own(Uniform):
    name = "own"
    Config = OwnConfig
"""
LINE = SOURCE[:SOURCE.index("    extra")].count("\n") + 1
MODEL = """
import datetime
from typing import Annotated, Any
from pydantic import AfterValidator, FilePath
from embtrain.models.base import Model
from embtrain.models.words.skipgram import SkipGram
class OwnConfig({base}.Config):
    extra: {annotation} = {value}
class Own({base}):
    name = "own"
    Config = OwnConfig
"""
LOSS = """
from pydantic import FilePath
from embtrain.losses.logistic import Logistic
class OwnConfig(Logistic.Config):
    extra: {annotation} = {value}
class Own(Logistic):
    name = "own"
    Config = OwnConfig
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a source or a model with a setting of this type and default."""
    def plug_in(annotation: str, value: str, text: str = SOURCE, **names: str) -> Path:
        names = {"more": "", "base": ""} | names
        (path := tmp_path / "own.py").write_text(text.format(annotation=annotation, value=value, **names))
        registry.import_plugin.cache_clear()
        registry.cached_classes.cache_clear()
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return plug_in


@pytest.mark.parametrize(("annotation", "value", "shown"), [
    ("Any", "len", "<built-in function len>"), ("bytes", r"b'\xff'", r"b'\\xff'"),
    ("Any", "object()", "<object object at .*>"), ("Any", "np.ones(2)", r"array\(\[1., 1.\]\)"),
    ("Any", "(1, Color)", r"\(1, <enum 'Color'>\)")])
def test_a_setting_that_cannot_be_saved_is_refused(write: Write, annotation: str, value: str, shown: str) -> None:
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{LINE}: negatives\.source: own: Config: extra = "
                                         rf"{shown}: cannot be saved in config\.yaml; use numbers, texts, booleans, "
                                         r"lists or dicts$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize(("annotation", "value", "shown", "read"), [
    ("Any", "b'a'", "b'a'", "'a'"), ("list", "[{'a': b'a'}]", r"\[{'a': b'a'}\]", r"\[{'a': 'a'}\]"),
    ("Any", "1j", "1j", "'1j'"), ("Any", "{1, 2}", "{1, 2}", r"\[1, 2\]"),
    ("Any", "datetime.date(2020, 1, 1)", r"datetime\.date\(2020, 1, 1\)", "'2020-01-01'"),
    ("Any", "Color.RED", "<Color.RED: 1>", "1"), ("SecretStr", "SecretStr('a')", ".*", ".*"),
    ("Section", "Section(day=datetime.date(2020, 1, 1))", ".*", r"Section\(z=3, day='2020-01-01'\)"),
    ("Any", "(1, 2)", r"\(1, 2\)", r"\[1, 2\]"), ("Any", "Section()", r"Section\(.*\)", "{'z': 3, 'day': None}"),
    ("Any", "pathlib.Path('a')", r"PosixPath\('a'\)", "'a'"), ("dict", "{1: 0.5}", "{1: 0.5}", "{'1': 0.5}"),
    ("Mapping", "{None: 1}", "{None: 1}", "{'None': 1}"), ("dict", "{'a': float('inf')}", "{'a': inf}", "{'a': None}"),
    ("BaseModel", "Section()", r"Section\(.*\)", "BaseModel"), ("Section", "Section(day=(1,))", ".*", r".*\[1\].*"),
    ("Loose", "Loose(b=(1, 2))", ".*", r"Loose\(z=3, b=\[1, 2\]\)"),
    ("Open", "Open(x=1, q=3)", r"Open\(x=1\) with {'q': 3}", r"Open\(x=1\)"),
    ("Numbers", "Numbers(float('nan'))", r"Numbers\(x=nan\)", r"Numbers\(x=None\)"),
    ("Numbers", "Numbers((1,))", r"Numbers\(x=\(1,\)\)", r"Numbers\(x=\[1\]\)"),
    ("Iterable[int]", "(1, 2)", ".*", ".*"), ("Twice", "np.ones(2)", r"array\(\[2., 2.\]\)", r"array\(\[4., 4.\]\)")])
def test_a_setting_that_is_read_as_another_value_is_refused(write: Write, annotation: str, value: str, shown: str,
                                                            read: str) -> None:
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{LINE}: negatives\.source: own: Config: extra = "
                                         rf"{shown}: is read from config\.yaml as {read}; (set .*, or )?(change the "
                                         r"type of the field|annotate .+)$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize(("annotation", "value", "remedy"), [
    ("Sequence[int]", "(64, 32)", r"set \[64, 32\], or annotate tuple\[int, \.\.\.\]"),
    ("Sequence[str]", "()", r"set \[\], or annotate tuple\[str, \.\.\.\]"),
    ("Sequence[tuple[int, int]]", "((1, 2),)", r"set \[\(1, 2\)\], or annotate tuple\[tuple\[int, int\], \.\.\.\]"),
    ("Sequence[Color]", "(Color.RED,)", r"annotate tuple\[Color, \.\.\.\]"),
    ("Sequence[Any]", "(1,)", r"set \[1\], or annotate tuple\[Any, \.\.\.\]"),
    ("Sequence[Any]", "((1,),)", r"set \[\[1\]\], or change the type of the field"),
    ("Any", "((1, 2),)", r"set \[\[1, 2\]\], or change the type of the field"),
    ("Sequence[PositiveInt]", "(1,)", r"set \[1\], or annotate tuple"),
    ("Any", "(pathlib.Path('a'),)", r"set \['a'\], or change the type of the field"),
    ("Any", "{(1, 2)}", r"set \[\[1, 2\]\], or change the type of the field"),
    ("list | tuple", "(0,) * 90", "annotate tuple"),
    ("tuple | list", "(1, 2)", r"set \[1, 2\], or annotate tuple"), ("Any", "{1}", r"set \[1\], or annotate set"),
    ("os.PathLike", "pathlib.Path('a')", r"annotate pathlib\.Path"),
    ("str | pathlib.Path", "pathlib.Path('a')", r"set 'a', or annotate pathlib\.Path"),
    ("Any", "datetime.date(2020, 1, 1)", "set a value that does not change, or change the type of the field")])
def test_a_setting_that_is_read_as_another_value_has_a_remedy(write: Write, annotation: str, value: str, remedy: str
                                                              ) -> None:
    write(annotation, value)
    with pytest.raises(UsageError, match=f"extra = .*: is read from config.yaml as .*; {remedy}$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize(("annotation", "value", "problem"), [
    ("int", "2**63", "the number 9223372036854775808 is too large"),
    ("Any", "[-2**63]", "the number -9223372036854775808 is too large"),
    ("str", r"'\ud800'", "contains a lone surrogate; write the whole character"),
    ("list", "[0] * 3000", "more than 2,000 values, or nested more than 40 deep"),
    ("str", "'x' * 300_000", "is longer than 200,000 bytes; give a smaller configuration file")])
def test_a_setting_that_is_refused_as_yaml_is_refused(write: Write, annotation: str, value: str, problem: str) -> None:
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:{LINE}: negatives\.source: own: Config: extra = .*"
                                         rf": cannot be saved in config\.yaml: {problem}; set another value$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize(("value", "more", "problem"), [
    ("(3,)", "model_config = {'strict': True}", r"extra = \(3,\): is saved in a form that is refused: should be a "
     "valid tuple; change the type of the field or its serializer, or remove strict"),
    ("()", "@field_serializer('extra')\n    def ser(self, x): raise KeyError('x')", r"extra = \(\): cannot be saved in "
     r"config\.yaml: Error calling function `ser`: KeyError: 'x'; correct the serializer"),
    ("()", "@model_serializer\n    def ser(self): raise KeyError('x')", "source = 'own': cannot be saved in "
     r"config\.yaml: Error calling function `ser`: KeyError: 'x'; correct the serializer"),
    ("()", "@model_serializer\n    def ser(self): return 'text'", r"source = 'own': cannot be saved in config\.yaml: "
     "should be keys and values, e.g. `train:`, got 'text'; set another value"),
    ("(0,) * 3000", "", r"extra = \(0, [0, ]{150,200}\.\.\.: cannot be saved .*; set another value")])
def test_an_error_of_a_setting_names_its_cause(write: Write, value: str, more: str, problem: str) -> None:
    path = write("tuple[int, ...]", value, more=more)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:\d+: negatives\.source: own: Config: {problem}$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize(("annotation", "value", "more", "problem"), [
    ("list", "[0] * 1900", "", r"config\.yaml:\d+:\d+: more than 2,000 values, or nested more than 40 deep"),
    ("list", "[[[[]]]] * 640", "", r"config\.yaml:\d+:\d+: more than 2,000 values, or nested more than 40 deep"),
    ("list", "[" * 39 + "]" * 39, "", r"config\.yaml:\d+:\d+: nested more than 40 deep"),
    ("int", "3", "model_config = {'alias_generator': str.upper, 'populate_by_name': True}",
     r"config\.yaml: negatives\.source: should be a name, got null")])
def test_settings_that_are_refused_only_as_a_whole_are_refused(write: Write, annotation: str, value: str, more: str,
                                                               problem: str) -> None:
    write(annotation, value, more=more)
    with pytest.raises(UsageError, match=rf"^the settings cannot be saved: {problem}; set fewer or other values$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


def test_settings_of_a_few_values_are_read_from_yaml_by_field_alone(write: Write, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    write("list", "[64, 32]")
    lengths = []
    parse = saved_values.parse
    monkeypatch.setattr(saved_values, "parse", lambda text, name: lengths.append(len(text)) or parse(text, name))
    assert experiment.resolve("sgns", sets=["negatives.source=own"])
    assert lengths and max(lengths) < 100


def test_a_text_with_a_line_break_of_unicode_is_read_as_it_was(write: Write, tmp_path: Path) -> None:
    write("str", r"'a\x85b'")
    settings = experiment.resolve("sgns", sets=["negatives.source=own"])
    (tmp_path / "config.yaml").write_text(dump(settings))
    assert from_run(tmp_path).negatives == settings.negatives


def test_a_setting_that_is_left_out_is_refused_if_it_is_set(write: Write) -> None:
    write("int", "Field(3, exclude=True)")
    settings = experiment.resolve("sgns", sets=["negatives.source=own"])
    assert "negatives.extra" not in {row.key for row in describe(settings)}
    with pytest.raises(UsageError, match=r"extra = 5: is left out of config\.yaml; remove exclude from the field$"):
        experiment.resolve("sgns", sets=["negatives.source=own", "negatives.extra=5"])


def test_a_setting_that_is_replaced_in_a_run_must_be_saved(write: Write, tmp_path: Path) -> None:
    write("int", "Field(3, exclude=True)")
    (tmp_path / "config.yaml").write_text(dump(experiment.resolve("sgns", sets=["negatives.source=own"])))
    assert from_run(tmp_path, ["negatives.limit=5"])
    with pytest.raises(UsageError, match=r"extra = 5: is left out of config\.yaml; remove exclude from the field$"):
        from_run(tmp_path, ["negatives.extra=5"])


@pytest.mark.parametrize("option", ["serialization_alias", "validation_alias"])
def test_a_key_that_is_saved_under_another_name_is_refused(write: Write, option: str) -> None:
    write("int", f"Field(3, {option}='other')")
    with pytest.raises(UsageError, match=rf":{LINE}: .* extra = 3: is saved as '(other|extra)', which is not the key "
                                         "that is read; use alias in place of serialization_alias and validation"):
        experiment.resolve("sgns", sets=["negatives.source=own"])
    write("int", "Field(3, alias='other')")
    assert experiment.resolve("sgns", sets=["negatives.source=own", "negatives.other=5"])


def test_settings_that_are_refused_together_are_reported_before_training(write: Write) -> None:
    path = write("int", "3", more="""
    @model_validator(mode="before")
    @classmethod
    def one_of_them(cls, values):
        if "limit" in values and "extra" in values:
            raise ValueError("give limit or extra")
        return values
""")
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:\d+: negatives\.source: own: Config: "
                                         r"config\.yaml would be refused: give limit or extra; correct the validators "
                                         "of the class$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


def test_a_default_that_cannot_be_copied_is_refused(write: Write) -> None:
    path = write("Any", "[types.MappingProxyType({'a': 1})]")
    with pytest.raises(UsageError, match=rf"{re.escape(str(path))}: OwnConfig\.extra: \[mappingproxy\({{'a': 1}}\)\]: "
                                         "cannot be copied for each object; use another default, for example a dict$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize("base", ["Model", "SkipGram"])
@pytest.mark.parametrize(("value", "problem"), [
    ("len", "cannot be saved"), ("{1, 2}", "is read"), ("datetime.date(2020, 1, 1)", "is read")])
def test_a_setting_of_a_model_that_cannot_be_saved_is_refused_or_replaced(write: Write, base: str, value: str,
                                                                          problem: str) -> None:
    path = write("Any", value, MODEL, base=base)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(path))}:8: model\.name: own: Config: extra = .*: "
                                         f"{problem}"):
        experiment.resolve("sgns", "own")
    assert experiment.resolve("sgns", "own", sets=["model.extra=7"]).model.model_dump()["extra"] == 7


def test_a_default_of_a_model_that_yaml_states_is_validated_as_a_key(write: Write) -> None:
    write("Annotated[str, AfterValidator(str.lower)]", "'ABC'", MODEL, base="Model")
    assert experiment.resolve("sgns", "own").model.model_dump()["extra"] == "abc"


@pytest.mark.parametrize(("annotation", "value", "problem"), [
    ("float", "float('inf')", "inf: should be a finite number"), ("int", "None", "None: should be a valid integer"),
    ("float", "1e30", r"1e\+30: should be 0, or between .*"),
    ("Any", "float('nan')", "nan: should be 0, or between .*"),
    ("dict[str, int]", "{'a': 'b'}", "'b': should be a valid integer, unable to parse string as an integer")])
def test_a_default_that_is_not_valid_is_refused(write: Write, annotation: str, value: str, problem: str) -> None:
    """Also if it is replaced: of a default that is valid, the form in config.yaml is known."""
    path = write(annotation, value)
    with pytest.raises(UsageError, match=rf"{re.escape(str(path))}: OwnConfig\.extra(\.a)?: {problem}; set another "
                                         "default$"):
        experiment.resolve("sgns", sets=["negatives.source=own", "negatives.extra=3"])


@pytest.mark.long
def test_a_default_that_is_a_file_of_another_folder_is_replaced(write: Write, tmp_path: Path) -> None:
    """The run would be refused in every other folder if its default were checked."""
    write("FilePath", "'own.txt'")
    tiny_runs.write(tmp_path)
    (table := tmp_path / "table.txt").touch()
    settings = experiment.resolve("sgns", corpus=str(tmp_path / "text"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.epochs=1", "negatives.source=own", f"negatives.extra={table}"])
    run = experiment.fit(settings, tmp_path / "run")
    assert "negatives.extra" in (run.folder / "report.html").read_text()
    with pytest.raises(UsageError, match=r"negatives\.extra: Path does not point to a file, got 'own\.txt'$"):
        experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.parametrize("base", ["Model", "SkipGram"])
def test_a_default_of_a_model_that_is_a_file_of_another_folder_is_replaced(write: Write, tmp_path: Path, base: str
                                                                           ) -> None:
    write("FilePath", "'own.txt'", MODEL, base=base)
    (table := tmp_path / "table.txt").touch()
    assert experiment.resolve("sgns", "own", sets=[f"model.extra={table}"]).model.model_dump()["extra"] == table
    with pytest.raises(UsageError, match=r"model\.extra: Path does not point to a file, got 'own\.txt'$"):
        experiment.resolve("sgns", "own")


def test_a_default_file_of_another_folder_is_not_read_by_checks_and_lists(write: Write) -> None:
    path = write("FilePath", "'own.txt'", more="@property\n    def suffix(self): return self.extra.suffix")
    check_source(Own := negatives.find("own"))
    assert "own" in combinations.sources() and combinations.by_loss() is not None
    results = [*check_file(path)]
    assert results and not any(result.problem for result in results)
    assert SourceCase(Own, {}).build().config.suffix == ".txt"  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"^extra: Path does not point to a file, got 'own\.txt'$"):
        SampledLoss("own", num_classes=5)
    with pytest.raises(UsageError, match=r"negatives\.inner\.extra: Path does not point to a file, got 'own\.txt'$"):
        experiment.resolve("sgns", sets=["negatives.source=mixture", "negatives.inner={source: own}"])


def test_a_source_with_a_default_file_of_another_folder_has_validated_settings(write: Write) -> None:
    write("Section", "Section()", more="file: FilePath = 'own.txt'\n    many: list[int] = [1]")
    settings = SourceCase(negatives.find("own"), {"many": ("2", 3)}).build().config
    assert settings.many == [2, 3] and settings.file == Path("own.txt")                # type: ignore[attr-defined]
    assert type(settings) is negatives.find("own").Config


def test_a_default_file_in_a_section_is_named_by_its_key(write: Write, tmp_path: Path) -> None:
    text = SOURCE.replace("Section(BaseModel):\n    z: int = 3",
                          "Section(config.Section):\n    p: FilePath = 'inner.txt'")
    write("Section", "{}", text.replace("import numpy", "from embtrain.common import config\nimport numpy"))
    with pytest.raises(UsageError, match=r"negatives\.extra\.p: Path does not point to a file, got 'inner\.txt'"):
        experiment.resolve("sgns", sets=["negatives.source=own"])
    (table := tmp_path / "table.txt").touch()
    assert experiment.resolve("sgns", sets=["negatives.source=own", f"negatives.extra.p={table}"])


def test_a_default_file_of_a_loss_of_another_folder_is_not_read_by_lists(write: Write) -> None:
    write("FilePath", "'own.txt'", LOSS)
    assert "own" in combinations.losses_by_name() and combinations.by_loss() is not None
    with pytest.raises(UsageError, match=r"^loss_options: extra: Path does not point to a file, got 'own\.txt'$"):
        SampledLoss("uniform", num_classes=5, loss="own")


@pytest.mark.parametrize(("annotation", "value", "more", "expected"), [
    ("Color", "1", "", "<Color.RED: 1>"), ("frozenset[str]", "()", "", "frozenset()"), ("float", "3", "", "3.0"),
    ("Lower", "'ABC'", "", "'abc'"), ("dict[Lower, int]", "{'A': 1}", "", "{'a': 1}"),
    ("Annotated[int | None, AfterValidator(lambda x: x or 3)]", "None", "", "3"),
    ("Color", "Color.RED", "model_config = {'use_enum_values': True}", "1")])
def test_a_default_is_the_value_that_is_read(write: Write, annotation: str, value: str, more: str, expected: str
                                             ) -> None:
    write(annotation, value, more=more)
    settings = experiment.resolve("sgns", sets=["negatives.source=own"])
    assert repr(settings.negatives.extra) == expected                              # type: ignore[attr-defined]
    assert from_tree(saved_tree(settings)).negatives == settings.negatives


@pytest.mark.parametrize(("annotation", "value"), [
    ("tuple[int, ...]", "(1, 2)"), ("pathlib.Path", "pathlib.Path('a')"), ("set[int]", "{1, 2}"),
    ("Literal['a']", "'a'"), ("Section", "Section()"), ("Color", "Color.RED"), ("dict[int, float]", "{1: 0.5}"),
    ("datetime.date", "datetime.date(2020, 1, 1)"), ("complex", "1j"), ("float", "np.float64(0.5)"), ("bool", "True"),
    ("Numbers", "Numbers([1, 'a'])"), ("Array", "np.ones(3)"), ("Json", "'{}'"), ("Odd", "3"), ("Any", "{'a': [1.5]}"),
    ("Loose", "Loose(b=[1])"), ("Open", "Open(x=1)"), ("tuple[Color, ...]", "(Color.RED,)"), ("Any", "[[1, 2]]"),
    ("tuple[tuple[int, int], ...]", "((1, 2),)"), ("Sequence[Any]", "[[1]]"), ("tuple[Any, ...]", "(1,)")])
def test_a_setting_that_can_be_saved_is_not_refused(write: Write, annotation: str, value: str) -> None:
    write(annotation, value)
    assert experiment.resolve("sgns", sets=["negatives.source=own"])


@pytest.mark.long
@pytest.mark.parametrize(("annotation", "value", "more"), [
    ("tuple[Color, datetime.date, pathlib.Path]", "(Color.RED, datetime.date(2020, 1, 1), pathlib.Path('a'))", ""),
    ("Json", "'{}'", "@computed_field\n    @property\n    def twice(self) -> int: return 2 * self.k"),
    ("datetime.timedelta", "datetime.timedelta(hours=3)",
     "@field_serializer('extra')\n    def seconds(self, x): return x.total_seconds()")])
def test_a_run_with_settings_of_many_types_is_reported_and_resumed(write: Write, tmp_path: Path, annotation: str,
                                                                   value: str, more: str) -> None:
    write(annotation, value, more=more)
    tiny_runs.write(tmp_path)
    settings = experiment.resolve("sgns", corpus=str(tmp_path / "text"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.epochs=1", "negatives.source=own"])
    run = experiment.fit(settings, tmp_path / "run")
    assert from_run(run.folder).negatives == from_tree(saved_tree(settings)).negatives == settings.negatives
    assert "negatives.extra" not in (run.folder / "report.html").read_text()       # it has its default
    experiment.resume(run.folder)


@pytest.mark.long
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
