"""A machine that stops and a disk that fails at every call of a writer; tests/slow/trust has every writer."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from helpers.disks import DEATH, DIED, End, failures, in_place, left_over, torn
from helpers.hostile_files import vectors_of

from embtrain.data.vectors import vectors

pytestmark = pytest.mark.long

EXPORT = ("export", "run", "--out", "out/x.txt")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A folder with vectors and an older export of others."""
    place = tmp_path / "origin"
    (place / "run").mkdir(parents=True)
    vectors_of(place, "safetensors")
    shutil.move(place / "v", place / "run" / "vectors.safetensors")
    (place / "out").mkdir()
    (place / "out" / "x.txt").write_text("1 1\nold 1\n")
    return place


def owes(end: End, wrong: int) -> None:
    """One line and the code of what went wrong."""
    assert end.code == (DIED if wrong == DEATH else 4), end
    if wrong != DEATH:
        assert end.said.startswith("embtrain: error: ") and end.said.count("\n") == 1, end


@pytest.mark.parametrize("wrong", [DEATH, errno.EIO])
def test_an_export_is_the_old_one_or_the_new_one(origin: Path, wrong: int) -> None:
    at = 0
    for at, place, end in failures(origin, EXPORT, wrong):  # noqa: B007
        owes(end, wrong)
        there = (place / "out" / "x.txt").read_text()
        assert there == "1 1\nold 1\n" or len(vectors.read(place / "out" / "x.txt")) == 6
        assert wrong == DEATH or left_over(place) == []
    assert at >= 8


def test_a_writer_that_writes_in_place_is_noticed(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "write_atomically", in_place)
    found = []
    for _, place, _ in failures(origin, EXPORT, DEATH):
        there = (place / "out" / "x.txt").read_text()
        found.append(there == "1 1\nold 1\n" or (there.startswith("6 5\n") and there.count("\n") == 7))
    assert not all(found)


def test_what_is_torn_is_found(tmp_path: Path) -> None:
    for name, text in {"a.json": '{"a": ', "b.html": "<html>", "c.txt": "", "d.safetensors": "x"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "e.json").write_text("{}")
    assert sorted(torn(tmp_path)) == ["a.json", "b.html", "c.txt", "d.safetensors"]
