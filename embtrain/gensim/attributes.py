"""Attributes of a model that are checked: `negatives` and `sets` when they are set, others before a method uses them.

`negatives`, `sets`, `sg`, `negative` and `ns_exponent` may change in any order: which of them fit each other is checked
when they are used.
"""

from __future__ import annotations

import functools
import inspect
import os
from contextlib import suppress
from numbers import Number
from typing import Any

from embtrain.common.config import Layer
from embtrain.experiment.api import Sets
from embtrain.gensim import arguments
from embtrain.gensim.rollback import Method


def checked_first(method: Method) -> Method:
    """Return a method of a model that first checks the attributes of the model and the arguments that replace them."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checking(model: Any, *args: Any, **keys: Any) -> Any:
        given = dict[str, Any]()
        with suppress(TypeError):  # of arguments that `method` does not have, which it reports
            given = signature.bind(model, *args, **keys).arguments
        given = {**given, **given.get("kwargs", {})}
        replaced = {name: value for name, value in given.items() if value is not None and not (
            name in ("min_count", "sample") and isinstance(value, Number) and not value)}  # gensim: 0 is "not given"
        arguments.check_values(vars(model) | replaced)
        return method(model, *args, **keys)

    return checking  # type: ignore[return-value]


class StrategyName:
    """The strategy: its name, or the path of its YAML, which is read when it is set."""

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        return model._strategy.name if isinstance(model._strategy, Layer) else model._strategy

    def __set__(self, model: Any, strategy: str | os.PathLike | Layer) -> None:
        model._strategy = arguments.read_strategy(strategy)


class CheckedSets:
    """Further configuration keys as KEY=VALUE texts; a mapping or None may be set too."""

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        return self if model is None else vars(model)["sets"]

    def __set__(self, model: Any, sets: Sets | None) -> None:
        vars(model)["sets"] = arguments.checked_sets(sets, dict.fromkeys(arguments.STRATEGY_ARGUMENTS))


class StrategyValue:
    """The user's value; if it is None, the value that the current strategy and `sets` result in.

    That value is resolved when it is read.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        value = vars(model).get(self.name)
        return _strategy_values(model)[self.name] if value is None else value

    def __set__(self, model: Any, value: Any) -> None:
        is_first = self.name not in vars(model)  # by gensim's constructor, which takes a number where ours takes None
        vars(model)[self.name] = None if is_first and model._arguments[self.name] is None else value


def _strategy_values(model: Any) -> dict[str, Any]:
    """Return the values of the model's strategy, which are kept until it changes. Raises ArgumentError."""
    inputs = (model._strategy, model.sg, list(model.sets))
    resolved_inputs, values = vars(model).get("_resolved", (None, {}))
    if resolved_inputs != inputs:
        values = arguments.strategy_values(arguments.resolve(*inputs[:2], model._subwords, inputs[2], 1, 1))
        model._resolved = inputs, values
    return dict(values)
