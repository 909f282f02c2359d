"""What torch makes and lets go while something runs, counted.

No model, loss or source says how large its arrays are: whatever they make is seen here, those of other packages too.
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
    """Counts the bytes of the tensors that are made while it is on and still alive.

    live[i]: after operation i. What an operation takes only while it runs, and NumPy's arrays, are not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live, self._current, self._size = list[int](), 0, dict[int, int]()

    @property
    def peak(self) -> int:
        return max(self.live, default=0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_iter((args, kwargs or {})):
            self._record(value, False)             # was there before, or it would be known
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
    """The tensors that a value's numbers lie in: of a sparse one two."""
    if not isinstance(value, Tensor) or value.is_meta:
        return
    if value.layout == torch.sparse_coo:
        yield from (value._indices(), value._values())
    elif value.layout == torch.strided:
        yield value
