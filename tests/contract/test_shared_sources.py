"""Sources in several processes of one run: streams of their own, and learning together."""

from __future__ import annotations

import hashlib

import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CASES, DETERMINISTIC, VECTORS, TableView, example, query, source

from embtrain.negatives.base import NegativeSource
from embtrain.testing.worlds import trained
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.turns import in_turns

LEARNING = [case for case in CASES if example(case).traits.learns]
FIRST = list({case.split()[0]: case for case in reversed(CASES)}.values())   # a case of each source
RANDOM = [case for case in FIRST if case not in (*DETERMINISTIC, *VECTORS, "in_batch")]


def ids_of(case: str, seed: int | None) -> torch.Tensor:
    """Ids, or vectors, of a draw after some others, with a stream of its own."""
    one, view, batch = source(case), TableView(), query(30)
    one.draw(batch, one.config.k, view)
    if seed is not None:
        one.reseed(seed)
    drawn = one.draw(batch, one.config.k, view)
    out = drawn.vectors if drawn.ids is None else drawn.ids
    assert out is not None
    return out


@looped("case", RANDOM)
def test_a_stream_of_its_own_follows_from_its_seed_alone(case: str) -> None:
    assert torch.equal(ids_of(case, 5), ids_of(case, 5))
    assert not torch.equal(ids_of(case, 5), ids_of(case, 6))


@looped("case", FIRST)
def test_every_shipped_source_can_be_shared(case: str) -> None:
    assert source(case).learn_with(SOLO)


def test_a_source_that_learns_without_a_group_is_refused() -> None:
    from dataclasses import replace

    class Alone(NegativeSource):
        traits = replace(NegativeSource.traits, learns=True)

    one = source("uniform")
    assert not Alone(one.config, one.problem).learn_with(SOLO)


def parameters(one: NegativeSource) -> str:
    """Hash of the trained parameters of a source and of those inside it."""
    sha = hashlib.sha256()
    for value in vars(one).values():
        for p in value.parameters() if isinstance(value, torch.nn.Module) else ():
            sha.update(p.detach().numpy().tobytes())
    return sha.hexdigest() + "".join(parameters(inner) for inner in one.inner_sources())


@pytest.mark.parametrize("case", [case for case in LEARNING if example(case).traits.learns_from == "cost"])
def test_processes_with_streams_of_their_own_learn_the_same(case: str) -> None:
    def body(group: ProcessGroup) -> list[str]:
        one, hashes = source(case), list[str]()
        assert one.learn_with(group)
        one.reseed(group.rank)
        for _ in range(3):
            trained(one, 1 + group.rank)          # unequal numbers of draws between synchronizations
            one.synchronize()
            hashes.append(parameters(one))
        return hashes
    first, *others = in_turns(3, body)
    assert all(other == first for other in others)
    assert len({parameters(source(case)), *first}) == 4        # every synchronization made a step


@pytest.mark.parametrize("case", ["ace", "kbgan", "mixture of an adversary and uniform"])
def test_processes_that_collect_the_same_learn_as_one_alone(case: str) -> None:
    def learn(group: ProcessGroup | None) -> str:
        one = source(case)
        if group is not None:
            one.learn_with(group)
        for _ in range(4):
            trained(one, 1)
            if group is not None:
                one.synchronize()
        return parameters(one)
    assert set(in_turns(2, learn)) == {learn(None)}


def test_candidates_that_others_moved_are_summed_again() -> None:
    one = source("rff with leaves without the target")
    trained(one, 1)
    assert not one.touched.any()                                                        # type: ignore[attr-defined]
    one.on_moved(torch.tensor([0, 39]))
    place = one.blocks.place[torch.tensor([0, 39])]                                     # type: ignore[attr-defined]
    assert set(one.touched.nonzero()[:, 0].tolist()) == set(place.tolist())             # type: ignore[attr-defined]
