"""Checkpoints: which are kept, which are skipped, and that each is checked before it is read."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same
from safetensors.torch import save_file

from embtrain.common import files
from embtrain.common.errors import DataError, ResourceError
from embtrain.train.state import checkpoint
from embtrain.train.state.checkpoint import latest, load, save


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def pair(step: int, again: bool = False) -> list[str]:
    return [f"step-{step:010d}{'-again' if again else ''}.safetensors", f"step-{step:010d}.json"]


# -- which are kept -----------------------------------------------------------------------------------------------


def test_only_newest_checkpoints_are_kept_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".other.part").write_text("mine")
    for step in (1, 2, 30, 4_000_000_000_0):
        save(tmp_path, step, {"step": step}, keep=2)
    assert names(tmp_path) == sorted([".other.part", "notes.txt", *pair(30), *pair(40_000_000_000)])
    assert load(tmp_path) == {"step": 40_000_000_000}
    assert load(tmp_path / pair(30)[1]) == {"step": 30}


def test_stray_files_are_deleted(tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": torch.ones(3)}, keep=2)
    parts = [f".{name}.abc.part" for name in pair(2)]
    for name in (*parts, pair(2)[0], pair(1, True)[0]):
        (tmp_path / name).write_bytes(b"half")
    save(tmp_path, 3, {}, keep=2)
    assert names(tmp_path) == sorted(pair(1) + pair(3))


def test_step_saved_again_replaces_the_old_one(tmp_path: Path) -> None:
    for i, again in enumerate([False, True, False]):
        save(tmp_path, 5, {"x": torch.full((3,), i)}, keep=1)
        assert names(tmp_path) == sorted(pair(5, again))
        assert load(tmp_path)["x"][0] == i


def test_resume_drops_later_checkpoints(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, {"v": step}, keep=3)
    save(tmp_path, 2, {"v": "new"}, keep=3)
    assert load(tmp_path) == {"v": "new"}
    assert names(tmp_path) == sorted(pair(1) + pair(2, True))


def test_damaged_checkpoint_does_not_displace_a_good_one(tmp_path: Path) -> None:
    save(tmp_path, 1, {"v": 1}, keep=2)
    damaged = save(tmp_path, 2, {"v": 2, "x": torch.ones(9)}, keep=2)
    os.truncate(damaged.with_suffix(".safetensors"), 20)
    save(tmp_path, 3, {"v": 3}, keep=2)
    assert names(tmp_path) == sorted(pair(1) + pair(3))


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="file"):
        save(tmp_path / "file" / "checkpoints", 0, {}, keep=1)


# -- damage -------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    text = bytearray(path.read_bytes())
    text[at] ^= 1
    path.write_bytes(text)


DAMAGE = {
    "a bit of the tensors": lambda path: flip(path.with_suffix(".safetensors"), -1),
    "a bit of their header": lambda path: flip(path.with_suffix(".safetensors"), 30),
    "tensors cut": lambda path: os.truncate(path.with_suffix(".safetensors"), 50),
    "tensors longer": lambda path: os.truncate(path.with_suffix(".safetensors"), 10_000),
    "tensors gone": lambda path: path.with_suffix(".safetensors").unlink(),
    "manifest cut": lambda path: os.truncate(path, 60),
    "manifest empty": lambda path: os.truncate(path, 0),
    "manifest zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a digit of a scalar": lambda path: path.write_text(path.read_text().replace("0.25", "0.26")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_checkpoint_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable) -> None:
    good = save(tmp_path, 1, {"lr": 0.5}, keep=2)
    path = save(tmp_path, 2, {"lr": 0.25, "x": torch.arange(9)}, keep=2)
    damage(path)
    assert latest(tmp_path) == good and load(tmp_path) == {"lr": 0.5}
    lines = {record.getMessage() for record in caplog.records}
    assert len(lines) == 1 and path.stem in lines.pop()
    with pytest.raises(DataError, match=path.stem) as error:
        load(path)
    assert "\n" not in str(error.value)


def test_the_newest_checkpoint_is_read_while_training_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                  caplog: pytest.LogCaptureFixture) -> None:
    """The process that trains keeps one checkpoint: it deletes the one that is being read."""
    save(tmp_path, 1, {"lr": 1.0}, 1)
    verified, steps = checkpoint._verified, iter([2, 3])

    def slowly(path: Path) -> Any:
        for step in steps:
            if step == 2:
                save(tmp_path, step, {"lr": float(step)}, 1)
                break                                     # before the manifest is read
            manifest = verified(path)
            save(tmp_path, step, {"lr": float(step)}, 1)  # after it was read, before the tensors are
            return manifest
        return verified(path)

    monkeypatch.setattr(checkpoint, "_verified", slowly)
    assert load(tmp_path) == {"lr": 3.0} and not caplog.records


def test_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="no complete checkpoint") as error:
            latest(folder)
        assert str(folder) in str(error.value)
    DAMAGE["manifest cut"](save(tmp_path, 2, {}, keep=2))
    with pytest.raises(DataError, match="no complete checkpoint"):
        load(tmp_path)


def forge(folder: Path, state: Any, stored: dict[str, torch.Tensor], **changed: Any) -> Path:
    """Write a manifest whose seal and hash fit, with any content."""
    path = folder / "step-0000000001.json"
    tensors = path.with_suffix(".safetensors")
    save_file(stored, tensors)
    body = {"format": 1, "step": 1, "file": tensors.name, "bytes": tensors.stat().st_size,
            "sha256": files.sha256(tensors), "state": state} | changed
    path.write_text(json.dumps(body | {"seal": checkpoint._seal(body)}))
    return path


ONE = {"0": torch.ones(8, dtype=torch.uint8)}
USE = {"dict": [["x", {"tensor": 0}]]}


def test_forged_manifest_loads(tmp_path: Path) -> None:
    assert same(load(forge(tmp_path, USE, ONE)), {"x": ONE["0"]})
    as_bytes = {"dict": [["x", {"tensor": 0, "dtype": "complex64", "shape": [1]}]]}
    assert load(forge(tmp_path, as_bytes, ONE))["x"].dtype == torch.complex64


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize("node", [
    None, 3, [], {"tuple": []}, {}, {"dict": 3}, {"dict": [["x"]]}, {"dict": [["x", 1, 2]]}, {"dict": [[1.5, 1]]},
    {"dict": [[True, 1]]}, {"dict": [[None, 1]]}, {"dict": [[["a"], 1]]}, {"dict": [], "more": 1},
    {"dict": [["x", {"tensor": 1}]]}, {"dict": [["x", {"tensor": "0"}]]}, {"dict": [["x", {"tensor": 0.0}]]},
    {"dict": [["x", {"tensor": 0}], ["y", {"tensor": 0}]]}, {"dict": []}, {"dict": [["x", {"pickle": "c"}]]},
    {"dict": [["x", {"float": "7ff"}]]}, {"dict": [["x", {"float": "zz" * 8}]]},
    {"dict": [["x", {"tensor": 0, "dtype": "complex64"}]]},
    {"dict": [["x", {"tensor": 0, "dtype": "load", "shape": []}]]},
    {"dict": [["x", {"tensor": 0, "dtype": "complex64", "shape": [2]}]]},
    {"dict": [["x", {"tensor": 0, "dtype": "complex64", "shape": [-1]}]]},
    {"dict": [["x", {"tensor": 0, "dtype": "complex64", "shape": [1 << 40, 1 << 40]}]]},
    {"dict": [["x", {"tensor": 0}], ["y", nested(60)]]},
], ids=lambda node: json.dumps(node)[:60])
def test_hostile_tree_is_rejected_in_one_line(tmp_path: Path, node: Any) -> None:
    path = forge(tmp_path, node, ONE)
    with pytest.raises(DataError, match="step-0000000001") as error:
        load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changed", [
    {"format": 2}, {"format": "1\n"}, {"step": 2}, {"step": "1"}, {"step": True}, {"bytes": "9"}, {"bytes": -1},
    {"bytes": 1 << 60}, {"sha256": None}, {"sha256": "0" * 64}, {"file": "/etc/passwd"}, {"file": "../x.safetensors"},
    {"file": None}, {"file": ["a"]},
], ids=str)
def test_hostile_manifest_is_rejected_in_one_line(tmp_path: Path, changed: dict) -> None:
    with pytest.raises(DataError, match="step-0000000001") as error:
        load(forge(tmp_path, USE, ONE, **changed))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", [
    b"[" * 100_000, b'{"seal": 1}', b"[1]", b"null", b"\xff\xfe", b'{"a": ' + b"9" * 5000 + b"}", b"NaN",
    b'{"a": NaN}', b'{"seal": null, "a": 1e999}',
], ids=lambda text: repr(text[:20]))
def test_text_that_is_not_a_manifest_is_rejected(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "step-0000000001.json"
    path.write_bytes(text)
    with pytest.raises(DataError, match="damaged"):
        load(path)


def test_files_that_are_not_tensor_files_are_rejected(tmp_path: Path) -> None:
    """The hash fits, so only the checks of the header protect the reader."""
    for content in (b"", b"\xff" * 8, struct.pack("<Q", 1 << 50), struct.pack("<Q", 2) + b"{]",
                    *(struct.pack("<Q", len(h)) + h for h in (
                        b'{"0":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}',
                        b'{"0":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}} ' + b" "))):
        path = forge(tmp_path, USE, ONE)
        tensors = path.with_suffix(".safetensors")
        tensors.write_bytes(content + b"\0" * 4)
        body = json.loads(path.read_text())
        body |= {"bytes": tensors.stat().st_size, "sha256": files.sha256(tensors)}
        del body["seal"]
        path.write_text(json.dumps(body | {"seal": checkpoint._seal(body)}))
        with pytest.raises(DataError, match="step-0000000001"):
            load(path)


def test_sizes_are_checked_before_memory_is_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, 1, {"x": torch.ones(3)}, keep=1)
    monkeypatch.setattr(os, "sysconf", lambda _: 5)
    with pytest.raises(ResourceError, match="memory"):
        load(path)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read"))
    os.truncate(path, checkpoint.MAX_MANIFEST + 1)
    with pytest.raises(DataError, match="too many"):
        load(path)


def test_state_that_cannot_be_loaded_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_MANIFEST", 300)
    save(tmp_path, 1, {}, keep=1)
    with pytest.raises(ValueError, match="300"):
        save(tmp_path, 2, {"x": "y" * 300}, keep=1)
    assert load(tmp_path) == {}


def test_pipe_or_folder_with_the_name_of_a_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / pair(2)[1])
    (tmp_path / pair(3)[1]).mkdir()
    save(tmp_path, 1, {"v": 1}, keep=1)
    assert load(tmp_path) == {"v": 1}
    for step in (2, 3):
        with pytest.raises(DataError):
            load(tmp_path / pair(step)[1])
