"""Replaces the files of an export folder together, so that a failed export leaves the earlier one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from embtrain.common.errors import EmbtrainError, ResourceError
from embtrain.common.files import sync_folder, temporary_folder
from embtrain.common.output_paths import check_kinds, check_plain


@contextlib.contextmanager
def replace_files(folder: Path, optional: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder whose files are moved into `folder`, created if missing, at the end of the block.

    An error in the block changes no file of `folder`; it names the files as they are named there. optional: files that
    are deleted at the end unless the block writes them. Raises UsageError for a folder, a device or a pipe in place of
    a file, ResourceError if `folder` cannot be written.
    """
    is_new = not folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_folder(".", folder) as unfinished:
            try:
                yield unfinished
            except EmbtrainError as error:
                error.args = tuple(line.replace(f"{unfinished.name}{os.sep}", "") for line in error.args)
                raise
            _move(unfinished, folder, optional)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):               # it has files, unless the block failed
                folder.rmdir()


def _move(unfinished: Path, folder: Path, optional: Iterable[str]) -> None:
    """Move the files, after all reasons to refuse one of them have been checked."""
    names = sorted(path.name for path in unfinished.iterdir())
    targets = [folder / name for name in dict.fromkeys([*names, *optional])]
    check_kinds("file", targets, "an export", "--out: ")
    for target in targets:
        check_plain(target, str(target), follow=False)
    for name in names:
        os.replace(unfinished / name, folder / name)
    for target in targets[len(names):]:
        target.unlink(missing_ok=True)                       # of an earlier export
    sync_folder(folder)
