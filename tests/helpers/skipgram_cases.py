"""Random skip-gram updates: tables, windows, negatives and a loss, for a kernel and its reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from embtrain.kernels.core.tables import NegativeBatch, Table, UpdateResult
from embtrain.kernels.reference.training import skipgram as reference
from embtrain.kernels.training import skipgram as wrapper
from embtrain.kernels.training.skipgram import RowPool, SkipGramLossSpec, Windows
from helpers.cores import using


class Case:
    """Tables, windows, negatives and a rule; the reference can receive the arrays in float64."""

    def __init__(self, seed: int, n_u: int, n_v: int, dim: int, sizes: list[int], share: int, k: int, loss: str,
                 adagrad: bool = False, weight: str = "none", log_q: str = "static", c: str = "none",
                 mask_target: bool = False, n_masked: int = 0, pad: int = 0, scale: float = 0.6, ranking: bool = False,
                 lr: float = 0.1, distinct: bool = False, pool: str = "none"):
        draw = np.random.default_rng(seed)
        n, pairs = len(sizes), sum(sizes)
        self.u_x = (draw.standard_normal((n_u, dim)) * scale).astype(np.float32)
        self.v_x = (draw.standard_normal((n_v, dim)) * scale).astype(np.float32)
        self.u_acc = draw.random(n_u).astype(np.float32) if adagrad else None
        self.v_acc = draw.random(n_v).astype(np.float32) if adagrad else None
        # an exponential loss has slopes of 100: long steps would amplify the rounding of each unit in the next ones
        self.pad, self.lr, self.pool = pad, lr / 100 if loss == "alpha_nce" else lr, None
        if pool != "none":
            self._add_rows(np.random.default_rng(seed + 1), pool, distinct, scale)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        g = pairs if share == 0 else -(-n // share)
        if distinct:
            places = draw.permutation(n_v)[:pairs + g * k]
            target, ids = places[:pairs].astype(np.int64), places[pairs:].reshape(g, k).astype(np.int64)
            centre = draw.permutation(n_u)[:n].astype(np.int64)
        else:
            target, ids = draw.integers(0, n_v, pairs), draw.integers(0, n_v, (g, k))
            centre = draw.integers(0, n_u, n)
        self.windows = Windows(centre, start, target)
        q = np.log(draw.dirichlet(np.ones(n_v)) + 1e-3).astype(np.float32)
        w = {"none": None, "column": (k,), "cell": (g, k)}[weight]
        weights = None if w is None else (draw.integers(0, 3, w) * draw.random(w)).astype(np.float32)
        hits = None
        if n_masked and pairs and k:
            cells = np.unique(np.stack([draw.integers(0, pairs, n_masked), draw.integers(0, k, n_masked)], 1), axis=0)
            hits = np.ascontiguousarray(cells.T)
        self.negatives = NegativeBatch(
            ids, share, log_q=draw.normal(-3, 1, (g, k)).astype(np.float32) if log_q == "cell" else None,
            log_q_table=q if log_q == "static" else None,
            log_q_target=draw.normal(-3, 1, pairs).astype(np.float32) if log_q == "cell" else None,
            weight=weights, total_weight=float(max(1, k)) * 1.3, mask_target=mask_target,
            false_negatives=hits)
        zs = {"none": None, "one": np.array(0.7, np.float32), "each": draw.normal(0, 1, n_u).astype(np.float32)}[c]
        self.rule = SkipGramLossSpec(loss, margin=0.4, c=zs if loss == "nce" else None,
                         ranking=ranking and loss == "sampled_softmax", positive_weight=0.3)

    def _add_rows(self, draw: np.random.Generator, pool: str, distinct: bool, scale: float) -> None:
        """Pool each word from its row and up to 9 of 6 more rows, some of them twice; if distinct, from 2 more rows."""
        n = len(self.u_x)
        extra = np.arange(n, 3 * n).reshape(n, 2) if distinct else [draw.integers(n, n + 6, draw.integers(10))
                                                                   for _ in range(n)]
        rows = [np.array([i, *more]) for i, more in enumerate(extra)]
        more_rows = (draw.standard_normal((2 * n if distinct else 6, self.u_x.shape[1])) * scale).astype(np.float32)
        self.u_x = np.concatenate([self.u_x, more_rows])
        if self.u_acc is not None:
            self.u_acc = np.concatenate([self.u_acc, draw.random(len(more_rows)).astype(np.float32)])
        self.pool = RowPool(np.cumsum([0, *map(len, rows)]), np.concatenate(rows), pool == "mean")

    def tables(self, dtype: type = np.float32) -> tuple[Table, Table]:
        created = []
        for x, acc in ((self.u_x, self.u_acc), (self.v_x, self.v_acc)):
            room = np.full((len(x), x.shape[1] + self.pad), 7.0, dtype)
            room[:, :x.shape[1]] = x
            created.append(Table(room[:, :x.shape[1]], None if acc is None else acc.astype(dtype)))
        return created[0], created[1]

    def expected(self) -> tuple[Table, Table, float, np.ndarray, np.ndarray | None]:
        u, v = self.tables(np.float64)
        return u, v, *reference.update(u, v, self.windows, self.negatives, self.rule, self.lr, self.pool)

    def run(self, core: str, **how: Any) -> tuple[Table, Table, UpdateResult]:
        u, v = self.tables()
        with using(core):
            return u, v, wrapper.update(u, v, self.windows, self.negatives, self.rule, self.lr, pool=self.pool, **how)
