"""Cached arrays: a folder is verified when it is opened, and rebuilt if it is damaged or of another layout.

A cached text is ids.npy sequence.npy document.npy counts.npy part.npy pairs.npy words.txt facts.json. manifest.json is
written last and lists the bytes and the hash of each file. A folder whose manifest, sizes or hashes do not agree is not
trusted. A file that still has the times and the inode of the manifest is not hashed again. One over 128 MiB is hashed
over 1,024 evenly spaced blocks, so that opening a copied cache stays quick. Named arrays are stored in
arrays.safetensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

from embtrain.common.errors import ResourceError
from embtrain.common.files import read_json, write_atomically, write_json
from embtrain.data.storage import npy
from embtrain.data.storage.folders import retry_if_deleted
from embtrain.data.storage.known_files import is_settled, times_and_inode

LAYOUT = 5                  # incremented if the meaning of the files changes: older folders are then rebuilt
MAX_FULL_HASH = 128 << 20   # bytes; a larger file is hashed in blocks
MAX_MANIFEST = 1 << 20      # bytes
BLOCKS, BLOCK = 1024, 1 << 16
CHUNK = 1 << 18             # bytes that are hashed at once
_SMALL = ("sequence", "document", "counts", "part", "pairs")  # arrays of a text in addition to its ids
_WORDS, _FACTS, _MANIFEST, _ARRAYS = "words.txt", "facts.json", "manifest.json", "arrays.safetensors"
_log = logging.getLogger("embtrain")


@dataclass(frozen=True)
class Encoded:
    """Text as ids."""

    ids: np.ndarray         # (N,) int32
    sequence: np.ndarray    # (S+1,) int64  offsets that a window never crosses
    document: np.ndarray    # (D+1,) int64  offsets, each one of a sequence
    counts: np.ndarray      # (V,) int64
    words: list[str]        # V
    facts: dict[str, Any]   # counts of the reader, and the findings of a shard
    warnings: tuple[str, ...] = ()  # logged each time the text is read
    part: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))  # (D,) 0 train, 1 valid, 2 test, by the
                                                                           # files; empty: all are for training
    pairs: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int32))  # (J, 3) pass, first and second word
                                                                                   # of each pair joined into a phrase

    def fits(self) -> bool:
        """Return whether dtypes, offsets and counts are consistent with the ids."""
        n, v = len(self.ids), len(self.words)
        return (self.ids.dtype == np.int32 and len(self.counts) == v
                and self.pairs.dtype == np.int32 and self.pairs.shape[1:] == (3,)
                and self.part.dtype == np.int8 and len(self.part) in (0, len(self.document) - 1)
                and all(x.dtype == np.int64 and x.ndim == 1 and len(x) > 0 and x[0] == 0 and x[-1] == n
                        and bool((np.diff(x) >= 0).all()) for x in (self.sequence, self.document)))


class AppendableArray:
    """An int32 array of unknown length, in memory or in an .npy file whose header is corrected at the end."""

    def __init__(self, file: IO[bytes] | None = None):
        self.n = 0
        self._file, self._parts = file, list[np.ndarray]()
        if file is not None:
            self._header(file)

    def append(self, ids: np.ndarray) -> None:
        """Append ids, (n,) int32."""
        self.n += len(ids)
        if self._file is None:
            self._parts.append(ids)
        else:
            self._file.write(np.ascontiguousarray(ids, dtype=np.int32).data)

    def clear(self) -> None:
        """Remove everything that was appended."""
        self.n = 0
        self._parts.clear()
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._header(self._file)

    def finish(self) -> None:
        """Write the final length into the header of the file, and all of it to the operating system."""
        if self._file is not None:
            self._file.seek(0)
            self._header(self._file)
            self._file.flush()

    def array(self) -> np.ndarray:
        """Return the appended ids, (n,) int32; empty for a file, which is memory-mapped later."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int32)

    def _header(self, file: IO[bytes]) -> None:
        # numpy reserves space for the first axis to grow, so both headers have the same length.
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (self.n,)})


def cache_location(cache: Path | None, name: str, step: str, settings: dict[str, Any]) -> tuple[str, Path | None]:
    """Return the key of some settings of a corpus, and its folder; None without a cache."""
    key, label = settings_key(settings), re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40]
    return key, None if cache is None else cache / f"{label}-{step}-{key[:20]}"


def settings_key(settings: dict[str, Any]) -> str:
    """Return the sha256 of some settings, as 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def load_or_build(folder: Path | None, key: str, build: Callable[[AppendableArray], Encoded]) -> Encoded:
    """Load an encoded text from the cache, or build it and write it there.

    folder: None keeps the text in memory. key: of the settings; a folder with another key is rebuilt. build: appends
    the ids to the array it receives and returns the rest. Raises ResourceError if the folder cannot be used.
    """
    if folder is None:
        return build(AppendableArray())
    if (folder / _MANIFEST).exists():
        encoded = _open(folder, key)
        if encoded is not None:
            return encoded
        _discard(folder)
    return retry_if_deleted(lambda: _build_folder(folder, key, build), folder)


def _build_folder(folder: Path, key: str, build: Callable[[AppendableArray], Encoded]) -> Encoded:
    with ThreadPoolExecutor(1) as pool:
        with write_atomically(folder / "ids.npy") as file:
            out = AppendableArray(file)
            encoded = build(out)
            out.finish()
            ids_digest = pool.submit(_digest_handle, os.dup(file.fileno()))  # while the disk writes
        for name in _SMALL:
            with write_atomically(folder / f"{name}.npy") as file:
                np.lib.format.write_array(file, getattr(encoded, name))
        with write_atomically(folder / _WORDS) as file:
            file.write("\n".join(encoded.words).encode("utf-8", "surrogatepass"))
        write_json(folder / _FACTS, {**encoded.facts, "warnings": encoded.warnings})
        _write_manifest(folder, key, _file_names(), {"ids.npy": ids_digest.result()})
    reread = _open(folder, key, hashed=False)  # hashed a moment ago
    if reread is None:
        (folder / _MANIFEST).stat()                          # FileNotFoundError if it was deleted in the meantime
        raise ResourceError(f"{folder}: the written data cannot be read back; check the disk")
    return reread


def load_or_build_arrays(folder: Path | None, key: str, build: Callable[[], dict[str, np.ndarray]]
                         ) -> dict[str, np.ndarray]:
    """Load named arrays from the cache, or build them and write them there. As `load_or_build`."""
    if folder is None:
        return build()
    if (folder / _MANIFEST).exists():
        if _is_intact(folder, key, [_ARRAYS], hashed=True):
            with contextlib.suppress(OSError, safetensors.SafetensorError):  # it may have been deleted since
                return safetensors.numpy.load_file(folder / _ARRAYS)
        _discard(folder)
    arrays = build()

    def write() -> None:
        with write_atomically(folder / _ARRAYS) as file:
            file.write(safetensors.numpy.save(arrays))
        _write_manifest(folder, key, [_ARRAYS], {})

    retry_if_deleted(write, folder)
    return arrays


def pack_lines(lines: Iterable[str]) -> np.ndarray:
    """Join lines, each ended by a line feed, into an array of UTF-8: (bytes,) uint8."""
    return np.frombuffer("".join(f"{line}\n" for line in lines).encode(), np.uint8)


def unpack_lines(array: np.ndarray) -> list[str]:
    """Return the lines of an array from `pack_lines`."""
    return array.tobytes().decode().split("\n")[:-1]


def _discard(folder: Path) -> None:
    """Delete the manifest, so that the folder is built again, and log why."""
    _log.warning("%s: %s", folder, _describe_fault(folder))
    with contextlib.suppress(FileNotFoundError):
        (folder / _MANIFEST).unlink()


def _describe_fault(folder: Path) -> str:
    """Return why a folder cannot be used: another layout, or else damage."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # errors of a damaged manifest
        layout = int(read_json(folder / _MANIFEST, MAX_MANIFEST)["layout"])
        if layout != LAYOUT:
            return f"written by {'an older' if layout < LAYOUT else 'a newer'} version of embtrain; it is built again"
    return "the cached data are damaged; they are rebuilt"


def _write_manifest(folder: Path, key: str, names: list[str], known: Mapping[str, str]) -> None:
    """Write the manifest of a folder last; `known`: digests of some of its files."""
    digests = {}
    for name in names:
        size, state = (folder / name).stat().st_size, times_and_inode(folder / name)
        digests[name] = {"bytes": size, "sha256": known.get(name) or _digest(folder / name)}
        if is_settled(state):
            digests[name]["state"] = state
    write_json(folder / _MANIFEST, {"layout": LAYOUT, "key": key, "files": digests})


def _is_intact(folder: Path, key: str, names: list[str], hashed: bool) -> bool:
    """Return whether the files have the sizes, and if `hashed` the hashes, of the manifest."""
    try:
        manifest: Any = read_json(folder / _MANIFEST, MAX_MANIFEST)
        expected = manifest["files"]
        return (manifest["layout"] == LAYOUT and manifest["key"] == key
                and all((folder / name).stat().st_size == expected[name]["bytes"] for name in names)
                and not (hashed and any(_has_changed(folder / name, expected[name]) for name in names)))
    except (OSError, ValueError, KeyError, TypeError):  # errors of a damaged manifest
        return False


def _has_changed(path: Path, expected: dict[str, Any]) -> bool:
    """Return whether a file differs from its entry in the manifest; it is hashed only if its state differs."""
    return times_and_inode(path) != expected.get("state") and _digest(path) != expected["sha256"]


def _file_names() -> list[str]:
    return ["ids.npy", *(f"{name}.npy" for name in _SMALL), _WORDS, _FACTS]


def _open(folder: Path, key: str, hashed: bool = True) -> Encoded | None:
    """Return the folder's content; None if anything about it is wrong."""
    if not _is_intact(folder, key, _file_names(), hashed):
        return None
    try:
        ids = npy.load(folder / "ids.npy", "r")
        sequence, document, counts, part, pairs = (npy.load(folder / f"{name}.npy") for name in _SMALL)
        facts = read_json(folder / _FACTS)
        warnings = tuple(str(line) for line in facts.pop("warnings", ()))
        lines = (folder / _WORDS).read_bytes().decode("utf-8", "surrogatepass")
        words = lines.split("\n") if lines else []            # a shard may have no words
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # errors of a damaged array
        return None
    encoded = Encoded(ids, sequence, document, counts, words, facts, warnings, part, pairs)
    return encoded if encoded.fits() else None


def _digest(path: Path) -> str:
    return _digest_handle(os.open(path, os.O_RDONLY))


def _digest_handle(handle: int) -> str:
    """Return the hash of an open file, without moving its position, and close the handle."""
    try:
        size, digest = os.fstat(handle).st_size, hashlib.sha256()
        length, offsets = (CHUNK, range(0, size, CHUNK)) if size <= MAX_FULL_HASH else (BLOCK, _block_offsets(size))
        for offset in offsets:
            digest.update(os.pread(handle, length, offset))
        return digest.hexdigest()
    finally:
        os.close(handle)


def _block_offsets(size: int) -> Iterable[int]:
    return (i * (size - BLOCK) // (BLOCKS - 1) for i in range(BLOCKS))
