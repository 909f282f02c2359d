"""PyTorch's optimizers without its compiler: the bits of `torch.optim`, and no import of torch._dynamo."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.bits import same
from torch import nn

import embtrain
from embtrain.common.optimizers.eager import EagerAdagrad, EagerAdam, EagerSGD
from embtrain.train.checks.allocation_counter import AllocationCounter
from embtrain.train.optimizers import LazyAdam, RowAdagrad

PACKAGE = Path(embtrain.__file__).parent
Make = Callable[..., torch.optim.Optimizer]
PAIRS = [(EagerSGD, torch.optim.SGD, True), (EagerAdagrad, torch.optim.Adagrad, False),
         (EagerAdam, torch.optim.Adam, False),
         (partial(EagerSGD, momentum=0.9), partial(torch.optim.SGD, momentum=0.9), False)]


def steps(optimizer: torch.optim.Optimizer, table: nn.Parameter, first: int, last: int, sparse: bool) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        ids = torch.tensor([step % 7, 3, 3, 9])
        nn.functional.embedding(ids, table, sparse=sparse).sin().square().sum().backward()
        optimizer.step()


def new_table() -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1, 1, 50).reshape(10, 5).clone())


@pytest.mark.parametrize(("ours", "theirs", "sparse"), PAIRS)
def test_bits_and_state_are_those_of_torch(ours: Make, theirs: Make, sparse: bool) -> None:
    ours_table, their_table = new_table(), new_table()
    a, b = ours([ours_table], lr=0.1), theirs([their_table], lr=0.1)
    steps(a, ours_table, 0, 5, sparse)
    steps(b, their_table, 0, 5, sparse)
    assert same(ours_table.detach(), their_table.detach()) and same(a.state_dict(), b.state_dict())
    assert not torch.equal(ours_table, new_table())
    a2, b2 = ours([ours_table], lr=0.5), theirs([their_table], lr=0.5)
    a2.load_state_dict(b.state_dict())                       # each continues from the state of the other
    b2.load_state_dict(a.state_dict())
    steps(a2, ours_table, 5, 9, sparse)
    steps(b2, their_table, 5, 9, sparse)
    assert same(ours_table.detach(), their_table.detach()) and same(a2.state_dict(), b2.state_dict())


@pytest.mark.parametrize("optimizer", [EagerSGD, EagerAdagrad, EagerAdam, RowAdagrad, LazyAdam])
def test_no_method_imports_the_compiler(optimizer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        monkeypatch.delattr(inspect.unwrap(getattr(torch.optim.Optimizer, method)), "__dynamo_disable", raising=False)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # an import of it raises ImportError
    table = new_table()
    subject = optimizer([table], lr=0.1)
    steps(subject, table, 0, 3, sparse=optimizer in (RowAdagrad, LazyAdam))
    subject.load_state_dict(subject.state_dict())
    with AllocationCounter() as counted:
        table.detach().exp()
    assert counted.peak == 200


def test_no_other_file_makes_an_optimizer_of_torch() -> None:
    """A bench trains the rivals as their users do."""
    makes = re.compile(r"(?<!\w)optim\.(?!Optimizer\b)[A-Z]|from torch\.optim")
    files = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if makes.search(path.read_text())]
    assert [name for name in files if not name.startswith("cli/bench/")] == ["common/optimizers/eager.py"]
