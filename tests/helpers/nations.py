"""PyKEEN's graph of nations, samplers connected with a loop, and scores computed apart from the package."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.sampling import negative_sampler_resolver
from pykeen.training import SLCWATrainingLoop
from torch import Tensor

from embtrain.common.types import Query
from embtrain.nn.pykeen import SAMPLERS, EmbtrainNegativeSampler, EmbtrainTrainingCallback, register

TRAINING = Nations().training
E, R, TRIPLES = TRAINING.num_entities, TRAINING.num_relations, TRAINING.mapped_triples
BATCH = TRIPLES[torch.randperm(len(TRIPLES), generator=torch.Generator().manual_seed(1))[:40]]
NAMES = [sampler.name for sampler in SAMPLERS]


def connected(name: str, model: Any = None, **kwargs: Any) -> tuple[EmbtrainNegativeSampler, EmbtrainTrainingCallback]:
    """Return a sampler and the callback of a loop that trains a model with it."""
    register()
    model = DistMult(triples_factory=TRAINING, embedding_dim=8, random_seed=1) if model is None else model
    callback = EmbtrainTrainingCallback()
    loop = SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler=name)
    callback.register_training_loop(loop)
    keys = {"mapped_triples": TRIPLES, "num_entities": E, "num_relations": R, "seed": 5, **kwargs}
    return negative_sampler_resolver.make(name, keys, **loop.negative_sampler_kwargs), callback


class Scores:
    """View of a model, written independently of the package."""

    n_candidates, geometry, tau, has_frozen_table = E, "dot", 1.0, False

    def __init__(self, model: Any):
        self.model = model

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        rows = []
        for (entity, relation), ids in zip(query.context.tolist(), candidates.tolist(), strict=True):
            triples = [(entity, relation, b) if relation < R else (b, relation - R, entity) for b in ids]
            with torch.no_grad():
                rows.append(self.model.score_hrt(torch.tensor(triples)).squeeze(1))
        return torch.stack(rows)
