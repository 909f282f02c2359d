"""Extract zip and tar archives within limits: no file outside the folder, no full disk.

Rejected, whether or not the entry was requested: absolute names and '..', links, devices, names that occur twice,
encrypted entries, more entries or more bytes than allowed, and bombs (MAX_RATIO times the archive's own size).
The folder appears complete or not at all.
"""

from __future__ import annotations

import bz2
import contextlib
import fnmatch
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.files import sync_folder, temporary_folder
from embtrain.data.storage.containers import DAMAGED, StrictTarInfo

MAX_BYTES = 4 << 30
MAX_MEMBERS = 100_000
MAX_RATIO = 200             # text is packed 3 to 10 times, a bomb about 1,000 times
MIN_BOMB_BYTES = 16 << 20   # bytes; less than this is never taken for a bomb
MAX_READ = 4 << 20          # bytes; tarfile reads a header's extension at once, and one of 1 GB must not allocate 1 GB
_CHUNK = 1 << 20

Entry = tuple[str, int, IO[bytes]]  # name, declared bytes, stream


def extract(
    archive: Path,
    target: Path,
    members: Sequence[str] | None = None,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> list[Path]:
    """Extract a zip or tar archive to the new folder `target`; return the paths of its files, sorted.

    members: names or patterns, as 'brown/c[a-r]*', each of which must match a file; None: all files.
    max_bytes, max_members: limits on the extracted bytes and on the number of entries.
    Raises DataError if the archive is damaged, hostile or lacks a member, ResourceError if `target` exists or cannot be
    written.
    """
    archive, target = Path(archive), Path(target)
    if target.exists():
        raise ResourceError(f"{target}: exists already; choose another folder")
    allowed = min(max_bytes, max(MIN_BOMB_BYTES, MAX_RATIO * _archive_size(archive)))
    patterns = list(members) if members is not None else ["*"]
    matched: set[str] = set()
    names: list[str] = []
    total = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(f".{target.name}.", target.parent) as temporary:
            staging = temporary / "whole"
            staging.mkdir()
            for name, size, stream in _entries(archive, allowed, max_members):
                matching = [p for p in patterns if fnmatch.fnmatchcase(name, p)]
                if not matching:
                    continue
                matched.update(matching)
                total += _write(staging / name, stream, size, allowed - total, f"{archive}: member {name!r}")
                names.append(name)
            missing = [p for p in patterns if p not in matched]
            if missing:
                raise DataError(f"{archive}: has no member {missing[0]!r}")
            os.rename(staging, target)
            sync_folder(target.parent)
    except DAMAGED as error:
        raise DataError(f"{archive}: damaged archive: {error or type(error).__name__}") from error
    except OSError as error:
        raise ResourceError(f"{archive}: cannot be extracted to {target}: {error.strerror or error}") from error
    return sorted(target / name for name in names)


def _archive_size(archive: Path) -> int:
    try:
        return archive.stat().st_size
    except OSError as error:
        raise DataError(f"{archive}: cannot be read: {error.strerror}") from error


def _write(path: Path, stream: IO[bytes], declared: int, allowed: int, label: str) -> int:
    """Copy one member to `path`; raise DataError if its length differs from the declared one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(path, "xb") as file:
        while chunk := _read(stream, label):
            written += len(chunk)
            if written > allowed:
                raise DataError(f"{label}: unpacks to more than the {allowed:,} bytes allowed")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if written != declared:
        raise DataError(f"{label}: has {written:,} bytes, but the archive declares {declared:,}")
    return written


def _read(stream: IO[bytes], label: str) -> bytes:
    try:
        return stream.read(_CHUNK)
    except OSError as error:  # gzip and bz2 report damage as OSError; the output disk is not at fault
        raise DataError(f"{label}: damaged archive: {error}") from error


def _entries(archive: Path, allowed: int, max_members: int) -> Iterator[Entry]:
    """Yield the regular files of an archive, each checked before its stream is yielded."""
    source = _zip_entries(archive) if zipfile.is_zipfile(archive) else _tar_entries(archive, allowed)
    seen: set[PurePosixPath] = set()
    total = 0
    with contextlib.closing(source):
        for count, (name, size, stream) in enumerate(source, start=1):
            if count > max_members:
                raise DataError(f"{archive}: has more than the {max_members:,} members allowed")
            total += size
            if total > allowed:
                raise DataError(f"{archive}: unpacks to more than the {allowed:,} bytes allowed; it may be a "
                                "decompression bomb")
            path = _checked_name(archive, name)
            if path in seen or not seen.isdisjoint(path.parents):
                raise DataError(f"{archive}: member {name!r}: the name occurs twice")
            seen.add(path)
            yield str(path), size, stream


def _checked_name(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    bad = (
        path.is_absolute() or ".." in path.parts or not path.parts
        or any(c in name for c in "\\:\0") or any(len(os.fsencode(p)) > 255 for p in path.parts) or len(name) > 1024
    )  # fmt: skip
    if bad:
        raise DataError(f"{archive}: member {name[:200]!r}: the name leaves the folder or is not a valid file name")
    return path


def _zip_entries(archive: Path) -> Generator[Entry, None, None]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            _checked_name(archive, info.filename)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                raise DataError(f"{archive}: member {info.filename[:200]!r}: is a link or device; only files are "
                                "extracted")
            if info.flag_bits & 1:
                raise DataError(f"{archive}: member {info.filename[:200]!r}: is encrypted")
            with file.open(info) as stream:
                yield info.filename, info.file_size, stream


def _tar_entries(archive: Path, allowed: int) -> Generator[Entry, None, None]:
    with contextlib.closing(_unpacked(archive)) as unpacked:
        bounded = cast(IO[bytes], _Bounded(unpacked, allowed + 64 * _CHUNK, archive))
        with tarfile.open(fileobj=bounded, mode="r:", tarinfo=StrictTarInfo) as file:
            for info in file:
                if info.isdir():
                    _checked_name(archive, info.name)
                    continue
                stream = file.extractfile(info) if info.isreg() and not info.issparse() else None
                if stream is None:
                    raise DataError(f"{archive}: member {info.name[:200]!r}: is a link or device; only files are "
                                    "extracted")
                yield info.name, info.size, stream
                file.members = []  # type: ignore[attr-defined]  # else tarfile would keep a million entries in memory


def _unpacked(archive: Path) -> Any:
    with open(archive, "rb") as file:
        head = file.read(6)
    for magic, opener in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open)):
        if head.startswith(magic):
            return opener(archive, "rb")
    return open(archive, "rb")


class _Bounded:
    """The file interface that tarfile needs, with limits on one read and on the total number of bytes."""

    def __init__(self, file: Any, limit: int, archive: Path):
        self._file, self._limit, self._archive = file, limit, archive

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise DataError(f"{self._archive}: unpacks to more than the {self._limit:,} bytes allowed; it may be a "
                            "decompression bomb")

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise DataError(f"{self._archive}: a header of {size:,} bytes, at most {MAX_READ:,} are read")
        self._check(self._file.tell() + size)
        try:
            return self._file.read(size)
        except OSError as error:
            raise DataError(f"{self._archive}: damaged archive: {error}") from error

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise DataError(f"{self._archive}: damaged archive")
        self._check(position)
        try:
            return self._file.seek(position)  # decompresses everything up to `position`
        except OSError as error:
            raise DataError(f"{self._archive}: damaged archive: {error}") from error

    def tell(self) -> int:
        return self._file.tell()
