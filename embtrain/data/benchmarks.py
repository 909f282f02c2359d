"""Benchmarks by name: those of evals/, and the user's own recipes and tables by their path."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from embtrain.common import files
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.data import own_benchmarks
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.recipes import load_recipe

SETTINGS = frozenset(("model", "negatives", "loss", "train"))  # sections that only a file of settings has


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of evals/ or of the user."""

    recipe: EvalRecipe
    own_gold: Path | None = None  # the user's gold file; None: the one of a copy of the recipe

    @property
    def gold(self) -> Path:
        """The gold file. ResourceError if it is not available; UsageError if the benchmark trains a translator."""
        if self.recipe.training is not None:
            raise UsageError(f"{self.recipe.name}: trains a translator and has no gold file")
        return self.own_gold or fetch.gold_path(self.recipe)

    def sha256(self) -> str:
        """A hash over the gold file and all of the recipe that decides scores."""
        layout = self.recipe.model_dump_json(include={"kind", "metric", "format", "half"})
        return hashlib.sha256(f"{layout} {files.sha256(self.gold)}".encode()).hexdigest()


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of a name or a path.

    UsageError if it does not exist or is a file of settings, DataError for a wrong file.
    """
    path = Path(name)
    if not os.path.isabs(name):            # settings have absolute paths
        return Benchmark(load_recipe("evals", name))
    if not path.is_file():
        raise UsageError(f"{name}: " + ("is a folder; give a file in it" if path.is_dir() else
                                        "does not exist; restore it, or give another file"))
    status = path.stat()
    return _read_own(path, (status.st_mtime_ns, status.st_size))


@functools.lru_cache(maxsize=256)  # each reading reports a header again
def _read_own(path: Path, version: tuple[int, int]) -> Benchmark:
    """Read a benchmark of the user. version: time and size of the file; a changed file is read again."""
    if not own_benchmarks.is_recipe(path):
        return Benchmark(own_benchmarks.recipe_from_table(path), path)
    if settings := SETTINGS & read_yaml(path).tree.keys():
        raise UsageError(f"{path}: is a file of settings: it has the section {min(settings)}; give a recipe of a "
                         "benchmark, or a table of words and scores")
    recipe, gold = own_benchmarks.read_own_recipe(path)
    if recipe.name != path.stem:
        raise DataError(f"{path}: name: should be {path.stem!r} like the file name, got {recipe.name!r}")
    if gold is None and recipe.training is None:
        try:
            fetch.gold_path(recipe)
        except ResourceError as error:
            places = " or ".join(str(path.parent / copy.mirror) for copy in recipe.copies if copy.mirror)
            raise DataError(f"{path}: copies: there is no gold file {places or 'next to it, named by mirror'}; put it "
                            f"there ({error})") from error
    return Benchmark(recipe, gold)
