"""Modules of embtrain.nn under another default dtype or device of PyTorch than float32 on the CPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CASES

import embtrain.nn as sampled
from embtrain.common.errors import UsageError
from embtrain.losses import base as losses
from embtrain.negatives import base as negatives
from embtrain.nn.module import SampledLoss

V, D, B = 40, 8, 12
SHARE = {"row": "row", "window": "query", "block": "block", "batch": "batch"}
OF_LISTS = ("candidates", "reflexive", "typed", "none")                   # need data that a module does not have


@contextlib.contextmanager
def default(name: torch.dtype | torch.device) -> Iterator[None]:
    if isinstance(name, torch.device):
        with name:
            yield
        return
    torch.set_default_dtype(name)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def arguments(case: str) -> dict[str, Any]:
    """Arguments of a module with a source, and a loss that suits it."""
    source, options = case.split()[0], dict(CASES[case])
    is_exact, is_frozen = negatives.find(source).traits.density == "exact", source.startswith("synthetic")
    return {"negatives": source, "loss": "sampled_softmax" if is_exact else "margin" if is_frozen else "logistic",
            "num_sampled": options.pop("k", None if source == "every" else 1 if is_frozen else 5),
            "share": None if source == "every" else SHARE[options.pop("share_draws_by", "row")],
            "frozen": is_frozen, "similarity": "cosine" if is_frozen else "dot", **options, "counts": [1.0] * V}


def values_of(options: dict[str, Any], dtype: torch.dtype, name: torch.dtype | torch.device) -> list[float]:
    """Losses and gradients of three calls under a default."""
    draw, values = torch.Generator().manual_seed(1), list[float]()
    query = torch.randn(B, D, generator=draw).to(dtype).requires_grad_()
    weight = torch.nn.functional.normalize(torch.randn(V, D, generator=draw), dim=1).to(dtype)
    rows = torch.arange(B)
    with default(name):
        module = SampledLoss(num_classes=V, num_contexts=B, **options)
        for parameter in module.parameters():
            parameter.data = torch.ones(parameter.shape, dtype=parameter.dtype, device="cpu")
        weight.requires_grad_(not options.get("frozen"))
        for _ in range(3):
            query.grad = weight.grad = None
            value = module(query, weight, rows, context=rows)
            value.backward()
            values += [value.item(), *(x.grad.sum().item() for x in (query, weight) if x.grad is not None)]
    return values


def check(options: dict[str, Any]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        expected = values_of(options, dtype, torch.float32)
        for name in (torch.bfloat16, torch.float64, torch.device("meta")) if dtype == torch.float32 else (dtype,):
            assert values_of(options, dtype, name) == expected, (dtype, name)


@pytest.mark.long
@looped("case", [case for case in CASES if case.split()[0] not in OF_LISTS])
def test_defaults_of_pytorch_change_no_source(case: str) -> None:
    check(arguments(case))


@looped("loss", losses.names())
def test_defaults_of_pytorch_change_no_loss(loss: str) -> None:
    n_checked = 0
    for source, more in (("unigram", {}), ("unigram", {"filter": "none"}), ("every", {"filter": "none"}),
                         ("none", {"filter": "none", "frozen": True})):
        with contextlib.suppress(UsageError):                             # combinations that do not exist
            check({"negatives": source, "loss": loss, **more})
            n_checked += 1
    assert n_checked


@pytest.mark.parametrize("options", [{}, {"loss_options": {"partition": "global"}}])
def test_a_module_made_without_memory_is_loaded_by_its_state(options: dict[str, Any]) -> None:
    """As transformers makes models. A parameter is on the default device, all else on the CPU."""
    def made() -> SampledLoss:
        return sampled.NCE("unigram", num_classes=V, num_sampled=5, **options)
    draw = torch.Generator().manual_seed(1)
    call = torch.randn(B, D, generator=draw), torch.randn(V, D, generator=draw), torch.arange(B)
    saved = made()
    saved(*call)
    with torch.device("meta"):
        loss = made()
    assert all(x.is_meta for x in loss.parameters())
    loss.to_empty(device="cpu").loss.reset_parameters()
    assert loss(*call) == made()(*call)
    loss.load_state_dict(saved.state_dict())
    assert loss(*call) == saved(*call)
    with torch.device("meta"), pytest.raises(UsageError, match=r"^counts: is on the device meta"):
        sampled.NCE("unigram", num_classes=V, counts=torch.ones(V))


def test_a_state_is_loaded_under_the_default_device_meta() -> None:
    """The state of ace contains empty tensors."""
    def made() -> sampled.SampledLoss:
        return sampled.SampledLoss("ace", num_classes=V, loss="logistic", num_contexts=B, counts=[1.0] * V)

    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(V, D, generator=draw).requires_grad_()
    call = torch.randn(B, D, generator=draw), weight, torch.arange(B)
    saved = made()
    for _ in range(2):
        saved(*call, context=torch.arange(B)).backward()
    with torch.device("meta"):
        loaded = made()
        loaded.load_state_dict(saved.state_dict())
    assert loaded(*call, context=torch.arange(B)) == saved(*call, context=torch.arange(B))


def test_a_first_module_under_another_default_leaves_others_as_they_are() -> None:
    """Modules of Python are imported at the first use of a source."""
    call = f"nn.NegativeSampling('uniform', num_classes={V})(torch.ones(3, {D}), torch.ones({V}, {D}), torch.arange(3))"
    run = subprocess.run([sys.executable, "-c", f"""
import torch
import embtrain.nn as nn
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    nn.SampledSoftmax("cluster", num_classes={V})
torch.set_default_dtype(torch.float32)
print({call}.item())
"""], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
