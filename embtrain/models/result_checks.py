"""Checks of models of other packages: a wrong result ends in one line with the user's file and line.

A result of another shape than documented would be broadcast, or fail in another file. Types, shapes and devices are
checked at every call; whether the scores depend on the query, and rows with one query_id are equal, at the first ones.
Exceptions of a model stay as they are, as those of a loss do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from embtrain.common import registry
from embtrain.common.config.foreign_classes import (
    Hook,
    Wrap,
    checked,
    checked_init,
    is_hook,
    is_ours,
    named,
    place_of,
    with_checks,
)
from embtrain.common.config.hook_results import floats_problem, state_problem
from embtrain.common.errors import UsageError, WrongClass
from embtrain.common.types import Batch, Query
from embtrain.models.query_checks import (
    TRAINED,
    encode_problem,
    fields_problem,
    is_first,
    is_trained,
    query_ids_problem,
)

Geometry = Literal["dot", "cosine", "l1", "l2", "modulus", "projected", "order", "hyperbolic"]  # score functions


def guarded(model: type[Any]) -> type[Any]:
    """The class itself if it is of this package; else a subclass with checks. WrongClass for a wrong declaration."""
    if is_ours(model.__init__) and (problem := _declaration_problem(model)):  # else the constructor may set them
        raise WrongClass(f"{place_of(model)}: {problem}")
    return with_checks(model, guarded, _CHECKS, _named)


registry.guards["embtrain.models"] = guarded


def _owner(model: Any) -> str:
    return f"model.name: {model.name}"


def _named(function: Hook) -> Hook:
    return named(function, _owner, keeps_errors=True)


def _checked(problem: Callable[..., str]) -> Wrap:
    return lambda function: checked(function, _named(function), _owner, problem)


def _check_attributes(model: Any, where: str) -> None:
    if problem := _attribute_problem(model):
        raise UsageError(f"{where}: {problem}")


def _attribute_problem(model: Any) -> str:
    """The problem with the attributes of a model that has been built: its declarations and tables."""
    if problem := _declaration_problem(model):
        return problem
    for name, value in vars(model).items():
        if name in _CHECKS and not callable(value) and is_hook(type(model), name, _CHECKS):
            return f"{name}: is an attribute in place of the method; rename it"
        if isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
            return f"{name}: is a tensor that no optimizer updates; assign it as nn.Parameter"
    if next(model.parameters(), None) is None:
        return "has no parameters to train; assign its tables as nn.Parameter"
    return ""


def _declaration_problem(model: Any) -> str:
    """The problem with the declarations of a model, or of its class, whose properties have no value yet."""
    for name, fits, remedy in (
            ("geometry", get_args(Geometry).__contains__,
             f"is not a score function; set one of {', '.join(get_args(Geometry))}"),
            ("tau", lambda x: isinstance(x, Real) and 0 < float(x) < math.inf,
             "is not a number above 0; set the factor of the cosine, or 1"),
            ("has_frozen_table", lambda x: isinstance(x, bool), "is not a boolean; set True or False")):
        value = getattr(model, name)
        if not hasattr(type(value), "__get__") and not fits(value):
            return f"{name} = {value!r}: {remedy}"
    return ""


# -- scores -----------------------------------------------------------------------------------------------------------

def _score(model: Any, result: Any, query: Query, candidates: Tensor) -> str:
    device, shape = query.target.device, (len(query), candidates.shape[1])
    if problem := floats_problem(result, shape, "of each query and candidate", device):
        return problem
    if not query.vectors.requires_grad or not is_trained(model, result.numel()):
        return ""
    if not result.requires_grad:
        return f"returned scores without a gradient; {TRAINED.format('them', 'them')}"
    if is_first(model, "score") and not _depends_on(result, query.vectors):
        return "returned scores that do not depend on query.vector; compute them from it, and do not detach it"
    return ""


def _depends_on(scores: Tensor, vectors: Tensor) -> bool:
    """Whether scores have a gradient with respect to vectors; also true if it cannot be computed alone."""
    try:
        return torch.autograd.grad(scores.sum(), vectors, retain_graph=True, allow_unused=True)[0] is not None
    except RuntimeError:                                     # as in a checkpoint with use_reentrant=True
        return True


def _gradient_problem(result: Tensor, *inputs: Tensor) -> str:
    """The problem with a result that has no gradient, although one of its inputs has."""
    if not torch.is_grad_enabled() or result.requires_grad or not any(x.requires_grad for x in inputs):
        return ""
    return f"returned numbers without a gradient; {TRAINED.format('them', 'them')}"


def _score_rows(_: Any, result: Any, h: Tensor, slot: Tensor, c: Tensor) -> str:
    problem = floats_problem(result, (len(h), c.shape[1]), "of each query and candidate", h.device)
    return problem or _gradient_problem(result, h, c)


def _pairs(_: Any, result: Any, u: Tensor, v: Tensor, *config: Any) -> str:
    shape = tuple(torch.broadcast_shapes(u.shape[:-1], v.shape[:-1]))
    return floats_problem(result, shape, "the score of each pair", u.device) or _gradient_problem(result, u, v)


def _query_vector(model: Any, result: Any, entity: Tensor, relation: Tensor, sign: Tensor) -> str:
    if problem := floats_problem(result, (len(entity), "D"), "one for each example", entity.device):
        return problem
    # an `encode` of the user may map them, and has a check of its own
    if is_ours(type(model).encode) and is_trained(model, len(entity)) and not result.requires_grad:
        return f"returned vectors without a gradient; {TRAINED.format('them', 'them')}"
    return ""


def _penalty(model: Any, result: Any, batch: Batch) -> str:
    if result is None:
        return ""
    if problem := floats_problem(result, (len(batch),), "one for each example, or None", batch.target.device):
        return problem
    if is_trained(model, len(batch)) and not result.requires_grad:
        return f"returned a penalty without a gradient; {TRAINED.format('it', 'it')}"
    return ""


# -- tables -----------------------------------------------------------------------------------------------------------

def _table(model: Any, result: Any) -> str:
    shape = model.problem.n_candidates, "D"
    return floats_problem(result, shape, "the vectors of all candidates", torch.device(model.problem.device))


def _relation_table(model: Any, result: Any, relation: int) -> str:
    if not isinstance(result, tuple) or len(result) != 2 or result[0] not in get_args(Geometry):
        return f"returned {_short(result)}; return a geometry and a table, as (\"dot\", self.table())"
    return _table(model, result[1])


def _vectors(model: Any, result: Any, which: str = "input") -> str:
    n, contexts = model.problem.n_candidates, model.problem.n_contexts
    rows = contexts if isinstance(result, Tensor) and result.ndim and len(result) == contexts else n
    return floats_problem(result, (rows, "D"), "one for each entry of the vocabulary",
                          torch.device(model.problem.device))


def _relations(model: Any, result: Any) -> str:
    return "" if result is None else floats_problem(
        result, ("R", "D"), "one for each relation, or None", torch.device(model.problem.device))


def _start(model: Any, result: Any, generator: torch.Generator) -> str:
    device = result.device if isinstance(result, Tensor) else torch.device("cpu")         # the constructor moves it
    return floats_problem(result, (model.problem.n_candidates, "D"), "the initial vectors", device)


def _earlier_rows(model: nn.Module, result: Any, earlier: Any, row: Tensor) -> str:
    remedy = "return a dict of the earlier row of each row of each table, as super().earlier_rows(earlier, row)"
    if not isinstance(result, dict):
        return f"returned {type(result).__name__}; {remedy}"
    for name, table in model.state_dict().items():
        rows = result.get(name)
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.shape != table.shape[:1]:
            return f"returned {_short(rows)} for {name!r}; {remedy}, int64 of shape {tuple(table.shape[:1])}"
    return ""


def _short(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


_CHECKS: Mapping[str, Wrap] = {
    "__init__": lambda function: checked_init(function, _named(function), _owner, _check_attributes),
    "encode": _checked(encode_problem),
    "query_fields": _checked(fields_problem),
    "query_ids": _checked(query_ids_problem),
    "score": _checked(_score),
    "score_rows": _checked(_score_rows),
    "pair_score": _checked(_pairs),
    "entailment_score": _checked(_pairs),
    "query_vector": _checked(_query_vector),
    "penalty": _checked(_penalty),
    "table": _checked(_table),
    "relation_table": _checked(_relation_table),
    "vectors": _checked(_vectors),
    "relations": _checked(_relations),
    "start": _checked(_start),
    "earlier_rows": _checked(_earlier_rows),
    "get_extra_state": _checked(lambda _, result: state_problem(result)),
}
