"""Methods of a model that leave it unchanged if they raise an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def unchanged_on_error(method: Method) -> Method:
    """Return a method of a model that restores the attributes of the model and of `wv` if `method` raises.

    gensim's code sets attributes to new values, except words and their counts in `wv`, which it changes in place.
    """
    @functools.wraps(method)
    def restoring(model: Any, *args: Any, **keys: Any) -> Any:
        wv = model.wv
        earlier = [(model, vars(model).copy()), (wv, vars(wv) | {
            "index_to_key": list(wv.index_to_key), "key_to_index": dict(wv.key_to_index),
            "expandos": {name: values.copy() for name, values in wv.expandos.items()}})]
        try:
            return method(model, *args, **keys)
        except BaseException:
            for owner, attributes in earlier:
                owner.__dict__.clear()
                owner.__dict__.update(attributes)
            raise

    return restoring  # type: ignore[return-value]
