"""Random queries of triples, their negatives and tables, for a kernel and its reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from embtrain.kernels.core.tables import LOSSES, NegativeBatch, Table, UpdateResult
from embtrain.kernels.reference.training import triples as reference
from embtrain.kernels.training import triples as wrapper
from embtrain.kernels.training.triples import TripleLossSpec, TripleQueries
from helpers.cores import using

RULES = [*sorted(LOSSES), "self_adversarial"]


class Case:
    def __init__(self, seed: int, n_e: int, n_r: int, dim: int, n: int, share: int, k: int, score: str, loss: str,
                 adagrad: bool = False, weight: str = "none", log_q: str = "static", c: bool = False,
                 mask_target: bool = False, n_masked: int = 0, ranking: bool = False, constraint: str = "free",
                 lr: float = 0.1, scale: float = 0.6, distinct: bool = False, margin: float = 1.5,
                 row_weights: bool = False):
        draw = np.random.default_rng(seed)
        g = n if share == 0 else -(-n // share)
        if distinct:
            places = draw.permutation(n_e)[:2 * n + g * k].astype(np.int64)
            entity, target, ids = places[:n], places[n:2 * n], places[2 * n:].reshape(g, k)
            relation = draw.permutation(n_r)[:n].astype(np.int64)
        else:
            entity, target, ids = (draw.integers(0, n_e, shape) for shape in (n, n, (g, k)))
            relation = draw.integers(0, n_r, n)
        slot, factors = draw.integers(0, 2, n), np.random.default_rng(seed + 1).random(n).astype(np.float32) + 0.5
        self.queries = TripleQueries(entity, relation, slot, target, factors if row_weights else None)
        self.x = {"e": (draw.standard_normal((n_e, dim)) * scale).astype(np.float32),
                  "r": (draw.standard_normal((n_r, dim)) * scale).astype(np.float32)}
        self.acc = {name: draw.random(len(x)).astype(np.float32) if adagrad else None for name, x in self.x.items()}
        w = {"none": None, "column": (k,), "cell": (g, k)}[weight]
        hits = None
        if n_masked and k:
            cells = np.unique(np.stack([draw.integers(0, n, n_masked), draw.integers(0, k, n_masked)], 1), axis=0)
            hits = np.ascontiguousarray(cells.T)
        self.negatives = NegativeBatch(
            ids, share, log_q=draw.normal(-3, 1, (g, k)).astype(np.float32) if log_q == "cell" else None,
            log_q_table=np.log(draw.dirichlet(np.ones(n_e)) + 1e-3).astype(np.float32) if log_q == "static" else None,
            log_q_target=draw.normal(-3, 1, n).astype(np.float32) if log_q == "cell" else None,
            weight=None if w is None else (draw.integers(0, 3, w) * draw.random(w)).astype(np.float32),
            total_weight=float(max(1, k)) * 1.3, mask_target=mask_target, false_negatives=hits)
        self.rule = TripleLossSpec(score, loss, margin, temperature=0.7,
                         c=np.array(0.7, np.float32) if c and loss == "nce" else None,
                         ranking=ranking and loss == "sampled_softmax", constraint=constraint, positive_weight=0.3)
        self.lr = lr

    def tables(self, dtype: type) -> tuple[Table, Table]:
        created = []
        for name, x in self.x.items():
            room = np.zeros((len(x), -(-x.shape[1] // 16) * 16), dtype)
            room[:, :x.shape[1]] = x
            acc = self.acc[name]
            created.append(Table(room[:, :x.shape[1]], None if acc is None else acc.astype(dtype)))
        return created[0], created[1]

    def expected(self) -> tuple[Table, Table, float, np.ndarray, np.ndarray | None]:
        e, r = self.tables(np.float64)
        return e, r, *reference.update(e, r, self.queries, self.negatives, self.rule, self.lr)

    def run(self, core: str, **how: Any) -> tuple[Table, Table, UpdateResult]:
        e, r = self.tables(np.float32)
        with using(core):
            return e, r, wrapper.update(e, r, self.queries, self.negatives, self.rule, self.lr, **how)
