"""The set of observed pairs against a plain Python set."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from embtrain.common.errors import ResourceError
from embtrain.data import known_pairs as module
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text.corpus import Corpus, TextConfig
from embtrain.data.text.vocabulary import Vocabulary

V = 7
lines_of_ids = st.lists(st.lists(st.integers(0, V - 1), max_size=10), max_size=8)


def corpus_of(lines: list[list[int]], v: int = V) -> Corpus:
    ids = np.array([i for line in lines for i in line], dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    counts = np.bincount(ids, minlength=v).astype(np.int64)
    return Corpus(ids, offsets, offsets, Vocabulary([str(i) for i in range(v)], counts, len(ids)), {})


def brute(lines: list[list[int]], w: int) -> set[tuple[int, int]]:
    return {(line[i], line[j]) for line in lines for i in range(len(line)) for j in range(len(line))
            if i != j and abs(i - j) <= w}


@given(lines_of_ids, st.integers(1, 4), st.integers(1, 9))
def test_from_corpus_equals_the_set(lines: list[list[int]], w: int, chunk: int) -> None:
    config = TextConfig(window=w)
    lines = [line for line in lines if line]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        known = KnownPairs.from_corpus(corpus_of(lines), config)
    expected = brute(lines, w)
    grid = known.contains(torch.arange(V), torch.arange(V).expand(V, V))
    assert {(int(a), int(b)) for a, b in grid.nonzero()} == expected
    assert known.n == len(known) == len(expected) and known.nbytes == 8 * known.n
    assert known.nbytes <= KnownPairs.estimate_bytes(corpus_of(lines), config)
    row, target = known.targets_of(torch.tensor([3, 0, 3]))
    got = sorted(zip(row.tolist(), target.tolist(), strict=True))
    assert got == sorted((r, b) for r, c in enumerate([3, 0, 3]) for a, b in expected if a == c)
    assert row.tolist() == sorted(row.tolist())


def test_ids_broadcast() -> None:
    known = KnownPairs(torch.tensor([5, 900, 5, 5]), torch.tensor([1, 0, 2, 1]), 3)  # a context may exceed V
    assert known.n == 3
    assert known.contains(torch.tensor([5, 900]), torch.tensor([[0, 1, 2]])).tolist() == [[False, True, True],
                                                                                        [True, False, False]]
    assert known.contains(torch.tensor([5, 901]), torch.tensor([[2], [0]])).tolist() == [[True], [False]]
    assert torch.equal(known.to("cpu").keys, known.keys)


def test_empty_set_contains_nothing() -> None:
    known = KnownPairs(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 4)
    assert known.contains(torch.tensor([0]), torch.tensor([[0, 3]])).tolist() == [[False, False]]
    assert [x.tolist() for x in known.targets_of(torch.tensor([0, 1]))] == [[], []]


def test_keys_do_not_overflow_32_bits() -> None:
    v = 100_000
    known = KnownPairs(torch.tensor([99_999], dtype=torch.int32), torch.tensor([99_998], dtype=torch.int32), v)
    assert bool(known.contains(torch.tensor([99_999]), torch.tensor([[99_998]])))
    ids = [v - 1, v - 2]
    assert KnownPairs.from_corpus(corpus_of([ids], v), TextConfig()).keys.tolist() == [(v - 2) * v + v - 1,
                                                                                 (v - 1) * v + v - 2]


def test_limit_is_respected() -> None:
    corpus = corpus_of([list(range(7))])
    size = KnownPairs.from_corpus(corpus, TextConfig()).nbytes
    assert KnownPairs.from_corpus(corpus, TextConfig(), size).nbytes == size
    with pytest.raises(ResourceError, match=f"more than {size - 1} bytes"):
        KnownPairs.from_corpus(corpus, TextConfig(), size - 1)
