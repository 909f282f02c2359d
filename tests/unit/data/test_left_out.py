"""Letters and digits that a tokenizer drops: counted, reported with the key, equal with every core."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.cores import CORES, using

from embtrain.common.errors import DataError
from embtrain.data.text.corpus import TextConfig, load

SEGMENT = ("segment the text first (e.g. with jieba, MeCab or PyThaiNLP) and set text.tokenizer=whitespace")
IDS = "set text.tokenizer=whitespace to keep numbers and ids unchanged"
CHINESE, THAI = ("我来到北京清华大学他来到了网易杭研大厦小明硕士毕业于中国科学院计算所",
                 "ภาษาไทยเป็นภาษาที่ไม่มีช่องว่างระหว่างคำดังนั้น")
OF = "of the letters and digits"
BLANKS = "of a script without spaces between words"
SAID = {
    "item_17 item_4\n" * 9: f"omits 27 % {OF} (27 digits) and splits words at _ (18 times); {IDS}",
    "new_york city los_angeles\n" * 9: f"splits words at _ (18 times); {IDS}",
    "the year 1984 was\n" * 9: f"omits 29 % {OF} (36 digits); {IDS}",
    "سال ١٩٨٤ بود\n" * 9: f"omits 40 % {OF} (36 digits); {IDS}",
    f"{'x' * 31} abc\n" * 9: f"omits 91 % {OF} (279 letters of words longer than token_max=30); "
                             "raise text.token_max",
    f"{'é' * 31} abc\n" * 9: f"omits 91 % {OF} (279 letters of words longer than token_max=30); "
                             "raise text.token_max",
    f"{CHINESE} abc\n" * 9: f"omits 92 % {OF} (306 letters in runs longer than token_max=30 {BLANKS}); {SEGMENT}",
    f"{CHINESE[:15]}，abc\n" * 9: f"reads runs without spaces as words (135 letters); {SEGMENT}",
    f"{THAI[:24]} abc\n" * 9: f"reads runs without spaces as words (171 letters); {SEGMENT}",
}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("content", SAID)
def test_dropped_characters_are_reported_at_once_and_from_the_cache(tmp_path: Path, core: str, content: str,
                                                                    caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.txt").write_text(content, encoding="utf-8")
    for _ in range(2):
        caplog.clear()
        with using(core):
            load([tmp_path / "x.txt"], "auto", TextConfig(min_count=1, valid=0, test=0), tmp_path / "cache", "x")
        assert caplog.messages == [f"{tmp_path / 'x.txt'}: text.tokenizer=words {SAID[content]}"]


@pytest.mark.parametrize("content", [
    "the cat sat on the mat\n" * 9, "the cat sat\n" * 300 + "in 19\n",                      # 2 digits of 2,704
    "我 来到 北京 清华大学\n" * 9, "ภาษา ไทย เป็น ภาษา\n" * 9, "abc, def. ghi! - _ __ x_\n" * 9])
def test_text_without_dropped_characters_gives_no_warning(tmp_path: Path, content: str,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.txt").write_text(content, encoding="utf-8")
    load([tmp_path / "x.txt"], "auto", TextConfig(min_count=1, valid=0, test=0), None, "x")
    assert not caplog.messages


@pytest.mark.parametrize(("content", "says"), [
    ("106 134 137\n" * 9, f"omits 100 % of the letters and digits (81 digits); {IDS}"),
    (CHINESE + "\n", "(34 letters in runs longer"), (THAI + "\n", "letters in runs"),
    ("x" * 31, "(31 letters of words longer than token_max=30); raise text.token_max")])
def test_text_that_becomes_empty_reports_why(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "x.txt").write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load([tmp_path / "x.txt"], "auto", TextConfig(), None, "x")
    assert str(caught.value).startswith(f"{tmp_path / 'x.txt'}: contains no words: text.tokenizer=words omits 100 %")
    assert says in str(caught.value)


def test_ids_train_with_the_suggested_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.txt").write_text("item_17 1234 item_4\n" * 9)
    config = TextConfig(min_count=1, valid=0, test=0, tokenizer="whitespace")
    corpus = load([tmp_path / "x.txt"], "auto", config, None, "x")
    assert set(corpus.vocabulary.words) == {"item_17", "1234", "item_4"} and not caplog.messages


@pytest.mark.parametrize(("n_long", "n_short", "message"), [
    (60, 0, "omits 64 % of the letters and digits (1,260 letters"), (1, 130, "omits 1.2 % of the letters"),
    (0, 60, ""), (1, 265, "")])  # the last: .6 %, too little, because the rules of gensim are known
def test_dump_reports_what_gensim_drops(tmp_path: Path, caplog: pytest.LogCaptureFixture, n_long: int,
                                        n_short: int, message: str) -> None:
    text = "Donaudampfschifffahrt ist 1830 a lang " * n_long + "ein kurzer Satz " * n_short
    (tmp_path / "x.xml").write_text(
        "<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'><page><title>a</title><ns>0</ns><id>1</id>"
        f"<revision><text>{text}</text></revision></page></mediawiki>")
    load([tmp_path / "x.xml"], "auto", TextConfig(min_count=1, valid=0, test=0), None, "x")
    assert len(caplog.messages) == bool(message) and message in caplog.text
    if message:
        assert caplog.messages[0].startswith(f"{tmp_path / 'x.xml'}: text.tokenizer=wiki omits ")
        assert caplog.messages[0].endswith("of words longer than token_max=15); set text.tokenizer=words and raise "
                                           "text.token_max")
