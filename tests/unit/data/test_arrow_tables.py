"""Parquet files, Arrow files and saved data sets of the library `datasets` as text; malformed ones end in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.formats import arrow_tables
from embtrain.data.storage import cache, containers
from embtrain.data.text import corpus as text
from embtrain.data.text.corpus import TextConfig
from embtrain.data.text.shards import plan, reading

pa = pytest.importorskip("pyarrow", reason="peers: pyarrow is not installed; pip install 'embtrain[parquet]'")
pq = pytest.importorskip("pyarrow.parquet", reason="peers: pyarrow is not installed; pip install 'embtrain[parquet]'")

ROWS = [f"Zeile {i} über\nzwei Zeilen w{i % 9}x" for i in range(1000)]
TABLE = pa.table({"id": list(range(1000)), "text": ROWS, "words": [row.split() for row in ROWS],
                  "meta": [{"body": row, "n": i} for i, row in enumerate(ROWS)],
                  "sometimes": [row if i % 3 else None for i, row in enumerate(ROWS)]})


def put_stream(path: Path, table: Any) -> Path:
    """Write an Arrow stream, in the format of `datasets`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return path


def put_file(path: Path, table: Any) -> Path:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return path


def put_parquet(path: Path, table: Any, **options: Any) -> Path:
    pq.write_table(table, path, row_group_size=300, **options)
    return path


def put_saved(folder: Path, splits: dict[str, Any]) -> Path:
    """Write a folder as `DatasetDict.save_to_disk` does."""
    folder.mkdir()
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    for split, table in splits.items():
        names = [f"data-{i:05}-of-00002.arrow" for i in range(2)]
        for name, part in zip(names, (table.slice(0, 600), table.slice(600)), strict=True):
            put_stream(folder / split / name, part)
        (folder / split / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names],
                                                               "_split": split}))
        (folder / split / "dataset_info.json").write_text(json.dumps({"features": {}}))
    return folder


def read(where: Path, store: Path | None = None, **keys: Any) -> cache.Encoded:
    config = TextConfig(tokenizer="words", **keys)
    return text.plan_reading([where], "auto", config, config.max_sequence, store, "t")[1]()


def lines(encoded: cache.Encoded) -> list[str]:
    return [" ".join(encoded.words[i] for i in encoded.ids[a:b])
            for a, b in zip(encoded.sequence[:-1], encoded.sequence[1:], strict=True)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> cache.Encoded:
    """The same rows as JSON lines."""
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in ROWS))
    return read(path, format="jsonl")


WRITERS: dict[str, tuple[str, Callable[[Path, Any], Path]]] = {
    "a.parquet": ("parquet", put_parquet), "b.pq": ("parquet", lambda p, t: put_parquet(p, t, compression="zstd")),
    "c.parquet": ("parquet", lambda p, t: put_parquet(p, t, use_dictionary=False, data_page_version="2.0")),
    "d.arrow": ("arrow", put_stream), "e.arrow": ("arrow", put_file)}


@pytest.mark.parametrize("name", WRITERS)
def test_rows_are_read_as_objects_of_json_lines(tmp_path: Path, expected: cache.Encoded, name: str) -> None:
    kind, write = WRITERS[name]
    path = write(tmp_path / name, TABLE)
    for field in ("text", "meta.body"):
        encoded = read(path, format=kind, field=field)
        assert np.array_equal(encoded.ids, expected.ids) and encoded.words == expected.words
        assert np.array_equal(encoded.document, expected.document) and lines(encoded) == lines(expected)
    joined = read(path, format=kind, field="words", sequence="document")   # a list of words is one line
    assert np.array_equal(joined.ids, expected.ids)
    some = read(path, format=kind, field="sometimes")
    assert some.facts["documents"] == 666 and "334 objects or rows without the field 'sometimes'" in some.warnings[0]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "string_view"])
def test_every_kind_of_text_column_is_read(tmp_path: Path, expected: cache.Encoded, kind: str) -> None:
    types = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view(),
             "dictionary": pa.dictionary(pa.int32(), pa.string())}
    column = pa.array(ROWS).dictionary_encode() if kind == "dictionary" else pa.array(ROWS, types[kind])
    assert np.array_equal(read(put_stream(tmp_path / "a.arrow", pa.table({"text": column})), format="arrow").ids,
                          expected.ids)
    if kind != "string_view":                                # older versions cannot write it
        assert np.array_equal(read(put_parquet(tmp_path / "a.parquet", pa.table({"text": column})),
                                   format="parquet").ids, expected.ids)


def test_saved_data_set_is_read_without_the_library(tmp_path: Path, expected: cache.Encoded) -> None:
    folder = put_saved(tmp_path / "set", {"train": TABLE, "validation": TABLE.slice(0, 7), "test": TABLE.slice(7, 5)})
    put_stream(folder / "train" / "cache-0123456789.arrow", TABLE)
    put_stream(folder / "train" / "data-00000-of-00001.arrow", TABLE)      # of an earlier save
    encoded = read(folder, format="arrow")
    train = encoded.part == 0
    assert np.bincount(encoded.part).tolist() == [1000, 7, 5] and train.sum() == len(expected.document) - 1
    ends = encoded.document[1:][train]
    begins = encoded.document[:-1][train]
    words = [encoded.words[i] for a, b in zip(begins, ends, strict=True) for i in encoded.ids[a:b]]
    assert words == [expected.words[i] for i in expected.ids]


def test_file_of_a_saved_data_set_is_missing(tmp_path: Path) -> None:
    folder = put_saved(tmp_path / "set", {"train": TABLE})
    (folder / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(DataError, match=r"data-00001-of-00002\.arrow: file not found, and .*state\.json lists it"):
        read(folder, format="arrow")


@pytest.mark.parametrize(("state", "says"), [
    ("{", "does not list the files of a data set"), ("[1]", "does not list"), ("{}", "does not list"),
    ('{"_data_files": [{"filename": "data-00000-of-00002.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}',
     r"rows of the data set were selected but not written; save it again after flatten_indices\(\)")])
def test_damaged_state_is_one_line(tmp_path: Path, state: str, says: str) -> None:
    folder = put_saved(tmp_path / "set", {"train": TABLE})
    (folder / "train" / "state.json").write_text(state)
    with pytest.raises(DataError, match=rf"state\.json: {says}"):
        read(folder, format="arrow")


def test_large_parquet_is_cut_between_row_groups(tmp_path: Path, expected: cache.Encoded,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 9000)
    monkeypatch.setattr(reading, "LARGE_BYTES", 0)
    path = put_parquet(tmp_path / "a.parquet", TABLE)
    assert len(arrow_tables.row_group_ranges(path, 9000)) == 4
    encoded = read(path, tmp_path / "cache", format="parquet")
    assert np.array_equal(encoded.ids, expected.ids) and np.array_equal(encoded.document, expected.document)
    assert encoded.facts == expected.facts


# --- malformed files -------------------------------------------------------------------------------------------------

def changed(path: Path, change: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize(("name", "change", "says"), [
    ("a.parquet", lambda c: c[:-10], "damaged, truncated or of an unknown kind"),
    ("a.parquet", lambda c: c[:len(c) // 2], "damaged, truncated or of an unknown kind"),
    ("a.parquet", lambda c: b"", "damaged, truncated or of an unknown kind"),
    ("a.parquet", lambda c: b"plain text\n", "damaged, truncated or of an unknown kind"),
    ("a.parquet", lambda c: c[:2000] + bytes(2000) + c[4000:], "damaged, truncated or of an unknown kind"),
    ("d.arrow", lambda c: c[:-8], "the Arrow stream has no end"), ("d.arrow", lambda c: b"", "the Arrow stream has no"),
    ("d.arrow", lambda c: c[:len(c) // 2], "damaged, truncated|has no end"),
    ("d.arrow", lambda c: b"plain text\n", "the Arrow stream has no end, so it is truncated or another kind of file"),
    ("d.arrow", lambda c: c.replace(b"Zeile 5 ", b"Zeil\xff 5 "[:8]), "damaged, truncated|UTF-?8"),
    ("e.arrow", lambda c: c[:-10], "damaged, truncated or of an unknown kind"),
])
def test_damaged_table_is_one_line(tmp_path: Path, name: str, change: Callable[[bytes], bytes], says: str) -> None:
    kind, write = WRITERS[name]
    path = changed(write(tmp_path / name, TABLE.select(["text"])), change)
    with pytest.raises(DataError, match=rf"{name}: .*({says})") as raised:
        read(path, format=kind)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.parquet", "d.arrow", "e.arrow"])
@pytest.mark.parametrize(("field", "says"), [
    ("body", r"has no column 'body'; set text\.field to a column of text: text, words, sometimes"),
    ("id", r"column 'id' is int64, not text; set text\.field to a column of text: text, words, sometimes"),
    ("meta", r"column 'meta' is struct<.*>, not text; set"), ("meta.n", r"column 'meta\.n' is int64, not text; set"),
    ("meta.x", r"has no column 'meta\.x'; set"), ("text.x", r"has no column 'text\.x'")])
def test_wrong_column_lists_the_right_ones(tmp_path: Path, name: str, field: str, says: str) -> None:
    kind, write = WRITERS[name]
    with pytest.raises(DataError, match=rf"{name}: {says}"):
        read(write(tmp_path / name, TABLE), format=kind, field=field)


@pytest.mark.parametrize("name", ["a.parquet", "d.arrow", "e.arrow"])
def test_a_null_among_words_is_an_error_as_in_json_lines(tmp_path: Path, name: str) -> None:
    kind, write = WRITERS[name]
    table = pa.table({"words": [row.split() for row in ROWS[:5]] + [None, ["a", None, "b"]]})
    with pytest.raises(DataError, match=rf"{name}: column 'words': a list of words contains null; write the words"):
        read(write(tmp_path / name, table), format=kind, field="words")


def test_table_without_text_or_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no column 'text'; it has no column of text"):
        read(put_parquet(tmp_path / "a.parquet", TABLE.select(["id"])), format="parquet")
    with pytest.raises(DataError, match=r"b\.parquet: contains no words \(0 documents were read\)"):
        read(put_parquet(tmp_path / "b.parquet", TABLE.slice(0, 0)), format="parquet")


def test_value_that_is_repeated_a_million_times_is_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "FREE_BYTES", 1 << 20)
    table = pa.table({"text": pa.array(["word " * 20_000]).take(pa.array(np.zeros(2000, np.int64)))})
    for name, (kind, write) in (("a.parquet", WRITERS["a.parquet"]), ("b.parquet", WRITERS["b.pq"])):
        with pytest.raises(DataError, match=rf"{name}: unpacks to more than [\d,]+ bytes, over 200 times its size"):
            read(write(tmp_path / name, table), format=kind)


def test_tables_are_named_if_the_format_is_not(tmp_path: Path) -> None:
    put_parquet(tmp_path / "a.parquet", TABLE)
    with pytest.raises(DataError, match=r"a\.parquet: is a table \(Parquet\); set text\.format=parquet and text"):
        read(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"skipped: a\.parquet: a table; the format parquet reads a column of it"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"d\.arrow: is a table \(Arrow\); set text\.format=arrow and text\.field"):
        read(put_stream(tmp_path / "d.arrow", TABLE))
    (tmp_path / "b.txt").write_text("one two three\n")
    assert read(tmp_path).words == ["one", "two", "three"]   # of a mixed folder the text; the rest is reported
    assert read(tmp_path, format="parquet").facts["documents"] == 1000


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_tables, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"text\.format: parquet: pyarrow is not installed; pip install 'embtrain"):
        read(put_parquet(tmp_path / "a.parquet", TABLE), format="parquet")


@pytest.mark.parametrize("name", ["a.parquet", "d.arrow", "e.arrow"])
def test_random_damage_never_ends_in_another_error(tmp_path: Path, name: str) -> None:
    kind, write = WRITERS[name]
    path = write(tmp_path / name, TABLE.select(["text"]).slice(0, 300))
    content, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(60):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 4).tolist():
            damaged[place] = int(rng.integers(256))
        path.write_bytes(bytes(damaged))
        try:
            read(path, format=kind)
        except EmbtrainError as error:
            assert str(path) in str(error)
