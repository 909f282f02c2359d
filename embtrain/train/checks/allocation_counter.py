"""Counts the tensor memory that PyTorch allocates and frees during a computation.

Models, losses and sources do not declare the sizes of their arrays, so they are measured here, including those of
other packages.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class AllocationCounter(TorchDispatchMode):
    """Counts the bytes of tensors that are allocated while it is active and still alive.

    live[i]: bytes after operation i. Temporary memory inside an operation and NumPy arrays are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live, self._current, self._size = list[int](), 0, dict[int, int]()

    @property
    def peak(self) -> int:
        """Largest number of live bytes after any operation."""
        return max(self.live, default=0)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not hidden from `torch.compile`: that would import torch._dynamo (common/optimizers/eager.py)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_iter((args, kwargs or {})):
            self._record(value, False)             # existed before, or it would be recorded
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            self._record(value, True)
        self.live.append(self._current)
        return result

    def _record(self, value: object, is_new: bool) -> None:
        for tensor in _dense_parts(value):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._size:
                self._size[key] = storage.nbytes() if is_new else 0
                self._current += self._size[key]
                weakref.finalize(storage, self._release, key).atexit = False

    def _release(self, key: int) -> None:
        self._current -= self._size.pop(key)


def _dense_parts(value: object) -> Iterator[Tensor]:
    """The dense tensors that contain a value's elements: two for a sparse tensor."""
    if not isinstance(value, Tensor) or value.is_meta:
        return
    if value.layout == torch.sparse_coo:
        yield from (value._indices(), value._values())
    elif value.layout == torch.strided:
        yield value
