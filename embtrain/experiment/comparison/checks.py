"""What would break the pairs of a comparison, told before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from embtrain.common.errors import UsageError
from embtrain.experiment.comparison import outcome, results, tuning
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run import settings as runs
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives import base as negatives
from embtrain.train.engines import choose

PAIRED = ("model", "evaluate", "train.epochs", "train.block", "train.shuffle", "train.cpu_seconds",
          "train.engine")


def wrong(of: Grid, cells: Sequence[Cell]) -> list[str]:
    """Why these cells make no comparison."""
    labels, first = dict.fromkeys(cell.label for cell in cells), cells[0]
    wrong = [f"strategies: two cells would be called {name}; give each strategy, loss and seed once"
             for name, n in Counter(cell.name for cell in cells).items() if n > 1]
    if wrong:
        return wrong[:1]
    if len(labels) < 2:
        wrong.append(f"--negatives: {first.label} alone: there is nothing to compare it with")
    if of.baseline not in labels:
        wrong.append(f"{of.said('baseline')}: {of.baseline!r} is none of {', '.join(labels)}")
    task = tasks.find(first.settings)
    metric, on = of.metric or task.metric, task.benchmarks(first.settings)
    wrong += tuning.wrong(of, metric, task, first.settings)
    benchmark, asked = metric.partition("/")[0], f"{of.said('metric')}: {metric}"
    if benchmark in ("valid", "test") and (reason := task.missing_split_reason(first.settings, benchmark)):
        wrong.append(f"{asked}: {reason}, or name another metric")
    elif not results.decides(metric):
        wrong.append(f"{asked}: is no score: neither higher nor lower is better; name another")
    elif benchmark not in ("valid", "test", *on):
        wrong.append(f"{asked}: {benchmark!r} is neither valid, test nor one of evaluate.on: {', '.join(on)}")
    for cell in cells:
        if cell.settings.train.seed != cell.seed:
            wrong.append("--set train.seed: each cell has its own; use --seeds")
        if cell.settings.strategy != cell.strategy:
            wrong.append("--set strategy: each cell has its own; use --negatives")
        if cell.settings.train.engine == "fused":
            wrong += [f"--set train.engine=fused: {reason}" for reason in slow(cell, compiled=True)]
        same_model = next(other for other in cells if other.model == cell.model)
        for key in (task.section, *PAIRED):
            other = same_model if key == "model" else first
            for place, a, b in outcome.differing(outcome.at(other.settings, key), outcome.at(cell.settings, key), key):
                # What belongs to a strategy, as its loss does, or changes nothing that is held out.
                if place in task.chosen or (key == "model" and any(runs.strategy_sets(one.strategy, place)
                                                                  for one in (cell, other))):
                    continue
                wrong.append(f"{place}: is {a!r} in {other.label} and {b!r} in {cell.label}: these would not be pairs; "
                             f"--set {place}=... gives all cells one value")
    return list(dict.fromkeys(wrong))


def different_blocks(alone: Mapping[str, int], block: int | None) -> list[str]:
    """One line on the block of all cells if their strategies have different ones alone; `alone`: label -> block."""
    if len(set(alone.values())) < 2:
        return []
    by_block = [f"{size:,} ({', '.join(label for label in alone if alone[label] == size)})"
                for size in sorted(set(alone.values()))]
    return [f"train.block={block} for all cells, whose strategies have {', '.join(by_block)}"]


def slow(cell: Cell, compiled: bool) -> list[str]:
    """Why the fused engine cannot train a cell."""
    s = cell.settings
    source = negatives.find(s.negatives.source)
    return [f"{cell.label}: {reason}"
            for reason in choose.refusals(s.model, source, s.negatives, s.loss, s.train, compiled)]


def check_begun(cells: Sequence[Cell]) -> None:
    """UsageError where a cell's folder holds a run of other settings than are asked for now."""
    for cell in cells:
        if not (cell.folder / "config.yaml").is_file():
            continue
        there, wanted = (x.model_copy(update={"train": x.train.model_copy(update={"threads": 0})})
                         for x in (runs.from_run(cell.folder), cell.settings))
        for place, old, new in outcome.differing(there, wanted, ""):
            raise UsageError(f"{cell.folder}: was trained with {place}: {old!r}, and {new!r} is asked for now; "
                             "give the comparison another --out, or take that folder away")
