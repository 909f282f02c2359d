"""Keys of settings in errors and warnings of sources: those of a source inside another are below its place there.

The outer source enters `nested` before it builds or calls an inner one, so that a source needs only `key`. Text of
a message is never rewritten: it may contain values and paths of the user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_SECTION: ContextVar[str] = ContextVar("section", default="negatives")
_KEY_OF_K: ContextVar[str] = ContextVar("key_of_k", default="negatives.k")


def section() -> str:
    """Dotted path of the settings of the source that is being built or called."""
    return _SECTION.get()


def key(name: str) -> str:
    """Dotted key of a setting of this source, for a message; that of k belongs to the source that sets k."""
    return _KEY_OF_K.get() if name == "k" else f"{section()}.{name}"


@contextlib.contextmanager
def nested(name: str, imposes_k: bool = False) -> Iterator[None]:
    """Build or call the source whose settings are under the key `name` of the current one.

    imposes_k: whether that source draws the k of the current one, not its own.
    """
    outer = _SECTION.set(f"{section()}.{name}")
    k = _KEY_OF_K.set(key("k") if imposes_k else f"{section()}.k")
    try:
        yield
    finally:
        _SECTION.reset(outer)
        _KEY_OF_K.reset(k)
