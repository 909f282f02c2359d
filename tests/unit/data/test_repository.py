"""Files of the Extreme Classification repository: equal to plain loops, errors with file and line, no crash."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.labels import examples as labelled, sparse, xc_repository
from embtrain.data.labels.sparse import Documents, LabelsConfig

GOOD = "3 5 4\n0,3 1:0.5 4:-2e-1\n 0:1\n2 \n"


def load(where: Path, reader: str = "auto", **keys: object) -> Documents:
    return labelled.load([where], reader, LabelsConfig.model_validate(keys), None, "mine")[0]


def at(folder: Path, text: str | bytes, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(result: Documents) -> list[tuple[list[int], dict[int, float]]]:
    """Return labels and features of each document, by plain loops."""
    out = []
    assert result.features.value is not None
    for r in range(len(result.labels)):
        span = slice(result.features.start[r], result.features.start[r + 1])
        x = dict(zip(result.features.index[span].tolist(), result.features.value[span].tolist(), strict=True))
        out.append((result.labels.index[result.labels.start[r]:result.labels.start[r + 1]].tolist(), x))
    return out


def test_file_equals_plain_loops(tmp_path: Path) -> None:
    result = load(at(tmp_path, GOOD))
    assert (result.n_features, result.n_labels, len(result.test), result.names) == (5, 4, 0, None)
    assert rows(result) == [([0, 3], {1: 0.5, 4: pytest.approx(-0.2)}), ([], {0: 1.0}), ([2], {})]
    assert rows(load(at(tmp_path, GOOD.replace("\n", "\r\n") + "\n"))) == rows(result)


def test_sklearn_reads_the_same(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        labels = np.sort(draw.choice(9, draw.integers(1, 4), replace=False))
        at_ = np.sort(draw.choice(30, draw.integers(1, 8), replace=False))
        lines.append(",".join(map(str, labels)) + "".join(f" {f}:{draw.normal():.6g}" for f in at_))
    result = load(at(tmp_path, "60 30 9\n" + "\n".join(lines) + "\n"))
    x, y = load_svmlight_file(io.BytesIO("\n".join(lines).encode()), n_features=30, multilabel=True, zero_based=True)
    for r, (labels, features) in enumerate(rows(result)):
        assert labels == sorted(int(label) for label in y[r])
        assert features == pytest.approx(dict(zip(x[r].indices.tolist(), x[r].data.tolist(), strict=True)))


def test_file_named_test_is_the_test_part_packed_or_not(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    at(folder, gzip.compress(GOOD.encode()), "a_train.txt.gz")
    at(folder, "1 5 4\n1 2:1\n", "a_test.txt")
    result = load(folder)
    assert len(result.labels) == 4 and result.test.tolist() == [0]  # sorted by name: a_test comes first
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        archive.writestr("AmazonCat/train.txt", GOOD)
        archive.writestr("AmazonCat/test.txt", "1 5 4\n1 2:1\n")
        archive.writestr("AmazonCat/readme.md", "no data")
    assert load(tmp_path / "both.zip").test.tolist() == [3]
    at(folder, "1 6 4\n1 2:1\n", "a_tst2.txt")
    with pytest.raises(DataError, match="6 features and 4 labels, but the previous file has 5 and 4"):
        load(folder)


def test_name_that_only_contains_the_word_is_not_a_test_file(tmp_path: Path) -> None:
    folder = tmp_path / "contest"
    folder.mkdir()
    at(folder, GOOD, "contest-train.txt")
    at(folder, GOOD, "latest.txt")
    at(folder, "1 5 4\n1 2:1\n", "mine-tst2.txt")
    assert load(folder).test.tolist() == [3]                     # latest.txt is not a part and is skipped


def test_repeated_feature_has_the_sum(tmp_path: Path) -> None:
    result = load(at(tmp_path, "2 5 4\n1 4:.5 0:1 4:.25 2:3\n2 3:1\n"))
    assert rows(result) == [([1], {0: 1.0, 2: 3.0, 4: 0.75}), ([2], {3: 1.0})]
    assert len(result.features.index) == 4
    with pytest.raises(DataError, match=r"data\.txt:2: a value of 6e\+38 is too large"):
        load(at(tmp_path, "1 5 4\n1 4:3e38 4:3e38\n"))


def test_split_files_define_the_test_part(tmp_path: Path) -> None:
    at(tmp_path, GOOD, "Mine.txt")
    at(tmp_path, "1 3\n2 1\n", "mine_trSplit.txt")
    at(tmp_path, "3 2\n", "mine_tstSplit.txt")
    assert load(tmp_path).test.tolist() == [2] and load(tmp_path, split=1).test.tolist() == [1]
    for text, says in (("4 2\n", "from 1 to 4"), ("2 2\n", "at most once"), ("0 2\n", "counted from 1"),
                       ("x 2\n", "found 'x'"), ("99999999999\n", "counted from 1")):
        at(tmp_path, text, "mine_tstSplit.txt")
        with pytest.raises(DataError, match=says):
            load(tmp_path)
    for train in ("1 3\n2 1\n", ""):
        at(tmp_path, train, "mine_trSplit.txt")
        at(tmp_path, "", "mine_tstSplit.txt")
        with pytest.raises(DataError, match="the tstSplit file contains no documents"):
            load(tmp_path)
    at(tmp_path, "1 3\n2 1\n", "mine_trSplit.txt")
    at(tmp_path, "3\n", "mine_tstSplit.txt")
    with pytest.raises(DataError, match=r"labels\.split requests number 1"):
        load(tmp_path, split=1)


def test_documents_without_a_header_have_the_shape_of_their_ids(tmp_path: Path,
                                                                      caplog: pytest.LogCaptureFixture) -> None:
    """Multi-label svmlight, as scikit-learn and LIBSVM write it."""
    path = at(tmp_path, "2,3 1:0.5 10:.25\n3 0:0.75\n 4:1\n0,1 6:2\n")
    result = load(path)
    assert (result.n_features, result.n_labels) == (11, 4)
    assert rows(result) == [([2, 3], {1: .5, 10: .25}), ([3], {0: .75}), ([], {4: 1.0}), ([0, 1], {6: 2.0})]
    assert caplog.messages == [f"{path}: has no line `documents features labels`; the numbers are taken from the "
                               "largest ids: 4 11 4", "mine: 1 document has no label and is skipped"]
    x, y = load_svmlight_file(str(path), multilabel=True, zero_based=True)
    assert x.toarray()[0].tolist() == [0, .5, *[0] * 8, .25] and y[0] == (2, 3)
    written = tmp_path / "written.txt"
    dump_svmlight_file(x, np.array([[label in row for label in range(4)] for row in y], int), str(written),
                       comment="mine", multilabel=True)
    assert rows(load(written)) == rows(result)


def test_parts_without_a_header_share_one_shape(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    folder.mkdir()
    at(folder, "0 1:1\n1 2:1\n", "train.txt")
    at(folder, "5 9:1\n", "test.txt")
    result = load(folder)
    assert (result.n_features, result.n_labels, result.test.tolist()) == (10, 6, [0])  # test.txt is read first
    at(folder, "1 10 6\n5 9:1\n", "test.txt")
    with pytest.raises(DataError, match=r"train\.txt:1: expected `documents features labels`.* in the previous file"):
        load(folder)
    at(folder, "5 9:1\n", "test.txt")
    at(folder, "2 10 6\n0 1:1\n1 2:1\n", "train.txt")
    with pytest.raises(DataError, match=r"train\.txt:1: states 10 features .*give all files that line, or none"):
        load(folder)


@pytest.mark.parametrize(("text", "says"), [
    ("0 1:1\n1 x:1\n", r":2: expected feature:value like 7:0\.5, found 'x:1'"),
    ("+1 1:1\n", ":1: expected"), ("0 1:1\n+1 1:1\n", ":2: expected labels"),
    ("0 1:1\n1 9999999999:1\n", ":2: an id above"),
])
def test_errors_without_a_header(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(at(tmp_path, text))


@pytest.mark.parametrize(("text", "line", "says"), [
    ("", 1, "documents features labels"), ("3 5\n", 1, "found '3 5"), ("a b c\n", 1, "three numbers"),
    ("1 0 4\n1 1:1\n", 1, "0 features and 4 labels"), ("1 5 1\n0 1:1\n", 1, "5 features and 1 labels"),
    ("1 9999999999 4\n0 1:1\n", 1, "at most 2,147,483,647"), ("1 5 4\n0;1 1:1\n", 2, "labels like 3,14"),
    ("1 5 4\n0 1:1 2\n", 2, "found '2'"), ("1 5 4\n0 1:x\n", 2, "found '1:x'"), ("1 5 4\n0 1:nan\n", 2, "'1:nan'"),
    ("1 5 4\n0 -1:2\n", 2, "'-1:2'"), ("1 5 4\n4 1:1\n", 2, "label 4"), ("1 5 4\n0 5:1\n", 2, "feature 5"),
    ("1 5 4\n0 1:1e39\n", 2, "float32"), ("1 5 4\n0 1:1\n1 1:1\n", 3, "one document more"),
    ("2 5 4\n0 1:1\n", None, "truncated"),
    ("1 5 4\n0,,1 1:1\n", 2, "labels like"), ("1 5 4\n0 1:1:1\n", 2, "'1:1:1'"), ("1 5 4\n0 1 :1\n", 2, "'1'"),
])
def test_errors_are_reported_with_their_line(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    with pytest.raises(DataError) as caught:
        load(at(tmp_path, text), "xc")
    message = str(caught.value)
    assert says in message and "\n" not in message and str(tmp_path) in message and (line is None
                                                                                     or f":{line}:" in message)


def test_endless_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xc_repository, "MAX_LINE", 50)
    with pytest.raises(DataError, match=":2: is longer than 50 bytes"):
        load(at(tmp_path, "1 5 4\n0" + " 1:1" * 40), "xc")


def test_header_with_large_counts_takes_no_memory(tmp_path: Path) -> None:
    """The arrays have the size of the lines in the file."""
    result = load(at(tmp_path, "2 3000000 3000000\n2999999 2999999:1\n0 0:1\n"))
    assert result.features.nbytes + result.labels.nbytes < 200 and result.names is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text("0123456789,: .-e\n{}@%ax", max_size=80).map(str.encode),
       st.sampled_from(["auto", "xc", "dense", "arff"]), st.booleans())
def test_any_bytes_end_in_a_data_error_at_worst(tmp_path_factory: pytest.TempPathFactory, content: bytes, reader: str,
                                                headed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.txt"
    path.write_bytes((b"2 5 4\n" if headed else b"") + content)
    try:
        result = load(path, reader)
    except EmbtrainError as error:
        assert error.code in (2, 3, 4) and "\n" not in str(error)
    else:
        assert len(result.features) == len(result.labels) > 0
        assert result.features.value is not None and np.isfinite(result.features.value).all()
        assert result.features.index.max(initial=0) < result.n_features
        assert result.labels.index.max(initial=0) < result.n_labels


def test_digits_are_lines_of_numbers(tmp_path: Path) -> None:
    result = load(at(tmp_path, "6.0000 -1.0 0 .5\n0 1,2,3\n", "zip.train"))
    assert rows(result) == [([6], {0: -1.0, 2: 0.5}), ([0], {0: 1.0, 1: 2.0, 2: 3.0})] and result.n_labels == 7
    for text, says in (("1 2\n1 2 3\n", ":2: has 2 features, but earlier lines have 1"), ("1.5 2\n", "class"),
                       ("-1 2\n", "class from 0"), ("1 2\nx\n", "expected a class and numbers, found 'x"),
                       ('{"text": "a"}\n', r"FEATURE:VALUE \.\.\., or ARFF, found '{\"text\".*number words and labels"),
                       ("1\n", "found '1"), ("1 nan\n", "nan"), ("9999999 1\n", "class"),
                       ("1e999 1\n", "class from 0 to 999,999 first, found inf"),
                       ("\n\n", "contains no lines")):
        with pytest.raises(DataError, match=says):
            load(at(tmp_path, text), "dense")


def test_folder_without_documents_and_unknown_reader(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no documents"):
        load(at(tmp_path, "0 5 4\n"))
    with pytest.raises(DataError, match="no document has a feature"):
        load(at(tmp_path, "3 3 3\n0\n1\n0,2\n"))
    with pytest.raises(DataError, match=r"data\.txt:4: one document more than the 2 that the first line declares"):
        load(at(tmp_path, "2 3 3\n0 0:1\n1 1:1\n2 2:1\n"))
    with pytest.raises(DataError, match="file or folder not found"):
        load(tmp_path / "nowhere")
    with pytest.raises((UsageError, ValueError)):
        LabelsConfig.model_validate({"reader": "pickle"})


def test_cache_stores_what_was_read_and_is_rebuilt_if_damaged(tmp_path: Path) -> None:
    path, config = at(tmp_path, GOOD), LabelsConfig()
    first = labelled.load([path], "xc", config, tmp_path / "cache", "mine")[0]
    (folder,) = (tmp_path / "cache").iterdir()
    file = folder / "arrays.safetensors"
    stamp = file.stat().st_mtime_ns
    again, identity = labelled.load([path], "xc", config, tmp_path / "cache", "mine")
    assert rows(again) == rows(first) and file.stat().st_mtime_ns == stamp
    assert identity["counts"] == {"documents": 3, "labels": 4, "features": 5, "entries": 3, "without labels": 1}
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert rows(labelled.load([path], "xc", config, tmp_path / "cache", "mine")[0]) == rows(first)
    assert file.stat().st_mtime_ns != stamp
    named = path.rename(path.with_name("of_test.txt"))          # whose documents are held out
    with pytest.raises(DataError, match=r"of_test\.txt: is the test split by its name, and there is none to train on"):
        labelled.load([named], "xc", config, tmp_path / "cache", "mine")
    other = labelled.load([at(tmp_path, GOOD.replace("0.5", "0.25"))], "xc", config, tmp_path / "cache", "mine")
    assert other[1]["sha256"] != identity["sha256"] and rows(other[0]) != rows(first)


def test_rows_of_a_sparse_matrix() -> None:
    matrix = sparse.Csr(np.array([0, 2, 2, 3]), np.array([4, 1, 7], np.int32), np.array([3.0, 4.0, 2.0], np.float32))
    some = matrix.rows(np.array([2, 0, 0, 1]))
    assert some.index.tolist() == [7, 4, 1, 4, 1] and some.start.tolist() == [0, 1, 3, 5, 5]
    unit = matrix.unit()
    assert unit.value is not None and unit.value.tolist() == pytest.approx([0.6, 0.8, 1.0])
