"""Running text: reading, cutting into streams and blocks, and the evaluation of a language model."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import CorpusParts, load_recipe
from embtrain.data.text import corpus as text, streams as language
from embtrain.data.text.corpus import Corpus
from embtrain.data.text.streams import EOS, UNKNOWN, LanguageConfig, Streams, load
from embtrain.evaluate.language import PerplexityConfig, piece_ids, with_perplexity

ALL = LanguageConfig(valid=0, test=0)


def put(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content)
    return folder


def words(corpus: Corpus) -> list[str]:
    return [corpus.vocabulary.words[i] for i in corpus.ids]


# --- words ----------------------------------------------------------------------------------------------------------

def test_rare_words_become_unknown_and_sequences_end(tmp_path: Path) -> None:
    put(tmp_path, a="the cat the Dog\n\nthe cat\n")
    got = load([tmp_path], "tokens", ALL, None, "t")
    assert words(got) == ["the", "cat", "the", UNKNOWN, EOS, "the", "cat", EOS]
    counts = dict(zip(got.vocabulary.words, got.vocabulary.counts.tolist(), strict=True))
    assert counts == {"the": 3, "cat": 2, EOS: 2, UNKNOWN: 1} and got.vocabulary.total == 8
    assert got.identity["counts"] == {"documents": 1, "tokens": 8, "types": 3, "words": 4, "kept": 8,
                                      "became_unknown": 1}
    every = load([tmp_path], "tokens", ALL.model_copy(update={"min_count": 1}), None, "t")
    assert words(every) == ["the", "cat", "the", "Dog", EOS, "the", "cat", EOS]
    assert UNKNOWN not in every.vocabulary.words
    assert words(load([tmp_path], "tokens", ALL.model_copy(update={"sequence": "document", "min_count": 1}), None,
                      "t")) == ["the", "cat", "the", "Dog", "the", "cat", EOS]
    prose = load([tmp_path], "auto", ALL.model_copy(update={"lower": True, "min_count": 1}), None, "t")
    assert "dog" in words(prose)


def test_unknown_marks_in_the_text_are_the_same_word(tmp_path: Path) -> None:
    put(tmp_path, a=f"a {UNKNOWN} a\nb a {EOS}\n")
    got = load([tmp_path], "tokens", ALL, None, "t")
    assert words(got) == ["a", UNKNOWN, "a", EOS, UNKNOWN, "a", EOS, EOS]
    assert sorted(got.vocabulary.words) == sorted({"a", UNKNOWN, EOS})


@pytest.mark.parametrize("most", [3, 4, 5, 9])
def test_vocabulary_limit_keeps_the_most_frequent(tmp_path: Path, most: int) -> None:
    put(tmp_path, a="a a a a b b b c c d\n")
    got = load([tmp_path], "tokens", ALL.model_copy(update={"max_size": most, "min_count": 1}), None, "t")
    kept = {3: "a", 4: "ab", 5: "abc", 9: "abcd"}[most]
    assert words(got) == [*(w if w in kept else UNKNOWN for w in "aaaabbbccd"), EOS]
    assert len(got.vocabulary) <= most


@pytest.mark.parametrize("most", [1, 2])
def test_a_vocabulary_without_room_for_a_word_is_refused(most: int) -> None:
    with pytest.raises(ValidationError, match=r"max_size\n +Input should be greater than or equal to 3"):
        LanguageConfig(max_size=most)


def test_a_text_whose_words_all_become_unknown_is_refused(tmp_path: Path) -> None:
    put(tmp_path, a=f"a a a {UNKNOWN} b b c\nd {EOS}\n")
    with pytest.raises(DataError) as error:
        load([tmp_path], "tokens", ALL.model_copy(update={"min_count": 4}), None, "t")
    assert str(error.value) == "language.min_count: no word occurs 4 times in the training text (7 tokens); lower it"
    got = load([tmp_path], "tokens", ALL.model_copy(update={"min_count": 3, "max_size": 3}), None, "t")
    assert sorted(got.vocabulary.words) == sorted(["a", UNKNOWN, EOS])


def test_vocabulary_is_that_of_training_and_other_words_are_unknown(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = CorpusParts(valid=("v.txt",), test=("t.txt",))
    put(tmp_path, n="a b a b c\n", t="z a\n", v="b y x\n")
    got = load([tmp_path], "tokens", ALL, None, "t", own)
    train, valid, test = text.split(got, ALL)
    assert [words(part) for part in (train, valid, test)] == [
        ["a", "b", "a", "b", UNKNOWN, EOS], ["b", UNKNOWN, UNKNOWN, EOS], [UNKNOWN, "a", EOS]]
    assert dict(zip(got.vocabulary.words, got.vocabulary.counts.tolist(), strict=True)) == {
        "a": 2, "b": 2, EOS: 1, UNKNOWN: 1}
    assert not caplog.messages
    got = load([tmp_path], "tokens", ALL.model_copy(update={"min_count": 1}), None, "t", own)
    assert [words(part) for part in text.split(got, ALL)] == [["a", "b", "a", "b", "c", EOS], ["b", EOS], ["a", EOS]]
    assert "3 held-out words do not occur in training and are removed" in caplog.text


def test_reader_warnings_are_repeated_from_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, n="a\0b a b\n")
    config = ALL.model_copy(update={"valid": 0.1, "min_count": 1})
    for _ in range(2):
        caplog.clear()
        load([tmp_path / "n.txt"], "tokens", config, tmp_path / "cache", "t")
        assert caplog.messages[0] == f"{tmp_path / 'n.txt'}: 1 NUL character is read as a space"
        assert "nothing is held out" in caplog.messages[1] and len(caplog.messages) == 2


def test_held_out_files_must_exist(tmp_path: Path) -> None:
    put(tmp_path, n="a b\n", t="a\n")
    for own, says in ((CorpusParts(valid=("v.txt",), test=("t.txt",)), r"does not contain v\.txt, the valid split"),
                      (CorpusParts(valid=("n.txt",), test=("t.txt",)), r"^language\.files\.train: every file is held")):
        with pytest.raises(DataError, match=says):
            load([tmp_path], "tokens", ALL, None, "t", own)


def test_documents_are_held_out_by_shares_and_cache_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    put(place, **{f"d{i:02}": f"w{i} " * 3 + "x x\n" for i in range(20)})
    config = LanguageConfig(valid=0.1, test=0.2)
    plain = load([place], "tokens", config, None, "t")
    assert plain.parts == (14, 16) and len(plain.document) == 21
    for _ in range(2):
        cached = load([place], "tokens", config, tmp_path / "cache", "t")
        assert cached.ids.tolist() == plain.ids.tolist() and cached.identity == plain.identity
    train, valid, _ = text.split(plain, config)
    held = set(words(valid))
    assert held == {"x", UNKNOWN, EOS} or held == {"x", EOS}
    assert {w for w in words(train) if w.startswith("w")} == set(plain.vocabulary.words) - {"x", EOS, UNKNOWN}


def test_penn_treebank_has_its_published_counts() -> None:
    mirror = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    if not mirror or not (Path(mirror) / "corpora" / "ptb.zip").is_file():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder with corpora/ptb.zip")
    recipe = load_recipe("corpora", "ptb")
    config = LanguageConfig(min_count=1, tokenizer=recipe.tokenizer)  # type: ignore[arg-type]
    got = load(fetch.corpus_paths(recipe), recipe.reader, config, None, "ptb", recipe.parts)
    assert [len(part) for part in text.split(got, config)] == [929_589, 73_760, 82_430]
    assert len(got.vocabulary) == 10_000 and recipe.chosen and got.vocabulary.words[0] == "the"
    assert words(text.split(got, config)[1])[:6] == ["consumers", "may", "want", "to", "move", "their"]
    counts = dict(zip(got.vocabulary.words, got.vocabulary.counts.tolist(), strict=True))
    assert counts[EOS] == 42_068 and got.identity["counts"]["became_unknown"] == 0


# --- streams --------------------------------------------------------------------------------------------------------

def by_hand(ids: list[int], eos: int, streams: int, times: int, begin: int) -> list[list[tuple[int, int, bool]]]:
    """Return (word before, target, whether the text begins) of each row of each block."""
    n, length, out = len(ids), len(ids) // streams, []
    for t in range(0, length, times):
        rows = []
        for step in range(t, min(t + times, length)):
            for s in range(streams):
                at = (begin + s * length + step) % n
                rows.append((eos if at == 0 else ids[at - 1], ids[at], step == 0))
        out.append(rows)
    return out


def rows_of(streams: Streams, epoch: int, block: int, **how: int | bool) -> list[list[tuple[int, int, bool]]]:
    return [list(zip(b.word.tolist(), b.target.tolist(), b.begins.tolist(), strict=True))
            for b in streams.blocks(epoch, block, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "streams", "block"), [(23, 3, 6), (24, 4, 7), (9, 1, 4), (5, 5, 5), (30, 2, 1000)])
def test_blocks_are_stretches_of_all_streams(n: int, streams: int, block: int) -> None:
    ids = np.arange(100, 100 + n, dtype=np.int32)
    examples, times = Streams(ids, 99, streams, 7), max(1, block // streams)
    plain = rows_of(examples, 0, block, shuffle=False)
    assert plain == by_hand(ids.tolist(), 99, streams, times, 0) and len(plain) == examples.n_blocks(0, block)
    heads = set()
    for epoch in range(6):
        shuffled = rows_of(examples, epoch, block)
        begin = shuffled[0][0][1] - 100
        heads.add(begin)
        assert shuffled == by_hand(ids.tolist(), 99, streams, times, begin)
        assert rows_of(Streams(ids, 99, streams, 7), epoch, block, start=1) == shuffled[1:]  # a resumed run
    assert len(heads) > 2


def test_batches_contain_their_streams() -> None:
    batch = next(iter(Streams(np.arange(12, dtype=np.int32), 0, 3, 1).blocks(0, 6)))
    assert (batch.streams, len(batch), batch.slot.tolist()) == (3, 6, [0] * 6)
    part = batch.rows(slice(3, 6))
    assert part.streams == 3 and not part.begins.any() and part.word.dtype == torch.int64


def test_held_out_words_are_one_stream_from_the_beginning() -> None:
    ids = np.array([4, 5, 6, 7], dtype=np.int32)
    batch = language.heldout(ids, 1, 3)
    assert (batch.word.tolist(), batch.target.tolist()) == ([1, 4, 5], [4, 5, 6])
    assert batch.begins.tolist() == [True, False, False] and batch.streams == 1
    assert len(language.heldout(ids[:0], 1, 3)) == len(language.heldout(ids, 1, 0)) == 0


# --- perplexity -----------------------------------------------------------------------------------------------------

def test_perplexity_is_e_to_the_mean_and_reverses_its_interval() -> None:
    rows = [Score("valid", "log_likelihood", -2.0, -3.0, -1.0, 5), Score("valid", "mrr", 0.5),
            Score("valid", "log_likelihood/scores", -1000.0)]
    first, second, third, fourth, fifth = with_perplexity(rows)
    assert first == Score("valid", "perplexity", math.exp(2), math.exp(1), math.exp(3), 5)
    assert (second, third, fifth) == tuple(rows)
    assert fourth == Score("valid", "perplexity/scores", None)
    assert with_perplexity([Score("valid", "log_likelihood", None)])[0].value is None
    assert piece_ids(5, 2).tolist() == [0, 0, 1, 1, 2] and PerplexityConfig().words == 100_000
