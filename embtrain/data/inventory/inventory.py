"""What each file of a corpus is: train, valid, test, a file of the reader's own, or passed over with a reason.

All tasks decide it here. In order: the patterns of SECTION.files, those of a recipe, then the name (`part_names`) and
the reader's suffixes (`Reads`). A file that the user names itself is read, whatever its name. Files that hold the same
part in two forms, or parts of two data sets, are refused with their names and the key that settles it.
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
from embtrain.data.formats.running_text import SNIFF, is_text
from embtrain.data.inventory import part_names
from embtrain.data.inventory.listing import ListedFile, list_files, open_files
from embtrain.data.inventory.name_lists import format_line, summarize, truncate
from embtrain.data.inventory.part_names import PARTS, Part
from embtrain.data.storage.containers import UNSUPPORTED, Source, base_name, digest, files, is_archive, without_packing

_NO_PART = "its name gives no part: train, valid or test"


class FilesConfig(Section):
    """Which files of a folder or archive are which part; patterns as `*.de` match a name or its path in the folder."""

    train: list[str] = Field([], description="patterns of the training files; others are then passed over")
    valid: list[str] = Field([], description="patterns of the validation files; [] : by their names")
    test: list[str] = Field([], description="patterns of the test files; [] : by their names")
    skip: list[str] = Field([], description="patterns of the files to pass over")


@dataclass(frozen=True)
class FileRules:
    """What a task reads of a folder."""

    section: str                            # of its settings: SECTION.files is the key that errors name
    description: str                        # what it looks for, in words
    verdict: Callable[[str], str]           # of a base name without packing: '' read, SNIFF if text, else why not
    role: Callable[[str], str] = lambda name: ""       # a role of the reader's own: entities, label names, ...
    form: Callable[[str], str] = part_names.form       # files of one part and equal form hold the same data twice
    stem: Callable[[str], str] = lambda name: name     # of a base name: what patterns match as well
    suffixes: tuple[tuple[str, Part], ...] = ()        # that give a part: .t in LIBSVM
    only_parts: bool = False                # a file whose name gives no part is passed over, if there are others
    single_data_set: bool = False           # its parts must be of one data set, without negatives
    alone: bool = False                     # a single file that the user names is for training, whatever its name
    parts_by_name: bool = True              # names are looked at; False: a recipe's files are all for training


@dataclass(frozen=True)
class FileEntry:
    """A file and what it is: a part, a role of the reader's own, or '' with the reason why it is passed over."""

    file: ListedFile
    part: str
    reason: str = ""
    by_name: bool = False   # the part is what the file's name says


@dataclass(frozen=True)
class Inventory:
    entries: tuple[FileEntry, ...]

    def sources(self, *parts: str) -> Iterator[tuple[Source, str]]:
        """The streams that are read, each with its part or role, in the order of the files; parts: only of those."""
        taken = [entry for entry in self.entries if entry.part and (not parts or entry.part in parts)]
        part = {entry.file.name: entry.part for entry in taken}
        for source in open_files(dict.fromkeys(entry.file.path for entry in taken), part):
            yield source, part[source.name]

    def paths(self) -> list[Path]:
        """The files on disk that hold what is read."""
        return list(dict.fromkeys(entry.file.path for entry in self.entries if entry.part))

    def without(self, *parts: str, reason: str) -> Inventory:
        """The same, with some parts passed over."""
        return Inventory(tuple(FileEntry(entry.file, "", reason) if entry.part in parts else entry
                               for entry in self.entries))

    def has(self, part: str) -> bool:
        return any(entry.part == part for entry in self.entries)

    def require_training(self, where: list[Path]) -> None:
        """DataError if every file is held out by its name."""
        if held := {entry.part for entry in self.entries if entry.part in PARTS} - {"train"}:
            if self.has("train"):
                return
            raise DataError(f"{where[0]}: is the {' and '.join(sorted(held))} part by its name, and there is none to "
                            "train on; to train on it, give it a name without that word; else name the folder of all "
                            "parts")

    def by_name(self, name: str) -> bool:
        """Whether the part of the file of that `Source.name` is what its own name says."""
        return any(entry.by_name for entry in self.entries if entry.file.name == name)

    def inside(self) -> dict[str, str]:
        """`Source.name` -> the path below what the user named, of every file that is read."""
        return {entry.file.name: entry.file.inside for entry in self.entries if entry.part}

    def content(self, where: list[Path]) -> str:
        """sha256 of what is read: of one file its own, of several that of the list of their names and hashes."""
        paths = set(self.paths())
        return digest([(name, path) for name, path in files(where, lambda name: True) if path in paths])

    def held_out(self) -> dict[str, str]:
        """The part or role of each file that is not for training, for the key of a cache."""
        return {entry.file.inside: entry.part for entry in self.entries if entry.part not in ("", "train")}

    def key(self) -> list[list[str]]:
        """The name and part of every file that is read, for the key of a cache."""
        return [[entry.file.inside, entry.part] for entry in self.entries if entry.part]

    def passed_over(self) -> dict[str, list[str]]:
        """The names of the files that are not read, by reason."""
        by_reason: dict[str, list[str]] = {}
        for entry in self.entries:
            if not entry.part:
                by_reason.setdefault(entry.reason, []).append(entry.file.inside)
        return by_reason

    def tree(self) -> dict[str, Any]:
        """For identity.json: names by part, and names by reason; at most 100 of each, then how many more."""
        parts: dict[str, list[str]] = {part: [] for part in PARTS}
        for entry in self.entries:
            if entry.part:
                parts.setdefault(entry.part, []).append(entry.file.inside)
        tree: dict[str, Any] = {part: truncate(names) for part, names in parts.items() if names}
        if passed := self.passed_over():
            tree["passed over"] = {reason: truncate(names) for reason, names in passed.items()}
        return tree

    def line(self) -> str:
        """One line that says which file is what; '' for a single file that the user named."""
        if len(self.entries) == 1 and self.entries[0].file.named:
            return ""
        return format_line(self.tree())


def build_inventory(where: list[Path], rules: FileRules, config: FilesConfig,
                    recipe_parts: Mapping[str, Sequence[str]] | None = None) -> Inventory:
    """What each file of `where` is.

    own: patterns of a recipe for held-out parts; its other files are for training, and names are not looked at.
    Raises DataError if nothing is left to train on, or files are doubled or of several data sets.
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
        return f"packed in a form that is not read; unpack it first: {tool}"
    return "an archive inside an archive" if is_archive(name) else rules.verdict(without_packing(name))


def _entry(file: ListedFile, rules: FileRules) -> FileEntry:
    """A file for training, unless its kind or its name says that it holds no data."""
    if role := rules.role(base_name(file.inside)):
        return FileEntry(file, role)
    if file.named:
        return FileEntry(file, "train")
    reason = part_names.no_data_reason(file.inside) if rules.parts_by_name else ""
    if not reason:
        reason = _verdict(rules, base_name(file.inside))
    if reason == SNIFF:
        reason = "" if is_text(file.head) else "no text in UTF-8"
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
                raise DataError(f"{where[0]}: should hold {pattern}, the part {part} of the recipe, and does not")
    return result


def _apply_names(entries: list[FileEntry], rules: FileRules) -> list[FileEntry]:
    """The parts that names give; samples, other forms and negatives are passed over."""
    if len(entries) == 1 and entries[0].file.named and rules.alone:
        return entries
    entries = list(entries)
    open_entries = [i for i, entry in enumerate(entries) if entry.part == "train"]
    if rules.single_data_set:
        for i in open_entries:
            if part_names.is_negatives(entries[i].file.inside):
                entries[i] = FileEntry(entries[i].file, "", "negatives; the trainer draws its own")
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
                                   f"another form of the part {part}, by {words[-1]!r} in its name")
        else:
            entries[i] = FileEntry(entries[i].file, part or "train", by_name=part is not None)
    return entries


def _apply_patterns(entries: list[FileEntry], config: FilesConfig, rules: FileRules) -> list[FileEntry]:
    """The patterns of the settings, which win over all else."""
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
    """The same without the second of two files that hold the same part in two forms. DataError if their content
    differs, for then they may be two texts or one text twice."""
    first: dict[tuple[str, str], FileEntry] = {}
    result = list(entries)
    for i, entry in enumerate(entries):
        if entry.part not in PARTS:
            continue
        earlier = first.setdefault((entry.part, rules.form(entry.file.inside)), entry)
        if earlier is entry:
            continue
        if _content(entry.file) != _content(earlier.file):
            raise DataError(f"{where[0]}: {earlier.file.inside} and {entry.file.inside} seem to hold one part in two "
                            f"forms; say which not to read: {_override_hint(rules, 'skip', entry.file.inside)}")
        result[i] = FileEntry(entry.file, "", f"the same content as {earlier.file.inside}")
    return result


def _content(file: ListedFile) -> str:
    """sha256 of the unpacked content."""
    digest = hashlib.sha256()
    for source in open_files([file.path], (file.name,)):
        while piece := source.stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _check(result: Inventory, rules: FileRules, where: list[Path]) -> None:
    """DataError if nothing is left to train on, or the parts are of several data sets."""
    if not any(entry.part for entry in result.entries):
        passed = "; ".join(f"{summarize(truncate(names))}: {reason}" for reason, names in result.passed_over().items())
        raise DataError(f"{where[0]}: holds no {rules.description}; passed over: {passed}; to read one of them all the "
                        f"same: {_override_hint(rules, 'train', result.entries[0].file.inside)}")
    for part in PARTS if rules.single_data_set else ():
        sets = {part_names.data_set(entry.file.inside): entry.file.inside for entry in result.entries
                if entry.part == part and entry.by_name}
        if len(sets) > 1:
            raise DataError(f"{where[0]}: holds the part {part} of {len(sets)} data sets: "
                            f"{summarize(truncate(sorted(sets.values())))}; name the folder of one of them, or the "
                            f"files that count: {_override_hint(rules, part, min(sets.values()))}")


def _override_hint(rules: FileRules, key: str, name: str) -> str:
    return f"--set {rules.section}.files.{key}='[\"{name}\"]'"
