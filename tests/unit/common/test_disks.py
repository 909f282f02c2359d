"""A crash and a disk error at every call of one writer; tests/slow/trust covers every writer."""

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
    """A folder with vectors and an older export of other vectors."""
    place = tmp_path / "origin"
    (place / "run").mkdir(parents=True)
    vectors_of(place, "safetensors")
    shutil.move(place / "v", place / "run" / "vectors.safetensors")
    (place / "out").mkdir()
    (place / "out" / "x.txt").write_text("1 1\nold 1\n")
    return place


def owes(end: End, fault: int) -> None:
    """Return whether the output is one line with the code of the error."""
    assert end.code == (DIED if fault == DEATH else 4), end
    if fault != DEATH:
        assert end.said.startswith("embtrain: error: ") and end.said.count("\n") == 1, end


@pytest.mark.parametrize("fault", [DEATH, errno.EIO])
def test_an_export_is_the_old_one_or_the_new_one(origin: Path, fault: int) -> None:
    at = 0
    for at, place, end in failures(origin, EXPORT, fault):  # noqa: B007
        owes(end, fault)
        there = (place / "out" / "x.txt").read_text()
        assert there == "1 1\nold 1\n" or len(vectors.read(place / "out" / "x.txt")) == 6
        assert fault == DEATH or left_over(place) == []
    assert at >= 8


def test_a_writer_that_writes_in_place_is_detected(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "write_atomically", in_place)
    result = []
    for _, place, _ in failures(origin, EXPORT, DEATH):
        there = (place / "out" / "x.txt").read_text()
        result.append(there == "1 1\nold 1\n" or (there.startswith("6 5\n") and there.count("\n") == 7))
    assert not all(result)


def test_a_partly_written_file_is_detected(tmp_path: Path) -> None:
    for name, text in {"a.json": '{"a": ', "b.html": "<html>", "c.txt": "", "d.safetensors": "x"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "e.json").write_text("{}")
    assert sorted(torn(tmp_path)) == ["a.json", "b.html", "c.txt", "d.safetensors"]
