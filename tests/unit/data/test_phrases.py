"""Phrases: equal to gensim's Phrases on the same sentences; counted in the training text alone; cached by pass."""

import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
from gensim.models.phrases import Phrases
from gensim.test.utils import datapath
from hypothesis import given, settings, strategies as st

from embtrain.common.errors import DataError
from embtrain.data.text import holdout, phrases, streams
from embtrain.data.text.corpus import Corpus, TextConfig, load, split
from embtrain.data.text.streams import LanguageConfig

Sentences = list[list[str]]
WORDS = ["a", "b", "c", "d_e", "a_b", "b_c"]
LINES = [*([f"a{i}", "new", "york", f"b{i}"] for i in range(120)), ["new", "old"], ["york", "city"],
         *[["new", "york", "times"]] * 10]


def lines_of(corpus: Corpus) -> Sentences:
    words, ids = corpus.vocabulary.words, corpus.ids
    return [[words[i] for i in ids[a:b]] for a, b in itertools.pairwise(corpus.sequence.tolist())]


def write(path: Path, sentences: Sentences) -> Path:
    path.write_text("".join(" ".join(line) + "\n" for line in sentences), encoding="utf-8")
    return path


def config_of(n: int, **keys: object) -> TextConfig:
    return TextConfig.model_validate({"phrases": n, "phrase_threshold": 1.0, "tokenizer": "whitespace", "lower": False,
                                      "min_count": 1, "valid": 0, "test": 0, **keys})


def read(path: Path, config: TextConfig, cache: Path | None = None) -> Corpus:
    return load([path], "auto", config, cache, "t")


def gensim_phrases(sentences: Sentences, n: int, min_count: int = 5, threshold: float = 10.0,
                   max_vocab_size: int = 40_000_000) -> Sentences:
    """Return the sentences after n passes of gensim."""
    for _ in range(n):
        model = Phrases(sentences, min_count=min_count, threshold=threshold, max_vocab_size=max_vocab_size)
        sentences = [model[line] for line in sentences]
    return sentences


@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=12),
       st.integers(1, 3), st.sampled_from([0.01, 0.3, 1.0, 3.0]), st.sampled_from([2, 5, 10**6]), st.integers(1, 30))
def test_joined_text_equals_gensims(tmp_path_factory: pytest.TempPathFactory, sentences: Sentences, n: int,
                                    threshold: float, max_vocab_size: int, tokens_at_once: int) -> None:
    path = write(tmp_path_factory.mktemp("in") / "a.txt", sentences)
    keys = {"phrase_min_count": 1, "phrase_threshold": threshold, "phrase_max_vocab_size": max_vocab_size}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holdout, "SLICE_TOKENS", tokens_at_once)
        corpus = read(path, config_of(n, **keys))
    expected = gensim_phrases(sentences, n, 1, threshold, max_vocab_size)
    assert lines_of(corpus) == expected
    counts = {word: sum(line.count(word) for line in expected) for line in expected for word in line}
    assert dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts.tolist(), strict=True)) == counts
    config = LanguageConfig.model_validate({**config_of(n, **keys).model_dump(include=set(LanguageConfig.model_fields)),
                                            "streams": 1})
    passes = streams.load([path], "auto", config, None, "t").phrases
    assert passes is not None and [phrases.join_pairs(line, passes) for line in sentences] == expected


def test_real_text_equals_gensims(tmp_path: Path) -> None:
    sentences = [line.split() for line in Path(datapath("lee_background.cor")).read_text(encoding="utf-8").splitlines()]
    corpus = read(write(tmp_path / "lee.txt", sentences), config_of(2, phrase_threshold=10), tmp_path / "cache")
    expected = gensim_phrases(sentences, 2)
    assert lines_of(corpus) == expected
    joined = {word for line in expected for word in line if "_" in word}
    assert len(joined) > 50 and any(word.count("_") >= 2 for word in joined)
    frozen = Phrases(sentences).freeze()                      # gensim's Phraser, for a single pass
    once = read(tmp_path / "lee.txt", config_of(1, phrase_threshold=10))
    assert lines_of(once) == [frozen[line] for line in sentences]


def test_pairs_of_phrases_come_from_the_cache(tmp_path: Path) -> None:
    """A pair that scores above the threshold is joined in other text too if training always joined its neighbours."""
    path = write(tmp_path / "a.txt", [*LINES, *[["new", "york", "times", "square"]] * 20])
    config = LanguageConfig(phrases=2, phrase_threshold=1, min_count=1, valid=0, test=0)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        passes = streams.load([path], "tokens", config, cache, "t").phrases
        assert passes == [{("new", "york"), ("york", "times"), ("times", "square")},
                          {("new_york", "times_square"), ("new_york", "times")}]
        assert phrases.join_pairs("new york times square a york times".split(), passes) == [
            "new_york_times_square", "a", "york_times"]
    assert streams.load([path], "tokens", config.model_copy(update={"phrases": 0}), None, "t").phrases == []


def test_no_text_changes_without_phrases(tmp_path: Path) -> None:
    corpus = read(write(tmp_path / "a.txt", LINES), config_of(0))
    assert lines_of(corpus) == LINES
    assert not any("phrase" in key for part in ("settings", "counts") for key in corpus.identity[part])


def test_phrases_come_from_the_training_text_alone(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "train.txt", [*LINES, *[["far", "away"]] * 3])
    write(folder / "test.txt", [["new", "york", "far"], *[["far", "away"]] * 200])
    train, _, test = split(read(folder, config_of(1)), config_of(1))
    assert lines_of(train)[0] == ["a0", "new_york", "b0"]
    assert lines_of(test) == [["new_york", "far"], *[["far", "away"]] * 200]


@pytest.mark.parametrize("n_documents", [1, 60])
def test_the_same_documents_are_held_out(tmp_path: Path, n_documents: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(n_documents):
        text = [[*line, f"w{number}"] for line in LINES] * (200 // n_documents)
        write(folder / f"{number:03}.txt", [[*line, f"n{i}"] for i, line in enumerate(text)])
    keys = {"valid": 0.05, "test": 0.05, "phrase_threshold": 0.05}
    parts = {n: split(read(folder, config_of(n, **keys)), config_of(n, **keys)) for n in (0, 1, 2)}
    plain = [[tuple(line[-1:]) for line in lines_of(part)] for part in parts[0]]
    for n in (1, 2):
        assert any("_" in word for word in lines_of(parts[n][0])[0])
        assert [[tuple("_".join(line).split("_")[-1:]) for line in lines_of(part)] for part in parts[n]] == plain
        assert [len(part.document) for part in parts[n]] == [len(part.document) for part in parts[0]]


def test_each_pass_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = write(tmp_path / "a.txt", LINES), tmp_path / "cache"
    plain = read(path, config_of(0), cache)
    count, counted = phrases._count, list[int]()

    def interrupted(*arguments: object) -> object:
        counted.append(1)
        if len(counted) == 2:
            raise KeyboardInterrupt
        return count(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(phrases, "_count", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(path, config_of(2), cache)
    twice = read(path, config_of(2), cache)
    assert len(counted) == 3                                  # the first pass was not repeated
    again = read(path, config_of(2, min_count=2), cache)         # nor is one for another min_count
    assert len(counted) == 3 and again.vocabulary.words == ["new_york", "new_york_times"]
    assert lines_of(read(path, config_of(0), cache)) == lines_of(plain) != lines_of(twice)
    for keys in ({"phrase_threshold": 9.0}, {"phrase_min_count": 6}, {"phrase_max_vocab_size": 99}, {"split_seed": 1}):
        n = len(counted)
        read(path, config_of(1, **keys), cache)
        assert len(counted) == n + 1, keys
    monkeypatch.undo()
    fresh = read(path, config_of(2))
    assert np.array_equal(fresh.ids, twice.ids) and fresh.vocabulary.words == twice.vocabulary.words


def test_each_pass_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, cache = write(tmp_path / "a.txt", LINES), tmp_path / "cache"
    for _ in range(2):                                        # also if the text comes from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, "embtrain"):
            corpus = read(path, config_of(2), cache)
        assert caplog.messages == [
            "t: text.phrases: pass 1: 1 phrase, joined 130 times, the most frequent: new_york 130",
            "t: text.phrases: pass 2: 1 phrase, joined 10 times, the most frequent: new_york_times 10"]
    assert corpus.identity["counts"]["phrases"] == 2
    caplog.clear()
    read(path, config_of(1, phrase_threshold=1e6))
    assert caplog.messages == ["t: text.phrases: pass 1: no pair scores above the threshold; lower phrase_threshold or "
                               "phrase_min_count"]


def test_dropped_counts_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.txt", LINES)
    lost = gensim_counts(LINES, 10**6) - gensim_counts(LINES, 20)
    assert lost > 0
    dropped = (f"{lost:,} of 896 occurrences of words and pairs are not counted, because text.phrase_max_vocab_size is "
               "20; raise it")
    for threshold, message in ((0.01, "1 phrase, joined 130 times, the most frequent: new_york 130; "),
                               (1e6, "no pair scores above the threshold; ")):
        caplog.clear()
        read(path, config_of(1, phrase_max_vocab_size=20, phrase_threshold=threshold))
        assert caplog.messages == [f"t: text.phrases: pass 1: {message}{dropped}"]


def gensim_counts(sentences: Sentences, max_vocab_size: int) -> int:
    """Return the occurrences of words and pairs that gensim counts."""
    return sum(Phrases(sentences, max_vocab_size=max_vocab_size).vocab.values())


def test_ids_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [["1", "2", "-3"]] * 9)
    with pytest.raises(DataError) as error:
        read(path, config_of(1))
    assert str(error.value) == ("text.phrases: 1: the words of t are all numbers, and ids form no phrases; set "
                                "text.phrases: 0")


def test_language_models_read_the_same_phrases(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", LINES)
    config = LanguageConfig(phrases=1, phrase_threshold=1, tokenizer="whitespace", min_count=1, valid=0, test=0)
    corpus = streams.load([path], "auto", config, None, "t")
    assert [line[:-1] for line in lines_of(corpus)] == gensim_phrases(LINES, 1, threshold=1)
    assert corpus.identity["counts"]["phrases"] == 1 and corpus.identity["settings"]["phrases"] == 1
