"""Triples become queries; the open side follows from (seed, epoch) and a position."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from helpers.graphs import some_triples
from scipy import stats

from embtrain.common.errors import ResourceError
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.triples.examples import (
    HEAD,
    TAIL,
    KnownTriples,
    TripleBatch,
    TripleExamples,
    tails_and_heads_per_entity,
)
from embtrain.data.triples.graph import TriplesConfig

E, R = 9, 4
TRIPLES = some_triples(150, E, R)
SLOTS = ("both", "random", "bernoulli")


def examples(seed: int = 1, triples: np.ndarray = TRIPLES, **settings: Any) -> TripleExamples:
    return TripleExamples(triples, E, R, TriplesConfig(**settings), seed)


def epoch(
    of: TripleExamples, number: int = 0, block: int = 7, start: int = 0, shuffle: bool = True
) -> list[tuple[int, ...]]:
    """Return (target, slot, entity, relation) of every example."""
    return [row for b in of.blocks(number, block, start, shuffle)
            for row in zip(*(x.tolist() for x in (b.target, b.slot, b.entity, b.relation)), strict=True)]


def as_triple(row: tuple[int, ...], inverse: bool = False) -> tuple[tuple[int, int, int], int]:
    """Return the triple of an example, and the side that was open."""
    target, slot, entity, relation = row
    if inverse:
        slot, relation = (HEAD, relation - R) if relation >= R else (TAIL, relation)
    return ((target, relation, entity) if slot == HEAD else (entity, relation, target)), slot


def test_both_sides_of_every_triple_are_queried_once() -> None:
    for shuffle in (True, False):
        result = sorted(as_triple(row) for row in epoch(examples(), shuffle=shuffle))
        assert result == sorted((tuple(t), slot) for t in TRIPLES.tolist() for slot in (TAIL, HEAD))
    assert [as_triple(row)[0] for row in epoch(examples(), shuffle=False)[::2]] == [tuple(t) for t in TRIPLES.tolist()]


@pytest.mark.parametrize("slot", ["random", "bernoulli"])
def test_one_side_of_every_triple_is_queried(slot: str) -> None:
    result = [as_triple(row) for row in epoch(examples(slot=slot))]
    assert sorted(t for t, _ in result) == sorted(map(tuple, TRIPLES.tolist()))
    assert {side for _, side in result} == {TAIL, HEAD}
    assert dict(result) != dict(as_triple(row) for row in epoch(examples(slot=slot), 1))  # another coin, another epoch


@pytest.mark.parametrize("slot", SLOTS)
def test_inverse_relations_query_tails_only(slot: str) -> None:
    plain, inverse = examples(slot=slot), examples(slot=slot, reciprocal=True)
    assert (plain.n_relations, inverse.n_relations) == (R, 2 * R)
    rows = epoch(inverse)
    assert {row[1] for row in rows} == {TAIL}
    assert [as_triple(row, inverse=True) for row in rows] == [as_triple(row) for row in epoch(plain)]


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_block_follows_from_its_place(slot: str, shuffle: bool) -> None:
    whole = epoch(examples(slot=slot), 2, 7, 0, shuffle)
    n = examples(slot=slot).n_blocks(2, 7)
    assert n == -(-len(whole) // 7) and len(whole) == examples(slot=slot).examples_per_epoch
    for start in (1, n - 1, n):
        fresh = examples(slot=slot)
        list(fresh.blocks(0, 3))                                         # an epoch before it has no effect
        assert epoch(fresh, 2, 7, start, shuffle) == whole[7 * start:]
    assert epoch(examples(slot=slot), 2, 1000, 0, shuffle) == whole      # nor has the size of a block
    assert (epoch(examples(2, slot=slot), 2, 7, 0, shuffle) == whole) == (slot == "both" and not shuffle)


def test_orders_differ_between_epochs() -> None:
    orders = [epoch(examples(), number) for number in range(3)]
    assert all(sorted(a) == sorted(b) and a != b for a, b in pairwise(orders))


def test_tph_and_hpt() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2], [0, 0, 3], [4, 0, 1], [1, 2, 5], [2, 2, 5]])
    tph, hpt = tails_and_heads_per_entity(triples, 3)
    assert tph.tolist() == [4 / 2, 1, 2 / 2] and hpt.tolist() == [4 / 3, 1, 2 / 1]


def test_open_side_has_the_stated_probability() -> None:
    """Relation 0: one head of 60 tails, so the head is open 60 times in 61; relation 1 the other way round."""
    ids = np.arange(1, 61)
    one, zero = np.zeros_like(ids), np.ones_like(ids)
    triples = np.concatenate([np.stack([one, one, ids], 1), np.stack([ids, zero, one], 1)])
    examples_of_slot = TripleExamples(triples, 61, 2, TriplesConfig(slot="bernoulli"), 3)
    assert examples_of_slot.p_head.tolist() == pytest.approx([60 / 61, 1 / 61])
    for name, p_head in (("bernoulli", [60 / 61, 1 / 61]), ("random", [0.5, 0.5])):
        drawn = TripleExamples(triples, 61, 2, TriplesConfig(slot=name), 3)
        rows = np.array([row for number in range(100) for row in epoch(drawn, number, 50)])
        for relation, p in enumerate(p_head):
            n = rows[rows[:, 3] == relation]
            assert stats.binomtest(int((n[:, 1] == HEAD).sum()), len(n), p).pvalue > 0.001 / 4


@pytest.mark.parametrize("slot", SLOTS)
def test_expected_targets(slot: str) -> None:
    built = examples(slot=slot)
    counts = sum(np.bincount([row[0] for row in epoch(built, number, 500)], minlength=E) for number in range(200)) / 200
    assert built.target_counts.sum() == pytest.approx(built.examples_per_epoch)
    assert np.abs(counts - built.target_counts).max() < (1e-9 if slot == "both" else 1.5)


def test_rows_of_a_batch_keep_their_fields() -> None:
    batch = examples().both(TRIPLES[:5])
    assert isinstance(batch, TripleBatch) and batch.slot.tolist() == [TAIL, HEAD] * 5 and len(batch) == 10
    assert [as_triple(x)[0] for x in zip(*(getattr(batch.rows(slice(2, 4)), n).tolist()
                                           for n in ("target", "slot", "entity", "relation")), strict=True)
            ] == [tuple(TRIPLES[1])] * 2
    assert batch.context(R)[:, 1].tolist() == (batch.relation + R * batch.slot).tolist()


# --- known positives -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reciprocal", [False, True])
def test_known_triples_are_exactly_those_of_the_graph(reciprocal: bool) -> None:
    built = examples(reciprocal=reciprocal)
    known = KnownTriples.from_triples(built, [TRIPLES[:40], TRIPLES[40:100]])
    true = set(map(tuple, TRIPLES[:100].tolist()))
    contexts = torch.cartesian_prod(torch.arange(E), torch.arange(2 * built.n_relations))
    result = known.contains(contexts, torch.arange(E).unsqueeze(0))
    def is_true(entity: int, directed: int, target: int) -> bool:
        if directed < R:
            return (entity, directed, target) in true
        return R <= directed < 2 * R and (target, directed - R, entity) in true
    assert result.tolist() == [[is_true(*c, t) for t in range(E)] for c in contexts.tolist()]
    assert known.nbytes == 8 * 200 and isinstance(known.to("cpu"), KnownTriples)
    row, target = known.targets_of(contexts)
    again = torch.zeros_like(result)
    again[row, target] = True
    assert torch.equal(again, result) and row.tolist() == sorted(row.tolist())
    private = torch.stack([torch.randperm(E, generator=torch.Generator().manual_seed(i))[:3]
                           for i in range(len(contexts))])
    assert torch.equal(known.to("cpu").contains(contexts, private), result.gather(1, private))


def test_set_that_does_not_fit_64_bits_is_rejected() -> None:
    none = torch.zeros(0, 2, dtype=torch.int64)
    with pytest.raises(ResourceError, match="4,294,967,296 × 4 ids and 1,073,741,824 candidates"):
        KnownPairs(none, none[:, 0], 1 << 30, (1 << 32, 4))
    assert len(KnownPairs(none, none[:, 0], 1 << 30, (1 << 30, 4))) == 0


def test_threads_that_read_blocks_order_the_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    of, seed_of, seeds = examples(), TripleExamples._seed_of, list[int]()

    def slow(self: TripleExamples, epoch: int, use: int) -> int:
        seeds.append(use)
        time.sleep(0.02)
        return seed_of(self, epoch, use)

    monkeypatch.setattr(TripleExamples, "_seed_of", slow)
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda number: next(of.blocks(1, 50, number)), range(4)))
    assert len(seeds) == 1
    targets = torch.cat([block.target for block in blocks]).tolist()
    assert targets == [target for target, *_ in epoch(examples(), 1)[:200]]
