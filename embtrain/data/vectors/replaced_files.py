"""Replaces the files of an export folder together: a failed export leaves the earlier one, a killed one no mixture."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from embtrain.common.errors import EmbtrainError, ResourceError, os_reason
from embtrain.common.files import sync_folder, temporary_folder
from embtrain.common.output_paths import check_kinds, check_plain

EARLIER = "earlier"  # folder of the replaced files, in the temporary folder


@contextlib.contextmanager
def replace_files(folder: Path, key: str, optional: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder whose files are moved into `folder`, created if missing, at the end of the block.

    An error, in the block or of a move, changes no file of `folder`; it names the files as they are named there. key: a
    file that each reader of `folder` needs. It is removed first and moved last, so that a folder whose process is
    killed between the moves cannot be read. optional: files that are deleted at the end unless the block writes them.
    Raises UsageError for a folder, a device or a pipe in place of a file, ResourceError if `folder` cannot be written.
    """
    try:
        with new_folder(folder), temporary_folder(".", folder) as unfinished:
            try:
                yield unfinished
            except EmbtrainError as error:
                error.args = tuple(line.replace(f"{unfinished.name}{os.sep}", "") for line in error.args)
                raise
            _move(unfinished, folder, key, optional)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error


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
    out = [(target, earlier / target.name) for target in reversed(targets) if os.path.lexists(target)]
    begun: list[tuple[Path, Path]] = []
    try:
        for move in (*out, *((unfinished / name, folder / name) for name in names)):
            begun.append(move)
            os.replace(*move)
    except BaseException:                                    # an interrupt, too
        for source, target in reversed(begun):
            if not os.path.lexists(source):                  # else its move failed
                os.replace(target, source)
        raise
    sync_folder(folder)
