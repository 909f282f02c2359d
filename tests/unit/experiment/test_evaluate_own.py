"""Evaluation of runs and vector files on the user's files; each value is compared with a plain formula."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

import embtrain
from embtrain import cli, experiment
from embtrain.common import progress
from embtrain.common.errors import DataError, UnknownNames, UsageError
from embtrain.common.types import Score
from embtrain.data import own_benchmarks
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.hierarchy import own_pairs as hierarchy_pairs
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.storage import stored_corpus
from embtrain.data.vectors import vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.pairs import own_pairs
from embtrain.evaluate.pairs.hypernymy import PairScores
from embtrain.evaluate.statistics.intervals import wilson
from embtrain.evaluate.words import gold
from embtrain.experiment.inspect.evaluate import evaluate_run, evaluate_vectors

pytestmark = pytest.mark.long

TINY = {"model.dim": 6, "train.epochs": 3, "evaluate.resamples": 0}
PLACES = [f"p{i:02}" for i in range(14)]
TRIPLES = [(a, "next", b) for a, b in itertools.pairwise(PLACES)] + [(PLACES[0], "far", place) for place in PLACES[7:]]
PAIRS = [("beagle", "hound"), ("hound", "dog"), ("poodle", "dog"), ("dog", "mammal"), ("cat", "mammal"),
         ("siamese", "cat"), ("mammal", "animal"), ("bird", "animal"), ("robin", "bird"), ("eagle", "bird"),
         ("persian", "cat"), ("greyhound", "hound"), ("bat", "mammal"), ("owl", "bird")]
WORDS = ["king", "queen", "man", "woman", "apple", "pear", "red", "blue", "Oslo", "Rome", "one", "two"]
GOLD = [("king", "queen", 9.), ("man", "woman", 8.), ("apple", "pear", 7.5), ("red", "blue", 6.), ("Oslo", "Rome", 7.),
        ("one", "two", 5.), ("king", "apple", 1.), ("king", "nowhere", 3.), ("red", "Rome", .5)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "quiet", True)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    table = np.random.default_rng(1).normal(size=(len(WORDS), 5)).astype(np.float32)
    vectors.write(tmp_path / "words.txt", Vectors(WORDS, table), "word2vec")
    return tmp_path / "words.txt"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose corpora were deleted."""
    place = tmp_path_factory.mktemp("judged")
    (place / "map.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    (place / "kinds.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    (place / "docs").mkdir()
    (place / "docs" / "all_train.txt").write_text(documents(80))
    (place / "docs" / "all_test.txt").write_text(documents(30, 7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr("embtrain.report.write", lambda folder: folder)
        for name, strategy, model, corpus in (("graph", None, "transe", "map.tsv"), ("kinds", None, "order",
                                              "kinds.tsv"), ("labels", "sgns", "xc", "docs")):
            embtrain.fit(strategy, model=model, corpus=place / corpus, sets=TINY, threads=1, out=place / name)
    (place / "all_test.txt").write_bytes((place / "docs" / "all_test.txt").read_bytes())
    for gone in ("docs", "cache"):
        shutil.rmtree(place / gone)
    for name in ("map.tsv", "kinds.tsv"):
        (place / name).unlink()
    return place


def documents(n: int, first: int = 0) -> str:
    rows = [f"{i % 3},{(i + i % 2) % 3} {i % 3}:1 {3 + i % 4}:{1 + i % 5}" for i in range(first, first + n)]
    return "\n".join([f"{n} 8 3", *rows]) + "\n"


def by_metric(rows: list[Score]) -> dict[str, Score]:
    return {row.metric: row for row in rows}


def table(path: Path) -> dict[str, np.ndarray]:
    result = vectors.read(path)
    return dict(zip(result.words, result.table.astype(float), strict=True))


# --- words -----------------------------------------------------------------------------------------------------------

def rho(path: Path) -> float:
    x = table(path)
    def cosine(u: np.ndarray, v: np.ndarray) -> float:
        return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
    known = [(a, b, s) for a, b, s in GOLD if a in x and b in x]
    return float(spearmanr([cosine(x[a], x[b]) for a, b, _ in known], [s for *_, s in known]).statistic)


@pytest.mark.parametrize(("name", "between", "header", "middle"), [
    ("own.tsv", "\t", "", ""), ("own.csv", ",", "", ""), ("own.csv", ",", "word1,word2,score", ""),
    ("own.csv", ";", "a;b;Human (mean)", ""), ("own.txt", " ", "", ""), ("own.tsv", "\t", "w1\tw2\tPOS\tSim", "N"),
    ("own.csv", ", ", "", "")])
def test_a_table_of_words_and_scores_is_a_benchmark(words: Path, tmp_path: Path, name: str, between: str, header: str,
                                                    middle: str) -> None:
    lines = [between.join([a, b, *([middle] if middle else []), str(score)]) for a, b, score in GOLD]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + ("\r\n".join([*([header] if header else []), *lines]) + "\r\n\n"
                                                     ).encode())
    [row] = experiment.evaluate(words, [str(tmp_path / name)])
    assert (row.benchmark, row.metric, row.n) == (name, "spearman", 8)
    assert row.value == pytest.approx(rho(words)) and "8 of 9 pairs found, others dropped" in row.note


def test_two_files_of_one_name_are_refused(words: Path, place: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name / "own.tsv" for name in ("a", "b")]
    for what, lines in ((words, ["king\tqueen\t9", "man\twoman\t8"]), (place / "graph", ["p03\tfar\tp09"])):
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(lines))
        with pytest.raises(UsageError) as caught:
            experiment.evaluate(what, paths)
        assert str(caught.value) == f"--on: {paths[1]}: has the name of {paths[0]} in scores; rename the file"
        again = tmp_path / "a" / ".." / "a" / "own.tsv"      # the same file is scored once
        assert experiment.evaluate(what, [paths[0], again]) == experiment.evaluate(what, paths[0])


@pytest.mark.parametrize("between", ["\t", " ", ","])
def test_comments_are_skipped_and_counted_but_words_with_the_mark_are_rows(
        words: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, between: str) -> None:
    table = np.random.default_rng(2).normal(size=(len(WORDS), 5))
    vectors.write(words, Vectors(["#", "#red", *WORDS[2:]], table), "word2vec")
    rows = [(a.replace("king", "#").replace("queen", "#red"), b, str(score)) for a, b, score in GOLD]
    own, plain = tmp_path / "own.tsv", tmp_path / "plain.tsv"
    text = [between.join(row) for row in rows]
    plain.write_text("\n".join(text))
    head = ["# The test collection", between.join(["# Word 1", "Word 2", "Human (mean)"]), *["## notes"] * 60]
    own.write_text("\n".join([*head, *text, "#"]))
    [expected], [row] = (experiment.evaluate(words, [str(path)]) for path in (plain, own))
    assert row == expected._replace(benchmark="own.tsv") and row.n == len([b for _, b, _ in rows if b in WORDS[2:]])
    assert [message for message in caplog.messages if "comment" in message] == [
        f"{own}:1: 63 lines begin with a comment mark and a space (`# `, `% `) and are skipped as comments"]


def test_comments_of_a_file_of_pairs_are_no_pairs(place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                  ) -> None:
    for pairs in ("beagle\tdog\nrobin\tbird\n", "beagle dog yes\nrobin dog no\n"):
        (tmp_path / "own.txt").write_text(pairs)
        plain = experiment.evaluate(place / "kinds", [str(tmp_path / "own.txt")])
        (tmp_path / "own.txt").write_text(f"# my pairs\n#\n{pairs}")
        caplog.clear()
        assert experiment.evaluate(place / "kinds", [str(tmp_path / "own.txt")]) == plain
        assert "own.txt:1: 2 lines begin with a comment mark" in caplog.text


def test_files_of_gensim_have_the_value_of_gensim(tmp_path: Path) -> None:
    from gensim.test.utils import datapath

    pairs = [line.split("\t") for line in Path(datapath("wordsim353.tsv")).read_text().splitlines()[2:]]
    known = list(dict.fromkeys(word.lower() for a, b, _ in pairs for word in (a, b)))
    keyed = Vectors(known, np.random.default_rng(3).normal(size=(len(known), 4))).keyed()
    vectors.write(tmp_path / "kv.txt", Vectors.of(keyed), "word2vec")
    for name in ("wordsim353.tsv", "simlex999.txt"):
        [row] = experiment.evaluate(tmp_path / "kv.txt", [datapath(name)])
        assert row.value == pytest.approx(keyed.evaluate_word_pairs(datapath(name))[1].statistic, abs=1e-6)


def test_empty_cells_at_the_end_of_a_line_are_cells(words: Path, tmp_path: Path) -> None:
    """With TABs they were cut off, and the line was refused by its number of columns."""
    for between in ("\t", ",", ";"):
        lines = [between.join(["word1", "word2", "score", "remark"]),
                 *(between.join([a, b, str(score), "x" * (i % 2)]) for i, (a, b, score) in enumerate(GOLD))]
        (tmp_path / "own.txt").write_text("\n".join(lines))
        assert experiment.evaluate(words, [str(tmp_path / "own.txt")])[0].value == pytest.approx(rho(words))


@pytest.mark.parametrize("between", ["\t", ",", ";"])
def test_surplus_empty_fields_at_the_end_of_a_line_are_not_columns(words: Path, place: Path, tmp_path: Path,
                                                                   between: str) -> None:
    """A table was refused if other lines had fewer of them, or with TABs split at blanks."""
    delimiter, own = {"\t": "tab", ",": "comma", ";": "semicolon"}[between], tmp_path / "own.txt"
    (tmp_path / "mine.yaml").write_text(
        "kind: similarity\nmetric: spearman\ncopies: [{mirror: own.txt, sha256: unverified}]\n"
        f"format: {{columns: [word1, word2, score], delimiter: {delimiter}}}\n")
    kinds, head = [("beagle", "dog", 1), ("robin", "dog", 0), ("cat", "animal", 1)], [("word1", "word2", "score")]
    for run, file, rows in ((words, "mine.yaml", GOLD), (words, "own.txt", GOLD), (words, "own.txt", head + GOLD),
                            (place / "kinds", "own.txt", kinds), (place / "kinds", "own.txt", head + kinds)):
        lines = [between.join(map(str, row)) for row in rows]
        own.write_text("\n".join(lines))
        plain = experiment.evaluate(run, [str(tmp_path / file)])
        for longer in (slice(1, 2), slice(1, None), slice(0, -1), slice(0, None)):
            surplus = {line: between * (1 + i % 2) for i, line in enumerate(lines[longer])}
            own.write_text("\n".join(line + surplus.get(line, "") for line in lines))
            assert experiment.evaluate(run, [str(tmp_path / file)]) == plain
    own.write_text("".join(between.join([a, b, str(score), "", "x\n"]) for a, b, score in GOLD))
    with pytest.raises(DataError, match="should have 3 columns"):
        experiment.evaluate(words, [str(tmp_path / "mine.yaml")])


def test_surplus_tabs_split_no_words_at_blanks() -> None:
    lines = ["new york\tbig apple\t9\t", "red car\tblue car\t3\t", "old man\ttall man\t5"]
    form = own_benchmarks.detect_layout(lines, Path("x"))
    assert (form.delimiter, form.columns) == ("tab", ("word1", "word2", "score"))


@pytest.mark.parametrize(("between", "name"), [(" ", "space"), (",", "comma"), (";", "semicolon")])
def test_a_delimiter_at_the_end_of_all_lines_separates_no_columns(between: str, name: str) -> None:
    """Rows that all end in a TAB had one filled column, and the table was refused, also with one remark after a TAB."""
    lines = [between.join(row) + "\t" for row in (("king", "queen", "5"), ("man", "woman", "6"))]
    for more in ([], [between.join(("red", "blue", "3")) + "\tunsure"]):
        form = own_benchmarks.detect_layout(lines + more, Path("x"))
        assert (form.delimiter, form.columns) == (name, ("word1", "word2", "score"))
    with pytest.raises(DataError, match="should be two words separated by a TAB"):
        own_benchmarks.detect_layout(["king,", "man,"], Path("x"))


@pytest.mark.parametrize("end", [",", ";", ";;"])
def test_a_delimiter_at_the_end_of_rows_between_blanks_is_surplus(words: Path, tmp_path: Path, end: str) -> None:
    """The scores were no numbers with it, and the table was refused."""
    lines = [f"{a} {b} {score}{end}\n" for a, b, score in GOLD]
    for rows in (lines, ["word1 word2 score" + end + "\n", *lines]):
        (tmp_path / "own.csv").write_text("".join(rows))
        assert experiment.evaluate(words, [str(tmp_path / "own.csv")])[0].value == pytest.approx(rho(words))
    (tmp_path / "labels.csv").write_text("".join(f"{a} {b} {score > 5}{end}\n" for a, b, score in GOLD))
    of_labels = by_metric(experiment.evaluate(words, [str(tmp_path / "labels.csv")]))
    assert of_labels.keys() == {"accuracy", "ap", "direction"}
    (tmp_path / "own.csv").write_text("".join([*lines, "man red 3,unsure\n"]))
    with pytest.raises(DataError, match=r"own.csv:10: score should be a number, got '3,unsure'"):
        experiment.evaluate(words, [str(tmp_path / "own.csv")])


@pytest.mark.parametrize("word", ["woman,", "no,", "Yes;", "infinity,", "12,"])
def test_a_delimiter_after_the_last_word_between_blanks_is_part_of_it(tmp_path: Path, word: str) -> None:
    """Words of a text that is split at blanks can end in one. They were unknown, also if they are labels without it."""
    known, own = [*WORDS[:3], word], tmp_path / "own.txt"
    vectors.write(tmp_path / "words.txt", Vectors(known, np.eye(4, dtype=np.float32)), "word2vec")
    own.write_text(f": opposites\nking queen man {word}\n")
    assert "1 of 1 questions found" in experiment.evaluate(tmp_path / "words.txt", [str(own)])[0].note
    own.write_text(f"score word1 word2\n3 king {word}\n2 king queen\n1 queen man\n")
    assert experiment.evaluate(tmp_path / "words.txt", [str(own)])[0].note.startswith("3 of 3 pairs")
    own.write_text(f"king {word}\nqueen {word}\n")
    pairs = hierarchy_pairs.read(own, {name: i for i, name in enumerate(known)}, Senses(known, {}))
    assert pairs.pairs == [([0], [3]), ([1], [3])]
    own.write_text(f"king {word} yes,\nqueen {word} No;\nking man no\n")
    labelled = hierarchy_pairs.read(own, {name: i for i, name in enumerate(known)}, Senses(known, {}))
    assert (labelled.kind, labelled.pairs[:2], labelled.gold.tolist()) == ("labels", pairs.pairs, [1, 0, 0])


@pytest.mark.parametrize("more", [["total"], ["man,woman,6", "total", "end"]])
def test_lines_of_one_field_do_not_decide_the_layout(more: list[str]) -> None:
    """One column was the smallest of several frequent numbers of columns, and the table was refused."""
    form = own_benchmarks.detect_layout(["king,queen,5", *more], Path("x"))
    assert (form.delimiter, form.columns) == ("comma", ("word1", "word2", "score"))


@pytest.mark.parametrize(("score", "remedy"), [
    ("7,35", "write a decimal point: 7.35"), ("7,35e-1", "write a decimal point: 7.35e-1"),
    ("1,234", "write a decimal point, or remove a thousands separator"),
    ("1,234,567", "remove the thousands separators"),
    *((score, "correct it, or name the columns here")
      for score in ("1_0", "50%", "\u22120.5", "7.35.", "1 234", "7/10"))])
def test_a_faulty_number_in_the_first_line_does_not_make_it_a_header(tmp_path: Path, score: str, remedy: str) -> None:
    own = tmp_path / "own.txt"
    for rows in ("tree;house;1.5\na;b;3\n", "tree;house;True\na;b;False\n"):
        own.write_text(f"\n# a comment\ncat;dog;{score}\n{rows}", "utf-8")
        with pytest.raises(DataError, match=f"own.txt:3: column 3: should contain numbers, .*; {re.escape(remedy)}$"):
            own_benchmarks.recipe_from_table(own)
    own.write_text(f"word1;word2;{score}\ntree;house;1.5\na;b;3\n", "utf-8")
    assert own_benchmarks.recipe_from_table(own).format.header


@pytest.mark.parametrize("title", ["1-10", "(0\u201310)", "1 .. 7", "SimLex999", "", "7.35 (mean)"])
def test_a_column_of_scores_may_have_a_name_with_digits(tmp_path: Path, title: str) -> None:
    (tmp_path / "own.txt").write_text(f"noun\tother\t{title}\ntree\thouse\t1.5\na\tb\t3\n", "utf-8")
    assert own_benchmarks.recipe_from_table(tmp_path / "own.txt").format.header


def test_of_several_frequent_numbers_of_columns_the_smallest_is_used() -> None:
    """The number of the first line was used, so that the order of the lines decided."""
    for lines in itertools.permutations(["a,b,1", "c,d,e,2", "f,g,3", "h,i,j,4"]):
        assert len(own_benchmarks.detect_layout(lines, Path("x")).columns) == 3


def test_quoted_fields_and_labels_and_analogies(words: Path, tmp_path: Path) -> None:
    (tmp_path / "quoted.csv").write_text("".join(f'"{a}","{b}","{score}"\n' for a, b, score in GOLD))
    assert experiment.evaluate(words, [str(tmp_path / "quoted.csv")])[0].value == pytest.approx(rho(words))
    labels = [(a, b, i % 2 == 0) for i, (a, b) in enumerate(itertools.combinations(WORDS, 2))]
    (tmp_path / "labels.tsv").write_text("".join(f"{a}\t{b}\t{kind}\n" for a, b, kind in labels))
    x = table(words)
    cosines = [x[a] @ x[b] / np.linalg.norm(x[a]) / np.linalg.norm(x[b]) for a, b, _ in labels]
    result = by_metric(experiment.evaluate(words, [str(tmp_path / "labels.tsv")]))
    assert result["ap"].value == pytest.approx(average_precision_score([kind for *_, kind in labels], cosines))
    (tmp_path / "questions.txt").write_text(": kin\nking queen man woman\nking queen man nowhere\n")
    assert by_metric(experiment.evaluate(words, [str(tmp_path / "questions.txt")]))["accuracy"].n == 1


def test_a_user_recipe_names_its_gold_file(words: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gold.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    text = "kind: similarity\nmetric: spearman\ncopies:\n  - mirror: data/gold.tsv\n    sha256: \"{}\"\n"
    (tmp_path / "mine.yaml").write_text(text.format("unverified"))
    [row] = experiment.evaluate(words, [str(tmp_path / "mine.yaml")])
    assert row.benchmark == "mine" and row.value == pytest.approx(rho(words)) and row.n == 8
    (tmp_path / "mine.yaml").write_text(text.format("0" * 64))
    with pytest.raises(DataError, match=r"gold.tsv: has the sha256 .* but .*mine.yaml requires 0000"):
        experiment.evaluate(words, [str(tmp_path / "mine.yaml")])
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(DataError, match=r"empty\.yaml: kind: needs a value; .*empty\.yaml: metric: needs a value"):
        experiment.evaluate(words, [str(tmp_path / "empty.yaml")])
    (tmp_path / "mine.yaml").write_text(text.format("unverified").replace("metric", "metrik"))
    with pytest.raises(DataError, match=r"mine.yaml:2:1: metrik"):
        experiment.evaluate(words, [str(tmp_path / "mine.yaml")])


@pytest.mark.parametrize("between", ["\t", " ", ","])
@pytest.mark.parametrize("head", [["Word1", "Word2", "Score"], ["# Word1", "Word2", "Score"], ["% a", "b", "c"]])
def test_a_recipe_with_a_header_loses_no_pair(words: Path, tmp_path: Path, head: list[str], between: str) -> None:
    """A header with a comment mark was skipped as a comment, and the first pair as the header."""
    gold, delimiter = tmp_path / "gold.txt", {"\t": "tab", " ": "space", ",": "comma"}[between]
    (tmp_path / "mine.yaml").write_text(
        f"kind: similarity\nmetric: spearman\ncopies: [{{mirror: gold.txt, sha256: unverified}}]\n"
        f"format: {{columns: [word1, word2, score], delimiter: {delimiter}, header: true}}\n")
    for notes in ([], ["# notes"], ["# version 2", between.join(["# made", "in", "2024"])]):
        lines = [*notes, between.join(head), "# more", *(between.join(map(str, row)) for row in GOLD)]
        gold.write_text("\n".join(lines))
        [row] = experiment.evaluate(words, [str(tmp_path / "mine.yaml")])
        assert row.value == pytest.approx(rho(words)) and "8 of 9 pairs" in row.note


@pytest.mark.parametrize(("columns", "lines", "rows"), [
    ("word1, word2, score", ["# Word1 Word2 Score", "king queen n/a", "man woman 1"], 2),
    ("word1, word2, score", ["# made by hand", "word1 word2 score", "man woman 1"], 1),
    ("word1, word2, score", ["# word1 word2 score", "word1 word2 score", "man woman 1"], 1),
    ("word1, word2, word3, target", ["# my own analogy questions", "capital country x y", "a b c d"], 1),
    ("word1, word2, word3, target", ["# word1 word2 word3 target", "king queen man woman", "a b c d"], 2),
    ("theme, word1, word2, word3, target", ["# Theme a b c Target", "kin king queen man woman", "x a b c d"], 2),
    ("word1, word2, word3, target", ["# a b c d", "word1 word2 word3 target", "a b c d"], 1)])
def test_a_recipe_with_a_header_has_one_with_or_without_a_comment_mark(
        tmp_path: Path, columns: str, lines: list[str], rows: int) -> None:
    """A first row without a number was lost as the header behind a comment that names the columns."""
    form = GoldFormat(columns=tuple(columns.split(", ")), delimiter="space", header=True)
    (tmp_path / "gold.txt").write_text("\n".join(lines))
    assert [line.fields for line in gold.lines(tmp_path / "gold.txt", form)] == [x.split() for x in lines[-rows:]]


@pytest.mark.parametrize(("head", "warnings"), [
    (["word1 word2 word3 target"], []),
    (["capital country capital2 country2"], ["3: 'capital country capital2 country2': is read as the header"]),
    (["# capital country capital2 country2"], [
        "3: 1 line begins with a comment mark and a space (`# `, `% `) and is skipped as a comment",
        "4: 'king queen man woman': is read as the header"])])
def test_a_header_that_may_be_a_row_gives_a_warning(words: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
                                                    head: list[str], warnings: list[str]) -> None:
    """The first question was lost in silence behind a header with a comment mark and names of its own."""
    (tmp_path / "mine.yaml").write_text(
        "kind: analogy\nmetric: accuracy\ncopies: [{mirror: gold.txt, sha256: unverified}]\n"
        "format: {columns: [word1, word2, word3, target], delimiter: space, header: true, comment: //}\n")
    (tmp_path / "gold.txt").write_text("\n".join([": kin", "// by hand", *head, *["king queen man woman"] * 2]))
    n = by_metric(experiment.evaluate(words, [str(tmp_path / "mine.yaml")]))["accuracy"].n
    assert n == 1 + ("#" not in head[0])
    remedy = f"; set format.header: false in {tmp_path / 'mine.yaml'} if it is a row"
    assert caplog.messages == [f"{tmp_path / 'gold.txt'}:{line}{remedy * ('header' in line)}" for line in warnings]


@pytest.mark.parametrize("between", ["\t", " ", ","])
def test_comments_in_front_of_a_header_are_no_header(words: Path, place: Path, tmp_path: Path, between: str) -> None:
    own, notes = tmp_path / "own.txt", ["# version 2", between.join(["# made", "x", "2024"])]
    for run, rows in ((words, [("w1", "w2", "score"), *GOLD]),
                      (place / "kinds", [("child", "parent", "label"), ("beagle", "dog", 1), ("robin", "dog", 0)])):
        lines = [between.join(map(str, row)) for row in rows]
        own.write_text("\n".join(lines))
        plain = experiment.evaluate(run, [str(own)])
        own.write_text("\n".join([*notes, *lines]))
        assert experiment.evaluate(run, [str(own)]) == plain


@pytest.mark.parametrize(("text", "message"), [
    ("", "is empty; give lines of two words and a score"),
    ("king\tqueen\t9\nman\twoman\tmany\nred\tblue\t3\n", ":2: score should be a number, got 'many'"),
    ("king\tqueen\t9\nman\twoman\nred\tblue\t3\n", ":2: should have 3 columns"),
    ("king\tqueen\nman\twoman\n", "has no column of numbers after two words"),
    ("king\nqueen\n", ":1: should be two words separated by a TAB"),
    ("king\tqueen\t9\nman\twoman\tinf\n", ":2: score should be a finite number"),
    ("king\tqueen\t\xff\n", "is not UTF-8"),
    *((f"man,woman,8\nred,blue,6\n{line}\n", f":3: is not a line of comma-separated values: {line!r}; quote whole "
       "fields, and double a quote inside them") for line in ('"king" x,queen,9', '"king,queen,9')),
    ("word1,word2,score\nman,woman,8\n\nred,blue,6\none,two,\nred,one,\nred,two,\n",
     "own.tsv:5: column 3 ('score'): should contain numbers, or True and False, got ''"),
    ("word1,word2,label\nman,woman,True\nred,blue,?\none,two,?\n",
     "own.tsv:3: column 3 ('label'): should contain numbers, or True and False, got '?'"),
    *((f"man{between}woman{between}8\nking{between}queen{between}0,5\nred{between}blue{between}0,75\n",
       "own.tsv:2: should have a column of numbers, got '0,5'; write a decimal point: 0.5") for between in "; \t"),
    ("man;woman;8\nred;blue;1,500\nking;queen;2,250\n",
     "own.tsv:2: should have a column of numbers, got '1,500'; write a decimal point, or remove a thousands separator"),
    ("word1;word2;score\nman;woman;7,5\nred;blue;3\n",
     "own.tsv:2: score should be a number, got '7,5'; write a decimal point: 7.5"),
    ("word1;word2;score\nking;queen;-0,5\nred;blue;0,75\n",
     "own.tsv:2: column 3 ('score'): should contain numbers, or True and False, got '-0,5'; write a decimal point: "
     "-0.5"),
    *((f'man{mark}woman{mark}8\nking{mark}queen{mark}"0,5"\nred{mark}blue{mark}"0,75"\n',
       "own.tsv:2: should have a column of numbers, got '0,5'; write a decimal point: 0.5") for mark in ",;"),
    ("man\twoman\t0,5\tx\nking\tqueen\t1,5\ty\n",
     "own.tsv:1: should have a column of numbers, got '0,5'; write a decimal point: 0.5"),
    ("man\twoman\t1,500,000\nking\tqueen\t2,500,000\n",
     "own.tsv:1: should have a column of numbers, got '1,500,000'; remove the thousands separators"),
    ("king;queen;9\nman;woman\nred;3,14;x\n", "has no column of numbers after two words"),
])
def test_a_malformed_table_is_refused_with_its_line(words: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.tsv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        experiment.evaluate(words, [str(tmp_path / "own.tsv")])
    assert message in str(caught.value)


def test_an_unknown_benchmark_or_file_is_refused(words: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--on: no benchmark named 'wordsim35' .did you mean 'wordsim353'.*no file"):
        experiment.evaluate(words, ["wordsim35"])
    with pytest.raises(UsageError, match="is a folder; give a file in it"):
        experiment.evaluate(words, [str(tmp_path)])


def test_the_command_accepts_paths_and_names(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a,b.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    shutil.copy(tmp_path / "a,b.tsv", tmp_path / "c.tsv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["embtrain", "evaluate", words.name, "--on", "a,b.tsv", "--on", "c.tsv,a,b.tsv",
                                      "--json"])
    assert cli.run() == 2                                    # `a` and `b.tsv` are neither
    monkeypatch.setattr(sys, "argv", ["embtrain", "evaluate", words.name, "--on", "a,b.tsv", "--on", "c.tsv", "--json"])
    capsys.readouterr()
    assert cli.run() == 0
    assert [row["benchmark"] for row in json.loads(capsys.readouterr().out)] == ["a,b.tsv", "c.tsv"]


@pytest.mark.parametrize("text, sets", [
    ("Aa,Bb,3\nCc,Dd,4\nking,Ee,1\n", ()), ("Aa,Bb,3\nCc,Dd,4\n", ("oov=zero",)), ("Aa,Bb,True\nCc,Dd,False\n", ()),
    ("word1,word2,word3,target\nAa,Bb,Cc,Dd\n", ()), ("word1,word2,word3,target\nAa,Bb,Cc,king\n", ("oov=zero",))])
def test_a_file_of_unknown_words_fails_after_the_others(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str], text: str,
                                                        sets: tuple[str, ...]) -> None:
    (tmp_path / "unknown.csv").write_text(text)
    recipe = "kind: analogy\nmetric: accuracy\nformat: {columns: [word1, word2, word3, target], delimiter: comma, " \
             "header: true}\ncopies: [{mirror: unknown.csv, sha256: unverified}]\n"
    (tmp_path / "unknown.yaml").write_text(recipe)
    unknown = "unknown.yaml" if text.startswith("word1") else "unknown.csv"
    (tmp_path / "own.csv").write_text("".join(f"{a},{b},{score}\n" for a, b, score in GOLD))
    monkeypatch.chdir(tmp_path)
    options = [word for key in sets for word in ("--set", f"evaluate.{key}")]
    for others in ((), ("--on", "own.csv")):
        command = ["embtrain", "evaluate", words.name, "--on", unknown, *others, "--json", *options]
        monkeypatch.setattr(sys, "argv", command)
        assert cli.run() == 3
        output = capsys.readouterr()
        assert [row["benchmark"] for row in json.loads(output.out or "[]")] == (["own.csv"] if others else [])
        [line] = output.err.splitlines()
        assert line.startswith(f"embtrain: error: {tmp_path / 'unknown.csv'}: no ") and "contains only words of" in line


def test_the_table_states_the_coverage_of_its_intervals(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    for sets, said in ((), "95 % interval"), (("--set", "evaluate.interval=0.5"), "50 % interval"):
        monkeypatch.setattr(sys, "argv", ["embtrain", "evaluate", str(words), "--on", str(tmp_path / "own.tsv"), *sets])
        assert cli.run() == 0
        assert said in capsys.readouterr().out


def test_runs_and_files_have_separate_functions(words: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    (tmp_path / "more.tsv").write_text("p03\tfar\tp09\np05\tnext\tp02\n")
    own, more = [str(tmp_path / "own.tsv")], [str(tmp_path / "more.tsv")]
    assert evaluate_vectors(words, own) == experiment.evaluate(words, own)
    run = embtrain.Run(place / "graph")
    hits = evaluate_run(run, more, ["evaluate.hits=[2]"])
    assert hits == experiment.evaluate(run.folder, more, ["evaluate.hits=[2]"]) and "hits@2" in by_metric(hits)
    for text, message in (("model.dim=3", "override only evaluate"),
                          ("evaluate.beam=2", "applies to runs evaluated by their own task, .*, evaluate.centred"),
                          ("evaluate.vectors=sum", "a file contains one table")):
        with pytest.raises(UsageError, match=f"--set {text}: .*{message}"):
            evaluate_vectors(words, own, [text])


def test_benchmarks_of_a_file_follow_the_keys_of_its_vectors(words: Path, tmp_path: Path) -> None:
    gold = [(a, b, score) for a, b, score in GOLD if b != "nowhere"]
    (tmp_path / "own.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    table = vectors.read(words).table + np.float32(3)
    vectors.write(words, Vectors(WORDS, table), "word2vec")
    x = table - table.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosine = [x[WORDS.index(a)] @ x[WORDS.index(b)] for a, b, _ in gold]
    own = [str(tmp_path / "own.tsv")]
    [row] = evaluate_vectors(words, own, ["evaluate.centred=true", "evaluate.resamples=0"])
    assert row.value == pytest.approx(spearmanr(cosine, [score for *_, score in gold]).statistic) and row.low is None
    [zero] = evaluate_vectors(words, own, ["evaluate.oov=zero"])
    assert zero.n == 9 and row.n == 8 and zero.value != row.value


def test_layouts_are_detected() -> None:
    for lines, want in ((["a b 1", "c d 2"], ("space", False, "score")), (["a\tb\t1"], ("tab", False, "score")),
                        (["x,y,z", "a,b,1"], ("comma", True, "score")), (["a,b,True", "c,d,False"], ("comma", False,
                                                                                                     "label"))):
        form = own_benchmarks.detect_layout(lines, Path("x"))
        assert (form.delimiter, form.header, form.columns[-1]) == want


@pytest.mark.parametrize("between", ["\t", " ", ","])
@pytest.mark.parametrize("header", ["word2 word1 score", "score word1 word2", "id pos word1 word2 score",
                                    "w1 x w2 mean", "word1 word2 rating n"])
def test_a_header_with_a_comment_mark_is_read_as_one_without(
        words: Path, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str, between: str) -> None:
    """Its names were skipped, which swapped words, dropped columns or refused the table."""
    own, names = tmp_path / "own.txt", header.split()
    kinds = [("beagle", "dog", 1), ("robin", "dog", 0), ("cat", "animal", 1), ("bat", "bird", 0)]
    for run, pairs in ((words, GOLD), (place / "kinds", kinds)):
        cells = [{name: str(value) for names in (("word1", "word2", "score"), ("w1", "w2", "mean", "rating"))
                  for name, value in zip(names, (*row, row[-1]), strict=False)} | {"id": str(i), "n": str(i)}
                 for i, row in enumerate(pairs)]
        rows = [between.join(cell.get(name, "x") for name in names) for cell in cells]
        own.write_text("\n".join([between.join(names), *rows]))
        plain, mark = experiment.evaluate(run, [str(own)]), "%" if run == words else "#"
        own.write_text("\n".join(["# version 2", f"{mark} {between.join(names)}", "# notes", *rows]))
        caplog.clear()
        assert experiment.evaluate(run, [str(own)]) == plain and plain[0].n
        assert f"comment in front of the first pair is read as a header: {' '.join(names)!r}" in caplog.text
        assert "2 lines begin with a comment mark" in caplog.text


@pytest.mark.parametrize("comment", ["word1 word2", "hypernym hyponym", "child of parent", "target: source",
                                     "word2 and word1", "parent - child", "score parent child"])
def test_a_comment_that_names_other_columns_than_those_of_words_is_no_header(
        words: Path, place: Path, tmp_path: Path, comment: str) -> None:
    """A column of numbers was read as words, or the table was refused."""
    own = tmp_path / "own.txt"
    for run, rows in ((words, GOLD), (place / "kinds", [("beagle", "dog", 1), ("robin", "dog", 0)]),
                      (place / "kinds", [("beagle", "dog", "x"), ("robin", "bird", "y")])):
        if isinstance(rows[0][2], str) and len(comment.split()) > 2:
            continue                                          # three names of three columns of text
        own.write_text("\n".join(" ".join(map(str, row)) for row in rows))
        plain = experiment.evaluate(run, [str(own)])
        own.write_text(f"# {comment}\n{own.read_text()}")
        assert experiment.evaluate(run, [str(own)]) == plain


@pytest.mark.parametrize(("comment", "row", "words"), [
    ("# word2 word1 score", "7 a b .5", (2, 1)), ("# hypernym hyponym", "7 a b", (2, 1)),
    ("# hypernym hyponym", "3 4", (1, 0)), ("# hypernym hyponym label", "3 4 True", (1, 0)),
    ("# hypernym hyponym", "3 4 True", (0, 1)), ("#\tword2\tword1\tscore", "x\ta\tb\t.5", (2, 1))])
def test_a_comment_names_words_of_numbers_and_its_mark_a_column_of_numbers(
        tmp_path: Path, comment: str, row: str, words: tuple[int, int]) -> None:
    form = own_benchmarks.detect_layout([comment, row, row], tmp_path / "own.txt")
    assert tuple(form.positions("word1", "word2")) == words


@pytest.mark.parametrize("between", ["\t", " ", ","])
@pytest.mark.parametrize("head", [["# child", "parent"], ["# hypernym", "hyponym"], ["% hypernym", "hyponym"],
                                  ["# hypernym", "hyponym\n# my pairs"]])
def test_the_first_pair_behind_a_commented_header_is_a_row(place: Path, tmp_path: Path, head: list[str], between: str
                                                           ) -> None:
    """Between blanks, the first pair was lost as the header."""
    own, pairs = tmp_path / "own.txt", [("beagle", "dog"), ("robin", "bird"), ("cat", "animal")]
    own.write_text("\n".join(map(between.join, pairs)))
    plain = experiment.evaluate(place / "kinds", [str(own)])
    ordered = [pair[::-1] if "hypernym" in head[0] else pair for pair in pairs]
    own.write_text("\n".join([between.join(head), *map(between.join, ordered)]))
    assert experiment.evaluate(place / "kinds", [str(own)]) == plain and "3 of 3 pairs" in plain[0].note
    own.write_text("\n".join([between.join(head), between.join(["child", "parent"]), *map(between.join, pairs)]))
    assert experiment.evaluate(place / "kinds", [str(own)]) == plain


def test_a_first_row_without_a_number_behind_a_commented_header_is_reported(words: Path, tmp_path: Path) -> None:
    """Both lines were read as headers, and the row was not reported."""
    (tmp_path / "own.txt").write_text("# word1 word2 score\nking queen n/a\nman woman 8\nred blue 6\n")
    with pytest.raises(DataError, match=r"own\.txt:2: score should be a number, got 'n/a'"):
        experiment.evaluate(words, [str(tmp_path / "own.txt")])


@pytest.mark.parametrize(("comment", "lines", "want"), [
    ("# hypernym hyponym", ["a b", "c d"], (("word2", "word1"), True)),
    ("# score of pairs", ["a b 1", "c d 2"], (("word1", "word2", "score"), False)),
    ("# word2 word1 score", ["word1 word2 score", "c d 2", "e f 3"], (("word1", "word2", "score"), True)),
    ("# word2 word1 3", ["a b 1", "c d 2"], (("word1", "word2", "score"), False)),
    ("# score word1", ["a b 1", "c d 2"], (("word1", "word2", "score"), False)),
    ("# mean similarity rating", ["a b 1", "c d 2"], (("word1", "word2", "score"), False)),
    ("# mean similarity rating", ["a 1 b", "c 2 d"], (("word1", "word2", "column3"), False)),
    ("# word2 word1 label score", ["a b x 1", "c d y 2"], (("word2", "word1", "column3", "score"), True)),
    ("#,w2,w1,mean", ["1,a,b,2", "2,c,d,3"], (("column1", "word2", "word1", "score"), True))])
def test_a_comment_is_a_header_if_it_names_columns_and_no_other_line_does(
        tmp_path: Path, comment: str, lines: list[str], want: tuple[tuple[str, ...], bool]) -> None:
    form = own_benchmarks.detect_layout([comment, *lines], tmp_path / "own.txt")
    assert (form.columns, form.header) == want


@pytest.mark.parametrize(("lines", "want"), [
    ([",word1,word2,score", "0,a,b,.2", "1,c,d,.1"], {"word1": 1, "word2": 2, "score": 3}),
    (["0,a,b,.2", "1,c,d,.1"], {"word1": 1, "word2": 2, "score": 3}),
    (["id\tw1\tw2\tlabel", "7\ta\tb\tTrue", "3\tc\td\tFalse"], {"word1": 1, "word2": 2, "label": 3}),
    (["score;Word (2);POS;WORD_1", ".2;b;N;a", ".1;d;V;c"], {"word1": 3, "word2": 1, "score": 0}),
    (["parent,child,score", "b,a,.2", "d,c,.1"], {"word1": 1, "word2": 0, "score": 2}),
    (["parent,child,.3", "a,b,.2", "c,d,.1"], {"word1": 0, "word2": 1, "score": 2}),
    (["3 4 .2", "5 6 .1"], {"word1": 0, "word2": 1, "score": 2}),
    (["route 66 .2", "apollo 11 .1"], {"word1": 0, "word2": 1, "score": 2})])
def test_words_are_in_the_columns_that_the_header_names_or_in_those_of_text(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str], want: dict[str, int]) -> None:
    """An index in front of the words was evaluated as word1."""
    form = own_benchmarks.detect_layout(lines, tmp_path / "own.csv")
    assert {name: form.columns.index(name) for name in want} == want
    assert any("are read as word1 and word2" in message for message in caplog.messages) == (form.columns[0] != "word1")


@pytest.mark.parametrize(("lines", "is_reported"), [
    (["cue,first,second,score", "x,a,b,.2", "y,c,d,.1"], True), (["a,b,N,.2", "c,d,V,.1"], True),
    (["w1,w2,POS,score", "a,b,N,.2", "c,d,V,.1"], False), (["first,second,score", "a,b,.2", "c,d,.1"], False)])
def test_a_choice_among_several_columns_of_text_is_reported(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str], is_reported: bool) -> None:
    own_benchmarks.detect_layout(lines, tmp_path / "own.csv")
    assert ("are read as word1 and word2" in caplog.text) == is_reported


def test_an_index_in_front_of_the_words_changes_no_value(words: Path, place: Path, tmp_path: Path) -> None:
    rows = [("beagle", "dog", "1"), ("robin", "dog", "0"), ("cat", "animal", "1"), ("bat", "bird", "0")]
    for evaluated, names, pairs in ((words, "word1,word2,score", [(a, b, str(score)) for a, b, score in GOLD]),
                                    (place / "kinds", "child,parent,label", rows),
                                    (place / "kinds", "child,parent", [row[:2] for row in rows])):
        (tmp_path / "own.csv").write_text("\n".join([names, *map(",".join, pairs)]))
        plain = experiment.evaluate(evaluated, [str(tmp_path / "own.csv")])
        numbered = [f"{i},{','.join(pair)}" for i, pair in enumerate(pairs)]
        (tmp_path / "own.csv").write_text("\n".join([f",{names}", *numbered]))
        assert experiment.evaluate(evaluated, [str(tmp_path / "own.csv")]) == plain


@pytest.mark.parametrize(("header", "rows", "want"), [
    ("word1,word2,pair_id,score", ["a,b,1,.2", "c,d,2,.1"], (3, "score")),
    ("Word 1,Word 2,Human (mean),1,2", ["a,b,.2,3,4", "c,d,.1,3,4"], (2, "score")),
    ("word1,word2,freq,label", ["a,b,5,True", "c,d,6,False"], (3, "label")),
    ("word1,word2,Label,freq", ["a,b,True,5", "c,d,False,6"], (2, "label")),
    ("word1,word2,pos,value", ["a,b,N,5", "c,d,N,6"], (3, "score"))])
def test_the_header_names_the_column_of_the_score(tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str,
                                                  rows: list[str], want: tuple[int, str]) -> None:
    form = own_benchmarks.detect_layout([header, *rows], tmp_path / "own.csv")
    column, name = want
    assert form.header and form.columns.index(name) == column and {"score", "label"} & {*form.columns} == {name}
    title, n = header.split(",")[column], len(form.columns)
    assert caplog.messages[1:] == [f"{tmp_path / 'own.csv'}: column {column + 1} of {n} ({title!r}) is read as the "
                                   f"{name}"]


@pytest.mark.parametrize(("lines", "message"), [
    (["a b 1 .2", "c d 2 .1"], r"each of the columns 3 \('1'\), 4 \('.2'\) could be .*`score`.*format.columns"),
    (["w1 w2 freq1 freq2 is_hyp", "a b 5 6 True", "c d 7 8 False"],
     r"3 \('freq1'\), 4 \('freq2'\), 5 \('is_hyp'\) could be"),
    ([f"{word} x " + " ".join(f"0.{i}" for i in range(99)) for word in "ab"],              # vectors
     r"columns 3 \('0.0'\), 4 \('0.1'\), 5 \('0.2'\) and 96 others could be the score or label; name one of them"),
    (["w1 w2 rank score label", "a b 1 .2 True", "c d 2 .1 False"], r"columns 4 \('score'\), 5 \('label'\) could be"),
    (["w1 w2 id label", "a b 1 often", "c d 2 never"],
     r"column 4 \('label'\): should contain numbers, (or )?True and False,( or yes and no,)? got 'often'; correct")])
def test_an_ambiguous_score_is_refused(words: Path, place: Path, tmp_path: Path, lines: list[str], message: str
                                       ) -> None:
    (tmp_path / "own.txt").write_text("\n".join(lines) + "\n")
    for evaluated in (words, place / "kinds"):
        with pytest.raises(DataError, match=message):
            experiment.evaluate(evaluated, [str(tmp_path / "own.txt")])


@pytest.mark.parametrize(("lines", "message"), [
    (["dog cat high", "a b 1", "c d 2"],
     "first line is read as a header: 'dog cat high'; correct its score if it is a pair"),
    (["a,b,true", "c,d,False", "e,f,True"],
     "first line is read as a header: 'a,b,true'; correct its label if it is a pair"),
    (["a b 1", "c d 2"], None)])
def test_a_header_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str], message: str | None
                              ) -> None:
    path = tmp_path / "own.txt"
    path.write_text("\n".join(lines) + "\n")
    own_benchmarks.recipe_from_table(path)
    assert caplog.messages == ([] if message is None else [f"{path}: {message}"])


def test_a_header_is_reported_once(words: Path, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tmp_path / "own.txt"
    own.write_text("".join(f"{a} {b} {score}\n" for a, b, score in [("a", "b", "high"), *GOLD]))
    experiment.evaluate(words, [str(own)])
    assert caplog.messages == [f"{own}: first line is read as a header: 'a b high'; correct its score if it is a pair"]
    caplog.clear()
    own.write_text("beagle,bird,no\nbeagle,dog,1\nrobin,dog,0\n")
    experiment.evaluate(place / "kinds", [str(own)])
    assert caplog.messages == [f"{own}: first line is read as a header: 'beagle,bird,no'; correct its score if it is a "
                               "pair"]


# --- graphs ----------------------------------------------------------------------------------------------------------

def test_a_graph_is_evaluated_on_other_triples(place: Path, tmp_path: Path) -> None:
    e, r = (table(place / "graph" / f"{name}.safetensors") for name in ("vectors", "relations"))
    triples = [("p03", "far", "p09"), ("p00", "far", "p08"), ("p05", "next", "p02"), ("p03", "far", "p11")]
    lines = [*triples, triples[0], ("new", "far", "p01"), ("p01", "far", "new"), ("p01", "under", "p02")]
    positives = {*TRIPLES, *triples}
    ranks = []
    for h, name, t in triples:
        for side in (2, 0):
            s = {x: -np.abs(e[h if side == 2 else x] + r[name] - e[x if side == 2 else t]).sum() for x in PLACES}
            expected = (h, name, t)[side]
            whole = {x: (h, name, x) if side == 2 else (x, name, t) for x in PLACES if x != expected}
            rivals = [x for x in whole if whole[x] not in positives]
            ranks.append(1 + sum(s[x] > s[expected] for x in rivals))
    for name, between in (("more.tsv", "\t"), ("test.csv", ","), ("blank.txt", " ")):
        (tmp_path / name).write_text("".join(between.join(triple) + "\n" for triple in lines))
        rows = experiment.evaluate(place / "graph", [str(tmp_path / name)])
        result = by_metric(rows)
        assert {row.benchmark for row in rows} == {name}
        assert result["mrr"].value == pytest.approx(np.mean(1 / np.array(ranks))) and result["mrr"].n == 8
        assert result["hits@3"].value == pytest.approx(np.mean(np.array(ranks) <= 3))
        note = result["mrr"].note
        assert ("4 of 8 triples; skipped: 2 with an entity unknown to the run, 1 with a relation unknown to the run, 1 "
                "repeated; both sides, 14 entities, filtered by train, valid, test and the file") in note
    with pytest.raises(UsageError, match="is a folder; give a file in it"):
        experiment.evaluate(place / "graph", [str(tmp_path)])
    [old] = [triple for triple in TRIPLES if triple == ("p00", "far", "p08")]
    (tmp_path / "old.tsv").write_text("\t".join(old) + "\n")
    seen = by_metric(experiment.evaluate(place / "graph", [str(tmp_path / "old.tsv")]))["mrr"].note
    arrays, names = stored_corpus.read(place / "graph"), (place / "graph" / "entities.txt").read_text().splitlines()
    assert arrays is not None
    index = {line.split("\t")[0]: i for i, line in enumerate(names)}
    trained = any((h, t) == (index["p00"], index["p08"]) for h, _, t in arrays["train"].tolist())
    assert ("1 of them in train" in seen) == trained and "1 of 1 triples" in seen
    (tmp_path / "bad.tsv").write_text("p00\tnext\tp01\np00\tnext\n")
    with pytest.raises(DataError, match=r"bad.tsv:2: 'p00\\tnext': should be head, relation, tail separated by tabs"):
        experiment.evaluate(place / "graph", [str(tmp_path / "bad.tsv")])
    (tmp_path / "none.tsv").write_text("a\tb\tc\n")
    with pytest.raises(UnknownNames, match=r"no triple contains only names of the run .0 of 1 triples; skipped: 1 with"
                       ) as caught:
        experiment.evaluate(place / "graph", [str(tmp_path / name) for name in ("none.tsv", "more.tsv")])
    assert {row.benchmark for row in caught.value.rows} == {"more.tsv"}


def test_evaluate_keys_change_the_evaluation_of_a_file(place: Path, tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text("p03\tfar\tp09\np05\tnext\tp02\n")
    result = by_metric(experiment.evaluate(place / "graph", [str(tmp_path / "more.tsv")], ["evaluate.hits=[2]"]))
    assert "hits@2" in result and "hits@10" not in result
    with pytest.raises(UsageError, match="override only evaluate"):
        experiment.evaluate(place / "graph", [str(tmp_path / "more.tsv")], ["model.dim=3"])


def test_vectors_of_a_text_run_are_evaluated_on_words(tmp_path: Path, words: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.report.write", lambda folder: folder)
    (tmp_path / "text").mkdir()
    for i in range(4):
        (tmp_path / "text" / f"{i}.txt").write_text((" ".join(WORDS) + "\n") * 30)
    run = embtrain.fit("sgns", corpus=tmp_path / "text", threads=1, out=tmp_path / "run", sets={
        **TINY, "text.min_count": 1, "text.valid": .25, "text.test": .25, "evaluate.benchmarks": []})
    (tmp_path / "own.tsv").write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in GOLD))
    [row] = experiment.evaluate(run.folder, [str(tmp_path / "own.tsv")])
    assert row.metric == "spearman" and row.n == 8 and "found as" not in row.benchmark


# --- hierarchies -----------------------------------------------------------------------------------------------------

def energies(place: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    x = table(place / "kinds" / "vectors.safetensors")
    return np.array([-(np.maximum(0, x[v] - x[u]) ** 2).sum() for u, v in pairs])


def test_a_hierarchy_is_evaluated_on_labelled_pairs(place: Path, tmp_path: Path) -> None:
    pairs = [("beagle", "dog"), ("beagle", "bird"), ("robin", "animal"), ("dog", "beagle"), ("owl", "cat")]
    expected = [True, False, True, False, False]
    lines = [f"{u},{v},{int(kind)}" for (u, v), kind in zip(pairs, expected, strict=True)]
    lines = ["hyponym,hypernym,label", *lines, lines[0], "unicorn,animal,1"]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    result = by_metric(experiment.evaluate(place / "kinds", [str(tmp_path / "own.csv")]))
    s = energies(place, pairs)
    [one] = embtrain.Run(place / "kinds").predict(*pairs[0])
    assert result["accuracy"].value == pytest.approx(np.mean((s >= one.facts["threshold"]) == expected))
    assert result["ap"].value == pytest.approx(average_precision_score(expected, s))
    assert result["accuracy"].n == 5
    assert "5 of 7 pairs; skipped: 1 with a concept unknown to the run, 1 repeated" in result["accuracy"].note
    for true, false, between in (("yes", "no", "\t"), ("true", "false", "\t"), ("True", "False", "\t"),
                                 ("Yes,", "No,", " "), ("true;", "false;", " ")):    # without a header
        words = [between.join((u, v, true if kind else false)) + "\n"
                 for (u, v), kind in zip(pairs, expected, strict=True)]
        (tmp_path / "words.tsv").write_text("".join(words))
        assert by_metric(experiment.evaluate(place / "kinds", [str(tmp_path / "words.tsv")]))["ap"].value == \
            result["ap"].value
    grades = [3.5, 1, 2.5, 0.5, 0.2]
    (tmp_path / "graded.tsv").write_text("".join(f"{u}\t{v}\t{g}\n" for (u, v), g in zip(pairs, grades, strict=True)))
    [row] = experiment.evaluate(place / "kinds", [str(tmp_path / "graded.tsv")])
    assert row.metric == "spearman" and row.value == pytest.approx(spearmanr(s, grades).statistic) and row.n == 5


def test_an_unusable_label_of_a_hierarchy_is_refused_with_the_labels_that_it_can_have(place: Path,
                                                                                      tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("child,parent,label\nbeagle,dog,yes\nrobin,dog,maybe\ncat,dog,unsure\n")
    with pytest.raises(DataError, match=r"own.csv:3: column 3 \('label'\): should contain numbers, True and False, "
                                        "or yes and no, got 'maybe'; correct the values, or rename the column if they "
                                        "are neither scores nor labels"):
        experiment.evaluate(place / "kinds", [str(own)])
    own.write_text("child,parent,remark\nbeagle,dog,yes\nrobin,dog,maybe\ncat,dog,unsure\n")
    assert "3 of 3 pairs" in experiment.evaluate(place / "kinds", [str(own)])[0].note


def test_intervals_of_labelled_pairs_are_those_of_shares() -> None:
    s, right = np.linspace(1, 0, 12), np.arange(12) < 6
    clear = PairScores(np.ones(3), np.zeros((3, 1)))        # the threshold is .5
    accuracy, f1, _ = own_pairs.labelled_scores("own", s, right, clear, EvaluateConfig(), "")
    assert (accuracy.value, f1.value) == (1, 1)
    assert (accuracy.low, accuracy.high) == wilson(12, 12, 0.95)
    accuracy, f1, _ = own_pairs.labelled_scores("own", s, right ^ (np.arange(12) == 11), clear, EvaluateConfig(), "")
    assert accuracy.value == pytest.approx(11 / 12) and f1.value == pytest.approx(12 / 13)
    for row in (accuracy, f1):
        assert row.low < row.value < row.high <= 1


def test_positives_of_a_hierarchy_get_true_negatives(place: Path, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    from embtrain.data.hierarchy import splits

    drawn: list[np.ndarray] = []
    real = splits.negatives
    monkeypatch.setattr(splits, "negatives", lambda *triples: drawn.append(real(*triples)) or drawn[-1])
    (tmp_path / "own.tsv").write_text("child\tparent\nbeagle\tmammal\nrobin\tanimal\n")
    result = by_metric(experiment.evaluate(place / "kinds", [str(tmp_path / "own.tsv")]))
    assert result["accuracy"].n == 2 and {"f1", "ap", "accuracy@10"} <= result.keys()
    assert "2 of 2 pairs" in result["accuracy"].note
    names = (place / "kinds" / "concepts.txt").read_text().splitlines()
    above: dict[str, set[str]] = {}
    for u, v in (("mammal", "animal"), ("bird", "animal"), *PAIRS, *PAIRS, *PAIRS):
        above.setdefault(u, set()).update({v}, above.get(v, set()))
    [wrong] = drawn
    assert wrong.shape == (2, 10, 2)
    for u, v in wrong.reshape(-1, 2).tolist():
        assert u != v and names[v] not in above.get(names[u], set())
    (tmp_path / "own.tsv").write_text("parent\tchild\nmammal\tbeagle\n")
    with pytest.raises(DataError, match=r"own.tsv:1: the columns are parent and child; put the child into the first"):
        experiment.evaluate(place / "kinds", [str(tmp_path / "own.tsv")])


# --- labels ----------------------------------------------------------------------------------------------------------

def test_labels_are_evaluated_on_another_file_as_on_the_test_part(place: Path, tmp_path: Path) -> None:
    test = {row.metric: row.value for row in embtrain.Run(place / "labels").scores if row.benchmark == "test"}
    rows = experiment.evaluate(place / "labels", [str(place / "all_test.txt")])
    assert {row.benchmark for row in rows} == {"all_test.txt"}
    assert {row.metric: row.value for row in rows} == pytest.approx(test)
    assert "30 of 30 documents" in rows[0].note
    lines = (place / "all_test.txt").read_text().splitlines()[1:]
    (tmp_path / "some.txt").write_text("\n".join(["33 9 5", *lines, " 1:1", "4 1:1", "0,3 8:1"]) + "\n")
    partial = by_metric(experiment.evaluate(place / "labels", [str(tmp_path / "some.txt")]))
    assert partial["precision@1"].n == 31
    assert ("31 of 33 documents; skipped: 2 documents without a label known to the run, 2 labels unknown to the run; 1 "
            "of them with features that occur in no training document") in partial["precision@1"].note
    few = by_metric(experiment.evaluate(place / "labels", [str(tmp_path / "some.txt")],
                                        ["evaluate.heldout_documents=4"]))
    assert few["precision@1"].n == 4 and "27 documents above evaluate.heldout_documents" in few["precision@1"].note
    (tmp_path / "none.txt").write_text("1 8 5\n4 1:1\n")
    with pytest.raises(DataError, match="none of its 1 documents has a label known to the run"):
        experiment.evaluate(place / "labels", [str(tmp_path / "none.txt")])
