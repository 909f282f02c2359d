"""A process that dies while it saves, at any call and at any moment, loses no checkpoint.

The test detects three ways to save that would lose one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same

from embtrain.common import files
from embtrain.common.errors import DataError
from embtrain.train.state import checkpoint, serialize
from embtrain.train.state.checkpoint import load, save

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
DIED = 77


def state_of(version: int) -> dict:
    return {"table": torch.full((64, 32), float(version)), "version": version, "nested": {0: [torch.tensor(version)]}}


def faults(folder: Path, allowed: set[int]) -> list[str]:
    """Return what a death did to a folder: nothing, or 'lost', 'torn' (a damaged file under its final name), 'wrong'.
    """
    actual: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = actual.append  # type: ignore[method-assign]
    checkpoint._log.addHandler(handler)
    try:
        state = load(folder)
    except DataError:
        return ["lost"]
    finally:
        checkpoint._log.removeHandler(handler)
    version = state["version"]
    good = version in allowed and same(state, state_of(version))
    return ["torn"] * bool(actual) + ["wrong"] * (not good)


class Mortal:
    """Counts down at every call that writes to the disk, and dies at zero; a write may stop half-way."""

    def __init__(self, calls: int):
        self.left = calls
        for name in ("open", "fsync", "chmod", "replace", "unlink", "fdopen"):
            setattr(os, name, self.mortal(getattr(os, name)))
        opened = os.fdopen
        os.fdopen = lambda *a, **k: MortalFile(opened(*a, **k), self)  # type: ignore[assignment]

    def tick(self) -> None:
        if self.left == 0:
            os._exit(DIED)
        self.left -= 1

    def mortal(self, call: Callable) -> Callable:
        def counted(*args: Any, **named: Any) -> Any:
            self.tick()
            return call(*args, **named)
        return counted


class MortalFile:
    def __init__(self, file: Any, life: Mortal):
        self.file, self.life = file, life
        self.flush, self.fileno = file.flush, file.fileno

    def __enter__(self) -> MortalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, part: Any) -> None:
        self.file.write(part[:len(part) // 2])
        self.file.flush()
        self.life.tick()
        self.file.write(part[len(part) // 2:])


def in_child(body: Callable[[], None]) -> int:
    child = FORK.Process(target=body)
    child.start()
    child.join(20)
    assert child.exitcode is not None
    code = child.exitcode
    child.close()
    return code


def die_saving(calls: int, folder: Path, step: int, state: dict, keep: int) -> None:
    Mortal(calls)
    save(folder, step, state, keep)


# checkpoints saved before, the step saved while dying, how many are kept
SCENES = {"the next": ([1], 2, 1), "the same step": ([1], 1, 1), "the same step twice": ([1, 1], 1, 1),
          "after going back": ([1, 2, 3], 2, 2)}


def deaths(tmp_path: Path, before: list[int], step: int, keep: int) -> Iterator[tuple[int, list[str]]]:
    """Die at the first call, the second, … until a run survives; yield what each death did."""
    origin = tmp_path / "origin"
    for version, s in enumerate(before):
        save(origin, s, state_of(version), keep=9)
    new = len(before)

    for calls in itertools.count():
        folder = tmp_path / f"died-{calls}"
        shutil.copytree(origin, folder)
        code = in_child(partial(die_saving, calls, folder, step, state_of(new), keep))
        assert code in (0, DIED)
        yield calls, faults(folder, {new} if code == 0 else {new - 1, new})
        # The next save deletes the remains.
        save(folder, 9, state_of(new), keep=1)
        assert sorted(os.listdir(folder)) == ["step-0000000009.json", "step-0000000009.safetensors"]
        assert faults(folder, {new}) == []
        if code == 0:
            return


@pytest.mark.parametrize(("before", "step", "keep"), SCENES.values(), ids=SCENES)
def test_death_at_any_call_loses_no_checkpoint(tmp_path: Path, before: list[int], step: int, keep: int) -> None:
    result = list(deaths(tmp_path, before, step, keep))
    # two files: created, written, synced, renamed, their folder synced; then the old ones deleted
    assert len(result) >= 15
    assert [f for f in result if f[1]] == []


def test_death_at_first_checkpoint_leaves_it_whole_or_absent(tmp_path: Path) -> None:
    seen = set()
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        if in_child(partial(die_saving, calls, folder, 1, state_of(0), 1)) == 0:
            break
        seen.add(tuple(faults(folder, {0})))
    assert seen == {("lost",), ()}


@contextlib.contextmanager
def in_place(path: Path, mode: str = "wb") -> Iterator[Any]:
    """Write a file the wrong way: under its final name from the first byte."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), mode) as file:
        yield file


def write_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "write_atomically", in_place)
    monkeypatch.setattr(serialize, "write_atomically", in_place)


def one_name_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_unused_tensor_file", lambda path: path.with_suffix(".safetensors"))


def old_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    write = serialize.write
    monkeypatch.setattr(serialize, "write", lambda path, x: (checkpoint._sweep(path.parent, set()), write(path, x))[1])


@pytest.mark.parametrize(("broken", "scene", "kind"), [
    (write_in_place, "the next", "torn"), (write_in_place, "the same step", "lost"),
    (one_name_a_step, "the same step", "lost"), (old_ones_first, "the next", "lost"),
])
def test_broken_ways_to_save_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable, scene: str,
                                          kind: str) -> None:
    broken(monkeypatch)
    assert any(kind in result for _, result in deaths(tmp_path, *SCENES[scene]))


def test_every_byte_is_on_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order after a power cut: tensors synced, named, the name synced; then the manifest; then old files deleted."""
    save(tmp_path, 1, {"x": torch.ones(2)}, keep=1)
    done: list[str] = []

    def note(name: str, call: Callable) -> None:
        def noted_call(*args: Any) -> Any:
            done.append(f"{name} {Path(args[-1]).suffix}" if name != "fsync" else name)
            return call(*args)
        monkeypatch.setattr(os, name, noted_call)

    for name in ("fsync", "replace", "unlink"):
        note(name, getattr(os, name))
    save(tmp_path, 2, {"x": torch.ones(2)}, keep=1)
    assert done == ["fsync", "replace .safetensors", "fsync", "fsync", "replace .json", "fsync",
                    "unlink .json", "unlink .safetensors"]


def test_twenty_kills_at_random_moments_lose_no_checkpoint(tmp_path: Path) -> None:
    """SIGKILL while checkpoints are saved in a loop: a checkpoint whose save returned is never lost, none is torn."""
    moments = random.Random(20)
    returned = FORK.RawValue("q", -1)  # the newest version whose save has returned
    begun = FORK.RawValue("q", 0)      # the newest version whose save has begun
    save(tmp_path, 0, state_of(0), keep=2)
    returned.value = 0
    parts = 0

    def saving() -> None:
        os.fsync = lambda descriptor: time.sleep(0.002)   # a disk takes as long; the tests do not wait for one
        version = load(tmp_path)["version"]
        while True:
            version += 1
            begun.value = version
            save(tmp_path, version // 2, state_of(version), keep=2)  # each step twice
            returned.value = version

    for _ in range(20):
        child, at = FORK.Process(target=saving), returned.value
        child.start()
        deadline = time.monotonic() + 10
        while returned.value == at and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        child.kill()
        child.join()
        assert child.exitcode == -9
        child.close()
        assert returned.value > at
        parts += any(name.endswith(".part") for name in os.listdir(tmp_path))
        assert faults(tmp_path, {returned.value, begun.value}) == []
        returned.value = load(tmp_path)["version"]
    assert parts > 0  # some died in the middle of a file
