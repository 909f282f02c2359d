"""`embtrain data encode` as a process: kills, Ctrl-C, dead workers, and memory on a text of 200 MB."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.writers import content_hash

from embtrain.data.text.shards.estimate import SEQUENCE_BYTES, WORD_BYTES

pytestmark = pytest.mark.slow

N_FILES, N_BLOCKS, N_LINES = 8, 27, 11_000   # lines of each block


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight files of 26 MB, with a million distinct words."""
    place, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    names = np.array([f"w{''.join('abcdefghij'[int(digit)] for digit in str(i))}" for i in range(1_000_000)])
    for k in range(N_FILES):
        with open(place / f"part{k}.txt", "w") as file:
            for _ in range(N_BLOCKS):
                words = names[rng.zipf(1.2, 220_000) % len(names)]
                file.write("\n".join(" ".join(row) for row in np.array_split(words, N_LINES)) + "\n")
    return place


def start(text: Path, cache: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "embtrain", "data", "encode", str(text), *options],
                            env={**os.environ, "EMBTRAIN_CACHE": str(cache)}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)


def encode(text: Path, cache: Path, *options: str) -> tuple[int, str, str]:
    with start(text, cache, *options) as process:
        out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def content(cache: Path) -> dict[str, str]:
    """Return hashes of the files of the cached text, the manifest without the times and inodes of the files."""
    return {path.name: content_hash(path) for path in cache.glob("text/*-read-*/*") if path.is_file()}


def wait_for_shards(process: subprocess.Popen[str], cache: Path, n: int) -> list[Path]:
    """Return the manifests of finished shards as soon as there are n."""
    while len(found := sorted(cache.glob("text/*/shards/*/manifest.json"))) < n:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return found


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


@pytest.fixture(scope="module")
def expected(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    assert encode(text, cache, "--workers", "1")[0] == 0
    return content(cache)


@pytest.mark.skipif(sys.platform != "linux", reason="linux: reads the children of a process from /proc")
@pytest.mark.parametrize("after", [1, 2])
def test_killed_command_goes_on_with_its_finished_shards(text: Path, tmp_path: Path, expected: dict[str, str],
                                                         after: int) -> None:
    with start(text, tmp_path, "--workers", "2") as process:
        finished = wait_for_shards(process, tmp_path, after)
        workers = children(process.pid)
        process.kill()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
              for pid in workers):
        assert time.monotonic() < deadline, "a worker outlives its command"
        time.sleep(0.1)
    times = {path: path.stat().st_mtime_ns for path in finished}
    with start(text, tmp_path, "--workers", "2") as process:
        wait_for_shards(process, tmp_path, after + 1)
        assert {path: path.stat().st_mtime_ns for path in finished} == times
        assert process.wait(900) == 0
    assert content(tmp_path) == expected


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_command_keeps_its_finished_shards(text: Path, tmp_path: Path, expected: dict[str, str],
                                                   number: signal.Signals, code: int) -> None:
    with start(text, tmp_path, "--workers", "2") as process:
        n = len(wait_for_shards(process, tmp_path, 2))
        os.killpg(process.pid, number)                       # as Ctrl-C does
        out, err = process.communicate(timeout=60)
    assert process.returncode == code and out == "" and err.splitlines()[-1] == f"embtrain: stopped by signal {number}"
    assert len(list(tmp_path.glob("text/*/shards/*/manifest.json"))) >= n
    assert encode(text, tmp_path, "--workers", "2")[0] == 0 and content(tmp_path) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="linux: reads the children of a process from /proc")
def test_killed_worker_is_one_line(text: Path, tmp_path: Path) -> None:
    with start(text, tmp_path, "--workers", "2") as process:
        wait_for_shards(process, tmp_path, 1)
        victims = [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(victims[0], signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 4 and "Traceback" not in err
    assert "a worker process was ended by signal 9, perhaps because memory is short; lower text.workers" in err


@pytest.mark.skipif(sys.platform != "linux", reason="linux: reads the memory of a process from /proc")
def test_memory_does_not_grow_with_the_text(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only with its words and lines, as the page says; the ids of all files alone would take 190 MB."""
    peaks, seconds, types = [], [], []
    for n in (1, N_FILES):
        part = tmp_path / f"{n}"
        part.mkdir()
        for path in sorted(text.iterdir())[:n]:
            shutil.copy(path, part)
        begun = time.monotonic()
        with start(part, tmp_path / f"cache{n}", "--workers", "2", "--json") as process:
            peaks.append(peak_memory(process))
            types.append(json.loads(process.communicate()[0])["types"])
        seconds.append(time.monotonic() - begun)
        assert process.returncode == 0
    size = sum(path.stat().st_size for path in text.iterdir())
    with capsys.disabled():
        print(f"\n{size / 1e6:.0f} MB with 2 workers in {seconds[1]:.0f} s; the largest process takes "
              f"{peaks[1] / 1e6:.0f} MB, and {peaks[0] / 1e6:.0f} MB for an eighth of the text")
    n_lines = (N_FILES - 1) * N_BLOCKS * N_LINES
    assert peaks[1] - peaks[0] < WORD_BYTES * (types[1] - types[0]) + SEQUENCE_BYTES * n_lines + 60e6


def peak_memory(process: subprocess.Popen[str]) -> int:
    """Return the largest anonymous memory of the command or one of its workers, in bytes."""
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):                   # a worker may end in between
            for pid in (process.pid, *children(process.pid)):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("RssAnon:"):
                        peak = max(peak, int(line.split()[1]) << 10)
        time.sleep(0.02)
    return peak
