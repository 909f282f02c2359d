"""Members of an archive, unpacked once into the cache, and hashed again on each call.

    cache/members/KEY/files/NAME       KEY: of the archive's sha256 and of which members are chosen
    cache/members/KEY/manifest.json    of each file its bytes and sha256

The folder appears whole, manifest included. What does not agree with it was damaged, and is unpacked anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from embtrain.common.errors import ResourceError
from embtrain.common.files import sha256, sync_folder, temporary_folder, write_json
from embtrain.data.storage.archives import extract

_MANIFEST, _FILES = "manifest.json", "files"
_LONGEST = 64 << 20   # bytes of a manifest; 100,000 members, the most that are unpacked, take a tenth
_log = logging.getLogger("embtrain")


def members(archive: Path, digest: str, chosen: Sequence[str], cache: Path) -> list[Path]:
    """The paths of the chosen members, sorted. digest: the archive's sha256, just checked.

    Raises as `archives.extract` does, and ResourceError where the cache cannot be written.
    """
    key = hashlib.sha256("\0".join((digest, *chosen)).encode()).hexdigest()[:32]
    folder = cache / "members" / key
    known = _listed(folder)
    if known is None or (damaged := _unlike(folder, known)) is not None:
        if known is not None:
            _log.warning("%s: was damaged, and is unpacked again", damaged)
        known = _unpacked(archive, chosen, folder)
    return sorted(folder / _FILES / name for name in known)


Known = dict[str, tuple[int, str]]  # name -> bytes, sha256


def _listed(folder: Path) -> Known | None:
    """What the manifest says; None where there is none that could be believed."""
    try:
        with open(folder / _MANIFEST, encoding="utf-8") as file:
            tree = json.loads(file.read(_LONGEST))
        return {str(name): (int(size), str(digest)) for name, (size, digest) in tree.items()} or None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _unlike(folder: Path, known: Known) -> Path | None:
    """The first file that is not as it was unpacked."""
    for name, (size, digest) in known.items():
        path = folder / _FILES / name
        try:
            if path.stat().st_size != size or sha256(path) != digest:
                return path
        except OSError:
            return path
    return None


def _unpacked(archive: Path, chosen: Sequence[str], folder: Path) -> Known:
    """Unpack to where nobody looks, then put it in the place of what is there. Of two that do so at once, the first is
    taken."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{folder.name}.", folder.parent) as apart:
            whole = apart / "whole"
            whole.mkdir()
            paths = extract(archive, whole / _FILES, chosen)
            known = {path.relative_to(whole / _FILES).as_posix(): (path.stat().st_size, sha256(path))
                     for path in paths}
            write_json(whole / _MANIFEST, known)
            there = _listed(folder)
            if there is None or _unlike(folder, there) is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(folder, apart / "damaged")
                try:
                    os.rename(whole, folder)
                except OSError:
                    if _listed(folder) != known:
                        raise
            sync_folder(folder.parent)
            return known
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {error.strerror or error}") from error
