"""Reading in shards gives the ids, words and findings of one reading, whatever the number of shards and workers."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embtrain.common.errors import DataError, ResourceError
from embtrain.data.storage import cache
from embtrain.data.storage.skipped import name_file
from embtrain.data.text import corpus as text, tokenize
from embtrain.data.text.corpus import TextConfig
from embtrain.data.text.shards import estimate, merge, plan, reading, store, workers

SHARD = 70_000     # bytes; the head of a file by which its format is detected is shorter


def words(rng: np.random.Generator, n_lines: int) -> list[str]:
    """Return lines of words, some of them new at any place, with accents, digits, long words and blank lines."""
    lines = []
    for i in range(n_lines):
        ids = rng.zipf(1.3, rng.integers(0, 14)) % 5000
        lines.append(" ".join([*(f"Wört{'abcdefghij'[k % 10]}{'xy'[k % 2] * (k % 7)}{k}x" for k in ids.tolist()),
                               *(["ΟΔΟΣ", "x" * 40, "a_b"] if i % 50 == 0 else [])]))
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a large file, small ones, one that ends without a line feed, a packed one and a test file."""
    rng, place = np.random.default_rng(1), tmp_path_factory.mktemp("text")
    for name, n in (("a.txt", 2600), ("b.txt", 20), ("c.txt", 900), ("d_test.txt", 50), ("train.txt", 30)):
        place.joinpath(name).write_text("\n".join(words(rng, n)) + "\n" * (name != "c.txt"), encoding="utf-8")
    place.joinpath("train_e.txt.gz").write_bytes(gzip.compress("\n".join(words(rng, 200)).encode(), 1))
    with open(place / "a.txt", "ab") as file:
        file.write(b"\xff broken \0 bytes\n")
    for name in ("a", "b", "c"):
        place.joinpath(f"{name}.txt").rename(place / f"train_{name}.txt")
    return place


def read(where: Path, config: TextConfig, store: Path | None = None, reader: str = "auto") -> cache.Encoded:
    return text.plan_reading([where], reader, config, config.max_sequence, store, "t")[1]()


def assert_equal(one: cache.Encoded, other: cache.Encoded) -> None:
    for name in ("ids", "sequence", "document", "counts", "part"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.words == other.words and one.facts == other.facts and one.warnings == other.warnings


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Make shards of SHARD bytes of any text; returns the list of encoded shards."""
    monkeypatch.setattr(plan, "SHARD_BYTES", SHARD)
    monkeypatch.setattr(reading, "LARGE_BYTES", 0)
    encoded: list[Any] = []
    monkeypatch.setattr(workers, "_encode", lambda store, shard, threads, real=workers._encode: (
        encoded.append(shard), real(store, shard, threads))[1])
    return encoded


@pytest.mark.parametrize("keys", [
    {}, {"sequence": "document", "max_sequence": 50}, {"max_sequence": 3}, {"tokenizer": "whitespace", "lower": False},
    {"tokenizer": "wiki"}, {"format": "text"}, {"format": "tokens"},
])
def test_shards_give_the_ids_of_one_reading(folder: Path, tmp_path: Path, small_shards: list[Any], keys: dict[str, Any]
                                            ) -> None:
    config = TextConfig(**keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LARGE_BYTES", 1 << 40)
        one = read(folder, config)
    assert_equal(read(folder, config, tmp_path), one)
    is_cut = any(shard.span for shard in small_shards)
    assert len(small_shards) > 2 and is_cut == (keys.get("tokenizer") != "wiki")
    assert not list(tmp_path.glob("*/shards"))


@pytest.mark.parametrize("field", ["text", "meta.words"])
def test_json_lines_are_cut_between_objects(tmp_path: Path, small_shards: list[Any], field: str) -> None:
    rows = [{"text": f"row {i} of\nmany w{i % 999} " * 8, "meta": {"words": ["a", f"b{i % 7}"]} if i % 3 else None}
            for i in range(1500)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TextConfig(format="jsonl", field=field)
    assert_equal(read(path, config, tmp_path / "cache"), read(path, config))
    assert len(small_shards) > 3
    with open(path, "a") as file:
        file.write("no json\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1501: is not JSON"):
        read(path, config, tmp_path / "cache")


def test_range_is_not_taken_for_the_beginning_of_a_file(tmp_path: Path, small_shards: list[Any]) -> None:
    """Only the first bytes of a file decide that it is binary, and only there a byte order mark is removed."""
    path = tmp_path / "a.txt"
    path.write_text("one two\n" * 17_000 + "\ufeff\1\1\1\1\n" * 3750 + "one two\n" * 1000, encoding="utf-8")
    config = TextConfig(tokenizer="whitespace")
    assert_equal(read(path, config, tmp_path / "cache"), read(path, config))
    assert [shard.span[0] // 1000 for shard in small_shards] == [0, 70, 140]


def test_endless_word_is_read_by_one_process(tmp_path: Path, small_shards: list[Any], monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two three\n" * 12_000 + "x" * (1 << 21) + "\n" + "four five\n" * 9_000)
    config = TextConfig(token_max=1 << 22)
    assert_equal(read(path, config, tmp_path / "cache"), read(path, config))
    assert small_shards[-1].span is None


def test_finished_shards_are_verified_and_kept(folder: Path, tmp_path: Path, small_shards: list[Any],
                                               monkeypatch: pytest.MonkeyPatch,
                                               caplog: pytest.LogCaptureFixture) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(reading, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            read(folder, TextConfig(), tmp_path)
    shards = sorted(tmp_path.glob("*/shards/*"))
    assert len(shards) == len(small_shards)
    shutil.rmtree(shards[0])
    (shards[1] / "ids.npy").write_bytes((shards[1] / "ids.npy").read_bytes()[:-4] + b"\7\0\0\0")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/shards/*/ids.npy")}
    with monkeypatch.context() as patch:
        patch.setattr(reading, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            read(folder, TextConfig(), tmp_path)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/shards/*/ids.npy")}
    assert len(after) == len(shards) and sum(before.get(path) != time for path, time in after.items()) == 2
    assert "the cached data are damaged; they are rebuilt" in caplog.text
    assert_equal(read(folder, TextConfig(), tmp_path), read(folder, TextConfig()))


def test_findings_of_a_kept_shard_name_the_current_path(tmp_path: Path, small_shards: list[Any],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_bytes(b"ab\0 c\n" * 100)
    config = TextConfig(min_count=1, valid=0, test=0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reading, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        read(tmp_path / "first" / "x.txt", config, tmp_path / "cache")
    monkeypatch.setattr(store, "encode_documents", None)       # no shard is read again
    encoded = read(tmp_path / "second" / "x.txt", config, tmp_path / "cache")
    path = tmp_path / "second" / "x.txt"
    assert [name_file(line, [path, path]) for line in encoded.warnings] == [
        f"{path}: 100 NUL characters are read as spaces"]


@pytest.mark.long
def test_worker_processes_give_the_same_ids_and_errors(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", SHARD)
    config = TextConfig(workers=2)
    assert_equal(read(folder, config, tmp_path), read(folder, TextConfig()))
    place = tmp_path / "rows"
    place.mkdir()
    for name in "abc":
        (place / f"{name}.jsonl").write_text(("{}\n" if name == "a" else '{"text": "one"}\n[1]\n') * 8000)
    with pytest.raises(DataError, match=r"b\.jsonl:2: is not an object; write one object a line"):
        read(place, TextConfig(workers=2, format="jsonl"), tmp_path)


def test_estimate_reads_a_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", SHARD)
    monkeypatch.setattr(estimate, "SAMPLE_BYTES", 30_000)
    config, one = TextConfig(), read(folder, TextConfig())
    kind, files = text.find_files([folder], "auto", config, "t")
    result = estimate.estimate("mine.txt", files, config.rules(kind, config.max_sequence), 2)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert (result.files, result.bytes, result.workers) == (6, size, 2) and result.shards > 3
    assert 30_000 < result.sampled_bytes < 5 * 30_000 < size
    assert result.tokens == pytest.approx(one.facts["tokens"], rel=0.3)
    assert len(one.words) / 3 < result.types < len(one.words) * 3
    assert str(result).startswith("mine.txt: 6 files, ")     # as a text that was read
    assert result.seconds > 0 and result.worker_memory > 1 << 20 and result.disk > 8 * result.tokens


@pytest.mark.parametrize("format", ["auto", "jsonl"])
def test_estimate_of_long_lines_is_scaled_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      format: str) -> None:
    monkeypatch.setattr(estimate, "SAMPLE_BYTES", 30_000)
    line = "rot grün blau " * 100_000
    path = tmp_path / "long.txt"
    path.write_text(line if format == "auto" else json.dumps({"about": "x" * 10**7, "text": line}))    # with escapes
    config = TextConfig() if format == "auto" else TextConfig(format="jsonl")
    kind, files = text.find_files([path], config.format, config, "t")
    result = estimate.estimate("t", files, config.rules(kind, config.max_sequence), 1)
    assert result.tokens == pytest.approx(300_000, rel=0.1) and result.disk > 8 * result.tokens


# --- more words than fit into memory ---------------------------------------------------------------------------------

def counted(*texts: str) -> tuple[int, Any]:
    """Return n shards and a function that loads them."""
    shards = []
    for one in texts:
        names = list(dict.fromkeys(one.split()))
        ids = np.array([names.index(word) for word in one.split()], np.int32)
        ends = np.array([0, len(ids)])
        encoded = cache.Encoded(ids, ends, ends, np.bincount(ids, minlength=len(names)), names, {})
        shards.append(reading.Reading(encoded))
    return len(shards), shards.__getitem__


@pytest.mark.parametrize(("most", "kept", "dropped"), [
    (6, "a b c d e f", 0), (5, "a b d", 1), (3, "a b d", 1), (2, "a b", 2), (1, "a", 3)])
def test_rarest_words_are_dropped_by_their_exact_counts(monkeypatch: pytest.MonkeyPatch, most: int, kept: str,
                                                        dropped: int) -> None:
    """Counts are a 5, b 3, d 2, and c, e and f 1."""
    monkeypatch.setattr(tokenize, "MAX_TYPES", most)
    n, load = counted("a b a c", "b a d e", "a d f b a")
    out = cache.AppendableArray()
    result, found = merge.merge(n, load, [False] * n, True, 9, out)
    encoded = result.encoded
    assert encoded.words == kept.split() and (found.n_types, found.dropped_count) == (6, dropped)
    expected = [[word for word in shard.split() if word in kept] for shard in ("a b a c", "b a d e", "a d f b a")]
    assert [[encoded.words[i] for i in encoded.ids[a:b]] for a, b in
            zip(encoded.document[:-1], encoded.document[1:], strict=True)] == expected
    assert encoded.counts.tolist() == [sum(shard.count(word) for shard in expected) for word in encoded.words]


def test_words_of_one_count_cannot_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "MAX_TYPES", 2)
    with pytest.raises(ResourceError, match=r"^corpus: more than 2 distinct words, all of one count; choose another"):
        merge.merge(*counted("a b", "c a b c"), [False] * 2, True, 9, cache.AppendableArray())


def test_dropped_words_are_reported(tmp_path: Path, small_shards: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        (tmp_path / f"{i}.txt").write_text(f"often often rare{'abcd'[i]}\n" * 5000)
    monkeypatch.setattr(tokenize, "MAX_TYPES", 3)
    encoded = read(tmp_path, TextConfig(), tmp_path / ".cache")
    assert encoded.words == ["often"] and encoded.facts["types"] == 5 and encoded.facts["tokens"] == 40_000
    assert encoded.warnings[0] == ("text: 5 distinct words are more than 3; the 4 that occur 5000 times or less are "
                                   "dropped from the text")
