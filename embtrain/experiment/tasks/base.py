"""A task stands between a corpus and the models that learn from it.

It reads the corpus, hands out examples to train on and others that are held out, says what is judged and what is taken
home. A model names its task (`Model.task`); the task brings two sections of the settings: `section`, how its data are
read, and `evaluate`, what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from embtrain.common import registry, shipped
from embtrain.common.config import Section
from embtrain.common.errors import DataError, UsageError, meant
from embtrain.common.files import read_json
from embtrain.common.types import Batch, ProblemSpec, Query, Score
from embtrain.data.catalogue.recipes import CorpusRecipe, load_recipe
from embtrain.data.inventory.name_lists import line_of
from embtrain.data.storage.folders import cache_folder, rebuilt
from embtrain.evaluate.config import EvaluateConfig
from embtrain.models import base as models
from embtrain.models.base import AbstractMethod
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.loop import Examples

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings


class Task:
    """Base of every task. A sub-class states the class attributes and implements the methods."""

    name: ClassVar[str]
    section: ClassVar[str]                                      # its key in the settings, such as text
    Config: ClassVar[type[Section]]                             # of that section
    readers: ClassVar[frozenset[str]]                           # of recipes that it can read
    learns: ClassVar[str]                                       # and what those give, in words
    Evaluate: ClassVar[type[EvaluateConfig]] = EvaluateConfig   # of the section evaluate
    chosen: ClassVar[frozenset[str]] = frozenset()              # keys of `section` that strategies may differ in: what
                                                                # is held out, and asked there, is the same
    better: ClassVar[str] = "valid/log_likelihood"              # BENCHMARK/METRIC of early stopping; higher is better
    metric: ClassVar[str] = "test/log_likelihood"               # what decides a comparison, where nothing is declared

    settings: Settings
    identity: dict[str, Any]                                    # of the corpus: name, sha256, settings, counts
    examples: Examples

    @classmethod
    def check(cls, settings: Settings) -> None:
        """UsageError for what can be known to be wrong before anything is read."""

    @classmethod
    def read(cls, settings: Settings) -> Task:
        """The corpus of a run, read through the cache. UsageError, DataError or ResourceError where it cannot be."""
        raise AbstractMethod(cls, "read")

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        """What a run is judged on besides valid and test."""
        return []

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        """Why there is no part `valid` or `test`, in words that name the keys; '' where there is one."""
        return ""

    def files(self) -> str:
        """One line on which file of the user's corpus is which part, and which are passed over; '' if there is only one
        file or the corpus is a recipe."""
        tree = self.identity.get("files") or {}
        names = [name for part, found in tree.items() if part != "passed over" for name in found]
        is_own = self.settings.corpus not in shipped.names("corpora")
        return line_of(tree) if is_own and (len(names) > 1 or "passed over" in tree) else ""

    def world(self, device: str) -> ProblemSpec:
        """What sources and losses may know of the data."""
        raise AbstractMethod(self, "world")

    def answers(self, most: int) -> KnownPositives:
        """The exact set of right answers seen in training; ResourceError where it takes more than `most` bytes."""
        raise AbstractMethod(self, "answers")

    def candidates(self) -> Sequence[str]:
        """What each candidate is called, (V,)."""
        raise AbstractMethod(self, "candidates")

    def asked(self, query: Query) -> list[str]:
        """What each row asks, in words; the names of the contexts, unless a task says otherwise."""
        names = self.candidates()
        return [names[i] for i in query.context.tolist()]

    def heldout(self, part: str) -> Batch:
        """Examples of part `valid` or `test`: the same for every run of a corpus, whatever its seed; may be empty."""
        if part not in self._held:  # asked for at each evaluation
            self._held[part] = self._heldout(part)
        return self._held[part]

    @cached_property
    def _held(self) -> dict[str, Batch]:
        return {}

    def _heldout(self, part: str) -> Batch:
        raise AbstractMethod(self, "_heldout")

    def summary(self) -> str:
        """One line for `--dry-run`: how much there is to train on."""
        raise AbstractMethod(self, "summary")

    def describe(self, folder: Path) -> None:
        """Write into a run's folder what its ids mean."""
        raise AbstractMethod(self, "describe")

    def check_ids(self, folder: Path) -> None:
        """DataError where ids do not mean what `describe` wrote into the folder of a run that goes on."""
        raise AbstractMethod(self, "check_ids")

    def other(self, folder: Path, why: str) -> DataError:
        """What a run is told that would go on with another corpus than it began with."""
        return DataError(f"{folder}: the corpus {self.settings.corpus!r} is not the one that this run was trained on: "
                         f"{why}")

    def unlike(self, folder: Path, name: str) -> DataError:
        """The same where the content of the corpus is what it was, and the names that it gives are not."""
        return DataError(f"{folder / name}: is not what the corpus gives under the settings of config.yaml: one of the "
                         "two was changed since the run began; give it back")

    def kept(self) -> dict[str, np.ndarray]:
        """Arrays that predictions need in addition to the world; training writes them into the run's folder."""
        return {}

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Task:
        """The task of a run, rebuilt from the run's folder without the corpus. It has no examples to train on.
        DataError if a file of the folder is missing or damaged."""
        raise AbstractMethod(cls, "stored")

    def during(self, made: Components) -> list[Score]:
        """What is measured at each evaluation during training; no intervals."""
        raise AbstractMethod(self, "during")

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        """What the trained model is worth. Fills `items` with what the rows rest on, one by one, and writes into
        `folder` what users take home."""
        raise AbstractMethod(self, "judge")

    def judge_on(self, made: Components, where: Path, folder: Path | None = None) -> list[Score]:
        """Scores of the trained model on the user's file `where`; no file of the run changes. folder: receives
        predictions of single items, where a task writes any. UsageError if the task cannot be judged on a file."""
        raise UsageError(f"--on: {where}: model.name: {self.settings.model.name} cannot be judged on a file; name "
                         "benchmarks of evals/")

    def judging(self, made: Components) -> int:
        """Bytes that `during` or `judge` take at the most beside what stays."""
        raise AbstractMethod(self, "judging")


PACKAGE = "embtrain.experiment.tasks"


def names() -> list[str]:
    return list(registry.classes(PACKAGE, Task))


def named(name: str) -> type[Task]:
    """The task of a name; UsageError that lists the names where there is none."""
    return registry.find(PACKAGE, Task, name, "task")


def of_model(name: str) -> type[Task]:
    """The task of a model; UsageError where there is no such model."""
    return named(models.find(name).task)


def find(settings: Settings) -> type[Task]:
    return of_model(settings.model.name)


def read(settings: Settings) -> Task:
    """The corpus of a run, as its model's task reads it; again if the cache is deleted meanwhile."""
    return rebuilt(lambda: find(settings).read(settings), cache_folder())


def trained_on(folder: Path) -> str:
    """The sha256 of the corpus of a run's folder. DataError where identity.json does not say it."""
    path = folder / "identity.json"
    try:
        return str(read_json(path)["corpus"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: does not say which corpus the run was trained on, as corpus.sha256; put back what "
                        "training wrote") from error


def one_file(where: Path) -> Path:
    """The path of a file to be judged on; UsageError for a folder."""
    if where.is_dir():
        raise UsageError(f"--on: {where}: is a folder; name a file in it")
    return where


def name_of(settings: Settings) -> str:
    """What reports and caches call the corpus: where it lies is this machine's business."""
    return Path(settings.corpus).name


def stored_identity(folder: Path) -> dict[str, Any]:
    """The identity of the corpus as a run's folder has it; DataError if identity.json lacks it."""
    path = folder / "identity.json"
    try:
        found = read_json(path)["corpus"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: has no description of the corpus; put back what training wrote") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: corpus is not a mapping; put back what training wrote")
    return found


def corpus(settings: Settings) -> CorpusRecipe | Path:
    """The recipe that settings.corpus names, or the path of the user's own data; DataError where it is neither,
    UsageError for a recipe that the model's task cannot read."""
    name = settings.corpus
    if name in shipped.names("corpora"):
        recipe, task = load_recipe("corpora", name), find(settings)
        if recipe.reader not in task.readers:
            raise UsageError(f"corpus: {name}: its recipe's reader is {recipe.reader}, and model.name: "
                             f"{settings.model.name} learns from {task.learns}; choose another corpus or another model")
        return recipe
    if (path := Path(name)).exists():
        here = Path.cwd()
        return path.relative_to(here) if path.is_relative_to(here) else path  # as errors shall name it
    if path.is_symlink():
        raise DataError(f"corpus: {name}: is a link that leads nowhere; name what it should lead to")
    folder = path.parent
    # By their own names: whatever lies in one folder shares most of a path.
    known = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    known += shipped.names("corpora") if path.name == name else []
    raise DataError(f"corpus: {name!r} is neither a file or folder nor a recipe{meant(path.name, known)}; "
                    "embtrain data list names the recipes")
