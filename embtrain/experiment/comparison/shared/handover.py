"""The folder in which the holder of a lease trains, taking over what the holder before it had done, and publishing.

    DIR/join/runs/NAME.3/NAME/   the run of the third holder of the lease NAME
    DIR/cells/NAME/              the finished run, renamed from there

Every holder has a folder of its own. This is what protects a run: a holder that was suspended between a check of its
lease and a write, and continues minutes later, writes to its own folder, which no other process uses any more. The
rename is one operation of the file system and does not replace a finished run. A new holder copies the folder of the
last one. Files are written whole, so each copy is complete; only metrics.jsonl grows, and it is copied last: the lines
after the checkpoint are dropped when the run resumes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from embtrain.common.errors import ResourceError, os_reason
from embtrain.common.files import TEMPORARY_SUFFIX, write_text
from embtrain.experiment.comparison.workers import Cell
from embtrain.train.state.lease import Lease

_CHECKPOINTS = "checkpoints"
_COPIED_LAST = "metrics.jsonl"
_MAX_COPIES = 20  # attempts, each made void by a checkpoint that its run deleted meanwhile
_STEP = re.compile(r"step-([0-9]+)\.json")


def in_work(runs: Path, cell: Cell, number: int) -> Cell:
    """The cell with the folder of the holder `number` of its lease."""
    return moved(cell, runs / f"{cell.name}.{number}" / cell.name)


def moved(cell: Cell, folder: Path) -> Cell:
    """The cell with another folder."""
    limits = {folder / path.name: limit for path, limit in cell.downstream_limits.items()}
    return replace(cell, folder=folder, downstream_limits=limits)


def newest_run(runs: Path, cell: Cell, number: int) -> Path | None:
    """The folder of the last holder, up to `number`, that has a run; None if there is none."""
    folders = [in_work(runs, cell, n).folder for n in range(number, 0, -1)]
    return next((folder for folder in [*folders, cell.folder] if (folder / "config.yaml").is_file()), None)


def prepare(runs: Path, cell: Cell, lease: Lease) -> Cell:
    """Return the cell with the folder of a new holder: with a copy of the last holder's run, if there is one.

    ResourceError if the folder cannot be written or the run cannot be copied; then no part of the copy remains.
    """
    inside = in_work(runs, cell, lease.number)
    part = inside.folder.with_name("part")
    try:
        inside.folder.parent.mkdir(parents=True)
        source = newest_run(runs, cell, lease.number - 1)
        if source is not None and _copy_run(source, part):
            _relocate(part, (source, cell.folder), inside.folder)   # the second if its publication failed
            part.rename(inside.folder)
            if source != cell.folder:
                shutil.rmtree(source, ignore_errors=True)
    except OSError as error:
        raise ResourceError(f"{inside.folder}: cannot be written: {os_reason(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return inside


def _copy_run(source: Path, target: Path) -> bool:
    """Copy a run whose process may still train: its checkpoints first, then what belongs to them or to later ones.

    False if the run disappeared: another holder has published it.
    """
    for _ in range(_MAX_COPIES):
        if not source.is_dir():
            return False
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            _copy(source, target)
            return True
    raise ResourceError(f"{source}: cannot be copied, because it changes all the time; stop the process that trains "
                        "there")


def _copy(source: Path, target: Path) -> None:
    """Copy a file or folder. FileNotFoundError if it disappears meanwhile; ResourceError if it cannot be copied.

    Links are copied as what they point to, because a holder must not write files of another one; if that does not
    exist, or contains the link or its copy, as links.
    """
    try:
        if source.is_symlink() and (not source.exists() or _contains(source.resolve(), source)
                                    or _contains(source.resolve(), target)):
            target.symlink_to(source.readlink())
        elif source.is_dir():
            target.mkdir()
            names = sorted(os.listdir(source), key=lambda name: (name == _COPIED_LAST, name != _CHECKPOINTS, name))
            for name in names:
                if not name.endswith(TEMPORARY_SUFFIX):
                    _copy(source / name, target / name)
        else:
            shutil.copy2(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ResourceError(f"{source}: cannot be copied to {target}: {os_reason(error)}") from error


def _contains(folder: Path, link: Path) -> bool:
    """Whether a link is in a folder or below it, on one of the paths that lead to it."""
    return any(parent.resolve().is_relative_to(folder) for parent in link.parents)


def _relocate(folder: Path, old: Sequence[Path], new: Path) -> None:
    """Replace the paths of a run, in the settings of the runs inside it that were trained on its vectors, and in links.

    folder: of the run, which will be renamed to `new`. old: where it was; the links mean what they meant in the first.
    """
    is_copy = folder not in old     # links of a copy to other folders lead to files of another holder
    for inner in _folders(folder, follow_links=not is_copy):
        path = inner / "config.yaml"
        if inner != folder and path.is_file():
            text = before = path.read_text(encoding="utf-8")
            for old_path in old:
                text = text.replace(str(old_path), str(new))
            if text != before:
                write_text(path, text)
        for link in filter(Path.is_symlink, _entries(inner)):
            _redirect(link, folder, old[0], new)


def _folders(folder: Path, follow_links: bool) -> Iterator[Path]:
    """Yield a folder and all folders in it, each once; with `follow_links` also the runs that its links lead to.

    A link to a folder above itself leads to no run inside this one. Other links are not followed: they can lead to
    any amount of other data.
    """
    seen, waiting = set[Path](), [folder]
    while waiting:
        inner = waiting.pop()
        if (place := inner.resolve()) in seen:
            continue
        seen.add(place)
        yield inner
        for path in _entries(inner):
            if path.is_symlink():
                is_inside = follow_links and os.path.isfile(path / "config.yaml") and \
                    not _contains(path.resolve(), path)
            else:
                is_inside = path.is_dir()
            if is_inside:
                waiting.append(path)


def _entries(folder: Path) -> list[Path]:
    """The paths in a folder; none if it cannot be read, because a run writes to none of those."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _redirect(link: Path, folder: Path, old: Path, new: Path) -> None:
    """Let a link of a run, which was in the folder `old`, point to its target from any folder of the run.

    A target inside the run gets a relative path, any other one an absolute path. A link that is outside, in a run that
    a link leads to, stays there, and only a target inside the run gets another path.
    """
    text, run, here = os.readlink(link), os.path.realpath(old), os.path.realpath(link.parent)
    name = Path(os.path.relpath(here, os.path.realpath(folder)))
    moves = ".." not in name.parts
    target = os.path.realpath(os.path.join(old / name if moves else here, text))
    if Path(target).is_relative_to(run):
        inside = os.path.relpath(target, run)
        target = os.path.relpath(inside, name) if moves else os.path.abspath(new / inside)
    elif os.path.isabs(text) or not moves:
        return
    if target != text:
        link.unlink()
        link.symlink_to(target)


def last_step(folder: Path | None) -> int:
    """The step of the newest checkpoint of a run; -1 if there is none."""
    if folder is None:
        return -1
    names = [path.name for path in (folder / _CHECKPOINTS).glob("step-*.json")]
    return max((int(match[1]) for name in names if (match := _STEP.fullmatch(name))), default=-1)


def remove_failure(cell: Cell) -> None:
    """Delete the error of a cell that is taken again. ResourceError if it cannot be deleted."""
    try:
        cell.failure.unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(f"{cell.failure}: cannot be deleted: {os_reason(error)}") from error


def publish(cell: Cell, inside: Cell) -> None:
    """Rename a run that ended to the folder of its cell, unless a finished run is there."""
    if not inside.folder.is_dir():  # failed before it began
        return
    try:
        _relocate(inside.folder, (inside.folder,), cell.folder)
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        if cell.folder.is_dir() and not cell.is_finished():  # a run that failed, or was begun on one machine; copied
            with contextlib.suppress(FileNotFoundError):
                cell.folder.rename(inside.folder.with_name("before"))
        try:
            inside.folder.rename(cell.folder)
        except OSError:
            if not cell.is_finished():
                raise
    except OSError as error:
        raise ResourceError(f"{cell.folder}: cannot be written: {os_reason(error)}") from error


def clear(runs: Path, cell: Cell) -> None:
    """Delete the folders of all holders of a finished cell."""
    for folder in runs.glob("*"):
        if folder.name.rpartition(".")[0] == cell.name:
            shutil.rmtree(folder, ignore_errors=True)
