"""Recipes: the schema of corpora/NAME.yaml, and the loader of these and of evals/NAME.yaml (benchmark.py).

A recipe lists files, their readers and the expected counts. All `files` of a corpus are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, overload

from pydantic import Field, model_validator

from embtrain.common import shipped
from embtrain.common.config import Section, build, read_yaml
from embtrain.common.errors import DataError, UsageError, did_you_mean
from embtrain.data.catalogue.benchmark import Count, EvalRecipe
from embtrain.data.catalogue.recipe_file import RecipeFile
from embtrain.data.labels.synthetic import PlantedConfig
from embtrain.data.parallel.synthetic import GrammarConfig


class CorpusFile(RecipeFile):
    """A part of a corpus: a text file or an archive."""

    members: tuple[str, ...] | None = Field(None, min_length=1, description="names or patterns; null: all")


class CorpusCounts(Section):
    """Counts that a reader must find: documents and tokens of a text, the five after labels of a graph."""

    documents: Count | None = None
    tokens: Count | None = None
    features: Count | None = Field(None, description="v, of documents with labels")
    labels: Count | None = Field(None, description="n, of documents with labels")
    entities: Count | None = None
    relations: Count | None = None
    train: Count | None = Field(None, description="distinct triples, or pairs of sentences")
    valid: Count | None = None
    test: Count | None = None
    concepts: Count | None = Field(None, description="concepts of a hierarchy")
    pairs: Count | None = Field(None, description="direct pairs of a hierarchy, or pairs of sentences")
    counted: str = Field("by the reader and tokenizer above", description="rule by which the numbers were counted")


class CorpusParts(Section):
    """Held-out files of a corpus, by name; for running text they replace shares."""

    valid: tuple[str, ...] = Field(min_length=1)
    test: tuple[str, ...] = Field(min_length=1)

    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Return the patterns of each held-out part, as `inventory.build_inventory` receives them."""
        return {"valid": self.valid, "test": self.test}


class CorpusLanguages(Section):
    """Source and target language of parallel text."""

    source: str = Field(min_length=1, description="ending of the source language's file names, or its column")
    target: str = Field(min_length=1, description="the same for the target language")
    columns: tuple[str, ...] | None = Field(None, description="language of each column of a table separated by tabs")


class CorpusRecipe(Section):
    """A training corpus: corpora/NAME.yaml."""

    name: str
    description: str
    licence: str
    homepage: str | None = None
    citation: str | None = None
    note: str | None = None
    reader: str = Field(description="reader of the files, in embtrain/data")
    tokenizer: str = Field("auto", description="tokenizer that text.tokenizer: auto selects")
    label_attributes: int | None = Field(None, description="value that labels.label_attributes: null selects")
    files: tuple[CorpusFile, ...] = Field((), description="the parts; all are needed")
    planted: PlantedConfig | None = Field(
        None, description="reader planted: sizes of the synthetic documents, in place of files")
    grammar: GrammarConfig | None = Field(
        None, description="reader grammar: sizes of the synthetic sentences, in place of files")
    languages: CorpusLanguages | None = Field(None, description="reader parallel: source and target language")
    parts: CorpusParts | None = Field(None, description="files of the held-out parts, if there are any; for "
                                                        "parallel text names or patterns, without .gz and language")
    chosen: bool = Field(False, description="its rare words have been replaced already: every word has an id")
    root: str | None = Field(None, description="root of a hierarchy, if the files omit it")
    expected: CorpusCounts = CorpusCounts()

    @model_validator(mode="after")
    def _has_one_origin(self) -> CorpusRecipe:
        for reader, synthetic in (("planted", self.planted), ("grammar", self.grammar)):
            if (self.reader == reader) != (synthetic is not None) or (self.files and synthetic is not None):
                raise ValueError(f"has no files; set files, or reader: {reader} with the key {reader} and no files")
        if not self.files and self.reader not in ("planted", "grammar"):
            raise ValueError("has no files; set files, or reader: planted with the key planted and no files")
        if (self.reader == "parallel") != (self.languages is not None):
            raise ValueError("reader: parallel and the key languages must be set together")
        return self


Recipe = CorpusRecipe | EvalRecipe
Kind = Literal["corpora", "evals"]
KINDS: tuple[Kind, ...] = ("corpora", "evals")


@overload
def load_recipe(kind: Literal["corpora"], name: str) -> CorpusRecipe: ...
@overload
def load_recipe(kind: Literal["evals"], name: str) -> EvalRecipe: ...
def load_recipe(kind: Kind, name: str) -> Recipe:
    """Load the shipped recipe `name`; UsageError if there is none, DataError if it is invalid.

    The benchmark `men.odd` is every second pair of `men` from the first on, and `men.even` the others: settings are
    chosen on the one and reported on the other.
    """
    whole, _, half = name.rpartition(".")
    if kind == "evals" and name not in shipped.names(kind) and shipped.is_benchmark(name):
        recipe = load_recipe("evals", whole)
        if recipe.kind != "similarity":
            raise UsageError(f"{name}: {whole} is of kind {recipe.kind}; only similarity has halves")
        return recipe.model_copy(update={"name": name, "half": half})
    return read_recipe(kind, shipped.path(kind, name))


def read_recipe(kind: Kind, path: Path) -> Recipe:
    """Read the recipe of one YAML file; DataError names the file, line and key of an error."""
    recipe: Recipe
    try:
        layers = [read_yaml(path)]
        recipe = build(CorpusRecipe, layers) if kind == "corpora" else build(EvalRecipe, layers)
    except UsageError as error:
        raise DataError(f"{error}") from error
    if recipe.name != path.stem:
        raise DataError(f"{path}: name: should be {path.stem!r} like the file name, got {recipe.name!r}")
    return recipe


def find_recipe(name: str) -> Recipe:
    """Load the recipe `name` of either kind, in which names are unique; UsageError if there is none."""
    for kind in KINDS:
        if name in shipped.names(kind):
            return read_recipe(kind, shipped.path(kind, name))
    names = sorted(known_name for kind in KINDS for known_name in shipped.names(kind))
    raise UsageError(f"there are no data named {name!r}{did_you_mean(name, names)}; embtrain data list lists all "
                     f"{len(names)}")
