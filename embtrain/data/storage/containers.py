"""Read files, folders, gz/bz2/xz, tar and zip as named byte streams, without extracting to disk.

The type of a file is decided by its first bytes, not by its name. Every stream is bounded: one file on disk may unpack
to at most max(256 MiB, 200 times its size). Prose is packed about 3 times; only a decompression bomb reaches 200.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.files import sha256
from embtrain.common.output_paths import is_run_folder
from embtrain.data.storage.known_files import T, checked, recall, require_expected, version

MAX_RATIO = 200
FREE_BYTES = 256 << 20
BUFFER = 1 << 16
# In addition to OSError. The last four: a zip with an unknown method, a password, invalid names or fields.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
           NotImplementedError, RuntimeError, ValueError, struct.error)
PACKED = (".gz", ".bz2", ".xz")
UNSUPPORTED = {".zst": "zstd -d", ".lz4": "lz4 -d", ".7z": "7z x", ".rar": "unrar x", ".lzma": "unlzma",
               ".z": "uncompress"}
_UNSUPPORTED_MAGIC = {b"\x28\xb5\x2f\xfd": ".zst", b"\x04\x22\x4d\x18": ".lz4", b"7z\xbc\xaf": ".7z", b"Rar!": ".rar"}
_GZIP, _XZ, _BZIP2 = b"\x1f\x8b", b"\xfd7zXZ\x00", (b"1AY&SY", b"\x17rE8P\x90")  # a block, or the end of an empty file
ARCHIVES = (".tar", ".tgz", ".zip")
TEXT = "text file (.txt, .text, .tokens, .xml; compressed or not)"


@dataclass(frozen=True)
class Source:
    """One byte stream and its origin."""

    name: str                 # path, or path:member
    stream: io.BufferedReader[Any]
    size: int                 # bytes of the file on disk that contains it
    begin: int = 0            # offset of the stream in that file, if it is a range of it


def base_name(name: str) -> str:
    """Return the file name in the name of a Source, or of a member."""
    return name.rpartition(":")[2].rpartition("/")[2]


def without_packing(name: str) -> str:
    """Return a name without .gz, .bz2 or .xz at its end."""
    suffix = next((packed for packed in PACKED if name.lower().endswith(packed)), "")
    return name[:len(name) - len(suffix)]


class Budget:
    """The number of bytes that one file on disk may still unpack to."""

    def __init__(self, path: Path, size: int):
        self.path, self.limit, self.taken = path, max(FREE_BYTES, MAX_RATIO * size), 0

    def take(self, n: int) -> None:
        """Use n bytes of the budget; DataError if it is exceeded."""
        self.taken += n
        self.check(self.taken)

    def check(self, n: int) -> None:
        """Raise DataError for n bytes in all if that is more than the limit."""
        if n > self.limit:
            raise DataError(f"{self.path}: unpacks to more than {self.limit:,} bytes, over {MAX_RATIO} times its size; "
                            "it may be a decompression bomb")


class _Bounded(io.RawIOBase):
    """A stream that stops at its budget and raises every kind of damage as one DataError."""

    def __init__(self, inner: IO[bytes], name: str, budget: Budget):
        self._inner, self._name, self._budget = inner, name, budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with damage_as_data_error(self._name):
            data = self._inner.read(len(buffer))
        self._budget.take(len(data))
        buffer[:len(data)] = data
        return len(data)


class StrictTarInfo(tarfile.TarInfo):
    """Raise a ReadError for a damaged header, and if the archive ends without its mark, a block of zeros."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> tarfile.TarInfo:  # type: ignore[override]
        try:
            return super().fromtarfile(tar)
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
            if tar.offset == 0:
                raise
            raise tarfile.ReadError("no end mark; if no member is missing, unpack it and give the folder") from error
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"damaged header: {error}") from error


@contextlib.contextmanager
def damage_as_data_error(name: str | Path) -> Iterator[None]:
    """Turn errors of a damaged, missing or unreadable file into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{name}: file or folder not found") from error
    except PermissionError as error:
        raise ResourceError(f"{name}: no permission to read it") from error
    except (OSError, *DAMAGED) as error:
        raise DataError(f"{name}: damaged, truncated or of an unknown kind ({error}); fetch it again") from error


def files(where: list[Path], accepts: Callable[[str], bool], description: str = TEXT) -> list[tuple[str, Path]]:
    """List the regular files of `where` as (name, path), without hidden files and folders of runs.

    A folder's files are sorted by their relative path, which is their name. accepts: of a base name in lower case
    without packing, whether to list it; archives are always listed. description: of the files, for the error of an
    empty folder. Raises DataError for a missing path, a folder without files, or a broken link.
    """
    named: list[tuple[str, Path]] = []
    for path in where:
        with damage_as_data_error(path):
            mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            named.append((path.name, path))
            continue
        if not stat.S_ISDIR(mode):
            raise DataError(f"{path}: neither a file nor a folder")
        in_folder: list[tuple[str, Path]] = []
        for folder, subfolders, file_names in os.walk(path, onerror=_raise_unreadable):
            subfolders[:] = [name for name in subfolders
                             if not name.startswith(".") and not is_run_folder(Path(folder, name))]
            for name in file_names:
                file = Path(folder, name)
                if name.startswith(".") or not (is_archive(name) or accepts(without_packing(name.lower()))):
                    continue
                if file.is_symlink() and not file.exists():
                    raise DataError(f"{file}: a broken link; remove it, or restore its target")
                if file.is_file():
                    in_folder.append((file.relative_to(path).as_posix(), file))
        if not in_folder:
            raise DataError(f"{path}: the folder contains no {description}")
        named += sorted(in_folder)
    return named


def _raise_unreadable(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed; os.walk would treat it as empty."""
    with damage_as_data_error(error.filename):
        raise error


def is_archive(name: str) -> bool:
    """Return whether a name is that of a tar or zip archive, packed or not."""
    return without_packing(name).lower().endswith(ARCHIVES)


def fingerprint(where: list[Path], accepts: Callable[[str], bool], read: Callable[[], T]
                ) -> tuple[str, Callable[[], T]]:
    """Return the sha256 of files, as `digest`, and `read` with a check that they have not changed since."""
    named = files(where, accepts)
    versions = {path: version(path) for _, path in named}
    return digest(named), checked(versions, read)


def digest(named: list[tuple[str, Path]]) -> str:
    """Return the sha256 of one file, or of the list of names and hashes of several: (name, path) as from `files`."""
    parts = []
    for name, path in named:
        with damage_as_data_error(path):
            parts.append((name, recall(path, "sha256", partial(sha256, path),
                                       lambda kept: isinstance(kept, str) and len(kept) == 64)))
    if len(parts) == 1:
        return require_expected(parts[0][1])
    lines = "".join(f"{digest} {name}\n" for name, digest in parts).encode("utf-8", "surrogateescape")
    return require_expected(hashlib.sha256(lines).hexdigest())


def sources(where: list[Path], accepts: Callable[[str], bool]) -> Iterator[Source]:
    """Yield every stream in `where` in a fixed order; of an archive, the members that `accepts` selects.

    A stream must be read before the next one is requested. Raises as `files`, and DataError for damaged files.
    """
    for _, path in files(where, accepts):
        yield from open_streams(path, lambda name: is_file_name(name) and accepts(base_name(name)))


def open_streams(path: Path, accepts: Callable[[str], bool]) -> Iterator[Source]:
    """Yield the stream of a file on disk, or those of its members whose names `accepts` selects.

    Raises DataError if the file is damaged, packed twice, or packed in a form that is not supported.
    """
    with contextlib.ExitStack() as stack:
        with damage_as_data_error(path):
            file = stack.enter_context(path.open("rb"))
            size = os.fstat(file.fileno()).st_size
            head = file.read(10)
            file.seek(0)
        budget = Budget(path, size)
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            yield from _zip_members(path, file, size, accepts)
            return
        if foreign := _UNSUPPORTED_MAGIC.get(head[:4]):
            raise DataError(f"{path}: is compressed in an unsupported form; unpack it first: {UNSUPPORTED[foreign]} "
                            f"{path}")
        stream = io.BufferedReader(_Bounded(_unpacked(file, head), str(path), budget), BUFFER)
        if _is_packed(head) and _is_packed(stream.peek(10)[:10]):
            raise DataError(f"{path}: is compressed twice; unpack it once")
        if _is_tar(stream.peek(512), path):
            yield from _tar_members(path, stream, size, accepts)
        else:
            yield Source(str(path), stream, size)


def _unpacked(file: IO[bytes], head: bytes) -> IO[bytes]:
    if not _is_packed(head):
        return file
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if head[:2] == _GZIP else \
        lzma.LZMAFile(file) if head[:6] == _XZ else bz2.BZ2File(file)


def _member(text: Any, name: str, budget: Budget, size: int) -> Source:
    """Open a member of an archive, unpacked if it is itself packed, within the budget of the file on disk."""
    stream = io.BufferedReader(_Bounded(text, name, budget), BUFFER)
    if _is_packed(head := stream.peek(10)[:10]):
        stream = io.BufferedReader(_Bounded(_unpacked(stream, head), name, budget), BUFFER)
        if _is_packed(stream.peek(10)[:10]):
            raise DataError(f"{name}: is compressed twice within an archive; unpack it once")
    return Source(name, stream, size)


def is_plain(head: bytes, path: Path) -> bool:
    """Return whether a file is neither packed nor an archive. head: its first 512 bytes."""
    is_zip = head[:4] in (b"PK\x03\x04", b"PK\x05\x06")
    return not (is_zip or _is_packed(head[:10]) or head[:4] in _UNSUPPORTED_MAGIC or _is_tar(head, path))


def _is_tar(head: bytes, path: Path) -> bool:
    return head[257:262] == b"ustar" or bool({".tar", ".tgz"} & {s.lower() for s in path.suffixes})


def _is_packed(head: bytes) -> bool:
    return head[:2] == _GZIP or head[:6] == _XZ or (head[:3] == b"BZh" and head[4:10] in _BZIP2)


def _tar_members(path: Path, stream: io.BufferedReader[Any], size: int, accepts: Callable[[str], bool]
                 ) -> Iterator[Source]:
    budget = Budget(path, size)  # a separate one: a sparse member is larger than its stream
    with damage_as_data_error(path):
        archive: Any = tarfile.open(fileobj=stream, mode="r|", tarinfo=StrictTarInfo)
    with archive:
        while True:
            with damage_as_data_error(path):
                member = archive.next()
                if member is None:
                    return
                archive.members = []  # a stream is never searched; a million members would fill the memory
                text = archive.extractfile(member) if member.isreg() and accepts(member.name) else None
            if text is not None:
                name = f"{path}:{member.name}"
                yield _member(text, name, budget, size)


def _zip_members(path: Path, file: IO[bytes], size: int, accepts: Callable[[str], bool]) -> Iterator[Source]:
    budget = Budget(path, size)  # one for all members: each of several overlapping members would pass by itself
    with damage_as_data_error(path):
        archive = zipfile.ZipFile(file)
    with archive:
        if {"mimetype", "[Content_Types].xml"} & set(archive.namelist()):
            raise DataError(f"{path}: a word processor document or an e-book; save it as plain text")
        for member in archive.infolist():
            if not accepts(member.filename):
                continue
            name = f"{path}:{member.filename}"
            with damage_as_data_error(name):
                text = archive.open(member)
            yield _member(text, name, budget, size)


def is_file_name(name: str) -> bool:
    """Return whether a member may contain data: it is neither a folder nor a hidden file."""
    return not name.endswith("/") and not base_name(name).startswith(".")
