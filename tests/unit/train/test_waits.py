"""The number of times that a step by autograd makes the host wait for a device, per strategy.

Counted on the CPU with the core off; helpers/host_waits.py lists the operations. A GPU waits as often, except for the
seed of a draw, which it does not read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import tiny_runs
from helpers.cores import using
from helpers.host_waits import HostWaits

from embtrain import experiment
from embtrain.common.types import Negatives
from embtrain.train.engines import autograd
from embtrain.train.engines.draws import split_draws

#: Strategy, settings, and most waits of a block of n updates: of the block, of each update.
MOST = {
    "sgns": ("sgns", [], 4, 1),                               # an update: the distinct centres
    "nce": ("nce", [], 2, 1),
    "sampled softmax": ("sampled-softmax", [], 4, 1),
    "margin": ("margin", [], 4, 1),
    "sgns by windows": ("sgns", ["negatives.share_draws_by=window"], 5, 4),
    "sgns by blocks": ("sgns", ["negatives.share_draws_by=block"], 6, 4),
    "ace": ("ace", ["negatives.min_perplexity=5"], 41, 4),
}


def test_operations_that_wait_are_counted() -> None:
    x = torch.arange(6.0)
    with HostWaits() as waits:
        assert float(x[1]) == 1 and bool(x[2] > 0) and x.tolist()[3] == 3
        x[x > 2].nonzero()
        x[x > 2] = 0.0                                         # a fill, which waits for nothing
        torch.unique(x.repeat_interleave(torch.ones(6, dtype=torch.int64), output_size=6), return_inverse=True)
        x.repeat_interleave(torch.ones(6, dtype=torch.int64))
        with waits.paused():
            x.sum().item()
    assert waits.counts == {"_local_scalar_dense": 2, "tolist": 1, "index": 1, "nonzero": 1, "_unique2": 1,
                            "repeat_interleave": 1}


@pytest.mark.long
@pytest.mark.parametrize("name", MOST)
def test_a_step_waits_at_most_so_often(name: str, tmp_path: Path) -> None:
    strategy, sets, per_block, per_update = MOST[name]
    place = tiny_runs.write(tmp_path)
    with using("off"):
        training = tiny_runs.learning(tiny_runs.made(experiment.resolve(
            strategy, model="skipgram", corpus=str(place / "text"), sets=[
                *tiny_runs.TRAIN, *tiny_runs.OF_TEXT, "train.engine=autograd", *sets])), tmp_path / "run")
        block = next(iter(training.read_blocks(0, 256, 0, True)))
        training.run_step(block)                               # the first step also builds tables
        with HostWaits() as waits:
            training.run_step(block)
    n_updates = -(-len(block) // training.config.batch)
    assert n_updates > 15 and sum(waits.counts.values()) <= per_block + per_update * n_updates, waits.counts


@pytest.mark.long
@pytest.mark.parametrize("model", ["order", "cone", "shadow_cone", "poincare"])
def test_an_update_of_a_hierarchy_waits_for_nothing(model: str, tmp_path: Path) -> None:
    """A block waits for its draws' seed and for its false negatives: their number, and where each update's begin."""
    place = tiny_runs.write(tmp_path)
    with using("off"):
        training = tiny_runs.learning(tiny_runs.made(experiment.resolve(
            model.replace("_", "-"), model=model, corpus=str(place / "pairs.tsv"), sets=[
                *tiny_runs.TRAIN, "train.engine=autograd", "train.chunk=48", "train.batch=4", "pairs.slot=both",
                "pairs.valid=3", "pairs.test=3", "evaluate.benchmarks=[]"])), tmp_path / "run")
        block = next(iter(training.read_blocks(0, 48, 0, True)))
        training.run_step(block)
        with HostWaits() as waits:
            training.run_step(block)
    assert waits.counts == {"_local_scalar_dense": 1, "nonzero": 1, "tolist": 1}


#: Model, strategy, settings, and most waits of a block of 8 updates, where rows are scored one by one as on a GPU.
TRIPLES = {
    "softmax": ("complex", "cross-entropy", ["triples.reciprocal=true", "model.penalty=0.1"], {}),
    "shared": ("rotate", "self-adversarial", ["negatives.share_draws_by=block", "negatives.share_size=8"],
               {"_local_scalar_dense": 1, "nonzero": 1, "tolist": 1}),            # the draws' seed, false negatives
}


@pytest.mark.long
@pytest.mark.parametrize("name", TRIPLES)
def test_an_update_of_triples_waits_for_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, strategy, sets, most = TRIPLES[name]
    def always(_: object) -> bool:
        return True
    monkeypatch.setattr(autograd, "is_scored_by_row", always)
    place = tiny_runs.write(tmp_path)
    with using("off"):
        training = tiny_runs.learning(tiny_runs.made(experiment.resolve(
            strategy, model=model, corpus=str(place / "graph"), sets=[
                *tiny_runs.TRAIN, "train.optimizer=sgd", "train.chunk=64", "train.batch=8", *sets])), tmp_path / "run")
        block = next(iter(training.read_blocks(0, 64, 0, True)))
        training.run_step(block)
        with HostWaits() as waits:
            training.run_step(block)
    assert len(block) == 64 and waits.counts == most


@pytest.mark.parametrize("rows", [8, 3])
def test_a_batch_with_one_draw_is_given_that_draw(rows: int) -> None:
    """Rows 0 to 7 share draw 0 and so on; a batch within one draw reads its line alone."""
    drawn = Negatives(torch.arange(9).view(3, 3), draw_id=torch.arange(20) // 8, log_q=-torch.arange(9.0).view(3, 3),
                      weight=torch.ones(1, 1), false_negatives=torch.tensor([[1, 9, 9], [0, 1, 2]]))
    for (part, known), (_, general) in zip(split_draws(drawn, 20, rows, 8), split_draws(drawn, 20, rows), strict=True):
        n, is_one = part.stop - part.start, part.start // 8 == (part.stop - 1) // 8
        assert known.ids is not None and len(known.ids) == (1 if is_one else 3) and (known.draw_id is None) == is_one
        for field in ("ids", "log_q", "weight"):
            assert torch.equal(known.per_row(getattr(known, field), n), general.per_row(getattr(general, field), n))
        assert torch.equal(known.false_negatives, general.false_negatives)


@pytest.mark.parametrize("step", [1, 3, 4, 10, 11])
def test_split_draws_equal_their_slices(step: int) -> None:
    """With gaps, rows with several false negatives, and none at the ends."""
    ids = torch.arange(30).view(10, 3)
    for pairs in (None, torch.empty(2, 0, dtype=torch.int64), torch.tensor([[1, 1, 2, 5, 5, 8], [0, 2, 1, 0, 1, 2]])):
        drawn = Negatives(ids, false_negatives=pairs)
        parts = list(split_draws(drawn, 10, step))
        assert [rows for rows, _ in parts] == [slice(a, min(10, a + step)) for a in range(0, 10, step)]
        for rows, part in parts:
            expected = drawn.rows(rows)
            assert part.ids is not None and torch.equal(part.ids, ids[rows])
            assert (part.false_negatives is None) == (pairs is None)
            if part.false_negatives is not None and expected.false_negatives is not None:
                assert torch.equal(part.false_negatives, expected.false_negatives)
