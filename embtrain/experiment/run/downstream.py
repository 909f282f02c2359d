"""Vectors of words judged by what is built on them: the frozen answers of a small translator (evals/nmt-*.yaml)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from embtrain.common.errors import UsageError
from embtrain.common.types import Score
from embtrain.data.catalogue.recipes import EvalRecipe, load_recipe
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.models.nmt.model import NmtConfig


def training_recipes(names: Iterable[str]) -> list[EvalRecipe]:
    """Those of some benchmarks that train."""
    return [recipe for recipe in (load_recipe("evals", name) for name in names) if recipe.training is not None]


def translator_settings(recipe: EvalRecipe, file: Path, dim: int, sets: Sequence[str] = ()) -> Settings:
    """The run that the recipe asks for, with the vectors of `file`, of `dim` numbers, as its table; `sets` over it."""
    training = recipe.training
    if training is None:
        raise UsageError(f"evals: {recipe.name}: is no benchmark that trains")
    return run_settings.resolve(training.strategy, NmtConfig().name, training.corpus, sets=[
        f"model.dim={dim}", "model.targets.kind=pretrained", f"model.targets.file={file}", "model.targets.frozen=true",
        *training.sets, *sets])


def rows(scores: Sequence[Score], recipe: EvalRecipe, origin: str, dim: int) -> list[Score]:
    """What such a run scored on its test, under the recipe's name. what: where the vectors come from."""
    training_row = next(row for row in scores if row.benchmark == "training")
    note = f"{origin}, vectors of {dim:,} numbers; {training_row.note}"
    return [row._replace(benchmark=recipe.name, note=f"{row.note}; {note}") for row in scores
            if row.benchmark == "test"]
