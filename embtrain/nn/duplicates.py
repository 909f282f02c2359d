"""Copies and pickles of a module.

A source object of the user is copied itself, because arguments of its constructor and attributes that were set later
are known to it alone. A source of embtrain has pointers; it is built again from config and problem and loads its state,
and so is a source of the user that cannot be copied, for example because it contains a lock.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
import io
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


@dataclass(frozen=True)
class Kept:
    """The source object in a copy or pickle."""

    source: NegativeSource


class _Sink(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


class _TrialPickler(ForkingPickler):
    """Pickles an object as for a file. ForkingPickler itself moves tensors to memory that processes share."""

    def __init__(self) -> None:
        super().__init__(_Sink())
        self.dispatch_table = copyreg.dispatch_table


_on_trial: set[int] = set()  # ids of sources


def _is_kept(source: NegativeSource) -> bool:
    """Whether a copy of a module contains its source object. UsageError if it can be neither copied nor built again."""
    if is_ours(type(source)):
        return False
    if id(source) in _on_trial:              # it refers to the network that contains the module
        return True
    _on_trial.add(id(source))
    try:
        tried = [_failure(lambda: _TrialPickler().dump(source)), _failure(lambda: _duplicate(source))]
        errors = [error for error in tried if error is not None]
        if not errors or _is_built_by_problem(source):
            return not errors
        if len(errors) < len(tried):         # as of a class inside a function, which can be copied, but not pickled
            return True
    finally:
        _on_trial.discard(id(source))
    raise UsageError(f"negatives: {described(source)}: cannot be copied or saved with its module: "
                     f"{type(errors[-1]).__name__}: {errors[-1]}; leave that value out in __getstate__, or let the "
                     "constructor take config and problem alone") from errors[-1]


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


def _duplicate(source: NegativeSource) -> NegativeSource:
    """A copy of a source, with the same problem."""
    return copy.deepcopy(source, {id(source.problem): source.problem})


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
    kept = source if source is not None and _is_kept(source) else None
    given = None if kept is None else Kept(kept)
    return {**_replaced(attributes, given), "_step": None, "_pending": saved(kept).numpy().tobytes()}


def restored(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of `copied`, with the source object in its place."""
    kept = (attributes if _GIVEN in attributes else attributes["_modules"])[_GIVEN]
    return _replaced(attributes, kept and kept.source)


def _replaced(attributes: Mapping[str, Any], given: NegativeSource | Kept | None) -> dict[str, Any]:
    """Attributes of a module with another source object, in the same place: one of PyTorch's modules is among them."""
    if _GIVEN in attributes:
        return {**attributes, _GIVEN: given}
    return {**attributes, "_modules": {**attributes["_modules"], _GIVEN: given}}


def _to_process(kept: Kept) -> tuple[Callable[..., Kept], tuple[NegativeSource]]:
    return _received, (kept.source,)


def _received(source: NegativeSource) -> Kept:
    """A source in memory of its own: PyTorch shares tensors between the processes, and a source updates them."""
    return Kept(_duplicate(source))


def _generator_to_process(generator: torch.Generator) -> tuple[Callable[..., torch.Generator], tuple[str, bytes]]:
    """The generator as bytes. PyTorch pickles it as a temporary tensor, which a spawned process cannot open."""
    return _generator, (str(generator.device), generator.get_state().numpy().tobytes())


def _generator(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device=device)
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


ForkingPickler.register(Kept, _to_process)
ForkingPickler.register(torch.Generator, _generator_to_process)
