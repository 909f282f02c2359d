"""The state of a module as one tensor of bytes, and the checks that it fits the module that loads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.negatives.base import NegativeSource
from embtrain.nn.arguments import HALF, of_type
from embtrain.nn.rows import OutputLayer
from embtrain.nn.source import SourceSpec
from embtrain.train.state import serialize

REMEDY = "load it into a module made with the same arguments"
NONE = type(None)
# Entries of a state and their types.
ENTRIES: dict[str, Any] = {"negatives": str, "classes": int, "settings": dict, "contexts": (tuple, NONE),
                           "vectors": (tuple, NONE), "source": (dict, NONE), "calls": int, "counts": (dict, NONE),
                           "new_seed": (int, NONE)}


class VectorFormat(NamedTuple):
    """The vectors that a source reads: dimensions, whether a bias is one more, and the dtype."""

    dim: int
    has_bias: bool
    dtype: str

    @classmethod
    def read(cls, query: Tensor, table: OutputLayer) -> Self:
        """The format of the vectors of a call. Sources receive half precision as float32."""
        dtype = torch.float32 if query.dtype in HALF else query.dtype
        return cls(table.weight.shape[1], table.bias is not None, str(dtype).removeprefix("torch."))

    @property
    def n_columns(self) -> int:
        """Numbers of a vector, the bias included."""
        return self.dim + self.has_bias

    def check(self, now: VectorFormat, source: str) -> None:
        """Raise UsageError if a source with vectors of this format receives those of a call."""
        end = "make one module for each output layer"
        if now.dim != self.dim:
            raise UsageError(f"query: has {now.dim} dimensions, but the state of {source} is for {self.dim}; {end}")
        if now.has_bias != self.has_bias:
            raise UsageError(f"bias: the state of {source} is for a weight {'with' if self.has_bias else 'without'} a "
                             f"bias, and this call has {'one' if now.has_bias else 'none'}; {end}")
        if now.dtype != self.dtype:
            raise UsageError(f"query: has the dtype {now.dtype}, but the state of {source} is for {self.dtype}; "
                             "convert query and weight, or make one module for each dtype")


def check_vectors(now: VectorFormat, known: VectorFormat | None, spec: SourceSpec, state: Mapping[str, Any] | None
                  ) -> None:
    """Raise UsageError if a source whose state was computed from vectors receives vectors of another format.

    known: the format of earlier calls, or of the call before a state was saved.
    """
    if known is None and spec.given is not None and spec.given.dim not in (0, now.n_columns):
        known = VectorFormat(spec.given.dim, False, now.dtype)
    if known is not None and state is not None and spec.source_class.traits.uses_model \
            and any(x.is_floating_point() for x in _tensors(state)):       # else they are ids and random numbers
        known.check(now, spec.source_class.name)


def _tensors(node: Any) -> Iterator[Tensor]:
    """The tensors of a nested state."""
    if isinstance(node, Tensor):
        yield node
    elif isinstance(node, Mapping | list | tuple):
        for value in node.values() if isinstance(node, Mapping) else node:
            yield from _tensors(value)


def to_tensor(state: Mapping[str, Any]) -> Tensor:
    """A state with the keys of ENTRIES as bytes, (n,) uint8."""
    return torch.frombuffer(bytearray(serialize.to_bytes(dict(state))), dtype=torch.uint8)


def from_tensor(saved: Tensor) -> dict[str, Any]:
    """The state of `to_tensor`. Raises UsageError for another type, DataError for other bytes."""
    of_type("_extra_state", saved, Tensor, "the tensor of bytes that state_dict() returned")
    if saved.dtype != torch.uint8:
        raise UsageError(f"_extra_state: has the dtype {saved.dtype}; it should be the tensor of bytes that "
                         "state_dict() returned")
    state = serialize.from_bytes(saved.cpu().numpy().tobytes(), "_extra_state")
    if state.keys() != ENTRIES.keys() or any(not isinstance(state[key], kind) for key, kind in ENTRIES.items()):
        raise DataError("_extra_state: is not the state of a module of embtrain.nn")
    return state


def check_fit(state: Mapping[str, Any], spec: SourceSpec, num_classes: int, streams_counts: bool) -> None:
    """Raise UsageError if a state was saved by a module with other arguments that it depends on.

    A source whose state is its random numbers alone goes on under other settings and contexts.
    """
    if state["classes"] != num_classes:
        raise UsageError(f"num_classes: the state has {state['classes']:,} classes, this module has {num_classes:,}; "
                         "load it into a module of the same size")
    if state["negatives"] != spec.source_class.name:
        raise UsageError(f"negatives: the state is that of {state['negatives']}, and this module has "
                         f"{spec.source_class.name}; {REMEDY}")
    if (state["counts"] is None) == streams_counts:
        raise UsageError(f"counts: the state was saved by a module that {'had' if streams_counts else 'streamed its'} "
                         f"counts; {REMEDY}")
    if state["source"] is None or state["source"].keys() == {"random"}:
        return
    if state["contexts"] != spec.context_sizes:
        raise UsageError(f"num_contexts: the state has {_sizes(state['contexts'])}, this module has "
                         f"{_sizes(spec.context_sizes)}; {REMEDY}")
    settings = spec.config.own()
    for key in sorted(settings.keys() | state["settings"].keys()):
        saved, ours = state["settings"].get(key), settings.get(key)
        if saved != ours:
            raise UsageError(f"{key}: the state was saved with {saved!r}, this module has {ours!r}; {REMEDY}")


def _sizes(sizes: tuple[int, ...] | None) -> str:
    return "none" if sizes is None else " × ".join(f"{size:,}" for size in sizes)


def load(source: NegativeSource, state: Mapping[str, Any]) -> None:
    """Load the state of a source. Raises UsageError if it does not fit, for example that of another kind of device."""
    try:
        source.load_state_dict(state)
    except (EmbtrainError, MemoryError, torch.OutOfMemoryError):
        raise
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"_extra_state: does not fit {source.name} on {source.problem.device}: "
                         f"{' '.join(str(error).split())}; {REMEDY}, on the same kind of device") from error
