"""Compares what all runs of a comparison will write with the free space of its disk, before the first run.

A finished run keeps its checkpoints (train.keep of them), its vectors and, with subwords, the table of their rows.
While runs train, each writes a further checkpoint before it deletes the oldest one, and has its tables in files.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.output_paths import existing_part
from embtrain.common.terminal import format_count
from embtrain.experiment.comparison.checks.parts import PlannedRun
from embtrain.experiment.comparison.shared.places import runs_in
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run import memory
from embtrain.experiment.run.memory import mebibytes


def require_disk(folder: Path, cells: Sequence[Cell], planned: Mapping[str, PlannedRun], parallel: int) -> None:
    """Raise ResourceError if the unfinished cells will write more than the disk of `folder` has left.

    planned: the runs of each label; cells of other labels are not counted, nor are the translators of a benchmark that
    trains them. parallel: cells that train at a time.
    """
    place = existing_part(folder)
    counted = [cell for cell in cells if cell.label in planned and not cell.is_finished()]
    need, smaller = (_bytes(folder, counted, planned, parallel, keep) for keep in (None, 1))
    if need > (free := machine.free_disk(place)):
        remedy = f", or keep only the last checkpoint of each run with --set train.keep=1, which needs " \
                 f"{mebibytes(smaller)}" if smaller < need else ""
        raise ResourceError(f"--out: {folder}: the checkpoints and vectors of {format_count(len(counted), 'run')} need "
                            f"{mebibytes(need)} on the disk of {place}, and {mebibytes(free)} are free; choose another "
                            f"disk with --out, or compare fewer runs{remedy}")


def _bytes(folder: Path, cells: Sequence[Cell], planned: Mapping[str, PlannedRun], parallel: int,
           keep: int | None = None) -> int:
    """Bytes that cells will write. keep: replaces train.keep; None: that of each cell."""
    kept, at_work = 0, list[int]()
    for cell in cells:
        (problem, state), settings = planned[cell.label], cell.settings
        if keep is not None:
            settings = settings.with_train(keep=keep)
        need = memory.disk_need(settings, problem, _run_folder(folder, cell), state)
        kept += max(0, need.stored - need.checkpoint - need.present)
        at_work.append(need.checkpoint + need.tables)
    return kept + sum(sorted(at_work)[-parallel:])


def _run_folder(folder: Path, cell: Cell) -> Path:
    """The folder in which a cell trains: with several machines, an unfinished one is elsewhere (shared/handover.py)."""
    shared = sorted(runs_in(folder).glob(f"{glob.escape(cell.name)}.*/{glob.escape(cell.name)}"))
    return shared[-1] if shared else cell.folder
