"""Facts about files in the cache: what a file contained is found once, and again after every change of the file."""

import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import hostile_files

from embtrain.common import files
from embtrain.common.errors import DataError, UsageError
from embtrain.data.inventory import listing
from embtrain.data.storage import containers, known_files
from embtrain.data.storage.containers import digest
from embtrain.data.storage.known_files import recall
from embtrain.experiment.run.settings import resolve
from embtrain.experiment.tasks import base as tasks


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """The only record of the cache. Files of any size are known, also if they were written a moment ago."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known_files, "MIN_BYTES", 0)
    monkeypatch.setattr(known_files, "TICK", -1)

    def only() -> Path:
        path, = (tmp_path / "cache/files").glob("*.json")
        return path
    return only


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("some words")
    return path


def content(path: Path) -> str:
    """The content of a file as a fact; empty if it is kept already, since `find` then is not called."""
    found = list[str]()

    def find() -> str:
        found.append(path.read_text())
        return found[0]
    assert recall(path, "content", find, lambda kept: isinstance(kept, str)) == path.read_text()
    return "".join(found)


def test_a_fact_is_found_once(record: Callable[[], Path], text: Path) -> None:
    assert [content(text), content(text)] == ["some words", ""]
    assert json.loads(record().read_text())["path"] == str(text)


def replace_in_place(path: Path) -> None:
    path.write_text("more words")


def replace_with_the_same_time(path: Path) -> None:
    time.sleep(0.02)
    status = path.stat()
    path.write_text("more words")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def rename_another(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("more words")
    os.replace(other, path)


@pytest.mark.parametrize("change", [replace_in_place, replace_with_the_same_time, rename_another])
def test_a_changed_file_is_read_again(record: Callable[[], Path], text: Path, change: Callable[[Path], None]) -> None:
    content(text)
    time.sleep(0.02)
    change(text)                                             # of the same size
    assert [content(text), content(text)] == ["more words", ""]


@pytest.mark.parametrize("kept", [
    "", "{", "[]", "null", '{"state": [1]}', '{"state": STATE, "facts": 3}',
    '{"state": STATE, "facts": {"content": 3}}',
])
def test_a_damaged_record_is_written_again(record: Callable[[], Path], text: Path, kept: str) -> None:
    content(text)
    state = json.dumps(json.loads(record().read_text())["state"])
    record().write_text(kept.replace("STATE", state))
    assert [content(text), content(text)] == ["some words", ""]


def test_facts_of_one_file_are_kept_together(record: Callable[[], Path], text: Path) -> None:
    content(text)
    digest([("text.txt", text)])
    assert json.loads(record().read_text())["facts"].keys() == {"content", "sha256"}
    assert content(text) == ""


def test_a_file_that_changes_while_it_is_read_is_not_known(record: Callable[[], Path], text: Path) -> None:
    def find() -> str:
        old = text.read_text()
        time.sleep(0.02)
        replace_in_place(text)
        return old
    assert recall(text, "content", find, lambda kept: isinstance(kept, str)) == "some words"
    assert content(text) == "more words"


def test_a_small_file_or_one_written_within_a_tick_is_not_known(
    record: Callable[[], Path], text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(known_files, "TICK", 1 << 62)
    assert [content(text), content(text)] == ["some words"] * 2
    monkeypatch.setattr(known_files, "TICK", -1)
    monkeypatch.setattr(known_files, "MIN_BYTES", 11)
    assert [content(text), content(text)] == ["some words"] * 2
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_not_used(record: Callable[[], Path], text: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "files").write_text("a file in the place of its folder")
    assert [content(text), content(text)] == ["some words"] * 2


def test_an_error_is_raised_and_not_kept(record: Callable[[], Path], text: Path, tmp_path: Path) -> None:
    def find() -> str:
        raise ValueError("damaged")
    with pytest.raises(ValueError, match="damaged"):
        recall(text, "content", find, lambda kept: kept is not None)
    assert not (tmp_path / "cache").exists()


# -- hashes and members -----------------------------------------------------------------------------------------------

def test_a_hash_is_computed_once(record: Callable[[], Path], text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest([("text.txt", text)])
    monkeypatch.setattr("embtrain.data.storage.containers.sha256", lambda path: pytest.fail(f"{path} was read"))
    assert digest([("text.txt", text)]) == first


@pytest.mark.parametrize("kept", ["x", 3, None])
def test_a_hash_that_is_none_is_computed_again(record: Callable[[], Path], text: Path, kept: Any) -> None:
    first = digest([("text.txt", text)])
    tree = json.loads(record().read_text())
    record().write_text(json.dumps(tree | {"facts": {"sha256": kept}}))
    assert digest([("text.txt", text)]) == first


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "books.tar.gz"
    (tmp_path / "ca01").write_bytes(b"some words")
    (tmp_path / "image").write_bytes(b"\0\1")
    (tmp_path / "b.txt").write_bytes(b"more")
    with tarfile.open(path, "w:gz") as file:
        for name in ("ca01", "image", "b.txt"):
            file.add(tmp_path / name, f"folder/{name}")
    return path


def listed(path: Path, needs_text: Callable[[str], bool]) -> list[tuple[str, str, bool | None]]:
    return [(file.name, file.inside, file.is_text) for file in listing.list_files([path], "text", needs_text)]


def has_no_suffix(name: str) -> bool:
    return "." not in name


def test_members_are_listed_once(record: Callable[[], Path], archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = listed(archive, has_no_suffix)
    assert first == [(f"{archive}:folder/{name}", f"folder/{name}", text)
                     for name, text in (("ca01", True), ("image", False), ("b.txt", None))]
    monkeypatch.setattr(listing, "open_streams", lambda *_: pytest.fail("the archive was unpacked"))
    assert listed(archive, has_no_suffix) == first
    assert listed(archive, lambda name: name == "image") == first


def test_members_are_listed_again_if_more_is_needed(record: Callable[[], Path], archive: Path) -> None:
    listed(archive, has_no_suffix)
    assert [text for *_, text in listed(archive, lambda name: True)] == [True, False, True]


@pytest.mark.parametrize("kept", [3, [3], [["a"]], [["a", 1]], [[1, True]], [["folder/ca01", None]]])
def test_a_malformed_list_is_made_again(record: Callable[[], Path], archive: Path, kept: Any) -> None:
    first = listed(archive, has_no_suffix)
    tree = json.loads(record().read_text())
    record().write_text(json.dumps(tree | {"facts": {"members": kept}}))
    assert listed(archive, has_no_suffix) == first


def test_names_that_are_not_utf8_are_kept(record: Callable[[], Path], tmp_path: Path) -> None:
    path = tmp_path / "names.tar"
    (tmp_path / "x").write_bytes(b"text")
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape", format=tarfile.GNU_FORMAT) as file:
        file.add(tmp_path / "x", os.fsdecode(b"n\xff"))
    first = listed(path, has_no_suffix)
    assert os.fsencode(first[0][1]) == b"n\xff"
    assert listed(path, has_no_suffix) == first and record().exists()


# -- files that change while they are read ----------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "model", "corpus", "sets"), [
    (hostile_files.text_of, "skipgram", "text", ["text.min_count=1"]),
    (hostile_files.text_of, "skipgram", "text", ["text.min_count=1", "text.workers=2"]),
    (hostile_files.text_of, "lm", "text", ["language.min_count=1"]),
    (hostile_files.triples, "transe", "graph", []),
    (hostile_files.hierarchy, "node2vec", "pairs.tsv", ["walks.format=graph"]),
    (hostile_files.hierarchy, "order", "pairs.tsv", []),
    (hostile_files.split, "order", "split", ["pairs.protocol=given"]),
    (hostile_files.wordnet, "order", "wn", []),
    (hostile_files.repository, "xc", "docs", []),
    (hostile_files.parallel, "nmt", "both", [*hostile_files.NMT]),
])
@pytest.mark.parametrize("replace", [False, True])
def test_nothing_is_cached_under_the_hash_of_a_file_that_changes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], model: str, corpus: str,
        sets: list[str], replace: bool) -> None:
    """A file grows, or another one takes its place, between its hash and its reading. Every reader refuses it."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    make(tmp_path)
    settings = resolve(None, model, str(tmp_path / corpus), sets=sets)

    def change(path: Path) -> str:
        digest, content = files.sha256(path), path.read_bytes()
        if replace:
            path.with_name(".new").write_bytes(content)
            path.with_name(".new").rename(path)
        else:
            path.write_bytes(content + b"\n")
        return digest

    with monkeypatch.context() as patch:
        patch.setattr(containers, "sha256", change)
        with pytest.raises(DataError, match=r": changed while it was read; wait until it is complete, and run again$"):
            tasks.read(settings)
    assert not list((tmp_path / "cache").rglob("manifest.json"))
    if replace:
        tasks.read(settings)
        assert list((tmp_path / "cache").rglob("manifest.json"))


@pytest.mark.parametrize("error", [DataError("text.txt: line 7: not a pair"), UsageError("pairs.protocol: no split")])
@pytest.mark.parametrize("changes", [True, False])
def test_an_error_of_a_file_that_changes_is_caused_by_the_change(text: Path, error: Exception, changes: bool) -> None:
    def read() -> None:
        if changes:
            text.write_text("some words and")
        raise error

    with pytest.raises((DataError, UsageError)) as raised:
        known_files.checked({text: known_files.version(text)}, read)()
    if changes:
        assert str(raised.value).startswith(f"{text}: changed while it was read; ")
        assert raised.value.__cause__ is error
    else:
        assert raised.value is error


def test_other_permissions_and_links_do_not_change_a_file(text: Path) -> None:
    def read() -> str:
        text.chmod(0o600)
        os.link(text, text.with_name("backup"))
        return text.read_text()

    assert known_files.checked({text: known_files.version(text)}, read)() == "some words"
