"""What a kernel is to a tree: a map φ with K(h, c) = φ(h)·φ(c), exactly or on average over random directions.

Vectors come scaled, x = s h and y = s c, so that x·y = s² h·c.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embtrain.negatives.softmax.kernels.sum_tree import MAX_NUMBERS


class FeatureMap:
    width: int                # W, numbers of φ
    description: str = ""     # its settings, for messages
    positive: bool = False    # φ(h)·φ(c) is never negative, but may be far too small; else noise makes it negative

    @property
    def row_width(self) -> int:
        """Numbers of a vector that `kernel` and `every` work on: those of φ, or fewer where they do without it."""
        return self.width

    def scale(self, tau: float) -> float:
        """s for a model whose scores are τ times an inner product (dot: τ = 1)."""
        raise TypeError(f"{type(self).__name__} does not implement scale")

    def fit(self, sample: Tensor, largest: float) -> None:
        """Offsets that keep φ within float32, from some vectors y (n, d) and the largest ‖y‖² of all."""

    def encode_classes(self, y: Tensor) -> Tensor:
        """φ(c), (n, W) in the precision of y (n, d)."""
        raise TypeError(f"{type(self).__name__} does not implement of_class")

    def encode_queries(self, x: Tensor) -> Tensor:
        """φ(h), (Q, W) for x (Q, d); up to a factor a(h) that depends on the question alone."""
        raise TypeError(f"{type(self).__name__} does not implement of_query")

    def log_neutral(self, x: Tensor) -> Tensor:
        """log of K at x·y = 0, with the factors that of_query and of_class left out: (Q,)."""
        return torch.zeros(len(x), dtype=x.dtype, device=x.device)

    def sums(self, y: Tensor, prior: Tensor) -> Tensor:
        """Σ π φ(c) of blocks y (n, L, d) with π (n, L): (n, W)."""
        phi = self.encode_classes(y.flatten(0, 1)).view(*y.shape[:2], -1)
        return torch.bmm(prior.unsqueeze(1), phi).squeeze(1)

    def all_products(self, x: Tensor, phi: Tensor, query_id: Tensor, y: Tensor) -> Tensor:
        """φ(h)·φ(c) of questions asks (q,) of x (Q, d) and φ(h) (Q, W) with all of y (n, d): (q, n)."""
        phi_rows, rows_per_chunk = phi[query_id], max(1, MAX_NUMBERS // self.width)
        return torch.cat([phi_rows @ self.encode_classes(part).T for part in y.split(rows_per_chunk)], 1)

    def kernel(self, x: Tensor, phi: Tensor, y: Tensor) -> Tensor:
        """φ(h)·φ(c) of x (P, d), φ(h) (P, W) and y (P, L, d): (P, L)."""
        return torch.bmm(self.encode_classes(y.flatten(0, 1)).view(*y.shape[:2], -1), phi.unsqueeze(2)).squeeze(2)

    def fourier(self) -> tuple[Tensor, float] | None:
        """w (D, d) float32 and L, where φ(h) is that of random Fourier features and ε(h) ∝ e^{-(‖x‖² + L)/2}."""
        return None

    def state(self) -> dict[str, Tensor]:
        """What was drawn and fitted."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
