"""Attributes of a model that have the strategy's value while they are unset: `negative` and `ns_exponent`."""

from __future__ import annotations

from typing import Any

from embtrain.gensim import arguments


class StrategyValue:
    """The user's value; if it is None, the value that the current strategy and `sets` result in.

    That value is resolved when it is read, so that `negatives`, `sets` and `sg` may change in any order.
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
