"""ARFF with several labels: against SciPy's reader of dense files; sparse rows, labels by name or number, errors."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.io import arff as scipy_arff

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.catalogue.fetch import corpus_paths
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.labels import examples as labelled
from embtrain.data.labels.sparse import Documents, LabelsConfig

HEAD = """% a comment
@RELATION 'mine: -C 2'
@attribute size numeric
@attribute 'a word' {0,1}
@ATTRIBUTE TAG_x {0,1}
@attribute "TAG y" {0, 1}

@data
"""
XML = '<?xml version="1.0"?><labels xmlns="http://mulan.sourceforge.net/labels">' \
      '<label name="TAG y"/><label name="TAG_x"></label></labels>'


def load(folder: Path, text: str, xml: str | None = XML, **keys: object) -> Documents:
    (folder / "mine.arff").write_text(text)
    where = [folder / "mine.arff"]
    if xml is not None:
        (folder / "mine.xml").write_text(xml)
        where.append(folder / "mine.xml")
    return labelled.load(where, "auto", LabelsConfig.model_validate(keys), None, "mine")[0]


def dense(result: Documents) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.zeros((len(result.labels), result.n_features)), np.zeros((len(result.labels), result.n_labels))
    assert result.features.value is not None
    for r in range(len(result.labels)):
        document = slice(result.features.start[r], result.features.start[r + 1])
        x[r, result.features.index[document]] = result.features.value[document]
        y[r, result.labels.index[result.labels.start[r]:result.labels.start[r + 1]]] = 1
    return x, y


def test_sparse_and_dense_rows_are_equal(tmp_path: Path) -> None:
    result = load(tmp_path, HEAD + "{0 2.5, 2 1}\n{}\n0,1,0,1\n% end\n{ 1 1 ,3 1 }\n")
    x, y = dense(result)
    assert x.tolist() == [[2.5, 0], [0, 0], [0, 1], [0, 1]] and y.tolist() == [[1, 0], [0, 0], [0, 1], [0, 1]]
    assert result.names == ["TAG_x", "TAG_y"]


def test_scipy_reads_the_same_dense_rows(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    table = np.column_stack([draw.normal(size=(40, 3)).round(4), draw.integers(0, 2, (40, 2))])
    head = "@relation r\n" + "".join(f"@attribute a{i} numeric\n" for i in range(5)) + "@data\n"
    text = head + "\n".join(",".join(f"{v:g}" for v in row) for row in table) + "\n"
    x, y = dense(load(tmp_path, text, None, label_attributes=2))
    theirs = np.array([list(row) for row in scipy_arff.loadarff(io.StringIO(text))[0]])
    assert np.allclose(np.column_stack([x, y]), theirs, rtol=1e-6)
    first = dense(load(tmp_path, text.replace("numeric", "REAL"), None, label_attributes=2))
    assert np.array_equal(first[0], x)


def test_labels_may_be_the_first_attributes(tmp_path: Path) -> None:
    result = load(tmp_path, HEAD.replace("size numeric", "size {0,1}") + "{0 1,3 1}\n", None, label_attributes=-2)
    assert result.names == ["size", "a_word"] and dense(result)[1].tolist() == [[1, 0]]


@pytest.mark.parametrize(("text", "says"), [
    ("{0 1", ":9: expected a row"), ("{0 1 2 1}", "expected a row"), ("{4 1}", ":9: attribute 4"),
    ("{0 1,0 2}", "twice"), ("{2 0.5}", "labels are 0 or 1"), ("1,2,1", "3 values for 4"), ("?,0,0,0", "found '\\?"),
    ("{0 nan}", "expected a row"), ("{0 1e300}", "float32"), ("{-1 2}", "expected a row"), ("{0 '1'}", "expected"),
    ("0,0,2,0", "has the value 2"), ("{99999999999 1}", "expected a row"),
])
def test_invalid_row_is_reported_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load(tmp_path, HEAD + text + "\n")
    assert "\n" not in str(caught.value) and "mine.arff:9" in str(caught.value)


@pytest.mark.parametrize(("old", "new", "says"), [
    ("@data", "@dota", ":8: expected @attribute NAME TYPE or @data"), ("numeric", "string", "an attribute of type"),
    ("size numeric", "size {red,blue}", "numbers"), ("TAG_x", "a_word2", "no attribute 'TAG_x'"),
    ("'a word'", "size", "one name"), ("@data\n", "", "no @data line"), ("numeric", "", ":3: expected @attribute"),
])
def test_invalid_header_is_reported(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(tmp_path, HEAD.replace(old, new))


def test_values_missing_in_a_sparse_row_must_be_zero(tmp_path: Path) -> None:
    head = HEAD.replace("'a word' {0,1}", "'a word' {1,0}")
    assert dense(load(tmp_path, head + "1,1,0,0\n"))[0].tolist() == [[1, 1]]
    with pytest.raises(DataError, match="in the header is not 0"):
        load(tmp_path, head + "{0 1}\n")


@pytest.mark.parametrize(("last", "says"), [(None, "neither an XML"), (4, "leave no"), (-4, "leave no")])
def test_label_attributes_must_be_named(tmp_path: Path, last: int | None, says: str) -> None:
    with pytest.raises(UsageError, match=f"labels.label_attributes: .*{says}"):
        load(tmp_path, HEAD.replace("'mine: -C 2'", "mine") + "{0 1}\n", None, label_attributes=last)


MEKA = """@attribute a {0,1}
@attribute b {0,1}
@attribute x numeric
@attribute y {0,1}
@attribute c {0,1}
@data
1,0,.5,1,0
0,1,2,0,1
1,1,0,1,1
"""


@pytest.mark.parametrize(("relation", "names", "first"), [
    ("'toy: -C 2'", ["a", "b"], [.5, 1, 0]), ("toy:-C 2", None, []),
    ("'toy: -c 3 -split-number 2'", None, []), ("'toy: -c 2 -split-number 2'", ["a", "b"], [.5, 1, 0]),
    ('"toy: -C -2"', ["y", "c"], [1, 0, .5]), ("'a -C 1: b: -V -C 2 -X 5'", ["a", "b"], [.5, 1, 0]),
    ("'toy: -C 0'", None, []), ("'toy: -C 5'", None, []), ("toy", None, []), ("'toy -C 2'", None, []),
])
def test_labels_of_meka_are_those_of_its_relation(tmp_path: Path, relation: str, names: list[str] | None,
                                                  first: list[float]) -> None:
    text = f"@relation {relation}\n{MEKA}"
    if names is None:
        with pytest.raises(EmbtrainError, match=r"labels\.label_attributes: |a label has the value 0\.5"):
            load(tmp_path, text, None)
        return
    result = load(tmp_path, text, None)
    assert result.label_names() == names and dense(result)[0][0].tolist() == first
    assert result.test.tolist() == ([2] if "-split-number" in relation else [])
    assert load(tmp_path, text, None, label_attributes=2).label_names() == ["y", "c"]       # the setting has priority


@pytest.mark.parametrize(("m", "test"), [(1, [1, 2]), (2, [2]), (3, []), (0, []), (9, [])])
def test_split_of_meka_names_the_test_part(tmp_path: Path, m: int, test: list[int]) -> None:
    assert load(tmp_path, f"@relation 'toy: -C 2 -split-number {m}'\n{MEKA}", None).test.tolist() == test


@pytest.mark.parametrize(("xml", "says"), [
    ("<labels><label name='TAG_x'>", ":1: "), ("<labels/>", "contains no"), ("<labels><label/></labels>", "without"),
    ('<!DOCTYPE x [<!ENTITY a "b">]><labels><label name="&a;"/></labels>', "declares the entity 'a'"),
    ('<?xml version="1.0" encoding="euc-jp"?><labels><label name="TAG_x"/></labels>', "unsupported XML encoding"),
    ("no xml", "expected an XML file"), ("", "no element found"),
])
def test_invalid_list_of_labels_is_reported(tmp_path: Path, xml: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(tmp_path, HEAD + "{0 1}\n", xml)


def test_labels_that_would_be_one_word_are_rejected_before_training(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the labels 'TAG_y' and 'TAG y' are both 'TAG_y' as one word; rename one"):
        load(tmp_path, HEAD.replace("TAG_x", "TAG_y") + "{0 1}\n", None, label_attributes=2)


@settings(max_examples=200, deadline=None)
@given(st.text("{}0123456789 ,.-e'\"@%?\nax", max_size=50), st.sampled_from(["", HEAD, "@attribute a {0,1}\n"]))
def test_any_text_ends_in_a_data_error_at_worst(tmp_path_factory: pytest.TempPathFactory, text: str, head: str
                                                ) -> None:
    folder = tmp_path_factory.getbasetemp()
    for xml in (XML, None, text):
        try:
            load(folder, head + text, xml, label_attributes=1)
        except EmbtrainError as error:
            assert error.code in (2, 3, 4) and "\n" not in str(error)


@pytest.mark.parametrize(("name", "test", "pairs"), [("bibtex", 2515, 17762), ("delicious", 0, 306317),
                                                     ("usps", 2007, 9298)])
def test_real_sets_agree_with_their_recipes(name: str, test: int, pairs: int) -> None:
    if not Path(os.environ.get("EMBTRAIN_DATA_MIRROR") or "/nowhere").is_dir():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    recipe = load_recipe("corpora", name)
    config = LabelsConfig(label_attributes=recipe.label_attributes)
    result, identity = labelled.load(corpus_paths(recipe), recipe.reader, config, None, name)
    counts = identity["counts"]
    assert [counts["documents"], counts["features"], counts["labels"]] == [
        recipe.expected.documents, recipe.expected.features, recipe.expected.labels]
    assert (len(result.test), len(result.labels.index)) == (test, pairs)


@pytest.mark.parametrize("text", [":", ": ", " -c ", " -c", "\t", ":-c 1 "])
def test_options_of_a_long_relation_are_read_in_linear_time(tmp_path: Path, text: str) -> None:
    """100,000 repetitions took minutes with a pattern that tries every colon."""
    start = time.process_time()
    with contextlib.suppress(EmbtrainError):
        load(tmp_path, f"@relation a{text * 100_000}\n{MEKA}", None)
    assert time.process_time() - start < 20
