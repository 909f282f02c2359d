"""A disk that is really full: writers on a small tmpfs with less space than they need.

The previous state is intact, the error is one line, the exit code is 4, and with enough space they give the same
result. Mounting needs root or a user namespace: unshare -rm make test-slow AREA=trust.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers.disks import run
from helpers.promises import tell
from helpers.serving import FAR, Page, serving
from helpers.writers import WRITERS, Writer, owes, prepared

from embtrain.common.files import sha256

pytestmark = pytest.mark.slow

FULL = 28             # ENOSPC
SHARES = (0.0, 0.3, 0.6, 0.9)
PAGE = 4096
NAMES = ("fit", "export", "compare", "fetch, of an archive", "fetch, by download", "the cache of a text")
RECORDED: list[str] = []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mounts = shutil.which("mount")
    if mounts is None or subprocess.run([mounts, "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)],
                                        capture_output=True, check=False).returncode:
        pytest.skip("disk: no small disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def room(place: Path) -> int:
    return shutil.disk_usage(place).free


def fill(place: Path, leave: int) -> Path:
    """Fill the disk except for the given whole pages; return the file that uses the rest."""
    ballast = place / ".ballast"
    with ballast.open("wb") as file:
        file.write(bytes(room(place) - leave // PAGE * PAGE))
    return ballast


def afresh(origin: Path, place: Path) -> None:
    """Prepare the disk as the working folder; output of the command is stored outside."""
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(origin, place, dirs_exist_ok=True)


def need(writer: Writer, origin: Path, place: Path) -> tuple[int, dict[str, str]]:
    """Return the bytes that a writer needs on a disk with enough space, and its result."""
    afresh(origin, place)
    begun = room(place)
    end = run(place, writer.argv)
    assert end.code == 0, end
    return begun - room(place), writer.found(place)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_the_previous_state(small: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    writer, origin = WRITERS[name], tmp_path / "origin"
    origin.mkdir()
    with serving({"/far.txt": Page(FAR)}) as address:
        prepared(monkeypatch, address)
        writer.make(origin)
        before = {path.relative_to(origin).as_posix(): sha256(path) for path in origin.rglob("*") if path.is_file()}
        taken, whole = need(writer, origin, small)
        full = 0
        for share in SHARES:
            afresh(origin, small)
            ballast = fill(small, int(share * taken))
            end = run(small, writer.argv)
            ballast.unlink()
            if end.code or not writer.found(small):
                owes(writer, f"{name}, {share:.0%} of {taken:,} bytes", small, end, FULL, before, whole)
                full += 1
    RECORDED.append(f"- {name}: {full} of {len(SHARES)} times too little room; nothing lost.")
    if len(RECORDED) == len(NAMES):
        tell("small disks", "\n".join(RECORDED), capsys)
    assert full >= 2
