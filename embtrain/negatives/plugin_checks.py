"""Checks of sources of other packages: wrong draws and exceptions end in one line with the user's file and line.

Shapes, types and ids are checked at every draw, because the compiled engine reads ids without a check. That log q is
finite and that q sums to 1 is checked at the first draws alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import EmbtrainError, UsageError
from embtrain.common.traits import refuse_misplaced_traits
from embtrain.common.types import PROBE, ModelView, Negatives, Query

FIRST = 3             # draws of which log q is checked
CELLS = 4_000_000     # probabilities that the check may compute; larger tables are not summed
TOLERANCE = 1e-3      # of the sum of q, which float32 gives to about 1e-5
_HERE = __name__.partition(".")[0]
_guarded: dict[type[Any], type[Any]] = {}


def guarded(source: type[Any]) -> type[Any]:
    """The class itself if it is of this package; else a sub-class that checks what it draws and names its errors."""
    if not _is_ours(source) and source not in _guarded:
        _guarded[source] = _sub_class(source)
    return _guarded.get(source, source)


def _sub_class(source: type[Any]) -> type[Any]:
    members: dict[str, Any] = {"__doc__": source.__doc__, "__module__": source.__module__,
                               "__qualname__": source.__qualname__}
    for name in dir(source):
        function = inspect.getattr_static(source, name)
        if inspect.isfunction(function) and not _is_ours(function) and _is_hook(source, name):
            members[name] = _CHECKS.get(name, _named)(function)
    return type(source.__name__, (source,), members)


def _is_ours(item: Any) -> bool:
    return item.__module__.partition(".")[0] == _HERE


def _is_hook(source: type[Any], name: str) -> bool:
    """Whether a class of this package, from which the source derives, has the method."""
    return any(name in vars(base) and _is_ours(base) for base in source.__mro__) or name == "__init__"


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method with its exceptions as a UsageError that names file and line."""
    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except (EmbtrainError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if "can't allocate memory" in str(error):
                raise
            where = registry.place(error, function.__module__) if _is_inside(error, function) else _line(function)
            raise UsageError(f"{where}: {key('source')}: {self.name}: {function.__name__}: {type(error).__name__}: "
                             f"{error}; correct it there") from error
    return call


def _is_inside(error: Exception, function: Callable[..., Any]) -> bool:
    """Whether the error arose after the call had begun; a wrong number of arguments ends before."""
    traceback = error.__traceback__
    return traceback is not None and traceback.tb_next is not None


def _line(function: Any) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _checked_draw(function: Callable[..., Any]) -> Callable[..., Any]:
    named = _named(function)

    @functools.wraps(function)
    def draw(self: Any, query: Query, k: int, view: ModelView) -> Negatives:
        drawn = named(self, query, k, view)

        def refuse(what: str) -> NoReturn:
            raise UsageError(f"{_line(function)}: {key('source')}: {self.name}: draw {what}")
        if not isinstance(drawn, Negatives):
            refuse(f"returned {type(drawn).__name__}; return Negatives")
        _check_ids(self, drawn, len(query), k, refuse)
        seen = vars(self).setdefault("_draws_checked", 0)
        if seen < FIRST:
            self._draws_checked = seen + 1
            _check_densities(self, drawn, query, refuse)
        return drawn
    return draw


def _checked_init(function: Callable[..., Any]) -> Callable[..., Any]:
    named = _named(function)

    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        named(self, *args, **kwargs)
        refuse_misplaced_traits(f"{_line(function)}: {key('source')}: {self.name}", vars(self), self.traits)
    return init


_CHECKS = {"draw": _checked_draw, "__init__": _checked_init}


def _check_ids(source: Any, drawn: Negatives, n: int, k: int, refuse: Callable[[str], NoReturn]) -> None:
    ids, traits = drawn.ids, source.traits
    if ids is None:
        return
    v = source.problem.n_candidates
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2:
        refuse(f"returned ids of {getattr(ids, 'dtype', type(ids).__name__)} with shape "
               f"{tuple(getattr(ids, 'shape', ()))}; return int64 of shape (draws, k)")
    if drawn.draw_id is None and len(ids) not in (1, n):
        refuse(f"returned {len(ids)} draws for {n} rows without draw_id; return one draw, one draw per row, or draws "
               "with draw_id, as from draw_layout(query)")
    if drawn.draw_id is not None and (drawn.draw_id.shape != (n,) or (n and int(drawn.draw_id.max()) >= len(ids))):
        refuse(f"returned a draw_id that is not one of its {len(ids)} draws for each of {n} rows; call "
               "draw_layout(query)")
    if not traits.exhaustive and traits.min_batch_size == 1:
        probes = 0
        if drawn.origin is not None:
            probes = int((drawn.origin == PROBE).broadcast_to(ids.shape).sum(1).max()) if ids.numel() else 0
        if ids.shape[1] - probes not in (k, k * len(traits.components)):
            refuse(f"returned {ids.shape[1] - probes} negatives, but k is {k}; return k negatives")
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= v):
        refuse(f"returned ids from {int(ids.min())} to {int(ids.max())}; return ids from 0 to {v - 1}")
    for name in ("log_q", "weight", "origin"):
        value = getattr(drawn, name)
        try:
            if value is not None:
                torch.broadcast_to(value, ids.shape)
        except RuntimeError:
            refuse(f"returned {name} of shape {tuple(value.shape)} for ids of {tuple(ids.shape)}; return the same "
                   "shape, or one that broadcasts to it")


def _check_densities(source: Any, drawn: Negatives, query: Query, refuse: Callable[[str], NoReturn]) -> None:
    for name in ("log_q", "log_q_target"):
        value = getattr(drawn, name)
        if value is None:
            continue
        fits = torch.isfinite(value)
        if name == "log_q_target":                             # a target that is never drawn has q = 0
            fits |= value == -torch.inf
        if not fits.all():
            refuse(f"returned {name} that is not finite; return the log-probability of the draw")
    rows = min(len(query), CELLS // source.problem.n_candidates, 16)
    if source.traits.density != "exact" or rows == 0 or _is_ours(inspect.unwrap(type(source).log_prob)):
        return
    part = query.rows(slice(0, rows))
    everyone = torch.arange(source.problem.n_candidates, device=query.target.device).unsqueeze(0)
    log_q = source.log_prob(part, everyone)
    total = log_q.double().exp().sum(-1)
    if not ((total - 1).abs() < TOLERANCE).all():
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        refuse(f"uses a q whose sum over all candidates is {worst:.4g} according to log_prob; normalize it to 1, or "
               "set another density in traits than exact")
