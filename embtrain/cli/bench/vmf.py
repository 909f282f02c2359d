"""The von Mises-Fisher loss: value and gradient for 4,096 float32 predictions of 300 numbers, by embtrain and SciPy.

loss        −log C(‖h‖) − h·e and its gradient in h, by autograd
normaliser  log C(κ) and its derivative for 4,096 lengths: the loss without the sums and products of the vectors

scipy   log C by `scipy.special.ive` in float64 on the CPU and its derivative as a quotient of two, the rest by torch's
        autograd, as is usual. Below a length of about 1.3 it is not finite, so lengths are from 2 to 400, as the
        variants need; ours is finite at 0 too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import ive
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.experiment.run import components
from embtrain.losses.bessel import log_c, log_c0
from embtrain.losses.continuous.vmf import Vmf, VmfConfig

ROWS, DIM, REPEATS = 4096, 300, 20  # repeats of one timing: a call takes milliseconds
PLAIN = Vmf(VmfConfig(variant="plain"), ProblemSpec(2, torch.ones(2)))


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example loss."""
    names = {(kind, n): f"{kind}-d{DIM}-t{n}" for kind in WAYS for n in threads}
    chosen = choose(names.values(), only)
    draw = torch.Generator().manual_seed(0)
    h, e = (normalize(torch.randn(ROWS, DIM, generator=draw), dim=1) for _ in range(2))
    kappa = 2 * 200 ** torch.rand(ROWS, generator=draw)
    arguments = {"loss": (h * kappa.unsqueeze(1), e), "normaliser": (kappa, e)}
    groups = []
    for (kind, n), name in names.items():
        if name in chosen:
            ours, theirs = (partial(_timed, way, *arguments[kind], n) for way in WAYS[kind])
            groups.append(Group(n, {name: ours}, {"scipy": theirs}))
    return run("vmf", f"s of {REPEATS} calls", groups, rounds, {"rows": ROWS, "dim": DIM, "torch": torch.__version__})


Way = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # h or κ, and e -> the loss or log C (n,), and its gradient


def _timed(way: Way, x: Tensor, e: Tensor, threads: int) -> Timed:
    components.use_threads(threads)
    value, slope = way(x, e)
    quality = {"mean": float(value.double().mean()), "gradient": float(slope.double().norm())}
    del value, slope

    def calls() -> None:  # results are freed before the next call, as in training
        for _ in range(REPEATS):
            way(x, e)

    seconds, cpu, _ = timed(calls)
    return Timed(seconds, cpu, quality)


class _Targets:
    """Given target vectors, for a loss that requests no log Z."""

    def __init__(self, e: Tensor):
        self.e = e

    def target_vectors(self) -> Tensor:
        return self.e

    def log_partition(self, rows: Tensor | slice) -> Tensor:
        raise AssertionError("the loss of directions requests no log Z")


def _loss(h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    h, none = h.detach().requires_grad_(), torch.zeros(len(h), dtype=torch.int64)
    value = PLAIN.example(LossInput(none, h[:, :0], Negatives(), Query(h, none, none, none),
                                    whole_table=_Targets(e)))
    value.sum().backward()
    assert h.grad is not None
    return value.detach(), h.grad


def _normaliser(kappa: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    log, ratio = log_c(kappa.square(), DIM)
    return log, -kappa * ratio


class _LogC(torch.autograd.Function):
    """log C(κ) − log C(0) by SciPy."""

    @staticmethod
    def forward(ctx: Any, kappa: Tensor) -> Tensor:
        ctx.save_for_backward(kappa)
        k, v = kappa.double().numpy(), DIM / 2 - 1
        log = v * np.log(k) - np.log(ive(v, k)) - k - DIM / 2 * np.log(2 * np.pi) - log_c0(DIM)
        return torch.from_numpy(log).to(kappa.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (kappa,) = ctx.saved_tensors
        k, v = kappa.double().numpy(), DIM / 2 - 1
        return grad * torch.from_numpy(-ive(v + 1, k) / ive(v, k)).to(kappa.dtype)


def _loss_by_scipy(h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    h = h.detach().requires_grad_()
    value = -_LogC.apply(h.norm(dim=1)) - (h * e).sum(1)
    value.sum().backward()
    assert h.grad is not None
    return value.detach(), h.grad


def _normaliser_by_scipy(kappa: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    kappa = kappa.detach().requires_grad_()
    value = _LogC.apply(kappa)
    value.sum().backward()
    assert kappa.grad is not None
    return value.detach(), kappa.grad


WAYS: dict[str, tuple[Way, Way]] = {"loss": (_loss, _loss_by_scipy), "normaliser": (_normaliser, _normaliser_by_scipy)}
