"""Checks of losses of other packages: a wrong result ends in one line with the user's file and line.

A result of another shape than documented would be broadcast: training would run, with another objective. Exceptions of
a loss stay as they are, so that a training with non-finite numbers is reported as that; the command names their line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.foreign_classes import Hook, Wrap, checked, checked_init, named, with_checks
from embtrain.common.config.hook_results import floats_problem, metrics_problem, state_problem
from embtrain.common.types import LossInput, LossOutput, Query


def guarded(loss: type[Any]) -> type[Any]:
    """The class itself if it is of this package; else a subclass that checks its results."""
    return with_checks(loss, guarded, _CHECKS, _named)


registry.guards["embtrain.losses"] = guarded


def _owner(loss: Any) -> str:
    return f"loss.name: {loss.name}"


def _named(function: Hook) -> Hook:
    return named(function, _owner, keeps_errors=True)


def _checked(problem: Callable[..., str]) -> Wrap:
    return lambda function: checked(function, _named(function), _owner, problem)


def _example(_: Any, result: Any, scored: LossInput) -> str:
    if problem := floats_problem(result, tuple(scored.pos.shape), "the loss of each example", scored.pos.device):
        return problem
    has_gradient = torch.is_grad_enabled() and (scored.pos.requires_grad or scored.neg.requires_grad)
    if has_gradient and not result.requires_grad:
        return "returned a loss without a gradient; compute it from pos and neg with PyTorch, and do not detach it"
    return ""


def _negative(_: Any, result: Any, scored: LossInput) -> str:
    return floats_problem(result, tuple(scored.neg.shape), "the cost of each negative", scored.pos.device)


def _forward(_: Any, result: Any, scored: LossInput) -> str:
    if not isinstance(result, LossOutput):
        return f"returned {type(result).__name__}; implement example instead, or return LossOutput"
    return floats_problem(result.per_example, tuple(scored.pos.shape), "the loss of each example", scored.pos.device)


def _logit(_: Any, result: Any, score: Tensor, query: Query) -> str:
    return floats_problem(result, tuple(score.shape), "one for each score", score.device)


def _log_scale(_: Any, result: Any, query: Query) -> str:
    return "" if result is None else floats_problem(
        result, (len(query), 1), "one for each query, or None", query.target.device)


def _log_partition(_: Any, result: Any, query: Query) -> str:
    return "" if result is None else floats_problem(
        result, (len(query),), "one for each query, or None", query.target.device)


def _negative_weights(_: Any, result: Any, scored: LossInput) -> str:
    return "" if result is None else floats_problem(
        result, tuple(scored.neg.shape), "the weight of each negative, or None", scored.pos.device)


_CHECKS: Mapping[str, Wrap] = {
    "__init__": lambda function: checked_init(function, _named(function), _owner),
    "forward": _checked(_forward),
    "example": _checked(_example),
    "negative": _checked(_negative),
    "logit": _checked(_logit),
    "unnormalized": _checked(_logit),
    "log_scale": _checked(_log_scale),
    "log_partition": _checked(_log_partition),
    "negative_weights": _checked(_negative_weights),
    "metrics": _checked(metrics_problem),
    "get_extra_state": _checked(lambda _, result: state_problem(result)),
}
