"""Checkpoints: the tensors of a nested state in one safetensors file, everything else in a JSON manifest.

    step-0000001234.safetensors   the tensors, named 0, 1, 2, …
    step-0000001234.json          {format, step, file, bytes, sha256, state, seal}

`state` is the tree without its tensors, encoded by train/state/serialize.py. The tensor file is written first and the
manifest last, each atomically. A checkpoint exists if its manifest exists, `seal` (the sha256 of the rest of the
manifest) and `sha256` match, and the tensor file has `bytes` bytes. A manifest is trusted only after these checks, and
it can refer to no file except its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embtrain.common import files, machine
from embtrain.common.errors import DataError, ResourceError, os_reason
from embtrain.train.state import serialize

FORMAT = 1
MAX_MANIFEST = 16 << 20  # bytes
TRIES = 10               # to read the newest checkpoint of a run in training
LARGE = ("model", "optimizers")  # parts of a state whose values are copied into existing tensors when it is loaded
_MANIFEST = re.compile(r"step-([0-9]{10,})\.json")
_TENSORS = re.compile(r"step-([0-9]{10,})(-again)?\.safetensors")
_PART = re.compile(r"\.step-.*\.part")

_log = logging.getLogger(__name__)


class StateMismatch(DataError):
    """A complete checkpoint whose state does not fit the model, source, loss or optimizer that loads it."""


@dataclass(frozen=True)
class _Manifest:
    """A manifest whose seal matches."""

    step: int
    file: str
    bytes: int
    sha256: str
    state: Any


def save(folder: Path, step: int, state: dict, keep: int) -> Path:
    """Write a checkpoint, delete all but the newest `keep`, and return the manifest's path.

    Leaves of `state` are tensors, int, float, bool, str, None, and lists, tuples and dicts of them. A tensor is
    restored on the CPU, without gradient and with its own memory. Checkpoints of a later step are deleted as well: they
    belong to a run that was abandoned when training went back, and `latest` must return what was saved last. Raises
    ResourceError if the folder cannot be written, TypeError and ValueError for values that cannot be stored.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step {step} must be at least 0 and keep {keep} at least 1")
    folder = Path(folder)
    node, tensors = serialize.encode(state)
    path = folder / f"step-{step:010d}.json"
    try:
        _sweep(folder, {name for manifest in _manifests(folder) for name in (manifest.name, *_tensor_files(manifest))})
        target = _unused_tensor_file(path)
        size, digest = serialize.write(target, tensors)
        body = {"format": FORMAT, "step": step, "file": target.name, "bytes": size, "sha256": digest, "state": node}
        text = json.dumps(body | {"seal": _seal(body)}, allow_nan=False)
        if len(text) > MAX_MANIFEST:
            raise ValueError(f"the state without its tensors takes {len(text):,} bytes, more than {MAX_MANIFEST:,}")
        files.write_text(path, text)
        _sweep(folder, _newest_names(folder, step, keep))
    except OSError as error:
        raise ResourceError(f"{folder}: a checkpoint cannot be saved: {os_reason(error)}") from error
    return path


def latest(folder: Path) -> Path:
    """The manifest of the newest complete checkpoint; damaged ones are skipped with a warning. DataError if none."""
    return _latest(Path(folder))[0]


def load(where: Path, in_memory: bool = True) -> dict:
    """Load the state of one checkpoint: a manifest's path, or the newest complete one of a folder. Raises DataError.

    The newest is found again if a process that trains the run has saved meanwhile and deleted the one that was read.
    in_memory: False leaves the tensors of the model and the optimizers in the file, to be copied from there. The file
    must not change meanwhile.
    """
    where = Path(where)
    with _reading(where):
        is_file = where.is_file()
    if is_file:
        return _read(where, _verified(where), in_memory)
    for _ in range(TRIES - 1):
        names = _names(where)
        try:
            return _read(*_latest(where), in_memory)
        except DataError:
            if _names(where) == names:
                raise
    return _read(*_latest(where), in_memory)


def peek(folder: Path, key: str) -> Any:
    """One value without tensors of the newest checkpoint's state; None if there is none. Reads the manifest alone."""
    for path in _manifests(folder):
        with contextlib.suppress(DataError):
            return serialize.entry(_parse(path).state, key)
    return None


# -- listing --------------------------------------------------------------------------------------------------------


def _latest(folder: Path) -> tuple[Path, _Manifest]:
    for path in _manifests(folder):
        try:
            return path, _verified(path)
        except DataError as error:
            if path.exists():  # else the process that trains the run has deleted it
                _log.warning("%s; trying the previous checkpoint", error)
    raise DataError(f"{folder}: there is no complete checkpoint; expected a pair step-0000000001.json and .safetensors")


def _manifests(folder: Path) -> list[Path]:
    """Paths of all manifests, newest first, not yet verified."""
    by_step = [(int(match[1]), name) for name in _names(folder) if (match := _MANIFEST.fullmatch(name))]
    return [folder / name for step, name in sorted(by_step, reverse=True) if name == f"step-{step:010d}.json"]


def _names(folder: Path) -> set[str]:
    """The files of a folder; none if it does not exist."""
    with _reading(folder):
        return set(os.listdir(folder)) if folder.is_dir() else set()


def _tensor_files(manifest: Path) -> tuple[str, str]:
    """The two names that the tensors of one step may have.

    Saving a step again writes the other name, so that the existing checkpoint stays complete until the new manifest
    replaces its own.
    """
    return f"{manifest.stem}.safetensors", f"{manifest.stem}-again.safetensors"


def _unused_tensor_file(manifest: Path) -> Path:
    """The name for the tensors of a new save: the one that the existing manifest does not use."""
    first, second = _tensor_files(manifest)
    try:
        taken = _parse(manifest).file == first
    except DataError:  # no manifest, or a damaged one
        taken = False
    return manifest.with_name(second if taken else first)


def _newest_names(folder: Path, step: int, keep: int) -> set[str]:
    """The files of the newest `keep` checkpoints up to `step`.

    Only those that look complete count: a truncated checkpoint must not push out a good one. Hashes are not recomputed.
    """
    newest: list[tuple[str, str]] = []
    for path in _manifests(folder):
        try:
            manifest = _parse(path)
            if manifest.step <= step and len(newest) < keep and _size(path.with_name(manifest.file)) == manifest.bytes:
                newest.append((path.name, manifest.file))
        except DataError:
            continue
    return {name for pair in newest for name in pair}


def _sweep(folder: Path, keep: set[str]) -> None:
    """Delete checkpoint files, and leftovers of an interrupted save, that are not in `keep`."""
    if not folder.is_dir():
        return
    owned = [n for n in os.listdir(folder) if _MANIFEST.fullmatch(n) or _TENSORS.fullmatch(n) or _PART.fullmatch(n)]
    # Manifests first: a kill in between leaves tensors without a manifest, never a manifest without tensors.
    for name in sorted(owned, key=lambda n: not n.endswith(".json")):
        if name not in keep and not (folder / name).is_dir():
            (folder / name).unlink(missing_ok=True)


# -- reading --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn system errors into ResourceError (permission) or DataError."""
    try:
        yield
    except PermissionError as error:
        raise ResourceError(f"{path}: no permission to read it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error


def _size(path: Path) -> int:
    """The size of a regular file; DataError if there is none."""
    with _reading(path):
        if not path.is_file():  # reading a pipe would block forever
            raise DataError(f"{path}: does not exist; its checkpoint is incomplete")
        return path.stat().st_size


def _parse(path: Path) -> _Manifest:
    """Read a manifest and check its seal and fields. Raises DataError."""
    match = _MANIFEST.fullmatch(path.name)
    if not match:
        raise DataError(f"{path}: not the manifest of a checkpoint, which is named like step-0000000001.json")
    if (size := _size(path)) > MAX_MANIFEST:
        raise DataError(f"{path}: {size:,} bytes are too many for a manifest; at most {MAX_MANIFEST:,} are read")
    with _reading(path):
        text = path.read_bytes()
    try:
        body = json.loads(text)
        seal = body.pop("seal", None) if isinstance(body, dict) else None
        if seal is None or seal != _seal(body):
            raise DataError(f"{path}: damaged: its checksum does not match its text")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged: not the JSON of a manifest") from error
    if body.get("format") != FORMAT:
        raise DataError(f"{path}: format {str(body.get('format'))[:20]!r} is unknown; this version supports {FORMAT}")
    manifest = _Manifest(body.get("step"), body.get("file"), body.get("bytes"), body.get("sha256"),
                         body.get("state"))
    if type(manifest.step) is not int or type(manifest.bytes) is not int or not isinstance(manifest.sha256, str):
        raise DataError(f"{path}: step and bytes must be whole numbers and sha256 text")
    if manifest.step != int(match[1]) or manifest.file not in _tensor_files(path):
        raise DataError(f"{path}: it describes another checkpoint: its step and file must match its name")
    return manifest


def _verified(path: Path) -> _Manifest:
    """The manifest of a checkpoint whose files are complete and undamaged. Raises DataError."""
    manifest = _parse(path)
    tensors = path.with_name(manifest.file)
    if (size := _size(tensors)) != manifest.bytes:
        raise DataError(f"{tensors}: damaged: {size:,} bytes, but its manifest declares {manifest.bytes:,}")
    with _reading(tensors):
        digest = files.sha256(tensors)
    if digest != manifest.sha256:
        raise DataError(f"{tensors}: damaged: its sha256 is not the one in its manifest")
    return manifest


def _read(path: Path, manifest: _Manifest, in_memory: bool) -> dict:
    """Load the state of a verified manifest. ResourceError if it exceeds the machine's memory."""
    tensors = path.with_name(manifest.file)
    if in_memory and manifest.bytes > (memory := machine.total()):
        raise ResourceError(f"{tensors}: {manifest.bytes:,} bytes do not fit into this machine's {memory:,} of memory")
    with _reading(tensors):
        return serialize.decode(manifest.state, tensors, () if in_memory else LARGE)


def _seal(body: dict) -> str:
    """The sha256 of a manifest without its seal."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
