"""Scans bytes of text into word types and ids, in plain Python.

A type is a distinct word as bytes, numbered by first appearance. Words end at blanks (WHITESPACE), at all but letters
(WORDS), or at a blank or line feed (VERBATIM). `scan` appends new types and returns the type id of each word, the line
ends and counts. kernels/text/scan.py documents the rules in full and runs this file if the compiled core is missing;
types, ids and line ends are equal.
"""

from __future__ import annotations

import re

import numpy as np

WHITESPACE, WORDS, VERBATIM = range(3)
_BLANK_WORDS = re.compile(rb"[^\0\t\n\x0b\x0c\r\x1c-\x1f ]+")
# U+2000 to U+203F without the joiners and direction marks U+200C to U+200F and U+202A to U+202E
_DASH = re.compile(rb"\xe2\x80[\x80-\x8b\x90-\xa9\xaf-\xbf]")
_RUNS = re.compile(rb"[A-Za-z\x80-\xff]+")
_SIGMA = "Σ".encode()
_DIGIT = re.compile(rb"[0-9]")
_JOINT = re.compile(rb"(?<=[0-9A-Za-z\x80-\xff])_(?=[0-9A-Za-z\x80-\xff])")


class ReferenceTypes:
    """Distinct words in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[bytes, bool], int] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def scan(self, data: bytes, mode: int, lower: bool, shortest: int, longest: int
             ) -> tuple[np.ndarray, np.ndarray, int, tuple[int, int, int, int]]:
        n_long = n_short = 0
        ids: list[int] = []
        ends: list[int] = []
        lines = re.split(rb"\n" if mode == VERBATIM else rb"[\r\n]", data)
        for line_number, line in enumerate(lines, 1):
            for word in _words(line, mode, lower):
                foreign = mode != VERBATIM and not word.isascii()
                if foreign or mode != WORDS or shortest <= len(word) <= longest:
                    key = word if foreign or not lower else word.lower(), foreign
                    ids.append(self.numbers.setdefault(key, len(self.numbers)))
                elif len(word) < shortest:
                    n_short += len(word)
                else:
                    n_long += len(word)
            if line_number < len(lines) and len(ids) > (ends[-1] if ends else -1):
                ends.append(len(ids))
        nul = 0 if mode == VERBATIM else data.count(b"\0")
        n_digits, n_joints = (len(pattern.findall(data)) if mode == WORDS else 0 for pattern in (_DIGIT, _JOINT))
        return (np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int64), nul,
                (n_digits, n_joints, n_long, n_short))

    def since(self, number: int) -> tuple[list[bytes], np.ndarray]:
        new = list(self.numbers)[number:]
        return [word for word, _ in new], np.array([foreign for _, foreign in new], dtype=bool)


def _words(line: bytes, mode: int, lower: bool) -> list[bytes]:
    if mode == VERBATIM:
        return [word for word in line.split(b" ") if word]
    pattern = _BLANK_WORDS.findall(line)
    if mode == WHITESPACE:
        return pattern
    runs = ([word] if lower and _SIGMA in word else _RUNS.findall(_DASH.sub(b" ", word)) for word in pattern)
    return [run for run_list in runs for run in run_list]


def expand(types: np.ndarray, ends: np.ndarray, ids: np.ndarray, start: np.ndarray, word: np.ndarray,
           counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    replaced = [[i] if i >= 0 else word[start[-1 - i]:start[-i]].tolist() for i in ids[types].tolist()]
    flat = np.array([i for words in replaced for i in words], dtype=np.int32)
    np.add.at(counts, flat, 1)
    upto = np.concatenate([[0], np.cumsum([len(words) for words in replaced])]).astype(np.int64)
    return flat, upto[ends]


def renumber(ids: np.ndarray, sequence: np.ndarray, new_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    new = new_ids[ids[sequence[0]:sequence[-1]]]
    kept = new >= 0
    upto = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return new[kept], np.diff(upto[sequence - sequence[0]])
