"""Nested states as bytes, in the format of checkpoints: an exchange between processes needs no pickle."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from embtrain.train.state import serialize


def to_bytes(state: dict) -> bytes:
    """The bytes of a state: the length of the tree in 8 bytes, the tree as JSON, and the tensors."""
    node, tensors = serialize.encode(state)
    tree = json.dumps(node).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        serialize.write(path, tensors)
        return len(tree).to_bytes(8, "little") + tree + path.read_bytes()


def from_bytes(content: bytes) -> dict:
    """The state that `to_bytes` returned."""
    n = int.from_bytes(content[:8], "little")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        path.write_bytes(content[8 + n:])
        return serialize.decode(json.loads(content[8:8 + n]), path)
