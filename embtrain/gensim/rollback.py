"""Restore a model if one of its methods raises an error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

_CALL = ("alpha", "min_alpha", "epochs", "compute_loss", "running_training_loss")  # settings of a call of `train`
Method = TypeVar("Method", bound=Callable[..., Any])


def unchanged_on_error(method: Method) -> Method:
    """Return a method of a model that restores the attributes of the model and of `wv` if `method` raises.

    gensim's code sets attributes to new values, with these exceptions: it appends to the words of `wv`, and changes
    their counts in place. Tables are not copied.
    """
    @functools.wraps(method)
    def restoring(model: Any, *args: Any, **keys: Any) -> Any:
        wv, words, n_words = model.wv, model.wv.index_to_key, len(model.wv.index_to_key)
        counts = {name: values.copy() if isinstance(values, np.ndarray) else values  # gensim's code changes arrays
                  for name, values in wv.expandos.items()}
        earlier = [(model, vars(model).copy()), (wv, vars(wv) | {"expandos": counts})]
        try:
            return method(model, *args, **keys)
        except BaseException:
            for owner, attributes in earlier:
                owner.__dict__.clear()
                owner.__dict__.update(attributes)
            while len(words) > n_words:  # a list or a deque; a tuple or an array cannot grow
                words.pop()
            wv.key_to_index = {word: i for i, word in enumerate(words)}
            raise

    return restoring  # type: ignore[return-value]


@contextmanager
def restored_unless_trained(model: Any) -> Iterator[None]:
    """Restore the settings of a call of `train` that ends before its first epoch has changed the model."""
    earlier, n_calls = {name: getattr(model, name) for name in _CALL}, model.train_count
    try:
        yield
    except BaseException:
        if model.train_count == n_calls:
            model.__dict__.update(earlier)
        raise
