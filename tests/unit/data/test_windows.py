"""Windows by hand, by brute force, and by their statistics."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from embtrain.data.text import windows as module
from embtrain.data.text.corpus import Corpus, TextConfig
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.text.windows import (
    ContextBatch,
    ContextWindows,
    SkipGramBatch,
    SkipGramWindows,
    heldout,
    heldout_contexts,
    keep_probability,
)

STATIC = TextConfig(sample=0, dynamic_window=False, window=2)


def corpus_of(lines: list[list[int]], v: int | None = None) -> Corpus:
    ids = np.array([i for line in lines for i in line], dtype=np.int32)
    v = v if v is not None else int(ids.max(initial=-1)) + 1
    counts = np.bincount(ids, minlength=v).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    return Corpus(ids, offsets, offsets, Vocabulary([f"w{i}" for i in range(v)], counts, len(ids)), {})


def numbered(lengths: list[int]) -> Corpus:
    """Build a corpus in which every token is a word of its own, so that a pair shows its place."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return corpus_of([list(range(a, b)) for a, b in itertools.pairwise(offsets)])


def pairs_of(batches: list[SkipGramBatch]) -> list[tuple[int, int]]:
    return [pair for b in batches for pair in zip(b.centre.tolist(), b.target.tolist(), strict=True)]


def brute(lines: list[list[int]], w: int) -> Counter:
    return Counter((line[i], line[j]) for line in lines for i in range(len(line)) for j in range(len(line))
                   if i != j and abs(i - j) <= w)


def test_windows_by_hand() -> None:
    config = TextConfig(sample=0, dynamic_window=False, window=1)
    windows = SkipGramWindows(corpus_of([[0, 1, 2], [3], [4, 1]]), config, 1)
    [batch] = windows.blocks(0, 100, shuffle=False)
    assert pairs_of([batch]) == [(0, 1), (1, 0), (1, 2), (2, 1), (4, 1), (1, 4)]
    assert batch.window.tolist() == [0, 1, 1, 2, 3, 4]  # 3 is alone: it has no window
    assert batch.slot.tolist() == [0] * 6
    assert {x.dtype for x in (batch.centre, batch.target, batch.slot, batch.window)} == {torch.int64}


def contexts_of(batches: list[ContextBatch]) -> list[tuple[int, list[int]]]:
    return [(int(b.target[i]), b.context[b.start[i]:b.start[i + 1]].tolist()) for b in batches for i in range(len(b))]


def test_contexts_by_hand() -> None:
    corpus = corpus_of([[0, 1, 2], [3], [4, 1]])
    config = TextConfig(sample=0, dynamic_window=False, window=2)
    windows = ContextWindows(corpus, config, 1)
    [batch] = windows.blocks(0, 100, shuffle=False)
    expected = [(0, [1, 2]), (1, [0, 2]), (2, [0, 1]), (4, [1]), (1, [4])]                # 3 is alone
    assert contexts_of([batch]) == expected == contexts_of([heldout_contexts(corpus, config, 9, 0)])
    assert batch.middle.tolist() == [1, 0, 0, 1, 4] and batch.slot.tolist() == [0] * 5
    assert windows.target_counts.tolist() == [1, 2, 1, 0, 1] and windows.examples_per_epoch == 5
    assert contexts_of([batch.rows(slice(1, 3))]) == expected[1:3]
    assert contexts_of([batch.rows(torch.tensor([4, 0, 4]))]) == [expected[i] for i in (4, 0, 4)]
    assert 1 <= len(heldout_contexts(corpus, config, 2, 0)) <= 2 and len(heldout_contexts(corpus, config, 0, 0)) == 0


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@given(lengths, st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_static_windows_are_all_pairs(lengths: list[int], w: int, block: int, shuffle: bool) -> None:
    corpus = numbered(lengths)
    windows = SkipGramWindows(corpus, STATIC.model_copy(update={"window": w}), 3)
    batches = list(windows.blocks(2, block, shuffle=shuffle))
    lines = [corpus.ids[a:b].tolist() for a, b in zip(corpus.sequence[:-1], corpus.sequence[1:], strict=True)]
    assert Counter(pairs_of(batches)) == brute(lines, w)
    assert len(batches) == windows.n_blocks(2, block)
    assert windows.examples_per_epoch == pytest.approx(sum(brute(lines, w).values()))
    expected = Counter(target for _, target in brute(lines, w).elements())
    assert windows.target_counts == pytest.approx([expected[i] for i in range(len(corpus.ids))])


@given(lengths, st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_contexts_are_the_windows_of_skip_gram(lengths: list[int], w: int, block: int, dynamic: bool) -> None:
    corpus = numbered(lengths)
    config = STATIC.model_copy(update={"window": w, "dynamic_window": dynamic, "sample": 0.3})
    found = contexts_of(list(ContextWindows(corpus, config, 3).blocks(2, block)))
    pairs = pairs_of(list(SkipGramWindows(corpus, config, 3).blocks(2, block)))
    assert [(target, word) for target, words in found for word in words] == pairs


@given(lengths, st.integers(1, 4), st.floats(0.05, 2), st.booleans(), st.integers(0, 5))
@settings(max_examples=150)
def test_pairs_are_within_a_window_of_the_kept_text(lengths: list[int], w: int, t: float, dynamic: bool,
                                                    epoch: int) -> None:
    corpus = numbered(lengths)
    config = TextConfig(sample=min(t / len(corpus.ids), 1), dynamic_window=dynamic, window=w)
    batches = list(SkipGramWindows(corpus, config, 7).blocks(epoch, 5))
    for batch in batches:  # rows of one centre are adjacent, and its windows are counted from 0 without a gap
        steps = np.diff(batch.window.numpy(), prepend=-1) if len(batch) else np.array([])
        assert set(steps.tolist()) <= {0, 1}
        assert (np.diff(batch.centre.numpy()) != 0).tolist() == (steps[1:] == 1).tolist()
    pairs = pairs_of(batches)
    seen = sorted({centre for centre, _ in pairs})  # a kept word without a pair is alone in its sequence
    line_of = np.searchsorted(corpus.sequence, seen, "right")
    lines = [[x for x, own in zip(seen, line_of, strict=True) if own == line] for line in sorted(set(line_of))]
    allowed = brute(lines, w)
    assert max(Counter(pairs).values(), default=1) == 1
    assert set(pairs) <= set(allowed)
    if not dynamic:
        assert set(pairs) == set(allowed)
    for line in lines:  # a window reaches equally far on both sides, unless the sequence ends
        for i, centre in enumerate(line):
            left = sum((centre, x) in set(pairs) for x in line[:i])
            right = sum((centre, x) in set(pairs) for x in line[i + 1:])
            reach = max(left, right)
            assert 1 <= reach <= w
            assert left == min(reach, i) and right == min(reach, len(line) - 1 - i)


def test_dynamic_windows_are_uniform() -> None:
    corpus = numbered([20_000])
    config = TextConfig(sample=0, window=4)
    [batch] = SkipGramWindows(corpus, config, 0).blocks(0, 20_000)
    inside = (batch.centre >= 4) & (batch.centre < 19_996)
    sizes = np.bincount(np.bincount(batch.centre[inside], minlength=20_000)[4:-4], minlength=9)[2::2]
    expected = sizes.sum() / 4
    assert ((sizes - expected) ** 2 / expected).sum() < 21.1  # χ², 3 degrees of freedom, p = 1e-4


@pytest.mark.parametrize("rule", ["word2vec", "eq23"])
def test_subsampling_keeps_the_share_of_the_formula(rule: str) -> None:
    rng = np.random.default_rng(0)
    ids = (rng.zipf(1.4, 200_000) % 300).astype(np.int32)
    corpus = corpus_of([ids.tolist()])
    t = 1e-3
    config = TextConfig(sample=t, sample_rule=rule, window=1, dynamic_window=False)
    windows = SkipGramWindows(corpus, config, 5)
    kept = np.bincount(np.concatenate([b.centre.numpy() for b in windows.blocks(0, 4096)]), minlength=300) / 2
    for word, n in enumerate(np.bincount(ids, minlength=300).tolist()):
        if n < 50:
            continue
        f = n / len(ids)
        p = min(1.0, math.sqrt(t / f) + (t / f if rule == "word2vec" else 0.0))
        assert windows.kept_counts[word] == pytest.approx(n * p)
        assert abs(kept[word] - n * p) <= 4.5 * math.sqrt(n * p * (1 - p)) + 1  # + 1: the ends have one neighbour
    assert windows.raw_counts.tolist() == np.bincount(ids, minlength=300).tolist()
    assert kept.sum() < 0.7 * len(ids)


def test_no_subsampling_keeps_everything() -> None:
    assert keep_probability(np.array([5, 1]), TextConfig(sample=0)).tolist() == [1, 1]


def test_expected_targets_with_subsampling() -> None:
    rng = np.random.default_rng(1)
    corpus = corpus_of([(rng.zipf(1.5, n) % 40).tolist() for n in rng.integers(2, 60, 300)], 40)
    windows = SkipGramWindows(corpus, TextConfig(sample=1e-2, window=5), 0)
    epochs = 40
    seen = sum(np.bincount(np.concatenate([b.target.numpy() for b in windows.blocks(e, 512)]), minlength=40)
               for e in range(epochs)) / epochs
    assert windows.target_counts.sum() == pytest.approx(seen.sum(), rel=0.03)
    assert windows.target_counts / windows.target_counts.sum() == pytest.approx(seen / seen.sum(), abs=0.003)


def same(a: list[SkipGramBatch], b: list[SkipGramBatch]) -> bool:
    return len(a) == len(b) and all(torch.equal(x.centre, y.centre) and torch.equal(x.target, y.target)
                                    and torch.equal(x.window, y.window) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("shuffle", [True, False])
def test_place_is_reproducible(shuffle: bool) -> None:
    corpus = corpus_of([[int(x) for x in np.random.default_rng(2).integers(0, 30, 50)] for _ in range(20)])
    config = TextConfig(sample=0.02)
    whole = list(SkipGramWindows(corpus, config, 9).blocks(3, 64, shuffle=shuffle))
    again = SkipGramWindows(corpus, config, 9)
    list(again.blocks(0, 64))  # earlier draws do not matter
    assert same(list(again.blocks(3, 64, start=4, shuffle=shuffle)), whole[4:])
    assert not same(list(again.blocks(4, 64, shuffle=shuffle)), whole)
    assert not same(list(SkipGramWindows(corpus, config, 10).blocks(3, 64, shuffle=shuffle)), whole)
    assert list(again.blocks(3, 64, start=len(whole))) == []


def test_shuffling_only_reorders() -> None:
    corpus = numbered([40, 3, 57])
    windows = SkipGramWindows(corpus, TextConfig(sample=0.002), 1)
    shuffled, plain = pairs_of(list(windows.blocks(1, 8))), pairs_of(list(windows.blocks(1, 8, shuffle=False)))
    assert Counter(shuffled) == Counter(plain)
    assert shuffled != plain


def test_threads_and_chunks_do_not_change_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    corpus = corpus_of([rng.integers(0, 9, n).tolist() for n in rng.integers(1, 30, 40)], 9)
    config = TextConfig(sample=0.05)
    whole = SkipGramWindows(corpus, config, 0)
    blocks = list(whole.blocks(0, 50))
    for threads in (2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert same(list(SkipGramWindows(corpus, config, 0).blocks(0, 50)), blocks)
    monkeypatch.setattr(module, "CHUNK", 17)
    monkeypatch.setattr(module.kernel, "CHUNK", 17)
    parts = SkipGramWindows(corpus, config, 0)
    assert parts.raw_counts.tolist() == whole.raw_counts.tolist()
    assert parts.target_counts == pytest.approx(whole.target_counts)
    assert same(list(parts.blocks(0, 50)), blocks)


def test_every_epoch_and_seed_draws_again() -> None:
    """Each of the three draws separately: which words stay, how far windows reach, and their order."""
    corpus = numbered([400])
    def drawn(config: TextConfig, epoch: int, seed: int, shuffle: bool) -> list[tuple[int, int]]:
        return pairs_of(list(SkipGramWindows(corpus, config, seed).blocks(epoch, 64, shuffle=shuffle)))
    for config, shuffle in ((STATIC, True), (STATIC.model_copy(update={"dynamic_window": True}), False),
                            (STATIC.model_copy(update={"sample": 5e-4}), False)):
        result = [drawn(config, epoch, seed, shuffle) for epoch in range(2) for seed in range(2)]
        assert all(a != b for a, b in itertools.combinations(result, 2))
        assert result[0] == drawn(config, 0, 0, shuffle)


def test_any_block_of_any_epoch_is_computed_alone() -> None:
    corpus = corpus_of([[int(x) for x in np.random.default_rng(2).integers(0, 30, 50)] for _ in range(20)])
    config = TextConfig(sample=0.02)
    whole = {epoch: list(SkipGramWindows(corpus, config, 9).blocks(epoch, 70)) for epoch in range(3)}
    for epoch, blocks in whole.items():
        for start in range(len(blocks)):
            assert same([next(SkipGramWindows(corpus, config, 9).blocks(epoch, 70, start))], [blocks[start]])


def test_windows_and_their_pairs() -> None:
    """(epoch, block) has equal content both ways; a centre alone in its sequence has no window."""
    config = TextConfig(sample=0, dynamic_window=False, window=1)
    windows = SkipGramWindows(corpus_of([[0, 1, 2], [3], [4, 1]]), config, 1)
    [batch] = windows.windows(0, 100, shuffle=False)
    assert batch.centre.tolist() == [0, 1, 2, 4, 1] and batch.start.tolist() == [0, 1, 3, 4, 5, 6]
    assert batch.target.tolist() == [1, 0, 2, 1, 1, 4] and len(batch) == 5
    assert {x.dtype for x in (batch.centre, batch.start, batch.target)} == {torch.int64}
    assert same([batch.pairs()], list(windows.blocks(0, 100, shuffle=False)))
    [alone] = SkipGramWindows(corpus_of([[0], [1]]), STATIC, 1).windows(0, 5)
    assert len(alone) == 0 and alone.start.tolist() == [0] and len(alone.pairs()) == 0


def test_heldout_is_every_pair_up_to_a_limit() -> None:
    lines = [list(range(30)), list(range(30, 33)), [33]]
    corpus = corpus_of(lines)
    config = TextConfig(sample=1e-5, window=3)  # neither subsampling nor shrinking applies
    whole = heldout(corpus, config, 10_000, 0)
    assert Counter(pairs_of([whole])) == brute(lines, 3)
    assert set(np.diff(whole.window.numpy(), prepend=-1)) == {0, 1}
    part = heldout(corpus, config, 20, 0)
    left = iter(pairs_of([whole]))
    assert len(part) == 20 and all(pair in left for pair in pairs_of([part]))  # some of them, in the order of the text
    assert pairs_of([heldout(corpus, config, 20, 1)]) != pairs_of([part])
    assert len(heldout(corpus, config, 0, 0)) == 0


@pytest.mark.parametrize("limit", [1, 3, 20, 101, 500])
def test_heldout_takes_the_first_centres_of_its_order_that_reach_the_limit(limit: int) -> None:
    corpus, w = numbered([1] * 900 + [2] * 90 + [9] * 5), 2                    # most centres have no pair
    lines = [corpus.ids[a:b].tolist() for a, b in itertools.pairwise(corpus.sequence)]
    n_by_centre = Counter(middle for middle, _ in brute(lines, w).elements())
    chosen, n_pairs = set(), 0
    for centre in module._heldout_order(corpus, 7).tolist():
        if n_pairs < limit:
            chosen.add(centre)
            n_pairs += n_by_centre[centre]
    expected = sorted(pair for pair in brute(lines, w) if pair[0] in chosen)
    found = pairs_of([heldout(corpus, TextConfig(window=w), limit, 7)])
    assert [middle for middle, _ in found] == [middle for middle, _ in expected][:limit]
    assert len(found) == len(set(found))


def test_heldout_over_several_draws() -> None:
    corpus = numbered([6000, 4000])
    batch = heldout(corpus, TextConfig(window=2), 30_000, 0)
    assert len(batch) == 30_000 and set(np.diff(batch.window.numpy(), prepend=-1)) == {0, 1}
    assert max(Counter(pairs_of([batch])).values()) == 1


def test_empty_text_has_no_pairs() -> None:
    empty = corpus_of([], 4)
    assert len(heldout(empty, TextConfig(), 100, 0)) == 0
    windows = SkipGramWindows(empty, TextConfig(), 0)
    assert list(windows.blocks(0, 10)) == [] and windows.n_blocks(0, 10) == 0 and windows.examples_per_epoch == 0
