"""Checks that the state of a training has finite numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def is_finite(state: Any) -> bool:
    """Whether all numbers in the tensors of a nested state are finite."""
    if isinstance(state, Tensor):
        # The sum is not finite if one number is not; torch.isfinite would need three times the table's memory.
        return not state.is_floating_point() or math.isfinite(float(state.sum())) or _is_finite_in_double(state)
    if isinstance(state, Mapping):
        return all(map(is_finite, state.values()))
    return not isinstance(state, list | tuple) or all(map(is_finite, state))


def _is_finite_in_double(x: Tensor) -> bool:
    """Whether all numbers of a tensor are finite, also if the sum overflows its type. Its pieces take little memory."""
    pieces = x.split(1 << 16) if x.ndim else (x,)
    return all(math.isfinite(float(piece.sum(dtype=torch.float64))) for piece in pieces)
