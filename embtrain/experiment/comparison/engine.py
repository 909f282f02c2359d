"""One engine and one block size for all cells of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from embtrain.experiment.comparison.checks import different_blocks, fused_blockers
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.comparison.workers import Cell
from embtrain.kernels.core.loader import core
from embtrain.negatives import base as negatives
from embtrain.train.engines import choose


def choose_for_all(grid: Grid, cells: Sequence[Cell]) -> Grid:
    """Name one engine for all cells, because `auto` could choose a different one for each, and one block size.

    The engines differ in what one update is, which must not be mistaken for a difference of strategies. All cells use
    the engine that the user named for some, else fused if it can train all. Examples are shuffled within blocks, so
    equal order needs equal blocks: the smallest, if strategies or sources differ and no run sets its own."""
    engines = {cell.settings.train.engine for cell in cells}
    named = engines - {"auto"}
    if len(named) > 1:
        return grid
    compiled = core() is not None
    engine = min(named) if named else "autograd" if any(fused_blockers(cell, compiled) for cell in cells) else "fused"
    blocks = {block_size(cell, engine) for cell in cells}
    extra_sets = [f"train.engine={engine}"] if "auto" in engines else []
    if len(blocks) > 1 and not any(kind.sets_key("train", "chunk") for _, kind in grid.kinds()):
        extra_sets.append(f"train.chunk={min(blocks)}")
    return grid.model_copy(update={"sets": [*grid.sets, *extra_sets]}) if extra_sets else grid


def block_size(cell: Cell, engine: str) -> int:
    """Examples of a block of a cell under an engine."""
    settings = cell.settings
    return choose.block_size(settings.train, engine, negatives.find(settings.negatives.source).traits.uses_model)


def describe(cells: Sequence[Cell], own_cells: Sequence[Cell] = ()) -> str:
    """Describe the engine of all cells and why it is not fused. own_cells: the cells with their own blocks."""
    engine, compiled = cells[0].settings.train.engine, core() is not None
    reasons = [] if engine == "fused" else [reason for cell in cells for reason in fused_blockers(cell, compiled)]
    blocks = different_blocks({cell.label: block_size(cell, engine) for cell in own_cells},
                              cells[0].settings.train.chunk)
    return "; ".join([f"engine: {engine} for all runs", *dict.fromkeys(reasons), *blocks])
