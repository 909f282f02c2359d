"""A gigabyte on one line, read in a separate process: its memory stays within 300 MB of that for a small text."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import sys
from pathlib import Path

import pytest
from helpers.promises import tell

from embtrain import cli

pytestmark = pytest.mark.slow

FORK = multiprocessing.get_context("fork")
SIZE = 1_000_000_000
MOST = 300e6
WORDS = b"internationalisierungsfragen unausgesprochenerweise gegenseitigkeitsvertrag selbstverstaendlichkeit "
FEW = WORDS * 2000


def words(path: Path, size: int) -> None:
    """Write the same words repeatedly."""
    block = WORDS * 10_000
    with path.open("wb") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)


def hole(path: Path, size: int) -> None:
    """Write some words and then only NULs, which need no disk space: not a text, which is reported before its end."""
    path.write_bytes(FEW)
    os.truncate(path, size)


def unbroken(path: Path, size: int) -> None:
    """Write some words and then a single endless one."""
    with path.open("wb") as file:
        file.write(FEW)
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))


def peak(place: Path, path: Path, expected: int = 0) -> int:
    """Return the peak memory in bytes of a dry run over the text; it must end with the expected exit code."""
    queue = FORK.RawValue("q", 0)

    def body() -> None:
        os.environ["EMBTRAIN_CACHE"] = str(place / "cache")
        sys.argv = ["embtrain", "fit", "--dry-run", "--quiet", "--threads", "1", "--negatives", "sgns", "--corpus",
                    str(path), "--set", "model.dim=4", "--set", "train.engine=autograd", "--set", "train.chunk=1024"]
        # on other systems the peak of this process may be that of its parent, in both runs
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        with open(os.devnull, "w") as sys.stdout:
            code = cli.run()
        queue.value = resident()
        os._exit(code)

    child = FORK.Process(target=body)
    child.start()
    child.join(600)
    assert child.exitcode == expected
    return int(queue.value)


def resident() -> int:
    """Return the peak memory of this process in bytes."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


MAKERS = (words, hole, unbroken)
RECORDED: list[str] = []


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_gigabyte_on_one_line(tmp_path: Path, make, capsys: pytest.CaptureFixture[str]) -> None:
    little, large = tmp_path / "little.txt", tmp_path / "large.txt"
    little.write_bytes(FEW)
    make(large, SIZE)
    try:
        with large.open("rb") as file:
            assert large.stat().st_size >= SIZE - (1 << 20) and b"\n" not in file.read(1 << 20)
        before, after = peak(tmp_path, little), peak(tmp_path, large, 3 if make is hole else 0)
        cache = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.npy"))
    finally:
        large.unlink()
    RECORDED.append(f"- {make.__name__}: {(after - before) / 1e6:.0f} MB above the same over {len(FEW) / 1e6:.1f} MB; "
                f"{cache / 1e6:.0f} MB in the cache.")
    if len(RECORDED) == len(MAKERS):
        tell("large text", "\n".join(RECORDED), capsys)
    assert after - before < MOST
