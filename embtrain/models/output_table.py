"""Initial output embedding table e (V, D): random, or from a file of vectors.

    sphere      e_b ~ uniform on the sphere
    hypercube   e_b ~ uniform on {−1, 1}^D / √D
    pretrained  e_b = p_b / ‖p_b‖
    combined    e_b ∝ α p_b / ‖p_b‖ + (1 − α) s_b,  s_b as in sphere
    centred     p_b / ‖p_b‖ minus its mean over the known words, normalized again

p are the vectors of the file. A word missing from the file gets a random row of the sphere, so that all rows differ and
every word can be predicted. The end of a text may be called </s> or <eos> in the file. <unk> represents rare words: if
the file lacks it, it gets the mean of the rarest tenth of the known words. All rows have length 1.
Pretrained and frozen: Kumar and Tsvetkov 2019. Random, hypercube, combined: Tokarchuk and Niculae 2024.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.config import AbsolutePath, Section
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ProblemSpec, WordVectors

_log = logging.getLogger("embtrain")

MIN_KNOWN_SHARE = 0.5                      # share of the running training words that a file must contain
FILE_KINDS = ("pretrained", "combined")  # kinds that need a file
MAX_MEAN_COSINE = 0.5                     # mean cosine of two rows above which a warning is logged
END_WORDS, UNKNOWN_WORDS = ("<eos>", "</s>"), ("<unk>", "UNK")  # names of the end of a text and of unknown words


class OutputTableConfig(Section):
    """Configuration keys under `model.output_table`."""

    kind: Literal["learned", "pretrained", "sphere", "hypercube", "combined"] = Field(
        "learned", description="initialization; learned: the model's own")
    file: AbsolutePath | None = Field(
        None, description=(
            "vectors for pretrained and combined: a file, a run folder, or a Hugging Face folder; null: "
            "none"))
    alpha: float = Field(0.5, ge=0, le=1, description="α, share of the file in combined")
    centred: bool = Field(False, description="subtract the mean of the file's vectors")
    frozen: bool = Field(False, description="table that is not trained")


def initial_table(config: OutputTableConfig, problem: ProblemSpec, dim: int) -> Tensor | None:
    """Return rows of length 1, (V, D) float32, on the CPU; None for `learned`, which the model initializes.

    Raises UsageError or DataError if the table cannot be built. Warns if a file is named that the kind does not use.
    """
    if config.file is not None and config.kind not in FILE_KINDS:
        _log.warning("model.output_table.file: %s is not used, because model.output_table.kind is %s; set it to "
                     "pretrained or combined", config.file, config.kind)
    if config.kind == "learned":
        if config.frozen:
            raise UsageError("model.output_table.kind: learned: a frozen table must be given; set "
                             "model.output_table.kind: sphere, or pretrained with model.output_table.file")
        return None
    V, seed = problem.n_candidates, np.random.SeedSequence([problem.seed, *b"targets"])
    random = torch.Generator().manual_seed(int(seed.generate_state(1)[0]))
    noise = torch.randn(V, dim, generator=random, dtype=torch.float32, device="cpu")  # (V, D)
    if config.kind == "hypercube":
        return torch.where(noise < 0, -1.0, 1.0) * dim ** -0.5
    sphere = nn.functional.normalize(noise, dim=1)
    if config.kind == "sphere":
        return sphere
    table = _vectors_from_file(config, problem, dim, sphere)
    if config.kind == "pretrained":
        return table
    return nn.functional.normalize(config.alpha * table + (1 - config.alpha) * sphere, dim=1)


def register_table(model: nn.Module, name: str, table: Tensor, frozen: bool) -> None:
    """Register `table` as `name` of a model: a buffer if frozen, which no optimizer updates, else a parameter.
    """
    if frozen:
        model.register_buffer(name, table)
    else:
        model.register_parameter(name, nn.Parameter(table))


def _vectors_from_file(config: OutputTableConfig, problem: ProblemSpec, dim: int, sphere: Tensor) -> Tensor:
    """Return the file's vectors at length 1, with rows of `sphere` for missing words: (V, D)."""
    key = f"model.output_table.kind: {config.kind}"
    if config.file is None:
        raise UsageError(f"{key}: needs vectors; set model.output_table.file to a vector file or run folder")
    if problem.words is None or problem.vectors is None:
        raise UsageError(f"{key}: needs words, but the candidates of this model are not words; use sphere or hypercube")
    path, file = config.file, problem.vectors(config.file)
    if file.table.shape[1] != dim:
        raise UsageError(f"model.output_table.file: {path}: vectors of {file.table.shape[1]:,} numbers, but model.dim "
                         f"is {dim:,}; set model.dim: {file.table.shape[1]}")
    row = _file_rows(problem.words, file)                                           # (V,)
    p = torch.from_numpy(file.table[row.clip(min=0)]).double()               # (V, D)
    p[row < 0] = 0
    if not bool((finite := p.isfinite().all(1)).all()):
        word = problem.words[int((~finite).nonzero()[0])]
        raise DataError(f"model.output_table.file: {path}: the vector of {word!r} contains NaN or infinity; "
                        "give vectors of finite numbers")
    known = p.any(1)                                                         # (V,) a row of zeros has no direction
    _require_known(path, known, problem)
    p = nn.functional.normalize(p, dim=1, eps=1e-300)
    if config.centred:
        p[known] = nn.functional.normalize(p[known] - p[known].mean(0), dim=1)
    elif (cosine := _mean_cosine(p[known])) > MAX_MEAN_COSINE:
        _log.warning("model.output_table.file: %s: the mean cosine between words is %.2f, so the vectors barely "
                     "separate them; set model.output_table.centred: true to subtract the mean vector", path, cosine)
    counts = problem.counts.cpu()[known]
    rare = p[known][counts.argsort(stable=True)[:max(1, len(counts) // 10)]].mean(0)
    for i, word in enumerate(problem.words):
        if word in UNKNOWN_WORDS and not known[i]:
            p[i] = nn.functional.normalize(rare, dim=0)
    has_no_direction = p.norm(dim=1) < 0.5  # missing, or equal to the mean
    return torch.where(has_no_direction.unsqueeze(1), sphere, p.float())


def _mean_cosine(p: Tensor) -> float:
    """Return the mean cosine of two different rows of p (n, D), all of length 1."""
    return float((p.sum(0).square().sum() - len(p)) / max(1, len(p) * (len(p) - 1)))


def _file_rows(words: Sequence[str], file: WordVectors) -> np.ndarray:
    """Return the row in the file of each word (V,), under its other names too; -1 if it is missing."""
    row = file.find(words)
    for i, word in enumerate(words):
        for names in (END_WORDS, UNKNOWN_WORDS):
            if row[i] < 0 and word in names:
                row[i] = file.find(names).max()
    return row


def _require_known(path: str, known: Tensor, problem: ProblemSpec) -> None:
    """Raise DataError if the file contains too few of the words, and warn with the number of missing ones."""
    assert problem.words is not None
    is_text = [word not in (*END_WORDS, *UNKNOWN_WORDS) for word in problem.words]
    text = torch.tensor(is_text, dtype=torch.bool, device="cpu")
    counts = problem.counts.cpu() * text
    share = float(counts[known].sum() / counts.sum()) if counts.sum() > 0 else 0.0
    about = (f"model.output_table.file: {path}: has vectors for {int((known & text).sum()):,} of {int(text.sum()):,} "
             f"words, "
             f"{share:.1%} of the running words")
    if share < MIN_KNOWN_SHARE:
        raise DataError(f"{about}; {MIN_KNOWN_SHARE:.0%} are needed; give a file with the same language, tokenization "
                        "and case")
    if not bool(known[text].all()):
        _log.warning("%s; the others get random rows", about)
