"""Spearman's ρ of word pairs, against gensim and scipy; malformed gold files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.common.errors import DataError, UsageError
from embtrain.data.catalogue.benchmark import EvalRecipe, GoldFormat
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.evaluate.statistics.ties import round_scores
from embtrain.evaluate.words.similarity import RatedPair, cosines, read_pairs, score, scores, spearman
from embtrain.experiment.run import scoring

TRIPLE = ("word1", "word2", "score")


def world(n: int = 200, n_pairs: int = 120, seed: int = 0) -> tuple[Vectors, list[RatedPair]]:
    """Return vectors of words w0... and pairs whose gold has ties; a fifth of the pairs contain a missing word."""
    rng = np.random.default_rng(seed)
    vectors = Vectors([f"w{i}" for i in range(n)], rng.normal(size=(n, 8)).astype(np.float32))
    a, b = rng.integers(0, n, (2, n_pairs))
    gold = np.round(5 + 4 * (vectors.unit[a] * vectors.unit[b]).sum(1) + rng.normal(size=n_pairs))
    pairs = [RatedPair(f"w{i}", f"W{j}", float(g)) for i, j, g in zip(a, b, gold, strict=True)]
    return vectors, [RatedPair(f"x{p.word1}", p.word2, p.gold) if i % 5 == 0 else p for i, p in enumerate(pairs)]


def write(path: Path, pairs: list[RatedPair]) -> Path:
    path.write_text("".join(f"{p.word1}\t{p.word2}\t{p.gold}\n" for p in pairs))
    return path


@pytest.mark.parametrize("oov", ["drop", "zero"])
def test_gensim_finds_the_same_rho(tmp_path: Path, oov: str) -> None:
    vectors, pairs = world()
    path = write(tmp_path / "gold", pairs)
    theirs = vectors.keyed().evaluate_word_pairs(str(path), dummy4unknown=oov == "zero")
    row = score("gold", vectors, read_pairs(path, GoldFormat(columns=TRIPLE)), WordsConfig(oov=oov))
    assert row.value == pytest.approx(theirs[1][0], abs=1e-6)
    assert row.n == (96 if oov == "drop" else 120)
    assert row.note == "96 of 120 pairs found, " + ("others dropped" if oov == "drop" else "others scored 0")
    assert row.low is not None and row.low < row.value < row.high


def test_the_mean_of_centred_vectors_has_no_direction() -> None:
    """It is 0 but for rounding, so that missing words have similarity 0, as with oov: zero."""
    vectors, pairs = world()
    centred = Vectors(vectors.words, vectors.table - vectors.table.mean(0))
    as_mean, found = cosines(centred, pairs, "mean")
    np.testing.assert_array_equal(as_mean, cosines(centred, pairs, "zero")[0])
    assert (cosines(vectors, pairs, "mean")[0][~found] != 0).all()


def test_gensim_finds_the_same_rho_among_words_that_differ_in_case(tmp_path: Path) -> None:
    vectors, pairs = world()
    vectors = Vectors([w.upper() if i % 3 == 0 else w for i, w in enumerate(vectors.words)] + ["W1", "w3"],
                      np.concatenate([vectors.table, -vectors.table[:2]]))
    title = [p._replace(word1=p.word1.title(), word2=p.word2.swapcase()) for p in pairs]
    other = {w: f"x{w.upper()}" for w in {"W1", "w3"}}       # no spelling of these is in the vocabulary of `once`
    once = Vectors([other.get(w, w) for w in vectors.words], vectors.table)
    path, again = write(tmp_path / "gold", pairs), write(tmp_path / "title", title)
    exact = vectors.keyed().evaluate_word_pairs(str(path), case_insensitive=False)[1][0]
    assert score("gold", vectors, pairs, WordsConfig(), lower=False).value == pytest.approx(exact, abs=1e-6)
    folded = once.keyed().evaluate_word_pairs(str(again), case_insensitive=True)[1][0]
    assert score("gold", once, title, WordsConfig()).value == pytest.approx(folded, abs=1e-6)


def test_the_exact_spelling_is_scored_and_another_is_counted_in_the_note() -> None:
    vectors = Vectors(["us", "US", "USA", "we", "Turkey"], np.array([[1, 0], [0, 1], [.1, .99], [.99, .1], [.2, .97]]))
    pairs = [
        RatedPair("US", "USA", 3),
        RatedPair("us", "we", 2),
        RatedPair("US", "we", 1),
        RatedPair("TURKEY", "Usa", 2.5),
    ]
    s, result = cosines(vectors, pairs)
    assert result.all() and s == pytest.approx([.995, .995, .1005, .994], abs=1e-3)
    assert score("x", vectors, pairs, WordsConfig()).note == (
        "4 of 4 pairs found; 2 words found in another spelling (TURKEY as Turkey, Usa as USA); "
        "fewer than 10: no interval")
    assert "spelling" not in score("x", vectors, pairs[:3], WordsConfig()).note
    lower = Vectors(["us", "we", "they"], np.eye(3))          # case-folded corpus: nothing to report
    assert score("x", lower, [RatedPair("US", "We", 1)], WordsConfig()).note.startswith("1 of 1 pairs found; too few")


def test_a_missing_word_takes_the_mean_vector() -> None:
    vectors = Vectors(["a", "b"], np.array([[2, 0], [0, 1]]))
    s, result = cosines(vectors, [RatedPair("a", "?", 1), RatedPair("a", "b", 1), RatedPair("?", "!", 1)], "mean")
    assert s == pytest.approx([2 / 5**0.5, 0, 1]) and result.tolist() == [False, True, False]
    s, _ = cosines(vectors, [RatedPair("a", "?", 1), RatedPair("a", "a", 1)], "drop")
    assert np.isnan(s[0]) and s[1] == 1
    row = score("x", vectors, [RatedPair("a", "?", 1), RatedPair("a", "b", 2)], WordsConfig(oov="mean"))
    assert row.value == -1 and row.n == 2
    assert row.note == "1 of 2 pairs found, missing words take the mean vector; fewer than 10: no interval"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=30), st.integers(0, 99))
def test_a_resample_has_the_rho_of_its_items_written_out(items: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(items, float).T
    index = np.random.default_rng(seed).integers(0, len(x), len(x))
    for m, at in ((np.ones(len(x)), np.arange(len(x))), (np.bincount(index, minlength=len(x)), index)):
        if len(set(x[at])) < 2 or len(set(y[at])) < 2:
            assert np.isnan(spearman(x, y, m[None])[0])
        else:
            assert spearman(x, y, m[None])[0] == pytest.approx(stats.spearmanr(x[at], y[at]).statistic, abs=1e-12)


def test_the_interval_has_its_nominal_coverage() -> None:
    held, r = 0, 0.6
    truth = 6 / np.pi * np.arcsin(r / 2)  # ρ of the bivariate normal law
    vectors = Vectors([f"w{i}" for i in range(2001)], np.zeros((2001, 2)))
    angle = np.linspace(0.01, 3.1, 2000)
    vectors.table[0] = (1, 0)
    # cos(w0, w_i) decreases with i, so any order can be chosen
    vectors.table[1:] = np.stack([np.cos(angle), np.sin(angle)], 1)
    rng = np.random.default_rng(5)
    config = WordsConfig(resamples=200, interval=0.8)
    for _ in range(150):
        z = rng.normal(size=(2, 100))
        x, y = z[0], r * z[0] + (1 - r * r) ** 0.5 * z[1]
        at = 2000 - np.clip(((x + 4) / 8 * 2000).astype(int), 0, 1999)
        row = score("x", vectors, [RatedPair("w0", f"w{i}", float(g)) for i, g in zip(at, y, strict=True)], config)
        held += row.low <= truth <= row.high
    assert 105 <= held <= 135  # 120 expected, sd 5


def test_scores_that_cannot_be_ranked_have_no_value() -> None:
    vectors = Vectors(["a", "b", "z"], np.array([[1, 0], [0, 1], [0, 0]]))
    none = score("x", vectors, [RatedPair("?", "a", 1)], WordsConfig())
    assert none == ("x", "spearman", None, None, None, 0, "0 of 1 pairs found, others dropped; too few, or all equal")
    equal_vectors = score("x", vectors, [RatedPair("a", "b", 1), RatedPair("a", "z", 2), RatedPair("z", "z", 3)],
                          WordsConfig())
    assert equal_vectors.value is None and equal_vectors.n == 3
    two = score("x", vectors, [RatedPair("a", "b", 1), RatedPair("a", "a", 2)], WordsConfig())
    assert (two.value, two.low, two.high, two.n) == (1, None, None, 2)  # an interval of length 0 would claim certainty
    vectors.table[0] = np.nan
    assert "not finite" in score("x", vectors, [RatedPair("a", "b", 1), RatedPair("b", "b", 2)], WordsConfig()).note


@pytest.mark.parametrize("n", [3, 4, 6, 9])
def test_few_pairs_have_no_interval(n: int) -> None:
    vectors = Vectors(["o", *(f"w{i}" for i in range(n))], np.array([[1, 0], *([1, i] for i in range(n))], dtype=float))
    row = score("six", vectors, [RatedPair("o", f"w{i}", n - i) for i in range(n)], WordsConfig())
    assert (row.value, row.low, row.high, row.n) == (pytest.approx(1), None, None, n)
    assert row.note.endswith("; fewer than 10: no interval")


def test_any_number_of_pairs_in_perfect_order_has_no_interval() -> None:
    vectors = Vectors(["o", *(f"w{i}" for i in range(50))], np.array([[1.0, 0], *([1.0, i] for i in range(50))]))
    row = score("fifty", vectors, [RatedPair("o", f"w{i}", 50 - i) for i in range(50)], WordsConfig())
    assert (row.value, row.low, row.high) == (pytest.approx(1), None, None)
    assert row.note.endswith("; no variation: no interval")


def test_equal_cosines_share_a_rank_in_spite_of_rounding() -> None:
    # Each pair has cosine 0.6, but lengths and directions of the vectors differ, so float64 sums differ.
    rng, words, rows = np.random.default_rng(0), [], []
    for i in range(40):
        a, b = np.linalg.qr(rng.normal(size=(30, 2)))[0].T
        words += [f"a{i}", f"b{i}"]
        rows += [a * (i + 1), (0.6 * a + 0.8 * b) * (i + 2)]
    vectors, pairs = Vectors(words, np.array(rows)), [RatedPair(f"a{i}", f"b{i}", i) for i in range(40)]
    s, _ = cosines(vectors, pairs)
    assert len(set(s)) == 1 and s[0] == pytest.approx(0.6)
    assert score("ties", vectors, pairs, WordsConfig()).value is None    # no ranking: all are equal


def test_rounded_scores_tie_and_keep_float32_precision() -> None:
    x = np.array([0.3, 0.1 + 0.2, 0.3 + 4e-8, 0.300002, -1e-12, 0.0, 123.4567891, np.nan, np.inf, -np.inf, 1e300])
    s = round_scores(x)
    assert s[0] == s[1] == s[2] != s[3] and s[4] == s[5] == 0
    assert s[6] == pytest.approx(123.457, abs=1e-9) and s[10] == pytest.approx(1e300)
    assert np.isnan(s[7]) and s[8] == np.inf and s[9] == -np.inf


@pytest.mark.parametrize("power", [1.0, 10.0, 100.0, 1e6, 1e9, 1e30])
def test_scores_next_to_a_power_of_ten_tie_with_it(power: float) -> None:
    near = np.array([np.nextafter(power, 0), power, np.nextafter(power, np.inf)])
    assert set(round_scores(near)) == {power} and set(round_scores(-near)) == {-power}
    above = round_scores(power * np.array([1 + 1e-8, 1 + 1e-7, 1 + 4e-7]))
    assert power > 1e22 or set(above) == {power}


def test_pairs_of_a_word_with_itself_have_no_ranking() -> None:
    table = np.random.default_rng(0).normal(size=(60, 7)).astype(np.float32)
    vectors = Vectors([f"w{i}" for i in range(60)], table)
    row = score("same", vectors, [RatedPair(word, word, i % 7) for i, word in enumerate(vectors.words)], WordsConfig())
    assert row.value is None and "all equal" in row.note


def test_an_entailment_score_and_its_reverse_tie_as_cosines_do() -> None:
    rng = np.random.default_rng(1)
    scorer = Scorer(Vectors([f"w{i}" for i in range(60)], rng.normal(size=(60, 33))))
    pairs = [(f"w{i}", f"w{i + 30}", "") for i in range(30)]
    there, back = scorer(pairs), scorer([(v, u, pos) for u, v, pos in pairs])
    assert (there == back).all() and (there == round_scores(there)).all()


def test_no_resamples_no_interval() -> None:
    vectors, pairs = world()
    row = score("gold", vectors, pairs, WordsConfig(resamples=0))
    assert row.value is not None and row.low is None and row.high is None


@pytest.mark.parametrize("text, format", [
    ("\ufeff# said\ntiger\tcat\t7.35\r\n\r\nbook\tpaper\t7.46\r\n",
     GoldFormat(columns=TRIPLE, delimiter="tab", comment="#")),
    ("tiger  cat 7.35\nbook paper\t7.46", GoldFormat(columns=TRIPLE, delimiter="space")),
    ("n,one,two,how much\n0,tiger,\"cat\",7.35\n1,book, paper,7.46\n",
     GoldFormat(columns=("id", *TRIPLE), delimiter="comma", header=True)),
    ("7.35 tiger cat\n7.46 book paper\n", GoldFormat(columns=("score", "word1", "word2"), delimiter="space")),
    ("% x\nw1\tw2\tpos\ts\ntiger\tcat\tN\t7.35\nbook\tpaper\tN\t7.46\n",
     GoldFormat(columns=("word1", "word2", "pos", "score"), delimiter="tab", header=True, comment="%")),
])
def test_gold_files_of_every_layout(tmp_path: Path, text: str, format: GoldFormat) -> None:
    (tmp_path / "gold").write_text(text, encoding="utf-8", newline="")
    assert read_pairs(tmp_path / "gold", format) == [("tiger", "cat", 7.35), ("book", "paper", 7.46)]


@pytest.mark.parametrize("content, message", [
    (b"tiger\tcat\t7\nbook\tpaper\n", r"gold:2: should have 3 columns \(word1, word2, score\), got 2: 'book\\tpaper'"),
    (b"tiger\tcat\t7\t8\n", r"gold:1: should have 3 columns"),
    (b"one\ttwo\tscore\ntiger\tcat\t7\n", r"gold:1: score should be a number, got 'score'; if it is a header"),
    (b"tiger\tcat\t7\ntiger\tcat\t7,5\n", r"gold:2: score .*, got '7,5'; write a decimal point: 7\.5$"),
    (b"tiger\tcat\t-0,125\n", r"gold:1: score .*, got '-0,125'; write a decimal point: -0\.125$"),
    (b"tiger\tcat\t7,500\n", r"got '7,500'; write a decimal point, or remove a thousands separator$"),
    (b"tiger\tcat\t7\ntiger\tcat\t7,5,\n", r"gold:2: score .*'7,5,'; correct it, or remove the pair$"),
    (b"tiger\tcat\t1_0\n", r"gold:1: score should be a number, got '1_0'"),
    (b"tiger\tcat\t7\ntiger\tcat\t30%\n", r"gold:2: score .*, got '30%'; correct it, or remove the pair$"),
    (b"tiger\tcat\t7,5e-1\n", r"gold:1: score .*, got '7,5e-1'; write a decimal point: 7\.5e-1$"),
    (b"tiger\tcat\t1,234,567.5\n", r"gold:1: score .*; remove the thousands separators$"),
    (b"tiger\tcat\tnan\n", r"gold:1: score should be a finite number, got 'nan'; correct it, or remove the pair$"),
    (b"tiger\t\t7\n", r"gold:1: a word is empty; correct it, or remove the pair$"),
    (b"tiger\tcat\t7\n\xff\tcat\t7\n", r"gold:2: byte 1 is not UTF-8"),
    (b"a" * 70_000, r"gold:1: is longer than 65,536 bytes: this is not a gold file"),
    (b"\n\n", r"gold: contains no pairs; give lines of two words and a score$"),
])
def test_a_malformed_gold_file_is_an_error_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "gold").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "gold", GoldFormat(columns=TRIPLE))


def test_a_comma_file_with_an_open_quote_a_missing_file_and_a_recipe_without_score(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text('tiger,"cat,7\n')
    with pytest.raises(DataError, match="gold:1: is not a line of comma-separated values"):
        read_pairs(tmp_path / "gold", GoldFormat(columns=TRIPLE, delimiter="comma"))
    with pytest.raises(DataError, match="none: file or folder not found"):
        read_pairs(tmp_path / "none", GoldFormat(columns=TRIPLE))
    with pytest.raises(UsageError, match="columns: 'score' should occur once"):
        read_pairs(tmp_path / "gold", GoldFormat(columns=("word1", "word2", "gold")))


@pytest.mark.parametrize("name, n", [
    ("EN-WS-353-ALL.txt", 353), ("EN-WS-353-SIM.txt", 203), ("EN-WS-353-REL.txt", 252),
    ("EN-RW-STANFORD.txt", 2034), ("EN-SIMLEX-999.txt", 999), ("EN-MEN-TR-3k.txt", 3000)])
def test_the_published_files_are_read_completely(name: str, n: int) -> None:
    path = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), "wordsim", name)
    if not path.is_file():
        pytest.skip(f"data: wordsim/{name} is not here")
    pairs = read_pairs(path, GoldFormat(columns=TRIPLE))
    assert len(pairs) == n
    words = sorted({w for p in pairs for w in (p.word1.lower(), p.word2.lower())})[::2]
    vectors = Vectors(words, np.random.default_rng(0).normal(size=(len(words), 10)))
    keyed = vectors.keyed()
    result = [(keyed.similarity(p.word1.lower(), p.word2.lower()), p.gold) for p in pairs
             if p.word1.lower() in keyed and p.word2.lower() in keyed]
    theirs = stats.spearmanr([round(float(cosine), 6) for cosine, _ in result], [gold for _, gold in result]).statistic
    row = score(name, vectors, pairs, WordsConfig())      # gensim itself ranks equal cosines by their rounding errors
    assert row.value == pytest.approx(theirs, abs=1e-6) and row.n == len(result)
    assert row.value == pytest.approx(keyed.evaluate_word_pairs(str(path))[1][0], abs=1e-4)
    assert row.note == f"{row.n} of {n} pairs found, others dropped"


def with_subwords() -> Vectors:
    """Vectors of a few words whose n-grams have rows."""
    words = ["king", "queen", "kind", "apple", "pear", "car"]
    ngrams, draw = Ngrams.exact(2, 4, words), np.random.default_rng(1)
    subwords = SubwordTable(ngrams, draw.normal(size=(ngrams.n_rows, 9)).astype(np.float32), words,
                            draw.normal(size=(len(words), 9)).astype(np.float32), "mean")
    return Vectors(words, subwords.compose(words), subwords)


@pytest.mark.parametrize("rows", [[(1, 0), (0, 1), (1, 1), (0, 0)], [(1, 0), (0, 1), (1, 1), (1, 2)]])
@pytest.mark.parametrize(("kind", "metric", "columns", "items"), [
    ("similarity", "spearman", TRIPLE, "pairs"), ("entailment", "spearman", TRIPLE, "pairs"),
    ("analogy", "accuracy", ("word1", "word2", "word3", "target"), "questions")])
def test_every_benchmark_of_words_counts_vectors_of_zeros(
        tmp_path: Path, rows: list[tuple[int, int]], kind: str, metric: str, columns: tuple[str, ...], items: str
) -> None:
    """Their cosine of 0 was ranked without a note."""
    (tmp_path / "gold").write_text("".join(f"{line}\t{'c' if items == 'questions' else i}\n" for i, line in enumerate(
        ["\t".join(words) for words in zip("abzaz", "bczz?", "cabca", strict=True)])))
    columns = columns if items == "questions" else ("word1", "word2", "other", "score")
    recipe = EvalRecipe(name="own", kind=kind, metric=metric, description="", licence="", citation="", protocol="",
                        format=GoldFormat(columns=columns), copies=[{"mirror": "gold", "sha256": "unverified"}],
                        expected={"pairs": 5, "questions": 5})
    vectors = Vectors(["a", "b", "c", "z"], np.array(rows, np.float32))
    note = scoring.benchmark(vectors, recipe, tmp_path / "gold", WordsConfig(resamples=0))[0].note
    assert f"4 of 5 {items} found" in note
    assert (f"; 2 {items} with a vector of zeros, whose cosine counts as 0" in note) == (not any(rows[-1]))


def test_missing_words_are_composed_in_a_second_row() -> None:
    vectors = with_subwords()
    pairs = [RatedPair(*p) for p in [("king", "queen", 5.), ("KINGS", "kind", 4.), ("pears", "apples", 3.),
                                     ("car", "king", 2.), ("pear", "apple", 4.5), ("¶¶", "king", 1.)]]
    plain, composed = scores("x", vectors, pairs, WordsConfig())
    assert plain == score("x", Vectors(vectors.words, vectors.table), pairs, WordsConfig()) and plain.n == 3
    assert (plain.metric, composed.metric, composed.n) == ("spearman", "spearman/composed", 4)
    # KINGS shares no n-gram with the words in lower case, ¶¶ none with any
    assert composed.note == (
        "4 of 6 pairs found, others dropped; 2 words composed from n-grams; fewer than 10: no interval")
    some = [pairs[i] for i in (0, 2, 3, 4)]
    x, y = (vectors.subwords.compose([p[side] for p in some]).astype(float) for side in (0, 1))
    cosine = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert composed.value == pytest.approx(stats.spearmanr(cosine, [p.gold for p in some]).statistic)


@pytest.mark.parametrize("oov", ["zero", "mean"])
def test_words_that_cannot_be_composed_follow_oov(oov: str) -> None:
    vectors = with_subwords()
    pairs = [RatedPair("pears", "apples", 3.), RatedPair("¶¶", "king", 1.)]
    s, found = cosines(vectors, pairs, oov, composed=True)
    assert found.tolist() == [True, False]
    assert s[1] == cosines(Vectors(vectors.words, vectors.table), pairs, oov)[0][1]


def test_vectors_without_subwords_have_one_row() -> None:
    vectors, pairs = world()
    assert scores("x", vectors, pairs, WordsConfig()) == [score("x", vectors, pairs, WordsConfig())]


def test_centred_vectors_have_the_cosines_of_numpy_and_no_constant_part() -> None:
    vectors, pairs = world()
    table = vectors.table + np.linspace(3, -2, 8, dtype=np.float32)
    shifted, moved = Vectors(vectors.words, table), Vectors(vectors.words, table + np.float32(5))
    known = [p for p in pairs if p.word1 in vectors.index]
    a, b = (vectors.find([p[side] for p in known], lower=True) for side in (0, 1))
    x = table.astype(float) - table.astype(float).mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for some in (vectors, shifted, moved):
        assert cosines(some.centred, known)[0] == pytest.approx((x[a] * x[b]).sum(1), abs=1e-5)
    assert cosines(shifted, known)[0] != pytest.approx((x[a] * x[b]).sum(1), abs=0.1)
    assert np.abs(shifted.centred.table.mean(0, dtype=float)).max() < 1e-6
    assert shifted.first(3).centred.table == pytest.approx(table[:3] - table[:3].mean(0), abs=1e-5)
    assert np.array_equal(shifted.table, table)


def test_composed_vectors_are_centred_by_the_mean_of_the_vocabulary() -> None:
    vectors = with_subwords()
    words = ["kings", "pears", "¶¶"]
    made, mean = vectors.subwords.compose(words).astype(float), vectors.table.mean(0, dtype=float)
    for centred in (vectors.centred, vectors.centred.first(2)):
        assert centred.compose(words)[:2] == pytest.approx(made[:2] - mean, abs=1e-6)
        assert not centred.compose(words)[2].any()              # without n-grams, so without a vector
    assert vectors.centred.centred.compose(words) == pytest.approx(vectors.centred.compose(words), abs=1e-6)
    assert np.array_equal(vectors.compose(words), made.astype(np.float32))
