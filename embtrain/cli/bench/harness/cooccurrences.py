"""Word vectors by counting: the SVD of a matrix of shifted positive pointwise mutual information [levy2015].

    M_ab = max(0, log(N_ab Σ_c N_c^α / (N_a N_b^α)) − log k)        M ≈ U S Vᵀ, rank D        u_a = U_a S^p

N_ab counts the pairs (centre a, context b) of one epoch of windows, so window and subsampling are those of skip-gram.
α = .75 smooths the distribution of the contexts. k is the shift, which corresponds to the negatives of skip-gram, and p
the exponent of the singular values. The SVD is SciPy's, by ARPACK: the randomized one of scikit-learn takes a third of
the time, and its vectors are worse on rare words, because the singular values fall slowly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.linalg import ArpackError, svds

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError
from embtrain.data.text.windows import SkipGramWindows

ALPHA = 0.75
CENTRES = 1 << 18       # counted at once
PAIR_BYTES = 60         # of one pair while it is counted: ids, sparse triples and their sorted copy
CELL_BYTES = 56         # of one non-zero cell: N, M, and the float64 terms of the logarithm
BASES = 5               # arrays (V, D) that the SVD holds at once: 2 of the Krylov space, U, V and the vectors


class Factors(NamedTuple):
    """The truncated SVD of M."""

    left: np.ndarray     # (V, D) float32
    size: np.ndarray     # (D,) float32  singular values, ascending

    def vectors(self, exponent: float) -> np.ndarray:
        """Return the vectors U S^p, (V, D)."""
        return self.left * self.size ** exponent


def check_memory(windows: SkipGramWindows, n_words: int, dim: int) -> None:
    """Raise ResourceError if counting and the SVD may need more memory than there is."""
    pairs, window = windows.examples_per_epoch, windows.examples_per_epoch / max(1.0, windows.kept_counts.sum())
    cells = min(pairs, float(n_words) ** 2)
    need = CELL_BYTES * cells + PAIR_BYTES * CENTRES * window + 4 * BASES * n_words * dim
    if need > (free := machine.free()):
        raise ResourceError(f"bench ppmi: counting up to {cells:,.0f} cells needs about {need / 2**30:.1f} GiB, and "
                            f"{free / 2**30:.1f} GiB are free; give a shorter text: --corpus")


def count(windows: SkipGramWindows, n_words: int) -> csr_matrix:
    """Return N (V, V) int32, the pairs (centre, context) of the first epoch in chunks of CENTRES windows."""
    counts = csr_matrix((n_words, n_words), dtype=np.int32)
    for batch in windows.blocks(0, CENTRES, shuffle=False):
        ones = np.ones(len(batch), np.int32)
        ids = batch.centre.numpy().astype(np.int32), batch.target.numpy().astype(np.int32)
        counts = counts + coo_matrix((ones, ids), shape=counts.shape).tocsr()
    return counts


def ppmi(counts: csr_matrix, shift: float) -> csr_matrix:
    """Return M (V, V) float32 of the counts N; shift: k."""
    centre = np.asarray(counts.sum(1), np.float64).ravel()
    context = np.asarray(counts.sum(0), np.float64).ravel() ** ALPHA
    with np.errstate(divide="ignore"):                # words without a pair have no cell
        log_centre, log_context = np.log(centre), np.log(context / context.sum())
    row = np.repeat(np.arange(len(centre), dtype=np.int32), np.diff(counts.indptr))
    values = np.log(counts.data) - log_centre[row] - log_context[counts.indices] - np.log(shift)
    is_positive = values > 0
    start = np.concatenate([[0], np.cumsum(np.bincount(row[is_positive], minlength=len(centre)))])
    return csr_matrix((values[is_positive].astype(np.float32), counts.indices[is_positive], start), shape=counts.shape)


def factors(counts: csr_matrix, shift: float, dim: int, seed: int) -> Factors:
    """Return the SVD of M of the counts N, truncated to D = `dim`; seed: of the first vector of the iteration.

    Vectors are 0 if no cell of M is positive. DataError if there are no more than D words, or if ARPACK fails.
    """
    n, matrix = counts.shape[0], ppmi(counts, shift)
    if n <= dim:
        raise DataError(f"bench ppmi: {n} words, and vectors of {dim} numbers need more; give a longer text: --corpus")
    if matrix.nnz == 0:
        return Factors(np.zeros((n, dim), np.float32), np.zeros(dim, np.float32))
    start = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    try:
        left, size, _ = svds(matrix, dim, v0=start)
    except ArpackError as error:
        raise DataError(f"bench ppmi: the SVD failed ({error}); give a longer text: --corpus") from error
    return Factors(left.astype(np.float32), size.astype(np.float32))
