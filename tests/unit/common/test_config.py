"""Configuration: layers of YAML become one typed tree, or one line per error."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from helpers.looped import looped
from hypothesis import given, settings, strategies as st
from pydantic import Field, create_model, model_validator

import embtrain
from embtrain.common import shipped
from embtrain.common.config import AbsolutePath, Layer, Section, as_sets, build, dump, from_set, merge, read_yaml
from embtrain.common.config.layers import MAX_BYTES, MAX_PROBLEMS
from embtrain.common.errors import UsageError
from embtrain.evaluate.config import Benchmarks
from embtrain.experiment import tasks
from embtrain.experiment.tasks import base
from embtrain.negatives.sampling.pool import NestedSettings
from embtrain.train.config import TrainConfig


class Text(Section):
    min_count: int = Field(5, ge=1)
    max_size: int | None = None
    sample: float = Field(1e-3, ge=0)
    lower: bool = True
    rule: Literal["word2vec", "eq23"] = "word2vec"
    words: list[str] = Field(["queen"])


class Negatives(Section):
    source: str = "unigram"
    k: int = Field(5, ge=1)


class Tree(Section):
    corpus: str = "gensim-wiki"
    text: Text = Text()
    negatives: Negatives = Negatives()


def layer(folder: Path, text: str | bytes, name: str | None = "own.yaml") -> Layer:
    path = folder / "own.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path, name)


def errors_of(*layers: Layer) -> list[str]:
    with pytest.raises(UsageError) as caught:
        build(Tree, layers)
    return str(caught.value).splitlines()


def unreadable(folder: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        layer(folder, text)
    return str(caught.value)


# --- plain values ---------------------------------------------------------------------------------------------------

@looped("text, value", [
    ("1e-5", 1e-5), ("1E5", 1e5), ("-2.5e+3", -2500.0), (".5", 0.5), ("5.", 5.0), ("12", 12), ("-3", -3),
    ("0x1F", 31), ("0o17", 15), ("012", 12), ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
    ("yes", "yes"), ("no", "no"), ("on", "on"), ("none", "none"), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"),
    ("'1e-5'", "1e-5"), ('"true"', "true"), ("e5", "e5"), ("1e", "1e"), ("heldout/mrr>0.1", "heldout/mrr>0.1"),
    ("[a, 1, 2.5]", ["a", 1, 2.5]), ("1.2.3", "1.2.3"), ("-", None),
])
def test_plain_values_follow_yaml_1_2(text: str, value: Any) -> None:
    if text == "-":  # a list with one empty item
        value = [None]
    got = from_set(f"a.b={text}").tree["a"]["b"]
    assert (got, type(got)) == (value, type(value))


def test_scientific_notation_is_a_float_and_a_key_named_on_is_a_string(tmp_path: Path) -> None:
    assert layer(tmp_path, "text:\n  sample: 1e-5\n  on: [a]\n").tree == {"text": {"sample": 1e-5, "on": ["a"]}}


@pytest.mark.parametrize("text", ["lower: yes", "lower: 'true'", "lower: on", "lower: 1"])
def test_words_that_mean_true_are_accepted_as_booleans(tmp_path: Path, text: str) -> None:
    assert build(Tree, [layer(tmp_path, f"text: {{{text}}}")]).text.lower is True


# --- merging ----------------------------------------------------------------------------------------------------

def test_later_layers_override_keys_and_replace_whole_lists(tmp_path: Path) -> None:
    low = layer(tmp_path, "corpus: a\ntext:\n  min_count: 2\n  words: [x, y, z]\n", "low")
    high = layer(tmp_path, "text:\n  words: [q]\nnegatives:\n", "high")
    tree, places = merge([low, high, Layer("--seed", {"text": {"sample": 0.1}})])
    assert tree == {"corpus": "a", "text": {"min_count": 2, "words": ["q"], "sample": 0.1}, "negatives": None}
    assert str(places["text", "min_count"]) == "low:3:3"
    assert str(places["text", "words", 0]) == "high:2:11"
    assert ("text", "words", 1) not in places  # from the replaced list
    assert str(places["text", "sample"]) == "--seed"
    assert low.tree["text"]["words"] == ["x", "y", "z"]  # layers are unchanged


def test_another_nested_source_drops_the_keys_of_the_one_before(tmp_path: Path) -> None:
    low = layer(tmp_path, "negatives: {source: mixture, k: 5, inner: {source: unigram, exponent: 0.75, k: 9}}\n", "low")
    tree, places = merge([low, from_set("negatives.inner={source: uniform}")])
    assert tree == {"negatives": {"source": "mixture", "k": 5, "inner": {"source": "uniform"}}}
    assert ("negatives", "inner", "exponent") not in places
    tree, _ = merge([low, from_set("negatives.inner.source=unigram"), from_set("negatives.inner.k=3")])
    assert tree["negatives"]["inner"] == {"source": "unigram", "exponent": 0.75, "k": 3}
    tree, _ = merge([low, from_set("negatives.source=resampled")])   # keys of `negatives` are common to all sources
    assert tree["negatives"]["k"] == 5


def test_an_empty_section_changes_nothing(tmp_path: Path) -> None:
    low = layer(tmp_path, "text: {min_count: 2}")
    assert build(Tree, [low, layer(tmp_path, "text:\n  # min_count: 3\n")]).text.min_count == 2


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeff"])
def test_an_empty_file_is_an_empty_layer(tmp_path: Path, text: str) -> None:
    assert layer(tmp_path, text).tree == {}


def test_a_value_replaces_a_section_and_the_error_names_the_value(tmp_path: Path) -> None:
    assert errors_of(layer(tmp_path, "negatives: {k: 3}", "low"), layer(tmp_path, "negatives: ace", "high")) == [
        "high:1:1: negatives: should be a section of keys, got 'ace'"]


def test_a_key_from_a_later_layer_does_not_hide_a_null_section(tmp_path: Path) -> None:
    assert errors_of(layer(tmp_path, "negatives: ace", "low"), layer(tmp_path, "negatives: {k: 3}", "high")) == [
        "low:1:1: negatives: should be a section of keys, got 'ace'"]


# --- errors: all at once, with place and nearest key ------------------------------------------------------------

def test_all_errors_of_all_layers_are_reported_in_file_order(tmp_path: Path) -> None:
    low = layer(tmp_path, "text:\n  min_cuont: 3\n  rule: word2vce\nnegatives:\n  k: five\n", "low.yaml")
    high = layer(tmp_path, "text: {lower: maybe, words: [a, null]}\nseed: 3\n", "high.yaml")
    assert errors_of(low, high, from_set("text.sample=-1")) == [
        "low.yaml:2:3: text.min_cuont: unknown key (did you mean 'min_count'? "
        "keys here: min_count, max_size, sample, lower, rule, words)",
        "low.yaml:3:3: text.rule: should be 'word2vec' or 'eq23', got 'word2vce' (did you mean 'word2vec'?)",
        "low.yaml:5:3: negatives.k: should be a valid integer, got 'five'",
        "high.yaml:1:8: text.lower: should be a valid boolean, got 'maybe'",
        "high.yaml:1:33: text.words[1]: should be text (in quotes where it looks like something else), got null",
        "high.yaml:2:1: seed: unknown key (keys here: corpus, text, negatives)",
        "--set text.sample=-1: text.sample: should be greater than or equal to 0, got -1",
    ]


def test_a_key_of_another_section_is_suggested() -> None:
    assert errors_of(from_set("min_count=3")) == [
        "--set min_count=3: min_count: unknown key (did you mean 'text.min_count'? keys here: corpus, text, negatives)"]


def test_an_unknown_key_of_a_source_lists_the_keys_of_that_source(tmp_path: Path) -> None:
    lines = errors_of(layer(tmp_path, "negatives:\n  features: 64\n"))
    assert lines == ["own.yaml:2:3: negatives.features: unknown key (keys here: source, k)"]


@looped("text, message", [
    ("text.min_count=true", "should be a number, got true"),
    ("text.max_size=false", "should be a number, got false"),
    ("text.sample=.nan", "should be a finite number, got nan"),
    ("text.sample=1e999", "should be a finite number, got inf"),
    ("text.min_count=2.5", "should be a valid integer, got a number with a fractional part, got 2.5"),
    ("text.min_count=[1]", "should be a valid integer, got [1]"),
    ("text.min_count={a: 1}", "should be a valid integer, got a section"),
    ("corpus=5", "should be text (in quotes where it looks like something else), got 5"),
    ("text.words=king", "should be a valid list, got 'king'"),
])
def test_a_wrong_value_is_reported_with_the_allowed_ones(text: str, message: str) -> None:
    assert errors_of(from_set(text)) == [f"--set {text}: {text.partition('=')[0]}: {message}"]


def test_conflicts_of_several_keys_and_missing_keys(tmp_path: Path) -> None:
    class Both(Section):
        least: int
        most: int = 3

        @model_validator(mode="after")
        def _order(self) -> Both:
            if self.least > self.most:
                raise ValueError("least is above most")
            return self

    whole = create_model("whole", __base__=Section, both=(Both, ...))
    for text, message in [("both: {least: 4}", "own.yaml:1:1: both: least is above most"),
                       ("both:\n  most: 2", "own.yaml:1:1: both.least: needs a value"),
                       ("", "own.yaml: both: needs a value")]:
        with pytest.raises(UsageError, match=f"^{message}$"):
            build(whole, [layer(tmp_path, text)])


def test_an_option_can_switch_a_section_off_and_an_empty_section_of_a_file_changes_nothing(tmp_path: Path) -> None:
    part = create_model("part", __base__=Section, size=(int, 1))
    whole = create_model("whole", __base__=Section, part=(part | None, None))
    given = layer(tmp_path, "part: {size: 3}")
    assert build(whole, [given, from_set("part=null")]).part is None  # type: ignore[attr-defined]
    assert build(whole, [given, from_set("part=null"), from_set("part.size=5")]).part.size == 5  # type: ignore[attr-defined]
    (tmp_path / "above").mkdir()
    assert build(whole, [given, layer(tmp_path / "above", "part:\n  # size: 4")]).part.size == 3  # type: ignore[attr-defined]


def test_a_value_that_fits_no_member_of_a_union_is_reported_once() -> None:
    either = create_model("either", __base__=Section, size=(int | Literal["all"], 1))
    with pytest.raises(UsageError) as caught:
        build(either, [from_set("size=al")])
    assert str(caught.value) == "--set size=al: size: should be a valid integer, got 'al'"


def test_an_error_with_several_lines_is_one_line_of_another() -> None:
    error = UsageError("a: 1: wrong", "b: 2: wrong")
    assert str(UsageError(f"c: {error}")) == "c: a: 1: wrong; b: 2: wrong" and str(error).splitlines() == [*error.args]


# --- files that are not configurations ----------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "message"), [
    ("a: 1\na: 2\n", "own.yaml:2:1: a: is set twice, first in line 1; remove one"),
    ("text:\n  k: 1\n  b: 2\n  k: 3\n", "own.yaml:4:3: text.k: is set twice, first in line 2; remove one"),
    ("text:\n\tk: 1\n", "own.yaml:2:1: contains a tab in the indentation; indent with spaces"),
    ("a: 1\nb:\t2\n", "own.yaml:2:3: contains a tab after ':'; write a space there"),
    ("a: [1,\t2]\n", "own.yaml:1:7: contains a tab after ','; write a space there"),
    ("a:\n  -\t2\n", "own.yaml:2:4: contains a tab after '-'; write a space there"),
    ("- a\n- b\n", "own.yaml:1: should be keys and values, e.g. `train:`, got ['a', 'b']"),
    ("hello", "own.yaml:1: should be keys and values, e.g. `train:`, got 'hello'"),
    ("a: [1, 2\nb: 3\n", "own.yaml:2:2: expected ',' or ']', but got ':'"),
    ("a: 1\n---\nb: 2\n", "own.yaml:2:1: expected a single document in the stream, but found another document"),
    ("a: !!python/object:os.x y\n", "own.yaml:1:4: the tag tag:yaml.org,2002:python/object:os.x is not supported; "
                                    "remove it"),
    ("a: !!set {x, y}\n", "own.yaml:1:4: the tag tag:yaml.org,2002:set is not supported; remove it"),
    ("a: !!int five\n", "own.yaml:1:4: the tag tag:yaml.org,2002:int is not supported; remove it"),
    ("5: x\n", "own.yaml:1:1: a key should be a word, got 5"),
    ("? [a, b]\n: x\n", "own.yaml:1:3: a key should be a word, got a section"),
    ("a: 99999999999999999999\n", "own.yaml:1:4: the number 99999999999999999999 is too large"),
    ('a: "\\uD800"\n', "own.yaml:1:4: contains a lone surrogate; write the whole character"),
    (b"a: 1\nb: caf\xe9\n", "own.yaml:2: is not UTF-8; save the file as UTF-8"),
    ("a: 1\n".encode("utf-16"), "own.yaml:1: is not UTF-8; save the file as UTF-8"),
    (b"a: 1\nb: \x00\n", "own.yaml:2: contains a character that YAML does not allow; remove it"),
    ("a: *x\n", "own.yaml:1:4: found undefined alias 'x'"),
    ("a: 1\n" + "#" * MAX_BYTES, f"own.yaml: is longer than {MAX_BYTES:,} bytes; give a smaller configuration file"),
])
def test_a_file_that_is_not_a_configuration_is_refused_with_its_line(tmp_path: Path, text: str | bytes,
                                                                     message: str) -> None:
    assert unreadable(tmp_path, text) == message


def test_multiplying_aliases_and_deep_nesting_are_limited(tmp_path: Path) -> None:
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    assert "more than 2,000 values" in unreadable(tmp_path, laughs)
    assert "nested more than 40 deep" in unreadable(tmp_path, "a: &a [*a]\n")
    assert "nested more than 40 deep" in unreadable(tmp_path, "a: " + "[" * 50_000)
    assert "nested more than 40 deep" in unreadable(tmp_path, "{a: " * 30_000)
    twice = "a0: &a0 {x: 1, x: 2}\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 4))
    lines = unreadable(tmp_path, twice).splitlines()
    assert len(lines) == MAX_PROBLEMS + 1 and lines[-1] == "own.yaml: contains more errors; correct these first"
    assert len(unreadable(tmp_path, "a: {x: 1, x: 2, x: 3}\n").splitlines()) == 2
    assert layer(tmp_path, "a: &x [1]\nb: *x\n").tree == {"a": [1], "b": [1]}


@pytest.mark.parametrize("text", [
    "a: [" + "1," * 90_000 + "1]", "a:\n" + "- 1\n" * 45_000, "".join(f"k{i}: 1\n" for i in range(20_000)),
    "a: &x 1\nb: [" + "*x," * 60_000 + "1]", "a: [" + ",".join(f"&x{i} 1" for i in range(15_000)) + "]",
    "a: &a {b: 1}\nc:\n" + "  <<: *a\n" * 20_000, "a:\n" + "  - [1]\n" * 24_000,
])
def test_reading_stops_at_the_first_value_over_the_limit(tmp_path: Path, text: str) -> None:
    begun = time.process_time()
    assert "more than 2,000 values" in unreadable(tmp_path, text)
    assert time.process_time() - begun < 1           # reading all of it would take 2 to 5 CPU seconds


def test_a_character_beyond_65535_may_be_written_as_json_writes_it(tmp_path: Path) -> None:
    assert layer(tmp_path, json.dumps({"a": "\U0001f600é"})).tree == {"a": "\U0001f600é"}


def test_only_one_module_parses_yaml() -> None:
    package = Path(embtrain.__file__).parent
    parsing = [path.relative_to(package).as_posix() for path in package.rglob("*.py")
               if re.search(r"yaml\.(?:safe_load|load|full_load|compose|parse|scan)", path.read_text(encoding="utf-8"))]
    assert parsing == ["common/config/layers.py"]


def test_paths_are_settings_and_an_error_names_the_key() -> None:
    (text, words) = as_sets({"a.b": Path("x: 1 #/ä"), "c": [Path("d"), np.float32(0.5)]})
    assert from_set(text).tree == {"a": {"b": "x: 1 #/ä"}} and from_set(words).tree == {"c": ["d", 0.5]}
    loop: list[Any] = []
    loop.append(loop)
    for value, problem in [(object, "got a type"), ([{1}], "got a set"), ({(1, 2): 3}, "keys must be str"),
                           (loop, "Circular")]:
        with pytest.raises(UsageError, match=rf"^a\.b: .*: should be a number, a word, a path, or a list of these, "
                                             f"{problem}"):
            as_sets({"a.b": value})


def test_a_missing_file_a_folder_and_an_invalid_path(tmp_path: Path) -> None:
    for path, message in [(tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory"),
                       (Path("a\0b"), "embedded null byte")]:
        with pytest.raises(UsageError, match=message) as caught:
            read_yaml(path)
        assert len(str(caught.value).splitlines()) == 1


def test_a_file_below_the_working_folder_has_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert layer(tmp_path, "a: 1", None).name == "own.yaml"
    monkeypatch.chdir("/")
    assert layer(tmp_path, "a: 1", None).name == str(tmp_path / "own.yaml").lstrip("/")


@looped("text", ["", "a", "=1", "a..b=1", ".a=1", "a.=1", "a=[1", "a=*x", "a={b: 1, b: 2}",
                 "a=!!set x", ".".join("a" * 50) + "=1", "a=\x00", "a=b: c: d"])
def test_an_invalid_set_option_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_set(text)
    assert str(caught.value).startswith("--set ") and len(str(caught.value).splitlines()) == 1


HOSTILE = st.text(st.sampled_from("ab:-?#&*!|>'\"%@`{}[],\n\t \\x0u1e.~<=Ud\ud800\x00é"), max_size=60)


@settings(max_examples=400, deadline=None)
@given(HOSTILE | st.text(max_size=40))
def test_any_text_gives_at_most_a_usage_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for make in (lambda: read_yaml(path, "f"), lambda: from_set(text), lambda: from_set(f"text.words={text}")):
        try:
            result = make()
            build(Tree, [result])
        except UsageError as error:
            assert all(line.startswith(("f:", "--set ")) for line in str(error).split("\n")), str(error)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_at_most_a_usage_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(b"text: {words: [" + content + b"]}")
    try:
        build(Tree, [read_yaml(path, "f")])
    except UsageError as error:
        assert str(error).startswith("f:")


# --- writing ----------------------------------------------------------------------------------------------------

FITTING = st.just(0.0) | st.floats(1e-18, 1e18)  # float32 can represent it and its square
TREES = st.builds(
    Tree, corpus=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
    | st.sampled_from(["1e-5", "true", "on", "null", "~", "1_0", "0x1", "", "a: b", "#", "- x"]),
    text=st.builds(Text, sample=FITTING, max_size=st.none() | st.integers(1, 2**62), lower=st.booleans(),
                   words=st.lists(st.sampled_from(["no", "1", "a", "null", "é"]))))


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_a_dumped_tree_is_read_back_equal(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    path = tmp_path_factory.getbasetemp() / "dump.yaml"
    for text in (dump(tree), dump(tree, only_changed_against=Tree())):
        path.write_text(text, encoding="utf-8")
        assert build(Tree, [read_yaml(path)]) == tree


def test_a_dumped_path_is_plain_text() -> None:
    class Paths(Section):
        file: AbsolutePath
        files: list[AbsolutePath]
        keys: dict[AbsolutePath, int]
        distinct: set[AbsolutePath]
        inner: NestedSettings
        benchmarks: Benchmarks

    nested = {"source": "candidates", "file": "/c"}
    dumped = Paths(file="/a", files=["/b"], keys={"/k": 1}, distinct={"/s"}, inner=nested,
                   benchmarks=["/x/pairs.tsv"]).model_dump()
    assert yaml.safe_load(yaml.safe_dump(dumped)) == dumped == {
        "file": "/a", "files": ["/b"], "keys": {"/k": 1}, "distinct": {"/s"}, "inner": nested,
        "benchmarks": ["/x/pairs.tsv"]}
    properties = Paths.model_json_schema(mode="serialization")["properties"]
    assert [properties[key]["type"] for key in ("file", "files", "keys", "distinct", "inner")] == [
        "string", "array", "object", "array", "object"]


def test_only_differences_are_dumped_on_request(tmp_path: Path) -> None:
    tree = build(Tree, [from_set("text.sample=1e-5"), from_set("corpus=x")])
    assert dump(tree, only_changed_against=Tree()) == "corpus: x\ntext:\n  sample: 1.0e-05\n"
    assert dump(Tree(), only_changed_against=Tree()) == "{}\n"


def test_sections_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Tree().text.min_count = 3  # type: ignore[misc]


# --- the shipped files ------------------------------------------------------------------------------------------

def test_the_manual_has_every_general_key_with_its_typed_default() -> None:
    from embtrain.experiment.run.settings import Settings

    assert read_yaml(shipped.folder("configs") / "default.yaml").tree == Settings().model_dump(mode="json")


def test_the_key_patience_describes_the_monitored_score_of_each_task() -> None:
    modules = [importlib.import_module(f"{tasks.__name__}.{m.name}") for m in pkgutil.iter_modules(tasks.__path__)]
    watched = {value.stopping_metric.removeprefix("valid/") for module in modules for value in vars(module).values()
               if isinstance(value, type) and issubclass(value, base.Task) and value.__module__ == module.__name__}
    described = [TrainConfig.model_fields["patience"].description or "",
                 (shipped.folder("configs") / "default.yaml").read_text("utf-8")]
    assert watched == {"log_likelihood", "mrr", "accuracy", "accuracy@1"}
    for text in described:
        assert watched <= set(re.findall(r"[\w@]+", text.partition("The score:")[2][:200]))


@looped("name", shipped.names("configs", "models"))
def test_a_model_file_has_every_key_of_the_model_and_its_task(name: str) -> None:
    """Its sections `model`, that of its task and `evaluate` contain all keys absent from default.yaml, and `corpus` the
    default corpus."""
    from embtrain.experiment.run.settings import settings_class
    from embtrain.experiment.tasks import base as tasks

    general = read_yaml(shipped.folder("configs") / "default.yaml").tree
    tree, task = read_yaml(shipped.path("configs", name, "models")).tree, tasks.find_for_model(name)
    typed = settings_class(name, "unigram", "logistic")().model_dump(mode="json")
    assert isinstance(tree["corpus"], str) and set(tree) >= {"model", task.section}
    assert set(tree[task.section]) == set(typed[task.section])
    for section in ("model", "evaluate"):
        assert set(tree.get(section, {})) | set(general[section]) == set(typed[section])


@looped("name", ["default.yaml", *(f"models/{x}.yaml" for x in shipped.names("configs", "models"))])
def test_every_key_of_the_manual_is_explained(name: str) -> None:
    lines = (shipped.folder("configs") / name).read_text(encoding="utf-8").splitlines()
    bare = [line for line in lines if line.startswith("  ") and ":" in line.split("#")[0] and "  # " not in line
            and " # " not in line and not line.endswith("name: " + Path(name).stem)]
    assert bare == [] and max(map(len, lines)) <= 120


@pytest.mark.parametrize("kind", ["models", "strategies"])
def test_shipped_overlays_change_known_sections_alone(kind: str) -> None:
    from embtrain.experiment.tasks import base as tasks

    names = shipped.names("configs", kind)
    assert names
    for name in names:
        result = read_yaml(shipped.path("configs", name, kind))
        own = {"corpus", "strategy", tasks.find_for_model(name).section} if kind == "models" else {
            tasks.find_by_name("triples").section}
        own |= {"group"} if kind == "strategies" else set()
        assert set(result.tree) <= {"model", "negatives", "loss", "train", "evaluate", *own}, name


def test_shipped_files_have_the_same_meaning_in_yaml_1_1() -> None:
    path = shipped.path("configs", "skipgram", "models")
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == read_yaml(path).tree


def test_a_path_is_stored_in_full_and_a_recipe_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """config.yaml of a run must find its text from any folder; a recipe overrides a folder of the same name."""
    from embtrain.experiment.run.settings import resolve

    monkeypatch.chdir(tmp_path)
    for name in ("my.txt", "gensim-wiki"):
        (tmp_path / name).write_text("a b\n")
    assert [resolve(corpus=name).corpus for name in ("my.txt", "gensim-wiki", "nowhere.txt")] == [
        str(tmp_path / "my.txt"), "gensim-wiki", "nowhere.txt"]
