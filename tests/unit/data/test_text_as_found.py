"""Unusual text from the command line: barely text, and other scripts."""

from __future__ import annotations

import gzip
import random
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from helpers.cores import CORES, using

from embtrain import cli
from embtrain.data.text.corpus import TextConfig, load

ALL = TextConfig(min_count=1, valid=0, test=0)
LITTLE = ["--dry-run", "--quiet", "--threads", "1", "--negatives", "sgns", "--set", "model.dim=4"]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Return the end of a dry run over a file of these bytes: exit code, and stderr."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))

    def planned(content: bytes, *sets: str) -> tuple[int, str]:
        (tmp_path / "x.txt").write_bytes(content)
        keys = [word for key in sets for word in ("--set", key)]
        monkeypatch.setattr(sys, "argv", ["embtrain", "fit", *LITTLE, "--corpus", str(tmp_path / "x.txt"), *keys])
        return cli.run(), capsys.readouterr().err
    return planned


LINES = b"the cat sat on the mat and the dog sat too\n" * 40
PACKED = gzip.compress(LINES, mtime=0)  # the clock must have no part in a test's name


@pytest.mark.parametrize("content", [
    b"", b"\n" * 1000, b"\0" * 10, b"\xef\xbb\xbf", b"1 2 3", b"\r\n \t", b"\xff" * 500, PACKED[:-9],
    b"word", b"word\n" * 50, b"a b c d e f g h i j\n",                     # one word; all of them rare
    LINES.replace(b"cat", b"\xff\xfe"[:1] + b"at").decode("latin-1").encode("utf-16")])
def test_text_without_information_is_rejected_in_one_line(plan, content: bytes) -> None:
    code, stderr = plan(content)
    assert code in (2, 3) and "Traceback" not in stderr, stderr
    lines = [line for line in stderr.splitlines() if line.startswith("embtrain: error: ")]
    assert len(lines) == 1 and ("x.txt" in lines[0] or "min_count" in lines[0]), stderr


@pytest.mark.parametrize("content", [
    LINES, b"\xef\xbb\xbf" + LINES, LINES.replace(b"\n", b"\r\n"), LINES.replace(b"\n", b"\r"),
    LINES.replace(b" ", b"\0"), LINES.replace(b"cat", b"c\xe9t"), LINES.replace(b"\n", b" "), PACKED])
def test_unusual_text_is_read(plan, content: bytes) -> None:
    code, stderr = plan(content, "text.min_count=2")
    assert code == 0 and "error" not in stderr, stderr


SCRIPTS = {
    "Hebrew, pointed": "שָׁלוֹם עֲלֵיכֶם", "Arabic, vowelled": "العَرَبِيَّةُ لُغَةٌ جَمِيلَةٌ",
           "Hindi": "हिन्दी में लिखिए",
    "Tamil": "தமிழ் மொழி", "Thai": "ภาษาไทย ที่นี่", "Khmer": "ភាសាខ្មែរ នៅទីនេះ",
    "accents apart": unicodedata.normalize("NFD", "été à Łódź"),
    "Burmese": "မြန်မာ ဘာသာ", "Greek": "Οὐδεὶς ἀγεωμέτρητος εἰσίτω",
    "Korean, jamo": unicodedata.normalize("NFD", "한국어 말"),
    "another plane": "𞤀𞥄𞤣𞤢 𝒳𝒴𝒵", "a letter with its variant": "葛\U000e0100城 x",
    "Persian": "می\u200cخواهم کتاب\u200cها", "Sinhala": "ශ්\u200dරී ලංකාව", "Malayalam": "അവന്\u200d അവൾ",
    "Mongolian": "ᠨᠢᠭᠡ\u180eᠡ ᠪᠢ", "emoji modifier": "a\U0001f3fbb x\ufe0fy",
}
LAYOUT = ["\u00ad", "\u2060", "\ufeff", "\u200e", "\u200f", "\u202a", "\u202e", "\u2063", "\u061c", "\U000e0041"]


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_marks_do_not_split_words(tmp_path: Path, core: str, name: str) -> None:
    (tmp_path / "x.txt").write_text(f"{SCRIPTS[name]} 12, {SCRIPTS[name]}.", encoding="utf-8")
    with using(core):
        corpus = load([tmp_path / "x.txt"], "auto", ALL, None, "x")
    words = SCRIPTS[name].lower().split()
    assert [corpus.vocabulary.words[i] for i in corpus.ids] == words * 2


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("mark", LAYOUT)
def test_invisible_layout_is_not_part_of_a_word(tmp_path: Path, core: str, mark: str) -> None:
    text = f"Donau{mark}dampf{mark}schiff Donaudampfschiff{mark} {mark}ΟΔΟ{mark}Σ a{mark}b {mark} no\u200c."
    (tmp_path / "x.txt").write_text(text, encoding="utf-8")
    with using(core):
        corpus = load([tmp_path / "x.txt"], "auto", ALL, None, "x")
    words = ["donaudampfschiff", "donaudampfschiff", "οδος", "ab", "no"]
    assert [corpus.vocabulary.words[i] for i in corpus.ids] == words


@pytest.mark.parametrize("core", CORES)
def test_word_separators_still_separate(tmp_path: Path, core: str) -> None:
    (tmp_path / "x.txt").write_text("a\u200bb c\u2013d e\u2019f g\u2028h i\u06ddj k\u202fl", encoding="utf-8")
    with using(core):
        corpus = load([tmp_path / "x.txt"], "auto", ALL, None, "x")
    assert corpus.vocabulary.words == list("abcdefghijkl")


def test_capital_that_is_lowered_to_a_letter_and_a_mark(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("İSTANBUL", encoding="utf-8")
    assert load([tmp_path / "x.txt"], "auto", ALL, None, "x").vocabulary.words == ["i\u0307stanbul"]


def test_mixed_scripts_are_read_equally_by_every_core(tmp_path: Path) -> None:
    draw = random.Random(3)
    pieces = [*" ".join(SCRIPTS.values()), "\u0301", "\u200d", "\u2028", "Σ", "1", "_", *LAYOUT, "\u200b", "\u200c"]
    (tmp_path / "x.txt").write_text("".join(draw.choice(pieces) for _ in range(20_000)), encoding="utf-8")
    result = []
    for core in CORES:
        with using(core):
            corpus = load([tmp_path / "x.txt"], "auto", ALL, None, "x")
        result.append((corpus.vocabulary.words, corpus.ids))
    assert all(words == result[0][0] and np.array_equal(ids, result[0][1]) for words, ids in result)
