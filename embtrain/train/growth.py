"""Starts a trainer from the state of a run with fewer words: tables, optimizer, log Z and source.

row (V,) int64 is the earlier id of each word, -1 for a new one. Earlier rows are copied, with their accumulators. New
rows stay as initialized, or start at the mean of the earlier ones; their accumulators are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embtrain.common.row_growth import copy_rows, grow_optimizer
from embtrain.negatives.base import NegativeSource, grow_source
from embtrain.train.loop import Trainer


def grow(trainer: Trainer, model: nn.Module, loss: nn.Module, source: NegativeSource,
         optimizers: list[Mapping[str, Any]], row: Tensor, new_rows: str) -> list[str]:
    """Set the state of a trainer before its first step; returns what starts again instead, one line each.

    model, loss, source: those of the earlier run. optimizers: their states, as a checkpoint stores them. new_rows:
    "random" or "mean". ValueError if the models do not have the same tables.
    """
    n = len(row)
    _grow_tables(trainer.model, model, row, new_rows)
    notes = [] if _grow_loss(trainer.loss, loss, row) else ["log Z starts again, because the loss differs"]
    same_number = len(optimizers) == len(trainer.optimizers)
    for i, optimizer in enumerate(trainer.optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        rows = [row if p.ndim and len(p) == n else None for p in parameters]
        is_kept = (i == 0 or (same_number and not notes)) and i < len(optimizers) \
            and grow_optimizer(optimizer, optimizers[i], rows)
        if not is_kept:
            notes.append(f"the optimizer state of {'log Z' if i else 'the tables'} starts again")
    return [*notes, *filter(None, [grow_source(trainer.source, source, row)])]


@torch.no_grad()
def _grow_tables(model: nn.Module, earlier: nn.Module, row: Tensor, new_rows: str) -> None:
    tables, earlier_tables = model.state_dict(), earlier.state_dict()
    if tables.keys() != earlier_tables.keys():
        raise ValueError(f"tables {', '.join(earlier_tables)} in place of {', '.join(tables)}")
    trained = {name for name, _ in model.named_parameters()}
    for name, table in tables.items():
        copy_rows(table, earlier_tables[name], row)
        if new_rows == "mean" and name in trained and bool((row < 0).any()):
            table[(row < 0).to(table.device)] = earlier_tables[name].double().mean(0).to(table.device, table.dtype)


@torch.no_grad()
def _grow_loss(loss: nn.Module, earlier: nn.Module, row: Tensor) -> bool:
    """Copy the parameters of a loss, of which some have one entry for each context; False if it is another loss."""
    values, earlier_values = dict(loss.named_parameters()), dict(earlier.named_parameters())
    if {name: value.ndim for name, value in values.items()} != {name: x.ndim for name, x in earlier_values.items()}:
        return False
    for name, value in values.items():
        if value.ndim:
            copy_rows(value, earlier_values[name], row)
        else:
            value.copy_(earlier_values[name])
    return True
