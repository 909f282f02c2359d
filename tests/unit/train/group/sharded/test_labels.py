"""Documents with labels that processes share: tables cut by rows, or in files, have the bits of whole ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.groups import assert_any_number_finishes, ends, fork_ranks, kill_one_and_resume, losses
from helpers.looped import looped

from embtrain import experiment
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.types import ProblemSpec
from embtrain.experiment import grouped
from embtrain.experiment.run import components, memory, run
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.core.table_files import TableFiles
from embtrain.models import tables as model_tables
from embtrain.models.xc import XC
from embtrain.train.group import requirements
from embtrain.train.group.processes import SOLO
from embtrain.train.group.tiers import counts_of

N, V, FEATURES = 120, 40, 30
KEYS = ["train.chunk=16", "train.batch=24", "train.epochs=2", "train.threads=1", "train.log_every=1",
        "train.sync.blocks=2", "train.sync.frequent_rows=null", "model.dim=6", "evaluate.resamples=0"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(N):
        labels = np.unique(draw.geometric(0.1, 3) % V)
        features = np.unique(draw.geometric(0.1, 4) % FEATURES)
        rows.append(",".join(map(str, labels)) + "".join(f" {i}:{draw.random():.3f}" for i in features))
    (tmp_path / "documents.txt").write_text("\n".join([f"{N} {FEATURES} {V}", *rows]) + "\n")
    return tmp_path


def settings(place: Path, *sets: str, strategy: str = "sampled-softmax") -> experiment.Settings:
    return experiment.resolve(strategy, model="xc", corpus=str(place / "documents.txt"), sets=[*KEYS, *sets])


def trained(place: Path, out: str, n: int, *sets: str, strategy: str = "sampled-softmax"
            ) -> tuple[list[bytes], dict[int, float]]:
    """The tables of process 0 of n, which take turns, and the losses of its log."""
    (place / out).mkdir()
    resolved = settings(place, *sets, strategy=strategy)
    parts, trainer = grouped.simulate(resolved, tasks.read(resolved), n, place / out)[0]
    assert isinstance(parts.model, XC) and trainer.position.epoch == 2
    return [np.ascontiguousarray(table.detach().numpy()).tobytes() for table in (parts.model.w, parts.model.c)], \
        losses(place / out)


@pytest.mark.parametrize(("n", "strategy", "sets"), [
    (2, "sampled-softmax", ()),
    (3, "sampled-softmax", ("model.similarity=dot", "train.optimizer=sgd")),
    (3, "sgns", ("negatives.share_draws_by=batch", "train.sync.wire=float32")),
    (2, "sampled-softmax", ("negatives.filter=observed", "negatives.share_draws_by=window", "train.clip=0.1")),
])
def test_tables_that_are_cut_have_the_bits_of_whole_ones(place: Path, n: int, strategy: str,
                                                         sets: tuple[str, ...]) -> None:
    whole, cut = (trained(place, tables, n, *sets, f"train.tables={tables}", strategy=strategy)
                  for tables in ("memory", "sharded"))
    assert cut == whole and len(whole[1]) > 2
    untrained = components.build(settings(place, *sets), tasks.read(settings(place))).model
    assert all(table.detach().numpy().tobytes() != after
               for table, after in zip((untrained.w, untrained.c), whole[0], strict=True))


def test_one_process_has_the_bits_of_tables_in_memory_with_its_tables_in_files(place: Path) -> None:
    results = []
    for tables in ("memory", "mapped", "sharded"):
        parts = run.train_in_memory(settings(place, f"train.tables={tables}"), place / tables)
        results.append([np.ascontiguousarray(p.detach().numpy()).tobytes() for p in parts.model.parameters()])
    assert results[0] == results[1] == results[2]


def test_features_and_labels_are_exchanged_by_their_frequency(place: Path) -> None:
    task = tasks.read(settings(place))
    features, labels = counts_of(components.build(settings(place), task).model)
    batch = next(task.examples.blocks(0, N))
    assert labels.tolist() == np.bincount(batch.target, minlength=V).tolist()
    of_documents = batch.features.rows(torch.unique(batch.document).numpy()).index               # type: ignore
    assert features.tolist() == np.bincount(of_documents, minlength=FEATURES).tolist() and features.max() > 10


def test_tables_need_no_memory_if_they_are_in_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.common.machine.free", lambda: 50_000)
    with pytest.raises(ResourceError, match=r"30 features and 40 labels take about .* lower model\.dim$"):
        tasks.read(settings(place, "model.dim=600"))
    tasks.read(settings(place, "model.dim=600", "train.tables=mapped"))


def test_the_disk_of_features_and_labels_is_counted(place: Path) -> None:
    resolved = settings(place, "train.tables=sharded")
    problem = tasks.read(resolved).problem_spec("cpu")
    assert memory.disk_need(resolved, problem, place).tables == 4 * (V + FEATURES) * (16 + 1)    # and the accumulators


@looped("shape", [(0, 3), (1, 1), (5, 3), (16, 6), (31, 5), (100, 7), (1000, 2)])
def test_a_normal_table_in_chunks_has_the_numbers_of_one_draw(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch,
                                                              tmp_path: Path) -> None:
    monkeypatch.setattr(model_tables, "CHUNK", 100)
    one, chunked = (torch.Generator().manual_seed(3) for _ in range(2))
    expected = torch.randn(shape, generator=one) * 0.3
    for new_table in (None, TableFiles(tmp_path).zeros):
        problem = ProblemSpec(1, torch.ones(1), new_table=new_table)
        assert torch.equal(model_tables.normal(problem, *shape, 0.3, chunked.manual_seed(3)), expected)
        assert torch.equal(chunked.get_state(), one.get_state())


@pytest.mark.parametrize(("strategy", "sets", "reason"), [
    ("softmax", (), r"negatives\.source: every: each update reads every row"),
    ("sampled-softmax", ("train.optimizer=adam",), r"train\.optimizer: adam: it keeps a table of its own"),
    ("sampled-softmax", ("loss.penalty=0.1",), r"loss\.penalty: the exact log Z reads every row"),
])
def test_updates_of_all_rows_are_refused_for_tables_in_files(place: Path, strategy: str, sets: tuple[str, ...],
                                                             reason: str) -> None:
    with pytest.raises(UsageError, match=rf"^train\.tables: sharded: {reason}.*; or set train\.tables: memory$"):
        run.check(settings(place, *sets, "train.tables=sharded", strategy=strategy))


@pytest.mark.parametrize(("strategy", "sets", "reason"), [
    ("nce", ("loss.partition=global",), r"loss\.partition: a learned log Z"),
    ("exp", (), r"negatives\.source: exp: the negatives must be drawn before the tables are read"),
])
def test_documents_that_cannot_be_cut_are_refused(place: Path, strategy: str, sets: tuple[str, ...], reason: str
                                                  ) -> None:
    resolved = settings(place, *sets, strategy=strategy)
    parts = components.build(resolved, tasks.read(resolved))
    with pytest.raises(UsageError, match=rf"^train\.tables: sharded: {reason}"):
        requirements.check_shards(parts.model, parts.source, parts.loss)


def test_an_optimizer_whose_state_is_not_shared_is_refused(place: Path) -> None:
    resolved = settings(place, "train.optimizer=lazy-adam", "train.engine=autograd")
    requirements.check_settings(resolved.model, resolved.train, 2)
    parts = components.build(resolved, tasks.read(resolved))
    with pytest.raises(UsageError, match=r"^train\.optimizer: lazy-adam: its state is not shared; set sgd or row-"):
        requirements.check_parts(parts.fused_blockers, parts.model, parts.source, parts.train, SOLO)


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_a_killed_run_continues_and_its_checkpoint_loads_in_one_two_and_three_processes(place: Path) -> None:
    keys = [part for key in (*KEYS, "train.tables=sharded", "train.epochs=20", "train.checkpoint_every=0.001")
            for part in ("--set", key)]

    def fit(out: str, **env: str) -> list:
        return fork_ranks(place, 2, "fit", "--model", "xc", "--negatives", "sampled-softmax", "--corpus",
                          "documents.txt", "--out", out, *keys, **env)

    results = ends(fit("whole"))
    assert {code for code, _ in results} == {0}, results
    ranks = fit("cut", EMBTRAIN_SYNC_SECONDS="20")
    kill_one_and_resume(place, ranks)
    assert_any_number_finishes(place)
