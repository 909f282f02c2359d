"""Checks of arguments, and their names in the messages of sources and losses.

Each check raises UsageError with one line: `argument: value: what would be right`. A check reads attributes of a tensor
and never its values, so that the host does not wait for a device.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from embtrain.common.errors import UsageError

MAX_SEED = 2**64 - 1     # of torch.Generator
HALF = (torch.float16, torch.bfloat16)     # scores in these types are converted: a loss needs more digits
FLOATS = (*HALF, torch.float32, torch.float64)


# -- checks -----------------------------------------------------------------------------------------------------------

def type_of(value: Any) -> str:
    """Name the type of a value, or the class that the user passed."""
    if value is None or isinstance(value, type):
        return "None" if value is None else f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def truth(name: str, value: Any) -> bool:
    """Return a truth value as bool; 0 and 1 are accepted."""
    if not isinstance(value, int | np.bool_) or value not in (0, 1):
        raise UsageError(f"{name}: {value!r}: should be True or False")
    return bool(value)


def one_of(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Refuse a value that is not one of the choices."""
    if not isinstance(value, str | None) or value not in choices:
        raise UsageError(f"{name}: {value!r}: should be one of {', '.join(map(str, choices))}")


def scale_of(scale: Any, similarity: str) -> float:
    """Return the factor of a cosine. Refuse one that is not a number above 0, or that multiplies other scores."""
    if not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise UsageError(f"scale: {scale!r}: should be a number above 0; to train it, multiply the query by it")
    if similarity != "cosine" and scale != 1:
        raise UsageError(f"scale: {scale!r}: multiplies cosines only; set similarity='cosine', or multiply the query "
                         "by it")
    return scale


def of_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Refuse a value of another type. expected: the right argument in words."""
    if not isinstance(value, kind):
        raise UsageError(f"{name}: is {type_of(value)}; it should be {expected}")


def dense_tensor(name: str, value: Any, expected: str = "a tensor") -> None:
    """Refuse a value that is not a tensor of numbers in rows: another type, a sparse layout, a layer without size."""
    of_type(name, value, Tensor, expected)
    if is_lazy(value):
        raise UsageError(f"{name}: has no shape before the first call of its layer; call the layer once")
    if value.layout != torch.strided:
        raise UsageError(f"{name}: has the layout {value.layout}; it should be a dense tensor")


def float_tensor(name: str, value: Any, expected: str = "a tensor of floats") -> None:
    """Refuse a value that is not a dense tensor of a dtype in FLOATS."""
    dense_tensor(name, value, expected)
    if value.dtype not in FLOATS:
        raise UsageError(f"{name}: has the dtype {value.dtype}; it should be one of {', '.join(map(str, FLOATS))}")


def same_device(name: str, value: Tensor, device: torch.device) -> None:
    """Refuse a tensor on another device than that of the weight."""
    if value.device != device:
        raise UsageError(f"{name}: is on {value.device}, but the weight is on {device}; move one of them")


# -- names in messages ------------------------------------------------------------------------------------------------

# Values of `share` and of the key that they set; None: chosen by the source
SHARES: dict[str | None, str | None] = {"row": "row", "query": "window", "block": "block", "batch": "batch", None: None}
# Values of a key that have another name as values of its argument, in lines that name the key.
VALUES = {"negatives.share_draws_by": {key: share for share, key in SHARES.items() if share and key}}
# Arguments in place of the keys of a run, in the order of their replacement.
ARGUMENTS = {"negatives.source": "negatives", "negatives.k": "num_sampled", "negatives.share_draws_by": "share",
             "embtrain.nn: k:": "num_sampled:", "embtrain.nn: filter:": "filter:", "embtrain.nn: ": "",
             "keys here: source, k, filter, share_draws_by, ": "keys here: ", "loss.name": "loss", "negatives.": "",
             "this engine has no exact log Z; set train.engine: autograd, or loss.penalty: 0":
             "a module has no exact log Z; set it to 0",
             "loss.": "loss_options: ", "but model.name: table learns its own; use another model, e.g. skipgram":
             "but this weight is trained; pass frozen=True if its rows have length 1 and are not",
             "model.name: table scores by": "this module's similarity is", "model.dim: 1": "weight: 1 column",
             "conditions on context ids, but this model's contexts have none; choose another source":
             "learns a distribution for each context; pass num_contexts= here and context= in the call",
             "there are no lists of candidates for these data; choose another source":
             "draws from lists that a run alone has; choose another source, and pass negatives of your own as "
             "candidates= in the call",
             "needs contexts that are ids, but this model has none; set":
             "needs one context id for each query; pass num_contexts=, one number, and context= in the call, or set",
             "lower train.lr, or set train.clip": "lower the learning rate, or clip the gradient",
             "lower train.lr": "lower the learning rate"}
# The same for a call with candidates of the user, which a loss describes as a draw.
OF_CANDIDATES = {"loss.name: softmax needs all": "candidates: softmax needs all", "set negatives.source: every":
                 "leave the argument out", "as negatives, but the source drew": "once each, not"}

_replaced: ContextVar[Mapping[str, str] | None] = ContextVar("replaced", default=None)  # by in_arguments; None: outside


def _rename(line: str, replaced: Mapping[str, str]) -> str:
    for key, argument in replaced.items():
        if key in line:
            for value, name in VALUES.get(key, {}).items():
                line = line.replace(value, name)
            line = line.replace(key, argument)
    return line


@contextlib.contextmanager
def in_arguments(arguments: Mapping[str, str] = ARGUMENTS, *, has_candidates: bool = False) -> Iterator[None]:
    """Name arguments instead of the keys of a run in the lines of a UsageError and in the warnings of sources."""
    replaced = {**OF_CANDIDATES, **arguments} if has_candidates else arguments
    token = _replaced.set(replaced)
    try:
        yield
    except UsageError as error:
        raise UsageError(*(_rename(line, replaced) for line in error.args)) from error
    finally:
        _replaced.reset(token)


@contextlib.contextmanager
def outside_inference() -> Iterator[None]:
    """Leave inference mode, whose tensors cannot serve training, with gradients on or off as they are.

    To leave it alone would turn them on.
    """
    has_gradients = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(has_gradients):
        yield


@contextlib.contextmanager
def source_call(device: torch.device) -> Iterator[None]:
    """Call a method of a source, with arguments in place of keys in its messages.

    Outside of autocast, and of inference mode: the tensors that it creates also serve training.
    """
    with outside_inference(), torch.autocast(device.type, enabled=False), in_arguments():
        yield


def _rename_warning(record: logging.LogRecord) -> bool:
    """Rewrite a warning that a source logs inside `in_arguments`; a filter that keeps every record."""
    if (replaced := _replaced.get()) is not None:
        record.msg, record.args = _rename(record.getMessage(), replaced), ()
    return True


logging.getLogger("embtrain.negatives").addFilter(_rename_warning)
