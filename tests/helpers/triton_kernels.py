"""Triton kernels in tests: on a CUDA device if there is one, else in Triton's interpreter on the CPU.

Import this module before triton: the interpreter is chosen when a kernel is defined, and triton defines some itself.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import Tensor

from embtrain.kernels.core.tables import NegativeBatch

os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"
pytest.importorskip("triton", reason="peers: triton is not installed; pip install 'embtrain[gpu]'")

from embtrain.kernels.device import alias as alias, skipgram as device
from embtrain.kernels.device.arguments import DeviceResult, NegativeTensors, TableTensors
from embtrain.kernels.device.pairs import update as pairs
from embtrain.kernels.device.triples import update as triples
from helpers.order_cases import Case as OrderCase
from helpers.skipgram_cases import Case
from helpers.triple_cases import Case as TripleCase

INTERPRET = "TRITON_INTERPRET"  # the environment variable
IS_INTERPRETED = not torch.cuda.is_available()
DEVICE = "cpu" if IS_INTERPRETED else "cuda"


def tensor(x: np.ndarray | None) -> Tensor | None:
    """A copy on the device; None stays None."""
    return None if x is None else torch.from_numpy(np.array(x)).to(DEVICE)


def negatives(drawn: NegativeBatch, rows: int) -> NegativeTensors:
    """The negatives of P rows on the device, with false negatives as a mask."""
    is_masked = None
    if drawn.false_negatives is not None:
        mask = np.zeros((rows, drawn.ids.shape[1]), np.uint8)
        mask[drawn.false_negatives[0], drawn.false_negatives[1]] = 1
        is_masked = tensor(mask)
    ids = tensor(drawn.ids)
    assert ids is not None
    return NegativeTensors(ids, drawn.share, tensor(drawn.log_q), tensor(drawn.log_q_table),
                           tensor(drawn.log_q_target), tensor(drawn.weight), drawn.total_weight, drawn.mask_target,
                           is_masked)


def run(case: Case, keep_scores: bool = False, windows_at_once: int = device.WINDOWS_AT_ONCE
        ) -> tuple[TableTensors, TableTensors, DeviceResult]:
    """Update the tables of a case; rows are `case.pad` floats apart."""
    tables = []
    for x, acc in ((case.u_x, case.u_acc), (case.v_x, case.v_acc)):
        room = torch.full((len(x), x.shape[1] + case.pad), 7.0, device=DEVICE)
        room[:, :x.shape[1]] = tensor(x)
        tables.append(TableTensors(room[:, :x.shape[1]], tensor(acc)))
    windows = device.WindowTensors(*map(tensor, case.windows))  # type: ignore[arg-type]
    result = device.update(*tables, windows, negatives(case.negatives, len(case.windows.target)), case.rule, case.lr,
                           tensor(case.rule.c), keep_scores, windows_at_once)
    return tables[0], tables[1], result


class Triples:
    """The update of a case of triples on the device; rows are padded with zeros."""

    def __init__(self, case: TripleCase, keep_scores: bool = False,
                 queries_at_once: int = triples.QUERIES_AT_ONCE) -> None:
        tables = (tensor(table.x.base) for table in case.tables(np.float32))
        dim = case.x["e"].shape[1]
        self.e, self.r = (TableTensors(x[:, :dim], tensor(case.acc[name]))  # type: ignore[index]
                          for name, x in zip("er", tables, strict=True))
        drawn = negatives(case.negatives, len(case.queries.target))
        queries = triples.QueryTensors(*map(tensor, case.queries))  # type: ignore[arg-type]
        self.result = triples.update(self.e, self.r, queries, drawn, case.rule, case.lr, tensor(case.rule.c),
                                     keep_scores, queries_at_once)


class Pairs:
    """The update of a case of order embeddings on the device; rows are padded with zeros."""

    def __init__(self, case: OrderCase, rows_at_once: int = pairs.ROWS_AT_ONCE) -> None:
        room = torch.zeros(len(case.x), -(-case.dim // 16) * 16, device=DEVICE)
        room[:, :case.dim] = tensor(case.x)
        self.table = TableTensors(room[:, :case.dim], tensor(case.acc))
        rows = pairs.PairTensors(*map(tensor, case.rows))  # type: ignore[arg-type]
        self.result = pairs.update(self.table, rows, negatives(case.negatives, len(case.rows.target)), case.rule,
                                   case.lr, True, rows_at_once)
