"""Calls without a target: the loss is 0 with gradients of zero, and the module goes on as if it had not been called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.looped import looped
from torch import Tensor, nn

import embtrain.nn as sampled
from embtrain.common.errors import UsageError
from embtrain.nn.module import SampledLoss

V, D, B = 40, 6, 8
IGNORED = -100


def make(cls: Any = sampled.SampledSoftmax, source: str = "unigram", **options: Any) -> SampledLoss:
    module: SampledLoss = cls(source, num_classes=V, num_sampled=5, ignore_index=IGNORED, seed=3, **options)
    return module


def batch(kind: str, columns: int | None = None) -> tuple[Tensor, Tensor]:
    """Query and target of a call: "full", "empty", or "ignored"."""
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(0 if kind == "empty" else B, D, generator=draw, requires_grad=True)
    target = torch.randint(V, (len(query),) if columns is None else (len(query), columns), generator=draw)
    return query, torch.full_like(target, IGNORED) if kind == "ignored" else target


@looped("kind, columns", [("empty", None), ("empty", 2), ("ignored", None), ("ignored", 2), ("full", 0)])
@looped("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_loss_is_zero_and_every_parameter_has_a_gradient_of_zero(kind: str, columns: int | None, dtype: torch.dtype
                                                                     ) -> None:
    """DistributedDataParallel waits for the gradients of all processes."""
    for reduction in ("mean", "sum", "none"):
        for is_sparse in (False, True):
            loss = make(sampled.NCE, reduction=reduction, loss_options={"partition": "global"})
            query, target = batch(kind, columns)
            layer, bias = nn.Embedding(V, D, sparse=is_sparse, dtype=dtype), torch.zeros(V, dtype=dtype)
            bias.requires_grad_()
            value = loss(query.to(dtype), layer, target, bias)
            assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert value.shape == (target.shape if reduction == "none" else ()) and not value.any()
            value.sum().backward()
            assert layer.weight.grad is not None and layer.weight.grad.is_sparse == is_sparse
            assert len(list(loss.parameters())) == 1
            for x in (query, layer.weight, bias, *loss.parameters()):
                assert x.grad is not None and x.grad.shape == x.shape and not x.grad.to_dense().any()


@pytest.mark.parametrize("source", ["unigram", "in_batch", "cluster", "ace", "memory"])
@pytest.mark.parametrize("kind", ["empty", "ignored"])
def test_the_module_goes_on_as_if_it_had_not_been_called(source: str, kind: str) -> None:
    weight = torch.randn(V, D, generator=torch.Generator().manual_seed(2))
    options: dict[str, Any] = {"counts": torch.arange(1, V + 1)} if source in ("ace", "memory") else {}
    if source == "ace":
        options["num_contexts"] = B

    def call(loss: SampledLoss, kind: str) -> float:
        query, target = batch(kind)
        value = loss(query, weight, target, context=torch.arange(len(query)) if source == "ace" else None)
        value.backward()
        return value.item()

    plain, other = make(source=source, refresh=2, **options), make(source=source, refresh=2, **options)
    for _ in range(3):
        assert call(other, kind) == 0
        assert call(other, "full") == call(plain, "full")
        assert torch.equal(other.get_extra_state(), plain.get_extra_state())


def test_numbers_that_are_not_finite_do_not_enter_the_loss() -> None:
    query, target = batch("ignored")
    weight = torch.full((V, D), torch.inf, requires_grad=True)
    value = make()(query * torch.nan, weight, target)
    value.backward()
    assert value == 0 and weight.grad is not None and not weight.grad.any()


def test_wrong_arguments_are_refused_without_a_target_too() -> None:
    query, target = batch("ignored")
    with pytest.raises(UsageError, match=r"^weight: has the shape"):
        make()(query, torch.zeros(V + 1, D), target)
