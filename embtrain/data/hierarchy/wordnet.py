"""Reads WordNet's nouns from its database files, from a folder or an archive (Princeton, Debian's wordnet-base,
NLTK).

    data.noun    offset lex_file n w_cnt word lex_id ... p_cnt symbol offset pos source/target ... | gloss
    index.noun   lemma n synset_cnt p_cnt symbol ... sense_cnt tagsense_cnt offset ...

The pointers `@` (hypernym) and `@i` (instance of) are the pairs. Synsets are named as in NLTK: first word in lower
case, part of speech, sense number (the position of its offset in the word's line of index.noun): dog.n.01. wndb(5WN)
describes both files; lines that begin with two blanks contain their licence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.hierarchy.files import ConceptsByWord, RawHierarchy
from embtrain.data.storage.containers import base_name, sources
from embtrain.data.storage.lines import read_nonblank_lines

DATA, INDEX = "data.noun", "index.noun"
UP = ("@", "@i")


def is_database(where: list[Path]) -> bool:
    """Return whether `where` is one folder with data.noun, or one archive with it, e.g. NLTK's wordnet.zip."""
    if len(where) != 1:
        return False
    if where[0].is_dir():
        return (where[0] / DATA).is_file()
    return any(base_name(source.name) == DATA for source in sources(where, lambda name: base_name(name) == DATA))


def paths(where: Path) -> list[Path]:
    """Return the two files, or their archive."""
    return [where / DATA, where / INDEX] if where.is_dir() else [where]


def read(where: Path) -> RawHierarchy:
    """Read every noun synset in file order, its direct hypernyms, and the synsets of each word. DataError names file
    and line."""
    senses = _senses(where)
    names, id_of = list[str](), dict[str, int]()                          # id by offset
    above: list[tuple[int, str, str]] = []                             # hyponym, offset of the hypernym, file:line
    for place, line in _lines(where, DATA):
        if line.startswith("  "):
            continue
        offset, word, up = _synset(line, place)
        if offset in id_of:
            raise DataError(f"{place}: the offset {offset} occurs twice")
        if offset not in senses.get(word, ()):
            raise DataError(f"{place}: {word!r} at {offset} is not a sense of that word in {INDEX}: the two files are "
                            "of different versions, or one was changed; fetch them again")
        id_of[offset] = len(names)
        above += [(len(names), target, place) for target in up]
        names.append(f"{word}.n.{senses[word].index(offset) + 1:02d}")
    pairs = []
    for u, target, place in above:
        if target not in id_of:
            raise DataError(f"{place}: points to {target}, which is not a noun: the file is truncated; fetch it again")
        pairs.append((u, id_of[target]))
    if not pairs:
        raise DataError(f"{where}: {DATA} contains no hypernyms")
    return RawHierarchy(names, np.array(pairs, np.int64), words=_words(senses, id_of, where))


def _words(senses: dict[str, list[str]], id_of: dict[str, int], where: Path) -> ConceptsByWord:
    for word, offsets in senses.items():
        if lacking := [offset for offset in offsets if offset not in id_of]:
            raise DataError(f"{where}: {INDEX}: {word!r} refers to {lacking[0]}, where {DATA} has no noun: the two "
                            "files are of different versions, or one is truncated; fetch them again")
    return {word: [id_of[offset] for offset in offsets] for word, offsets in senses.items()}


def _synset(line: str, where: str) -> tuple[str, str, list[str]]:
    """Return offset, first word, and the offsets of the hypernyms."""
    fields = line.partition(" | ")[0].split()
    try:
        offset, kind, n_words = fields[0], fields[2], int(fields[3], 16)
        word, begin = fields[4].lower(), 5 + 2 * n_words
        n_up = int(fields[begin - 1])
    except (IndexError, ValueError) as error:
        raise DataError(f"{where}: is not a synset of WordNet, got {line[:60]!r}") from error
    if kind != "n" or n_words < 1 or n_up < 0 or len(fields) != begin + 4 * n_up or not offset.isdigit():
        raise DataError(f"{where}: is not a noun synset of WordNet: its numbers of words and pointers are wrong, got "
                        f"{line[:60]!r}")
    pointers = (fields[i:i + 4] for i in range(begin, len(fields), 4))
    return offset, word, [p[1] for p in pointers if p[0] in UP and p[2] == "n"]


def _senses(where: Path) -> dict[str, list[str]]:
    """Return the sense offsets of each lemma, in order."""
    senses: dict[str, list[str]] = {}
    for place, line in _lines(where, INDEX):
        if line.startswith("  "):
            continue
        fields = line.split()
        try:
            n = int(fields[2])
            first_offset = 4 + int(fields[3]) + 2
        except (IndexError, ValueError) as error:
            raise DataError(f"{place}: is not a line of WordNet's index, got {line[:60]!r}") from error
        if n < 1 or first_offset < 6 or len(fields) != first_offset + n or fields[0] in senses:
            raise DataError(f"{place}: should contain {n} offsets of one lemma that occurs once, got {line[:60]!r}")
        senses[fields[0]] = fields[first_offset:]
    return senses


def _lines(where: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (file:line, line) of the database file `name`."""
    first_name = ""
    for source in sources([where / name if where.is_dir() else where], lambda path: base_name(path) == name):
        if base_name(source.name) != name:
            continue
        if first_name:
            raise DataError(
                f"{where}: contains {first_name} and {source.name}; unpack it, and give the folder of one of them"
            )
        first_name = source.name
        for number, line in read_nonblank_lines(source):
            yield f"{first_name}:{number}", line
    if not first_name:
        raise DataError(f"{where}: contains no {name}, but {DATA} and {INDEX} are needed together; give the folder or "
                        "the archive that contains both")
