"""Checks of a comparison before its first run: settings that a strategy refuses, and the disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.in_process import Here, in_process, small_text

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.experiment.comparison import compare
from embtrain.experiment.comparison.checks import disk, parts
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.comparison.shared.sharing import Sharing
from embtrain.experiment.paper import reproduce
from embtrain.experiment.run import components, memory
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives.static.unigram import Unigram

pytestmark = pytest.mark.long

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=6", "train.epochs=1", "train.chunk=512",
        "train.lr=0.1", "evaluate.heldout_pairs=200", "evaluate.resamples=0", "evaluate.neighbours=[bal]",
        "evaluate.benchmarks=[]"]
WITHOUT_REPLACEMENT = "negatives: {source: unigram, k: 5, replacement: false}\nloss: {name: logistic}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("checks"))


@pytest.fixture(autouse=True)
def cells_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    in_process(monkeypatch, place)
    return Here


def grid(place: Path, *sets: str, **options: Any) -> Grid:
    return compare.read_grid({"strategies": ["sgns", "nce"], "seeds": 2, "corpus": str(place / "text"),
                              "sets": [*KEYS, *sets], **options})


def run(place: Path, out: Path, *sets: str, sharing: Any = None, **options: Any) -> Comparison:
    further = {} if sharing is None else {"sharing": sharing}
    return compare.compare(grid(place, *sets, **options), out, 1, 1, **further)


@pytest.mark.parametrize(("sets", "line"), [
    (["negatives.share_draws_by=window"], r"in-batch: negatives\.share_draws_by: in_batch .*'window' is not possible"),
    (["negatives.k=4000", "negatives.replacement=false"],
     r"sgns: negatives\.k: 4000 negatives cannot be drawn without replacement"),
    (["train.sinks=[nothing]"], r"sgns, in-batch: train\.sinks: "),
    (["train.tables=mapped", "train.engine=autograd"], r"sgns, in-batch: train\.tables: mapped: train\.engine: auto"),
])
def test_refused_settings_end_a_comparison_before_its_first_run(place: Path, tmp_path: Path, cells_here: type[Here],
                                                                sets: list[str], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        run(place, tmp_path / "out", *sets, strategies=["sgns", "in-batch"])
    assert cells_here.log == [] and not list((tmp_path / "out" / "cells").iterdir())


def test_all_reasons_are_reported_and_equal_ones_once(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        run(place, tmp_path, "negatives.total_weight=2", "negatives.replacement=false", "negatives.k=4000",
            strategies=["sgns", "nce", "in-batch"])
    first, *others = error.value.args
    assert first.startswith("sgns, nce: negatives.") and [line.partition(":")[0] for line in others] == ["in-batch"]


def test_two_parts_that_do_not_fit_are_refused(place: Path, tmp_path: Path, cells_here: type[Here]) -> None:
    """NCE needs q of the target, which draws without replacement do not have."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(WITHOUT_REPLACEMENT.replace("logistic", "nce"))
    with pytest.raises(UsageError, match=r"^bad: negatives\.source: unigram with these settings has no probability"):
        run(place, tmp_path / "out", strategies=["sgns", str(bad)])
    assert cells_here.log == []


def test_a_missing_file_of_one_strategy_is_a_data_error(place: Path, tmp_path: Path, cells_here: type[Here]) -> None:
    lists = tmp_path / "lists.yaml"
    lists.write_text(f"negatives: {{source: candidates, file: {tmp_path / 'none.tsv'}}}\nloss: {{name: logistic}}\n")
    with pytest.raises(DataError, match=r"^lists: negatives\.file: .*none\.tsv: file or folder not found"):
        run(place, tmp_path / "out", strategies=["sgns", str(lists)])
    assert cells_here.log == []


def test_patience_is_refused_if_the_corpus_is_too_small_for_validation(place: Path, tmp_path: Path,
                                                                       cells_here: type[Here]) -> None:
    """As `fit` refuses it. The metric that decides needs no held-out part."""
    small = tmp_path / "small.txt"
    small.write_text("a b c d e f\n" * 9)
    with pytest.raises(UsageError, match=rf"^sgns, nce: train\.patience: nothing of {small} was held out as valid"):
        run(place, tmp_path / "out", "text.min_count=1", "train.patience=1", "evaluate.benchmarks=[wordsim353]",
            corpus=str(small), metric="wordsim353/spearman")
    assert cells_here.log == []


def test_patience_is_refused_if_held_out_words_are_never_drawn(place: Path, tmp_path: Path, cells_here: type[Here],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """As `fit` refuses it."""
    monkeypatch.setattr(Unigram, "masses", lambda self: torch.arange(self.problem.n_candidates).double() % 2)
    with pytest.raises(UsageError, match=r"^sgns: train\.patience: .* targets have probability 0 under unigram"):
        run(place, tmp_path / "out", "train.patience=1")
    assert cells_here.log == []


def test_bounds_of_a_search_are_built(place: Path, tmp_path: Path, cells_here: type[Here]) -> None:
    pytest.importorskip("optuna")
    few = tmp_path / "few.yaml"
    few.write_text(WITHOUT_REPLACEMENT)
    with pytest.raises(UsageError, match=r"^few with negatives\.k=50000: negatives\.k: 50000 negatives cannot"):
        run(place, tmp_path / "out", strategies=["sgns", str(few)], search=["negatives.k=1:50000"], trials=2)
    assert cells_here.log == []


def test_reproductions_and_joined_comparisons_are_checked(place: Path, tmp_path: Path, cells_here: type[Here]) -> None:
    with pytest.raises(UsageError, match=r"^in-batch: negatives\.share_draws_by: "):
        run(place, tmp_path / "joined", "negatives.share_draws_by=window", strategies=["sgns", "in-batch"],
            sharing=Sharing(1.0))
    paper = tmp_path / "paper.yaml"
    paper.write_text(f"""\
title: A title
citation: "A. Author: A title. 1999."
claim: one is better
corpus: {place / "text"}
seeds: 1
cpu_seconds: 10
baseline: sgns
metric: test/log_likelihood
sets: {json.dumps(KEYS)}
runs: {{sgns: {{strategy: sgns}}, shared: {{strategy: in-batch, sets: [negatives.share_draws_by=window]}}}}
checks: [{{rule: not_worse, run: shared, against: sgns, metric: test/log_likelihood, margin: 9}}]
expected: [{{what: likelihood, value: -3, run: sgns, metric: test/log_likelihood, where: page 1, protocol: by eye,
             source: recalled}}]
protocol: [{{what: text, theirs: all, ours: some}}]
""")
    with pytest.raises(UsageError, match=r"^shared: negatives\.share_draws_by: "):
        reproduce.reproduce(str(paper), out=tmp_path / "paper", parallel=1, threads=1)
    assert cells_here.log == []


def test_missing_memory_is_left_to_the_runs(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other machines may train them, or this one later."""
    cells = {cell.label: cell for cell in compare.plan(grid(place), tmp_path)[1]}
    task = tasks.read(cells["sgns"].settings)
    def states() -> list[memory.StateBytes | None]:
        return [planned.state for planned in parts.build_each(cells, task).values()]

    built = states()
    assert built[0] and built[0] == built[1]
    need = memory.disk_need(cells["sgns"].settings, task.problem_spec("cpu"), tmp_path)
    assert sum(built[0]) == need.checkpoint + 2 * torch.Generator().get_state().numel()  # of the source
    monkeypatch.setattr(machine, "free", lambda: 2 * need.checkpoint - 1)
    monkeypatch.setattr(components, "build", None)
    assert states() == [None, None]


def test_the_first_run_needs_the_disk_of_all_runs(place: Path, tmp_path: Path, cells_here: type[Here],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    free = 1 << 40
    monkeypatch.setattr(machine, "free_disk", lambda folder: free)
    cells = compare.plan(grid(place, seeds=1), tmp_path)[1]
    built = parts.build_each({cell.label: cell for cell in cells}, tasks.read(cells[0].settings))
    run(place, tmp_path / "out", seeds=1)
    stored = [sum(path.stat().st_size for path in cell.rglob("*.safetensors") if path.name != "items.safetensors")
              for cell in (tmp_path / "out" / "cells").iterdir()]
    checkpoint = max(path.stat().st_size for path in (tmp_path / "out").rglob("step-*.safetensors"))
    need = disk._bytes(tmp_path, cells, built, 1)
    # Headers of the files and the words of the vectors are not counted: some kilobytes.
    assert len(stored) == 2 and 0 < sum(stored) + checkpoint - need < 2 * 4 * 4096
    assert need - disk._bytes(tmp_path, cells, built, 1, keep=1) == 2 * memory.disk_need(
        cells[0].settings, built["sgns"].problem, tmp_path, built["sgns"].state).checkpoint
    cells_here.log.clear()
    free = need - 1
    with pytest.raises(ResourceError, match=r"^--out: .*few: the checkpoints and vectors of 2 runs need .* MiB on the "
                                            r"disk of .*, and .* MiB are free; choose another disk with --out, or "
                                            r"compare fewer runs, or keep only the last checkpoint of each run with "
                                            r"--set train\.keep=1, which needs ") as error:
        run(place, tmp_path / "few", seeds=1)
    assert error.value.code == 4 and cells_here.log == []
    with pytest.raises(ResourceError, match=r"or compare fewer runs$"):
        free = 1
        run(place, tmp_path / "few", "train.keep=1", seeds=1)
    for cell in cells[1:]:                   # files that are there need no room
        shutil.copytree(tmp_path / "out" / "cells" / cell.name, tmp_path / "cells" / cell.name)
    assert disk._bytes(tmp_path, [cell for cell in cells if not cell.is_finished()], built, 1) < need
    shared = tmp_path / "join" / "runs" / f"{cells[0].name}.3" / cells[0].name       # another machine trains it
    shutil.copytree(tmp_path / "out" / "cells" / cells[0].name, shared)
    assert disk._bytes(tmp_path, cells[:1], built, 1) < disk._bytes(tmp_path / "elsewhere", cells[:1], built, 1) / 2


def test_trials_of_a_search_need_their_disk(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    names: set[str] = set()
    monkeypatch.setattr(disk, "_run_folder", lambda folder, cell: (names.add(cell.name), cell.folder)[1])
    monkeypatch.setattr(machine, "free_disk", lambda folder: 1)
    with pytest.raises(ResourceError, match=r"checkpoints and vectors of 10 runs need"):
        run(place, tmp_path / "out", search=["train.loss_lr=0.01:0.1"], trials=3)
    assert names == {f"{label}-{run}" for label in ("sgns", "nce")
                     for run in ("seed1", "seed2", "trial1", "trial2", "trial3")}


def test_rows_of_subwords_and_states_of_the_optimizer_are_counted(place: Path, tmp_path: Path) -> None:
    def bytes_of(*sets: str) -> tuple[memory.DiskNeed, int]:
        cell = compare.plan(grid(place, *sets), tmp_path)[1][0]
        parts_of_run = components.build(cell.settings, tasks.read(cell.settings))
        built = parts.build_each({"sgns": cell}, tasks.read(cell.settings))["sgns"]
        return memory.disk_need(cell.settings, built.problem, tmp_path, built.state), \
            sum(p.numel() for p in parts_of_run.model.parameters())

    plain, n = bytes_of("train.keep=1")
    adam, _ = bytes_of("train.keep=1", "train.optimizer=adam", "train.engine=autograd")
    subword, rows = bytes_of("train.keep=1", "model.subword={buckets: 5000}")
    assert adam.checkpoint - plain.checkpoint == 2 * 4 * n
    vectors = plain.stored - 2 * plain.checkpoint
    assert subword.stored - 2 * subword.checkpoint == pytest.approx(vectors + 4 * (rows - n / 2), rel=0.1)
