"""Chooses one training engine and one block size for all runs of a comparison, unless the user compares engines.

A comparison trains a grid of runs, which differ in strategy (a negative sampler, called source, a loss and their
settings), model or seed. Each run is a `Cell`. An engine is the code that makes the updates: `autograd` computes a
batch with PyTorch and updates once; `fused` calls the compiled core, the C++ library, or kernels on a GPU,
which update after each query or each group of queries that share negatives. `train.engine: auto` chooses
between them per run. A block is the part of the data for which negatives are drawn at once and inside which the
examples are shuffled: `train.chunk` centre words or queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from embtrain.experiment.comparison.checks.pairing import different_blocks, fused_blockers
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.comparison.workers import Cell
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.train.engines import choose


def choose_for_all(grid: Grid, cells: Sequence[Cell]) -> Grid:
    """Return the grid with one engine for all cells where some have `auto`, and with one block size.

    cells: with the trials at the bounds of a search, which are trained by the same engine.

    The engines differ in what one update is, and the comparison would count that as a difference of strategies. All
    cells get the engine that is named for some of them; if none is named, fused if it can train all cells, else
    autograd. If different engines are named, the grid is returned unchanged: the user compares engines.

    Cells with blocks of one size see the examples in the same order. If the sizes would differ, all get the smallest,
    unless the settings of a kind of run (a strategy, loss and model, for all seeds) set `train.chunk`.
    """
    engines = {cell.settings.train.engine for cell in cells}
    named = engines - {"auto"}
    if len(named) > 1:
        return grid
    engine = min(named) if named else "autograd" if fused_blockers(cells) else "fused"
    block_sizes = {block_size(cell, engine) for cell in cells}
    extra_sets = [f"train.engine={engine}"] if "auto" in engines else []
    if len(block_sizes) > 1 and not any(kind.sets_key("train", "chunk") for _, kind in grid.kinds()):
        extra_sets.append(f"train.chunk={min(block_sizes)}")
    return grid.model_copy(update={"sets": [*grid.sets, *extra_sets]}) if extra_sets else grid


def block_size(cell: Cell, engine: str) -> int:
    """Return the centre words or queries per block of a cell: `train.chunk`, or the default of the engine."""
    settings = cell.settings
    return choose.block_size(settings.train, engine, negatives.find(settings.negatives.source).traits.uses_model,
                             models.find(settings.model.name).task)


def describe(cells: Sequence[Cell], own_cells: Sequence[Cell] = ()) -> str:
    """Return one line on the engine of all cells, the reasons if it is not fused, and on a common block size.

    cells: as trained, after `choose_for_all`, with the same trials. own_cells: the cells as requested, before it. They
    show which block sizes the strategies have alone.
    """
    engine = cells[0].settings.train.engine
    reasons = [] if engine == "fused" else fused_blockers(cells)
    blocks = different_blocks({cell.label: block_size(cell, engine) for cell in own_cells},
                              cells[0].settings.train.chunk)
    return "; ".join([f"engine: {engine} for all runs", *reasons, *blocks])
