"""Exports of several files: after a failure, a folder has the files of the earlier export, or is not there."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import JOURNAL, TEMPORARY_SUFFIX, write_text
from embtrain.data.vectors import folders, replaced_files, search_index, vectors as vector_files
from embtrain.data.vectors.replaced_files import new_folder, undo_killed
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.inspect import export
from embtrain.experiment.inspect.align import align

RELATIONS = Vectors(["r"], np.ones((1, 3)))
Write = Callable[[Path, Vectors], Any]
WRITERS: dict[str, Write] = {
    "huggingface": lambda out, table: folders.write_huggingface(out, table, RELATIONS, {"embtrain_version": ""}, {},
                                                                     table.words[0]),
    "projector": lambda out, table: folders.write_projector(out, table, {}),
    "pykeen": lambda out, table: folders.write_pykeen(
        out, {part: np.array([[0, 0, 1]]) for part in ("train", "valid", "test")}, table, RELATIONS, 1),
    **{format: partial(lambda format, out, table: search_index.write(out, table, format, "float32", "auto"), format)
       for format in search_index.FORMATS}}
formats = pytest.mark.parametrize("format", WRITERS)


def table(first: str) -> Vectors:
    words = [first, "b", "c", "d"]
    return Vectors(words, np.random.default_rng(ord(first)).normal(size=(4, 3)))


def writer(format: str) -> Write:
    if format in search_index.FORMATS and importlib.util.find_spec(format) is None:
        pytest.skip(f"index: {format} is not installed; pip install 'embtrain[{format}]'")
    return WRITERS[format]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class FullDisk:
    """Fails from the n-th synchronization on; each file is synchronized after it is written, then its folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int):
        self.n_calls, self.n, self.real = 0, n, os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, handle: int) -> None:
        self.n_calls += 1
        if self.n_calls > self.n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.real(handle)


@formats
def test_a_failed_export_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    write = writer(format)
    write(tmp_path / "out", table("a"))
    before, n_files = contents(tmp_path / "out"), len(contents(tmp_path / "out"))
    for n in range(2 * n_files):
        with monkeypatch.context() as patch, pytest.raises(ResourceError) as caught:
            FullDisk(patch, n)
            write(tmp_path / "out", table("z"))
        assert contents(tmp_path / "out") == before, n
        named = Path(str(caught.value).partition(": ")[0])
        assert named.parent == tmp_path / "out" and named.name in before
        with monkeypatch.context() as patch, pytest.raises(ResourceError):
            FullDisk(patch, n)
            write(tmp_path / "new", table("z"))
        assert not (tmp_path / "new").exists()
    write(tmp_path / "out", table("z"))
    after = contents(tmp_path / "out")
    assert after.keys() == before.keys() and after != before
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o666 & ~umask()}


@formats
def test_a_failed_export_leaves_no_new_folder_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
                                                       ) -> None:
    (tmp_path / "kept").mkdir()
    with monkeypatch.context() as patch, pytest.raises(ResourceError):
        FullDisk(patch, 0)
        writer(format)(tmp_path / "kept" / "new" / "deep" / "out", table("z"))
    assert [*tmp_path.rglob("*")] == [tmp_path / "kept"]
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "new" / "deep"):
        (tmp_path / "new" / "other").touch()
        raise KeyboardInterrupt
    assert [*(tmp_path / "new").iterdir()] == [tmp_path / "new" / "other"]


@pytest.mark.parametrize("name", ["x.txt", "x.safetensors"])
def test_a_failed_export_of_a_file_leaves_no_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
                                                        ) -> None:
    format = "word2vec" if name == "x.txt" else "safetensors"
    dtype = "float32" if name == "x.txt" else "float16"
    vector_files.write(tmp_path / "a.txt", table("a"), "word2vec")
    with monkeypatch.context() as patch, pytest.raises(ResourceError):
        FullDisk(patch, 0)
        export.export_vectors(table("z"), format, tmp_path / "new" / "deep" / name, dtype)
    with monkeypatch.context() as patch, pytest.raises(ResourceError):
        FullDisk(patch, 0)
        align(tmp_path / "a.txt", tmp_path / "a.txt", tmp_path / "new" / "deep" / name, format)
    assert [*tmp_path.rglob("*")] == [tmp_path / "a.txt"]
    export.export_vectors(table("z"), format, tmp_path / "new" / "deep" / name, dtype)
    assert (tmp_path / "new" / "deep" / name).is_file()


class Moves:
    """Runs `before` ahead of each move from or to a visible file of a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, before: Callable[[], None]):
        self.folder, self.before, self.real = folder, before, os.replace
        monkeypatch.setattr(os, "replace", self)

    def __call__(self, source: Path, target: Path) -> None:
        if self.folder in (Path(source).parent, Path(target).parent):
            self.before()
        self.real(source, target)


@formats
@pytest.mark.parametrize("kind", [PermissionError, KeyboardInterrupt])
def test_a_move_that_fails_leaves_the_earlier_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str,
                                                     kind: type[BaseException]) -> None:
    write, n_moves, failing = writer(format), 0, -1
    write(tmp_path, table("a"))
    before = contents(tmp_path)

    def fail() -> None:
        nonlocal n_moves
        n_moves += 1
        if n_moves == failing:
            raise kind(errno.EPERM, os.strerror(errno.EPERM))

    Moves(monkeypatch, tmp_path, fail)
    for failing in range(1, 2 * len(before) + 1):
        n_moves = 0
        with pytest.raises(ResourceError if kind is PermissionError else kind):
            write(tmp_path, table("z"))
        assert contents(tmp_path) == before, failing
    write(tmp_path, table("z"))
    assert contents(tmp_path) != before


def killed(out: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[], Any]) -> list[Path]:
    """Export, and return copies of the folder ahead of each move, as a killed export leaves it."""
    states = list[Path]()

    def copy() -> None:
        states.append(shutil.copytree(out, Path(tempfile.mkdtemp(dir=out.parent)) / "state"))

    with monkeypatch.context() as patch:
        Moves(patch, out, copy)
        write()
    return states


@formats
def test_a_killed_export_cannot_be_read_and_is_replaced_by_the_next_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    write, out = writer(format), tmp_path / "out"
    write(out, table("a"))
    states = killed(out, monkeypatch, lambda: write(out, table("z")))
    assert len(states) == 2 * len(contents(out))
    for state in states[1:]:                                 # the first is the earlier export
        assert not (state / export.FILES[format][0]).exists()
        if format == "huggingface":
            with pytest.raises(DataError, match="contains no vectors"):
                folders.read_any(state)
        export._check_folder(state, format)
        (state / "LICENSE").touch()                          # files of the user do not refuse it either
        export._check_folder(state, format)
        write(state, table("z"))
        assert contents(state) == {**contents(out), "LICENSE": b""}


@formats
def test_an_error_after_a_killed_export_leaves_the_earlier_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    write, out = writer(format), tmp_path / "out"
    write(out, table("a"))
    (out / "LICENSE").touch()
    before = contents(out)
    for state in killed(out, monkeypatch, lambda: write(out, table("z"))):
        write_text(state / "x.txt", "another export does not delete the earlier files either")
        (state / "x.txt").unlink()
        for n in (0, 2):                                     # during the undoing of the moves, and after it
            with monkeypatch.context() as patch, pytest.raises(ResourceError):
                FullDisk(patch, n)
                write(state, table("z"))
        assert contents(state) == before
        export._check_folder(state, format)


@formats
def test_a_killed_export_to_a_new_folder_is_removed_by_the_next_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    write, out = writer(format), tmp_path / "out"
    for state in killed(out, monkeypatch, lambda: write(out, table("z"))):
        for n in (0, 2):
            with monkeypatch.context() as patch, pytest.raises(ResourceError):
                FullDisk(patch, n)
                write(state, table("z"))
        assert contents(state) == {}
        export._check_folder(state, format)


def test_a_file_that_the_user_changed_after_a_killed_export_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    write, out = WRITERS["huggingface"], tmp_path / "out"
    states = killed(out, monkeypatch, lambda: write(out, table("z")))
    (states[-1] / "README.md").write_text("of the user")
    write(out, table("a"))
    states.append(killed(out, monkeypatch, lambda: write(out, table("z")))[4])
    (states[-1] / "README.md").write_text("of the user")     # here the earlier one has been moved away
    for state in states[-2:]:
        undo_killed(state)
        assert (state / "README.md").read_text() == "of the user"
    assert [path.name for path in states[-2].iterdir() if path.is_file()] == ["README.md"]
    assert folders.read_any(states[-1]).words == table("a").words


@formats
def test_two_exports_at_a_time_do_not_mix_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
                                                       ) -> None:
    monkeypatch.setattr(replaced_files, "MOVE_SECONDS", 0.01)
    write, out = writer(format), tmp_path / "out"
    write(tmp_path / "expected", table("z"))
    write(out, table("a"))

    def write_another() -> None:
        with pytest.raises(UsageError, match="another export moves its files there"):
            write(out, table("b"))

    with monkeypatch.context() as patch:
        Moves(patch, out, write_another)
        write(out, table("z"))
    assert contents(out) == contents(tmp_path / "expected")


def test_a_link_in_the_place_of_a_leftover_is_not_followed(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    (own := tmp_path / "own").mkdir()
    (own / "private").touch()
    unfinished = out / f".x{TEMPORARY_SUFFIX}"
    for text in ('{"model.safetensors": ""}', '{"../own/private": ""}', "[]", "{}", "no JSON"):
        unfinished.mkdir()
        (unfinished / "model.safetensors").touch()
        (unfinished / JOURNAL).write_text(text)
        (unfinished / "earlier").symlink_to(own)
        undo_killed(out)
        assert [*contents(own)] == ["private"]
        shutil.rmtree(unfinished)
    unfinished.symlink_to(own)
    undo_killed(out)


def test_a_folder_of_the_user_is_not_taken_for_a_killed_export(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    (tmp_path / f".x{TEMPORARY_SUFFIX}").touch()             # of a single file
    with pytest.raises(UsageError, match="huggingface writes a folder"):
        export._check_folder(tmp_path, "huggingface")
    (tmp_path / f".y{TEMPORARY_SUFFIX}").mkdir()             # of an export that was killed before its moves
    with pytest.raises(UsageError, match="huggingface writes a folder"):
        export._check_folder(tmp_path, "huggingface")
    (tmp_path / "README.md").unlink()
    export._check_folder(tmp_path, "huggingface")


def test_optional_files_of_an_earlier_export_are_deleted(tmp_path: Path) -> None:
    folders.write_huggingface(tmp_path, table("a"), RELATIONS, {}, {}, "card")
    (tmp_path / "notes.txt").write_text("of the user")
    folders.write_huggingface(tmp_path, table("a"), None, {}, {}, "card")
    assert contents(tmp_path).keys() == {"README.md", "config.json", "model.safetensors", "vocab.txt", "notes.txt"}


def head(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "README.md").read_text().split("---\n")[1]))


def test_keys_of_the_publisher_are_kept_in_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(out: Path) -> None:
        folders.write_huggingface(out, table("a"), None, {}, front, "card")

    out, front = tmp_path / "out", {"library_name": "embtrain", "tags": ["a"], "model-index": [{"name": "x"}]}
    write(out)
    text = (out / "README.md").read_text()
    text = text.replace("---\n", "---\nlicense: mit\nlanguage: [de, en]\n", 1)
    (out / "README.md").write_text(text, newline="\r\n")
    publisher, front = {"license": "mit", "language": ["de", "en"]}, {"library_name": "embtrain", "tags": ["b"]}
    states = killed(out, monkeypatch, lambda: write(out))
    assert head(out) == front | publisher
    for state in states:                                     # as a killed export leaves it
        write(state)
        assert head(state) == front | publisher


@pytest.mark.parametrize(("head", "kept"), [
    ("license: mit\nlibrary_name: x\ntags:\n- a\n- b\n'widget':\n  - text: 'tags: 1'\n# of the publisher\n"
     "model-index: []\n", "license: mit\n'widget':\n  - text: 'tags: 1'\n# of the publisher\n"),
    ("# one\nlicense: mit\ntags: [a, b,\nc, d]\n# two\nlanguage: no\n",
     "# one\nlicense: mit\n# two\nlanguage: no\n"),
    ("tags:\n- a\n# of the licence\nlicense: mit\nextra: |\n  a\n\n  # b\n",
     "# of the licence\nlicense: mit\nextra: |\n  a\n\n  # b\n"),
    ("\"tags\": [a]\n'license': 'a\x85b\n\n  é'\n", "'license': 'a\x85b\n\n  é'\n"),
    *((lines, lines) for lines in ("a.b: c\nlicense: mit\n", "a b: c\n", '"a b": c\n', "a/b: c\n", "lizenz_ä: c\n",
                                   "<<: {a: b}\n", "? license\n: mit\n", "2020: [0x1F, 1.10]\nnull: 2020-01-01\n",
                                   "n: 99999999999999999999999\nx: !own {a: .nan}\n")),
    ("!!map\na: b\n", "a: b\n"), ("&a\na: b\n", "a: b\n"),
    ("library_name: x\n", ""), ("", ""), ("\n# no keys\n", "# no keys\n")])
def test_lines_of_other_keys_are_kept_as_they_are(tmp_path: Path, head: str, kept: str) -> None:
    card = tmp_path / "README.md"
    for text in (f"---\n{head}---\n\ncard", f"---\n{head}---", f"\n \n--- \n{head}---\t\n", f"\ufeff---\n{head}---\n"):
        for line_end in ("\n", "\r\n", "\r"):
            card.write_text(text, "utf-8", newline=line_end)
            assert [folders._publisher_lines(card, "") for _ in range(2)] == [kept, kept]
    for text in (f"a card\n---\n{head}---\n", f"----\n{head}---\n", ""):
        card.write_text(text, "utf-8")
        assert folders._publisher_lines(card, "") == ""


@pytest.mark.parametrize(("head", "kept"), [
    ("  license: mit\n  language: no\n  tags: [a]\n", {"license": "mit", "language": False}),
    (" license: mit\n", {"license": "mit"}), ("tags: &t [a]\nother: *t\n", {"other": ["a"]}),
    ("{license: mit, tags: [a]}\n", {"license": "mit"}), ("x: .nan\nlicense: mit\n", {"license": "mit", "x": "nan"}),
    ("license: mit # a\nx: |\n  a\n   # b\n", {"license": "mit", "x": "a\n # b\n"})])
def test_keys_of_the_publisher_in_other_yaml_are_kept_twice(tmp_path: Path, head: str, kept: dict[Any, Any]) -> None:
    front, card = {"library_name": "x", "model-index": [{"name": "a", "metrics": []}]}, tmp_path / "README.md"
    folders.write_huggingface(tmp_path, table("a"), None, {}, front, "card")
    card.write_text(f"---\n{head}---\n\ncard")
    for _ in range(2):
        folders.write_huggingface(tmp_path, table("a"), None, {}, front, "card")
        values = yaml.safe_load(card.read_text().split("---\n")[1])
        assert {key: "nan" if value != value else value for key, value in values.items()} == front | kept


@pytest.mark.parametrize(("head", "kept"), [
    ("big: &t 3\ntags: *t\nlicense: mit\n", "big: &t 3\nlicense: mit\n"),
    ("tags: &t [a]\nn: 99999999999999999999999\n2020: 0x1F\nnull: 1.10\nd: 2020-01-01\nx: !own {a: .nan}\no: *t\n"
     "z: [*t, no]\ns: \"a\\u0085b\"\n",
     "n: 99999999999999999999999\n2020: 0x1F\nnull: 1.10\nd: 2020-01-01\nx: !own {a: .nan}\no: &id001 [a]\n"
     "z: [*id001, no]\ns: \"a\\Nb\"\n"),
    ("tags: &t {x: 1}\nother:\n  <<: *t\n  y: 2\n", "other:\n  <<: {x: 1}\n  y: 2\n"),
    (f"{{tags: [a], license: '{'a b ' * 50}'}}\n", f"license: '{'a b ' * 50}'\n")])
def test_values_of_other_keys_keep_their_forms(tmp_path: Path, head: str, kept: str) -> None:
    (card := tmp_path / "README.md").write_text(f"---\n{head}---\n")
    metrics = [{"name": str(i), "value": i / 7} for i in range(1000)]
    for front in ({"library_name": "x", "tags": ["a"]}, {"model-index": [{"metrics": metrics}]}):
        folders.write_huggingface(tmp_path, table("a"), None, {}, front, "card")
        assert card.read_text() == f"---\n{yaml.safe_dump(front, sort_keys=False)}{kept}---\n\ncard"


@pytest.mark.parametrize("text", ["---\n\n# My vectors\n\nText: here\n", "---\n\nSome intro\n\n---\n", "---\n---\n",
                                  "---\n# heading\n\ntext\n---\nmore", "---\n**a**\n---\n", "---\n[link](http://a)\n\ntext",
                                  "---\nThe ratio is 3:1\n", "---\n*a:b* c\n---\n",
                                  "***\n*Last run: today*\n\nText\n"])
def test_a_card_that_begins_with_a_line_across_the_page_has_no_head(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    assert folders._publisher_lines(tmp_path / "README.md", "tags: [a]\n") == ""


@pytest.mark.parametrize(("card", "problem"), [
    (b"---\nlicense: mit\n", r": its head has no end; write --- in the line after its keys"),
    (b"\n---\nlicense: mit: 1\n---\n", r":3:13: mapping values are not allowed here; correct the head"),
    (b"---\nlicense: mit\nauthor: Andr\xe9\n---\n", r":3: is not UTF-8; save the file as UTF-8; correct the head"),
    (b"---\n*Last run: today*\n\nText\n", r": its head has no end; write --- in the line after its keys"),
    (b"---\n\nTrained on: a\n\nText\n\n---\n", r":7:1: could not find expected ':'; correct the head"),
    (b"---\n{\"license\":\"mit\"\n---\n", r":3:1: expected .*; correct the head"),
    (b"---\na b: c\n", r": its head has no end; write --- in the line after its keys"),
    (b"---\n@x: y\nlicense: mit\n---\n", r":2:1: found character '@' that cannot start any token; correct the head"),
    (b"---\n%YAML 1.1\nlicense: mit\n---\n", r":3:1: expected '<document start>', .*; correct the head"),
    (b"---\n<<<<<<< a\nlicense: mit\n=======\n>>>>>>> b\n---\n", r":3:8: .*; correct the head"),
    (b"---\na: " + b"[" * 5000 + b"\n---\n", r": is not YAML: .*; correct the head"),
    (b"---\na: \x07\n---\n", r":2: contains a character that YAML does not allow; remove it; correct the head"),
    (b"---\na:\n\tb: c\n---\n", r":3:1: contains a tab in the indentation; indent with spaces; correct the head"),
    (b"---\n- mit\n---\n", r":2: should be keys and values, .*; correct the head"),
    (b"---\nlicense: '\n---\n", r":3:1: found unexpected end of stream; correct the head")])
def test_a_damaged_head_of_a_card_changes_nothing(tmp_path: Path, card: bytes, problem: str) -> None:
    WRITERS["huggingface"](tmp_path, table("a"))
    (tmp_path / "README.md").write_bytes(card)
    before = contents(tmp_path)
    with pytest.raises(DataError, match=f"^{tmp_path}/README.md{problem}.*, move the card away, or, if its "
                                        r"first --- is a line across the page, write \*\*\* there$"):
        WRITERS["huggingface"](tmp_path, table("z"))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("head", ["&a\nlicense: *a\n", "!own\nlicense: mit\n"])
def test_keys_that_cannot_follow_others_are_refused(tmp_path: Path, head: str) -> None:
    (card := tmp_path / "README.md").write_text(f"---\n{head}---\n")
    with pytest.raises(DataError, match=f"^{card}: its keys cannot follow those of an export; correct the head of the "
                                        "card, move the card away, or, .*$"):
        folders._publisher_lines(card, "tags: [a]\n")


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "README.md"])
def test_a_missing_permission_is_not_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
                                                         ) -> None:
    """Tests may run as root, who can read every file."""
    def refuse(path: Any, *args: Any, **keywords: Any) -> Any:
        if isinstance(path, str | Path) and Path(path) == tmp_path / name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **keywords)

    real = open
    WRITERS["huggingface"](tmp_path, table("a"))
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    with pytest.raises(ResourceError, match=f"^{tmp_path / name}: cannot be read: Permission denied; change the perm"):
        if name == "vocab.txt":
            folders.read_any(tmp_path)
        export._check_folder(tmp_path, "huggingface")
        WRITERS["huggingface"](tmp_path, table("z"))


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@formats
def test_a_name_that_cannot_be_written_changes_nothing(tmp_path: Path, format: str) -> None:
    write = writer(format)
    write(tmp_path / "out", table("a"))
    before = contents(tmp_path / "out")
    with pytest.raises(DataError) as caught:
        write(tmp_path / "out", Vectors(["z", "y", "x", "a\nb"], np.ones((4, 3))))
    assert contents(tmp_path / "out") == before
    assert Path(str(caught.value).partition(": ")[0]).parent == tmp_path / "out"


@formats
def test_something_else_in_place_of_a_file_is_refused_before_the_first_is_replaced(tmp_path: Path, format: str
                                                                                   ) -> None:
    write = writer(format)
    write(tmp_path, table("a"))
    for name in contents(tmp_path):
        (tmp_path / name).unlink()
        before = contents(tmp_path)
        (tmp_path / name).mkdir()
        with pytest.raises(UsageError, match=rf"{name}: is not a file, and an export needs a file there; move it"):
            write(tmp_path, table("z"))
        (tmp_path / name).rmdir()
        assert contents(tmp_path) == before
        os.mkfifo(tmp_path / name)
        with pytest.raises(UsageError, match=rf"{name}: is a device, a pipe"):
            write(tmp_path, table("z"))
        (tmp_path / name).unlink()
        assert contents(tmp_path) == before
        write(tmp_path, table("a"))


def test_files_of_a_killed_export_do_not_refuse_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = search_index.KeptNeighbours(1.0, 3, 4)
    monkeypatch.setattr(search_index, "write", lambda *_: kept)
    (tmp_path / f".x{TEMPORARY_SUFFIX}").mkdir()
    assert export.export_vectors(table("a"), "faiss", tmp_path) == kept
    (tmp_path / "x").write_text("of another program")
    with pytest.raises(UsageError, match="faiss writes a folder"):
        export.export_vectors(table("a"), "faiss", tmp_path)
