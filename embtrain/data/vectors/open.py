"""Opens files of vectors: unpacks gzip, bzip2, xz and zip, and rejects other file types with a hint.

The type of a file is detected by its first bytes, not by its name. A packed file may unpack to at most max(256 MiB, 200
times its size), as text does in embtrain/data/storage/containers.py.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.data.storage.containers import DAMAGED, FREE_BYTES, MAX_RATIO

_PACKED = {rb"\x1f\x8b": "gzip", rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": "bzip2", rb"\xfd7zXZ\x00": "xz",
           rb"PK(\x03\x04|\x05\x06)": "zip"}  # bzip2: a block, or the end of an empty file
_IS_PICKLE = re.compile(rb"\x80|c[\w.]+\n[\w.]+\n|\([dl]p?\d*\n")
MAX_RATIOS = {"gzip": 1032, "bzip2": 1 << 16, "xz": 1 << 14, "zip": 1 << 16}  # maximal unpacked bytes per packed byte
_CONTROL = {*range(9), *range(14, 32), 127}                                   # characters that do not occur in text

_PICKLE = ("is probably a pickle, as written by gensim's save, and a pickle can run any code; convert it in gensim: "
           "keyed_vectors.save_word2vec_format(...)")
_TORCH = ("is probably a pickle, as written by torch.save, and a pickle can run any code; write the table and its "
          "words with embtrain.data.vectors.vectors.write")
_NUMPY = ("is a NumPy array, which contains no words; convert it in Python: embtrain.data.vectors.vectors.write(PATH, "
          "Vectors(words, np.load(FILE)), 'safetensors')")
_OTHERS = (
    (b"\x93NUMPY", _NUMPY),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first: zstd -d FILE"),
    (b"7z\xbc\xaf\x27\x1c", "is compressed with 7z; unpack it first: 7z x FILE"),
    (b"Rar!\x1a", "is compressed with rar; unpack it first: unrar x FILE"),
    (b"\x04\x22\x4d\x18", "is compressed with lz4; unpack it first: lz4 -d FILE"),
    (b"\x1f\x9d", "is compressed with compress; unpack it first: gunzip FILE"),
    (b"\x89HDF", "is an HDF5 file; write the table and its words as text, one word and its numbers a line"),
    (b"PAR1\x15", "is a Parquet file; write the table and its words as text, one word and its numbers a line"),
    (b"SQLite format 3", "is an SQLite database; write its table as text, one word and its numbers a line"),
    (b"version http", "is a Git LFS pointer, not the file; fetch the file: git lfs pull"),
)


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file of vectors.

    limit: maximal number of rows, None: all. encoding: of the words. are_options: the caller has the options --limit
    and --encoding, so that errors name them as the remedy.
    """

    limit: int | None = None
    encoding: str = "utf-8"
    are_options: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit: {self.limit}: is not a number of rows; give 1 or more")
        try:
            "".encode(self.encoding), b"".decode(self.encoding)
        except (LookupError, UnicodeError, ValueError) as error:
            raise UsageError(f"--encoding: {self.encoding[:40]!r}: is not a text encoding; give one that Python "
                             "supports, e.g. latin-1, cp1252, koi8-r or gb18030") from error

    @property
    def codec(self) -> str:
        """The encoding of words in the bytes that `open_unpacked` yields."""
        return "utf-8" if self.is_wide else self.encoding

    @property
    def is_wide(self) -> bool:
        """True if blanks and digits have other bytes than in ASCII, as in UTF-16."""
        try:
            return " \t\n09.".encode(self.encoding) != b" \t\n09."
        except UnicodeError:
            return True

    def limit_remedy(self, n: int | str) -> str:
        """Return how to read the first n rows of a faulty file: an option, or a command that writes them."""
        rows = f"{n:,}" if isinstance(n, int) else n
        return (f"add --limit {n} to read the first {rows}" if self.are_options else
                f"write the first {rows} to a file: embtrain export FILE --limit {n} --out NEW")

    def encoding_remedy(self) -> str:
        """Return how to read words in another encoding: an option, or a command that converts the file."""
        return ("give their encoding, e.g. --encoding latin-1" if self.are_options else
                "convert the file: embtrain export FILE --encoding NAME --out NEW")


PLAIN = ReadOptions()
BY_OPTIONS = ReadOptions(are_options=True)  # the default of functions that have `reading` as a parameter


def default_max_bytes() -> int:
    """Return the default memory limit of a table, in bytes."""
    return int(machine.total() * 0.8)


@contextlib.contextmanager
def open_unpacked(path: Path, reading: ReadOptions = PLAIN) -> Iterator[IO[bytes]]:
    """Open the unpacked bytes of a file, recoded to UTF-8 if `reading` has an encoding that is not based on ASCII.

    DataError for any fault of the file, ResourceError if permission is missing.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block forever
            raise DataError(f"{path}: is a folder, a pipe or a device; give a file")
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(open(path, "rb"))
            kind = detect_packing(plain)
            file = stack.enter_context(_unpacked(path, plain, kind)) if kind else cast(IO[bytes], plain)
            yield _recoded(path, file, reading.encoding) if reading.is_wide else file
    except PermissionError as error:
        raise ResourceError(f"{path}: no permission to read it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def _damage_as_data_error(path: Path, kind: str) -> Iterator[None]:
    """Turn errors of the library that unpacks a damaged file into one line."""
    try:
        yield
    except (OSError, *DAMAGED) as error:
        if isinstance(error, OSError) and error.errno is not None:   # of the disk; gzip and bz2 set no errno
            raise
        raise DataError(f"{path}: damaged {kind} file: {error or type(error).__name__}; fetch it again") from error


def detect_packing(file: IO[bytes]) -> str:
    """Return how an open file is packed (a key of MAX_RATIOS, or ''), and rewind it."""
    head = file.read(10)
    file.seek(0)
    return next((kind for magic, kind in _PACKED.items() if re.match(magic, head)), "")


def max_unpacked_bytes(path: Path) -> int:
    """Return the maximal size of a file after unpacking, in bytes."""
    with open(path, "rb") as file:
        return os.path.getsize(path) * MAX_RATIOS.get(detect_packing(file), 1)


def refuse_other_formats(path: Path, head: bytes, reading: ReadOptions = PLAIN) -> None:
    """Raise DataError with a remedy if the first bytes of a file are those of another file type."""
    no = f"{path}: is not a vector file, but"
    for magic, reason in _OTHERS:
        if head.startswith(magic):
            raise DataError(f"{no} {reason}")
    if _IS_PICKLE.match(head):
        raise DataError(f"{no} {_PICKLE}")
    if head[257:262] == b"ustar":
        raise DataError(f"{no} is a tar archive; unpack it and give one of its files: tar -xf FILE")
    if detect_packing(io.BytesIO(head)):
        raise DataError(f"{path}: is compressed twice; unpack it once")
    if wide := _wide(head):
        set_it = f"set --encoding {wide.lower()}, or " if reading.are_options else ""
        raise DataError(f"{path}: is encoded in {wide}; {set_it}convert the file: iconv -f {wide} -t UTF-8 FILE")
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:15].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(f"{no} a page of HTML or XML; perhaps the download failed: fetch it again")
    if start.startswith((b'{"', b"{\n", b"[{", b"[[")):
        raise DataError(f"{no} is probably JSON; write it as text, one word and its numbers a line")


def _wide(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    for name, width, offset in (("UTF-32LE", 4, 0), ("UTF-32BE", 4, 3), ("UTF-16LE", 2, 0), ("UTF-16BE", 2, 1)):
        start = head[:4 * width]                              # four characters, e.g. `3 3\n`
        text = start[offset::width]  # ASCII, and zeros in the other bytes of each character
        if len(text) == 4 and text.isascii() and not _CONTROL & set(text) and start.count(0) == 4 * (width - 1):
            return name
    return ""


def _unpacked(path: Path, plain: IO[bytes], kind: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if kind == "zip":
        return _only_member(path, plain)
    file: Any = (gzip.GzipFile(fileobj=plain) if kind == "gzip" else
                 bz2.BZ2File(plain) if kind == "bzip2" else lzma.LZMAFile(plain))
    return contextlib.closing(_bounded(path, file, kind))


@contextlib.contextmanager
def _only_member(path: Path, plain: IO[bytes]) -> Iterator[IO[bytes]]:
    with _damage_as_data_error(path, "zip"):
        archive = zipfile.ZipFile(plain)
    with archive:
        files = [member for member in archive.infolist() if not member.is_dir() and
                 not member.filename.startswith("__MACOSX/") and not member.filename.rpartition("/")[2].startswith(".")]
        names = [member.filename for member in files]
        if any(name.endswith("data.pkl") for name in names):
            raise DataError(f"{path}: is not a vector file, but {_TORCH}")
        if names and all(name.endswith(".npy") for name in names):
            raise DataError(f"{path}: is not a vector file, but {_NUMPY}")
        if len(files) != 1:
            listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            raise DataError(
                f"{path}: a zip archive of {len(files):,} files{listed and f': {listed[:300]}'}; only one can be read: "
                "unpack it: unzip FILE MEMBER"
            )
        with _damage_as_data_error(path, "zip"):
            try:
                member = archive.open(files[0])
            except (RuntimeError, NotImplementedError) as error:  # password-protected, or an unknown compression
                raise DataError(f"{path}: {names[0]}: cannot be unpacked: {error}; unpack it manually") from error
        with member:
            yield _bounded(path, member, "zip")


def _bounded(path: Path, file: Any, kind: str) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Bounded(path, file, kind), 1 << 16))


class _Bounded(io.RawIOBase):
    """An unpacked stream that raises DataError if the file is damaged or unpacks to too much."""

    def __init__(self, path: Path, file: Any, kind: str):
        self._path, self._file, self._kind, self._taken = path, file, kind, 0
        self._limit = max(FREE_BYTES, MAX_RATIO * os.path.getsize(path))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _damage_as_data_error(self._path, self._kind):
            data = self._file.read(min(len(buffer), 1 << 16))
        self._taken += len(data)
        if self._taken > self._limit:
            raise DataError(f"{self._path}: unpacks to more than {self._limit:,} bytes, over {MAX_RATIO} times its "
                            "size; it may be a decompression bomb")
        buffer[:len(data)] = data
        return len(data)


def _recoded(path: Path, file: IO[bytes], encoding: str) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Recoded(path, file, encoding), 1 << 16))


class _Recoded(io.RawIOBase):
    """A stream in another encoding, as UTF-8."""

    def __init__(self, path: Path, file: IO[bytes], encoding: str):
        self._path, self._file, self._encoding, self._held = path, file, encoding, b""
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            data = self._file.read(1 << 16)
            try:
                self._held = self._decoder.decode(data, final=not data).encode("utf-8")
            except UnicodeError as error:
                raise DataError(f"{self._path}: is not encoded in {self._encoding}: {error}; set another "
                                "--encoding, or fetch it again") from error
            if not data:
                break
        data_out, self._held = self._held[:len(buffer)], self._held[len(buffer):]
        buffer[:len(data_out)] = data_out
        return len(data_out)
