"""Finds corpora/, evals/ and configs/: inside the wheel, or next to the package in a checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embtrain.common.errors import DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    from embtrain.common.config.layers import Layer

KINDS = ("corpora", "evals", "configs")
NOUNS = {"corpora": "corpus", "evals": "benchmark", "models": "model", "strategies": "strategy"}  # one file of a folder
HALVES = ("odd", "even")  # endings of the names of halves of a benchmark
RECIPE_SUFFIXES = (".yaml", ".yml")
# Models by names that other tools or papers have for them, where no similar name is meant.
OTHER_MODELS = {"deepwalk": ["node2vec"], "fasttext": ["skipgram", "cbow"], "sg": ["skipgram"],
                "w2v": ["skipgram", "cbow"], "word2vec": ["skipgram", "cbow"]}
MAX_LISTED = 20  # names listed in an error; above this it names the command that lists them


@cache  # a comparison lists names for each cell, and resolving links takes half of that time
def folder(kind: str) -> Path:
    """Return the folder of one kind of recipe (corpora, evals or configs). Raises UsageError if it is missing."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not one of {KINDS}")
    package = Path(__file__).resolve().parents[1]  # embtrain
    inside = package / kind
    if inside.is_dir():
        return inside
    checkout = package.parent
    # Without the test for pyproject.toml a wheel could find another package's site-packages/configs.
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise UsageError(f"the folder {kind}/ of embtrain is missing: reinstall the package")


def names(kind: str, below: str = "") -> list[str]:
    """Return the names of the YAML files in a shipped folder (`below`: a subfolder, e.g. 'strategies')."""
    # every start resolves names, and Path.glob takes ten times as long
    return sorted(name.removesuffix(".yaml") for name in os.listdir(folder(kind) / below) if name.endswith(".yaml"))


def is_benchmark(name: str) -> bool:
    """Return whether evals/ has a benchmark, or with the ending .odd or .even half of one."""
    known = names("evals")
    whole, _, half = name.rpartition(".")
    return name in known or (half in HALVES and whole in known)


def benchmark_label(name: str) -> str:
    """The name of a benchmark in scores: of the path of an own one the file name, without the suffix of a recipe."""
    file = Path(name)
    return name if not file.is_absolute() else file.stem if file.suffix in RECIPE_SUFFIXES else file.name


def check_benchmark_label(name: str, name_by_label: dict[str, str], flag: str) -> None:
    """Add a benchmark to those with its name in scores. UsageError, which begins with `flag`, if another has it."""
    label = benchmark_label(name)
    is_taken = Path(name).is_absolute() and is_benchmark(label)
    if (other := label if is_taken else name_by_label.setdefault(label, name)) != name:
        raise UsageError(f"{flag}: {name}: has the name of {other} in scores; rename the file")


def strategy_sources() -> dict[str, str]:
    """The source of each strategy, by the name of the strategy."""
    from embtrain.common.config.layers import read_yaml  # imported late: only an error reads all files

    sections = {name: read_yaml(folder("configs") / "strategies" / f"{name}.yaml").tree.get("negatives")
                for name in names("configs", "strategies")}
    return {name: keys["source"] for name, keys in sections.items() if isinstance(keys, dict) and "source" in keys}


def setting_keys() -> list[str]:
    """The dotted keys of default.yaml and of all models, those of the default model first; sections are keys too."""
    from embtrain.common.config.layers import read_yaml  # imported late: only an error reads all files

    def collect(tree: dict[str, Any], path: str) -> Iterator[str]:
        for key, value in tree.items():
            yield f"{path}{key}"
            if isinstance(value, dict):
                yield from collect(value, f"{path}{key}.")

    general = read_yaml(folder("configs") / "default.yaml").tree
    models = dict.fromkeys([general["model"]["name"], *names("configs", "models")])
    trees = (general, *(read_yaml(path("configs", model, "models")).tree for model in models))
    return list(dict.fromkeys(key for tree in trees for key in collect(tree, "")))


def require_source(strategy: Layer, others: Sequence[Layer] = ()) -> None:
    """Raise UsageError if neither the file of a strategy nor another layer, as of --set, names a source.

    The default source would train under the name of the file.
    """
    sections = [{} if tree is None else tree for tree in (layer.tree.get("negatives") for layer in (strategy, *others))]
    if all(isinstance(section, dict) and section.get("source") is None for section in sections):
        raise UsageError(f"{strategy.name}: negatives.source: is missing; name the source of the strategy")


def tuned_names() -> dict[str, list[str]]:
    """The corpora of each model with tuned settings: model -> corpora, both sorted."""
    corpora: dict[str, list[str]] = {}
    for name in names("configs", "tuned"):
        model, _, corpus = name.partition("-")               # names of models have no hyphen
        corpora.setdefault(model, []).append(corpus)
    return corpora


def path(kind: str, name: str, below: str = "", others: Iterable[str] = ()) -> Path:
    """Return the YAML file `name` of one kind. Raises UsageError with the nearest name if it does not exist.

    others: names without a file that the error lists too, as those of models of the user.
    """
    known = names(kind, below)
    if name not in known:
        files = [folder(kind) / below / f"{strategy}.yaml" for strategy in known]
        known = sorted({*known, *others})
        is_case_wrong = name.lower() in map(str.lower, known)
        with_source = [key for key, source in strategy_sources().items() if source == name.lower()] \
            if below == "strategies" and not is_case_wrong else []
        other_names = OTHER_MODELS.get(name.lower(), []) if below == "models" else []
        hint = "" if is_case_wrong else _suggestion(other_names) or _names_by_description(name, files)
        hint = f": it is a source; strategies with it: {', '.join(with_source)}" if with_source else \
            hint or did_you_mean(name, known)
        fits = len(known) <= MAX_LISTED
        listing = f"there are: {', '.join(known)}" if fits else f"embtrain list names all {len(known)}"
        raise UsageError(f"no {NOUNS.get(below or kind, below or kind)} named {name!r}{hint}; {listing}")
    return folder(kind) / below / f"{name}.yaml"


def check_corpus(name: str) -> None:
    """Raise DataError, with the nearest name, if `name` is neither a recipe of corpora/ nor an existing path."""
    path = Path(name)
    if name in names("corpora") or path.exists():
        return
    if path.is_symlink():
        raise DataError(f"corpus: {name}: is a broken link; give the path of its target")
    # Compare file names only: paths in one folder share most of their characters.
    known = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    known += names("corpora") if path.name == str(path) else []
    hint = did_you_mean(path.name, known, str(path).removesuffix(path.name))  # str(path) has no / at its end
    raise DataError(f"corpus: {name!r} is neither a file or folder nor a recipe{hint}; "
                    "`embtrain data list` lists the recipes")


def _names_by_description(word: str, files: list[Path]) -> str:
    """Suggest files whose first line contains the word, which is often another tool's name for a strategy."""
    matches = [file.stem for file in files
             if word.lower() in re.findall(r"\w+", file.read_text(encoding="utf-8").partition("\n")[0].lower())]
    return _suggestion(matches) if len(matches) <= 3 else ""


def _suggestion(names: list[str]) -> str:
    return f" (did you mean {' or '.join(map(repr, names))}?)" if names else ""
