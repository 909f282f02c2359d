"""Reads Open English WordNet's nouns from its YAML source, from a folder or an archive.

    noun.*.yaml      00001740-n:              a synset; below it `members`, its words, and `hypernym` or
                       hypernym:              `instance_hypernym`, each a list
                       - 00001930-n
    entries-*.yaml   dog:                     a word; below it its parts of speech (n, or n-1, n-2 of homographs),
                       n:                     and for each its senses in order
                         sense:
                         - id: ...
                           synset: 02086723-n

Synsets are named as in NLTK: first word in lower case, part of speech, sense number: dog.n.01. Words that differ only
in case are merged. The files are machine-written, so only the lines above are parsed, one at a time; nothing in them
can be expanded or nested. globalwordnet/english-wordnet describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.hierarchy.files import RawHierarchy
from embtrain.data.storage.containers import base_name, sources
from embtrain.data.storage.lines import read_nonblank_lines

UP = ("hypernym", "instance_hypernym")
_NOUNS, _ENTRIES = re.compile(r"noun\.\w+\.yaml"), re.compile(r"entries-\w+\.yaml")
_SYNSET = re.compile(r"[0-9]{8}-n")
_KIND = re.compile(r"([a-z])(-[0-9]+)?")


def is_source_file(name: str) -> bool:
    """Return whether a file name is one of the two kinds of source files."""
    return bool(_NOUNS.fullmatch(name) or _ENTRIES.fullmatch(name))


def is_source(where: list[Path]) -> bool:
    """Return whether `where` is one folder with noun files, or one archive that contains some."""
    if len(where) != 1:
        return False
    if where[0].is_dir():
        return any(_NOUNS.fullmatch(path.name) for path in where[0].rglob("noun.*.yaml"))
    return any(_NOUNS.fullmatch(base_name(source.name)) for source in sources(where, is_source_file))


def read(where: list[Path]) -> RawHierarchy:
    """Read every noun synset in file order, its hypernyms, and each word's synsets. DataError names file and line."""
    first, above, senses = dict[str, str](), list[tuple[str, str, str]](), dict[str, list[str]]()
    for source in sources(where, is_source_file):
        lines = read_nonblank_lines(source)
        if _NOUNS.fullmatch(base_name(source.name)):
            _synsets(lines, source.name, first, above)
        else:
            _senses(lines, source.name, senses)
    if not first or not above:
        raise DataError(f"{where[0]}: contains no noun.*.yaml with hypernyms, as in the source of Open English WordNet")
    id_of = {synset: i for i, synset in enumerate(first)}
    for _, target, place in above:
        if target not in id_of:
            raise DataError(f"{place}: points to {target}, which is not a noun: a file of nouns is missing")
    names = []
    for synset, word in first.items():
        synsets = senses.get(word, [])
        if synset not in synsets:
            raise DataError(f"{where[0]}: {word!r} of {synset} is not a sense of that word in entries-*.yaml: the "
                            "files are of different versions, or one is missing")
        names.append(f"{word}.n.{synsets.index(synset) + 1:02d}")
    words = {
        word: [id_of[synset] for synset in synsets]
        for word, synsets in senses.items()
        if all(s in id_of for s in synsets)
    }
    if len(words) < len(senses):
        lost = next(word for word in senses if word not in words)
        raise DataError(f"{where[0]}: {lost!r} is in a synset that no noun.*.yaml contains: a file is missing")
    return RawHierarchy(
        names, np.array([(id_of[synset], id_of[target]) for synset, target, _ in above], np.int64), words=words
    )


def _synsets(lines: Iterator[tuple[int, str]], name: str, first: dict[str, str],
             above: list[tuple[str, str, str]]) -> None:
    """Add the first word of each synset to `first`, and (synset, hypernym, file:line) to `above`."""
    synset, key = "", ""
    for number, line in lines:
        if line[0] != " ":
            synset, key = _key(line, f"{name}:{number}"), ""
            if not _SYNSET.fullmatch(synset) or synset in first:
                raise DataError(f"{name}:{number}: should be a noun's synset that occurs once, like 02086723-n:, got "
                                f"{line[:60]!r}")
            first[synset] = ""
        elif line[:2] == "  " and line[2:3] not in (" ", "-"):
            key = line.strip().partition(":")[0]
        elif line.startswith("  - ") and key == "members":
            first[synset] = first[synset] or _folded(_scalar(line[4:], f"{name}:{number}"))
        elif line.startswith("  - ") and key in UP:
            if not _SYNSET.fullmatch(target := _scalar(line[4:], f"{name}:{number}")) or not synset:
                raise DataError(f"{name}:{number}: should be the synset of a noun, got {line[:60]!r}")
            above.append((synset, target, f"{name}:{number}"))
    if lacking := next((synset for synset, word in first.items() if not word), None):
        raise DataError(f"{name}: {lacking} has no members")


def _senses(lines: Iterator[tuple[int, str]], name: str, senses: dict[str, list[str]]) -> None:
    """Add the noun synsets of each word to `senses`, in the order of its senses."""
    word, noun = "", False
    for number, line in lines:
        if line[0] != " ":
            word, noun = _folded(_key(line, f"{name}:{number}")), False
        elif line[:2] == "  " and line[2:3] != " ":
            kind = _KIND.fullmatch(_key(line[2:], f"{name}:{number}"))
            if kind is None or not word:
                raise DataError(f"{name}:{number}: should be a part of speech, like n:, got {line[:60]!r}")
            noun = kind[1] == "n"
        elif noun and line.startswith(("    - synset: ", "      synset: ")):
            synset = _scalar(line[14:], f"{name}:{number}")
            if not _SYNSET.fullmatch(synset):
                raise DataError(f"{name}:{number}: should be the synset of a noun, got {line[:60]!r}")
            synsets = senses.setdefault(word, [])
            if synset not in synsets:                             # Dog and dog can be in the same synset
                synsets.append(synset)


def _key(line: str, place: str) -> str:
    if not line.endswith(":"):
        raise DataError(f"{place}: should be a key that ends in a colon, got {line[:60]!r}")
    return _scalar(line[:-1], place)


def _scalar(text: str, place: str) -> str:
    """Return a plain or single-quoted scalar ('' is an escaped quote). The files use no other YAML scalars."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "'" and "'" not in text[1:-1].replace("''", ""):
        text = text[1:-1].replace("''", "'")
    elif not text or text[0] in "'\"&*!|>{}[]%@`,?#":
        raise DataError(f"{place}: should be a word, in single quotes or none, got {text[:60]!r}")
    if "\t" in text:
        raise DataError(f"{place}: a word contains a TAB: {text[:60]!r}")
    return text


def _folded(word: str) -> str:
    return word.lower().replace(" ", "_")
