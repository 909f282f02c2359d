"""Drawn negatives of strategies on a trained model, as a table of columns.

A line is one negative drawn for one held-out query: strategy, query, target, drawn candidate, component that drew it,
score, log q and weight (empty: none, and 1), and `known`: target, yes (a positive seen in training), no, or empty if
the task has no set of positives, or none that fits into memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from embtrain.common import machine
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.files import write_atomically
from embtrain.common.output_paths import check_output_file
from embtrain.common.types import ORIGINS, ModelView, Negatives, Query
from embtrain.experiment.diagnosis.diagnose import heldout_queries, open_run, source_of
from embtrain.experiment.run import components
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.settings import Settings
from embtrain.train.engines.autograd import ReadOnly
from embtrain.train.engines.false_negatives import KnownPositives

HEADER = ("strategy", "query", "target", "drawn", "drawn_by", "score", "log_q", "weight", "known")


def dump(folder: Path, strategies: Sequence[str], out: Path, k: int, max_queries: int = 64,
         threads: int | None = None) -> int:
    """Write k negatives of each strategy for at most `max_queries` held-out queries as TSV; returns the count.

    strategies: empty for the run's own. threads: as in `diagnose`.
    """
    out = check_output_file(out, "--dump-negatives", [folder, *strategies])
    settings, parts = open_run(folder, strategies or [Run(folder).settings.strategy], [k], threads)
    view, (query, *_) = ReadOnly(parts.model), heldout_queries(parts, max_queries)
    known, n, strategies = _known(parts), 0, strategies or [settings.strategy]
    query_texts, names = parts.task.describe_queries(query), parts.task.candidate_names()
    with write_atomically(out, "w") as file:
        lines = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        lines.writerow(HEADER)
        for strategy in strategies:
            for line in _lines(strategy, parts, settings, query, view, k, query_texts, names, known):
                lines.writerow(line)
                n += 1
    return n


def _lines(strategy: str, parts: Components, settings: Settings, query: Query, view: ModelView, k: int,
           query_texts: Sequence[str],
           names: Sequence[str], known: KnownPositives | None) -> Iterator[tuple[str, ...]]:
    source, _ = source_of(strategy, parts, settings, view, [k])
    drawn, n = source.draw(query, k, view), len(query)
    ids, log_q, weight, origin = (drawn.per_row(x, n) for x in (drawn.ids, drawn.log_q, drawn.weight, drawn.origin))
    score = _scores(view, query, drawn, ids)
    is_known = None if known is None or ids is None else known.contains(query.context, ids)
    for i in range(n):
        target = int(query.target[i])
        for j in range(drawn.k):
            candidate = None if ids is None else int(ids[i, j])
            yield (strategy, query_texts[i], names[target], "(a vector)" if candidate is None else names[candidate],
                   ORIGINS[0 if origin is None else int(origin[i, j])], f"{float(score[i, j]):.6g}",
                   "" if log_q is None else f"{float(log_q[i, j]):.6g}",
                   "1" if weight is None else f"{float(weight[i, j]):.6g}",
                   "target" if candidate == target else "" if is_known is None else "yes" if bool(is_known[i, j])
                   else "no")


def _scores(view: ModelView, query: Query, drawn: Negatives, ids: Tensor | None) -> Tensor:
    columns = drawn.vectors if ids is None else ids
    assert columns is not None, "a source that draws nothing was rejected"
    with torch.no_grad():
        return view.score(query, columns)                                            # (n, K)


def _known(parts: Components) -> KnownPositives | None:
    try:
        return parts.task.known_positives(int(components.OBSERVED_SHARE * machine.free()))
    except (UsageError, ResourceError):
        return None
