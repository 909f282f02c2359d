"""Replaces the files of an export folder together: a failed or killed export leaves the earlier one.

The new files are written into a temporary folder. Then the earlier files are moved into its folder EARLIER and the new
ones into the export folder, while a JOURNAL lists the new files. A process that is killed during the moves leaves the
journal, and the next export undoes the moves before anything else.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from embtrain.common.errors import EmbtrainError, ResourceError, os_reason
from embtrain.common.files import (
    JOURNAL,
    TEMPORARY_SUFFIX,
    lock_folder,
    read_json,
    sha256,
    sync_folder,
    temporary_folder,
    try_lock,
    write_json,
)
from embtrain.common.json_records import mapping
from embtrain.common.output_paths import check_kinds, check_plain

EARLIER = "earlier"  # folder of the replaced files, in the temporary folder
MOVE_SECONDS = 60.0  # how long to wait for the moves of another export into the same folder


@contextlib.contextmanager
def replace_files(folder: Path, key: str, optional: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder whose files are moved into `folder`, created if missing, at the end of the block.

    An error, in the block or of a move, changes no file of `folder`; it names the files as they are named there. key: a
    file that each reader of `folder` needs. It is removed first and moved last, so that a folder whose process is
    killed between the moves cannot be read. optional: files that are deleted at the end unless the block writes them.
    Raises UsageError for a folder, a device or a pipe in place of a file, ResourceError if `folder` cannot be written.
    """
    try:
        with new_folder(folder):
            undo_killed(folder)
            with temporary_folder(".", folder) as unfinished:
                try:
                    yield unfinished
                except EmbtrainError as error:
                    error.args = tuple(line.replace(f"{unfinished.name}{os.sep}", "") for line in error.args)
                    raise
                with _locked(folder):
                    _move(unfinished, folder, key, optional)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error


def undo_killed(folder: Path) -> None:
    """Undo the moves of killed exports into an existing folder. Raises ResourceError if it cannot be written."""
    try:
        with _locked(folder):
            for unfinished in folder.glob(f".*{TEMPORARY_SUFFIX}"):
                if unfinished.is_symlink() or not (unfinished / JOURNAL).is_file():
                    continue
                handle = os.open(unfinished, os.O_RDONLY)
                try:
                    if try_lock(handle):                     # else its process is still running
                        _undo(unfinished, folder)
                finally:
                    os.close(handle)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error


def _locked(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Lock a folder during moves, so that those of two exports do not mix."""
    return lock_folder(folder, f"{folder}: another export moves its files there; repeat the command when it has ended",
                       wait=MOVE_SECONDS)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create a folder and those above it; delete those that are new and empty if the block fails."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]  # the deepest first
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):               # never created, or another process has written there
                path.rmdir()
        raise


def _move(unfinished: Path, folder: Path, key: str, optional: Iterable[str]) -> None:
    """Move the files, after all reasons to refuse one of them have been checked, or move none."""
    names = sorted((path.name for path in unfinished.iterdir()), key=lambda name: (name == key, name))
    targets = [folder / name for name in dict.fromkeys([*optional, *names])]
    check_kinds("file", targets, "an export", "--out: ")
    for target in targets:
        check_plain(target, str(target), follow=False)
    earlier = unfinished / EARLIER
    earlier.mkdir()
    write_json(unfinished / JOURNAL, {name: "" if name == key else sha256(unfinished / name) for name in names})
    try:
        for target in reversed(targets):
            if os.path.lexists(target):
                os.replace(target, earlier / target.name)
        for name in names:
            os.replace(unfinished / name, folder / name)
    except BaseException:                                    # an interrupt, too
        _undo(unfinished, folder)
        raise
    sync_folder(folder)
    (unfinished / JOURNAL).unlink()


def _undo(unfinished: Path, folder: Path) -> None:
    """Undo the moves from and to a temporary folder, unless all were made. Files that the user has changed stay.

    It can be repeated if it is interrupted.
    """
    earlier = unfinished / EARLIER
    try:
        new = mapping(read_json(unfinished / JOURNAL))
    except ValueError:
        new = {}
    if not new or earlier.is_symlink() or not earlier.is_dir():  # another program wrote it
        return
    key = next(reversed(new))
    if os.path.lexists(unfinished / key):                    # it is moved last
        moved = [path for path in folder.iterdir() if path.name in new and not os.path.lexists(unfinished / path.name)]
        for path in moved:
            if path.is_file() and sha256(path) == new[path.name]:
                os.replace(path, unfinished / path.name)
        for path in sorted(earlier.iterdir(), key=lambda path: path.name == key):
            if not os.path.lexists(folder / path.name):
                os.replace(path, folder / path.name)
        sync_folder(folder)
    (unfinished / JOURNAL).unlink()
