"""Examples of answers: the best candidates of a model for a few held-out queries, and the ranks of the positives.

The rank of a positive is 1 + the candidates with a higher score + half of those with an equal one, as in
evaluate/heldout.py. The other held-out positives of the query do not count. In graphs and hierarchies no other known
positive counts, nor does the entity of the query itself. Scores are those of `embtrain predict`: the model's, in
hierarchies those that evaluation compares with its threshold.
The answer of a translator is a sentence, which has neither score nor rank.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embtrain.common.files import write_json
from embtrain.common.types import Batch, Query
from embtrain.experiment.run import scoring
from embtrain.experiment.run.components import Components

FILE = "answers.json"
N_QUERIES, N_ANSWERS, N_POSITIVES = 8, 5, 5
MAX_ROWS = 4096            # held-out rows from which the queries are chosen
MAX_CANDIDATES = 1 << 14   # scored at once: a model may read their vectors once more for each query


def write(folder: Path, parts: Components) -> None:
    """Write answers.json: queries of the test part, else of valid; no file if nothing is held out."""
    for part in ("test", "valid"):
        if len(batch := parts.task.heldout(part)):
            sentences = parts.task.answer_sentences(parts, part, N_QUERIES)
            tree = examples(parts, batch) if sentences is None else _in_sentences(sentences)
            write_json(folder / FILE, {"part": part, **tree})
            return


def _in_sentences(answered: list[list[str]]) -> dict[str, Any]:
    """The same as `examples` for [query, answer, reference]; scores: none, and no reference has a rank."""
    return {"scores": "none", "queries": [
        {"query": query, "answers": [[answer, None, answer == reference]], "positives": [[reference, None]],
         "n_positives": 1} for query, answer, reference in answered]}


@torch.no_grad()
def examples(parts: Components, batch: Batch) -> dict[str, Any]:
    """Return the answers to N_QUERIES distinct queries, spread evenly over the first MAX_ROWS rows.

    scores: `probability` or `score`. queries: of each the text, `answers` [name, score or null, is_positive], best
    first, `positives` [name, rank], best first, and their number n_positives.
    """
    batch = batch.rows(slice(0, MAX_ROWS))
    on_device = scoring.encode_heldout(parts, batch)
    query = replace(on_device, context=on_device.context.cpu(), target=on_device.target.cpu())
    group = _groups(query, has_context=query.context.dim() == 2).cpu()                       # (B,)
    rows = torch.tensor([int((group == i).nonzero()[0, 0]) for i in _spread(int(group.max()) + 1)])
    z, value, is_probability = _scores(parts, on_device, rows)
    excluded = torch.zeros(z.shape, dtype=torch.bool)
    if (known := parts.task.known_answers(query.context[rows])) is not None:
        excluded = known.index_put((torch.arange(len(rows)), query.context[rows][:, 0]), torch.tensor(True))
    names, texts = parts.task.candidate_names(), parts.task.describe_heldout(batch, query, rows)
    queries = []
    for i, row in enumerate(rows.tolist()):
        targets = query.target[group == group[row]].unique()
        excluded[i, targets] = False
        score = z[i].nan_to_num(nan=-math.inf).masked_fill(excluded[i], -math.inf)
        others = score.index_fill(0, targets, -math.inf)
        ranks = sorted((_rank(others, float(score[target])), names[target]) for target in targets.tolist())
        best = torch.argsort(score, descending=True, stable=True)[:N_ANSWERS].tolist()
        queries.append({
            "query": texts[i],
            "answers": [[names[b], _finite(float(value[i, b])), b in targets.tolist()] for b in best
                        if score[b] > -math.inf],
            "positives": [[name, rank] for rank, name in ranks[:N_POSITIVES]], "n_positives": len(ranks)})
    return {"scores": "probability" if is_probability else "score", "queries": queries}


def _scores(parts: Components, query: Query, rows: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Return the scores of some rows (n,) that rank the candidates (n, V), the values to show (n, V), and whether those
    are probabilities."""
    if (s := parts.task.answer_scores(parts, query.rows(rows.to(query.target.device)))) is not None:
        return s, s, False
    is_probability = scoring.estimates_probabilities(parts)
    logits = scoring.logits(parts, corrected=True, at_once=None if is_probability else MAX_CANDIDATES)
    one_query_each = [query.rows(row) for row in rows.to(query.target.device).split(1)]
    z = torch.cat([logits(one).double().cpu() for one in one_query_each])                    # (n, V)
    if is_probability:
        return z, z.softmax(1), True
    candidates = torch.arange(z.shape[1], device=query.target.device).unsqueeze(0).split(MAX_CANDIDATES, 1)
    value = torch.cat([torch.cat([parts.model.score(one, some).double().cpu() for some in candidates], 1)
                       for one in one_query_each])
    return z, value, False


def _groups(query: Query, has_context: bool) -> Tensor:
    """Return the id of each row's query, (B,), in order of appearance. has_context: equal contexts (B, C) are one."""
    if query.query_id is None and not has_context:
        return torch.arange(len(query), device=query.target.device)
    keys = query.context if query.query_id is None else query.query_id
    _, group = torch.unique(keys, dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(group), device=group.device).scatter_reduce(
        0, group, torch.arange(len(group), device=group.device), "amin")
    return torch.argsort(torch.argsort(first))[group]


def _spread(n: int) -> list[int]:
    """Return at most N_QUERIES numbers below n, evenly spaced."""
    return sorted({i * n // N_QUERIES for i in range(N_QUERIES)})


def _rank(others: Tensor, score: float) -> float:
    if math.isinf(score):
        return float(len(others))
    return 1 + float((others > score).sum()) + float((others == score).sum()) / 2


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
