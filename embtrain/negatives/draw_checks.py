"""Checks of the fields of a draw, as `Negatives` documents them: while a plug-in draws, and in the contract of sources.

Each function returns a problem, `returned X; return Y`, or "". B rows · G draws of K negatives · V candidates.
"""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from embtrain.common.types import ORIGINS, Negatives

FLOATS = ("vectors", "log_q", "weight", "log_q_target", "total_weight")
WHOLE = ("ids", "draw_id", "false_negatives")


def layout_problem(drawn: Negatives, n: int, device: torch.device) -> str:
    """Types, devices and shapes of a draw for n rows on a device, and the ranges of draw_id and false_negatives."""
    return _type_problem(drawn, device) or _shape_problem(drawn, n) or _row_problem(drawn, n)


def id_problem(drawn: Negatives, n_candidates: int) -> str:
    """Range of the ids."""
    if (ids := drawn.ids) is None or not ids.numel() or (int(ids.min()) >= 0 and int(ids.max()) < n_candidates):
        return ""
    return f"returned ids from {int(ids.min())} to {int(ids.max())}; return ids from 0 to {n_candidates - 1}"


def value_problem(drawn: Negatives, can_be_empty: bool) -> str:
    """Ranges of weights and origins. can_be_empty: whether the total weight may be 0."""
    for name in ("weight", "total_weight"):
        value = getattr(drawn, name)
        if value is not None and not (torch.isfinite(value) & (value >= 0)).all():
            return f"returned a {name} that is negative or not finite; return numbers of at least 0"
    if drawn.total_weight is not None and not can_be_empty and not (drawn.total_weight > 0).all():
        return "returned a total_weight of 0; return the sum of the weights of a row, k without weights"
    if drawn.origin is not None and not ((drawn.origin >= 0) & (drawn.origin < len(ORIGINS))).all():
        return f"returned an origin outside of 0 to {len(ORIGINS) - 1}; return NOISE, GENERATOR, PROBE or SYNTHETIC"
    return ""


def broadcasts(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor can be broadcast to a shape."""
    sizes = zip(value.shape[::-1], shape[::-1], strict=False)
    return value.ndim <= len(shape) and all(size in (1, wanted) for size, wanted in sizes)


def _type_problem(drawn: Negatives, device: torch.device) -> str:
    for name in (field.name for field in fields(drawn) if field.name != "state"):
        value = getattr(drawn, name)
        if value is None:
            continue
        if not isinstance(value, Tensor):
            return f"returned {name} of the type {type(value).__name__}; return a tensor"
        is_whole = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
        if name in WHOLE and value.dtype != torch.int64:
            return f"returned {name} of {value.dtype} with shape {tuple(value.shape)}; return int64"
        if (name in FLOATS and not value.is_floating_point()) or (name == "origin" and not is_whole):
            return f"returned {name} of {value.dtype}; return {'int8' if name == 'origin' else 'floats'}"
        if value.device != device:
            return f"returned {name} on {value.device}, but the rows are on {device}; make it there"
        if value.requires_grad:
            return f"returned {name} with a gradient; detach it"
    return ""


def _shape_problem(drawn: Negatives, n: int) -> str:
    ids, vectors = drawn.ids, drawn.vectors
    if ids is None and vectors is None:
        return "returned neither ids nor vectors; return ids of shape (draws, k)"
    if ids is not None and ids.ndim != 2:
        return f"returned ids of shape {tuple(ids.shape)}; return shape (draws, k)"
    if vectors is not None and (vectors.ndim != 3 or len(vectors) != n):
        return f"returned vectors of shape {tuple(vectors.shape)}; return ({n}, k, D), those of each row"
    shape = tuple(ids.shape) if ids is not None else tuple(drawn.vectors.shape[:2])  # type: ignore[union-attr]
    if ids is not None and drawn.draw_id is None and len(ids) not in (1, n):
        return (f"returned {len(ids)} draws for {n} rows without draw_id; return one draw, one draw per row, or draws "
                "with draw_id, as from draw_layout(query)")
    for name in ("log_q", "weight", "origin"):
        value = getattr(drawn, name)
        if value is None:
            continue
        if not broadcasts(value, shape) or (value.ndim < 2 and name != "origin"):
            return (f"returned {name} of shape {tuple(value.shape)} for ids of {shape}; return the same shape, or two "
                    "dimensions that broadcast to it")
    return ""


def _row_problem(drawn: Negatives, n: int) -> str:
    """Fields with a line for each row."""
    draw_id, target, total, pairs = drawn.draw_id, drawn.log_q_target, drawn.total_weight, drawn.false_negatives
    n_draws = n if drawn.ids is None else len(drawn.ids)
    if draw_id is not None and (draw_id.shape != (n,) or _exceeds(draw_id, n_draws)):
        return (f"returned a draw_id that is not one of its {n_draws} draws for each of {n} rows; call "
                "draw_layout(query)")
    if target is not None and target.shape != (n,):
        return f"returned log_q_target of shape {tuple(target.shape)}; return ({n},), that of each row's target"
    if total is not None and total.shape not in ((1, 1), (n, 1)):
        return f"returned total_weight of shape {tuple(total.shape)}; return (1, 1), or ({n}, 1) for a sum per row"
    if pairs is not None and (pairs.ndim != 2 or len(pairs) != 2 or _exceeds(pairs[0], n)
                              or _exceeds(pairs[1], drawn.k)):
        return (f"returned false_negatives that are not pairs of one of {n} rows and one of {drawn.k} columns; return "
                "shape (2, pairs), or None")
    return ""


def _exceeds(index: Tensor, n: int) -> bool:
    """Whether one of the indices is not in 0..n-1."""
    return bool(index.numel()) and (int(index.min()) < 0 or int(index.max()) >= n)
