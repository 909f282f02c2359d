"""The part of each file of a corpus: train, valid, test, a role of its reader, or skipped with a reason.

All tasks use this module. In order: the patterns of SECTION.files, those of a recipe, then the name (`part_names`) and
the reader's suffixes (`FileRules`). A file that the user names is read, whatever its name. Files with the same part in
two forms, or parts of two data sets, are rejected with their names and the key that resolves the conflict.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from embtrain.common.config import Section
from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats.running_text import SNIFF
from embtrain.data.inventory import part_names
from embtrain.data.inventory.listing import ListedFile, list_files, open_files
from embtrain.data.inventory.name_lists import format_line, summarize, truncate
from embtrain.data.inventory.part_names import PARTS, Part
from embtrain.data.storage.containers import UNSUPPORTED, Source, base_name, digest, files, is_archive, without_packing
from embtrain.data.storage.known_files import T, checked

_NO_PART = "its name contains no split: train, valid or test"


class FilesConfig(Section):
    """Patterns of the files of each part; `*.de` matches a name or its path in the folder."""

    train: list[str] = Field([], description="patterns of the training files, which exclude all others; []: by name")
    valid: list[str] = Field([], description="patterns of the validation files; []: by name")
    test: list[str] = Field([], description="patterns of the test files; []: by name")
    skip: list[str] = Field([], description="patterns of ignored files")


@dataclass(frozen=True)
class FileRules:
    """Rules by which a task selects and classifies files."""

    section: str                            # section of the settings: errors name the key SECTION.files
    description: str                        # of the files that are read, for errors
    verdict: Callable[[str], str]           # of a base name without packing: '' read, SNIFF if text, else why not
    role: Callable[[str], str] = lambda name: ""       # a role of the reader: entities, label names, ...
    form: Callable[[str], str] = part_names.form       # files of one part and equal form are duplicates
    stem: Callable[[str], str] = lambda name: name     # of a base name: patterns also match this
    suffixes: tuple[tuple[str, Part], ...] = ()        # suffixes that give a part: .t in LIBSVM
    only_parts: bool = False                # skip a file whose name gives no part, if there are others
    single_data_set: bool = False           # the parts must be of one data set, without negatives
    alone: bool = False                     # a single file that the user names is for training
    parts_by_name: bool = True              # False: names are ignored, all files are for training


@dataclass(frozen=True)
class FileEntry:
    """A file and its part: a part, a role of the reader, or '' with the reason why it is skipped."""

    file: ListedFile
    part: str
    reason: str = ""
    by_name: bool = False   # the part comes from the file's name


@dataclass(frozen=True)
class Inventory:
    """All files of a corpus, with their parts."""

    entries: tuple[FileEntry, ...]

    def sources(self, *parts: str) -> Iterator[tuple[Source, str]]:
        """Yield the streams that are read, each with its part or role, in file order; parts: only these."""
        taken = [entry for entry in self.entries if entry.part and (not parts or entry.part in parts)]
        part = {entry.file.name: entry.part for entry in taken}
        for source in open_files(dict.fromkeys(entry.file.path for entry in taken), part):
            yield source, part[source.name]

    def paths(self) -> list[Path]:
        """Return the files on disk from which the corpus is read."""
        return list(dict.fromkeys(entry.file.path for entry in self.entries if entry.part))

    def without(self, *parts: str, reason: str) -> Inventory:
        """Return a copy in which some parts are skipped."""
        return Inventory(tuple(FileEntry(entry.file, "", reason) if entry.part in parts else entry
                               for entry in self.entries))

    def has(self, part: str) -> bool:
        """Return whether a file has this part or role."""
        return any(entry.part == part for entry in self.entries)

    def require_training(self, where: list[Path]) -> None:
        """Raise DataError if every file is held out by its name."""
        held = {entry.part for entry in self.entries if entry.part in PARTS}
        if held and "train" not in held:
            raise DataError(f"{where[0]}: is the {' and '.join(sorted(held))} split by its name, and there is none to "
                            "train on; to train on it, give it a name without that word; else give the folder of all "
                            "splits")

    def by_name(self, name: str) -> bool:
        """Return whether the part of the file `Source.name` was decided by its own name."""
        return any(entry.by_name for entry in self.entries if entry.file.name == name)

    def inside(self) -> dict[str, str]:
        """Map `Source.name` to the path below what the user named, for every file that is read."""
        return {entry.file.name: entry.file.inside for entry in self.entries if entry.part}

    def content(self, where: list[Path]) -> str:
        """Return the sha256 of a single file, or of the list of names and hashes of several."""
        paths = set(self.paths())
        return digest([(name, path) for name, path in files(where, lambda name: True) if path in paths])

    def checked(self, read: Callable[..., T]) -> Callable[..., T]:
        """Return `read` with a check at its end: DataError if a file that is read has changed since it was listed."""
        return checked({entry.file.path: entry.file.version for entry in self.entries if entry.part}, read)

    def held_out(self) -> dict[str, str]:
        """Return the part or role of each file that is not for training, for a cache key."""
        return {entry.file.inside: entry.part for entry in self.entries if entry.part not in ("", "train")}

    def key(self) -> list[list[str]]:
        """Return the name and part of every file that is read, for a cache key."""
        return [[entry.file.inside, entry.part] for entry in self.entries if entry.part]

    def passed_over(self) -> dict[str, list[str]]:
        """Return the names of the skipped files, by reason."""
        by_reason: dict[str, list[str]] = {}
        for entry in self.entries:
            if not entry.part:
                by_reason.setdefault(entry.reason, []).append(entry.file.inside)
        return by_reason

    def tree(self) -> dict[str, Any]:
        """Return names by part and by reason for identity.json: at most 100 of each, then how many more."""
        parts: dict[str, list[str]] = {part: [] for part in PARTS}
        for entry in self.entries:
            if entry.part:
                parts.setdefault(entry.part, []).append(entry.file.inside)
        tree: dict[str, Any] = {part: truncate(names) for part, names in parts.items() if names}
        if passed := self.passed_over():
            tree["passed over"] = {reason: truncate(names) for reason, names in passed.items()}
        return tree

    def line(self) -> str:
        """Return one line that lists the files by part; '' for a single file that the user named."""
        return "" if len(self.entries) == 1 and self.entries[0].file.named else format_line(self.tree())


def build_inventory(where: list[Path], rules: FileRules, config: FilesConfig,
                    recipe_parts: Mapping[str, Sequence[str]] | None = None) -> Inventory:
    """Decide the part of each file of `where`.

    recipe_parts: patterns of held-out parts of a recipe; its other files are for training, and names are ignored.
    Raises DataError if nothing is left to train on, or files are duplicates or of several data sets.
    """
    listed = list_files(where, rules.description, lambda name: _verdict(rules, name) == SNIFF)
    entries = [_entry(file, rules) for file in listed]
    if recipe_parts is not None:
        entries = _apply_recipe(entries, recipe_parts, rules, where)
    elif rules.parts_by_name:
        entries = _apply_names(entries, rules)
    result = Inventory(tuple(_drop_duplicates(_apply_patterns(entries, config, rules), rules, where)))
    _check(result, rules, where)
    return result


def _verdict(rules: FileRules, name: str) -> str:
    if tool := UNSUPPORTED.get(Path(name).suffix.lower()):
        return f"compressed in an unsupported form; unpack it first: {tool}"
    return "an archive inside an archive" if is_archive(name) else rules.verdict(without_packing(name))


def _entry(file: ListedFile, rules: FileRules) -> FileEntry:
    """Return a training file, unless its kind or name shows that it contains no data."""
    if role := rules.role(base_name(file.inside)):
        return FileEntry(file, role)
    if file.named:
        return FileEntry(file, "train")
    reason = part_names.no_data_reason(file.inside) if rules.parts_by_name else ""
    if not reason:
        reason = _verdict(rules, base_name(file.inside))
    if reason == SNIFF:
        reason = "" if file.is_text else "not UTF-8 text"
    return FileEntry(file, "" if reason else "train", reason)


def _apply_recipe(entries: list[FileEntry], recipe_parts: Mapping[str, Sequence[str]], rules: FileRules,
                  where: list[Path]) -> list[FileEntry]:
    result = []
    for entry in entries:
        part = next((part for part, patterns in recipe_parts.items() if _matches(entry.file, patterns, rules)), "train")
        result.append(FileEntry(entry.file, part) if entry.part == "train" else entry)
    for part, patterns in recipe_parts.items():
        for pattern in patterns:
            if not any(entry.part == part and _matches(entry.file, [pattern], rules) for entry in result):
                raise DataError(f"{where[0]}: does not contain {pattern}, the {part} split of the recipe")
    return result


def _apply_names(entries: list[FileEntry], rules: FileRules) -> list[FileEntry]:
    """Apply the parts that names give; samples, other forms and negatives are skipped."""
    if len(entries) == 1 and entries[0].file.named and rules.alone:
        return entries
    entries = list(entries)
    open_entries = [i for i, entry in enumerate(entries) if entry.part == "train"]
    if rules.single_data_set:
        for i in open_entries:
            if part_names.is_negatives(entries[i].file.inside) and not entries[i].file.named:
                entries[i] = FileEntry(entries[i].file, "", "negatives; training draws its own")
        open_entries = [i for i in open_entries if entries[i].part]
    names = [entries[i].file.inside for i in open_entries]
    parts = [next((part for suffix, part in rules.suffixes if without_packing(name).endswith(suffix)), named_part)
             for name, named_part in zip(names, part_names.assign_parts(names), strict=True)]
    variants = [part_names.variant(name) for name in names]
    plainest = {part: min(len(v) for p, v in zip(parts, variants, strict=True) if p == part) for part in set(parts)}
    strict = "train" in parts or (rules.only_parts and (any(parts) or len(open_entries) > 1))
    for i, part, words in zip(open_entries, parts, variants, strict=True):
        if part is None and strict:
            entries[i] = FileEntry(entries[i].file, "", _NO_PART)
        elif part is not None and len(words) > plainest[part]:
            entries[i] = FileEntry(entries[i].file, "",
                                   f"another form of the {part} split, by {words[-1]!r} in its name")
        else:
            entries[i] = FileEntry(entries[i].file, part or "train", by_name=part is not None)
    return entries


def _apply_patterns(entries: list[FileEntry], config: FilesConfig, rules: FileRules) -> list[FileEntry]:
    """Apply the patterns of the settings, which take precedence over all else."""
    result = []
    for entry in entries:
        part = next((part for part in PARTS if _matches(entry.file, getattr(config, part), rules)), "")
        if _matches(entry.file, config.skip, rules):
            entry = FileEntry(entry.file, "", f"matches {rules.section}.files.skip")
        elif part:
            entry = FileEntry(entry.file, part)
        elif config.train and entry.part in PARTS:
            entry = FileEntry(entry.file, "", f"matches no pattern of {rules.section}.files")
        result.append(entry)
    for key in (*PARTS, "skip"):
        for pattern in getattr(config, key):
            if not any(_matches(entry.file, [pattern], rules) for entry in entries):
                raise UsageError(f"{rules.section}.files.{key}: {pattern!r} matches none of the {len(entries):,} files")
    return result


def _matches(file: ListedFile, patterns: Sequence[str], rules: FileRules) -> bool:
    name_alone = base_name(file.inside)
    names = (file.inside, name_alone, without_packing(name_alone), rules.stem(name_alone))
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _drop_duplicates(entries: list[FileEntry], rules: FileRules, where: list[Path]) -> list[FileEntry]:
    """Drop the second of two files with the same part in two forms; DataError if their contents differ."""
    first: dict[tuple[str, str], FileEntry] = {}
    result = list(entries)
    for i, entry in enumerate(entries):
        if entry.part not in PARTS:
            continue
        earlier = first.setdefault((entry.part, rules.form(entry.file.inside)), entry)
        if earlier is entry:
            continue
        if _content(entry.file) != _content(earlier.file):
            raise DataError(f"{where[0]}: {earlier.file.inside} and {entry.file.inside} seem to contain one split in "
                            f"two forms; choose the one to skip: {_override_hint(rules, 'skip', entry.file.inside)}")
        result[i] = FileEntry(entry.file, "", f"the same content as {earlier.file.inside}")
    return result


def _content(file: ListedFile) -> str:
    """Return the sha256 of the unpacked content."""
    digest = hashlib.sha256()
    for source in open_files([file.path], (file.name,)):
        while piece := source.stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _check(result: Inventory, rules: FileRules, where: list[Path]) -> None:
    """Raise DataError if nothing is left to train on, or the parts are of several data sets."""
    if not result.entries:
        raise DataError(f"{where[0]}: contains no {rules.description}; the archive is empty")
    if not any(entry.part for entry in result.entries):
        passed = "; ".join(f"{summarize(truncate(names))}: {reason}" for reason, names in result.passed_over().items())
        raise DataError(f"{where[0]}: contains no {rules.description}; skipped: {passed}; to read one of them anyway: "
                        f"{_override_hint(rules, 'train', result.entries[0].file.inside)}")
    for part in PARTS if rules.single_data_set else ():
        sets = {part_names.data_set(entry.file.inside): entry.file.inside for entry in result.entries
                if entry.part == part and entry.by_name}
        if len(sets) > 1:
            raise DataError(f"{where[0]}: contains the {part} split of {len(sets)} data sets: "
                            f"{summarize(truncate(sorted(sets.values())))}; give the folder of one of them, or choose "
                            f"the files: {_override_hint(rules, part, min(sets.values()))}")


def _override_hint(rules: FileRules, key: str, name: str) -> str:
    return f"--set {rules.section}.files.{key}='[\"{name}\"]'"
