"""Vectors of words judged by what is built on them: the frozen answers of a small translator (evals/nmt-*.yaml)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from embtrain.data import vectors as files_of_vectors
from embtrain.data.recipes import EvalRecipe
from embtrain.data.vectors import Vectors
from embtrain.errors import UsageError
from embtrain.experiment import run
from embtrain.experiment import settings as runs
from embtrain.models.nmt import NmtConfig
from embtrain.types import Row


def translation(what: Path, vectors: Vectors, recipe: EvalRecipe, sets: tuple[str, ...] = ()) -> list[Row]:
    """The test rows of a translator whose table is `vectors`, under the recipe's name; takes what the recipe says.

    what: where they come from, for errors. sets: keys over those of the recipe. DataError where too few words have one.
    """
    training = recipe.training
    if training is None:
        raise UsageError(f"evals: {recipe.name}: is no benchmark that trains")
    with tempfile.TemporaryDirectory(prefix="embtrain-") as apart:
        file = Path(apart) / "vectors.safetensors"
        files_of_vectors.write(file, vectors, "safetensors")
        config = runs.resolve(training.strategy, NmtConfig().name, training.corpus, sets=[
            f"model.dim={vectors.dim}", "model.targets.kind=pretrained", f"model.targets.file={file}",
            "model.targets.frozen=true", *training.sets, *sets])
        rows = run.fit(config, Path(apart) / "run").scores
    spent = next(row for row in rows if row.benchmark == "training")
    note = f"{what.name}, {len(vectors):,} vectors of {vectors.dim:,} numbers; {spent.note}"
    return [row._replace(benchmark=recipe.name, note=f"{row.note}; {note}") for row in rows if row.benchmark == "test"]
