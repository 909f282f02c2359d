"""Hubness: whether some rows of a table are near to all others, as neighbours of a mean often are.

    e_b: rows at length 1,  f_b: share of b among the positives,  ē = Σ_b f_b e_b
    mean cosine     Σ_{a≠b} e_a·e_b / V(V − 1) = (‖Σ_b e_b‖² − V) / V(V − 1)
    hubs            the rows nearest to ē: the predictions of an untrained model (Lazaridou et al. 2015)
    crowding        of rows of some frequency, the mean over b of max_{a≠b} e_a·e_b: rare words with almost equal
                    vectors cannot be distinguished (Tokarchuk and Niculae 2024)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

N_HUBS, MAX_BAND_ROWS, MAX_PRODUCTS_HELD = (
    6,
    1000,
    8_000_000,
)  # rows listed; rows per band, evenly spaced; products in memory at once
FREQUENCY_BANDS = (("100 times and more", 100, float("inf")), ("6 to 99 times", 6, 100), ("at most 5 times", 0, 6))


@dataclass(frozen=True)
class Hub:
    """A row that is near to the mean, with its frequency in the data."""

    name: str
    count: float
    cosine: float    # to ē


@dataclass(frozen=True)
class FrequencyBand:
    """Crowding of the rows within a range of frequencies."""

    name: str
    rows: int
    crowding: float


@dataclass(frozen=True)
class Hubness:
    """Hubness of one table."""

    rows: int
    mean_cosine: float
    hubs: Sequence[Hub]
    bands: Sequence[FrequencyBand]    # bands without rows are left out


def hubness(table: Tensor, counts: Tensor, names: Sequence[str] | None, times: Tensor | None = None) -> Hubness:
    """Measure table (V, D), V ≥ 2, with counts (V,) of positives.

    names: of the rows; None: their ids. times (V,): occurrences in the data, for hubs and bands; None: counts.
    """
    V = len(table)
    e = torch.nn.functional.normalize(table.double(), dim=1).float()
    total, f = e.double().sum(0), counts.double().to(e.device)
    times = f if times is None else times.to(e.device)
    mean = (f / f.sum().clamp(min=1)).to(e.dtype) @ e                                      # ē
    cosine_to_mean = e @ torch.nn.functional.normalize(mean, dim=0)
    hubs = [Hub(str(b) if names is None else names[b], float(times[b]), float(cosine_to_mean[b]))
            for b in cosine_to_mean.topk(min(N_HUBS, V)).indices.tolist()]
    bands = []
    for name, low, high in FREQUENCY_BANDS:
        rows = ((times >= low) & (times < high)).nonzero()[:, 0]
        if len(rows):
            bands.append(
                FrequencyBand(name, len(rows), float(_nearest(e, rows[:: -(-len(rows) // MAX_BAND_ROWS)]).mean()))
            )
    n = int(e.any(1).sum())                                                                # zero rows have no direction
    return Hubness(V, float((total @ total - n) / max(1, n * (n - 1))), hubs, bands)


def _nearest(e: Tensor, rows: Tensor) -> Tensor:
    """max_{a≠b} e_a·e_b of the given rows b."""
    nearest = []
    for chunk in rows.split(max(1, MAX_PRODUCTS_HELD // len(e))):
        s = e[chunk] @ e.T
        nearest.append(s.scatter_(1, chunk.unsqueeze(1), -torch.inf).amax(1))
    return torch.cat(nearest)
