"""Tables cut by rows: the bits of processes with whole tables, checkpoints for any number of processes, exact q."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.groups import assert_any_number_finishes, bits, ends, fit, kill_one_and_resume, losses
from helpers.in_process import small_text
from helpers.looped import looped
from helpers.tiny_runs import OF_TEXT
from scipy.stats import chisquare

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives.static.base import StaticSource
from embtrain.train.group import requirements
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.sharded.shards import CHUNK, TableShards
from embtrain.train.group.trainer import _stream
from embtrain.train.group.turns import in_turns

SHARDED = ("--set", "train.tables=sharded", "--set", "train.epochs=1")
SHAPES = [(37, 5), (23, 5)]


def whole_tables(seed: int, size: int) -> list[np.ndarray]:
    """Tables, and their accumulators, as process 0 has them: rows are padded."""
    draw = np.random.default_rng([seed, size])
    tables = [draw.normal(size=(n, 16)).astype(np.float32)[:, :dim] for n, dim in SHAPES]
    return [*tables, *(draw.random((n, 1)).astype(np.float32) for n, _ in SHAPES)]


@looped("wire", ["float32", "bfloat16"])
@looped("size", [1, 2, 3, 4])
def test_moves_of_pulled_rows_are_folded_as_those_of_whole_tables(size: int, wire: str) -> None:
    def body(group: ProcessGroup) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        start, collected = whole_tables(1, 0), [np.full_like(x, np.nan) for x in whole_tables(1, 0)]
        own = [torch.from_numpy(x) for x in whole_tables(1, 0)]
        sync = TableSync(group, own[:2], wire, [h[:, 0] for h in own[2:]])
        shards = TableShards(group, [*SHAPES, *((n, 1) for n, _ in SHAPES)], wire, 2)
        shards.scatter(start if group.is_first else [])
        for step in range(2):
            draw = np.random.default_rng([2, step, group.rank])
            ids = [np.sort(draw.choice(n, n // 2, replace=False)) for n, _ in SHAPES] * 2
            rows = shards.pull(ids)
            assert all(x.tobytes() == table[i].numpy().tobytes() for x, table, i in zip(rows, own, ids, strict=True))
            for x, table, i in zip(rows, own, ids, strict=True):
                move = draw.random(x.shape, np.float32)
                move[0] = 0                                              # a row that is pulled and does not move
                x += move
                table[i] += torch.from_numpy(move)
            shards.put_together()
            sync.put_together()
        shards.collect(collected if group.is_first else [])
        return [x.numpy() for x in own], collected, start

    results = in_turns(size, body)
    whole, collected, start = results[0]
    for expected, x, before in zip(whole, collected, start, strict=True):
        assert expected.tobytes() == np.ascontiguousarray(x).tobytes() and not np.array_equal(x, before)


def test_large_tables_move_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.train.group.sharded.shards.CHUNK", 150)

    def body(group: ProcessGroup) -> tuple[list[np.ndarray], int]:
        shards = TableShards(group, SHAPES, "float32")
        shards.scatter(whole_tables(3, 0)[:2] if group.is_first else [])
        back = [np.zeros_like(x) for x in whole_tables(3, 0)[:2]]
        shards.collect(back if group.is_first else [])
        return back, len(list(shards._chunks()))

    back, n_chunks = in_turns(3, body)[0]
    assert CHUNK > 150 and n_chunks > 10
    assert all(np.array_equal(x, y) for x, y in zip(back, whole_tables(3, 0), strict=False))


@pytest.mark.parametrize("size", [2, 4])
def test_negatives_of_all_processes_follow_q(tmp_path: Path, size: int) -> None:
    settings = experiment.resolve("sampled-softmax", corpus=str(small_text(tmp_path) / "text"), sets=OF_TEXT)
    parts = components.build(settings, tasks.read(settings))
    source = parts.source
    assert isinstance(source, StaticSource) and requirements.draws_alone(source)
    counts = np.zeros(parts.problem.n_candidates)
    for rank in range(size):
        if rank:
            source.reseed(_stream(1, rank, 0))
        ids = source.draw_ids(20_000, 5)
        candidates = ids.unique()
        places = torch.searchsorted(candidates, ids)                  # as the small tables are numbered
        assert torch.equal(candidates[places], ids)
        counts += np.bincount(ids.reshape(-1).numpy(), minlength=len(counts))
    expected = source.log_q.double().exp().numpy() * counts.sum()
    assert expected.min() > 50 and chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.001 / 2


@pytest.mark.parametrize(("sets", "reason"), [
    (["model.subword.buckets=50"], r"model\.subword: rows of n-grams"),
    (["negatives.filter=observed"], r"negatives\.filter: observed: "),
    (["negatives.replacement=false"], r"negatives\.source: unigram: "),
    (["loss.name=nce", "loss.partition=global"], r"loss\.partition: a learned log Z"),
    (["model.name=cbow"], r"model\.name: cbow: the rows of a window"),
])
def test_other_components_are_refused(tmp_path: Path, sets: list[str], reason: str) -> None:
    settings = experiment.resolve("sgns", corpus=str(small_text(tmp_path) / "text"), sets=[*OF_TEXT, *sets])
    parts = components.build(settings, tasks.read(settings))
    with pytest.raises(UsageError, match=rf"^train\.tables: sharded: {reason}"):
        requirements.check_shards(parts.model, parts.source, parts.loss)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return small_text(tmp_path / "place", 40)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize(("n", "sets"), [
    (2, ("train.optimizer=row-adagrad", "train.patience=1")), (4, ("negatives.share_draws_by=window",))])
def test_a_run_has_the_bits_of_processes_with_whole_tables(place: Path, n: int, sets: tuple[str, ...]) -> None:
    words = [part for text in sets for part in ("--set", text)]
    for out, tables in (("whole", "memory"), ("cut", "sharded")):
        results = ends(fit(place, n, out, *words, "--set", f"train.tables={tables}", "--set", "train.epochs=1",
                           "--set", "train.sync.frequent_rows=null"))
        assert {code for code, _ in results} == {0}, results
    assert bits(place / "cut") == bits(place / "whole") and losses(place / "cut") == losses(place / "whole")
    assert len(losses(place / "cut")) > 3


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_a_killed_run_continues_and_its_checkpoint_loads_in_one_two_and_three_processes(place: Path) -> None:
    words = (*SHARDED, "--set", "train.optimizer=row-adagrad", "--set", "train.checkpoint_every=0.001")
    assert {code for code, _ in ends(fit(place, 2, "whole", *words))} == {0}
    ranks = fit(place, 2, "cut", *words, EMBTRAIN_SYNC_SECONDS="20")
    kill_one_and_resume(place, ranks)
    assert_any_number_finishes(place)
