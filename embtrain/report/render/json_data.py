"""JSON inside a page: no text in it can end the element that contains it."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from embtrain.report.format import plain

# "<" could end the element or begin a comment; "&" is not special there, but is in XHTML
_ESCAPED = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def encode(value: Any) -> str:
    """Return compact JSON of texts, numbers, lists and mappings, to be the text of a `script` element."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)


def packed(array: np.ndarray, kind: str) -> str:
    """Return numbers as base64. kind: NumPy type, little-endian, of one or two bytes."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode()


def _plain(value: Any) -> Any:
    """Escape control characters, lone surrogates and the like in every text, as the rest of the page."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
