"""Looking at what is there: scores, neighbours and exports of a run or of a file of vectors; what can be combined."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from embtrain import shipped
from embtrain.config import read_yaml
from embtrain.data import vector_folders
from embtrain.data import vectors as files_of_vectors
from embtrain.data.recipes import load_recipe
from embtrain.data.vectors import Vectors
from embtrain.errors import DataError, UsageError
from embtrain.evaluate.config import WordsConfig, of_words
from embtrain.evaluate.neighbours import near
from embtrain.experiment import combinations, downstream, handover, judge
from embtrain.experiment.run import Run, judged
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.tables import WIDTH
from embtrain.types import Row


def evaluate(what: Path, on: Sequence[str] | None = None, sets: Sequence[str] = ()) -> list[Row]:
    """Scores on benchmarks of evals/ of the vectors of a run, or of a file in word2vec, GloVe or safetensors format. A
    run of another task than words is judged as that task judges it, where no benchmarks are named; `sets` then change
    keys of evaluate. A benchmark of kind translation trains a translator that answers with the vectors."""
    if wrong := [text for text in sets if not text.startswith("evaluate.")]:
        raise UsageError(f"--set {wrong[0]}: a run that is there is judged, not trained: only keys of evaluate change")
    run = Run(what) if _is_run(what) else None
    if run is not None and not on and not isinstance(run.settings.evaluate, WordsConfig):
        return judged(what, sets)
    if sets:
        raise UsageError(f"--set {sets[0]}: is for a run that its own task judges; {what} is judged by benchmarks")
    config = of_words(run.settings.evaluate) if run is not None else WordsConfig()
    recipes = [load_recipe("evals", name) for name in on or config.on]
    rows = judge.benchmarks(_open(what), [recipe.name for recipe in recipes if recipe.training is None], config,
                            scorer=run.scorer if run is not None else None)
    for recipe in recipes:
        if recipe.training is not None:
            rows += downstream.translation(what, _open(what), recipe)
    return rows


def neighbours(what: Path, words: Sequence[str], count: int = 10) -> str:
    """The nearest words of each word, one line a word; DataError where none of them is known."""
    table = _open(what)
    lines = []
    for word in words:
        found = near(table, word, 1, count)
        lines.append(f"{word}: " + ("not in the vocabulary" if not found
                                    else ", ".join(f"{other} {cosine:.3f}" for other, cosine in found)))
    if all(line.endswith("not in the vocabulary") for line in lines):
        raise DataError(f"{what}: none of these words has a vector: {', '.join(words)}")
    return "\n".join(lines)


def export(what: Path, format: str, out: Path) -> None:
    """Write the vectors of a run, or of what others made of vectors, for other programs (embtrain.experiment.handover);
    a folder that a run alone can fill is refused to others."""
    if _is_run(what):
        handover.export(Run(what), format, out)
    elif format in files_of_vectors.FORMATS:
        files_of_vectors.write(out, _open(what), format)
    else:
        raise UsageError(f"--format: {format!r}: of a file of vectors there are {', '.join(files_of_vectors.FORMATS)}; "
                         f"of a run {', '.join(handover.FOLDERS)} too")


def _is_run(what: Path) -> bool:
    return what.is_dir() and not vector_folders.is_huggingface(what)


def _open(what: Path) -> Vectors:
    if _is_run(what):
        return Run(what).table_of_vectors
    return vector_folders.read(what) if what.is_dir() else files_of_vectors.read(what)


def listing() -> str:
    """Strategies with what they combine, models, sources and losses, a line each; which of them fit; then the names of
    corpora, benchmarks and papers. No line is longer than a terminal is wide."""
    lines = ["strategies (--negatives)"]
    for name in shipped.names("configs", "negatives"):
        path = shipped.path("configs", name, "negatives")
        tree = read_yaml(path).tree
        said = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines += _entry(name, f"{tree['negatives']['source']} + {tree['loss']['name']}: {said}")
    for title, kind in (("models (--model)", models), ("sources (negatives.source)", negatives),
                        ("losses (--loss)", losses)):
        lines += [title]
        for name in kind.names():
            lines += _entry(name, combinations.about(kind.find(name)))
    lines += [combinations.matrix()]
    for title, names in (("corpora (--corpus)", shipped.names("corpora")),
                         ("benchmarks (evaluate.on)", shipped.names("evals")),
                         ("papers (embtrain reproduce)", shipped.names("configs", "paper"))):
        lines += [title, *textwrap.wrap(", ".join(names), WIDTH, initial_indent="  ", subsequent_indent="  ",
                                        break_on_hyphens=False)]
    return "\n".join([*lines, "next: embtrain fit --negatives NAME --dry-run"])


def _entry(name: str, said: str) -> list[str]:
    return textwrap.wrap(f"{name:<28}{said}", WIDTH, initial_indent="  ", subsequent_indent=" " * 30,
                         break_on_hyphens=False, drop_whitespace=True)
