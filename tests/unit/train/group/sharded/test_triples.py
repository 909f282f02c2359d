"""Triples that processes share: tables cut by rows have the bits of whole ones, and a killed run continues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.graphs import a_folder
from helpers.groups import assert_any_number_finishes, ends, fork_ranks, kill_one_and_resume, losses

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.experiment import grouped
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.train.group import requirements
from embtrain.train.group.processes import SOLO
from embtrain.train.group.tiers import counts_of

KEYS = ["train.chunk=16", "train.batch=8", "train.epochs=2",
        "train.threads=1", "train.log_every=1", "train.sync.blocks=2", "train.sync.frequent_rows=null", "model.dim=6",
        "evaluate.resamples=0"]
SHARDED = "train.tables=sharded"


def settings(place: Path, *sets: str, model: str = "transe", strategy: str = "self-adversarial"
             ) -> experiment.Settings:
    return experiment.resolve(strategy, model=model, corpus=str(place / "graph"), sets=[*KEYS, *sets])


def trained(place: Path, out: str, n: int, *sets: str, **names: str) -> tuple[list[bytes], dict[int, float]]:
    """The tables of process 0 of n, which take turns, and the losses of its log."""
    (place / out).mkdir()
    resolved = settings(place, *sets, **names)
    parts, trainer = grouped.simulate(resolved, tasks.read(resolved), n, place / out)[0]
    model = parts.model
    assert trainer.position.examples == 2 * 2 * 100
    return [np.ascontiguousarray(table.detach().numpy()).tobytes() for table in (model.e, model.r)], losses(place / out)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    a_folder(tmp_path / "graph", n_entities=30, n_relations=4)
    return tmp_path


@pytest.mark.parametrize(("n", "model", "strategy", "sets"), [
    (2, "transe", "self-adversarial", ()),
    (3, "transe", "margin", ("train.optimizer=sgd", "model.norm=l2")),
    (3, "transe", "sampled-softmax", ("negatives.share_draws_by=block", "negatives.share_size=4")),
    (2, "distmult", "sgns", ("train.sync.wire=float32",)),
])
def test_tables_that_are_cut_have_the_bits_of_whole_ones(place: Path, n: int, model: str, strategy: str,
                                                         sets: tuple[str, ...]) -> None:
    whole, cut = (trained(place, tables, n, *sets, f"train.tables={tables}", model=model, strategy=strategy)
                  for tables in ("memory", "sharded"))
    assert cut == whole and len(whole[1]) > 5
    untrained = components.build(settings(place, *sets, model=model, strategy=strategy),
                                 tasks.read(settings(place))).model
    assert all(table.detach().numpy().tobytes() != after
               for table, after in zip((untrained.e, untrained.r), whole[0], strict=True))


def test_entities_are_exchanged_by_their_frequency_and_relations_at_every_synchronization(place: Path) -> None:
    resolved = settings(place)
    task = tasks.read(resolved)
    entities, relations = counts_of(components.build(resolved, task).model)
    assert entities.tolist() == task.examples.target_counts.tolist()                     # type: ignore[attr-defined]
    assert relations.tolist() == [0] * 4
    many = ("train.chunk=4", "train.batch=4", "train.sync.blocks=1")    # synchronizations: a short epoch has no tiers
    tiers = trained(place, "tiers", 2, *many, "train.sync.frequent_rows=4")
    assert tiers != trained(place, "all", 2, *many)


@pytest.mark.parametrize(("names", "sets", "reason"), [
    ({"model": "rotate"}, (), r"^model\.name: rotate: the examples .* use skipgram, cbow, node2vec, transe, "),
    ({"strategy": "margin"}, ("model.entities=ball",), r"model\.entities: ball: rows that were put together "),
])
def test_models_that_cannot_be_shared_are_refused(place: Path, names: dict[str, str], sets: tuple[str, ...],
                                                  reason: str) -> None:
    resolved = settings(place, *sets, **names)
    parts = components.build(resolved, tasks.read(resolved))
    with pytest.raises(UsageError, match=rf"{reason}.*; or start one process instead of 1$"):
        requirements.check_parts(parts.fused_blockers, parts.model, parts.source, parts.train, SOLO)


@pytest.mark.parametrize(("strategy", "sets", "reason"), [
    ("nce", ("loss.partition=global",), r"loss\.partition: a learned log Z"),
    ("margin", ("negatives.replacement=false",), r"negatives\.source: unigram: "),
])
def test_triples_that_cannot_be_cut_are_refused(place: Path, strategy: str, sets: tuple[str, ...], reason: str) -> None:
    resolved = settings(place, *sets, strategy=strategy)
    parts = components.build(resolved, tasks.read(resolved))
    with pytest.raises(UsageError, match=rf"^train\.tables: sharded: {reason}"):
        requirements.check_shards(parts.model, parts.source, parts.loss)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_a_killed_run_continues_and_its_checkpoint_loads_in_one_two_and_three_processes(place: Path) -> None:
    keys = [part for key in (*KEYS, SHARDED, "train.epochs=20", "train.checkpoint_every=0.001")
            for part in ("--set", key)]

    def fit(out: str, **env: str) -> list:
        return fork_ranks(place, 2, "fit", "--model", "transe", "--corpus", "graph", "--out", out, *keys, **env)

    results = ends(fit("whole"))
    assert {code for code, _ in results} == {0}, results
    ranks = fit("cut", EMBTRAIN_SYNC_SECONDS="20")
    kill_one_and_resume(place, ranks)
    assert_any_number_finishes(place)
