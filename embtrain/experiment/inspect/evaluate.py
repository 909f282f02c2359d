"""Evaluate, list neighbours of and export an existing run or vector file."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.config.layers import printable
from embtrain.common.errors import DataError, UsageError
from embtrain.common.terminal import plain
from embtrain.common.types import Score
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import EvalRecipe
from embtrain.data.vectors import folders, vectors as vector_files
from embtrain.data.vectors.open import PLAIN, ReadOptions
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig, words_config
from embtrain.evaluate.words.neighbours import NeighbourList, near
from embtrain.experiment.inspect import export as run_export
from embtrain.experiment.inspect.benchmarks import choose_benchmark
from embtrain.experiment.run import downstream, scoring, stored
from embtrain.experiment.run.run import Run, downstream_run, fit, rescore
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task


def evaluate(what: Path, on: Sequence[str] | None = None, sets: Sequence[str] = (), reading: ReadOptions = PLAIN
             ) -> list[Score]:
    """Scores of the vectors of a run, or of a file of vectors, on benchmarks.

    on: benchmarks of evals/, recipes or tables of the user, and, for a run of a graph, a hierarchy, labels or a
    translator, files for its task. Empty: the run's own evaluate.benchmarks; a run of another task than words is then
    scored by that task. sets: evaluation keys of a run that is scored by its task; keys of the translator if only
    benchmarks of kind translation are named, which train one on the vectors. reading: how a file of vectors is read.
    UsageError,
    DataError or ResourceError name the problem.
    """
    run = Run(what) if _is_run(what) else None
    config = words_config(run.settings.evaluate) if run is not None else WordsConfig()
    by_task = run is not None and tasks.find(run.settings).score_file is not Task.score_file
    choices = [choose_benchmark(name, by_task) for name in dict.fromkeys(on or config.benchmarks)]
    files = [choice.path for choice in choices if choice.recipe is None and choice.path is not None]
    recipes = [choice.recipe for choice in choices if choice.trains and choice.recipe is not None]
    is_scored_by_task = run is not None and not on and not isinstance(run.settings.evaluate, WordsConfig)
    only_training = bool(on) and len(recipes) == len(choices)
    if not only_training and (wrong := [text for text in sets
                                        if not text.startswith(("evaluate.", *(["corpus="] * by_task)))]):
        raise UsageError(f"--set {wrong[0]}: a run that is there is judged, not trained: only keys of evaluate change")
    if is_scored_by_task:
        return rescore(what, sets)
    if sets and not only_training and len(files) < len(choices):
        raise UsageError(f"--set {sets[0]}: is for a run that its own task judges, or for benchmarks that train a "
                         f"translator; {what} is judged by others")
    rows: list[Score] = []
    if len(files) < len(choices):
        vectors, scorer = _open(what, reading), run.scorer if run is not None else None
        for choice in choices:
            if choice.recipe is not None and not choice.trains:
                rows += scoring.benchmark(vectors, choice.recipe, choice.path or fetch.gold_path(choice.recipe), config,
                                          scorer=scorer)
    if files:
        parts = stored.open_run(what, sets)
        rows += [row for path in files for row in parts.task.score_file(parts, path)]
    for recipe in recipes:
        trained = downstream_run(what, recipe) if run is not None and not sets else None
        rows += downstream.rows(trained.scores, recipe, what.name, vectors.dim) if trained is not None else \
            _score_translator(what, vectors.dim, recipe, sets)
    return rows


def _score_translator(what: Path, dim: int, recipe: EvalRecipe, sets: Sequence[str]) -> list[Score]:
    """Scores of a translator that is trained in a temporary folder. DataError if it finds too few of its words."""
    with tempfile.TemporaryDirectory(prefix="embtrain-") as scratch:
        trained = fit(downstream.translator_settings(recipe, what, dim, sets), Path(scratch))
        return downstream.rows(trained.scores, recipe, what.name, dim)


def neighbours(
    what: Path, words: Sequence[str], count: int = 10, reading: ReadOptions = PLAIN
) -> dict[str, NeighbourList]:
    """Return the nearest words of each word with their cosines; empty for a word without a vector.

    reading: how a file of vectors is read. DataError if no word has a vector.
    """
    table = _open(what, reading)
    if len(table.words) < 2:
        raise DataError(f"{what}: holds the vector of one word, and nothing that could be near it")
    nearest = {word: near(table, word, 1, count) for word in words}
    if not any(nearest.values()):
        raise DataError(f"{what}: none of these words has a vector: {', '.join(map(printable, words))}")
    return nearest


def format_text(nearest: Mapping[str, NeighbourList]) -> str:
    """One line per word, with the spelling that was matched if it differs from the query."""
    return "\n".join(plain(f"{word}{_spelled(word, near)}: " + (
        ", ".join(f"{other} {cosine:.3f}" for other, cosine in near) or "not in the vocabulary"))
        for word, near in nearest.items())


def _spelled(word: str, near: NeighbourList) -> str:
    if near.found_as in (word, None):
        return ""
    same = unicodedata.normalize("NFC", word) == unicodedata.normalize("NFC", str(near.found_as))
    return " (found in another Unicode form)" if same else f" (found as {near.found_as})"


def as_tree(nearest: Mapping[str, NeighbourList]) -> list[dict[str, Any]]:
    return [{"word": word, "found_as": near.found_as,
             "neighbours": [{"word": other, "cosine": cosine} for other, cosine in near]}
            for word, near in nearest.items()]


def export(what: Path, format: str, out: Path, reading: ReadOptions = PLAIN) -> None:
    """Write the vectors of a run, or of a vector file, for other programs (embtrain.experiment.inspect.export).

    reading: how a file of vectors is read. UsageError for a folder format if the vectors are not those of a run.
    """
    if _is_run(what) and reading == PLAIN:
        run_export.export(Run(what), format, out)
    elif format in vector_files.FORMATS:
        vector_files.write(out, _open(what, reading), format)
    else:
        raise UsageError(f"--format: {format!r}: of a file of vectors there are {', '.join(vector_files.FORMATS)}; "
                         f"of a run {', '.join(run_export.FOLDERS)} too")


def _is_run(what: Path) -> bool:
    return what.is_dir() and not folders.is_huggingface(what)


def _open(what: Path, reading: ReadOptions = PLAIN) -> Vectors:
    return Run(what).word_vectors.first(reading.limit) if _is_run(what) else folders.read_any(what, reading)
