"""Progress of long work: one style, from every place that can take seconds; nothing with --quiet."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import embtrain
from embtrain.cli import options
from embtrain.common import progress
from embtrain.common.types import Query
from embtrain.data.catalogue import fetch
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_raw_lines
from embtrain.data.vectors import search_index, vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout
from embtrain.negatives.sampling.kmeans import kmeans

N = 2500
VECTORS = Vectors([f"w{i}" for i in range(N)], np.ones((N, 2), np.float32))


def read_lines(folder: Path) -> None:
    (folder / "lines.txt").write_text("a line\n" * N)
    for source in sources([folder / "lines.txt"], lambda _: True):
        assert len(list(read_raw_lines(source))) == N


def write_and_read(format: vector_files.Format) -> Callable[[Path], None]:
    def action(folder: Path) -> None:
        vector_files.write(folder / "vectors", VECTORS, format)
        assert vector_files.read(folder / "vectors").words == VECTORS.words
    return action


def rank(_: Path) -> None:
    query = Query(torch.zeros(N, 2), torch.arange(N), torch.zeros(N, dtype=torch.int64), torch.zeros(N))
    heldout.ranks(lambda rows: torch.zeros(len(rows), 3), query)


def verify(folder: Path) -> None:
    (folder / "data.gz").write_bytes(bytes(fetch.PIECE + 1))
    fetch._sha256(folder / "data.gz")


def cluster(_: Path) -> None:
    kmeans(torch.rand(N, 2, generator=torch.Generator().manual_seed(1)), 60, seed=1)


def index(format: search_index.Format) -> Callable[[Path], None]:
    def action(folder: Path) -> None:
        if importlib.util.find_spec(format) is None:
            pytest.skip(f"index: {format} is not installed; pip install 'embtrain[{format}]'")
        table = np.random.default_rng(1).normal(size=(N, 2)).astype(np.float32)
        search_index.write(folder, Vectors(VECTORS.words, table), format, "float32", "hnsw")
    return action


@pytest.mark.parametrize(("action", "line"), [
    (cluster, r"k-means, first means: 30 of 59 (51%) means, "),
    (cluster, r"k-means: 5,000 of "),
    (index("faiss"), r"building the index: 2,048 of 2,500 (82%) vectors, "),
    (index("usearch"), r"building the index: 2,048 of 2,500 (82%) vectors, "),
    (index("faiss"), r"measuring neighbours: 896 of 1,000 (90%) words, "),
    (read_lines, r"reading lines.txt: 1,024 lines, "),
    (write_and_read("word2vec"), r"writing vectors: 1,024 of 2,500 (41%) vectors, "),
    (write_and_read("word2vec"), r"reading vectors: 2,048 of 2,500 (82%) vectors, "),
    (write_and_read("word2vec-binary"), r"writing vectors: 2,048 of 2,500 (82%) vectors, "),
    (write_and_read("word2vec-binary"), r"reading vectors: 1,024 of 2,500 (41%) vectors, "),
    (rank, r"evaluating: 2,500 of 2,500 (100%) queries, "),
    (verify, r"verifying data.gz: 16,777,216 of 16,777,217 (100%) B, "),
])
def test_it_is_shown_with_rate_and_remaining_time_and_not_if_quiet(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        action: Callable[[Path], None], line: str) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(search_index, "ADDED_AT_ONCE", 1024)
    monkeypatch.setattr(progress, "quiet", False)
    action(tmp_path)
    lines = [shown for shown in capsys.readouterr().err.splitlines() if shown.startswith(line)]
    assert len(lines) == 1 and "/s" in lines[0] and (" s left" in lines[0] or " of " not in line)
    monkeypatch.setattr(progress, "quiet", True)
    action(tmp_path)
    assert capsys.readouterr().err == ""


def test_silence_ends_with_its_block_and_is_that_of_one_thread(monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "quiet", False)
    with embtrain.silence():
        progress.print_line("inside")
        with embtrain.silence(active=False):
            progress.print_line("inside of two")
        other = threading.Thread(target=progress.print_line, args=("other thread",))
        other.start()
        other.join()
    with embtrain.silence(active=False):
        progress.print_line("not active")
    with contextlib.suppress(ValueError), embtrain.silence():
        raise ValueError
    progress.print_line("after")
    assert capsys.readouterr().err.splitlines() == ["other thread", "not active", "after"]


def test_the_first_line_comes_after_three_seconds_and_the_next_after_ten(monkeypatch: pytest.MonkeyPatch,
                                                                         capsys: pytest.CaptureFixture[str]) -> None:
    now, times = 0.0, list[float]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "quiet", False)
    counted = progress.Progress("work", 100, "steps")
    for now in np.arange(0.5, 25, 0.5).tolist():
        counted.add()
        if capsys.readouterr().err:
            times.append(now)
    assert times == [3.0, 13.0, 23.0]


@pytest.mark.parametrize("times", [1, 2])
def test_a_quiet_command_does_not_silence_the_next_test(times: int) -> None:
    assert not progress.is_quiet()
    options.configure_output(quiet=True)
