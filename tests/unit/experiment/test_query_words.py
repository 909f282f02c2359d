"""Queries of a language model are split into words as training split its text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from embtrain.common.errors import DataError
from embtrain.data.text import streams
from embtrain.data.text.corpus import Corpus
from embtrain.data.text.streams import LanguageConfig
from embtrain.experiment.prediction.query_words import QueryWords

ALL: dict[str, Any] = {"min_count": 1, "valid": 0, "test": 0}
PROSE = ["Mr. O'Neil, of the U.S., paid 10 pounds.", "One_two: low@@ er ##s, naïve co\u00adop"]
SAID = ["He said: New York Times!", "a1 He said b", "New York c"] * 9
PHRASES = {"phrases": 2, "phrase_threshold": 0.1, "phrase_min_count": 1}
TOKENS = ["u.s. n't 10 mr. the <unk> do bank's of N 's co.", "<unk> 3 low_er ' x"]
ARTICLE = "alpha a beta Gamma averyverylongwordindeed o_o " * 20


def dump(text: str) -> str:
    return ("<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'><page><title>a</title><ns>0</ns><id>1</id>"
            f"<revision><text>{text}</text></revision></page></mediawiki>")


def read(folder: Path, texts: dict[str, str], **keys: Any) -> Corpus:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return streams.load([folder], "auto", LanguageConfig(**ALL, **keys), None, "t")


def sentences(corpus: Corpus) -> list[list[str]]:
    words, ends = corpus.vocabulary.words, corpus.sequence.tolist()
    return [[words[i] for i in corpus.ids[a:b - 1]] for a, b in itertools.pairwise(ends)]


def split_and_lost(corpus: Corpus, line: str) -> tuple[list[str], list[str]]:
    return QueryWords(corpus.identity, "language", corpus.vocabulary.index, corpus.phrases).split(line)


def split(corpus: Corpus, line: str) -> list[str]:
    return split_and_lost(corpus, line)[0]


@pytest.mark.parametrize(("lines", "keys", "first"), [
    (PROSE, {}, ["Mr", "O", "Neil", "of", "the", "U", "S", "paid", "pounds"]),
    (PROSE, {"lower": True, "token_min": 2, "token_max": 4}, ["mr", "neil", "of", "the", "paid"]),
    (TOKENS, {}, TOKENS[0].split()),
    (TOKENS, {"tokenizer": "words"}, "u s n t mr the unk do bank s of N s co".split()),
    (PROSE, {"format": "tokens"}, PROSE[0].split()),
    (["the low@@ er ca@@ t.", "no sub@@ words"] * 9, {}, ["the", "lower", "cat"]),
    (["the low ##er ca ##t.", "no sub ##words"] * 9, {}, ["the", "lower", "cat"]),
    (["the low￭ er ca ￭t .", "no sub￭ words"] * 9, {}, ["the", "lower", "cat"]),
    (["▁the ▁low er ▁ca t .", "▁no ▁sub words"] * 9, {}, ["the", "lower", "cat"]),
    (SAID, PHRASES, ["He_said_New_York", "Times"]),
    (["the low@@ er ca@@ t."] * 9, {"tokenizer": "whitespace"}, ["the", "low@@", "er", "ca@@", "t."]),
])
def test_a_line_of_the_training_text_gives_its_words(tmp_path: Path, lines: list[str], keys: dict[str, Any],
                                                     first: list[str], caplog: pytest.LogCaptureFixture) -> None:
    corpus = read(tmp_path, {"a.txt": "\n".join(lines) + "\n"}, **keys)
    caplog.clear()
    assert [split(corpus, line) for line in lines] == sentences(corpus)
    assert split(corpus, lines[0]) == first
    assert not caplog.messages


def test_words_of_the_vocabulary_are_not_split(tmp_path: Path) -> None:
    corpus = read(tmp_path, {"a.txt": "\n".join(SAID)}, **PHRASES)
    assert split(corpus, "He_said_New_York <eos> New said_c") == ["He_said_New_York", "<eos>", "New", "said", "c"]


def test_whole_words_stay_apart_if_training_joined_subwords(tmp_path: Path) -> None:
    corpus = read(tmp_path, {"a.txt": "▁the ▁low er ▁cat\n" * 9})
    assert split(corpus, "the lower cat") == ["the", "lower", "cat"]


def test_words_of_a_dump_have_its_lengths(tmp_path: Path) -> None:
    corpus = read(tmp_path, {"a.xml": dump(ARTICLE)})
    assert split(corpus, ARTICLE) == sentences(corpus)[0]
    assert split_and_lost(corpus, "alpha a, beta - 7 beta7") == (["alpha", "beta", "beta"], ["a,", "7", "beta7"])


@pytest.mark.parametrize("lost", ["€", "🙂", "❤️", "ⓐ", "C++", "a=b"])
def test_symbols_that_the_tokenizer_leaves_out_are_listed(tmp_path: Path, lost: str) -> None:
    corpus = read(tmp_path, {"a.txt": "\n".join(PROSE)}, token_min=1)
    assert split_and_lost(corpus, f"the, — {lost} (of)...")[1] == [lost]


def test_the_first_of_several_tokenizers_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = read(tmp_path, {"a.xml": dump(ARTICLE), "b.txt": "alpha a beta\n"})
    assert corpus.identity["splitting"]["tokenizers"] == ["wiki", "words"]
    caplog.clear()
    assert split(corpus, "alpha a z beta") == ["alpha", "a", "beta"]       # training has a, but not z
    assert caplog.messages == [
        "predict: training split some documents by wiki and some by words; the query is split by wiki, that of the "
        "first document; set language.tokenizer and train again to split all of them by one"]


@pytest.mark.parametrize(("keys", "warns"), [({}, True), ({"tokenizer": "whitespace"}, False),
                                             ({"format": "tokens"}, False)])
def test_a_run_without_the_selected_tokenizer_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture,
                                                              keys: dict[str, Any], warns: bool) -> None:
    corpus = read(tmp_path, {"a.txt": "\n".join(TOKENS)}, **keys)
    del corpus.identity["splitting"]
    caplog.clear()
    assert split(corpus, "u.k. 10") == (["u", "k", "10"] if warns else ["u.k.", "10"])
    assert [line.partition(" selected")[0] for line in caplog.messages] == warns * [
        "predict: identity.json of the run does not contain which tokenizer language.tokenizer=auto"]


@pytest.mark.parametrize("splitting", [{}, [], {"tokenizers": [], "subwords": None}, {"tokenizers": ["words"]},
                                       {"tokenizers": ["words"], "subwords": "%"}])
def test_a_damaged_identity_is_refused(tmp_path: Path, splitting: object) -> None:
    corpus = read(tmp_path, {"a.txt": "a b\n"})
    corpus.identity["splitting"] = splitting
    with pytest.raises(DataError, match=r"^identity\.json of the run.*; restore the file that training wrote$"):
        split(corpus, "a")
