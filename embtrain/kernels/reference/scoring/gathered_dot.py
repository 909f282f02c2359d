"""Dot products of queries with gathered rows, and their gradients, in NumPy.

    s_bk = h_b·c_i      n_bk = c_i·c_i      i = ids_bk              h (B, D), c (V, D), ids (B, K)
    ∂h_b = Σ_k g_bk c_i        ∂c_i = Σ_{b,k: ids_bk = i} g_bk h_b + 2 m_bk c_i        g = ∂L/∂s, m = ∂L/∂n

`table_gradient` returns the distinct ids (U,) and their gradients (U, D). The rows are copied here; the compiled core
reads them in place. kernels/scoring/gathered_dot.py runs this file if the core is missing.
"""

from __future__ import annotations

import numpy as np


def products(h: np.ndarray, c: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = c[ids]
    return np.einsum("bd,bkd->bk", h, rows), np.einsum("bkd,bkd->bk", rows, rows)


def query_gradient(g: np.ndarray, c: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return np.einsum("bk,bkd->bd", g, c[ids])


def table_gradient(g: np.ndarray, m: np.ndarray | None, h: np.ndarray, c: np.ndarray, ids: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray]:
    u, index = np.unique(ids, return_inverse=True)
    to = np.zeros((len(u), h.shape[1]), np.float32)
    terms = g[:, :, None] * h[:, None, :]
    if m is not None:
        terms = terms + 2 * m[:, :, None] * c[ids]
    np.add.at(to, index.reshape(-1), terms.reshape(-1, h.shape[1]))
    return u, to
