"""Optimizers with one accumulator per embedding row, or that update only the rows in the batch.

RowAdagrad: Adagrad with one accumulator per row instead of one per element.

    h_r ← h_r + mean_d g_rd²        x_rd ← x_rd − lr · g_rd / (√h_r + ε)

D: elements of a row; in a 1-D parameter, for example a bias, each element is a row.
A row that no example of an update reads has g = 0 and does not change. Sparse gradients touch only the rows that were
read. The accumulators take 1/D of the memory of Adagrad's (Duchi, Hazan and Singer 2011).

LazyAdam: Adam (Kingma and Ba 2015), restricted to the rows that an update reads.

    m_r ← β₁ m_r + (1 − β₁) g_r       v_r ← β₂ v_r + (1 − β₂) g_r²       x_r ← x_r − lr m̂_r / (√v̂_r + ε)
    m̂_r = m_r / (1 − β₁ᵗ),  v̂_r = v_r / (1 − β₂ᵗ),  t: updates of the table so far, whichever rows they read

Adam keeps moving a row by its momentum after the row is no longer read, so each step passes over the whole table. Here
that row keeps x, m and v until it is read again. Dense gradients are handled by Adam itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from embtrain.common.optimizers.eager import Eager, EagerAdagrad, EagerAdam, EagerSGD
from embtrain.kernels.reference.training.rows import EPS
from embtrain.losses.base import Loss
from embtrain.models.base import Model, rank_keys
from embtrain.train.config import TrainConfig

CHUNK = 1 << 18  # elements of a table processed at once


class RowAdagrad(Eager):
    """Adagrad with one accumulator per row; dense or sparse gradients."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float,
                 new_table: Callable[[int, int, bool], Tensor] | None = None):
        """new_table: makes the accumulators in files (ProblemSpec.new_table); None: in memory."""
        super().__init__(params, {"lr": lr})
        for p in self._parameters():
            self.state[p]["acc"] = torch.zeros(len(p), dtype=p.dtype, device=p.device) if new_table is None else \
                new_table(len(p), 1, False)[:, 0]

    def accumulator(self, table: Tensor) -> Tensor:
        """The accumulators h of a table's rows, (n,)."""
        return self.state[table]["acc"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the update has been differentiated already"
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                acc = self.state[p]["acc"]
                if p.grad.is_sparse and p.is_cuda:
                    self._update_uncoalesced(p, acc, p.grad._indices()[0], p.grad._values(), group["lr"])
                elif p.grad.is_sparse:
                    grad = p.grad.coalesce()  # sum the entries of a row before squaring
                    rows, g = grad.indices()[0], grad.values()
                    if not len(rows):
                        continue
                    h = acc[rows] + _mean_square(g)
                    acc[rows] = h
                    p.index_add_(0, rows, g / _root(h, g), alpha=-group["lr"])
                else:                         # in chunks: temporaries would be as large as the table
                    step = len(p) if p.is_cuda else max(1, CHUNK * len(p) // max(1, p.numel()))
                    for x, h, g in zip(p.split(step), acc.split(step), p.grad.split(step), strict=True):
                        h += _mean_square(g)
                        x.addcdiv_(g, _root(h, g), value=-group["lr"])

    @staticmethod
    def _update_uncoalesced(p: Tensor, acc: Tensor, rows: Tensor, g: Tensor, lr: float) -> None:
        """Update by the gradients g (N, D) of rows (N,) that may repeat, without reading their number on the host.

        Place i of N holds the sum of the i-th distinct row; the remaining places add zeros to row 0.
        """
        place = rank_keys(rows)
        total = torch.zeros_like(g).index_add_(0, place, g)
        row = torch.zeros_like(rows).index_copy_(0, place, rows)
        acc.index_add_(0, row, _mean_square(total))
        p.index_add_(0, row, total / _root(acc[row], total), alpha=-lr)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy the accumulators of a state into those of this optimizer, which stay where they are."""
        accumulators = {p: self.accumulator(p) for p in self._parameters()}
        super().load_state_dict(state_dict)
        for p, acc in accumulators.items():
            acc.copy_(self.state[p]["acc"])
            self.state[p]["acc"] = acc

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.param_groups for p in group["params"]]


def _mean_square(g: Tensor) -> Tensor:
    """Mean square of each row, (n, ...) to (n,)."""
    return g.view(len(g), -1).square().mean(1)


def _root(h: Tensor, g: Tensor) -> Tensor:
    """√h + ε (n,), shaped to broadcast over the rows of g."""
    return (h.sqrt() + EPS).view(-1, *[1] * (g.ndim - 1))


def set_gradients_for(model: Model, optimizer: str) -> None:
    """Make the gradients dense if the optimizer passes over whole tables, never dense if it skips unread rows."""
    if optimizer == "adam":
        model.sparse = False
    model.always_sparse = optimizer == "lazy-adam"


class PaddedAdam(EagerAdam):
    """Adam with PyTorch's fused kernel only for contiguous tables.

    On the CPU the fused kernel treats a table of padded rows as packed and would update the wrong elements.
    """

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["fused"] = all(p.is_contiguous() for p in group["params"])
        return super().step(closure)


class LazyAdam(PaddedAdam):
    """Adam that updates only the rows of sparse gradients."""

    def step(self, closure: Any = None) -> Any:
        sparse_updates = [(group, p, p.grad.coalesce()) for group in self.param_groups for p in group["params"]
                          if p.grad is not None and p.grad.is_sparse]
        for _, p, _ in sparse_updates:
            p.grad = None  # hide it from Adam
        result = super().step(closure)
        for group, p, grad in sparse_updates:
            p.grad = grad
            self._update_rows(p, grad.indices()[0], grad.values(), group)
        return result

    @torch.no_grad()
    def _update_rows(self, p: Tensor, rows: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:  # Adam's own state names: a table may get sparse and dense gradients in turn
            state |= {"step": torch.zeros((), dtype=torch.float32, device=p.device),
                      "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        state["step"] += 1
        t = float(state["step"])
        m = state["exp_avg"][rows].lerp_(g, 1 - beta1)
        v = state["exp_avg_sq"][rows].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = m, v
        root = v.sqrt_().div_((1 - beta2 ** t) ** 0.5).add_(group["eps"])
        p.index_add_(0, rows, m.div_(root), alpha=-group["lr"] / (1 - beta1 ** t))


def make_optimizers(model: Model, loss: Loss, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Make the model's optimizer first (it follows the schedule), then Adam for the loss's own parameters (log Z)."""
    tables = list(model.parameters())
    set_gradients_for(model, config.optimizer)
    if config.optimizer == "adagrad":
        torch.sparse.check_sparse_tensor_invariants.disable()  # explicit, or torch warns about its own sparse tensors
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": EagerSGD, "adagrad": EagerAdagrad, "lazy-adam": LazyAdam,
        "adam": PaddedAdam, "row-adagrad": partial(RowAdagrad, new_table=model.problem.new_table)}
    optimizer = kinds[config.optimizer](tables, lr=config.lr)
    loss_parameters = list(loss.parameters())
    return [optimizer, EagerAdam(loss_parameters, lr=config.loss_lr)] if loss_parameters else [optimizer]
