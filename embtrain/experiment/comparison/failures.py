"""Lines on runs without scores: the error if some failed, whose exit code is not 0, and a note if some were not run."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path

from embtrain.common.errors import DataError, EmbtrainError, ResourceError, is_lack_of_resources
from embtrain.common.files import read_json
from embtrain.common.terminal import format_part
from embtrain.evaluate.comparison.results import ComparisonResults
from embtrain.experiment.comparison.checks.folder import first_names
from embtrain.experiment.comparison.grid import continue_command
from embtrain.experiment.comparison.workers import FAILURE


def failed(folder: Path, results: ComparisonResults) -> EmbtrainError | None:
    """Return the error, one line on the failed cells of a finished comparison; None if all have scores.

    ResourceError if all of them lacked machine resources or were killed, else DataError. Cells skipped because the CPU
    budget was spent did not fail.
    """
    codes = {cell.cell: code for cell in results.cells if cell.status == "failed"
             and (code := _code(folder / "cells" / f"{cell.cell}{FAILURE}")) is not None}
    if not codes:
        return None
    first = next(cell for cell in results.cells if cell.cell in codes)
    error = ResourceError if all(map(is_lack_of_resources, codes.values())) else DataError
    return error(f"{folder}: {len(codes)} of {len(results.cells)} runs failed, and the comparison contains only the "
                 f"others; {first.cell}: {first.error}; to run {_pronoun(codes)} again: {_command(folder, results)}")


def not_run(folder: Path, results: ComparisonResults) -> str | None:
    """Return one line on the cells that were not run; None if there are none."""
    names = [cell.cell for cell in results.cells if cell.status == "not run"]
    if not names:
        return None
    part = format_part(len(names), len(results.cells), "runs", "was not run and is", "were not run and are")
    return (f"{folder}: {part} not compared ({first_names(names)}); to run {_pronoun(names)}: "
            f"{_command(folder, results)}")


def _pronoun(names: Sized) -> str:
    return "it" if len(names) == 1 else "them"


def _command(folder: Path, results: ComparisonResults) -> str:
    """The command that trains the cells without scores."""
    return continue_command(folder, results.plan.get("paper"))


def _code(path: Path) -> int | None:
    """The exit code of a failed cell; None if it was never started."""
    try:
        code = read_json(path)["code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return DataError.code
    return code if isinstance(code, int) else None
