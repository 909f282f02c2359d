"""Copies and pickles of a module.

A source object of the user is copied itself, because arguments of its constructor and attributes that were set later
are known to it alone. A source of embtrain has pointers; it is built again from config and problem and loads its state.
So is a source of the user that cannot be copied or pickled, for example because it contains a lock, with a warning.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
import io
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import described, is_ours, unchecked
from embtrain.common.errors import UsageError
from embtrain.negatives.base import NegativeSource

_GIVEN = "_given"  # attribute of the source object
_log = logging.getLogger("embtrain")


class _Sink(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


class _TrialPickler(ForkingPickler):
    """Pickles an object as for a file, without other sources: each has a trial of its own.

    A source may refer to the network that contains its module and others. ForkingPickler itself moves tensors to memory
    that processes share.
    """

    def __init__(self) -> None:
        super().__init__(_Sink())
        self.dispatch_table = {**copyreg.dispatch_table, Kept: lambda _: (Kept, (None,))}


_TRIAL = object()  # its id is a key of the dict of a copy that is a trial, without other sources as well


@dataclass(frozen=True)
class Kept:
    """The source object of the user in a copy or pickle of a module."""

    source: NegativeSource | None             # None: it is built from the state
    state: bytes = b""                        # of the module, from which a source is built again
    saved: Callable[[], bytes] = bytes        # returns the state, when it is needed

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        if id(_TRIAL) in memo:
            return Kept(None)
        error = self._copy_failure(memo)
        return Kept(copy.deepcopy(self.source, memo)) if error is None else Kept(None, self._state_after(error))

    def __reduce__(self) -> tuple[type[Kept], tuple[Any, ...]]:
        if self.source is None:
            return Kept, (None, self.state)
        error = _failure(lambda: _TrialPickler().dump(self.source))
        # Other picklers can save more than that of Python: cloudpickle, of Ray and Dask, a class in a function.
        if error is None or (not _is_built_by_problem(self.source) and self._copy_failure({}) is None):
            return Kept, (self.source,)
        return Kept, (None, self._state_after(error))

    def _copy_failure(self, memo: dict[int, Any]) -> Exception | None:
        """The error of a trial, in a dict of its own: a copy that fails leaves unfinished objects in it."""
        return _failure(lambda: copy.deepcopy(self.source, {**memo, id(_TRIAL): _TRIAL}))

    def _state_after(self, error: Exception) -> bytes:
        """The state from which the source is built again. UsageError if it cannot be built."""
        assert self.source is not None
        problem = f"negatives: {described(self.source)}: cannot be copied or saved with its module: " \
                  f"{type(error).__name__}: {error}; leave that value out in __getstate__"
        if not _is_built_by_problem(self.source):
            raise UsageError(f"{problem}, or let the constructor take config and problem alone") from error
        _log.warning("%s; it is built again from config, problem and state_dict, without other attributes", problem)
        return self.saved()


def _failure(call: Callable[[], object]) -> Exception | None:
    """The error of a call in code of the user; None for none. Errors of the memory are raised."""
    try:
        call()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "can't allocate memory" in str(error):
            raise
        return error
    return None


def _is_built_by_problem(source: NegativeSource) -> bool:
    """Whether config and problem are all arguments of the constructor, which may pass them on as *args."""
    component = unchecked(type(source))
    for base in component.__mro__:
        if is_ours(base):
            break
        if "__init__" in vars(base):
            _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            variable = [x for x in parameters if x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            if len(parameters) - len(variable) > 2:
                return False
            if not variable:
                break
    return _failure(lambda: component(source.config, source.problem)) is None


def copied(attributes: Mapping[str, Any], source: NegativeSource | None,
           saved: Callable[[NegativeSource | None], Tensor]) -> dict[str, Any]:
    """Attributes of a copy of a module, with its state as bytes.

    source: the source object of the module. saved: the state without that of the source that a copy contains.
    """
    def state(kept: NegativeSource | None = None) -> bytes:
        return saved(kept).numpy().tobytes()

    kept = None if source is None or is_ours(type(source)) else source
    given = None if kept is None else Kept(kept, saved=state)
    return {**_replaced(attributes, given), "_step": None, "_pending": state(kept)}


def restored(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of `copied`, with the source object in its place."""
    kept = (attributes if _GIVEN in attributes else attributes["_modules"])[_GIVEN] or Kept(None)
    return {**_replaced(attributes, kept.source), "_pending": kept.state or attributes["_pending"]}


def _replaced(attributes: Mapping[str, Any], given: NegativeSource | Kept | None) -> dict[str, Any]:
    """Attributes of a module with another source object, in the same place: one of PyTorch's modules is among them."""
    if _GIVEN in attributes:
        return {**attributes, _GIVEN: given}
    return {**attributes, "_modules": {**attributes["_modules"], _GIVEN: given}}


def _to_process(kept: Kept) -> tuple[Callable[..., Kept], tuple[Any, ...]]:
    return _received, kept.__reduce__()[1]


def _received(source: NegativeSource | None, state: bytes = b"") -> Kept:
    """A source in memory of its own: PyTorch shares tensors between the processes, and a source updates them."""
    return Kept(source and copy.deepcopy(source, {id(source.problem): source.problem}), state)


def _generator_to_process(generator: torch.Generator) -> tuple[Callable[..., torch.Generator], tuple[str, bytes]]:
    """The generator as bytes. PyTorch pickles it as a temporary tensor, which a spawned process cannot open."""
    return _generator, (str(generator.device), generator.get_state().numpy().tobytes())


def _generator(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device=device)
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


ForkingPickler.register(Kept, _to_process)
ForkingPickler.register(torch.Generator, _generator_to_process)
