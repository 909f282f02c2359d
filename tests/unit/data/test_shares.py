"""Training pairs of a share that a published split lacks: their number, their rule, their seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embtrain.common.errors import UsageError
from embtrain.data.hierarchy import closure
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.examples import PairsConfig, load
from embtrain.data.hierarchy.shares import draw_training_pairs

N = 255                                                                          # concepts of a binary tree of depth 7
TREE = np.array([[i, (i - 1) // 2] for i in range(1, N)])
CLOSED = closure.closure(TREE, N, list(map(str, range(N))), "tree")
IMPLIED = CLOSED[~PairSet(TREE, N).contains(CLOSED)]                             # 1,284 pairs
HELD = IMPLIED[::10]


def draw(percent: int, seed: int = 0) -> np.ndarray:
    return draw_training_pairs(TREE, CLOSED, HELD, N, percent, seed, "tree")


@pytest.mark.parametrize("percent", [1, 10, 25, 50, 89])
def test_a_share_has_the_direct_pairs_and_distinct_implied_ones_that_are_not_held_out(percent: int) -> None:
    train = draw(percent)
    drawn = train[len(TREE):]
    assert train[:len(TREE)].tolist() == TREE.tolist()
    assert len(drawn) == len(IMPLIED) * percent // 100 == len(set(map(tuple, drawn.tolist())))
    assert PairSet(IMPLIED, N).contains(drawn).all() and not PairSet(HELD, N).contains(drawn).any()


def test_each_free_pair_is_drawn_equally_often() -> None:
    """2,000 seeds: the number of draws of a pair is within 4.5 standard deviations of the binomial's mean."""
    free, n_seeds = IMPLIED[~PairSet(HELD, N).contains(IMPLIED)], 2000
    counts = np.zeros(len(free))
    for seed in range(n_seeds):
        counts += PairSet(draw(50, seed)[len(TREE):], N).contains(free)
    share = len(IMPLIED) // 2 / len(free)
    assert counts.sum() == len(IMPLIED) // 2 * n_seeds
    assert (abs(counts - n_seeds * share) / np.sqrt(n_seeds * share * (1 - share))).max() < 4.5


def test_a_share_depends_on_its_seed_and_is_not_nested() -> None:
    assert draw(25).tolist() == draw(25).tolist() != draw(25, seed=1).tolist()
    assert not PairSet(draw(50), N).contains(draw(25)).all()


def test_a_share_above_the_free_pairs_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"^pairs\.percent: 95: tree has only 89 % .* set at most 89$"):
        draw(95)
    assert len(draw(89)) == len(TREE) + len(IMPLIED) * 89 // 100


def test_published_split_without_the_share_draws_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Held-out pairs and negatives stay; `split_seed` changes the draw, and only if there is no file of the share."""
    def write(part: str, pairs: np.ndarray) -> None:
        (tmp_path / f"x.tsv.{part}").write_text("".join(f"{v}\t{u}\n" for u, v in pairs.tolist()))

    (tmp_path / "x.tsv.vocab").write_text("".join(f"{i}\tc{i}\n" for i in range(N)))
    tenth = np.concatenate([IMPLIED[3:9], TREE])
    parts = {"train_0percent": TREE, "train_10percent": tenth, "valid": HELD[::2], "test": HELD[1::2]}
    for part, pairs in parts.items():
        write(part, pairs)
    for part, pairs in {"valid_neg": HELD[::2], "test_neg": HELD[1::2]}.items():
        write(part, np.stack([pairs[:, 0], pairs[:, 0] % 126 + 128], 1))          # a leaf is above nothing

    def train(percent: int, split_seed: int = 0) -> np.ndarray:
        loaded = load([tmp_path], PairsConfig(protocol="given", percent=percent, split_seed=split_seed), "x").split
        assert loaded.held["valid"].pairs.tolist() == HELD[::2].tolist() and loaded.held["test"].leak == 0
        return loaded.train

    assert len(train(10)) == len(TREE) + 6 and train(10, 1).tolist() == train(10).tolist() and not caplog.text
    assert train(50).tolist() == draw(50).tolist() and train(50, 1).tolist() == draw(50, 1).tolist()
    assert "pairs.percent: 50: x has no file of this share" in caplog.text and "with seed 1" in caplog.text
