"""Extrinsic evaluation of vectors: a small translator trained on the frozen table (evals/nmt-*.yaml)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from embtrain.common.errors import UsageError
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.models.nmt.model import NmtConfig


def training_recipes(names: Iterable[str]) -> list[EvalRecipe]:
    """Recipes of the named benchmarks that train a model; none of the user's in settings does."""
    recipes = (load_recipe("evals", name) for name in names if not os.path.isabs(name))
    return [recipe for recipe in recipes if recipe.training is not None]


def translator_settings(recipe: EvalRecipe, file: Path, dim: int, sets: Sequence[str] = ()) -> Settings:
    """Settings of the recipe's translator on the vectors of `file` (dimension `dim`), then `sets`."""
    training = recipe.training
    if training is None:
        raise UsageError(f"evals: {recipe.name}: is not a benchmark that trains")
    return run_settings.resolve(training.strategy, NmtConfig().name, training.corpus, sets=[
        f"model.dim={dim}", "model.output_table.kind=pretrained", f"model.output_table.file={file}",
        "model.output_table.frozen=true",
        *training.sets, *sets])


def rows(scores: Sequence[Score], recipe: EvalRecipe, origin: str, dim: int) -> list[Score]:
    """Test scores of the translator under the recipe's name. origin: the source of the vectors."""
    training_row = next(row for row in scores if row.benchmark == "training")
    note = f"{origin}, vectors of {dim:,} numbers; {training_row.note}"
    return [row._replace(benchmark=recipe.name, note=f"{row.note}; {note}") for row in scores
            if row.benchmark == "test"]
