"""Some rows of a run's table are read without the table, and verified with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from embtrain.common.errors import DataError
from embtrain.data.storage import checksummed
from embtrain.data.vectors import vectors
from embtrain.data.vectors.tensors import read_rows, read_words
from embtrain.data.vectors.vectors import Vectors

N, DIM = 103, 5


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that is read in 26 blocks of four rows."""
    monkeypatch.setattr(checksummed, "CHUNK", 8 * DIM * 4)
    table = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
    vectors.write(tmp_path / "v", Vectors([f"w{i}é" for i in range(N)], table), "safetensors")
    return tmp_path / "v"


@pytest.mark.parametrize("rows", [[0], [N - 1, 0, 50, 3, 4, 2], list(range(N)), list(range(N - 1, -1, -1)), []])
def test_rows_equal_those_of_the_table(path: Path, rows: list[int]) -> None:
    whole = vectors.read(path)
    assert read_words(path) == whole.words
    assert np.array_equal(read_rows(path, np.array(rows, np.int64)), whole.table[rows])


def test_a_block_is_a_few_rows(path: Path) -> None:
    assert [len(block) for block in checksummed.blocks(path, "vectors")] == [4] * (N // 4) + [N % 4]
    assert len(list(checksummed.blocks(path, "words"))) > 1


def test_a_flipped_bit_in_another_row_or_word_is_found(path: Path) -> None:
    data = path.read_bytes()
    for position in (len(data) - 1, data.rindex(b"}") + 20):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1:])
        with pytest.raises(DataError, match="v: damaged: the sha256 of its data differs"):
            read_rows(path, np.array([50]))
    path.write_bytes(data[:-20])
    for read in (lambda: read_rows(path, np.array([50])), lambda: read_words(path)):
        with pytest.raises(DataError, match="v: is not a complete safetensors file"):
            read()


def test_faults_of_a_table_without_a_hash(tmp_path: Path) -> None:
    table = np.zeros((3, 2), np.float32)
    table[1, 1] = np.inf
    safetensors.numpy.save_file({"vectors": table, "words": np.frombuffer(b"a\nb\nc\n\xff", np.uint8).copy()},
                                tmp_path / "v")
    assert np.array_equal(read_rows(tmp_path / "v", np.array([2, 0])), table[[2, 0]])
    with pytest.raises(DataError, match="v: row 2: contains NaN or infinity"):
        read_rows(tmp_path / "v", np.array([0, 1]))
    with pytest.raises(DataError, match="v: 3 vectors, fewer than words"):
        read_rows(tmp_path / "v", np.array([3]))
    with pytest.raises(DataError, match="v: its words are not UTF-8"):
        read_words(tmp_path / "v")
