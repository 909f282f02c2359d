"""Configuration of the evaluation: the keys under `evaluate:`."""

from __future__ import annotations

import math
import os
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from embtrain.common import shipped
from embtrain.common.config import Section, absolute_path, plain_paths


def _with_absolute_paths(names: list[str]) -> list[str]:
    """The names, each once; a path is made absolute, so that a run can be resumed from any folder."""
    return list(dict.fromkeys(
        absolute_path(name) if not shipped.is_benchmark(name) and (os.sep in name or os.path.exists(name)) else name
        for name in names))


#: Names of benchmarks of evals/, or absolute paths; duplicates are dropped.
Benchmarks = Annotated[list[str], AfterValidator(_with_absolute_paths),
                       PlainSerializer(plain_paths, return_type=list[str])]


class EvaluateConfig(Section):
    """Keys that every task has."""

    resamples: int = Field(1000, ge=0, le=1_000_000,
                           description="bootstrap resamples, where an interval needs them; 0: no intervals")
    interval: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")

    @model_validator(mode="after")
    def _check_resamples(self) -> Self:
        if 0 < self.resamples < (minimum := math.ceil(round(2 / (1 - self.interval), 6))):
            raise ValueError(f"resamples: {self.resamples} too few for an interval of {self.interval:g}; set {minimum} "
                             "or more, or 0 for no interval")
        return self


class LikelihoodConfig(EvaluateConfig):
    """Keys of tasks that measure the likelihood of held-out positives."""

    log_z: bool = Field(False, description="report the exact log Z of held-out contexts")


class LabelsEvaluate(LikelihoodConfig):
    """Evaluation of labels of held-out documents."""

    heldout_documents: int = Field(5_000, ge=0, description="maximum held-out documents scored; 0: none")
    propensity_a: float = Field(0.55, ge=0, le=10, description="A of the propensities (Jain et al. 2016)")
    propensity_b: float = Field(1.5, gt=0, le=1000, description="B of the propensities")


class PairsEvaluate(EvaluateConfig):
    """Evaluation of concepts of a hierarchy, in addition to its held-out pairs."""

    benchmarks: Benchmarks = Field(
        [], description="benchmarks of lexical entailment: names of evals/, or your own files")


class WordsConfig(LikelihoodConfig):
    """Evaluation of word vectors and held-out pairs of words."""

    benchmarks: Benchmarks = Field(
        ["wordsim353", "simlex999"], description="benchmarks: names of evals/, or your own files")
    during_training: Benchmarks = Field([], description="benchmarks also scored at each evaluation during training")
    oov: Literal["drop", "zero", "mean"] = Field(
        "drop", description="pair with a missing word: left out, similarity 0, or the mean vector for the word")
    vectors: Literal["input", "sum"] = Field("input", description="input table, or input plus output")
    centred: bool = Field(
        False, description="subtract the mean vector before benchmarks are scored; exported vectors keep it")
    heldout_pairs: int = Field(20_000, ge=0, description="maximum held-out pairs scored; 0: none")
    neighbours: list[str] = Field(
        ["queen", "king", "computer", "man", "woman"], description="words whose nearest neighbours are listed")


def words_config(config: EvaluateConfig) -> WordsConfig:
    """`config` if it is that of words; otherwise the defaults with its intervals."""
    return config if isinstance(config, WordsConfig) else WordsConfig(resamples=config.resamples,
                                                                      interval=config.interval)
