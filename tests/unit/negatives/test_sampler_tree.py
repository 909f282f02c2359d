"""The tree against a walk in plain Python: its sums under updates, its memory, and its random choices."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.cores import CORES, using
from helpers.looped import looped
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.negatives.sampling.row_store import StoredDtype, quantize
from embtrain.negatives.softmax.kernels.sum_tree import GIB, ExcludedTargets, SumTree, TreeQuery, choose_column

WIDTH = 6
KINDS = ("float32", "int8")


def planted(n: int, fan: int, leaf: int, seed: int = 0, kind: StoredDtype = "float32", keep: bool = False
            ) -> tuple[SumTree, torch.Tensor, torch.Tensor, TreeQuery]:
    """Return a tree, its candidates' φ (n, W) and π, and three queries. A third of the masses are negative."""
    draw = torch.Generator().manual_seed(seed)
    phi, prior = torch.randn(n, WIDTH, generator=draw) + 0.3, torch.rand(n, generator=draw, dtype=torch.float64) + 0.2
    tree = SumTree(prior, WIDTH, fan, leaf, 1.0, "cpu", kind, keep)
    tree.update(torch.arange(n), lambda ids: sums(phi, prior, ids, 1 if keep else leaf))
    h = torch.randn(3, WIDTH, generator=draw, dtype=torch.float64) + 0.3
    return tree, phi, prior, TreeQuery(h, torch.tensor([0.01, 0.2, 1.5], dtype=torch.float64))


def sums(phi: torch.Tensor, prior: torch.Tensor, blocks: torch.Tensor, leaf: int) -> torch.Tensor:
    weighted = phi.double() * prior.unsqueeze(1)
    return torch.stack([weighted[b * leaf:(b + 1) * leaf].sum(0) for b in blocks.tolist()])


def by_walking(phi: torch.Tensor, prior: torch.Tensor, h: torch.Tensor, least: float, fan: int, leaf: int,
               without: int | None = None) -> list[float]:
    """Return q of every block: recursion over spans of candidates, each mass a sum of its candidates, one by one."""
    n = len(phi)
    depth, span = 0, leaf
    while span * fan < n:
        depth, span = depth + 1, span * fan
    out = [0.0] * math.ceil(n / leaf)

    def mass(first: int, size: int) -> float:
        ids = [i for i in range(first, min(n, first + size)) if i != without]
        if not ids:
            return 0.0
        raw = sum(float(prior[i]) * float(phi[i].double() @ h) for i in ids)
        return max(raw, least * sum(float(prior[i]) for i in ids))

    def walk(first: int, size: int, q: float) -> None:
        children = [(f, size) for f in range(first, min(n, first + size * fan), size)]
        masses = [mass(*child) for child in children]
        for (f, s), m in zip(children, masses, strict=True):
            if m == 0:
                continue
            share = q * m / sum(masses)
            if s == leaf:
                out[f // leaf] = share
            else:
                walk(f, s // fan, share)

    walk(0, span, 1.0)
    return out


@given(st.integers(2, 60), st.integers(2, 5), st.integers(1, 6), st.booleans(), st.integers(0, 5))
def test_every_block_has_the_probability_of_its_walk(n: int, fan: int, leaf: int, excluded: bool, seed: int) -> None:
    tree, phi, prior, queries = planted(n, fan, leaf, seed)
    everyone = torch.arange(tree.blocks)
    for query in range(3):
        target = (7 * query + seed) % n
        without = None
        if excluded and n > leaf:
            mass = prior[target] * (phi[target].double() @ queries.phi[query])
            without = ExcludedTargets(torch.full((tree.blocks,), target), mass.expand(tree.blocks),
                              prior[target].expand(tree.blocks))
        q = tree.walk(queries, torch.full((tree.blocks,), query), everyone, without, None)[1].exp()
        expected = by_walking(phi, prior, queries.phi[query], float(queries.floor[query]), fan, leaf,
                              target if without is not None else None)
        possible = torch.tensor(expected) > 0
        torch.testing.assert_close(q[possible], torch.tensor(expected, dtype=torch.float64)[possible], rtol=1e-4,
                                   atol=1e-6)
        assert (torch.nan_to_num(q[~possible]) == 0).all()
        assert float(torch.nan_to_num(q).sum()) == pytest.approx(1, abs=1e-9)


@looped("name", CORES)
@looped("excluded", [False, True])
@looped("n, fan, leaf", [(50, 2, 1), (61, 4, 3), (33, 16, 2)])
def test_q_of_int8_tree_is_that_of_stored_values(name: str, n: int, fan: int, leaf: int, excluded: bool) -> None:
    """It is close to that of the sums: rounding moves a mass by at most some hundredths of the largest."""
    tree, phi, prior, queries = planted(n, fan, leaf, kind="int8")
    exact, everyone, target = planted(n, fan, leaf)[0], torch.arange(tree.blocks), n // 3
    without = None
    if excluded:
        mass = prior[target] * (phi[target].double() @ queries.phi[1])
        without = ExcludedTargets(*(x.expand(tree.blocks) for x in (torch.tensor(target), mass, prior[target])))
    whole, scale = quantize(queries.phi[1:2].float())
    h, place, log_q = (whole * scale.unsqueeze(1)).double()[0], everyone, torch.zeros(tree.blocks, dtype=torch.float64)
    for level in range(len(tree.sums) - 1, -1, -1):
        m, least, count = tree.sums[level].read(slice(None)) @ h, 0.2 * tree.prior[level], tree.count[level].clone()
        if without is not None:
            above = target // leaf // fan ** (len(tree.sums) - 1 - level)
            m[above], least[above], count[above] = m[above] - mass, least[above] - 0.2 * prior[target], count[above] - 1
        m = torch.maximum(m, least).masked_fill(count <= 0, 0)
        log_q, place = log_q + m[place].log() - m.view(-1, fan).sum(1).log()[place // fan], place // fan
    query_rows = torch.ones_like(everyone)
    with using(name):
        rounded = tree.walk(queries, query_rows, everyone, without, None)[1]
        near = exact.walk(queries, query_rows, everyone, without, None)[1]
    possible = log_q.isfinite()
    torch.testing.assert_close(rounded[possible], log_q[possible], rtol=0, atol=1e-5)
    assert not rounded[~possible].exp().nan_to_num(0).any()
    assert float((rounded.exp() - near.exp()).nan_to_num(0).abs().max()) < 0.03


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fan", "leaf"), [(2, 1), (3, 2), (16, 1)])
def test_both_computations_of_masses_agree(fan: int, leaf: int, kind: StoredDtype) -> None:
    """One query of one node gathers its sums; many queries of all nodes are a product of matrices."""
    tree, _, _, queries = planted(300, fan, leaf, kind=kind)
    level = len(tree.sums) - 1
    parents = torch.arange(tree.nodes[level] // fan)
    whole = tree.masses(level, queries, torch.ones_like(parents), parents, None)
    alone = torch.cat([tree.masses(level, queries, torch.tensor([1]), parent.view(1), None) for parent in parents[:20]])
    torch.testing.assert_close(alone, whole[:20], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n", "fan", "leaf"), [(50, 2, 1), (64, 2, 1), (200, 4, 3), (33, 16, 2), (5, 2, 8)])
def test_blocks_follow_reported_probability(n: int, fan: int, leaf: int) -> None:
    tree, _, _, queries = planted(n, fan, leaf)
    draws, query = 60_000, 1
    query_rows = torch.full((draws,), query)
    block, log_q = tree.walk(queries, query_rows, torch.full_like(query_rows, -1), None,
                             torch.Generator().manual_seed(1))
    torch.testing.assert_close(log_q, tree.walk(queries, query_rows, block, None, None)[1], rtol=0, atol=1e-9)
    q = tree.walk(queries, query_rows[:tree.blocks], torch.arange(tree.blocks), None, None)[1].exp()
    seen, expected = torch.bincount(block, minlength=tree.blocks).double(), q * draws
    big = expected >= 50
    if big.sum() > 1:
        rest = (~big).any()
        a = torch.cat([seen[big], seen[~big].sum().view(1)]) if rest else seen
        b = torch.cat([expected[big], expected[~big].sum().view(1).clamp(min=1e-9)]) if rest else expected
        assert stats.chi2.sf(float(((a - b).square() / b)[b >= 50].sum()), int((b >= 50).sum()) - 1) > 1e-4


@looped("name", CORES)
@looped("kind", KINDS)
@looped("keep", (False, True))
def test_partial_updates_equal_rebuild(name: str, kind: StoredDtype, keep: bool) -> None:
    with using(name):
        tree, phi, prior, _ = planted(500, 4, 3, kind=kind, keep=keep)
        phi, before = phi.clone(), [s.clone() for s in tree.stored_tensors()]
        draw = torch.Generator().manual_seed(4)
        for _ in range(200):                                # enough steps to show a drift
            some = torch.randint(0, 500, (5,), generator=draw)
            phi[some] = torch.randn(5, WIDTH, generator=draw)
            tree.update(torch.unique(some), lambda ids: sums(phi, prior, ids, 1 if keep else 3))
        fresh = SumTree(prior, WIDTH, 4, 3, 1.0, "cpu", kind, keep)
        fresh.update(torch.arange(500), lambda ids: sums(phi, prior, ids, 1 if keep else 3))
    for actual, theirs, old in zip(tree.stored_tensors(), fresh.stored_tensors(), before, strict=True):
        assert torch.equal(actual, theirs)
        assert not torch.equal(actual, old)


@looped("name", CORES)
@looped("kind", KINDS)
@looped("leaf", (1, 3, 64, 70))
def test_sums_of_kept_features_are_those_of_blocks(name: str, kind: StoredDtype, leaf: int) -> None:
    with using(name):
        kept, phi, prior, _ = planted(500, 4, leaf, kind=kind, keep=True)
        plain, *_ = planted(500, 4, leaf, kind=kind)
    rounding = 0.0 if kind == "float32" else leaf * float((phi.double() * prior.unsqueeze(1)).abs().max()) / 127
    for of_kept, of_plain in zip(kept.sums, plain.sums, strict=True):
        torch.testing.assert_close(of_kept.read(slice(None)), of_plain.read(slice(None)), rtol=0.02,
                                   atol=1e-5 + rounding)
    assert (kept.features is None) == (leaf == 1)
    if kept.features is not None:                            # π φ(c), and nothing behind the last candidate
        error = float((kept.features.read(slice(500)) - phi.double() * prior.unsqueeze(1)).abs().max())
        assert error < 1e-6 + rounding / leaf
        assert (kept.features.read(slice(500, None)) == 0).all()


def test_only_changed_candidates_are_encoded_if_features_are_kept() -> None:
    tree, phi, prior, _ = planted(500, 4, 16, keep=True)
    encoded: list[int] = []

    def features(places: torch.Tensor) -> torch.Tensor:
        encoded.extend(places.tolist())
        return sums(phi, prior, places, 1)

    before = [s.clone() for s in tree.stored_tensors()]
    tree.update(torch.tensor([3, 17, 18, 499]), features)
    assert encoded == [3, 17, 18, 499]
    assert all(torch.equal(new, old) for new, old in zip(tree.stored_tensors(), before, strict=True))


@pytest.mark.parametrize("name", CORES)
def test_node_is_the_sum_of_its_children(name: str) -> None:
    with using(name):
        tree, phi, prior, _ = planted(500, 4, 3)
    for level in range(1, len(tree.sums)):
        summed = tree.sums[level].read(slice(None)).view(-1, 4, WIDTH).sum(1)
        actual = tree.sums[level - 1].read(slice(None))
        torch.testing.assert_close(actual[:len(summed)], summed, rtol=1e-6, atol=1e-6)
        assert (actual[len(summed):] == 0).all()
    whole = (phi.double() * prior.unsqueeze(1)).sum(0)
    torch.testing.assert_close(tree.sums[0].read(slice(None)).sum(0), whole, rtol=1e-5, atol=1e-5)
    assert [int(c.sum()) for c in tree.count] == [500] * len(tree.count)
    assert all(float(p.sum()) == pytest.approx(float(prior.sum())) for p in tree.prior)


def test_too_large_tree_is_rejected_with_its_numbers_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = torch.ones(500_000, dtype=torch.float64)
    monkeypatch.setattr(machine, "free", lambda: 16 * GIB)
    with pytest.raises(ResourceError, match=r"500,000 .* nodes x 2,000 numbers x 4 bytes = 7\.\d+ .* 4 .* int8"):
        SumTree(prior, 2000, 2, 1, 4.0, "cpu")
    with pytest.raises(ResourceError, match=r" x 1 byte = 1\.\d+ GiB, more than 1 .*negatives\.features$"):
        SumTree(prior, 2000, 2, 1, 1.0, "cpu", "int8")
    monkeypatch.setattr(machine, "free", lambda: 2 * GIB)    # whatever the setting allows
    with pytest.raises(ResourceError, match=r" = 7\.\d+ GiB, more than is free \(2\.00 GiB\); raise "
                                            r"negatives\.leaf_size"):
        SumTree(prior, 2000, 2, 1, 12.0, "cpu")
    with pytest.raises(ResourceError, match=r"negatives\.features, or set negatives\.keep_features: false$"):
        SumTree(prior, 20_000, 16, 64, 4.0, "cpu", "int8", keep_features=True)
    tree = SumTree(prior, 8, 16, 64, 4.0, "cpu")                # the shape of D = 1000 in blocks of 64
    assert 4 * 2000 * sum(tree.nodes) + 8 * sum(map(len, [*tree.prior, *tree.count])) < 150e6 < GIB


def test_choice_never_has_zero_mass() -> None:
    mass = torch.tensor([[0.0, 3.0, 0.0, 1.0, 0.0]], dtype=torch.float64).expand(50_000, -1)
    slot, log_share = choose_column(mass, torch.Generator().manual_seed(0))
    assert set(slot.tolist()) == {1, 3}
    assert float((slot == 1).double().mean()) == pytest.approx(0.75, abs=0.01)
    torch.testing.assert_close(log_share.exp(), torch.where(slot == 1, 0.75, 0.25).double())


def test_extreme_random_number_stays_within_the_masses(monkeypatch: pytest.MonkeyPatch) -> None:
    for toss, expected in ((0.0, 1), (1 - 2.0**-53, 3), (1.0, 3)):
        monkeypatch.setattr(torch, "rand", lambda *shape, toss=toss, **_: torch.full(shape, toss, dtype=torch.float64))
        mass = torch.tensor([[0.0, 3.0, 0.0, 1e-3, 0.0]], dtype=torch.float64)
        assert int(choose_column(mass, torch.Generator())[0]) == expected
