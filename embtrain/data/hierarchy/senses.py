"""The concepts that a word can mean.

`dog` means dog.n.01, dog.n.02 and so on: the name of a WordNet synset is a word, a part of speech and a number. A word
that a synset lists but is not named after (auto in car.n.01) means that synset too, if the hierarchy was read with its
words. Any other concept, or word of a text, has its own name as its only word. `_` equals a blank. A word is looked up
in its exact spelling, then in other cases only if that spelling is missing (embtrain/data/text/spelling.py).

File format in a run folder: word, TAB, concept, TAB, concept, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from embtrain.common.errors import DataError
from embtrain.common.files import write_text
from embtrain.data.hierarchy.files import ConceptsByWord, lines
from embtrain.data.text.spelling import Spellings

FILE = "senses.txt"
_SYNSET = re.compile(r"(.+)\.([nvasr])\.\d+")


class Senses:
    """Maps words to the concepts with the given names."""

    def __init__(self, names: Sequence[str], words: ConceptsByWord):
        self._pos, self._at = list[str](), dict[str, list[int]]()
        for i, name in enumerate(names):
            synset = _SYNSET.fullmatch(name)
            self._pos.append(synset[2].replace("s", "a") if synset else "")  # s: WordNet's adjective satellite
            concepts = self._at.setdefault(_spaced(synset[1] if synset else name), [])
            if synset or not concepts:
                concepts.append(i)
        for word, ids in words.items():
            concepts = self._at.setdefault(_spaced(word), [])
            concepts += [i for i in ids if i not in concepts]
        self._spellings = Spellings(list(self._at))

    def concepts_of(self, word: str, pos: str = "") -> list[int]:
        """Return the concept ids of a word; empty if it is unknown. With `pos` (n, v, a, r), drop ids of another part
        of speech."""
        row = self._spellings.find(_spaced(word))
        concepts = self._at[self._spellings.words[row]] if row >= 0 else []
        return [i for i in concepts if self._pos[i] in ("", pos)] if pos else concepts

    def note(self, words: Iterable[str]) -> str:
        """Return the part of a note that counts words found under another spelling; empty if there are none."""
        return self._spellings.note(_spaced(word) for word in words)


def _spaced(word: str) -> str:
    return word.replace("_", " ")


def write(path: Path, words: ConceptsByWord, names: Sequence[str]) -> None:
    """Write the concepts of each word, one word a line."""
    write_text(path, "".join("\t".join([word, *(names[i] for i in ids)]) + "\n" for word, ids in words.items()))


def read(path: Path, index: Mapping[str, int]) -> dict[str, list[int]]:
    """Read the file that `write` wrote, as word -> ids by `index`; empty if there is no file."""
    if not path.exists():
        return {}
    senses: dict[str, list[int]] = {}
    for number, line in lines(path):
        word, *concepts = line.split("\t")
        if not word or not concepts or not all(concept in index for concept in concepts):
            raise DataError(f"{path}:{number}: should be a word and concepts that have vectors, separated by TABs, got "
                            f"{line[:60]!r}")
        senses[word] = [index[concept] for concept in concepts]
    return senses
