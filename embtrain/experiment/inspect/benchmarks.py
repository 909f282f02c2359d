"""Resolve the names of `evaluate --on`: shipped benchmarks, the user's recipes and tables, files for a run's task."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.data import own_benchmarks
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.recipes import load_recipe


@dataclass(frozen=True)
class BenchmarkChoice:
    """A benchmark that vectors are scored on, or a file that the task of a run is scored on."""

    recipe: EvalRecipe | None  # None: the file is for the task
    path: Path | None          # the gold file; None: the one of the recipe in evals/

    @property
    def trains(self) -> bool:
        return self.recipe is not None and self.recipe.training is not None


def choose_benchmark(name: str | os.PathLike[str], by_task: bool) -> BenchmarkChoice:
    """Resolve one name of `evaluate --on`.

    by_task: the run's task scores files of its own kind, so a path that is not a recipe is one of them. UsageError if
    there is neither a benchmark nor a file, DataError for a wrong file.
    """
    name = os.fspath(name)
    if name in shipped.names("evals"):
        return BenchmarkChoice(load_recipe("evals", name), None)
    path = Path(name)
    if path.is_file() and own_benchmarks.is_recipe(path):
        if settings := {"model", "negatives", "loss", "train"} & read_yaml(path).tree.keys():
            raise UsageError(f"--on: {name}: is a file of settings: it has the section {min(settings)}; give a recipe "
                             "of a benchmark, or a table of words and scores")
        recipe, gold = own_benchmarks.read_own_recipe(path)
        return BenchmarkChoice(recipe, fetch.gold_path(recipe) if gold is None and recipe.training is None else gold)
    if by_task and _has_files(path):
        return BenchmarkChoice(None, path)
    if path.is_file():
        return BenchmarkChoice(own_benchmarks.recipe_from_table(path), path)
    if path.is_dir():
        raise UsageError(f"--on: {name}: is a folder; give a file in it")
    try:
        return BenchmarkChoice(load_recipe("evals", name), None)
    except UsageError as error:
        raise UsageError(f"--on: {error}; and there is no file {name!r}") from error


def _has_files(path: Path) -> bool:
    """Whether the file exists, or files whose names start with it, like DATA.de and DATA.en."""
    return path.exists() or (path.parent.is_dir() and any(path.parent.glob(glob.escape(path.name) + ".*")))
