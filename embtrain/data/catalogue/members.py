"""Unpack members of an archive once into the cache, and verify them on each call.

    cache/members/KEY/files/NAME       KEY: hash of the archive's sha256 and of the names of the chosen members
    cache/members/KEY/manifest.json    bytes and sha256 of each file

The folder appears complete, with its manifest. If it does not match the manifest, it is unpacked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from embtrain.common.errors import ResourceError, os_reason
from embtrain.common.files import sha256, sync_folder, temporary_folder, write_json
from embtrain.data.storage.archives import extract

_MANIFEST, _FILES = "manifest.json", "files"
_MAX_MANIFEST = 64 << 20   # bytes of a manifest; the maximum of 100,000 members takes a tenth of it
_log = logging.getLogger("embtrain")


def unpack_members(archive: Path, digest: str, chosen: Sequence[str], cache: Path) -> list[Path]:
    """Return the sorted paths of the chosen members. digest: sha256 of the archive, verified.

    chosen: names or patterns. Raises as `archives.extract`, and ResourceError if the cache cannot be written.
    """
    key = hashlib.sha256("\0".join((digest, *chosen)).encode()).hexdigest()[:32]
    folder = cache / "members" / key
    manifest = _read_manifest(folder)
    if manifest is None or (damaged := _first_damaged(folder, manifest)) is not None:
        if manifest is not None:
            _log.warning("%s: was damaged; it is unpacked again", damaged)
        manifest = _unpack(archive, chosen, folder)
    return sorted(folder / _FILES / name for name in manifest)


Manifest = dict[str, tuple[int, str]]  # name -> bytes, sha256


def _read_manifest(folder: Path) -> Manifest | None:
    """Return the content of the manifest; None if it is missing or malformed."""
    try:
        with open(folder / _MANIFEST, encoding="utf-8") as file:
            tree = json.loads(file.read(_MAX_MANIFEST))
        return {str(name): (int(size), str(digest)) for name, (size, digest) in tree.items()} or None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _first_damaged(folder: Path, manifest: Manifest) -> Path | None:
    """Return the first file that differs from the manifest; None if all agree."""
    for name, (size, digest) in manifest.items():
        path = folder / _FILES / name
        try:
            if path.stat().st_size != size or sha256(path) != digest:
                return path
        except OSError:
            return path
    return None


def _unpack(archive: Path, chosen: Sequence[str], folder: Path) -> Manifest:
    """Unpack to a temporary folder, then replace the current one. If two processes do so, the first one wins."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{folder.name}.", folder.parent) as apart:
            staging = apart / "whole"
            staging.mkdir()
            paths = extract(archive, staging / _FILES, chosen)
            manifest = {path.relative_to(staging / _FILES).as_posix(): (path.stat().st_size, sha256(path))
                        for path in paths}
            write_json(staging / _MANIFEST, manifest)
            current = _read_manifest(folder)
            if current is None or _first_damaged(folder, current) is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(folder, apart / "damaged")
                try:
                    os.rename(staging, folder)
                except OSError:
                    if _read_manifest(folder) != manifest:
                        raise
            sync_folder(folder.parent)
            return manifest
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error
