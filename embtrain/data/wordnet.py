"""WordNet's nouns from its database files, as Princeton and Debian's wordnet-base install them, and as NLTK keeps them.

    data.noun    offset lex_file n w_cnt word lex_id ... p_cnt symbol offset pos source/target ... | gloss
    index.noun   lemma n synset_cnt p_cnt symbol ... sense_cnt tagsense_cnt offset ...

The pointers `@` (hypernym) and `@i` (instance of) make the pairs. A synset is named as in NLTK: first word in lower
case, part of speech, number of the sense (the place of its offset in the word's line of index.noun): dog.n.01.
wndb(5WN) describes both files; their licence stands in lines that begin with two blanks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from embtrain.data.containers import fingerprint
from embtrain.data.pair_files import Pairs, Words, lines
from embtrain.errors import DataError

DATA, INDEX = "data.noun", "index.noun"
UP = ("@", "@i")


def is_database(folder: Path) -> bool:
    return (folder / DATA).is_file()


def content(folder: Path) -> str:
    """The sha256 of the two files."""
    return fingerprint([folder / DATA, folder / INDEX], lambda name: True)


def read(folder: Path) -> Pairs:
    """Every noun synset in the order of the file, its direct hypernyms, and the synsets of every word. DataError names
    file and line."""
    senses = _senses(folder / INDEX)
    names, at = list[str](), dict[str, int]()                          # by offset
    above: list[tuple[int, str, int]] = []                             # hyponym, offset of the hypernym, line
    path = folder / DATA
    for number, line in lines(path):
        if line.startswith("  "):
            continue
        offset, word, up = _synset(line, f"{path}:{number}")
        if offset in at:
            raise DataError(f"{path}:{number}: the offset {offset} stands there twice")
        if offset not in senses.get(word, ()):
            raise DataError(f"{path}:{number}: {word!r} at {offset} is no sense of that word in {INDEX}: the two files "
                            "are of different versions, or one was changed")
        at[offset] = len(names)
        above += [(len(names), other, number) for other in up]
        names.append(f"{word}.n.{senses[word].index(offset) + 1:02d}")
    pairs = []
    for u, other, number in above:
        if other not in at:
            raise DataError(f"{path}:{number}: points to {other}, where no noun is: the file is cut short")
        pairs.append((u, at[other]))
    if not pairs:
        raise DataError(f"{path}: holds no hypernyms")
    return Pairs(names, np.array(pairs, np.int64), words=_words(senses, at, folder))


def _words(senses: dict[str, list[str]], at: dict[str, int], folder: Path) -> Words:
    for word, offsets in senses.items():
        if lacking := [offset for offset in offsets if offset not in at]:
            raise DataError(f"{folder / INDEX}: {word!r} is said to stand at {lacking[0]}, where {DATA} has no noun: "
                            "the two files are of different versions, or one was cut short")
    return {word: [at[offset] for offset in offsets] for word, offsets in senses.items()}


def _synset(line: str, where: str) -> tuple[str, str, list[str]]:
    """Offset, first word, and the offsets of the hypernyms."""
    fields = line.partition(" | ")[0].split()
    try:
        offset, kind, n_words = fields[0], fields[2], int(fields[3], 16)
        word, begin = fields[4].lower(), 5 + 2 * n_words
        n_up = int(fields[begin - 1])
    except (IndexError, ValueError) as error:
        raise DataError(f"{where}: is no synset of WordNet, got {line[:60]!r}") from error
    if kind != "n" or n_words < 1 or n_up < 0 or len(fields) != begin + 4 * n_up or not offset.isdigit():
        raise DataError(f"{where}: is no noun synset of WordNet: words and pointers are not as many as it says, "
                        f"got {line[:60]!r}")
    pointers = (fields[i:i + 4] for i in range(begin, len(fields), 4))
    return offset, word, [p[1] for p in pointers if p[0] in UP and p[2] == "n"]


def _senses(path: Path) -> dict[str, list[str]]:
    """The offsets of each lemma's senses, in their order."""
    found: dict[str, list[str]] = {}
    for number, line in lines(path):
        if line.startswith("  "):
            continue
        fields = line.split()
        try:
            n = int(fields[2])
            at = 4 + int(fields[3]) + 2
        except (IndexError, ValueError) as error:
            raise DataError(f"{path}:{number}: is no line of WordNet's index, got {line[:60]!r}") from error
        if n < 1 or at < 6 or len(fields) != at + n or fields[0] in found:
            raise DataError(f"{path}:{number}: should name {n} offsets of one lemma that stands there once, "
                            f"got {line[:60]!r}")
        found[fields[0]] = fields[at:]
    return found
