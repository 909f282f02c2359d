"""Evaluate and export an existing run or vector file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from embtrain.common import shipped
from embtrain.common.errors import UnknownNames, UsageError
from embtrain.common.output_paths import check_replaced_file
from embtrain.common.types import Score
from embtrain.data.benchmarks import Benchmark
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.vectors import folders
from embtrain.data.vectors.open import BY_OPTIONS, PLAIN, ReadOptions
from embtrain.data.vectors.search_index import KeptNeighbours
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig, words_config
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.inspect import export as run_export
from embtrain.experiment.inspect.benchmarks import choose_benchmark
from embtrain.experiment.inspect.neighbours import AnyPath, is_run, open_vectors
from embtrain.experiment.run import downstream, scoring, settings as run_settings, stored
from embtrain.experiment.run.run import Run, downstream_run, fit, rescore
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task
from embtrain.experiment.tasks.windows import WindowsTask

Names = AnyPath | Sequence[AnyPath]  # of benchmarks: names and files, or one of them
#: Keys that change how benchmarks score vectors.
BENCHMARK_KEYS = tuple(f"evaluate.{key}" for key in ("resamples", "interval", "oov", "vectors", "centred"))


@dataclass(frozen=True)
class _Choices:
    """The names of --on, by how they are scored."""

    tables: Sequence[Benchmark]          # without training
    files: Sequence[Path]                # by the task of the run
    translators: Sequence[EvalRecipe]    # by a translator that is trained on the vectors

    @property
    def only_translators(self) -> bool:
        return bool(self.translators) and not self.tables and not self.files


@dataclass
class _Scored:
    """Scores of several files, and an error line for each file whose names are all unknown."""

    rows: list[Score] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, score: Callable[[], list[Score]]) -> None:
        """Add the scores of one file."""
        try:
            self.rows += score()
        except UnknownNames as error:
            self.unknown += error.args

    def add_tables(self, vectors: Vectors, tables: Sequence[Benchmark], config: WordsConfig,
                   scorer: Scorer | None = None) -> None:
        """Add the scores of vectors on benchmarks. scorer: of pairs, by the model of a run; None: cosines."""
        for table in tables:
            self.add(partial(_score_table, vectors, table, config, scorer))

    def result(self) -> list[Score]:
        """Return the scores. UnknownNames, with the scores of the other files, if a file has unknown names alone."""
        if self.unknown:
            error = UnknownNames(*self.unknown)
            error.rows = self.rows
            raise error
        return self.rows


def _score_table(vectors: Vectors, table: Benchmark, config: WordsConfig, scorer: Scorer | None) -> list[Score]:
    """Scores of vectors on one benchmark. UnknownNames if it is the user's and no item has known words alone."""
    rows = scoring.benchmark(vectors, table.recipe, table.gold, config, scorer=scorer)
    if table.own_gold is None or any(row.value for row in rows):
        return rows
    if not scoring.has_known_items(vectors, table.recipe, table.gold, scorer):
        raise UnknownNames(f"{table.gold}: no {'question' if table.recipe.kind == 'analogy' else 'pair'} contains only "
                           "words of the vectors; give a file with words that they have, in the same spelling")
    return rows


def evaluate(what: AnyPath, on: Names | None = None, sets: Sequence[str] = (), reading: ReadOptions = BY_OPTIONS
             ) -> list[Score]:
    """Scores of a run (`evaluate_run`) or of a file of vectors (`evaluate_vectors`), whichever the path is.

    what: a path, or a Run. reading: of a file; the limit also of a run's vectors. UnknownNames, with the scores of the
    other files, if the words or names of a file are all unknown.
    """
    folders.check_encoding(reading, Path(what))
    if is_run(what):
        return evaluate_run(Run(Path(what)), on or (), sets, reading.limit)
    return evaluate_vectors(what, on or (), sets, reading)


def interval_share(what: AnyPath, sets: Sequence[str] = ()) -> float:
    """Coverage of the intervals of `evaluate` with the same arguments."""
    sets = [text for text in sets if _key(text) in ("evaluate.interval", "evaluate.resamples")]
    settings = run_settings.from_run(Path(what), sets) if is_run(what) else run_settings.resolve(sets=sets)
    return settings.evaluate.interval


def evaluate_run(run: Run, on: Names = (), sets: Sequence[str] = (), limit: int | None = None) -> list[Score]:
    """Scores of a run: of its vectors on benchmarks, or by its task.

    on: benchmarks of evals/, recipes or tables of the user, and, for a run of a graph, a hierarchy, labels or a
    translator, files for its task. Empty: the run's own evaluate.benchmarks, or its task if that is not of words. sets:
    evaluation keys of a run that is scored by its task, or of BENCHMARK_KEYS if benchmarks score its vectors; keys of
    the translator if `on` names translators alone. limit: of the vectors, from the first. UsageError, DataError or
    ResourceError name the problem.
    """
    config, task = words_config(run.settings.evaluate), tasks.find(run.settings)
    by_task = task.score_file is not Task.score_file
    choices = _choose(on, by_task) if on else \
        _choose(config.benchmarks, by_task, f"{run.folder / 'config.yaml'}: evaluate.benchmarks")
    only_translators = bool(on) and choices.only_translators
    by_task_alone = not on and not isinstance(run.settings.evaluate, WordsConfig)
    if limit is not None and (by_task_alone or choices.translators or choices.files or not choices.tables):
        raise UsageError(f"--limit: {limit}: applies to vectors that benchmarks score, not to {run.folder} evaluated "
                         "by its task or by a translator; leave it out, or name benchmarks alone by --on")
    if not only_translators:
        _check_evaluation_keys(sets, ("evaluate.", *(["corpus="] * by_task)))
    if by_task_alone:
        return rescore(run.folder, sets)
    if not only_translators and (choices.tables or choices.translators):
        _check_benchmark_keys(sets, choices)
        config = words_config(run_settings.from_run(run.folder, sets).evaluate)
    scored = _Scored()
    if choices.tables or choices.translators:
        vectors = _word_vectors(run, config).first(limit)
        is_of_words = isinstance(run.settings.evaluate, WordsConfig)
        scored.add_tables(vectors, choices.tables, config, None if is_of_words else run.scorer)
    if choices.files:
        parts = stored.open_run(run.folder, sets)
        for path in choices.files:
            scored.add(partial(parts.task.score_file, parts, path))
    for recipe in choices.translators:
        trained = None if sets else downstream_run(run.folder, recipe)
        scored.rows += evaluate_translator(recipe, run.folder, vectors.dim, sets) if trained is None else \
            downstream.rows(trained.scores, recipe, run.folder.name, vectors.dim)
    return scored.result()


def evaluate_vectors(path: AnyPath, on: Names = (), sets: Sequence[str] = (), reading: ReadOptions = BY_OPTIONS
                     ) -> list[Score]:
    """Scores of a file of vectors on benchmarks; `on` empty: the default ones.

    sets: of BENCHMARK_KEYS, except the table; keys of the translator if `on` names translators alone. reading: how the
    file is read.
    """
    config = WordsConfig()
    choices = _choose(on or config.benchmarks, by_task=False)
    if not (on and choices.only_translators):
        _check_evaluation_keys(sets, ("evaluate.",))
        _check_benchmark_keys(sets, choices)
        if wrong := [text for text in sets if _key(text) == "evaluate.vectors"]:
            raise UsageError(f"--set {wrong[0]}: a file contains one table of vectors; remove it")
        config = words_config(run_settings.resolve(sets=list(sets)).evaluate)
    if choices.translators and reading != PLAIN:
        raise UsageError("--on: a translator reads all vectors of a file in UTF-8; leave --limit and --encoding out, "
                         f"or first write another file: embtrain export {path} --out FILE")
    vectors = folders.read_any(path, reading)
    scored = _Scored()
    scored.add_tables(vectors, choices.tables, config)
    for recipe in choices.translators:
        scored.rows += evaluate_translator(recipe, path, vectors.dim, sets)
    return scored.result()


def evaluate_translator(recipe: EvalRecipe, vectors: AnyPath, dim: int, sets: Sequence[str] = ()) -> list[Score]:
    """Scores of a translator that is trained on vectors, in a temporary folder.

    vectors: a run or a file. dim: of the vectors. sets: KEY=VALUE of the translator's settings. DataError if the
    vectors have too few of its words.
    """
    vectors = Path(vectors)
    with tempfile.TemporaryDirectory(prefix="embtrain-") as scratch:
        trained = fit(downstream.translator_settings(recipe, vectors, dim, sets), Path(scratch))
        return downstream.rows(trained.scores, recipe, vectors.name, dim)


def _choose(names: Names, by_task: bool, flag: str = "--on") -> _Choices:
    several = [os.fspath(name) for name in ([names] if isinstance(names, str | os.PathLike) else names)]
    name_by_path, labels = dict[str, str](), dict[str, str]()
    for name in several:
        name_by_path.setdefault(name if shipped.is_benchmark(name) else os.path.abspath(name), name)
    choices = [choose_benchmark(name, by_task, flag) for name in name_by_path.values()]
    for path in name_by_path:
        shipped.check_benchmark_label(path, labels, flag)
    found = [choice.benchmark for choice in choices if choice.benchmark is not None]
    return _Choices([benchmark for benchmark in found if benchmark.recipe.training is None],
                    [choice.file for choice in choices if choice.file is not None],
                    [benchmark.recipe for benchmark in found if benchmark.recipe.training is not None])


def _check_evaluation_keys(sets: Sequence[str], prefixes: tuple[str, ...]) -> None:
    if wrong := [text for text in sets if not text.startswith(prefixes)]:
        raise UsageError(f"--set {wrong[0]}: the command only evaluates; override only evaluate.* keys")


def _check_benchmark_keys(sets: Sequence[str], choices: _Choices) -> None:
    keys = () if choices.translators else BENCHMARK_KEYS
    remedy = f"remove it, or set {', '.join(keys)}" if keys else "remove it"
    if wrong := [text for text in sets if _key(text) not in keys]:
        raise UsageError(f"--set {wrong[0]}: applies to runs evaluated by their own task, or to benchmarks that train "
                         f"a translator; {remedy}")


def _key(text: str) -> str:
    return text.partition("=")[0].strip()


def _word_vectors(run: Run, config: WordsConfig) -> Vectors:
    """The exported vectors of a run, or those of the table that `config` names, from the checkpoint."""
    own = words_config(run.settings.evaluate)
    if config.vectors == own.vectors:
        return run.word_vectors
    parts = stored.open_run(run.folder, [f"evaluate.vectors={config.vectors}"])
    return cast(WindowsTask, parts.task).word_vectors(parts)


def export(what: AnyPath, format: str, out: AnyPath, reading: ReadOptions = BY_OPTIONS, dtype: str = "float32",
           index: str = "auto") -> KeptNeighbours | None:
    """Write the vectors of a run, or of a vector file, for other programs (embtrain.experiment.inspect.export).

    what: a path, or a Run. reading: of a file; the limit also of a run's vectors. UsageError for a format that needs a
    run if the vectors are not those of one, or to replace a file of a run or one that is read.
    """
    what, out = Path(what), Path(out)
    check_replaced_file(out, inputs=[what])
    folders.check_encoding(reading, what)
    if is_run(what):
        return run_export.export(Run(what), format, out, dtype, index, reading.limit)
    if format in run_export.OF_VECTORS:
        return run_export.export_vectors(open_vectors(what, reading), format, out, dtype, index)
    raise UsageError(f"--format: {format!r}: a vector file can be exported to {', '.join(run_export.OF_VECTORS)}, a "
                     f"run also to {', '.join(run_export.FOLDERS)}")
