"""Bitwise equality of nested states."""

from __future__ import annotations

import struct
from typing import Any

import torch


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure, order and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return struct.pack(">d", a) == struct.pack(">d", b) if isinstance(a, float) else a == b


def bits(x: torch.Tensor) -> bytes:
    return x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
