"""PyTorch's optimizers without the imports of its compiler.

`torch.optim` wraps its methods, so that code given to `torch.compile` does not trace them. The first call of a wrapper
imports torch._dynamo, which takes about as long as torch itself. embtrain compiles no step, so these classes call the
same methods directly. See docs/decisions/code/153-eager-optimizers.md.
"""

from __future__ import annotations

import inspect

import torch


class Eager(torch.optim.Optimizer):
    """Base class: the methods that every optimizer inherits. `step` is that of a subclass."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class EagerSGD(Eager, torch.optim.SGD):
    """Stochastic gradient descent."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class EagerAdagrad(Eager, torch.optim.Adagrad):
    """Adagrad with one accumulator per number."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adagrad.step))


class EagerAdam(Eager, torch.optim.Adam):
    """Adam."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
