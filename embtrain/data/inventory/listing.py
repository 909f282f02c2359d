"""List the files of a corpus before any is read: folders are walked, members of archives are listed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source, base_name, files, is_archive, is_file_name, open_streams

HEAD = 4096             # bytes by which a file without an extension is classified
MAX_LISTED = 1_000_000  # files and members of one corpus


@dataclass(frozen=True)
class ListedFile:
    """A file, or a member of an archive, before it is read."""

    name: str      # name of its Source
    inside: str    # path below what the user named: folder/folder/file; an archive counts as its folder
    path: Path     # file on disk
    named: bool    # the user named this file itself
    head: bytes    # its first HEAD bytes, unpacked, if requested


def open_files(paths: Iterable[Path], names: Container[str]) -> Iterator[Source]:
    """Yield the streams of files on disk whose `ListedFile.name` is in `names`, in file order."""
    for path in paths:
        yield from open_streams(path, lambda name, path=path: f"{path}:{name}" in names)  # type: ignore[misc]


def list_files(where: list[Path], description: str, needs_head: Callable[[str], bool]) -> list[ListedFile]:
    """List every file and every member of an archive in `where`, without hidden ones and those of runs.

    Only archives, files that the user named, and files whose head is needed are opened.
    description: of the files, for the error of an empty folder. needs_head: of a base name, whether its first bytes are
    needed. Raises DataError as `files` does, for a damaged archive, and for more than MAX_LISTED entries.
    """
    listed: list[ListedFile] = []
    roots = {path for path in where if path.is_file()}
    for name, path in files(where, lambda name: True, description):
        folder = "" if path in roots else name.rpartition("/")[0]
        if path in roots or is_archive(name):
            listed += _list_file(path, folder, name, path in roots, needs_head)
        else:
            listed.append(ListedFile(str(path), name, path, False, _head(path) if needs_head(base_name(name)) else b""))
        if len(listed) > MAX_LISTED:
            raise DataError(f"{where[0]}: contains more than {MAX_LISTED:,} files; concatenate them into fewer")
    return listed


def _list_file(path: Path, folder: str, name: str, named: bool, needs_head: Callable[[str], bool]
               ) -> Iterator[ListedFile]:
    """Yield a file on disk, or its members."""
    for source in open_streams(path, is_file_name):
        member = source.name[len(str(path)) + 1:]
        inside = "/".join(filter(None, (folder, member))) if member else name
        head = source.stream.peek(HEAD)[:HEAD] if needs_head(base_name(inside)) else b""
        yield ListedFile(source.name, inside, path, named and not member, head)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked; a NUL, which no text contains, if it cannot be unpacked."""
    try:
        return next(b"" + source.stream.peek(HEAD)[:HEAD] for source in open_streams(path, is_file_name))
    except (DataError, StopIteration):
        return b"\0"
