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
from embtrain.data.inventory.listing import Listed, chosen, listing
from embtrain.data.inventory.name_lists import first_of, in_words, line_of
from embtrain.data.inventory.part_names import PARTS, Part
from embtrain.data.storage.containers import UNREAD, Source, base, digest, files, is_archive, without_packing

_NO_PART = "its name gives no part: train, valid or test"


class FilesConfig(Section):
    """Which files of a folder or archive are which part; patterns as `*.de` match a name or its path in the folder."""

    train: list[str] = Field([], description="patterns of the training files; others are then passed over")
    valid: list[str] = Field([], description="patterns of the validation files; [] : by their names")
    test: list[str] = Field([], description="patterns of the test files; [] : by their names")
    skip: list[str] = Field([], description="patterns of the files to pass over")


@dataclass(frozen=True)
class Reads:
    """What a task reads of a folder."""

    section: str                            # of its settings: SECTION.files is the key that errors name
    of: str                                 # what it looks for, in words
    verdict: Callable[[str], str]           # of a base name without packing: '' read, SNIFF if text, else why not
    role: Callable[[str], str] = lambda name: ""       # a role of the reader's own: entities, label names, ...
    form: Callable[[str], str] = part_names.form       # files of one part and equal form hold the same data twice
    stem: Callable[[str], str] = lambda name: name     # of a base name: what patterns match as well
    suffixes: tuple[tuple[str, Part], ...] = ()        # that give a part: .t in LIBSVM
    only_parts: bool = False                # a file whose name gives no part is passed over, if there are others
    one_set: bool = False                   # its parts must be of one data set, without negatives
    alone: bool = False                     # a single file that the user names is for training, whatever its name
    guess: bool = True                      # names are looked at; False: a recipe's files are all for training


@dataclass(frozen=True)
class Entry:
    """A file and what it is: a part, a role of the reader's own, or '' with the reason why it is passed over."""

    file: Listed
    part: str
    reason: str = ""
    by_name: bool = False   # the part is what the file's name says


@dataclass(frozen=True)
class Inventory:
    entries: tuple[Entry, ...]

    def sources(self, *parts: str) -> Iterator[tuple[Source, str]]:
        """The streams that are read, each with its part or role, in the order of the files; parts: only of those."""
        taken = [entry for entry in self.entries if entry.part and (not parts or entry.part in parts)]
        part = {entry.file.name: entry.part for entry in taken}
        for source in chosen(dict.fromkeys(entry.file.path for entry in taken), part):
            yield source, part[source.name]

    def paths(self) -> list[Path]:
        """The files on disk that hold what is read."""
        return list(dict.fromkeys(entry.file.path for entry in self.entries if entry.part))

    def without(self, *parts: str, reason: str) -> Inventory:
        """The same, with some parts passed over."""
        return Inventory(tuple(Entry(entry.file, "", reason) if entry.part in parts else entry
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
        found: dict[str, list[str]] = {}
        for entry in self.entries:
            if not entry.part:
                found.setdefault(entry.reason, []).append(entry.file.inside)
        return found

    def tree(self) -> dict[str, Any]:
        """For identity.json: names by part, and names by reason; at most 100 of each, then how many more."""
        parts: dict[str, list[str]] = {part: [] for part in PARTS}
        for entry in self.entries:
            if entry.part:
                parts.setdefault(entry.part, []).append(entry.file.inside)
        tree: dict[str, Any] = {part: first_of(names) for part, names in parts.items() if names}
        if passed := self.passed_over():
            tree["passed over"] = {reason: first_of(names) for reason, names in passed.items()}
        return tree

    def line(self) -> str:
        """One line that says which file is what; '' for a single file that the user named."""
        if len(self.entries) == 1 and self.entries[0].file.named:
            return ""
        return line_of(self.tree())


def take(where: list[Path], reads: Reads, config: FilesConfig, own: Mapping[str, Sequence[str]] | None = None
         ) -> Inventory:
    """What each file of `where` is.

    own: patterns of a recipe for held-out parts; its other files are for training, and names are not looked at.
    Raises DataError if nothing is left to train on, or files are doubled or of several data sets.
    """
    entries = [_entry(file, reads) for file in listing(where, reads.of, lambda name: _verdict(reads, name) == SNIFF)]
    if own is not None:
        entries = _of_recipe(entries, own, reads, where)
    elif reads.guess:
        entries = _by_name(entries, reads)
    found = Inventory(tuple(_once(_by_pattern(entries, config, reads), reads, where)))
    _check(found, reads, where)
    return found


def _verdict(reads: Reads, name: str) -> str:
    if tool := UNREAD.get(Path(name).suffix.lower()):
        return f"packed in a form that is not read; unpack it first: {tool}"
    return "an archive inside an archive" if is_archive(name) else reads.verdict(without_packing(name))


def _entry(file: Listed, reads: Reads) -> Entry:
    """A file for training, unless its kind or its name says that it holds no data."""
    if role := reads.role(base(file.inside)):
        return Entry(file, role)
    if file.named:
        return Entry(file, "train")
    reason = part_names.no_data(file.inside) if reads.guess else ""
    if not reason:
        reason = _verdict(reads, base(file.inside))
    if reason == SNIFF:
        reason = "" if is_text(file.head) else "no text in UTF-8"
    return Entry(file, "" if reason else "train", reason)


def _of_recipe(entries: list[Entry], own: Mapping[str, Sequence[str]], reads: Reads, where: list[Path]
               ) -> list[Entry]:
    found = []
    for entry in entries:
        part = next((part for part, patterns in own.items() if _matches(entry.file, patterns, reads)), "train")
        found.append(Entry(entry.file, part) if entry.part == "train" else entry)
    for part, patterns in own.items():
        for pattern in patterns:
            if not any(entry.part == part and _matches(entry.file, [pattern], reads) for entry in found):
                raise DataError(f"{where[0]}: should hold {pattern}, the part {part} of the recipe, and does not")
    return found


def _by_name(entries: list[Entry], reads: Reads) -> list[Entry]:
    """The parts that names give; samples, other forms and negatives are passed over."""
    if len(entries) == 1 and entries[0].file.named and reads.alone:
        return entries
    entries = list(entries)
    at = [i for i, entry in enumerate(entries) if entry.part == "train"]
    if reads.one_set:
        for i in at:
            if part_names.negatives(entries[i].file.inside):
                entries[i] = Entry(entries[i].file, "", "negatives; the trainer draws its own")
        at = [i for i in at if entries[i].part]
    names = [entries[i].file.inside for i in at]
    parts = [next((part for suffix, part in reads.suffixes if without_packing(name).endswith(suffix)), found)
             for name, found in zip(names, part_names.parts_of(names), strict=True)]
    variants = [part_names.variant(name) for name in names]
    plainest = {part: min(len(v) for p, v in zip(parts, variants, strict=True) if p == part) for part in set(parts)}
    strict = "train" in parts or (reads.only_parts and (any(parts) or len(at) > 1))
    for i, part, words in zip(at, parts, variants, strict=True):
        if part is None and strict:
            entries[i] = Entry(entries[i].file, "", _NO_PART)
        elif part is not None and len(words) > plainest[part]:
            entries[i] = Entry(entries[i].file, "", f"another form of the part {part}, by {words[-1]!r} in its name")
        else:
            entries[i] = Entry(entries[i].file, part or "train", by_name=part is not None)
    return entries


def _by_pattern(entries: list[Entry], config: FilesConfig, reads: Reads) -> list[Entry]:
    """The patterns of the settings, which win over all else."""
    found = []
    for entry in entries:
        part = next((part for part in PARTS if _matches(entry.file, getattr(config, part), reads)), "")
        if _matches(entry.file, config.skip, reads):
            entry = Entry(entry.file, "", f"matches {reads.section}.files.skip")
        elif part:
            entry = Entry(entry.file, part)
        elif config.train and entry.part in PARTS:
            entry = Entry(entry.file, "", f"matches no pattern of {reads.section}.files")
        found.append(entry)
    for key in (*PARTS, "skip"):
        for pattern in getattr(config, key):
            if not any(_matches(entry.file, [pattern], reads) for entry in entries):
                raise UsageError(f"{reads.section}.files.{key}: {pattern!r} matches none of the {len(entries):,} files")
    return found


def _matches(file: Listed, patterns: Sequence[str], reads: Reads) -> bool:
    own = base(file.inside)
    names = (file.inside, own, without_packing(own), reads.stem(own))
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _once(entries: list[Entry], reads: Reads, where: list[Path]) -> list[Entry]:
    """The same without the second of two files that hold the same part in two forms. DataError if their content
    differs, for then they may be two texts or one text twice."""
    first: dict[tuple[str, str], Entry] = {}
    found = list(entries)
    for i, entry in enumerate(entries):
        if entry.part not in PARTS:
            continue
        other = first.setdefault((entry.part, reads.form(entry.file.inside)), entry)
        if other is entry:
            continue
        if _content(entry.file) != _content(other.file):
            raise DataError(f"{where[0]}: {other.file.inside} and {entry.file.inside} seem to hold one part in two "
                            f"forms; say which not to read: {_set(reads, 'skip', entry.file.inside)}")
        found[i] = Entry(entry.file, "", f"the same content as {other.file.inside}")
    return found


def _content(file: Listed) -> str:
    """sha256 of the unpacked content."""
    digest = hashlib.sha256()
    for source in chosen([file.path], (file.name,)):
        while piece := source.stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _check(found: Inventory, reads: Reads, where: list[Path]) -> None:
    """DataError if nothing is left to train on, or the parts are of several data sets."""
    if not any(entry.part for entry in found.entries):
        passed = "; ".join(f"{in_words(first_of(names))}: {reason}" for reason, names in found.passed_over().items())
        raise DataError(f"{where[0]}: holds no {reads.of}; passed over: {passed}; to read one of them all the same: "
                        f"{_set(reads, 'train', found.entries[0].file.inside)}")
    for part in PARTS if reads.one_set else ():
        sets = {part_names.data_set(entry.file.inside): entry.file.inside for entry in found.entries
                if entry.part == part and entry.by_name}
        if len(sets) > 1:
            raise DataError(f"{where[0]}: holds the part {part} of {len(sets)} data sets: "
                            f"{in_words(first_of(sorted(sets.values())))}; name the folder of one of them, or the "
                            f"files that count: {_set(reads, part, min(sets.values()))}")


def _set(reads: Reads, key: str, name: str) -> str:
    return f"--set {reads.section}.files.{key}='[\"{name}\"]'"
