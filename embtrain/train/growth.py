"""Starts a trainer from the state of a run with fewer words: tables, optimizer, log Z and source.

row (V,) int64 is the earlier id of each word, -1 for a new one. Earlier rows are copied, with their accumulators. New
rows stay as initialized, or start at the mean of the earlier ones; their accumulators are 0. With subwords the rows of
n-grams are copied too, and a new word can start from those of its n-grams that the earlier run had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embtrain.common.optimizers.row_growth import copy_rows, grow_optimizer
from embtrain.models.base import Model
from embtrain.models.words.skipgram import SkipGram
from embtrain.negatives.base import NegativeSource, grow_source
from embtrain.train.loop import Trainer


def grow(trainer: Trainer, model: Model, loss: nn.Module, source: NegativeSource,
         optimizers: list[Mapping[str, Any]], row: Tensor, new_rows: str) -> list[str]:
    """Set the state of a trainer before its first step; returns what starts again instead, one line each.

    model, loss, source: those of the earlier run. optimizers: their states, as a checkpoint stores them. new_rows:
    "random", "mean" or "subword" (models/words/start.py). ValueError if the models do not have the same tables.
    """
    n = len(row)
    table_rows = _grow_tables(trainer.model, model, row, new_rows)
    row_of = {p: table_rows[name] for name, p in trainer.model.named_parameters()}
    notes = [] if _grow_loss(trainer.loss, loss, row) else ["log Z starts again, because the loss differs"]
    same_number = len(optimizers) == len(trainer.optimizers)
    for i, optimizer in enumerate(trainer.optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        rows = [row_of.get(p, row if p.ndim and len(p) == n else None) for p in parameters]
        is_kept = (i == 0 or (same_number and not notes)) and i < len(optimizers) \
            and grow_optimizer(optimizer, optimizers[i], rows)
        if not is_kept:
            notes.append(f"the optimizer state of {'log Z' if i else 'the tables'} starts again")
    return [*notes, *filter(None, [grow_source(trainer.source, source, row)])]


@torch.no_grad()
def _grow_tables(model: Model, earlier: Model, row: Tensor, new_rows: str) -> dict[str, Tensor]:
    """Copy the rows of an earlier model and start the new ones. Returns the earlier row of each row of each table."""
    tables, earlier_tables = model.state_dict(), earlier.state_dict()
    if tables.keys() != earlier_tables.keys():
        raise ValueError(f"tables {', '.join(earlier_tables)} in place of {', '.join(tables)}")
    trained, rows = {name for name, _ in model.named_parameters()}, model.earlier_rows(earlier, row)
    for name, table in tables.items():
        copy_rows(table, earlier_tables[name], rows[name])
        if new_rows == "mean" and name in trained and rows[name] is row and bool((row < 0).any()):
            table[(row < 0).to(table.device)] = _mean(earlier_tables[name]).to(table)
    if isinstance(model, SkipGram) and isinstance(earlier, SkipGram) and model.pool is not None:
        words = (row < 0).nonzero()[:, 0].to(model.u.device)
        if new_rows == "mean":
            model.pool.set_vectors(model.u, words, _mean(earlier.vectors()).to(model.u).expand(len(words), -1))
        elif new_rows == "subword":
            vectors, words = model.pool.compose(model.u, words, (rows["u"] >= 0).to(model.u.device))
            model.pool.set_vectors(model.u, words, vectors)
    return rows


def _mean(table: Tensor) -> Tensor:
    return table.double().mean(0)


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
