"""Interface of feature maps φ with K(h, c) = φ(h)·φ(c), exactly or on average over random directions.

Vectors are scaled, x = s h and y = s c, so that x·y = s² h·c.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.negatives.softmax.kernels.sum_tree import MAX_NUMBERS


class FeatureMap:
    """Base class of feature maps. A subclass implements `scale`, `encode_classes` and `encode_queries`."""

    width: int                # W, numbers of φ
    description: str = ""     # settings, for messages
    positive: bool = False    # φ(h)·φ(c) is never negative but may be far too small; else noise makes it negative

    @property
    def row_width(self) -> int:
        """Numbers per vector that `kernel` and `all_products` use: W, or fewer if they do not need φ."""
        return self.width

    def scale(self, tau: float) -> float:
        """Scale s for a model whose scores are τ times an inner product (dot: τ = 1)."""
        raise AbstractMethod(self, "scale")

    def fit(self, sample: Tensor, largest: float) -> None:
        """Fit offsets that keep φ within float32, to sampled vectors y (n, d) and the largest ‖y‖² of all."""

    def encode_classes(self, y: Tensor) -> Tensor:
        """φ(c), (n, W) in the precision of y (n, d)."""
        raise AbstractMethod(self, "encode_classes")

    def encode_queries(self, x: Tensor) -> Tensor:
        """φ(h), (Q, W) for x (Q, d), up to a factor a(h) that depends only on the query."""
        raise AbstractMethod(self, "encode_queries")

    def log_neutral(self, x: Tensor) -> Tensor:
        """log K at x·y = 0, without the factors that encode_queries and encode_classes leave out: (Q,)."""
        return torch.zeros(len(x), dtype=x.dtype, device=x.device)

    def sums(self, y: Tensor, prior: Tensor) -> Tensor:
        """Σ π φ(c) of blocks y (n, L, d) with π (n, L): (n, W)."""
        phi = self.encode_classes(y.flatten(0, 1)).view(*y.shape[:2], -1)
        return torch.bmm(prior.unsqueeze(1), phi).squeeze(1)

    def all_products(self, x: Tensor, phi: Tensor, query_id: Tensor, y: Tensor) -> Tensor:
        """φ(h)·φ(c) of the queries query_id (q,) with all of y (n, d): (q, n). x (Q, d), phi (Q, W)."""
        phi_rows, rows_per_chunk = phi[query_id], max(1, MAX_NUMBERS // self.width)
        return torch.cat([phi_rows @ self.encode_classes(part).T for part in y.split(rows_per_chunk)], 1)

    def kernel(self, x: Tensor, phi: Tensor, y: Tensor) -> Tensor:
        """φ(h)·φ(c) of x (P, d), φ(h) (P, W) and y (P, L, d): (P, L)."""
        return torch.bmm(self.encode_classes(y.flatten(0, 1)).view(*y.shape[:2], -1), phi.unsqueeze(2)).squeeze(2)

    def fourier(self) -> tuple[Tensor, float] | None:
        """Parameters of random Fourier features: w (D, d) float32, and L with ε(h) ∝ e^{-(‖x‖² + L)/2}.

        None for other maps.
        """
        return None

    def state(self) -> dict[str, Tensor]:
        """Random directions and fitted offsets, for a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
