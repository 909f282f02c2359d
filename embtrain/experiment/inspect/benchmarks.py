"""Resolve the names of `evaluate --on`: shipped benchmarks, the user's recipes and tables, files for a run's task."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from embtrain.common import shipped
from embtrain.common.errors import UsageError
from embtrain.data import own_benchmarks
from embtrain.data.benchmarks import Benchmark, find_benchmark


@dataclass(frozen=True)
class BenchmarkChoice:
    """A benchmark that vectors are scored on, or a file that the task of a run is scored on."""

    benchmark: Benchmark | None   # None: the file is for the task
    file: Path | None = None      # for the task


def choose_benchmark(name: str | os.PathLike[str], by_task: bool, flag: str = "--on") -> BenchmarkChoice:
    """Resolve one name of `evaluate --on`.

    by_task: the run's task scores files of its own kind, so a path that is not a recipe is one of them. flag: the flag
    or key of the name, for errors. UsageError if there is neither a benchmark nor a file, DataError for a wrong file.
    """
    name = os.fspath(name)
    if shipped.is_benchmark(name):
        return BenchmarkChoice(find_benchmark(name))
    path = Path(name)
    if by_task and _has_files(path) and not (path.is_file() and own_benchmarks.is_recipe(path)):
        return BenchmarkChoice(None, path)
    try:
        return BenchmarkChoice(find_benchmark(os.path.abspath(name) if path.exists() else name))
    except UsageError as error:
        neither = "" if path.exists() or path.is_absolute() else f"; and there is no file {name!r}"
        raise UsageError(f"{flag}: {error}{neither}") from error


def _has_files(path: Path) -> bool:
    """Whether the file exists, or files whose names start with it, like DATA.de and DATA.en."""
    return path.exists() or (path.parent.is_dir() and any(path.parent.glob(glob.escape(path.name) + ".*")))
