"""Arguments of one call as the rows that sources and losses read: one row per pair of a query and a target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, Negatives, Query
from embtrain.losses.base import Loss
from embtrain.negatives.base import NegativeSource
from embtrain.nn.arguments import HALF, dense_tensor, float_tensor, same_device

Weight = Tensor | nn.Embedding | nn.Linear


@dataclass(frozen=True)
class OutputLayer:
    """The user's output layer: weight (V, D), bias (V,) or None, and whether gradients of the weight are sparse."""

    weight: Tensor
    bias: Tensor | None
    sparse: bool


def table_of(weight: Weight, bias: Tensor | None, sparse: bool, num_classes: int, has_bias: bool) -> OutputLayer:
    """Read the tensors of a table. Raises UsageError if their types or shapes do not match.

    has_bias: whether scores may have a bias (they may under similarity="dot").
    """
    table: Any = weight.weight if isinstance(weight, nn.Embedding | nn.Linear) else weight
    float_tensor("weight", table, "a tensor, an nn.Embedding or an nn.Linear")
    if isinstance(weight, nn.Embedding):
        sparse = weight.sparse
        for setting in ("padding_idx", "max_norm", "scale_grad_by_freq"):
            if (value := getattr(weight, setting)) is not None and value is not False:
                raise UsageError(f"weight: {setting}={value} of this nn.Embedding has no effect on scores; pass its "
                                 f".weight{', and sparse=True to the module' if sparse else ''}")
    elif isinstance(weight, nn.Linear) and weight.bias is not None:
        if bias is not None:
            raise UsageError("bias: this nn.Linear has a bias of its own; leave the argument out")
        bias = weight.bias
    if table.ndim != 2 or len(table) != num_classes:
        raise UsageError(f"weight: has the shape {tuple(table.shape)}; it should be (num_classes, D) with "
                         f"num_classes = {num_classes:,}")
    if bias is not None:
        if not has_bias:
            raise UsageError("bias: a cosine has no bias; leave it out, or use similarity='dot'")
        float_tensor("bias", bias)
        if bias.shape != (num_classes,):
            raise UsageError(f"bias: has the shape {tuple(bias.shape)}; it should be ({num_classes:,},)")
    return OutputLayer(table, bias, sparse)


@dataclass(frozen=True)
class Rows:
    """The rows of one call, N of them: B·T without those that are ignored, perhaps 0."""

    query: Query             # vector (N, D), or (N, D + 1) with a bias
    targets: Tensor          # (B, T) int64  all targets of each query
    owner: Tensor            # (N,) int64  the query of each row, 0..B-1
    kept: Tensor | None      # (B, T) bool  the entries that have a row; None: all
    shape: tuple[int, ...]   # of the argument `target`

    def reduce(self, x: Tensor, reduction: str) -> Tensor:
        """Mean or sum of losses (N,), (); or "none": in the shape of `target`, 0 where it is ignored."""
        if reduction != "none":
            return x.mean() if reduction == "mean" else x.sum()
        if self.kept is None:
            return x.view(self.shape)
        return x.new_zeros(self.targets.shape).masked_scatter(self.kept, x).view(self.shape)

    def zero_loss(self, table: OutputLayer, parameters: Iterable[Tensor], reduction: str) -> Tensor:
        """The loss of no rows, 0, with gradients of zero: under DistributedDataParallel other processes wait for them.

        parameters: of the loss.
        """
        no_ids = torch.empty(0, dtype=torch.int64, device=table.weight.device)
        inputs = [self.query.vector, functional.embedding(no_ids, table.weight, sparse=table.sparse), *parameters]
        parts = [x.flatten()[:0].sum() for x in (inputs if table.bias is None else [*inputs, table.bias])]
        is_double = any(x.dtype == torch.float64 for x in parts)
        zero = torch.stack([x.double() if is_double else x.float() for x in parts]).sum()
        return zero.expand(self.shape).clone() if reduction == "none" else zero


def make_rows(query: Tensor, table: OutputLayer, target: Tensor, context: Tensor | None, ignore_index: int | None,
              context_sizes: tuple[int, ...] | None) -> Rows:
    """Split queries (B, D) with targets (B,) or (B, T) into rows.

    Raises UsageError for wrong types, shapes, devices or ids.

    Ids are checked on the CPU; on a CUDA device the host would wait for it. Ignored targets cause one wait.
    """
    n = len(table.weight)
    check_query(query, table)
    dense_tensor("target", target, "a tensor of int64")
    if target.ndim not in (1, 2) or len(target) != len(query) or target.dtype != torch.int64:
        raise UsageError(f"target: has the shape {tuple(target.shape)} and dtype {target.dtype}; it should be "
                         f"({len(query)},) or ({len(query)}, T) of int64")
    _check_context(context, len(query), context_sizes)
    _check_devices(table, query=query, target=target, context=context)
    is_double = torch.float64 in (query.dtype, table.weight.dtype)                     # which autocast leaves as it is
    if query.dtype != table.weight.dtype and (is_double or not torch.is_autocast_enabled(query.device.type)):
        raise UsageError(f"query: has the dtype {query.dtype}, the weight {table.weight.dtype}; convert one of them"
                         + ("" if is_double else ", or use torch.autocast"))
    if table.sparse and table.weight.dtype in HALF and query.dtype == torch.float32:
        raise UsageError(f"weight: {table.weight.dtype} with a query of float32 has no sparse gradient; convert one of "
                         "them, or set sparse=False")
    targets = target if target.ndim == 2 else target.unsqueeze(1)
    kept = None if ignore_index is None else targets != ignore_index
    flat = targets.flatten() if kept is None else targets[kept]
    check_ids("target", flat, n, padding_remedy="; leave padding out, or pass ignore_index={} to the module")
    owner = torch.arange(len(query), device=query.device)
    has_repeats = targets.shape[1] > 1 or kept is not None
    if has_repeats:
        owner = owner.repeat_interleave(targets.shape[1]) if kept is None else kept.nonzero()[:, 0]
    vector = query
    if table.bias is not None:
        vector = torch.cat([query, query.new_ones(len(query), 1)], 1)
    ids = owner if context is None else context[owner] if has_repeats else context
    query_id = torch.unique(owner, return_inverse=True)[1] if has_repeats else None
    built = Query(vector[owner] if has_repeats else vector, ids, flat, torch.zeros_like(flat), query_id,
                  query_id if has_repeats else None)
    return Rows(built, targets, owner, kept, tuple(target.shape))


def check_query(query: Tensor, table: OutputLayer) -> None:
    """Raise UsageError unless query is (B, D) of floats for a weight (V, D)."""
    float_tensor("query", query)
    if query.ndim != 2 or query.shape[1] != table.weight.shape[1]:
        raise UsageError(f"query: has the shape {tuple(query.shape)}; it should be (B, {table.weight.shape[1]}), as "
                         "the rows of the weight are")


def _check_devices(table: OutputLayer, **others: Tensor | None) -> None:
    """Raise UsageError if a tensor of a call is not on the device of the weight, or no loss can be computed there."""
    device = table.weight.device
    if not torch.amp.is_autocast_available(device.type):                   # meta: a tensor without values
        raise UsageError(f"weight: is on {device}, where no loss can be computed; move it to cpu or cuda")
    for name, value in {"bias": table.bias, **others}.items():
        if value is not None:
            same_device(name, value, device)


def id_rows(name: str, ids: Tensor, n: int, num_classes: int, device: torch.device) -> Tensor:
    """Return ids (K,) or (n, K) of classes as (1, K) or (n, K). Raises UsageError for others.

    device: of the weight.
    """
    if n == 0:
        raise UsageError("query: has no rows; pass one or more")
    dense_tensor(name, ids, "a tensor of int64")
    same_device(name, ids, device)
    rows = ids if ids.ndim == 2 else ids.unsqueeze(0)
    if rows.ndim != 2 or rows.shape[0] not in (1, n) or ids.dtype != torch.int64:
        raise UsageError(f"{name}: has the shape {tuple(ids.shape)} and dtype {ids.dtype}; it should be (K,) or "
                         f"({n}, K) of int64")
    check_ids(name, rows, num_classes)
    return rows


def _check_context(context: Tensor | None, n: int, sizes: tuple[int, ...] | None) -> None:
    """Raise UsageError unless context is (n,), or (n, C) for C sizes, with ids below the sizes."""
    if context is None:
        if sizes is not None:
            raise UsageError("context: is missing, and this module was made with num_contexts; pass the contexts' ids")
        return
    dense_tensor("context", context, "a tensor of int64")
    columns = context.shape[1:2] if sizes is None else () if len(sizes) == 1 else (len(sizes),)
    if context.shape != (n, *columns) or context.dtype != torch.int64:
        raise UsageError(f"context: has the shape {tuple(context.shape)} and dtype {context.dtype}; it should be "
                         f"{(n, *columns)} of int64")
    if sizes is None:                                                      # no source reads it
        return
    for column, size in zip(context.view(n, len(sizes)).T, sizes, strict=True):
        check_ids("context", column, size, "num_contexts")


def check_ids(name: str, ids: Tensor, n: int, size_name: str = "num_classes", padding_remedy: str = "") -> None:
    """Raise UsageError if an id on the CPU is not one of 0..n-1. Ids on another device are not read.

    padding_remedy: end of the line about a negative id, which it may contain as {}.
    """
    if ids.device.type == "cpu" and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= n):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        remedy = padding_remedy.format(wrong) if wrong < 0 else ""
        raise UsageError(f"{name}: {wrong} is not one of the ids, 0 to {n - 1:,} ({size_name} = {n:,}){remedy}")


def check_probabilities(log_q_target: Tensor | None, target: Tensor, source: NegativeSource, loss: Loss) -> None:
    """Raise UsageError for a target on the CPU whose probability is 0 where the loss needs its logarithm.

    log_q_target: (N,) of the targets (N,). A source that uses the other targets of the batch draws them too.
    """
    is_needed = loss.traits.needs_q == "target" or (loss.traits.needs_q != "no" and source.traits.min_batch_size > 1)
    if log_q_target is None or not is_needed or target.device.type != "cpu":
        return
    if len(lost := target[log_q_target == -torch.inf]):
        raise UsageError(f"target: class {int(lost[0])} occurs, but its probability under {source.name} is 0; give "
                         "each class that occurs a count above 0 in counts=")


class BatchPositives:
    """The targets (B, T) of each query of a call, as the known positives of its rows (`filter="observed"`)."""

    def __init__(self, targets: Tensor):
        self.targets = targets

    def contains(self, context: Tensor, ids: Tensor) -> Tensor:
        """Whether ids (n, K) are targets of the queries with these numbers (n,): (n, K) bool."""
        found = torch.zeros_like(ids, dtype=torch.bool)
        for column in self.targets.T:                       # T is small; (n, K, T) at once would not be
            found |= ids == column[context].unsqueeze(1)
        return found

    def to(self, device: torch.device | str) -> BatchPositives:
        return BatchPositives(self.targets.to(device))

    @property
    def nbytes(self) -> int:
        return self.targets.nbytes


def in_float32(query: Query) -> Query:
    """The query with vectors at least in float32, as sources and losses receive it."""
    return replace(query, vectors=query.vectors.float()) if query.vectors.dtype in HALF else query


def for_source(query: Query, is_training: bool = True) -> Query:
    """The query as a source receives it: detached, at least in float32."""
    return replace(in_float32(query.detach()), is_training=is_training)


def is_on(device: torch.device, name: str) -> bool:
    """Whether a device has this name; "cuda" names every CUDA device."""
    named = torch.device(name)
    return device.type == named.type and (named.index is None or device.index == named.index)


def masks_by_weight(source: NegativeSource, loss: Loss, drawn: Negatives, device: torch.device) -> bool:
    """Whether negatives that are their row's target get weight 0 instead of being listed as pairs.

    A list has a size that the host waits for on another device. On the CPU it saves most passes over (B, K): a step of
    4,096 rows and 1,024 shared negatives takes 0.65 of the time.
    """
    return (device.type != "cpu" and source.config.filter == "target" and not source.traits.learns
            and drawn.ids is not None and loss.traits.candidate_scope == "drawn"
            and type(loss).negative_weights is Loss.negative_weights)


def without_targets(scored: LossInput) -> LossInput:
    """Give weight 0 to negatives that are their row's target: as a mask, without waiting for the device."""
    scored = scored.expanded()
    ids = scored.drawn.per_row(scored.drawn.ids, len(scored.pos))
    assert ids is not None
    weight = scored.pos.new_ones(()) if scored.weight is None else scored.weight
    return replace(scored, weight=torch.where(ids == scored.query.target.unsqueeze(1), 0.0, weight))
