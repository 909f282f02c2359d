"""Negatives of the user's own in one call, for example hard negatives that were mined elsewhere."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives
from embtrain.nn.arguments import dense_tensor, same_device
from embtrain.nn.rows import Rows, id_rows


class Candidates(NamedTuple):
    """Negatives of the user's own for one call, in place of drawn ones.

    ids: (K,) for all rows, or (N, K). log_q: of the ids, of the same shape; log_q_target: of the targets, (N,). A loss
    that corrects for q needs the first, NCE and ranking NCE both. They are finite: an id with q = 0 is never drawn.
    N is B, or B·T with several targets, ignored ones included.
    """

    ids: Tensor
    log_q: Tensor | None = None
    log_q_target: Tensor | None = None


def as_draw(candidates: Candidates | Tensor, rows: Rows, num_classes: int, needs_q: Literal["no", "drawn", "target"]
            ) -> Negatives:
    """Return candidates as the draw of rows.

    Raises UsageError for wrong types, shapes, devices or ids, or if q is missing or, on the CPU, not finite.
    """
    n, device = rows.targets.numel(), rows.targets.device
    own = candidates if isinstance(candidates, Candidates) else Candidates(candidates)
    for name, value in own._asdict().items():
        if name == "ids" or value is not None:
            dense_tensor(f"candidates: {name}", value)
            same_device(f"candidates: {name}", value, device)
    ids = id_rows("candidates", own.ids, n, num_classes, device)
    if ids.shape[1] == 0:
        raise UsageError("candidates: has no ids; pass at least one, or leave the argument out")
    for name, value, shape in (("log_q", own.log_q, own.ids.shape), ("log_q_target", own.log_q_target, (n,))):
        if value is not None and (value.shape != shape or not value.is_floating_point()):
            raise UsageError(f"candidates: {name}: has the shape {tuple(value.shape)} and dtype {value.dtype}; it "
                             f"should be {tuple(shape)} of floats")
    missing = [name for name, value, is_needed in (("log_q", own.log_q, needs_q != "no"),
                                                   ("log_q_target", own.log_q_target, needs_q == "target"))
               if value is None and is_needed]
    if missing:
        raise UsageError(f"candidates: this loss corrects for q; pass {' and '.join(missing)}, as in Candidates(ids, "
                         "log_q, log_q_target), or use NegativeSampling")
    log_q = own.log_q if own.log_q is None or own.log_q.ndim == 2 else own.log_q.unsqueeze(0)

    def kept(x: Tensor | None) -> Tensor | None:
        """The entries of the rows whose target is not ignored."""
        return x if x is None or rows.kept is None or len(x) != n else x[rows.kept.flatten()]
    total_weight = torch.full((1, 1), float(ids.shape[1]), dtype=torch.float32, device=device)
    drawn = Negatives(kept(ids), log_q=kept(log_q), log_q_target=kept(own.log_q_target), total_weight=total_weight)
    if needs_q != "no":
        _check_finite("log_q", drawn.log_q)
    if needs_q == "target":
        _check_finite("log_q_target", drawn.log_q_target)
    return drawn


def _check_finite(name: str, log_q: Tensor | None) -> None:
    """Raise UsageError for a logarithm on the CPU that is not finite. Those on another device are not read."""
    if log_q is not None and log_q.device.type == "cpu" and not (is_finite := log_q.isfinite()).all():
        raise UsageError(f"candidates: {name}: {float(log_q[~is_finite][0])} is not the logarithm of a probability "
                         "above 0; leave out classes that are never drawn, or correct their q")
