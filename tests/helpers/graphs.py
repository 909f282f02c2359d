"""Tiny graphs and untrained models of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.data.triples.examples import TripleBatch
from embtrain.models.base import Model, ModelConfig
from embtrain.models.products import dot_scores

Geometry = Literal["dot", "l1", "l2", "cosine"]

PYKEEN = Path(__file__).parent / "pykeen_ranks.json"   # "graph geometry" -> part -> way to count ties -> digest


def digest(ranks: np.ndarray) -> str:
    """Hash ranks (2n,) of the tail and head of each triple, multiples of 1/2."""
    return hashlib.sha256(np.asarray(2 * ranks).astype("<i8").tobytes()).hexdigest()


class Toy(Model):
    """s = −‖e_a ± r − e_b‖ (l1, l2) or (e_a ∘ r)·e_b (dot, and cosine, which the kernel does not support)."""

    name = "toy"
    task = "triples"
    geometry: Geometry

    def __init__(self, config: ModelConfig, problem: ProblemSpec, geometry: Geometry = "l1", levels: int = 0):
        super().__init__(config, problem)
        assert problem.context_sizes is not None
        self.n_relations = problem.context_sizes[1] // 2
        self.geometry = geometry
        random = torch.Generator().manual_seed(problem.seed)

        def table(n: int) -> nn.Parameter:
            if levels:  # few values: many scores are equal
                return nn.Parameter(torch.randint(levels, (n, config.dim), generator=random).float())
            return nn.Parameter(torch.randn(n, config.dim, generator=random))
        self.e, self.r = table(problem.n_candidates), table(self.n_relations)

    def encode(self, batch: Batch) -> Query:
        assert isinstance(batch, TripleBatch)
        entity = nn.functional.embedding(batch.entity, self.e, sparse=self.sparse)
        relation = nn.functional.embedding(batch.relation, self.r, sparse=self.sparse)
        product = self.geometry in ("dot", "cosine")
        vector = entity * relation if product else entity + (1 - 2 * batch.slot).unsqueeze(1) * relation
        return Query(vector, batch.context(self.n_relations), batch.target, batch.slot)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if self.geometry in ("dot", "cosine"):
            return dot_scores(query.vector, self.e, candidates, self.sparse)
        rows = candidates if candidates.is_floating_point() else nn.functional.embedding(candidates, self.e,
                                                                                         sparse=self.sparse)
        d = query.vector.unsqueeze(1) - rows
        return -(d.abs().sum(2) if self.geometry == "l1" else d.square().sum(2).sqrt())

    def table(self) -> Tensor:
        return self.e

    def relations(self) -> Tensor:
        return self.r


def toy(n_entities: int, n_relations: int, geometry: Geometry = "l1", dim: int = 6, levels: int = 0, seed: int = 0
        ) -> Toy:
    problem = ProblemSpec(n_entities, torch.ones(n_entities), context_sizes=(n_entities, 2 * n_relations), seed=seed)
    return Toy(ModelConfig(dim=dim), problem, geometry, levels)


def some_triples(n: int, n_entities: int, n_relations: int, seed: int = 0) -> np.ndarray:
    """n distinct triples (n, 3) of every entity and relation."""
    random = np.random.default_rng(seed)
    every = random.permutation(n_entities * n_relations * n_entities)
    h, rest = np.divmod(every, n_relations * n_entities)
    r, t = np.divmod(rest, n_entities)
    triples = np.stack([h, r, t], 1)
    first = [int(np.flatnonzero((triples[:, [0, 2]] == e).any(1))[0]) for e in range(n_entities)]
    first += [int(np.flatnonzero(triples[:, 1] == r)[0]) for r in range(n_relations)]
    chosen = list(dict.fromkeys(first))
    chosen += [i for i in range(n + len(chosen)) if i not in set(chosen)]
    return triples[chosen[:n]]


def write_triples(path: Path, triples: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in triples.tolist()), encoding="utf-8")
    return path


def a_folder(folder: Path, n_entities: int = 12, n_relations: int = 3, n: int = 120) -> Path:
    """Write train.txt, valid.txt and test.txt; the training part contains every name."""
    triples = some_triples(n, n_entities, n_relations)
    write_triples(folder / "train.txt", triples[:-20])
    write_triples(folder / "valid.txt", triples[-20:-10])
    write_triples(folder / "test.txt", triples[-10:])
    return folder
