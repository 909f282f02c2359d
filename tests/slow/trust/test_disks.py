"""Writers killed or failed at every call that touches the disk: the state before is intact, and they end well.

export, and fetch, which remembers hashes and takes archives apart. A death leaves files that are whole and a command
that then comes to the same bytes; a failure is one line and exit code 4 as well.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from disks import DEATH, DIED, FAILS, failures, run, torn
from hostile_files import text_of, vectors_of

from embtrain.data import fetch
from embtrain.data.recipes import CorpusFile, CorpusRecipe
from embtrain.files import sha256

pytestmark = pytest.mark.slow

STEP = {DEATH: 1, FAILS["full"]: 3, FAILS["broken"]: 3, FAILS["forbidden"]: 7, FAILS["read-only"]: 11}


def vectors(place: Path) -> None:
    (place / "one").mkdir()
    vectors_of(place, "safetensors")
    shutil.move(place / "v", place / "one" / "vectors.safetensors")


def archive(place: Path) -> None:
    text_of(place)
    (place / "mirror").mkdir()
    with tarfile.open(place / "mirror" / "x.tar.gz", "w:gz") as tar:
        tar.add(place / "text", "text")


# what is there before, the command, and what it writes
WRITERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "export": (vectors, ("export", "one", "--out", "out/x.txt"), "out/x.txt"),
    "fetch": (archive, ("data", "fetch", "mine", "--trust"), "cache/trusted.json"),
}


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of one archive below the folder `mirror`, whose hash nobody has said."""
    mine = CorpusRecipe(name="mine", description="x", licence="x", reader="text", tokenizer="words", files=(
        CorpusFile(mirror="x.tar.gz", sha256="unverified", members=("text/*",)),))
    monkeypatch.setattr(fetch, "find_recipe", lambda name: mine)
    monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", "mirror")


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize("wrong", FAILS.values(), ids=FAILS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_at_every_call(tmp_path: Path, name: str, wrong: int, capsys: pytest.CaptureFixture[str]) -> None:
    make, argv, result = WRITERS[name]
    torch.set_num_threads(1)
    origin, whole = tmp_path / "origin", tmp_path / "whole"
    origin.mkdir()
    make(origin)
    before = {path: sha256(path) for path in origin.rglob("*") if path.is_file()}
    shutil.copytree(origin, whole)
    assert run(whole, argv).code == 0 and (whole / result).is_file()
    n = 0
    for calls, place, end in failures(origin, argv, wrong, STEP[wrong]):
        where, n = f"{name} {calls}", n + 1
        if wrong == DEATH:
            assert end.code == DIED, (where, end)
        else:
            assert end.code == 4 and end.said.count("embtrain: error: ") == 1, (where, end)
            assert "Traceback" not in end.said, (where, end)
        assert torn(place) == [], where
        for path, digest in before.items():
            now = place / path.relative_to(origin)
            assert now == place / result or sha256(now) == digest, (where, now)
        assert run(place, argv).code == 0 and (place / result).read_bytes() == (whole / result).read_bytes(), where
    with capsys.disabled():
        print(f"\n{name}: {n} calls failed as {os.strerror(wrong) if wrong else 'death'}, nothing lost")
    assert n >= (5 if wrong == DEATH else 1)
