"""Counts operations that make the host wait for the device: their result, or its size, is read on the host.

    with HostWaits() as waits:
        step(block)
    waits.counts  # operation -> number

Counted on the CPU, where the same PyTorch operations run; a GPU takes other branches where the compiled core serves the
CPU alone, so run with the core off (helpers.cores.using).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations whose result has a size that depends on values, or is a number of the host.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive",
           "bincount", "equal"}
#: Methods that read values without an operation.
READING = {"tolist": Tensor.tolist, "numpy": Tensor.numpy}


def _waits(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        is_masked = any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        return is_masked and (name == "index" or args[2].numel() != 1)       # a single value becomes a masked_fill
    return name in WAITING


class HostWaits:
    """A context in which waits are counted, by operation."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.is_paused = False
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def count(self, name: str) -> None:
        if not self.is_paused:
            self.counts[name] += 1

    def __enter__(self) -> Self:
        self._stack.enter_context(_Operations(self))
        self._stack.enter_context(_Methods(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


class _Operations(TorchDispatchMode):
    def __init__(self, waits: HostWaits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        name = operation.overloadpacket.__name__
        if _waits(name, args, kwargs or {}):
            self.waits.count(name)
        return operation(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __init__(self, waits: HostWaits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        for name, method in READING.items():
            if function is method:
                self.waits.count(name)
        return function(*args, **(kwargs or {}))
