"""Checks of the queries that a model of another package returns (result_checks.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embtrain.common.config.hook_results import floats_problem, is_on
from embtrain.common.types import Batch, Query

FIRST = 3            # calls whose values are checked
TOLERANCE = 1e-3     # of vectors that are computed twice, relative to the largest number
TRAINED = "compute {} from parameters with PyTorch, and do not detach {}"


def is_first(model: Any, hook: str) -> bool:
    """Whether this is one of the first calls of a hook, which are counted."""
    counts = vars(model).setdefault("_calls_checked", {})
    counts[hook] = counts.get(hook, 0) + 1
    return bool(counts[hook] <= FIRST)


def is_trained(model: Any, n: int) -> bool:
    """Whether the result for n rows needs a gradient, as in an update."""
    return n > 0 and model.training and torch.is_grad_enabled()


def encode_problem(model: Any, result: Any, batch: Batch) -> str:
    if not isinstance(result, Query):
        return f"returned {type(result).__name__}; return Query(vectors, context, target, slot)"
    n, device = len(batch), batch.target.device
    if problem := _ids_problem(result, n, device):
        return problem
    rows = n if not result.by_id or result.query_id is None else _n_distinct(result.query_id)
    meaning = "those of each query_id" if result.by_id else "one for each example"
    if problem := floats_problem(result.vectors, (rows, "D"), meaning, device):
        return f"{problem} (Query.vectors)"
    if problem := _target_problem(result, batch):
        return problem
    if is_trained(model, n) and not result.vectors.requires_grad:
        return f"returned vectors without a gradient; {TRAINED.format('them', 'them')}"
    if result.query_id is None or result.by_id or not n or not is_first(model, "encode"):
        return ""
    vectors = result.vectors.detach()
    first = result.unique()[0].vectors.detach().index_select(0, result.query_id)
    scale = float(vectors.abs().nan_to_num(0.0, 0.0, 0.0).max()) * max(TOLERANCE, 4 * torch.finfo(vectors.dtype).eps)
    if not torch.allclose(vectors, first, rtol=0, atol=scale, equal_nan=True):
        return "returned a query_id that rows with different vectors have; number the distinct queries, or leave it out"
    return ""


def fields_problem(_: Any, result: Any, batch: Batch) -> str:
    """The problem with the fields of queries after their vectors."""
    if not isinstance(result, tuple) or len(result) not in (3, 4):
        return "returned no tuple of three or four tensors; return (context, target, slot, query_id)"
    query = Query(torch.empty((len(batch), 0), dtype=torch.float32, device=batch.target.device), *result)
    return _ids_problem(query, len(batch), batch.target.device) or _target_problem(query, batch)


def query_ids_problem(_: Any, result: Any, context: Tensor) -> str:
    """The problem with the query_id of each row of context (n, columns)."""
    row = torch.arange(len(context), device=context.device, dtype=torch.int64)
    return _ids_problem(Query(context, context, row, row, result), len(context), context.device)


def _target_problem(query: Query, batch: Batch) -> str:
    is_target = query.target is batch.target or torch.equal(query.target, batch.target)
    return "" if is_target else "returned a target that is not that of the batch; return batch.target"


def _ids_problem(query: Query, n: int, device: torch.device) -> str:
    """Types, shapes and devices of the ids of n queries, and the range of query_id."""
    for name in ("context", "target", "slot", "query_id", "window", "window_offsets"):
        value = getattr(query, name)
        if value is None and name in ("query_id", "window", "window_offsets"):
            continue
        if not isinstance(value, Tensor):
            return f"returned {name} of the type {type(value).__name__}; return a tensor"
        if value.dtype != torch.int64:
            return f"returned {name} of {value.dtype}; return int64"
        if not is_on(value, device):
            return f"returned {name} on {value.device}, but the batch is on {device}; make it there"
        fits = value.shape == (n,) or (name == "context" and value.ndim == 2 and len(value) == n)
        if not fits and name != "window_offsets":
            either = f"({n},) or ({n}, columns)" if name == "context" else f"({n},)"
            return f"returned {name} of shape {tuple(value.shape)}; return {either}, one row for each example"
    if query.window is not None and not (query.window.diff() >= 0).all():
        return "returned a window that is not ascending; return the windows of the batch"
    if query.window_offsets is not None and not _are_offsets(query.window_offsets, query.window):
        return "returned window_offsets that are not the first row of each window, then the number of rows; omit them"
    return _query_id_problem(query, n)


def _are_offsets(offsets: Tensor, window: Tensor | None) -> bool:
    if window is None or offsets.ndim != 1 or not len(offsets) or int(offsets[0]) or (offsets.diff() < 0).any():
        return False
    windows = torch.arange(len(offsets) - 1, dtype=torch.int64, device=offsets.device)
    return torch.equal(windows.repeat_interleave(offsets.diff()), window)


def _query_id_problem(query: Query, n: int) -> str:
    """Range of query_id: others would mix up the scores of rows."""
    if (ids := query.query_id) is None:
        return "returned vectors by id without query_id; return it, or a vector for each example" if query.by_id else ""
    if n and (int(ids.min()) < 0 or int(ids.max()) >= n or not torch.bincount(ids).all()):
        return (f"returned a query_id from {int(ids.min())} to {int(ids.max())}; return 0..Q-1 for Q distinct queries, "
                "as rank_keys(ids) of embtrain.models.base")
    return ""


def _n_distinct(query_id: Tensor) -> int:
    return int(query_id.max()) + 1 if len(query_id) else 0
