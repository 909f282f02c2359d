"""The schema of recipes: corpora/NAME.yaml and evals/NAME.yaml.

A recipe lists files, their readers and the expected counts. A file is identified by its sha256, not by its address:
any server of these bytes will do. `files` of a corpus are all needed; `copies` of a benchmark are the same gold data in
other bytes, of which the first available one is used.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, overload
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from embtrain.common import shipped
from embtrain.common.config import Section, build, read_yaml
from embtrain.common.errors import DataError, UsageError, did_you_mean
from embtrain.data.labels.synthetic import PlantedConfig
from embtrain.data.parallel.synthetic import GrammarConfig

UNVERIFIED = "unverified"
Tag = Literal["published", "repository", "recalled"]  # from a paper or page; from a public repository; from memory
Delimiter = Literal["tab", "space", "comma", "semicolon"]
Count = Annotated[int, Field(ge=0)]


class RecipeFile(Section):
    """One file and its locations, tried in the order package, cache, mirror, url."""

    sha256: str = Field(
        description="sha256 of the whole file; 'unverified' if it could not be compared with the publisher's")
    bytes: int | None = Field(None, ge=0, le=2**40, description="size of the file; also the bound of a download")
    package: str | None = Field(None, description="an installed Python package that contains the file")
    path: str | None = Field(None, description="path of the file in that package")
    mirror: str | None = Field(None, description="path of the file below EMBTRAIN_DATA_MIRROR")
    url: str | None = Field(None, description="an address that always serves the same bytes (a pinned commit)")
    derived: str | None = Field(None, description="instructions that produce the file, if it has no address")

    @field_validator("sha256")
    @classmethod
    def _is_hash(cls, value: str) -> str:
        if value != UNVERIFIED and not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError(f"should be 64 hexadecimal digits in lower case, or {UNVERIFIED}")
        return value

    @field_validator("package")
    @classmethod
    def _is_package(cls, value: str | None) -> str | None:
        if value is not None and not value.isidentifier():
            raise ValueError("should be the name of a top-level package")
        return value

    @field_validator("path", "mirror")
    @classmethod
    def _stays_inside(cls, value: str | None) -> str | None:
        if value is not None:
            path = PurePosixPath(value)
            if path.is_absolute() or ".." in path.parts or not path.parts or re.search(r"[\\:\x00-\x1f]", value):
                raise ValueError("should be a relative path without '..'")
        return value

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s/]+/\S*[^\s/]", value):
            raise ValueError("should be an http or https address of a file")
        return value

    @model_validator(mode="after")
    def _has_location(self) -> RecipeFile:
        if (self.package is None) != (self.path is None):
            raise ValueError("package and path must be set together")
        if not (self.package or self.mirror or self.url):
            raise ValueError("has no location; set package and path, mirror or url")
        return self

    @property
    def name(self) -> str:
        """Return the file name under which it is cached."""
        address = self.mirror or self.path or urlsplit(self.url or "").path
        return re.sub(r"[^\w.+-]", "_", PurePosixPath(address).name)

    @property
    def source(self) -> str:
        """Return the location that identifies the file if its hash is not known."""
        return self.url or self.mirror or f"{self.package}:{self.path}"


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


class GoldFormat(Section):
    """Layout of a gold file. Lines end in LF or CRLF; blank lines are ignored.

    similarity needs the columns word1, word2, score; analogy word1, word2, word3, target, and the section as a column
    or as lines `: section`; entailment word1, word2 and score, or label (True, False, 1, 0, -1) in its place, and reads
    pos (N, V, A, R). Other columns may have any name.
    """

    columns: tuple[str, ...] = Field(min_length=2)
    delimiter: Delimiter = "tab"
    header: bool = Field(False, description="the first line names the columns")
    comment: str | None = Field(None, min_length=1, description="prefix of lines that are skipped")

    def positions(self, *needed: str) -> list[int]:
        """Return the indices of the needed columns; UsageError if one is missing or duplicated."""
        for name in needed:
            if self.columns.count(name) != 1:
                raise UsageError(f"columns: {name!r} should occur once, got [{', '.join(self.columns)}]")
        return [self.columns.index(name) for name in needed]


class GoldCounts(Section):
    """Counts of a gold file, of its kind."""

    pairs: Count | None = None
    questions: Count | None = None
    sections: Count | None = None


METRICS = {"similarity": ("spearman",), "analogy": ("accuracy",), "entailment": ("spearman", "ap", "accuracy")}


class KnownResult(Section):
    """A published result on this benchmark, and its source."""

    value: float
    system: str
    source: str
    tag: Tag


class EvalTraining(Section):
    """A translator that is trained on top of the evaluated vectors."""

    corpus: str = Field(description="a recipe of corpora/")
    strategy: str = Field(description="a file of configs/strategies")
    sets: tuple[str, ...] = Field((), description="KEY.KEY=VALUE, as --set takes them")


class EvalRecipe(Section):
    """A benchmark: evals/NAME.yaml."""

    name: str
    kind: Literal["similarity", "analogy", "entailment", "translation"]
    description: str
    licence: str
    homepage: str | None = None
    citation: str
    note: str | None = None
    metric: Literal["spearman", "accuracy", "ap", "bleu"]
    protocol: str
    copies: tuple[RecipeFile, ...] = Field((), description="the same gold in other bytes")
    format: GoldFormat = GoldFormat(columns=("word1", "word2", "score"))
    expected: GoldCounts = GoldCounts()
    training: EvalTraining | None = Field(None, description="kind translation: the translator trained on the vectors")
    known_results: tuple[KnownResult, ...] = ()

    @model_validator(mode="after")
    def _fits_its_kind(self) -> EvalRecipe:
        if (self.kind == "translation") != (self.training is not None) or bool(self.copies) == bool(self.training):
            raise ValueError("has no copies; set copies, or for kind translation only, the key training")
        if self.training is not None:
            return self
        pairs, metrics = self.kind != "analogy", METRICS[self.kind]
        if self.metric not in metrics:
            raise ValueError(f"metric: should be {' or '.join(metrics)} for kind {self.kind}, got {self.metric}")
        last = ["word3", "target"] if not pairs else ["score" if self.metric == "spearman" else "label"]
        try:
            self.format.positions("word1", "word2", *last)
        except UsageError as error:
            raise ValueError(f"format.{error}") from error
        if (self.expected.pairs if pairs else self.expected.questions) is None:
            raise ValueError(f"expected.{'pairs' if pairs else 'questions'} needs a value for kind {self.kind}")
        return self


Recipe = CorpusRecipe | EvalRecipe
Kind = Literal["corpora", "evals"]
KINDS: tuple[Kind, ...] = ("corpora", "evals")


@overload
def load_recipe(kind: Literal["corpora"], name: str) -> CorpusRecipe: ...
@overload
def load_recipe(kind: Literal["evals"], name: str) -> EvalRecipe: ...
def load_recipe(kind: Kind, name: str) -> Recipe:
    """Load the shipped recipe `name`; UsageError if there is none, DataError if it is invalid."""
    return read_recipe(kind, shipped.path(kind, name))


def read_recipe(kind: Kind, path: Path) -> Recipe:
    """Read the recipe of one YAML file; DataError names the file, line and key of an error."""
    recipe: Recipe
    try:
        layers = [read_yaml(path)]
        recipe = build(CorpusRecipe, layers) if kind == "corpora" else build(EvalRecipe, layers)
    except UsageError as error:
        raise DataError("; ".join(error.args)) from error
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
