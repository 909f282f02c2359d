"""The error of a comparison in which some runs failed: the others are compared, the exit code is not 0."""

from __future__ import annotations

import shlex
from pathlib import Path

from embtrain.common.errors import DataError, EmbtrainError, ResourceError
from embtrain.common.files import read_json
from embtrain.evaluate.comparison.results import ComparisonResults


def failed(folder: Path, results: ComparisonResults) -> EmbtrainError | None:
    """Return the error, one line on the failed cells of a finished comparison; None if all have scores.

    ResourceError if all of them lacked machine resources, else DataError. Cells skipped because the CPU budget was
    spent did not fail.
    """
    codes = {cell.cell: code for cell in results.cells if cell.status == "failed"
             and (code := _code(folder / "cells" / f"{cell.cell}.error.json")) is not None}
    if not codes:
        return None
    first = next(cell for cell in results.cells if cell.cell in codes)
    paper = results.plan.get("paper")
    resume_command = shlex.join(["embtrain", *(["compare"] if paper is None else ["reproduce", paper]), "--out",
                                 str(folder)])
    error = ResourceError if set(codes.values()) == {ResourceError.code} else DataError
    return error(f"{folder}: {len(codes)} of {len(results.cells)} runs failed, and the comparison contains only the "
                 f"others; {first.cell}: {first.error}; to run them again: {resume_command}")


def _code(path: Path) -> int | None:
    """The exit code of a failed cell; None if it was never started."""
    try:
        code = read_json(path)["code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return DataError.code
    return code if isinstance(code, int) else None
