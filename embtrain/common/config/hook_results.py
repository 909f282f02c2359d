"""Checks of the results of hooks of a user's class: each function returns the problem with a result, or ""."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_DEPTH = 50  # levels of a state, as in a checkpoint


def floats_problem(result: Any, shape: tuple[int | str, ...], meaning: str, device: torch.device) -> str:
    """The problem with floats of a shape on a device. A size with a name, as in (5, 'D'), may be any."""
    sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    expected = f"return floats of shape ({sizes}), {meaning}"
    if not isinstance(result, Tensor):
        return f"returned {type(result).__name__}; {expected}"
    fits = len(shape) == result.ndim and all(isinstance(size, str) or size == n
                                             for size, n in zip(shape, result.shape, strict=True))
    if not fits or not result.is_floating_point():
        return f"returned {result.dtype} of shape {tuple(result.shape)}; {expected}"
    if not is_on(result, device):
        return f"returned a tensor on {result.device}; {expected}, on {device}"
    return ""


def is_on(value: Tensor, device: torch.device) -> bool:
    """Whether a tensor is on a device, of whose kind any fits if it has no number."""
    return value.device.type == device.type and device.index in (None, value.device.index)


def metrics_problem(_: Any, result: Any, *__: Any, **___: Any) -> str:
    """The problem with metrics for the log, a dict of names and numbers."""
    if not isinstance(result, dict):
        return f"returned {type(result).__name__}; return a dict of names and numbers, {{}} for none"
    for name, value in result.items():
        if not isinstance(name, str) or not isinstance(value, int | float):
            return f"returned {type(value).__name__} for {name!r}; return a number for each name, as float(value)"
    return ""


def state_problem(value: Any, where: str = "", depth: int = MAX_DEPTH) -> str:
    """The problem with a state: values that a checkpoint cannot contain."""
    if isinstance(value, Tensor):
        if value.layout == torch.strided and not value.is_quantized and not value.is_meta:
            return ""
        return f"returned a sparse, quantized or meta tensor{where and f' at {where}'}; return a dense one"
    if depth == 0:
        return f"returned more than {MAX_DEPTH} levels; return a flat state"
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str | int) or isinstance(name, bool):
                return f"returned the key {name!r}{where and f' at {where}'}; return keys that are str or int"
        return next(filter(None, (state_problem(x, f"{where}[{name!r}]", depth - 1) for name, x in value.items())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (state_problem(x, f"{where}[{i}]", depth - 1) for i, x in enumerate(value))), "")
    if value is None or isinstance(value, bool | int | float | str):
        return ""
    return (f"returned {type(value).__name__}{where and f' at {where}'}, which a checkpoint cannot contain; return "
            "tensors, numbers or text, in dicts, lists and tuples")
