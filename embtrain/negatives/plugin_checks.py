"""Checks of sources of other packages: wrong draws and exceptions end in one line with the user's file and line.

Shapes, types and ids are checked at every draw (draw_checks.py), because the compiled engine reads ids without a check.
Ranges of weights and origins, and that log q is finite and q sums to 1, are checked at the first draws alone.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.foreign_classes import (
    Hook,
    Wrap,
    checked,
    checked_init,
    is_ours,
    line_of,
    named,
    with_checks,
)
from embtrain.common.config.hook_results import metrics_problem, state_problem
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.traits import refuse_misplaced_traits
from embtrain.common.types import PROBE, ModelView, Negatives, Query
from embtrain.negatives.draw_checks import broadcasts, id_problem, layout_problem, value_problem

FIRST = 3             # draws whose values are checked
CELLS = 4_000_000     # probabilities that the check may compute; larger tables are not summed
TOLERANCE = 1e-3      # of the sum of q, which float32 gives to about 1e-5; half precision has 4 times its epsilon


def guarded(source: type[Any]) -> type[Any]:
    """The class itself if it is of this package; else a subclass that checks what it draws and names its errors."""
    return with_checks(source, guarded, _CHECKS, _named)


registry.guards["embtrain.negatives"] = guarded


def guard_object(source: Any) -> None:
    """Let a source that the user has built check its draws from now on, as `guarded` does for those built by name."""
    if (checked_class := guarded(type(source))) is not type(source):
        source.__class__ = checked_class


def _owner(source: Any) -> str:
    return f"{key('source')}: {source.name}"


def _named(function: Hook) -> Hook:
    return named(function, _owner)


def _checked_draw(function: Hook) -> Hook:
    call = _named(function)

    @functools.wraps(function)
    def draw(self: Any, *args: Any, **options: Any) -> Any:
        drawn = call(self, *args, **options)
        try:
            query, k, view = _draw_arguments(*args, **options)
        except TypeError:                                         # in a form of its own, by another of its methods
            return drawn

        def refuse(what: str) -> NoReturn:
            raise UsageError(f"{line_of(function)}: {_owner(self)}: draw {what}")
        if not isinstance(drawn, Negatives):
            refuse(f"returned {type(drawn).__name__}; return Negatives")
        if problem := layout_problem(drawn, len(query), query.target.device):
            refuse(problem)
        _check_count(self, drawn, k, refuse)
        if problem := id_problem(drawn, self.problem.n_candidates):
            refuse(problem)
        seen = vars(self).setdefault("_draws_checked", 0)
        if seen < FIRST:
            self._draws_checked = seen + 1
            _check_values(self, drawn, view, refuse)
            _check_densities(self, drawn, query, refuse)
        return drawn
    return draw


def _draw_arguments(query: Query, k: int, view: ModelView, **_: Any) -> tuple[Query, int, ModelView]:
    return query, k, view


def _checked(problem: Callable[..., str]) -> Wrap:
    return lambda function: checked(function, _named(function), _owner, problem)


def _log_prob_problem(_: Any, result: Any, query: Query, ids: Tensor) -> str:
    if not isinstance(ids, Tensor) or ids.ndim != 2:              # in a form of its own, by another of its methods
        return ""
    shape = (len(query), ids.shape[1])
    expected = f"return floats of shape {shape}, or that broadcast to it"
    if not isinstance(result, Tensor):
        return f"returned {type(result).__name__}; {expected}"
    if not broadcasts(result, shape) or not result.is_floating_point():
        return f"returned {result.dtype} of shape {tuple(result.shape)}; {expected}"
    return ""


def _state_problem(source: Any, result: Any) -> str:
    """The problem with a state: a value that cannot be saved, or a missing key, without which `resume` would fail."""
    remedy = "{**super().state_dict(), ...}"
    if not isinstance(result, dict):
        return f"returned {type(result).__name__}; return a dict, {remedy}"
    base: Any = next(base for base in type(source).__mro__ if is_ours(base) and "state_dict" in vars(base))
    missing = sorted(base.state_dict(source).keys() - result.keys())
    if missing and "_loads_own_state" not in vars(source):
        if not _can_load(source, result):
            return f"lacks {', '.join(map(repr, missing))}, which load_state_dict reads; return {remedy}"
        source._loads_own_state = True
    return state_problem(result)


def _can_load(source: Any, state: Mapping[str, Any]) -> bool:
    """Whether a copy of the source can load a state without the keys of its base class; true if it has no copy."""
    try:
        other, state = copy.deepcopy(source), copy.deepcopy(state)
    except Exception:  # noqa: BLE001  of the user's code, which may have a lock or an iterator
        return True
    try:
        other.load_state_dict(state)
    except Exception:  # noqa: BLE001
        return False
    return True


def _masses_problem(source: Any, result: Any, *arguments: Any) -> str:
    """The problem with the masses of a StaticSource, whose other sums and shares follow from them."""
    if arguments:
        return ""
    shape = (source.problem.n_candidates,)
    expected = f"return floats of shape {shape}, the weight of each candidate"
    if not isinstance(result, Tensor):
        return f"returned {type(result).__name__}; {expected}"
    if result.shape != shape or result.dtype == torch.bool or result.is_complex():
        return f"returned {result.dtype} of shape {tuple(result.shape)}; {expected}"
    if result.layout != torch.strided or result.is_meta or result.is_quantized or result.requires_grad:
        kind = "trained" if result.requires_grad else "sparse, quantized or meta"
        return f"returned a {kind} tensor; return a dense one that is not trained, as masses.detach()"
    if not ((result >= 0) & (result < torch.inf)).all() or not result.sum() > 0:
        return "returned weights that are negative, not finite or all 0; return weights of 0 or more, some above 0"
    return ""


_CHECKS: Mapping[str, Wrap] = {
    "__init__": lambda function: checked_init(function, _named(function), _owner,
                                               lambda source, where: refuse_misplaced_traits(where, source)),
    "draw": _checked_draw,
    "log_prob": _checked(_log_prob_problem),
    "masses": _checked(_masses_problem),
    "learn": _checked(metrics_problem),
    "metrics": _checked(metrics_problem),
    "state_dict": _checked(_state_problem),
}


def _check_count(source: Any, drawn: Negatives, k: int, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse another number of negatives than k, probes excluded."""
    ids, traits, probes = drawn.ids, source.traits, 0
    if ids is None or traits.exhaustive or traits.min_batch_size > 1:
        return
    if drawn.origin is not None and ids.numel():
        probes = int((drawn.origin == PROBE).broadcast_to(ids.shape).sum(1).max())
    if ids.shape[1] - probes not in (k, k * len(traits.components)):
        refuse(f"returned {ids.shape[1] - probes} negatives, but k is {k}; return k negatives")


def _check_values(source: Any, drawn: Negatives, view: ModelView, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse weights and origins out of range, and vectors of another D than the model's."""
    traits = source.traits
    can_be_empty = traits.density == "none" or traits.exhaustive or traits.min_batch_size > 1 or drawn.k == 0
    if problem := value_problem(drawn, can_be_empty):
        refuse(problem)
    if drawn.vectors is not None and drawn.vectors.shape[2] != (d := view.table().shape[1]):
        refuse(f"returned vectors of {drawn.vectors.shape[2]} dimensions; return {d}, those of the model's table")


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
    if source.traits.density != "exact" or rows == 0 or is_ours(type(source).log_prob):
        return
    part = query.rows(slice(0, rows))
    everyone = torch.arange(source.problem.n_candidates, device=query.target.device).unsqueeze(0)
    log_q = source.log_prob(part, everyone)
    total = log_q.double().exp().sum(-1)
    if not ((total - 1).abs() < max(TOLERANCE, 4 * torch.finfo(log_q.dtype).eps)).all():
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        refuse(f"uses a q whose sum over all candidates is {worst:.4g} according to log_prob; normalize it to 1, or "
               "set another density in traits than exact")
