"""Damaged and hostile files of every kind, a few of each, through the command line; tests/slow/trust has the
campaign.

The tests would detect a reader that trusts its input, one that crashes, and one that runs pickles.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from helpers.hostile import CANARY, Kind, Outcome, campaign
from helpers.hostile_files import KINDS, printed, vectors_of
from helpers.pickles import PICKLES, sung

from embtrain.common.errors import DataError
from embtrain.data.storage import checksummed
from embtrain.data.vectors import files as vector_files
from embtrain.experiment.run import scoring

pytestmark = pytest.mark.long

SLOW = ("run-files", "joined", "checkpoint", "resumed")  # a second each: they train or draw figures
BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.name not in SLOW])
def test_few_files_of_each_kind(tmp_path: Path, name: str) -> None:
    tally = campaign(BY_NAME[name], range(3), tmp_path)
    assert tally.faults == [] and tally.inputs == 3


def test_two_damaged_checkpoints(tmp_path: Path) -> None:
    assert campaign(BY_NAME["checkpoint"], range(2), tmp_path).faults == []


SEALED = Kind("vectors-safetensors", lambda place: vectors_of(place, "safetensors"), "v", (("neighbours", "v", "bal"),),
              flips=1, answer=printed)


def test_equal_arrays_give_equal_files() -> None:
    arrays = {"b": np.arange(6.0).reshape(2, 3).T, "a": np.zeros((0, 2), np.float32)}
    written = {b"".join(checksummed.file_chunks(arrays)) for _ in range(20)}
    digest = checksummed._digest(arrays)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    assert written == {safetensors.numpy.save(whole, {checksummed.CHECKSUM_KEY: digest})}


def test_large_array_is_written_in_pieces_and_padded_one_is_not_copied() -> None:
    padded = np.arange(3_000_000, dtype=np.float32).reshape(-1, 16)[:, :10]
    pieces = list(checksummed.file_chunks({"vectors": padded}))
    assert max(map(len, pieces)) <= checksummed.CHUNK and len(pieces) > 2
    assert np.array_equal(safetensors.numpy.load(b"".join(pieces))["vectors"], padded)


def test_every_flipped_bit_of_our_vectors_is_detected(tmp_path: Path) -> None:
    assert campaign(SEALED, range(30), tmp_path).faults == []


def test_reader_that_checks_no_hash_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksummed, "check", lambda *_: None)
    assert any("took another file" in fault for fault in campaign(SEALED, range(15), tmp_path).faults)


def test_reader_that_crashes_or_names_nothing_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BY_NAME["vectors-word2vec"]
    monkeypatch.setattr(vector_files, "declared_sizes", lambda line: tuple(map(int, line.split())))
    assert any("ended in 70" in fault for fault in campaign(text, range(30), tmp_path).faults)
    monkeypatch.undo()

    def nameless(row: np.ndarray, values: list[bytes], *_: str) -> None:
        try:
            row[:] = list(map(float, values))
        except ValueError as error:
            raise DataError("something is wrong") from error
    monkeypatch.setattr(vector_files, "_fill_row", nameless)
    assert any("names no file" in fault for fault in campaign(text, range(30), tmp_path).faults)


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.name not in SLOW])
def test_no_pickle_is_run(tmp_path: Path, name: str) -> None:
    """One kind of pickle in the place of each file; tests/slow/trust has more."""
    assert sung(BY_NAME[name], tmp_path, 1) > 0


def test_canary_runs_if_a_pickle_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in PICKLES.items():
        if name.startswith("protocol"):
            pickle.loads(data)
            (tmp_path / CANARY).unlink()
    (tmp_path / "x.npy").write_bytes(PICKLES["npy"])
    np.load("x.npy", allow_pickle=True)
    assert (tmp_path / CANARY).exists()


@pytest.mark.parametrize(("end", "fault"), [
    (Outcome(70, "", "embtrain: error: a fault\n", 0, 0), "ended in 70"),
    (Outcome(3, "", "", 0, 0), "refuses in 0 lines"),
    (Outcome(3, "", "embtrain: error: x.txt: a\nembtrain: error: x.txt: b\n", 0, 0), "refuses in 2 lines"),
    (Outcome(3, "", "Traceback (most recent call last)\nembtrain: error: x.txt: a\n", 0, 0), "traceback"),
    (Outcome(3, "", "embtrain: error: it is damaged\n", 0, 0), "names no file"),
    (Outcome(0, "", "/x/y.py:3: UserWarning: hm\n", 0, 0), "says"),
])
def test_rules_of_a_command_on_bad_input(end: Outcome, fault: str) -> None:
    assert any(fault in result for result in end.faults(["x.txt"]))


def test_items_with_changed_bits_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "items.safetensors"
    scoring.write_items(path, {"a/score": np.arange(9.0), "a/cluster": np.arange(9)})
    whole = path.read_bytes()
    for bit in range(8 * (len(whole) - 160), 8 * len(whole), 37):
        path.write_bytes(bytes(b ^ (1 << bit % 8) if i == bit // 8 else b for i, b in enumerate(whole)))
        with pytest.raises(DataError, match=r"items\.safetensors: "):
            scoring.read_items(path)
