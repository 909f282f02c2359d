"""Members unpacked into the cache are always checked before use."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embtrain.common.errors import ResourceError, Stopped
from embtrain.data.catalogue import members
from embtrain.data.storage import archives


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("t/b.txt", "t/a.txt", "README"):
            file.writestr(name, name)
    return path


def _altered(path: Path, manifest: Path) -> None:
    path.write_text("t/A.txt")


def _cut(path: Path, manifest: Path) -> None:
    path.write_text("t/")


def _gone(path: Path, manifest: Path) -> None:
    path.unlink()


def _not_listed(path: Path, manifest: Path) -> None:
    path.write_text("t/A.txt")
    manifest.unlink()


def _listed_as_nothing(path: Path, manifest: Path) -> None:
    path.write_text("t/A.txt")
    manifest.write_text("{}")


def _nonsense(path: Path, manifest: Path) -> None:
    path.unlink()
    manifest.write_text('[1, {"t/a.txt": 5}]')


@pytest.mark.parametrize(("damage", "is_reported"),
                         [(_altered, True), (_cut, True), (_gone, True), (_not_listed, False),
                                                     (_listed_as_nothing, False), (_nonsense, False)])
def test_damaged_members_are_unpacked_again(
        archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path, Path], None],
        is_reported: bool) -> None:
    first = members.unpack_members(archive, "0" * 64, ["t/*.txt"], tmp_path / "cache")
    (folder,) = (tmp_path / "cache" / "members").iterdir()
    damage(first[0], folder / "manifest.json")
    assert members.unpack_members(archive, "0" * 64, ["t/*.txt"], tmp_path / "cache") == first
    assert [path.read_text() for path in first] == ["t/a.txt", "t/b.txt"]
    assert caplog.messages == ([f"{first[0]}: was damaged; it is unpacked again"] if is_reported else [])
    assert list((tmp_path / "cache" / "members").iterdir()) == [folder]       # the damaged file is deleted


def test_first_of_two_concurrent_unpackings_is_used(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    stamps: list[int] = []

    def slowly(*args: Any) -> list[Path]:
        with monkeypatch.context() as patch:
            patch.setattr(members, "extract", archives.extract)
            (path,) = members.unpack_members(archive, "0" * 64, ["README"], tmp_path / "cache")
            stamps.append(path.stat().st_ino)
        return archives.extract(*args)

    monkeypatch.setattr(members, "extract", slowly)
    (path,) = members.unpack_members(archive, "0" * 64, ["README"], tmp_path / "cache")
    assert path.read_text() == "README" and [path.stat().st_ino] == stamps
    assert len(list((tmp_path / "cache" / "members").iterdir())) == 1


def test_interrupted_unpacking_leaves_no_file(archive: Path, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: Any) -> None:
        raise Stopped(2)

    monkeypatch.setattr(members, "write_json", stopped)
    with pytest.raises(Stopped):
        members.unpack_members(archive, "0" * 64, ["README"], tmp_path / "cache")
    assert list((tmp_path / "cache" / "members").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"file/members/.*: cannot be written: Not a directory"):
        members.unpack_members(archive, "0" * 64, ["README"], tmp_path / "file")
