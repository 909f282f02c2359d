"""Positions of vectors in two dimensions: UMAP or openTSNE if installed, else the two principal components.

The seed is fixed, and every method runs on one thread: the same vectors give the same positions on one machine.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 0
MIN_GRAPH = 50       # entries from which the methods on neighbour graphs are used
Positions = NDArray[np.float64]


def layout(unit: NDArray[np.float32]) -> tuple[Positions, str]:
    """Return positions (m, 2) of unit vectors (m, D), both axes on one scale within 0 and 1; and how to read them."""
    for module, place, about in _GRAPH_METHODS if len(unit) >= MIN_GRAPH else ():
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the library
            positions = np.asarray(place(library, unit), np.float64)
        if np.isfinite(positions).all():
            return scaled(positions), about
    positions, share = principal_components(unit)
    return scaled(positions), (f"The map shows the two principal components of the unit vectors, {share:.0%} of their "
                               "variance: neighbours may be far apart on it")


def principal_components(unit: NDArray[np.float32]) -> tuple[Positions, float]:
    """Return coordinates (m, 2) on the two leading principal components, and their share of the variance.

    The largest loading of each component is positive, because a component has no sign.
    """
    centred = unit.astype(np.float64)
    centred -= centred.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred)   # ascending
    if axes.shape[1] == 1:                               # vectors of one dimension
        values, axes = np.append(0.0, values), np.concatenate([np.zeros((1, 1)), axes], axis=1)
    axes = axes[:, :-3:-1]                               # (D, 2) the largest first
    axes = axes * np.where(axes[np.abs(axes).argmax(0), [0, 1]] < 0, -1, 1)
    total = float(values.sum())
    return centred @ axes, float(values[-2:].sum()) / total if total > 0 else 0.0


def scaled(positions: Positions) -> Positions:
    """Move positions into the unit square, centred and with one scale for both axes."""
    low, high = positions.min(0), positions.max(0)
    size = float((high - low).max())
    return 0.5 + (positions - (low + high) / 2) / (size if size > 0 else 1.0)


def _umap(library: Any, unit: NDArray[np.float32]) -> Any:
    return library.UMAP(n_components=2, n_neighbors=15, metric="cosine", random_state=SEED, n_jobs=1
                        ).fit_transform(unit)


def _opentsne(library: Any, unit: NDArray[np.float32]) -> Any:
    return library.TSNE(n_components=2, perplexity=min(30, (len(unit) - 1) // 3), metric="cosine", initialization="pca",
                        random_state=SEED, n_jobs=1).fit(unit)


_READ = "the map keeps near entries together; distances between groups mean little"
_GRAPH_METHODS: tuple[tuple[str, Callable[[Any, NDArray[np.float32]], Any], str], ...] = (
    ("umap", _umap, f"By UMAP, {_READ}"), ("openTSNE", _opentsne, f"By t-SNE, {_READ}"))
