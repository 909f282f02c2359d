"""Losses that compare a predicted vector h with e, the unit vector of the target.

    L = f(κ², c),   κ = ‖h‖,  c = h·e        ∂L/∂h = a h + b e,   a = 2 ∂f/∂κ²,  b = ∂f/∂c

No other candidate is used, so the cost of a step does not depend on V. Therefore e must not be trained (Kumar and
Tsvetkov 2019): with a trained e all vectors would collapse to one point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, ProblemSpec
from embtrain.kernels.scoring import row_products
from embtrain.losses.base import Loss, LossConfig, LossTraits


class Terms(NamedTuple):
    """Loss of each example and the coefficients of its gradient, (B,) each."""

    value: Tensor
    a: Tensor
    b: Tensor


class Continuous(Loss):
    """Base of these losses. Subclasses implement `terms`."""

    traits = LossTraits(cost_label="s, the score of the negative", candidate_scope="target", needs_frozen_table=True)

    def __init__(self, config: LossConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self._check_dim(problem.dim)

    def _check_dim(self, dim: int) -> None:
        """Raise UsageError for one dimension. embtrain.nn builds a loss before the first call has D: dim is 0 then."""
        if dim == 1:
            raise UsageError(f"model.dim: 1: loss {self.name} needs directions, but in one dimension there are only "
                             "two; set 2 or more")

    def terms(self, kappa2: Tensor, c: Tensor, d: int) -> Terms:
        """Return f, a and b for κ² and c, (B,) each, in d dimensions; finite at κ = 0."""
        raise AbstractMethod(self, "terms")

    def example(self, scored: LossInput) -> Tensor:
        assert scored.whole_table is not None, "train/checks/compatibility.py rejects engines that do not pass it on"
        self._check_dim(scored.query.vector.shape[1])
        return _Along.apply(scored.query.vector, scored.whole_table.target_vectors(), self.terms)


class _Along(torch.autograd.Function):
    """f with its gradient in h. h and e are read once in the forward and once in the backward pass."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, e: Tensor, terms: Callable[[Tensor, Tensor, int], Terms]) -> Tensor:
        h, e = h.contiguous(), e.to(h.dtype).contiguous()
        value, a, b = terms(*_measure(h, e), h.shape[1])
        ctx.save_for_backward(h, e, a, b)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        h, e, a, b = ctx.saved_tensors
        return _combine(h, e, grad * a, grad * b), None, None


def _measure(h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """Return κ² and c of each row, (B,)."""
    if h.device.type != "cpu":
        return torch.linalg.vector_norm(h, dim=1).square(), (h * e).sum(1)
    kappa2, c = row_products.measure(h.detach().numpy(), e.detach().numpy(), torch.get_num_threads())
    return torch.from_numpy(kappa2), torch.from_numpy(c)


def _combine(h: Tensor, e: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a h + b e, (B, D)."""
    if h.device.type != "cpu":
        return (h * a.unsqueeze(1)).addcmul_(e, b.unsqueeze(1))
    a, b = a.contiguous(), b.contiguous()
    return torch.from_numpy(row_products.combine(h.numpy(), e.numpy(), a.numpy(), b.numpy(), torch.get_num_threads()))


def inverse(x: Tensor) -> Tensor:
    """Return 1 / x, and 0 at x = 0: a vector of length 0 has no direction."""
    return torch.where(x > 0, 1 / x.clamp(min=torch.finfo(x.dtype).tiny), 0.0)
