"""BLEU from ten numbers per sentence equals sacreBLEU; tests between systems; nearness equals a loop."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from helpers.looped import looped
from sacrebleu.metrics import BLEU, CHRF

from embtrain.evaluate.heldout import PairRanks
from embtrain.evaluate.statistics.intervals import bias_corrected, multiplicities
from embtrain.evaluate.translation import scores as translation
from embtrain.evaluate.translation.scores import BLEU_STATISTICS, TranslationEvaluate, bleu, bleu_statistics

CONFIG = TranslationEvaluate(resamples=200)


def lines(n: int, seed: int, wrong: float) -> tuple[list[str], list[str]]:
    """Return references, and translations where each word is replaced with probability `wrong`."""
    draw = np.random.default_rng(seed)
    theirs = [[f"w{i}" for i in draw.integers(0, 30, draw.integers(3, 12))] for _ in range(n)]
    ours = [[f"v{i}" if draw.random() < wrong else word for i, word in enumerate(line)] for line in theirs]
    return [" ".join(line) for line in ours], [" ".join(line) for line in theirs]


@looped("ours, theirs", [
    lines(40, 1, 0.3), lines(40, 2, 0.95), (["a b c"], ["a b c"]), (["a b c d e"], ["a b c d e f g"]),
    (["a x b y c z d"], ["a b c d"]), (["q"], ["a b"]), (["", "a b c d"], ["a", "a b c d"]), ([""], ["a b"]),
    (["a b q q q q"], ["a b c d e f"])])
def test_bleu_of_sums_is_that_of_the_corpus(ours: list[str], theirs: list[str]) -> None:
    items = bleu_statistics(ours, theirs)
    expected = BLEU(tokenize="none", force=True).corpus_score(ours, [theirs]).score
    assert items.shape == (len(ours), len(BLEU_STATISTICS))
    assert bleu(items.sum(0, keepdims=True))[0] == pytest.approx(expected, abs=1e-9)


def test_statistics_of_sentences_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bleu_statistics(["a b ."] * 150, ["a b ."] * 150)
        translation.bleu_scores(["A b ."] * 150, ["A b ."] * 150, CONFIG)
    assert caplog.records == []


def test_rows_are_those_of_sacrebleu_with_signature_and_interval() -> None:
    ours, theirs = ([f"{line.capitalize()}, it's {mark}." for line in some]
                    for some, mark in zip(lines(40, 3, 0.3), "Aa", strict=True))
    (plain, cased, chrf), items = translation.bleu_scores(ours, theirs, CONFIG)
    assert plain.value == pytest.approx(BLEU(lowercase=True).corpus_score(ours, [theirs]).score)
    assert cased.value == pytest.approx(BLEU().corpus_score(ours, [theirs]).score) and cased.value < plain.value
    assert chrf.value == pytest.approx(CHRF().corpus_score(ours, [theirs]).score)
    assert plain.low < plain.value < plain.high and (cased.low, chrf.low) == (None, None)  # type: ignore[operator]
    assert plain.note.startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")
    assert "case:mixed" in cased.note and "tok:13a" in cased.note and chrf.note.startswith("nrefs:1")
    assert translation.bleu(items.sum(0, keepdims=True))[0] == pytest.approx(plain.value)
    assert len(items) == plain.n == 40 and items[0, 0] == len(ours[0].split()) + 2  # , and . are separate words
    none, items = translation.bleu_scores([], [], CONFIG)
    assert [row.value for row in none] == [None] * 3 and len(items) == 0


def test_the_interval_of_bleu_is_bias_corrected_and_missing_for_few_sentences() -> None:
    ours, theirs = lines(30, 3, 0.3)
    row, items = translation.bleu_scores(ours, theirs, CONFIG)[0][0], bleu_statistics(ours, theirs)
    drawn = np.concatenate([translation.resampled_bleu(items, m) for m in multiplicities(30, CONFIG.resamples)])
    assert (row.low, row.high) == pytest.approx(bias_corrected(float(row.value or 0), drawn, 0.95, 30), abs=1e-6)
    assert "no interval" not in row.note
    few = translation.bleu_scores(ours[:29], theirs[:29], CONFIG)[0]
    assert few[0].low is few[0].high is None and few[0].note.endswith("; fewer than 30: no interval")
    assert not any("no interval" in other.note for other in few[1:])        # which never have one


def test_different_systems_are_separated_and_equal_ones_are_not() -> None:
    ours, theirs = lines(150, 4, 0.3)
    worse = [line if i % 3 else " ".join(reversed(line.split())) for i, line in enumerate(ours)]
    a, b = bleu_statistics(ours, theirs), bleu_statistics(worse, theirs)
    d = translation.difference(a, b, ("a", "b"), "test/bleu")
    seen = bleu(a.sum(0, keepdims=True))[0] - bleu(b.sum(0, keepdims=True))[0]
    assert d.mean == pytest.approx(seen) and d.low < d.mean < d.high  # type: ignore[operator]
    assert d.low > 0 and d.p < 0.001 and d.verdict == "A beats B" and d.n == 150  # type: ignore[operator]
    back = translation.difference(b, a, ("b", "a"), "test/bleu")
    assert back.mean == pytest.approx(-seen) and back.verdict == "B beats A"
    same = translation.difference(a, a, ("a", "a"), "test/bleu")
    assert (same.mean, same.p, same.verdict) == (0, 1, "not separable")


def test_chance_alone_rarely_separates() -> None:
    """p of two systems that differ by chance is about uniform: at most 8 of 60 are below .05 (P < .001 otherwise)."""
    result = []
    for seed in range(60):
        ours, theirs = lines(60, 100 + seed, 0.3)
        other = list(ours)
        draw = np.random.default_rng(seed)
        for i, line in enumerate(theirs):
            words = line.split()
            ours[i], other[i] = (" ".join(w if draw.random() < 0.7 else "x" for w in words) for _ in range(2))
        items = bleu_statistics(ours, theirs), bleu_statistics(other, theirs)
        result.append(
            translation.compare_sums(translation.resampled_bleu, bleu, *items, ("a", "b"), "bleu", resamples=20).p
        )
    assert sum(p < 0.05 for p in result) <= 8 and sum(p > 0.5 for p in result) > 15  # type: ignore[operator]


def test_nearness_equals_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "_MAX_SCORES_HELD", 30)           # few rows at a time
    random = torch.Generator().manual_seed(1)
    e, table = torch.randn(13, 3, generator=random), torch.randn(7, 3, generator=random) * 4
    target = torch.randint(7, (13,), generator=random)
    result = translation.nearest_rows(e, target, table)
    for i in range(13):
        cosines = [float(torch.nn.functional.cosine_similarity(e[i], v, dim=0)) for v in table]
        assert result.nearest_cosine[i] == pytest.approx(max(cosines), abs=1e-6)
        assert result.target_cosine[i] == pytest.approx(cosines[int(target[i])], abs=1e-6)
        assert result.is_target[i] == (max(cosines) == cosines[int(target[i])])
    rank = np.where(result.is_target, 1, np.arange(13) % 12 + 2).astype(float)
    ranked = PairRanks(-rank, rank, np.zeros(13), 7, 13)
    rows = {row.metric: row for row in translation.vector_scores(ranked, result, np.arange(13) // 2, CONFIG)}
    assert rows["accuracy@1"].value == pytest.approx(result.is_target.mean())
    assert rows["accuracy@5"].value == pytest.approx((rank <= 5).mean())
    assert rows["similarity_right"].value == pytest.approx(result.nearest_cosine[result.is_target].mean())
    assert rows["similarity_wrong"].value == pytest.approx(result.nearest_cosine[~result.is_target].mean())
    assert rows["similarity_target"].value == pytest.approx(result.target_cosine[~result.is_target].mean())
    assert rows["similarity_target"].n == int((~result.is_target).sum()) and rows["mrr"].n == 13
    assert "not the right one" in rows["similarity_wrong"].note and "is the right" in rows["similarity_right"].note
