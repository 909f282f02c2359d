"""Parallel text: lines to words and back, files to pairs, pairs to ids and batches; errors in one line."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.data.catalogue.recipes import CorpusParts
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.parallel import corpus as parallel, files as parallel_files
from embtrain.data.parallel.batches import SentencePairs, make_batch
from embtrain.data.parallel.corpus import END, RARE, ParallelConfig, ParallelCorpus
from embtrain.data.parallel.files import ParallelLayout
from embtrain.data.parallel.synthetic import GrammarConfig, sentences
from embtrain.data.parallel.tokenize import detokenize, tokenize_line

DE_EN = ParallelLayout("de", "en", ("source", "target"))


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def load(where: Path, layout: ParallelLayout = DE_EN, cache: Path | None = None, **own: object) -> ParallelCorpus:
    config = ParallelConfig(**{"min_count": 1, **own})  # type: ignore[arg-type]
    return parallel.load([where], layout, config, "signs", cache, "mine")


# --- words ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("line", "words"), [
    ("It's well-known: 3.5 l'eau!", "It 's well-known : 3.5 l' eau !"),
    ("aujourd'hui, d'un homme", "aujourd' hui , d' un homme"),
    ('He said "hi there" (twice).', 'He said " hi there " ( twice ) .'),
    ("They don't, I'll; we've 1,000 U.S. flags", "They don 't , I 'll ; we 've 1,000 U.S . flags"),
    ("I'd 'quoted' words", "I 'd ' quoted ' words"), ("Größe 12:30 Uhr …", "Größe 12:30 Uhr …"), ("", ""),
])
def test_line_is_split_into_words(line: str, words: str) -> None:
    assert tokenize_line(line, "signs", False) == words.split()
    assert tokenize_line(line, "whitespace", True) == line.lower().split()


@pytest.mark.parametrize("line", [
    "It's well-known: 3.5 l'eau!", "aujourd'hui, d'un homme", 'He said "hi there" (twice).', "I'd 'quoted' words.",
    "They don't, I'll; we've 1,000 U.S. flags", 'A "b c" and "d" (e).'])
def test_words_are_joined_into_the_line(line: str) -> None:
    assert detokenize(tokenize_line(line, "signs", False), False) == line
    assert detokenize(tokenize_line(line, "signs", True), True) == line[0].upper() + line[1:].lower()


def read(where: list[Path], layout: ParallelLayout) -> parallel_files.ParallelLines:
    return parallel_files.read(where, parallel_files.inventory_files(where, layout, FilesConfig()), layout)


# --- files ----------------------------------------------------------------------------------------------------------

def test_parts_of_a_folder_are_recognized_by_their_names(tmp_path: Path) -> None:
    written(tmp_path, {"train.de": "a\nb\n", "train.en": "x\ny\n", "val.de": "c\n", "val.en": "z\n",
                       "test_2016.de.gz": gzip.compress(b"\xef\xbb\xbfd\r\n"), "test_2016.en": "w", "README.md": "no"})
    result = read([tmp_path], DE_EN).parts
    assert result == {"train": [("a", "x"), ("b", "y")], "valid": [("c", "z")], "test": [("d", "w")]}


def test_recipe_may_set_the_part_of_a_file(tmp_path: Path) -> None:
    written(tmp_path, {"test.de": "a\n", "test.en": "x\n", "one.de": "c\n", "one.en": "z\n"})
    layout = ParallelLayout("de", "en", ("source", "target"), CorpusParts(valid=("o*",), test=("test",)))
    assert read([tmp_path], layout).parts == {"valid": [("c", "z")], "test": [("a", "x")]}


def test_markup_is_left_out(tmp_path: Path) -> None:
    mark_up = ('<doc docid="1">\n<title>no</title>\n<seg id="1"> {} &amp; so </seg>\n'
               '<seg id="2">two\nlines</seg></doc>\n')
    written(tmp_path, {"newsdev-src.de.sgm": mark_up.format("eins"), "newsdev-ref.en.sgm": mark_up.format("one"),
                       "train.tags.de-en.de": "<url>x</url>\nja\n", "train.tags.de-en.en": "<url>y</url>\nyes\n"})
    assert read([tmp_path], DE_EN).parts == {
        "train": [("ja", "yes")], "valid": [("eins & so", "one & so"), ("two lines", "two lines")]}


def test_subwords_are_joined_if_the_name_announces_them(tmp_path: Path) -> None:
    written(tmp_path, {"train.bpe10k.de": "kap@@ ri@@ ziös so\n", "train.bpe10k.en": "a b@@ c\n",
                       "test.de": "x@@ y\n", "test.en": "z\n"})
    assert read([tmp_path], DE_EN).parts == {
        "train": [("kapriziös so", "a bc")], "test": [("x@@ y", "z")]}


def test_table_in_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "deu-eng.zip", "w") as archive:
        archive.writestr("deu.txt", "Go.\tGeh.\tby someone\nHi.\tHallo!\tby\n")
        archive.writestr("_about.txt", "nothing to read")
    layout = ParallelLayout("de", "en", ("en", "de"))
    assert read([tmp_path / "deu-eng.zip"], layout).parts == {
        "train": [("Geh.", "Go."), ("Hallo!", "Hi.")]}
    (tmp_path / "own.tsv").write_text("Geh.\tGo.\n")
    assert read([tmp_path / "own.tsv"], ParallelLayout(None, None, ("source", "target"))).parts == {
        "train": [("Geh.", "Go.")]}


def test_files_of_one_name_are_paired_by_their_folder(tmp_path: Path) -> None:
    for folder, de, en in (("a", "eins\n", "one\n"), ("b", "zwei\n", "two\n")):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, {"x.de": de, "x.en": en})
    assert read([tmp_path], DE_EN).parts == {"train": [("eins", "one"), ("zwei", "two")]}
    assert read([tmp_path / "a" / "x.de", tmp_path / "b" / "x.en"], DE_EN).parts == {
        "train": [("eins", "two")]}                          # files named one by one
    (tmp_path / "a" / "x.en").unlink()
    with pytest.raises(DataError, match=r"a/x\.de has no a/x\.en next to it$"):
        read([tmp_path], DE_EN)


def test_duplicate_text_is_reported(tmp_path: Path) -> None:
    written(tmp_path, {"x.de": "a\n", "x.en": "b\n", "x.de.gz": gzip.compress(b"a\n")})
    assert read([tmp_path], DE_EN).parts == {"train": [("a", "b")]}
    written(tmp_path, {"x.de.gz": gzip.compress(b"other\n")})
    with pytest.raises(DataError, match=r"x\.de and x\.de\.gz seem to contain one split in two forms"):
        read([tmp_path], DE_EN)


@pytest.mark.parametrize(("files", "says"), [
    ({"a.de": "a\nb\n", "a.en": "x\n"}, r"^a\.de has 2 lines and a\.en 1; give files with equal numbers"),
    ({"a.de": "a\n"}, r"a\.de has no a\.en next to it$"),
    ({"a.de": "a\nb\n", "a.en": b"x\n\xff\n"}, r"a\.en:2: not UTF-8; .* -f WINDOWS-1252 -t"),
    ({"a.de": "", "a.en": "x\n"}, r"a\.de: is empty$"),
    ({"a.de": "a\0b\n", "a.en": "x\n"}, r"a\.de:1: a NUL: not text$"),
    ({"a.de": "a" * 1_000_001, "a.en": "x\n"}, r"a\.de:1: 1,000,001 characters; at most 1,000,000 are read$"),
    ({"a.tsv": "a\tb\nc\n"}, r"a\.tsv:2: has 1 columns separated by TABs; should have 2: source, target"),
    ({"a.xx": "a\n"}, r"contains no parallel text .*; skipped: a\.xx: ends in neither \.de nor \.en; to read"),
])
def test_files_that_do_not_fit_are_rejected_in_one_line(tmp_path: Path, files: dict[str, str | bytes], says: str
                                                        ) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load(written(tmp_path, files))
    assert "\n" not in str(caught.value)


def test_missing_languages_are_requested(tmp_path: Path) -> None:
    written(tmp_path, {"a.de": "a\n", "a.en": "x\n"})
    with pytest.raises(UsageError, match=r"set translation\.source and translation\.target to the endings"):
        load(tmp_path, ParallelLayout(None, None, ("source", "target")))
    with pytest.raises(UsageError, match=r"translation\.columns: en, fr: contains no 'de', which is translation"):
        load(written(tmp_path / "..", {"t.tsv": "a\tb\n"}) / "t.tsv", ParallelLayout("de", "en", ("en", "fr")))


# --- ids ------------------------------------------------------------------------------------------------------------

def pairs(n: int) -> dict[str, str | bytes]:
    return {"train.tsv": "".join(f"ein w{i % 7}\tone v{i % 5}\n" for i in range(n))}


def test_ids_follow_the_training_text_only(tmp_path: Path) -> None:
    written(tmp_path, {"train.de": "A b\nA c c\n", "train.en": "x x y\nz x\n", "dev.de": "A d\n",
                       "dev.en": "x z\n", "test.de": "c\n", "test.en": "Y\n"})
    text = load(tmp_path, min_count=2)
    assert text.source.vocabulary.words == ["<eos>", "<unk>", "a", "c"]
    assert text.target.vocabulary.words == ["<eos>", "<unk>", "x"]
    assert text.target.vocabulary.counts.tolist() == [2, 2, 3]
    assert [text.source.words(i) for i in text.part("valid")] == [["a", "<unk>"]]
    assert [text.pair(i) for i in text.part("test")] == [("c", "Y")]


def test_special_words_of_a_text_are_unknown_words(tmp_path: Path) -> None:
    written(tmp_path, {"train.tsv": "a <eos>\tx <unk> x\n" * 3})
    text = parallel.load([tmp_path], DE_EN, ParallelConfig(min_count=1, valid=0, test=0), "whitespace", None, "mine")
    assert text.source.sentence(0).tolist() == [2, RARE] and text.target.sentence(0).tolist() == [2, RARE, 2]


def test_cache_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    where = written(tmp_path / "text", {"train.tsv": "".join(f"ein w{i}\tone v{i}\n" for i in range(60))})
    fresh, kept = (load(where, ParallelLayout(None, None, ("source", "target")), tmp_path / "cache") for _ in range(2))
    assert fresh.identity == kept.identity and fresh.lines == kept.lines
    assert np.array_equal(fresh.target.ids, kept.target.ids) and len(list((tmp_path / "cache").iterdir())) == 1


def test_renamed_file_is_another_part(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    where = written(tmp_path / "text", {"train.tsv": "".join(f"ein w{i}\tone v{i}\n" for i in range(60))})
    layout = ParallelLayout(None, None, ("source", "target"))
    assert len(load(where / "train.tsv", layout, tmp_path / "cache", valid=0, test=0).part("train")) == 60
    (where / "train.tsv").rename(where / "test.tsv")
    with pytest.raises(DataError, match="is the test split by its name"):
        load(where / "test.tsv", layout, tmp_path / "cache", valid=0, test=0)


def test_all_pairs_of_a_target_sentence_are_in_one_part(tmp_path: Path) -> None:
    where = written(tmp_path, {"all.tsv": "".join(f"ein w{i}\tone v{i % 20}\n" for i in range(100))})
    text = load(where, ParallelLayout(None, None, ("source", "target")), valid=0.1, test=0.2)
    lines = {part: {text.pair(i)[1] for i in text.part(part)} for part in ("valid", "test")}
    assert [len(lines[part]) for part in lines] == [2, 4] and not lines["valid"] & lines["test"]
    assert [len(text.part(part)) for part in ("train", "valid", "test")] == [70, 10, 20]
    training = {word for i in text.part("train") for word in text.target.words(i)}
    assert not training & {line.split()[1] for part in lines.values() for line in part}


def test_no_sentence_of_either_side_is_held_out_and_trained_on(tmp_path: Path) -> None:
    """Both sides repeat: w0-v0, w0-v1, w1-v1 are joined, and so are ten pairs that all have one source."""
    tied = [(f"w{4 * i + j}", f"v{4 * i + j + more}") for i in range(50) for j in range(2) for more in (0, 1)]
    tied += [("long", f"x{i}") for i in range(40)]
    where = written(tmp_path, {"all.tsv": "".join(f"{a} a\t{b} b\n" for a, b in tied)})
    text = load(where, ParallelLayout(None, None, ("source", "target")), valid=0.1, test=0.1)
    pairs = {part: [text.pair(i) for i in text.part(part)] for part in ("valid", "test")}
    assert [len({b for _, b in pairs[part]}) for part in pairs] == [21, 21]      # groups of three are not split
    held = {word for part in pairs.values() for pair in part for side in pair for word in side.split()} - {"a", "b"}
    training = {word for i in text.part("train") for side in (text.source, text.target) for word in side.words(i)}
    assert not held & training and not set(pairs["valid"]) & set(pairs["test"])
    assert "long" in training                        # larger than the held-out share


def test_sentences_with_equal_words_are_one(tmp_path: Path) -> None:
    """Lines that differ in case and in a space before the full stop: a held-out number is new to training."""
    rows = [(f"Der Hund {i} schlief.", f"The dog {i} slept.") for i in range(40)]
    rows += [(a.lower().replace(".", " ."), b.lower().replace(".", " .")) for a, b in rows]
    where = written(tmp_path, {"all.tsv": "".join(f"{a}\t{b}\n" for a, b in rows)})
    text = load(where, ParallelLayout(None, None, ("source", "target")), valid=0.1, test=0.1)
    for part in ("valid", "test"):
        assert len(text.part(part)) == 8 and len({text.pair(i)[0].split()[2] for i in text.part(part)}) == 4
        assert all("<unk>" in text.source.words(i) for i in text.part(part))


def test_pairs_that_are_all_joined_are_not_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be held out of 5 target sentences in 1 group; .* give a file of that"):
        load(written(tmp_path, pairs(60)), ParallelLayout(None, None, ("source", "target")))


def test_too_few_pairs_are_not_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"translation\.valid: a share .* held out of 1 target sentence in 1 group;"):
        load(written(tmp_path, {"a.tsv": "a\tb\n" * 5}), ParallelLayout(None, None, ("source", "target")))


def test_long_and_empty_pairs_are_dropped_in_training_and_cut_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                    ) -> None:
    written(tmp_path, {"train.de": "a\n" + "b " * 10_000 + "\n\na\n", "train.en": "x\nx\nx\nx x\n",
                       "test.de": "a " * 10_000 + "\n", "test.en": "x " * 9 + "\n"})
    text = load(tmp_path, max_length=5, valid=0)
    assert len(text.part("train")) == 2 and text.left_out == 2 and text.source.size().tolist() == [1, 1, 5]
    assert text.target.size().tolist() == [1, 2, 5] and text.pair(2)[1] == "x " * 9
    first, second = (record.getMessage() for record in caplog.records)
    assert "2 training pairs are empty or longer than translation.max_length: 5" in first
    assert "10,000 and 1 words" in first
    assert "1 held-out sentences are longer than translation.max_length: 5" in second
    with pytest.raises(DataError, match=r"no training pair has 1 to 5 words"):
        load(written(tmp_path, {"train.de": "b " * 9, "train.en": "x"}), max_length=5, valid=0)


def test_grammar_is_deterministic_and_words_of_a_kind_differ() -> None:
    config = GrammarConfig(train=200, valid=3, test=4)
    built = sentences(config)
    assert built == sentences(config) and [len(built[part]) for part in built] == [200, 3, 4]
    assert built != sentences(config.model_copy(update={"seed": 2}))
    assert len({pair for part in built.values() for pair in part}) > 200
    assert all(source.endswith(".") and target.endswith(".") for source, target in built["train"])


# --- batches --------------------------------------------------------------------------------------------------------

@pytest.fixture
def text() -> ParallelCorpus:
    return parallel.load_synthetic(
        GrammarConfig(train=120, valid=5, test=6), ParallelConfig(min_count=1), None, "grammar"
    )


def sentences_of(batches: Sequence) -> list[tuple[list[int], list[int]]]:
    """Return the (source, target) sentences of batches, read back from their rows."""
    out = []
    for batch in batches:
        for i in range(len(batch.source)):
            actual = batch.target[batch.window == i].tolist()
            assert batch.prev_tokens[i, 1:len(actual)].tolist() == actual[:-1]
            out.append((batch.source[i, :batch.length[i]].tolist(), actual))
    return out


def test_every_pair_occurs_once_an_epoch_in_bounded_blocks(text: ParallelCorpus) -> None:
    examples = SentencePairs(text, 1)
    batches = list(examples.blocks(0, 60))
    assert len(batches) == examples.n_blocks(0, 60) == examples.n_blocks(1, 60) == len(list(examples.blocks(1, 60)))
    expected = [([*text.source.sentence(i), END], [*text.target.sentence(i), END]) for i in text.part("train")]
    assert sorted(sentences_of(batches)) == sorted(expected)
    assert all(batch.prev_tokens.numel() <= 60 and len(batch) <= 60 for batch in batches)
    assert sum(batch.prev_tokens.numel() for batch in batches) < 1.1 * sum(map(len, batches))
    assert all((batch.prev_tokens[:, 0] == len(text.target.vocabulary)).all() for batch in batches)


def test_block_follows_from_seed_epoch_and_place(text: ParallelCorpus) -> None:
    def batches_from(seed: int, epoch: int, start: int, shuffle: bool = True) -> list[list[int]]:
        return [batch.target.tolist() for batch in SentencePairs(text, seed).blocks(epoch, 60, start, shuffle)]
    assert batches_from(1, 3, 5) == batches_from(1, 3, 0)[5:]
    assert batches_from(1, 3, 0) != batches_from(1, 4, 0) and batches_from(1, 3, 0) != batches_from(2, 3, 0)
    assert batches_from(1, 3, 0, False) == batches_from(2, 4, 0, False)


def test_batch_is_split_into_pieces_not_rows(text: ParallelCorpus) -> None:
    batch = make_batch(text, np.array(text.part("test")))
    with pytest.raises(TypeError, match="not split"):
        batch.rows(slice(0, 1))
    pieces = list(batch.pieces(25))
    assert 1 < len(pieces) <= 6 and torch.equal(torch.cat([piece.target for piece in pieces]), batch.target)
    assert sentences_of(pieces) == sentences_of([batch])
    assert all(len(piece.source) == 1 or max(piece.prev_tokens.numel(), piece.source.numel()) <= 25 for piece in pieces)
    for piece in pieces:
        assert torch.equal(piece.prev_tokens.flatten()[piece.position] == len(text.target.vocabulary),
                           torch.diff(piece.window, prepend=torch.tensor([-1])) == 1)
