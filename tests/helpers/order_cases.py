"""Random updates of order embeddings: a table, rows, negatives and a loss, for a kernel and its reference."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.tables import NegativeBatch, Table, UpdateResult, zeros
from embtrain.kernels.training import order as wrapper
from embtrain.kernels.training.order import OrderLossSpec, PairRows
from helpers.cores import using


class Case:
    def __init__(
        self,
        seed: int,
        n: int = 40,
        dim: int = 50,
        rows: int = 6,
        k: int = 5,
        share: int = 1,
        loss: str = "order",
        adagrad: bool = True,
        weight: str = "none",
        mark_false_negatives: bool = False,
        n_masked: int = 0,
        abs: bool = False,
        lr: float = 0.2,
        distinct: bool = False,
        margin: float = 1.0,
        at_zero: float = 0.1,
    ):
        draw = np.random.default_rng(seed)
        self.dim, self.lr = dim, lr
        self.x = draw.random((n, dim)).astype(np.float32)
        if abs:
            self.x *= draw.choice([-1, 1], (n, dim)).astype(np.float32)
        self.x[draw.random((n, dim)) < at_zero] = 0
        self.acc = draw.random(n).astype(np.float32) if adagrad else None
        g = -(-rows // share)
        ids, ends = draw.integers(0, n, (g, k)), draw.integers(0, n, (2, rows))
        if distinct:
            places = draw.permutation(n)[:rows * (k + 2)].reshape(rows, k + 2)
            ends, ids = np.ascontiguousarray(places[:, :2].T), np.ascontiguousarray(places[:, 2:])
        self.rows = PairRows(ends[0].copy(), ends[1].copy(), draw.integers(0, 2, rows))
        shape = {"none": None, "column": (k,), "cell": (g, k)}[weight]
        weights = None if shape is None else (draw.integers(0, 3, shape) * draw.random(shape)).astype(np.float32)
        hits = None
        if n_masked and rows and k:
            hits = np.ascontiguousarray(np.unique(np.stack(
                [draw.integers(0, rows, n_masked), draw.integers(0, k, n_masked)], 1), axis=0).T)
        self.negatives = NegativeBatch(ids, share, weight=weights, mask_target=mark_false_negatives,
                                       false_negatives=hits)
        self.rule = OrderLossSpec(loss, margin * dim / 30, abs)

    def table(self) -> Table:
        x = zeros(len(self.x), self.dim)
        x[:] = self.x
        return Table(x, None if self.acc is None else self.acc.copy())

    def run(self, core: str, threads: int = 1) -> tuple[Table, UpdateResult]:
        with using(core):
            table = self.table()
            return table, wrapper.update(table, self.rows, self.negatives, self.rule, self.lr, threads,
                                         keep_scores=True)
