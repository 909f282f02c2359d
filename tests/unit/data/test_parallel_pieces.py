"""Subwords in parallel text are joined, or a warning names the key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from embtrain.data.parallel import corpus as parallel
from embtrain.data.parallel.corpus import ParallelConfig, ParallelCorpus
from embtrain.data.parallel.files import ParallelLayout
from embtrain.data.parallel.pieces import Pieces, detect_kind, join_line

WHOLE = ["am montag regnet es .", "es taut", "", "nie"]
CUT = {"bpe": ["am mon@@ tag reg@@ net es .", "es tau@@ t", "", "nie"],
       "sentencepiece": ["▁am ▁mon tag ▁reg net ▁es ▁.", "▁es ▁ tau t", "", "▁ nie"],
       "wordpiece": ["am mon ##tag reg ##net es .", "es tau ##t", "", "nie"]}


def load(where: Path, cache: Path | None = None, pieces: Pieces = "auto") -> ParallelCorpus:
    layout, config = ParallelLayout("de", "en", ("source", "target"), pieces=pieces), ParallelConfig(valid=0, test=0)
    return parallel.load([where], layout, config, "whitespace", cache, "mine")


def written(folder: Path, de: list[str], en: list[str]) -> Path:
    folder.mkdir()
    for language, lines in (("de", de), ("en", en)):
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", list(CUT))
def test_subwords_are_recognized_and_joined(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert [join_line(line, kind) for line in CUT[kind]] == WHOLE and detect_kind(CUT[kind] * 9)[0] == kind
    (tmp_path / "cache").mkdir()
    where = written(tmp_path / "text", CUT[kind] * 9, ["on monday it rains .", "it thaws", "", "never"] * 9)
    for _ in range(2):                                        # read, and from the cache
        text = load(where, tmp_path / "cache")
        assert {"montag", "regnet", "taut", "nie"} <= set(text.source.vocabulary.words)
        assert text.identity["pieces"] == [kind, "none"]
        messages = [record.getMessage() for record in caplog.records if "pieces" in record.getMessage()]
        assert len(messages) == 1 and f"({kind})" in messages[0] and "translation.pieces: none" in messages[0]
        caplog.clear()
    kept = load(where, tmp_path / "cache", "none")
    assert "montag" not in kept.source.vocabulary.words and kept.identity["pieces"] == ["none", "none"]


def test_subwords_in_a_column_of_a_table_are_joined(tmp_path: Path) -> None:
    rows = [f"{a}\t{b}" for a, b in zip(WHOLE, CUT["bpe"], strict=True)] * 9
    (tmp_path / "t.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    text = load(tmp_path / "t.tsv")
    assert text.target.vocabulary.words == text.source.vocabulary.words and text.identity["pieces"] == ["none", "bpe"]


def test_marks_in_a_few_lines_are_kept_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = written(tmp_path / "text", ["ein x"] * 96 + ["mail@@ x"] * 4, ["one y"] * 100)
    with caplog.at_level(logging.WARNING):
        text = load(where)
    assert "mail@@" in text.source.vocabulary.words
    assert [record.getMessage() for record in caplog.records] == [
        f"{where / 'train.de'}: 4 of 100 lines have @@ at the end of a word; if those are subwords, set "
        "translation.pieces: bpe"]
    assert "mailx" in load(where, pieces="bpe").source.vocabulary.words
    caplog.clear()
    load(written(tmp_path / "raw", ["a @@ b", "x ▁ y", "# # z", "##titel"] * 9, ["one y"] * 36))
    assert caplog.records == []
