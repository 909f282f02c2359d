"""Writers that are killed or get an error at every disk call: the previous state is intact and a rerun succeeds.

After a kill all files are complete and the repeated command gives the same bytes; an error is one line and exit
code 4. A disk that is really full: test_small_disks.py.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from helpers.disks import DEATH, FAILS, failures, run
from helpers.hostile_files import run as run_of
from helpers.promises import aloud, tell
from helpers.serving import FAR, Page, serving
from helpers.writers import WRITERS, nothing, owes, prepared, translator, warmed

from embtrain.common.files import sha256

pytestmark = pytest.mark.slow

STEP = {DEATH: 1, FAILS["full"]: 5, FAILS["broken"]: 5, FAILS["forbidden"]: 7, FAILS["read-only"]: 17}
FAILED: defaultdict[str, Counter[int]] = defaultdict(Counter)
MOST = 1000  # promised number of kills


@pytest.fixture(scope="module", autouse=True)
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    torch.set_num_threads(1)
    with serving({"/far.txt": Page(FAR)}) as address, pytest.MonkeyPatch.context() as patch:
        prepared(patch, address)
        warmed(tmp_path_factory.mktemp("warm"))
        yield


@pytest.mark.parametrize("wrong", FAILS.values(), ids=FAILS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_at_every_call(tmp_path: Path, name: str, wrong: int, capsys: pytest.CaptureFixture[str]) -> None:
    writer = WRITERS[name]
    origin, different = tmp_path / "origin", tmp_path / "whole"
    origin.mkdir()
    writer.make(origin)
    before = {path.relative_to(origin).as_posix(): sha256(path) for path in origin.rglob("*") if path.is_file()}
    shutil.copytree(origin, different)
    end = run(different, writer.argv)
    assert end.code == 0, end
    whole, n = writer.found(different), 0
    assert whole
    for calls, place, end in failures(origin, writer.argv, wrong, STEP[wrong] * writer.every):
        owes(writer, f"{name} {calls}", place, end, wrong, before, whole)
        n += 1
    aloud(f"{name}: {n} calls failed as {os.strerror(wrong) if wrong else 'death'}, nothing lost", capsys)
    FAILED[name][wrong] = n
    assert n >= (5 if wrong == DEATH else 1)


READERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "evaluate": (run_of, ("evaluate", "run", "--on", "wordsim353", "--quiet")),
    "neighbours": (run_of, ("neighbours", "run", "bal")), "list": (nothing, ("list",)),
    "data list": (nothing, ("data", "list")),
    "translate": (translator, ("translate", "run", "--quiet")),
}


@pytest.mark.parametrize("name", READERS)
def test_readers_write_nothing(tmp_path: Path, name: str) -> None:
    """The command survives although its first write would kill it."""
    make, argv = READERS[name]
    (tmp_path / "here").mkdir()
    make(tmp_path / "here")
    end = run(tmp_path / "here", argv, (0, DEATH))
    assert (end.code, end.failed) == (0, False), end


def test_all_together(capsys: pytest.CaptureFixture[str]) -> None:
    if FAILED.keys() != WRITERS.keys():
        return  # only some were selected
    kills = sum(result[DEATH] for result in FAILED.values())
    rows = [f"| {name} | {' | '.join(str(result[wrong]) for wrong in FAILS.values())} |"
            for name, result in FAILED.items()]
    others = sum(result.total() for result in FAILED.values()) - kills
    tell("writers", "\n".join([
        f"{kills:,} kills and {others:,} failures of {len(FAILED)} writers; nothing was lost in any.", "",
        f"| writer | {' | '.join(FAILS)} |", "|---|" + "---|" * len(FAILS), *rows]), capsys)
    assert kills >= MOST
