"""Tokens of a translator: words of every script are whole, and every line is restored from its tokens."""

from __future__ import annotations

import gzip
import os
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.looped import looped
from hypothesis import given, strategies as st

from embtrain.data.parallel import corpus as parallel
from embtrain.data.parallel.corpus import ParallelConfig
from embtrain.data.parallel.files import ParallelLayout
from embtrain.data.parallel.tokenize import detokenize, strip_marks, tokenize_line, tokenize_source

TABLE = ParallelLayout(None, None, ("source", "target"))


@looped("line", [
    "हिन्दी में स्त्रियाँ", "ภาษาไทย ที่นี่ น้ำ", "مُحَمَّدٌ كِتَاب", "שָׁלוֹם עֲלֵיכֶם", "தமிழ் மொழி", "বাংলা ভাষা",
                 "မြန်မာ ဘာသာ",
    unicodedata.normalize("NFD", "tiếng Việt được"), "İstanbul".lower(), "می‌خواهم نمی‌روم", "ශ්‍රී ලංකාව",
    "soft\u00adhyphen word\u2060joiner",
    "п'ять об’єкт", "צה״ל", "col·lecció", "1st 3rd 50kg COVID-19 3.5kg 12:30 1,000 U.S", "a\u0308\u0301 e\u20dd"])
def test_run_without_spaces_is_one_word_for_any_marks(line: str) -> None:
    assert tokenize_line(line, "signs", False) == line.split()


@looped("line, words", [
    ("3 rd 3rd", "3 rd 3rd"), ("the girls' team", "the girls ￭'▁ team"), ("COVID - 19", "COVID - 19"),
    ("„ Hör auf! “", "„▁ Hör auf ! ▁“"), ("„Hör auf!“", "„ Hör auf ! “"), ("Ça va ?", "Ça va ▁?"),
    ("Ça va\u00a0?", "Ça va ⍽?"), ("Ça va\u202f?", "Ça va ⎵?"), ("Nr.\u00a06 8\u00a0km", "Nr .⍽ 6 8 ⍽km"),
    ("« Oui »", "«▁ Oui ▁»"), ("«Oui»", "« Oui »"),
    ("the girls' team has 'x'.", "the girls ￭'▁ team has ' x ' ."),
    ("5 % 5%", "5 ▁% 5 %"), ("and/or", "and ￭/￭ or"), ("rock 'n' roll 'x'", "rock ' n ' roll ' x '"),
    ("तुम कहाँ हो?", "तुम कहाँ हो ?"), ("एक । दो।", "एक ▁। दो ।"),
    ("👨\u200d👩\u200d👧 👍🏽!", "👨\u200d👩\u200d👧 👍🏽 !"),
    ("▁a ￭", "▁▁￭ a ▁￭▁")])         # the line itself writes marks: it has marks on both sides
def test_spacing_that_the_rules_do_not_predict_is_marked(line: str, words: str) -> None:
    assert tokenize_line(line, "signs", False) == words.split()
    assert detokenize(words.split(), False) == line


@given(st.text(st.one_of(st.characters(), st.sampled_from(
    list("ab1_  .,'’\"“”„«»()￭▁⍽⎵-!?%\u200d\u200b\u0301\xa0\u202fİש中。"))), max_size=30))
def test_every_line_is_restored_except_for_the_kind_of_spaces(line: str) -> None:
    words = tokenize_line(line, "signs", False)
    assert detokenize(words, False).split() == line.split()
    assert tokenize_line(detokenize(words, False), "signs", False) == words
    assert detokenize(tokenize_line(line, "whitespace", False), False, "whitespace") == " ".join(line.split())


def test_lower_case_text_gets_one_capital() -> None:
    assert detokenize(["istanbul"], True) == "Istanbul" and detokenize(["i̇stanbul"], True) == "İstanbul"
    assert detokenize(tokenize_line('"hello, you."', "signs", True), True) == '"Hello, you."'
    assert detokenize(["3", "dogs"], True) == "3 dogs" and detokenize([], True) == ""
    assert detokenize(["the", "girls", "'", "."], True, "whitespace") == "The girls ' ."


def test_source_is_read_in_nfc_without_invisible_characters_and_marks() -> None:
    nfd = unicodedata.normalize("NFD", "Được chứ ?")
    assert tokenize_source(nfd, "signs", True) == tokenize_source("được chứ?", "signs", True) == ["được", "chứ", "?"]
    assert tokenize_source("\ufeffDonau\u00addampf", "whitespace", True) == ["donaudampf"]
    assert tokenize_source("می‌خواهم", "signs", True) == ["می‌خواهم"]  # U+200C has a meaning


def test_rare_marks_are_dropped_and_a_target_keeps_its_spelling(tmp_path: Path) -> None:
    nfd = unicodedata.normalize("NFD", "được")
    lines = [f"a {i}\t{nfd} {i}, ja?\n" for i in range(20)] + ["b\tnein ? nein , a/b\n"]
    (tmp_path / "t.tsv").write_text("".join(lines), encoding="utf-8")
    config = ParallelConfig(min_count=2, valid=0, test=0)
    text = parallel.load([tmp_path / "t.tsv"], TABLE, config, "signs", None, "t")
    words, counts = text.target.vocabulary.words, text.target.vocabulary.counts.tolist()
    seen = dict(zip(words, counts, strict=True))
    assert {nfd: 20, ",": 21, "?": 21, "nein": 2}.items() <= seen.items() and "▁?" not in seen and "/" not in seen
    assert text.target.words(20) == ["nein", "?", "nein", ",", "<unk>", "<unk>", "<unk>"]
    assert np.bincount(text.target.ids)[2:].tolist() == counts[2:] and strip_marks("￭/￭") == "/"
    often = parallel.load([tmp_path / "t.tsv"], TABLE, config.model_copy(update={"min_count": 1}), "signs", None, "t")
    assert {"▁?", "▁,", "￭/￭"} <= set(often.target.vocabulary.words)
    assert "/" not in often.source.vocabulary.words


def lines_of(name: str, language: str) -> list[str]:
    """Return all lines of one side of a data set; skip the test without the data."""
    mirror = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    paths = [Path(mirror, "tatoeba", f"{name}-eng.zip")] if name != "multi30k" else \
        [Path(mirror, name, f"{part}.{language}.gz") for part in ("train", "val", "test_2016_flickr")]
    if not mirror or not all(path.is_file() for path in paths):
        pytest.skip(f"data: EMBTRAIN_DATA_MIRROR names no folder with {paths[0].parent.name}/{paths[0].name}")
    if name == "multi30k":
        return [line for path in paths for line in gzip.open(path).read().decode().removesuffix("\n").split("\n")]
    with zipfile.ZipFile(paths[0]) as archive:
        rows = archive.read(f"{name}.txt").decode().removesuffix("\n").split("\n")
    return [row.split("\t")[language != "en"] for row in rows]


@pytest.mark.long
@pytest.mark.parametrize(("name", "language", "most"), [
    ("multi30k", "en", 0.001), ("multi30k", "de", 0.001), ("multi30k", "fr", 0.005), ("deu", "en", 0.001),
    ("deu", "de", 0.001), ("fra", "fr", 0.005)])
def test_lines_of_real_text_are_restored(name: str, language: str, most: float) -> None:
    """At least 10,000 lines of the whole set, except for spaces at their ends and doubled ones."""
    lines = lines_of(name, language)
    lines = [line.strip(" ").replace("  ", " ") for line in lines[::len(lines) // 10_001]]
    wrong = [line for line in lines if detokenize(tokenize_line(line, "signs", False), False) != line]
    assert len(lines) > 10_000 and len(wrong) / len(lines) <= most, wrong[:5]
