"""Checks of the paths that a command writes, before it starts. None of them creates anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from embtrain.common.errors import EmbtrainError, ResourceError, UsageError

# Files of a run or of a comparison besides config.yaml, which a run writes first: without it they are not its own.
RUN_FILES = ("comparison.yaml", "identity.json", "metrics.jsonl", "checkpoints", "vectors.safetensors", "scores.json",
             "items.safetensors", "report.html", "report.md", "report.tex", "vocabulary.txt", "entities.txt",
             "relations.txt", "neighbours.json", "drift.json", "start.json", "corpus.safetensors", "answers.json",
             "parent.json", "sinks.json", "relations.safetensors", "subwords.safetensors", "concepts.txt", "labels.txt",
             "source.vocabulary.txt", "target.vocabulary.txt", "valid.translations.txt", "test.translations.txt",
             "examples.json", "mlflow.json", "best")
PACKERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}  # programs that write files with a suffix
RUN_FOLDERS = ("checkpoints", "best")  # those of RUN_FILES that are folders


def check_output_folder(folder: Path, flag: str = "--out") -> None:
    """Raise UsageError or ResourceError if the output folder cannot be created."""
    existing = existing_part(folder)
    subject = f"{existing} " if existing != folder else ""
    if not existing.is_dir():
        raise UsageError(f"{flag}: {folder}: {subject}is not a folder; choose another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ResourceError(f"{flag}: {folder}: {subject}is not writable; choose another")


def existing_part(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())


def check_kinds(kind: str, paths: Iterable[Path], user: str, flag: str = "", remedy: str = "") -> None:
    """Raise UsageError if one of the paths is a folder, or something else, where `user` needs a `kind`.

    For outputs of several files: an error at the last one would come after the work, and after the first was replaced.
    """
    for path in paths:
        if path.is_dir() if kind == "file" else os.path.lexists(path) and not path.is_dir():
            raise UsageError(f"{flag}{path}: is not a {kind}, and {user} needs a {kind} there; move it{remedy}")


def check_output_file(path: Path, flag: str = "--out", inputs: Iterable[str | os.PathLike[str]] = ()) -> Path:
    """Return the path of an output file, links resolved. Raises as the other functions here if it cannot be written.

    inputs: as in `check_replaced_file`. UsageError for the name of a packed file: no command writes one.
    """
    if path.is_dir():
        raise UsageError(f"{flag}: {path}: is a folder; give a file")
    path = resolve_output_link(path, flag)
    if packer := PACKERS.get(path.suffix.lower()):
        raise UsageError(f"{flag}: {path}: would not be packed, and readers unpack a file of this name; give "
                         f"{path.with_suffix('')}, then run {packer} on it")
    check_output_folder(path.parent, flag)
    check_replaced_file(path, flag, inputs)
    return path


def check_replaced_file(path: Path, flag: str = "--out", inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Raise UsageError if the output would replace a file of a run, or one that the command reads.

    inputs: files that the command reads, and folders whose files it reads; of a run its own files, and those that its
    settings name, for example its corpus. A link counts as the file that it names, and one that does not exist is
    ignored, because an input may be the name of a recipe.
    """
    if not path.is_file():
        return
    target = path.resolve()
    for folder in filter(is_run_folder, target.parents):
        if target.relative_to(folder).parts[0] in ("config.yaml", *RUN_FILES):
            raise UsageError(f"{flag}: {path}: is a file of a run; choose another name")
    for source in filter(os.path.exists, inputs):
        if os.path.samefile(path, source):
            raise UsageError(f"{flag}: {path}: is the file that the command reads; choose another name")
        if is_run_folder(Path(source)):
            if key := _key_with_file(Path(source), target):
                raise UsageError(f"{flag}: {path}: is or may be data of the run {os.fspath(source)} ({key}); choose "
                                 "another name")
        elif any(os.path.samefile(folder, source) for folder in target.parents):
            raise UsageError(f"{flag}: {path}: is a file of {os.fspath(source)}, which the command reads; choose "
                             "another name")


def _key_with_file(run: Path, target: Path) -> str:
    """Return the key of a run's settings whose file, folder or earlier run has the file `target`; '' if none has."""
    from embtrain.common.config.layers import read_yaml  # imported late: only an output that exists needs it

    try:
        settings = read_yaml(run / "config.yaml").tree
    except EmbtrainError:                                # the command itself reports it
        return ""
    for key, value in _texts(settings):
        if not os.path.isabs(value) or not os.path.exists(value):
            continue
        if os.path.samefile(value, target):
            return key
        if is_run_folder(Path(value)):
            if Path(value) != run and (earlier := _key_with_file(Path(value), target)):
                return f"{key}: {earlier}"
        elif any(os.path.samefile(folder, value) for folder in target.parents) and \
                _may_be_read(run, Path(value).resolve(), target):
            return key
    return ""


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of settings with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _may_be_read(run: Path, folder: Path, target: Path) -> bool:
    """Return whether a run may have read a file of a folder: not if identity.json lists others alone."""
    from embtrain.common.config.layers import read_yaml  # JSON is YAML, and files.py, which reads JSON, imports this

    try:
        parts = read_yaml(run / "identity.json").tree["corpus"]["files"]
        names = [name for part, names in parts.items() if part != "passed over" for name in names]
        listed = [(folder / name).resolve() for name in names]
    except (EmbtrainError, OSError, KeyError, TypeError, AttributeError):
        return True
    # A name that is not of a file is that of a member of an archive, or the number of further names.
    return target in listed or not listed or not all(path.is_file() for path in listed)


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is a run: runs are often stored next to their data, and are not data."""
    # os.path: False for a folder without permission, which its reader reports
    return all(os.path.isfile(folder / name) for name in ("config.yaml", "identity.json"))


def resolve_output_link(path: Path, flag: str = "--out") -> Path:
    """Return the path to write for `path`: the target of a link. Raises UsageError for a device, pipe or socket.

    Also for a link to an open file of a process, as /dev/stdout is one: the file would be replaced, not continued.
    """
    check_plain(path, f"{flag}: {path}", follow=True)
    link = path
    while link.is_symlink():                                 # a cycle has ended in `check_plain`
        if link.parent.resolve().is_relative_to("/proc"):
            raise UsageError(f"{flag}: {path}: is an open file of a process; give a regular file")
        link = link.parent / os.readlink(link)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_plain(path: Path, place: str, follow: bool) -> None:
    """Raise UsageError for a device, a pipe or a socket, which a rename would replace by a file."""
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise UsageError(f"{place}: is a device, a pipe or a socket; give a regular file")
