"""List the files of a corpus before any is read: folders are walked, members of archives are listed.

The list of an archive is kept in the cache: a packed one has to be unpacked for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError
from embtrain.data.formats.running_text import is_text
from embtrain.data.storage.containers import Source, base_name, files, is_archive, is_file_name, open_streams
from embtrain.data.storage.known_files import Version, recall, version

HEAD = 4096             # bytes by which a file without an extension is classified
MAX_LISTED = 1_000_000  # files and members of one corpus


@dataclass(frozen=True)
class ListedFile:
    """A file, or a member of an archive, before it is read."""

    name: str      # name of its Source
    inside: str    # path below what the user named: folder/folder/file; an archive counts as its folder
    path: Path     # file on disk
    named: bool    # the user named this file itself
    is_text: bool | None  # whether its first HEAD bytes, unpacked, are text; None: not requested
    version: Version | None  # of the file on disk, from before anything of it was read


def open_files(paths: Iterable[Path], names: Container[str]) -> Iterator[Source]:
    """Yield the streams of files on disk whose `ListedFile.name` is in `names`, in file order."""
    for path in paths:
        yield from open_streams(path, lambda name, path=path: f"{path}:{name}" in names)  # type: ignore[misc]


def list_files(where: list[Path], description: str, needs_text: Callable[[str], bool]) -> list[ListedFile]:
    """List every file and every member of an archive in `where`, without hidden ones and those of runs.

    Only archives, files that the user named, and files whose first bytes are needed are opened.
    description: of the files, for the error of an empty folder. needs_text: of a base name, whether `is_text` is
    needed. Raises DataError as `files` does, for a damaged archive, and for more than MAX_LISTED entries.
    """
    listed: list[ListedFile] = []
    roots = {path for path in where if path.is_file()}
    for name, path in files(where, lambda name: True, description):
        folder = "" if path in roots else name.rpartition("/")[0]
        if path in roots or is_archive(name):
            listed += _list_file(path, folder, name, path in roots, needs_text)
        else:
            before = version(path)
            listed.append(ListedFile(str(path), name, path, False,
                                     _is_text(path) if needs_text(base_name(name)) else None, before))
        if len(listed) > MAX_LISTED:
            raise DataError(f"{where[0]}: contains more than {MAX_LISTED:,} files; concatenate them into fewer")
    return listed


def _list_file(path: Path, folder: str, name: str, named: bool, needs_text: Callable[[str], bool]
               ) -> Iterator[ListedFile]:
    """Yield a file on disk, or its members."""
    def inside(member: str) -> str:
        return "/".join(filter(None, (folder, member))) if member else name

    def needs_of(member: str) -> bool:
        return needs_text(base_name(inside(member)))

    def is_complete(kept: Any) -> bool:
        """Whether a kept list has everything that is needed now: another task may have needed less."""
        return isinstance(kept, list) and all(
            isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)
            and (isinstance(entry[1], bool) or (entry[1] is None and not needs_of(entry[0]))) for entry in kept)

    before = version(path)
    for member, text in recall(path, "members", lambda: list(_members(path, needs_of)), is_complete):
        yield ListedFile(f"{path}:{member}" if member else str(path), inside(member), path, named and not member, text,
                         before)


def _members(path: Path, needs_text: Callable[[str], bool]) -> Iterator[tuple[str, bool | None]]:
    """Yield the name of each member of a file, '' if it is no archive, and whether it is text if that is needed."""
    for source in itertools.islice(open_streams(path, is_file_name), MAX_LISTED + 1):
        member = source.name[len(str(path)) + 1:]
        yield member, is_text(source.stream.peek(HEAD)[:HEAD]) if needs_text(member) else None


def _is_text(path: Path) -> bool:
    """Return whether a file is text, unpacked; False if it cannot be unpacked."""
    try:
        return next(is_text(source.stream.peek(HEAD)[:HEAD]) for source in open_streams(path, is_file_name))
    except (DataError, StopIteration):
        return False
