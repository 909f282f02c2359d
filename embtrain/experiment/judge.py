"""What a model is worth: benchmarks on its vectors, exact likelihood and rank on held-out text.

Held-out text is judged by P(b|a) = softmax_b of what the loss says the scores estimate. Negative sampling's scores are
log-odds against the noise, s = log P(b|a) - log(mass·q(b|a)), so q is given back to them; the bare scores are then
judged as well (metrics ending in `/scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from embtrain.data import fetch
from embtrain.data.recipes import load_recipe
from embtrain.data.vectors import Vectors
from embtrain.evaluate import analogy, similarity
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.heldout import heldout
from embtrain.experiment.parts import Parts
from embtrain.types import Batch, Query, Row


def benchmarks(vectors: Vectors, names: Sequence[str], config: EvaluateConfig) -> list[Row]:
    """The rows of the named benchmarks (evals/*.yaml) on some vectors."""
    rows: list[Row] = []
    for name in names:
        recipe = load_recipe("evals", name)
        path = fetch.gold_path(recipe)
        if recipe.kind == "similarity":
            rows.append(similarity.score(name, vectors, similarity.read_pairs(path, recipe.format), config))
        else:
            rows += analogy.score(name, vectors, analogy.read_questions(path, recipe.format), config)
    return rows


def check_names(names: Sequence[str]) -> None:
    """UsageError for a benchmark that does not exist, before anything is trained."""
    for name in names:
        load_recipe("evals", name)


def likelihood(parts: Parts, batch: Batch, part: str, config: EvaluateConfig) -> list[Row]:
    """Held-out rows under the benchmark name `part` (valid or test)."""
    with torch.no_grad():
        query = parts.model.encode(batch.to(parts.world.device)).detach()
    rows = heldout(_logits(parts, corrected=True), query, config)
    if parts.loss.odds and parts.source.density == "exact":
        bare = heldout(_logits(parts, corrected=False), query, config)
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare]
    return [row._replace(benchmark=part) for row in rows]


def _logits(parts: Parts, corrected: bool) -> Callable[[Query], Tensor]:
    model, loss, source = parts.model, parts.loss, parts.source
    everyone = torch.arange(parts.world.n_candidates, device=parts.world.device).unsqueeze(0)  # (1, V)
    give_back = corrected and loss.odds and source.density == "exact"
    def of(query: Query) -> Tensor:
        z = loss.logit(model.score(query, everyone), query)                                   # (Q, V)
        return z + source.log_prob(query, everyone) if give_back else z
    return of
