"""Base class of tasks, which connect a corpus to the models that learn from it.

A task reads the corpus, provides training and held-out examples, scores the trained model and writes its exports. A
model names its task (`Model.task`). Two sections of the settings are for it: `section`, of its data, and `evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from embtrain.common import registry, shipped
from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.common.config import Section
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import read_json
from embtrain.common.types import Batch, ProblemSpec, Query, Score
from embtrain.data.catalogue.recipes import CorpusRecipe, load_recipe
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.inventory.name_lists import format_line
from embtrain.data.storage.folders import read_into_cache
from embtrain.data.text.corpus import Corpus
from embtrain.evaluate.config import EvaluateConfig
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.models import base as models
from embtrain.train.engines.base import Examples
from embtrain.train.engines.false_negatives import KnownPositives


class ChangedCorpus(DataError):
    """The corpus, or the names that it gives, differ from those that a run was trained on."""


class Task:
    """Base class of every task. A subclass sets the class attributes and implements the methods."""

    name: ClassVar[str]
    section: ClassVar[str]                                     # key of the section in the settings, e.g. text
    Config: ClassVar[type[Section]]                            # of that section
    recipe_readers: ClassVar[frozenset[str]]                   # recipe readers that it supports
    corpus_kind: ClassVar[str]                                 # kind of data in words, for errors
    Evaluate: ClassVar[type[EvaluateConfig]] = EvaluateConfig  # of the section evaluate
    strategy_keys: ClassVar[frozenset[str]] = frozenset()      # keys of `section` that may differ between strategies:
                                                               # they do not change the held-out queries
    token_list_keys: ClassVar[dict[str, Any]] = {}             # keys of `section` that read a file of token lists
                                                               # unchanged; empty: it cannot train on them
    stopping_metric: ClassVar[str] = "valid/log_likelihood"    # BENCHMARK/METRIC of early stopping; higher is better
    metric: ClassVar[str] = "test/log_likelihood"              # default primary metric of a comparison

    settings: Settings
    identity: dict[str, Any]                                    # of the corpus: name, sha256, settings, counts
    examples: Examples

    @classmethod
    def check(cls, settings: Settings) -> None:
        """Check the settings before anything is read. UsageError if they cannot work."""

    @classmethod
    def read(cls, settings: Settings) -> Task:
        """Read the corpus of a run through the cache. UsageError, DataError or ResourceError if that fails."""
        raise AbstractMethod(cls, "read")

    @classmethod
    def load_corpus(cls, settings: Settings) -> Corpus:
        """Read the text of a run through the cache. UsageError if the task does not learn from text."""
        raise UsageError(f"model.name: {settings.model.name}: learns from {cls.corpus_kind}, not from text; choose a "
                         "model of text")

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        """Return the names of the benchmarks of a run besides valid and test."""
        return []

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        """Return why there is no part `valid` or `test`, naming the keys to set; '' if there is one."""
        return ""

    def describe_files(self) -> str:
        """Return one line with the parts and skipped files of the user's corpus; '' of a recipe or a single file."""
        return describe_files(self.settings, self.identity)

    def problem_spec(self, device: str) -> ProblemSpec:
        """Return the properties of the data that sources and losses may use."""
        raise AbstractMethod(self, "problem_spec")

    def known_positives(self, max_bytes: int) -> KnownPositives:
        """Return the exact set of positives in training. ResourceError if it takes more than `max_bytes`."""
        raise AbstractMethod(self, "known_positives")

    def masked_positives(self, max_bytes: int) -> KnownPositives:
        """Return the positives that `negatives.filter: observed` masks; by default those in training."""
        return self.known_positives(max_bytes)

    def candidate_names(self) -> Sequence[str]:
        """Return the name of each candidate, (V,)."""
        raise AbstractMethod(self, "candidate_names")

    def describe_queries(self, query: Query) -> list[str]:
        """Return the text of each query, (n,); by default the names of the contexts."""
        names = self.candidate_names()
        return [names[i] for i in query.context.tolist()]

    def describe_heldout(self, batch: Batch, query: Query, rows: Tensor) -> list[str]:
        """Return the text of the queries of some rows of a held-out batch, (n,), for examples of answers."""
        return self.describe_queries(query.rows(rows))

    def answer_sentences(self, components: ModelParts, part: str, n: int) -> list[list[str]] | None:
        """Return [query, answer, reference] of at most n held-out sentences; None if the answers are candidates."""
        return None

    def known_answers(self, context: Tensor) -> Tensor | None:
        """Return which candidates are positives in any part, (n, V) bool, for contexts (n, C) whose first column is a
        candidate; None if a context has no fixed set of answers."""
        return None

    def answer_scores(self, components: ModelParts, query: Query) -> Tensor | None:
        """Return the scores (n, V) that evaluation uses for n queries; None if they are the model's."""
        return None

    def query_names(self, by: ListKey) -> QueryNames:
        """Return how a file of candidates names the queries that share a list; by default by the name of the context.
        UsageError if the queries have no names of this kind."""
        if by != "query":
            raise UsageError(f"{key('by')}: {by}: the queries of model.name: {self.settings.model.name} have no "
                             f"relations; set {key('by')}: query")
        index = {name: i for i, name in enumerate(self.candidate_names())}
        return QueryNames((0,), ("QUERY",), lambda fields: [(index[fields[0]],)] if fields[0] in index else None)

    def observed_lists(self) -> CandidateLists:
        """Return the candidates seen in training on each side of each relation; UsageError without relations."""
        raise UsageError(f"{key('source')}: typed needs relations with two sides, but model.name: "
                         f"{self.settings.model.name} has none; choose another source")

    def reflexive_lists(self, max_symmetric: float) -> CandidateLists:
        """Return for each query of a graph a list of its entity, not of symmetric relations; UsageError otherwise."""
        raise UsageError(f"{key('source')}: reflexive needs a graph; choose another source")

    def heldout(self, part: str) -> Batch:
        """Return examples of part `valid` or `test`, possibly none, which do not depend on the run's seed."""
        if part not in self._held:  # requested at each evaluation
            self._held[part] = self._heldout(part)
        return self._held[part]

    @cached_property
    def _held(self) -> dict[str, Batch]:
        return {}

    def _heldout(self, part: str) -> Batch:
        raise AbstractMethod(self, "_heldout")

    @property
    def n_words(self) -> int:
        """Return the number of words of the training text; 0 if the task has none."""
        return 0

    def summary(self) -> str:
        """Return one line for `--dry-run`: the amount of training data."""
        raise AbstractMethod(self, "summary")

    def describe(self, folder: Path) -> None:
        """Write files into a run folder that give the names of the ids."""
        raise AbstractMethod(self, "describe")

    def check_ids(self, folder: Path) -> None:
        """Check the ids against the files that `describe` wrote. DataError if a run that is resumed has other ids."""
        raise AbstractMethod(self, "check_ids")

    def ids_changed(self, folder: Path, name: str) -> ChangedCorpus:
        """Return the error for a corpus of equal content that gives other names."""
        return ChangedCorpus(f"{folder / name}: differs from what the corpus gives with the settings of config.yaml: "
                             "one of the two was changed after the run started; restore it")

    def stored_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that predictions need in addition to the ProblemSpec; training writes them into the run
        folder."""
        return {}

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> Task:
        """Rebuild the task of a run from its folder, without the corpus and without training examples. DataError if a
        file of the folder is missing or damaged."""
        raise AbstractMethod(cls, "from_run_folder")

    def validate(self, components: ModelParts) -> list[Score]:
        """Return the scores of an evaluation during training, without intervals."""
        raise AbstractMethod(self, "validate")

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        """Return the scores of the trained model; add the values that they are computed from, item by item, to `items`
        and write exports into `folder`."""
        raise AbstractMethod(self, "score_run")

    def score_file(self, components: ModelParts, where: Path, folder: Path | None = None) -> list[Score]:
        """Return the scores of the trained model on the user's file `where`; no file of the run changes.

        folder: receives predictions of single items, if the task writes any. UsageError if the task reads no files.
        """
        raise UsageError(f"--on: {where}: model.name: {self.settings.model.name} cannot be evaluated on a file; give "
                         "benchmarks of evals/")

    def evaluation_bytes(self, components: ModelParts) -> int:
        """Return the peak extra memory of `validate` and `score_run`, in bytes."""
        raise AbstractMethod(self, "evaluation_bytes")


PACKAGE = "embtrain.experiment.tasks"


def names() -> list[str]:
    """Return the names of all tasks."""
    return list(registry.classes(PACKAGE, Task))


def find_by_name(name: str) -> type[Task]:
    """Return the task with this name. UsageError lists the names if there is none."""
    return registry.find(PACKAGE, Task, name, "task")


def find_for_model(name: str) -> type[Task]:
    """Return the task of a model. UsageError if the model is unknown."""
    return find_by_name(models.find(name).task)


def find(settings: Settings) -> type[Task]:
    """Return the task of the settings' model."""
    return find_for_model(settings.model.name)


def read(settings: Settings) -> Task:
    """Read the corpus of a run with its model's task; retried if the cache is deleted meanwhile."""
    return read_into_cache(lambda: find(settings).read(settings))


def corpus_hash(folder: Path) -> str:
    """Return the sha256 of the corpus of a run folder. DataError if identity.json does not contain it."""
    try:
        return str(read_identity(folder)["sha256"])
    except (DataError, KeyError) as error:
        raise DataError(f"{folder / 'identity.json'}: does not contain corpus.sha256; restore the file") from error


def describe_files(settings: Settings, identity: dict[str, Any]) -> str:
    """Return the line of `Task.describe_files`. identity: of the corpus."""
    tree = identity.get("files") or {}
    names = [name for part, files in tree.items() if part != "skipped" for name in files]
    is_own = settings.corpus not in shipped.names("corpora")
    return format_line(tree) if is_own and (len(names) > 1 or "skipped" in tree) else ""


def require_file(where: Path) -> Path:
    """Return the path of a file to evaluate. UsageError for a folder."""
    if where.is_dir():
        raise UsageError(f"--on: {where}: is a folder; give a file in it")
    return where


def corpus_name(settings: Settings) -> str:
    """Return the name of the corpus in reports and caches, without the path, which is specific to a machine."""
    return Path(settings.corpus).name


def read_identity(folder: Path) -> dict[str, Any]:
    """Return the identity of the corpus from a run folder. DataError if identity.json does not contain it."""
    path = folder / "identity.json"
    try:
        identity = read_json(path)["corpus"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise read_error(path, error, "does not describe the corpus; restore the file that training wrote") from error
    if not isinstance(identity, dict):
        raise DataError(f"{path}: corpus is not a mapping; restore the file that training wrote")
    return identity


def find_corpus(settings: Settings) -> CorpusRecipe | Path:
    """Return the recipe that settings.corpus names, or the path of the user's data.

    DataError if it is neither, UsageError if the model's task cannot read the recipe.
    """
    name = settings.corpus
    if name in shipped.names("corpora"):
        recipe, task = load_recipe("corpora", name), find(settings)
        if recipe.reader not in task.recipe_readers:
            raise UsageError(
                f"corpus: {name}: its recipe's reader is {recipe.reader}, and model.name: "
                f"{settings.model.name} learns from {task.corpus_kind}; choose another corpus or another model"
            )
        return recipe
    shipped.check_corpus(name)
    path, cwd = Path(name), Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path  # the path that errors should show
