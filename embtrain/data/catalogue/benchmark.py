"""The schema of evals/NAME.yaml. `copies` are the same gold data in other bytes; the first available one is used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from embtrain.common.config import Section
from embtrain.common.errors import UsageError
from embtrain.data.catalogue.recipe_file import RecipeFile

Tag = Literal["published", "repository", "recalled"]  # from a paper or page; from a public repository; from memory
Delimiter = Literal["tab", "space", "comma", "semicolon"]
Count = Annotated[int, Field(ge=0)]


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
    half: Literal["odd", "even"] | None = Field(
        None, description="kind similarity: only the first, third, … pair of the file, or only the others; null: all")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> EvalRecipe:
        if (self.kind == "translation") != (self.training is not None) or bool(self.copies) == bool(self.training):
            raise ValueError("has no copies; set copies, or for kind translation only, the key training")
        if self.training is not None:
            return self
        pairs, metrics = self.kind != "analogy", METRICS[self.kind]
        if self.metric not in metrics:
            raise ValueError(f"metric: should be {' or '.join(metrics)} for kind {self.kind}, got {self.metric}")
        if self.half is not None and self.kind != "similarity":
            raise ValueError(f"half: is of kind similarity; remove it for kind {self.kind}")
        last = ["word3", "target"] if not pairs else ["score" if self.metric == "spearman" else "label"]
        try:
            self.format.positions("word1", "word2", *last)
        except UsageError as error:
            raise ValueError(f"format.{error}") from error
        if (self.expected.pairs if pairs else self.expected.questions) is None:
            raise ValueError(f"expected.{'pairs' if pairs else 'questions'} needs a value for kind {self.kind}")
        return self
